//! SHA-256 of files, and the list `SHA256SUMS` in the format of `sha256sum -c`.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use graphmill_core::progress::Progress;
use sha2::{Digest, Sha256};

use super::{Error, Result};
use crate::atomic;

/// File name of the list.
pub(crate) const NAME: &str = "SHA256SUMS";

/// Formats a finished digest.
pub(crate) fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns true if a text is a SHA-256 as [`hex`] formats it.
pub(crate) fn is_hex(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Hashes a whole file; also returns its length.
pub(crate) fn of_file(path: &Path, progress: &dyn Progress) -> Result<(Sha256, u64)> {
    let mut file = File::open(path).map_err(|e| Error::io(path, "open", e))?;
    let (mut hash, mut length) = (Sha256::new(), 0);
    let mut buffer = vec![0; 1 << 20];
    loop {
        Error::check(progress)?;
        let n = file.read(&mut buffer).map_err(|e| Error::io(path, "read", e))?;
        if n == 0 {
            return Ok((hash, length));
        }
        hash.update(&buffer[..n]);
        length += n as u64;
        progress.done(length);
    }
}

/// Checksums of earlier downloads into a directory.
#[derive(Debug)]
pub(crate) struct Sums {
    path: PathBuf,
    of: BTreeMap<String, String>,
}

impl Sums {
    /// Reads the list of the directory `dir`; empty if the file is missing.
    pub(crate) fn read(dir: &Path) -> Result<Self> {
        let path = dir.join(NAME);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(Error::io(&path, "read", e)),
        };
        let mut of = BTreeMap::new();
        for (i, line) in text.lines().enumerate() {
            let entry = line.split_once("  ").filter(|(sum, name)| is_hex(sum) && !name.is_empty());
            let (sum, name) = entry.ok_or_else(|| {
                Error::wrong(
                    &path,
                    format!(
                        "line {} is malformed; fix it, or delete the file to record new checksums",
                        i + 1
                    ),
                )
            })?;
            of.insert(name.to_string(), sum.to_string());
        }
        Ok(Self { path, of })
    }

    /// Recorded checksum of a file.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.of.get(name).map(String::as_str)
    }

    /// Records a file's checksum and writes the list.
    pub(crate) fn set(&mut self, name: &str, sum: &str) -> Result<()> {
        if self.get(name) == Some(sum) {
            return Ok(());
        }
        self.of.insert(name.to_string(), sum.to_string());
        let text: String = self.of.iter().map(|(name, sum)| format!("{sum}  {name}\n")).collect();
        Ok(atomic::write(&self.path, |out| out.write_all(text.as_bytes()))?)
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::progress::Quiet;

    use super::*;

    struct Stopped;

    impl Progress for Stopped {
        fn is_stopped(&self) -> bool {
            true
        }
    }

    #[test]
    fn file_checksums_match_the_standard() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "abc").unwrap();
        let (hash, length) = of_file(&path, &Quiet).unwrap();
        // FIPS 180-2, appendix B.1
        assert_eq!(hex(hash), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(length, 3);
        assert!(matches!(of_file(&path, &Stopped), Err(Error::Interrupted)));
    }

    #[test]
    fn the_list_round_trips_and_malformed_lines_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let sum = "0".repeat(64);
        let mut sums = Sums::read(dir.path()).unwrap();
        sums.set("b", &sum).unwrap();
        sums.set("a", &sum).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join(NAME)).unwrap(), format!("{sum}  a\n{sum}  b\n"));
        assert_eq!(Sums::read(dir.path()).unwrap().get("b"), Some(sum.as_str()));
        for bad in ["short  a", &format!("{sum} a"), &format!("{sum}  "), &format!("{}  a", "G".repeat(64))] {
            fs::write(dir.path().join(NAME), format!("{sum}  a\n{bad}\n")).unwrap();
            assert!(Sums::read(dir.path()).unwrap_err().to_string().contains("line 2 is malformed"), "{bad}");
        }
    }
}
