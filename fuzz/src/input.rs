//! Encoding of several files in one input: they are separated by marks that a mutation rarely
//! creates or breaks, so that a change in one file leaves the others intact.
//!
//! ```text
//! OPTIONS <ff>%%<ff> NAME \n BYTES <ff>%%<ff> NAME \n BYTES ...
//! ```
//!
//! A file called `*.npz` or `*.zip` whose bytes are not a zip archive is a list of members, each
//! again `NAME \n BYTES`, between marks `<ff>&&<ff>`; one called `*.gz` whose bytes are not gzipped
//! is compressed. Both get valid checksums.

use std::borrow::Cow;

use crate::{alloc::DEFLATE, pack};

/// Mark between files.
pub const FILE: &[u8] = b"\xff%%\xff";
/// Mark between members of an archive.
pub const MEMBER: &[u8] = b"\xff&&\xff";

/// Input as options and files.
#[derive(Debug)]
pub struct Input<'a> {
    /// Text before the first mark: words separated by spaces.
    pub options: &'a str,
    /// Files by name; of duplicate names the first.
    pub files: Vec<(&'static str, Cow<'a, [u8]>)>,
    /// Maximum number of bytes to which the files can be unpacked.
    pub unpacked: usize,
}

impl<'a> Input<'a> {
    /// Splits `data`; files whose name is not in `names` are dropped.
    pub fn read(data: &'a [u8], names: &[&'static str]) -> Self {
        let mut parts = split(data, FILE);
        let options = std::str::from_utf8(parts.next().unwrap_or_default()).unwrap_or_default();
        let mut files: Vec<(&'static str, Cow<[u8]>)> = Vec::new();
        let mut unpacked = 0;
        for part in parts {
            let (name, bytes) = named(part);
            let Some(&name) = names.iter().find(|known| known.as_bytes() == name) else { continue };
            if files.iter().all(|(there, _)| *there != name) {
                let deflated = is_packed(name, bytes)
                    || has_packed_variables(name, bytes)
                    || name.ends_with(".parquet")
                    || is_packed_table(bytes);
                unpacked += bytes.len() * if deflated { DEFLATE } else { 1 };
                files.push((name, pack(name, bytes)));
            }
        }
        Self { options, files, unpacked }
    }

    /// Bytes of the file `name`.
    pub fn file(&self, name: &str) -> Option<&[u8]> {
        self.files.iter().find(|(there, _)| *there == name).map(|(_, bytes)| &bytes[..])
    }

    /// Returns true if the options contain this word.
    pub fn has(&self, word: &str) -> bool {
        self.options.split_ascii_whitespace().any(|there| there == word)
    }

    /// Value of the option `name=value`.
    pub fn option(&self, name: &str) -> Option<&'a str> {
        let mut words = self.options.split_ascii_whitespace();
        words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }
}

/// Encodes options and files as an input.
pub fn join(options: &str, files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = options.as_bytes().to_vec();
    for (name, bytes) in files {
        out.extend([FILE, name.as_bytes(), b"\n", bytes].concat());
    }
    out
}

/// Encodes the members of an `.npz` for [`Input::read`].
pub fn members(members: &[(&str, &[u8])]) -> Vec<u8> {
    let parts: Vec<Vec<u8>> =
        members.iter().map(|(name, bytes)| [name.as_bytes(), b"\n", bytes].concat()).collect();
    parts.join(MEMBER)
}

fn is_zip(name: &str) -> bool {
    name.ends_with(".npz") || name.ends_with(".zip")
}

/// Returns true if the file already is the archive that its name promises.
fn is_packed(name: &str, bytes: &[u8]) -> bool {
    is_zip(name) && bytes.starts_with(b"PK") || name.ends_with(".gz") && bytes.starts_with(b"\x1f\x8b")
}

/// Returns true if a MATLAB file may contain deflated variables (elements of type 15, in either
/// byte order).
fn has_packed_variables(name: &str, bytes: &[u8]) -> bool {
    name.ends_with(".mat") && bytes.windows(4).any(|word| matches!(word, [15, 0, 0, 0] | [0, 0, 0, 15]))
}

/// Returns true if a reader of tables, which recognizes formats by their first bytes, would unpack
/// the file: Parquet, Arrow, gzip and Zstandard.
fn is_packed_table(bytes: &[u8]) -> bool {
    let starts: [&[u8]; 5] = [b"PAR1", b"ARROW1", b"\xff\xff\xff\xff", b"\x1f\x8b", b"\x28\xb5\x2f\xfd"];
    starts.iter().any(|start| bytes.starts_with(start))
}

fn pack<'a>(name: &str, bytes: &'a [u8]) -> Cow<'a, [u8]> {
    if is_packed(name, bytes) {
        bytes.into()
    } else if is_zip(name) {
        let members: Vec<(&[u8], &[u8])> = split(bytes, MEMBER).map(named).collect();
        pack::zip(&members).into()
    } else if name.ends_with(".gz") {
        pack::gzip(bytes).into()
    } else {
        bytes.into()
    }
}

/// Splits off the first line.
fn named(part: &[u8]) -> (&[u8], &[u8]) {
    let end = part.iter().position(|&b| b == b'\n').unwrap_or(part.len());
    (&part[..end], part.get(end + 1..).unwrap_or_default())
}

/// Parts between the marks.
pub fn split<'a>(data: &'a [u8], mark: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = Some(data);
    std::iter::from_fn(move || {
        let data = rest?;
        match data.windows(mark.len()).position(|window| window == mark) {
            Some(at) => {
                rest = Some(&data[at + mark.len()..]);
                Some(&data[..at])
            }
            None => rest.take(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_inputs_split_into_their_parts() {
        let archive = members(&[("a.npy", b"12"), ("b.npy", b"")]);
        let data = join("raw k=3", &[("x", b"1\n2"), ("no", b""), ("y.npz", &archive), ("z.gz", b"text")]);
        let input = Input::read(&data, &["x", "y.npz", "z.gz"]);
        assert!(input.has("raw") && !input.has("k"));
        assert_eq!(input.option("k"), Some("3"));
        assert_eq!((input.file("x"), input.file("no")), (Some(&b"1\n2"[..]), None));
        assert!(input.file("y.npz").unwrap().starts_with(b"PK") && input.file("z.gz").unwrap()[0] == 0x1f);
        let table = Input::read(&join("", &[("x", b"PAR1")]), &["x"]).unpacked;
        assert_eq!((table, Input::read(&join("", &[("x", b"PAR2")]), &["x"]).unpacked), (4 * DEFLATE, 4));
        let none = Input::read(b"", &["x"]);
        assert!(none.files.is_empty() && none.options.is_empty());
    }
}
