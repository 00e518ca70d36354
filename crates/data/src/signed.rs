//! Manifests of datasets and partitions that carry a checksum over their own text.
//!
//! A manifest is JSON whose last field is `checksum`: the checksum of the text with zeros in its
//! place, so that any changed byte is detected. The fields `format` and `version` are checked
//! before any other, so that the error for a file of another program or version says so.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use graphmill_core::{Error, Result, location::Location};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::checksum::checksum;

/// Placeholder of the checksum while the text is hashed.
const UNSIGNED: &str = "00000000000000000000000000000000";

/// Entry of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileEntry {
    /// Element type, in NumPy's notation.
    pub(crate) dtype: String,
    /// Length of each axis.
    pub(crate) shape: Vec<usize>,
    /// Size of the file.
    pub(crate) bytes: u64,
    /// Checksum of the whole file (see [`checksum`]).
    pub(crate) checksum: String,
}

/// Constants of one kind of manifest, and its terms in messages.
pub(crate) struct Terms {
    /// File name of the manifest in its directory.
    pub(crate) file_name: &'static str,
    /// Value of the field `format`.
    pub(crate) format: &'static str,
    /// Version that this program reads and writes.
    pub(crate) version: u64,
    /// Versions that this program reads, in messages, such as "version 1".
    pub(crate) reads: &'static str,
    /// Maximum length; longer files are rejected before they are read.
    pub(crate) max_bytes: u64,
    /// Format in messages, such as "dataset"; also the location of a fault.
    pub(crate) thing: &'static str,
    /// Directory in messages, such as "partitioned dataset".
    pub(crate) directory: &'static str,
    /// Manifest in messages, such as "a dataset manifest".
    pub(crate) manifest: &'static str,
    /// Remedy for an old or damaged manifest, such as "import the data again".
    pub(crate) remake: &'static str,
    /// Remedy for an oversized manifest, such as "shorter names fit".
    pub(crate) shorten: &'static str,
}

/// Fields that every version has.
#[derive(Deserialize)]
struct Stamp {
    format: String,
    version: u64,
}

/// Manifest with a checksum over its own text.
pub(crate) trait SignedManifest: Clone + Serialize + DeserializeOwned {
    /// Constants and terms of this kind.
    const TERMS: Terms;

    /// Field `checksum`, which is the last.
    fn checksum(&mut self) -> &mut String;

    /// Message for a directory without the file.
    fn missing(dir: &Path) -> &'static str;

    /// Checks that the fields are consistent.
    ///
    /// # Errors
    /// The inconsistent field, and the reason.
    fn check(&self) -> Result<(), (&'static str, String)> {
        Ok(())
    }

    /// Computes the checksum and the signed text.
    ///
    /// # Errors
    /// The text would be too long.
    fn signed(&self) -> Result<(String, String)> {
        let Terms { file_name, max_bytes, shorten, .. } = Self::TERMS;
        let mut unsigned = self.clone();
        *unsigned.checksum() = UNSIGNED.into();
        let text = serde_json::to_string_pretty(&unsigned)
            .map_err(|e| Error::invalid(format!("{file_name} cannot be written: {e}")))?
            + "\n";
        if text.len() as u64 > max_bytes {
            let length = text.len();
            return Err(Error::invalid(format!(
                "{file_name} would take {length} bytes, more than {max_bytes}: {shorten}"
            )));
        }
        Ok((checksum(text.as_bytes()), sign(&text)))
    }

    /// Reads and checks the manifest of `dir`.
    ///
    /// # Errors
    /// The file is missing, too long, not a manifest, of another version, modified, or
    /// inconsistent.
    fn read(dir: &Path) -> Result<Self> {
        let Terms { file_name, max_bytes, thing, directory, .. } = Self::TERMS;
        let path = dir.join(file_name);
        let at = |place: &'static str| Location::new(&path, place);
        let file = File::open(&path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => at("manifest").error(Self::missing(dir)),
            std::io::ErrorKind::NotADirectory => Location::new(dir, thing)
                .error(format!("this is a file; a {directory} is a directory: name that")),
            _ => Error::io(&path, "open", e),
        })?;
        let mut text = String::new();
        file.take(max_bytes + 1).read_to_string(&mut text).map_err(|e| Error::io(&path, "read", e))?;
        if text.len() as u64 > max_bytes {
            return Err(
                at("manifest").error(format!("longer than {max_bytes} bytes: this is not a manifest"))
            );
        }
        Self::parse(&text, &path)
    }

    /// Checks the text of the manifest at `path`.
    ///
    /// # Errors
    /// As for [`SignedManifest::read`].
    fn parse(text: &str, path: &Path) -> Result<Self> {
        let Terms { format, version, reads, thing, manifest: what, remake, .. } = Self::TERMS;
        let at = |place: &'static str| Location::new(path, place);
        let json = |e: serde_json::Error| {
            let place = format!("line {} column {}", e.line(), e.column());
            Location::new(path, place).error(format!("not {what}: {e}"))
        };
        let stamp: Stamp = serde_json::from_str(text).map_err(json)?;
        if stamp.format != format {
            return Err(at("format").error(format!("'{}' found, '{format}' expected", stamp.format)));
        }
        if stamp.version != version {
            let remedy = if stamp.version > version { "update Graphmill" } else { remake };
            return Err(at("version").error(format!(
                "version {} of the {thing} format; this program reads {reads}, {remedy}",
                stamp.version
            )));
        }
        let mut manifest: Self = serde_json::from_str(text).map_err(json)?;
        if !is_signed(text, manifest.checksum()) {
            return Err(at("checksum").error(format!(
                "the manifest is damaged or was edited: its checksum does not match its text; restore it or \
                 {remake}"
            )));
        }
        manifest.check().map_err(|(place, message)| at(place).error(message))?;
        Ok(manifest)
    }
}

/// Version of the manifest in `dir`, if its text is one of the format of `M`, of any version.
pub(crate) fn version_in<M: SignedManifest>(dir: &Path) -> Option<u64> {
    let Terms { file_name, format, max_bytes, .. } = M::TERMS;
    let text = read_twice(&dir.join(file_name), max_bytes).ok()?;
    let stamp: Stamp = serde_json::from_slice(&text).ok()?;
    (stamp.format == format).then_some(stamp.version)
}

/// First `max_bytes` bytes of a small file. If it exists, a read that fails is made again: the
/// callers ask which kind of dataset a directory holds, and must not take one kind for another
/// because of a disk that failed once. The command that then opens the dataset reports a lasting
/// failure.
pub(crate) fn read_twice(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    twice(|| {
        let mut bytes = Vec::new();
        File::open(path)?.take(max_bytes).read_to_end(&mut bytes).map(|_| bytes)
    })
}

/// Calls `read` again if it fails for another reason than a missing file.
fn twice<T>(mut read: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    read().or_else(|e| if e.kind() == io::ErrorKind::NotFound { Err(e) } else { read() })
}

/// Replaces the placeholder [`UNSIGNED`] at the end of a text by the text's checksum.
fn sign(text: &str) -> String {
    match split(text, UNSIGNED) {
        Some((before, after)) => format!("{before}{}{after}", checksum(text.as_bytes())),
        None => text.into(),
    }
}

/// Returns true if `text` was signed by [`sign`] with the checksum `sum`.
fn is_signed(text: &str, sum: &str) -> bool {
    let well_formed = sum.len() == UNSIGNED.len() && sum.bytes().all(|b| b.is_ascii_hexdigit());
    well_formed
        && split(text, sum)
            .is_some_and(|(before, after)| checksum(format!("{before}{UNSIGNED}{after}").as_bytes()) == sum)
}

/// Splits the text at the last occurrence of `middle`.
fn split<'a>(text: &'a str, middle: &str) -> Option<(&'a str, &'a str)> {
    let at = text.rfind(middle)?;
    Some((&text[..at], &text[at + middle.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_fails_once_is_made_again() {
        let failing = |kind: io::ErrorKind, failures: usize| {
            let mut calls = 0;
            let found = twice(|| {
                calls += 1;
                if calls <= failures { Err(kind.into()) } else { Ok(calls) }
            });
            (found.map_err(|e| e.kind()), calls)
        };
        assert_eq!(failing(io::ErrorKind::Interrupted, 0), (Ok(1), 1));
        assert_eq!(failing(io::ErrorKind::Other, 1), (Ok(2), 2));
        assert_eq!(failing(io::ErrorKind::Other, 9), (Err(io::ErrorKind::Other), 2));
        assert_eq!(failing(io::ErrorKind::NotFound, 1), (Err(io::ErrorKind::NotFound), 1));
    }
}
