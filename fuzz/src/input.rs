//! How an input that stands for several files is cut into them: by marks that a mutation seldom makes or breaks, so
//! that a change in one file leaves the others whole.
//!
//! ```text
//! OPTIONS <ff>%%<ff> NAME \n BYTES <ff>%%<ff> NAME \n BYTES ...
//! ```
//!
//! A file called `*.npz` or `*.zip` whose bytes are no zip archive is a list of members, each again `NAME \n BYTES`, between marks
//! `<ff>&&<ff>`; one called `*.gz` whose bytes are not gzipped is packed. Both get the checksums they need.

use std::borrow::Cow;

use crate::{alloc::DEFLATE, pack};

/// Stands between files.
pub const FILE: &[u8] = b"\xff%%\xff";
/// Stands between members of an archive.
pub const MEMBER: &[u8] = b"\xff&&\xff";

/// An input as options and files.
#[derive(Debug)]
pub struct Input<'a> {
    /// What stands before the first mark: words between spaces.
    pub options: &'a str,
    /// Files by name; where a name comes twice, the first.
    pub files: Vec<(&'static str, Cow<'a, [u8]>)>,
    /// The most bytes that the files can be unpacked to.
    pub unpacked: usize,
}

impl<'a> Input<'a> {
    /// Cuts `data`; files whose name is not in `names` are dropped.
    pub fn read(data: &'a [u8], names: &[&'static str]) -> Self {
        let mut parts = split(data, FILE);
        let options = std::str::from_utf8(parts.next().unwrap_or_default()).unwrap_or_default();
        let mut files: Vec<(&'static str, Cow<[u8]>)> = Vec::new();
        let mut unpacked = 0;
        for part in parts {
            let (name, bytes) = named(part);
            let Some(&name) = names.iter().find(|known| known.as_bytes() == name) else { continue };
            if files.iter().all(|(there, _)| *there != name) {
                let deflated =
                    is_packed(name, bytes) || has_packed_variables(name, bytes) || name.ends_with(".parquet");
                unpacked += bytes.len() * if deflated { DEFLATE } else { 1 };
                files.push((name, pack(name, bytes)));
            }
        }
        Self { options, files, unpacked }
    }

    /// The bytes of the file `name`.
    pub fn file(&self, name: &str) -> Option<&[u8]> {
        self.files.iter().find(|(there, _)| *there == name).map(|(_, bytes)| &bytes[..])
    }

    /// Whether the options have this word.
    pub fn has(&self, word: &str) -> bool {
        self.options.split_ascii_whitespace().any(|there| there == word)
    }

    /// The value of the option `name=value`.
    pub fn option(&self, name: &str) -> Option<&'a str> {
        let mut words = self.options.split_ascii_whitespace();
        words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }
}

/// An input of these options and files.
pub fn join(options: &str, files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = options.as_bytes().to_vec();
    for (name, bytes) in files {
        out.extend([FILE, name.as_bytes(), b"\n", bytes].concat());
    }
    out
}

/// An `.npz` of these members, as [`Input::read`] takes it.
pub fn members(members: &[(&str, &[u8])]) -> Vec<u8> {
    let parts: Vec<Vec<u8>> =
        members.iter().map(|(name, bytes)| [name.as_bytes(), b"\n", bytes].concat()).collect();
    parts.join(MEMBER)
}

fn is_zip(name: &str) -> bool {
    name.ends_with(".npz") || name.ends_with(".zip")
}

/// Whether the file comes as the archive that its name promises.
fn is_packed(name: &str, bytes: &[u8]) -> bool {
    is_zip(name) && bytes.starts_with(b"PK") || name.ends_with(".gz") && bytes.starts_with(b"\x1f\x8b")
}

/// Whether a MATLAB file may hold deflated variables (elements of type 15, in either byte order).
fn has_packed_variables(name: &str, bytes: &[u8]) -> bool {
    name.ends_with(".mat") && bytes.windows(4).any(|word| matches!(word, [15, 0, 0, 0] | [0, 0, 0, 15]))
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

/// The first line and the rest.
fn named(part: &[u8]) -> (&[u8], &[u8]) {
    let end = part.iter().position(|&b| b == b'\n').unwrap_or(part.len());
    (&part[..end], part.get(end + 1..).unwrap_or_default())
}

/// The parts between the marks.
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
    fn what_is_joined_comes_apart_again() {
        let archive = members(&[("a.npy", b"12"), ("b.npy", b"")]);
        let data = join("raw k=3", &[("x", b"1\n2"), ("no", b""), ("y.npz", &archive), ("z.gz", b"text")]);
        let input = Input::read(&data, &["x", "y.npz", "z.gz"]);
        assert!(input.has("raw") && !input.has("k"));
        assert_eq!(input.option("k"), Some("3"));
        assert_eq!((input.file("x"), input.file("no")), (Some(&b"1\n2"[..]), None));
        assert!(input.file("y.npz").unwrap().starts_with(b"PK") && input.file("z.gz").unwrap()[0] == 0x1f);
        let none = Input::read(b"", &["x"]);
        assert!(none.files.is_empty() && none.options.is_empty());
    }
}
