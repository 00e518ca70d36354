//! Reader of tar archives (POSIX ustar, with GNU's and pax's long names), forward only.

use std::io::{self, BufRead, Read, Take};

use graphmill_core::{Result, location::Location};

const BLOCK: usize = 512;
/// Maximum length of a long name.
const MAX_NAME: u64 = 1 << 16;

/// Names of all files, in their order.
///
/// # Errors
/// The archive is damaged.
pub(super) fn names(mut archive: impl BufRead, at: &Location) -> Result<Vec<String>> {
    let mut names = Vec::new();
    while let Some((name, size)) = next(&mut archive, at)? {
        skip(&mut archive, size.next_multiple_of(BLOCK as u64), at)?;
        names.push(name);
    }
    Ok(names)
}

/// Contents of the file `wanted`.
///
/// # Errors
/// The archive is damaged, or has no such file.
pub(super) fn member<R: BufRead>(mut archive: R, wanted: &str, at: &Location) -> Result<Take<R>> {
    while let Some((name, size)) = next(&mut archive, at)? {
        if name == wanted {
            return Ok(archive.take(size));
        }
        skip(&mut archive, size.next_multiple_of(BLOCK as u64), at)?;
    }
    Err(at.error(format!("there is no member {wanted}")))
}

/// Name and size of the next plain file; the reader is then at its contents.
fn next(archive: &mut impl BufRead, at: &Location) -> Result<Option<(String, u64)>> {
    let mut long: Option<String> = None;
    loop {
        let mut block = [0; BLOCK];
        let mut filled = 0;
        while filled < BLOCK {
            match archive.read(&mut block[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(at.error("the archive ends within a header: it is truncated")),
                Ok(read) => filled += read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(at.error(format!("cannot be read: {e}"))),
            }
        }
        if block.iter().all(|&b| b == 0) {
            return Ok(None);
        }
        let sum: u64 = block
            .iter()
            .enumerate()
            .map(|(i, &b)| if (148..156).contains(&i) { 32 } else { u64::from(b) })
            .sum();
        if octal(&block[148..156]) != Some(sum) {
            return Err(
                at.error("a header has a wrong checksum: this is not a tar archive, or it is damaged")
            );
        }
        let size = octal(&block[124..136]).ok_or_else(|| at.error("a header without a size"))?;
        let padded =
            size.checked_next_multiple_of(BLOCK as u64).ok_or_else(|| at.error("a size out of range"))?;
        match block[156] {
            b'0' | 0 | b'7' => {
                let prefix =
                    if block[257..].starts_with(b"ustar\0") { text(&block[345..500]) } else { String::new() };
                let slash = if prefix.is_empty() { "" } else { "/" };
                let name = long.unwrap_or_else(|| format!("{prefix}{slash}{}", text(&block[..100])));
                return Ok(Some((name.trim_start_matches("./").to_string(), size)));
            }
            kind @ (b'L' | b'x') if size <= MAX_NAME => {
                let mut bytes = vec![0; padded as usize];
                archive.read_exact(&mut bytes).map_err(|e| at.error(format!("cannot be read: {e}")))?;
                bytes.truncate(size as usize);
                let name = if kind == b'L' { Some(text(&bytes)) } else { pax_path(&bytes) };
                long = name.or(long);
            }
            // Directories, links, and attributes of the whole archive.
            _ => skip(archive, padded, at)?,
        }
    }
}

fn skip(archive: &mut impl BufRead, bytes: u64, at: &Location) -> Result<()> {
    match io::copy(&mut archive.take(bytes), &mut io::sink()) {
        Ok(skipped) if skipped == bytes => Ok(()),
        Ok(_) => Err(at.error("the archive ends within a file: it is truncated")),
        Err(e) => Err(at.error(format!("cannot be read: {e}"))),
    }
}

fn text(field: &[u8]) -> String {
    let end = field.iter().position(|&b| b == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

fn octal(field: &[u8]) -> Option<u64> {
    if field.first()? & 0x80 != 0 {
        // GNU's form of sizes beyond eight GiB.
        return field[field.len() - 8..]
            .iter()
            .try_fold(0u64, |x, &b| x.checked_mul(256)?.checked_add(b.into()));
    }
    u64::from_str_radix(text(field).trim(), 8).ok()
}

/// Value of the record `path` of a pax header (`LENGTH path=VALUE\n`).
fn pax_path(records: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(records);
    text.lines().find_map(|line| line.split_once(' ')?.1.strip_prefix("path=").map(str::to_string))
}

/// Archives for tests.
#[cfg(test)]
pub(super) mod testing {
    /// Archive of these files.
    pub(in super::super) fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, bytes) in members {
            let mut block = [0u8; 512];
            block[..name.len()].copy_from_slice(name.as_bytes());
            block[124..135].copy_from_slice(format!("{:011o}", bytes.len()).as_bytes());
            block[148..156].fill(b' ');
            block[156] = b'0';
            block[257..265].copy_from_slice(b"ustar\x0000");
            let sum: u32 = block.iter().map(|&b| u32::from(b)).sum();
            block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
            out.extend(block);
            out.extend(*bytes);
            out.resize(out.len().next_multiple_of(512), 0);
        }
        out.resize(out.len() + 1024, 0);
        out
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn long_names_are_read_and_damage_is_reported() {
        let at = Location::new(Path::new("a.tar"), "archive");
        let mut long = testing::archive(&[("x", b"deep/name\0")]);
        long[156] = b'L';
        long[148..156].fill(b' ');
        let sum: u32 = long[..512].iter().map(|&b| u32::from(b)).sum();
        long[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        long.truncate(1024);
        long.extend(testing::archive(&[("short", b"1"), ("b", b"22")]));
        assert_eq!(names(&long[..], &at).unwrap(), ["deep/name", "b"]);
        let mut text = String::new();
        member(&long[..], "b", &at).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "22");
        assert!(member(&long[..], "c", &at).err().unwrap().to_string().contains("no member c"));
        assert!(names(&long[..1030], &at).unwrap_err().to_string().contains("truncated"));
        long[0] ^= 1;
        assert!(names(&long[..], &at).unwrap_err().to_string().contains("wrong checksum"));
        assert_eq!(pax_path(b"18 path=some/name\n9 mtime=1\n"), Some("some/name".into()));
    }
}
