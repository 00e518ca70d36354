//! The manifest of a dataset directory, `graphmill.json`: what the dataset is and what its files
//! must be, protected by a checksum over its own text.

use std::{collections::BTreeMap, fs::File, io::Read, path::Path};

use serde::{Deserialize, Serialize};

use super::{NamedGraph, checksum::checksum};
use crate::{Error, Result, place::At};

/// The manifest's file name.
pub(crate) const FILE_NAME: &str = "graphmill.json";
/// What `format` says: the magic word of a dataset directory.
pub(super) const FORMAT: &str = "graphmill-dataset";
/// The version this program reads and writes.
pub(super) const VERSION: u64 = 1;
/// Real manifests take two kilobytes.
const LONGEST: u64 = 1 << 20;
/// Stands in the place of the checksum while the text is hashed.
pub(crate) const UNSIGNED: &str = "00000000000000000000000000000000";

/// The contents of `graphmill.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    pub(super) format: String,
    pub(super) version: u64,
    pub(super) name: String,
    pub(super) nodes: usize,
    pub(super) edges: usize,
    pub(super) feature_dim: usize,
    pub(super) classes: usize,
    pub(super) multilabel: bool,
    pub(super) metric: Option<String>,
    /// Left out where there are none, as in every manifest of the first programs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) graphs: Vec<NamedGraph>,
    pub(super) files: BTreeMap<String, FileEntry>,
    /// Of this text, with zeros in the place of these 32 digits.
    pub(super) checksum: String,
}

/// What a file of the dataset must be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileEntry {
    /// Element type, in NumPy's notation.
    pub(crate) dtype: String,
    /// Length of every axis.
    pub(crate) shape: Vec<usize>,
    /// Size of the file.
    pub(crate) bytes: u64,
    /// Of the whole file (see [`checksum`]).
    pub(crate) checksum: String,
}

/// The fields that every version has; read first, so that another version is named as such.
#[derive(Deserialize)]
struct Stamp {
    format: String,
    version: u64,
}

impl Manifest {
    /// The text to write, with the checksum filled in.
    pub(super) fn to_text(&self) -> Result<String> {
        let unsigned = Self { checksum: UNSIGNED.into(), ..self.clone() };
        let text = serde_json::to_string_pretty(&unsigned)
            .map_err(|e| Error::invalid(format!("the manifest cannot be written: {e}")))?
            + "\n";
        if text.len() as u64 > LONGEST {
            return Err(Error::invalid(format!(
                "the manifest would take {} bytes, more than {LONGEST}: fewer graphs or shorter names fit",
                text.len()
            )));
        }
        Ok(sign(&text))
    }

    /// Reads and checks the manifest of `dir`.
    ///
    /// # Errors
    /// It is missing, too long, no manifest, of another version, or not as it was written.
    pub(super) fn read(dir: &Path) -> Result<Self> {
        let path = dir.join(FILE_NAME);
        let at = |place: &'static str| At::new(&path, place);
        let file = File::open(&path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound if dir.join("partition.json").is_file() => at("manifest").error(
                "this is a partitioned dataset: `graphmill train` takes it, other commands one of its parts (part-0000, ...) or the dataset \
                 that it was made of (`eval` and `predict` by --dataset)",
            ),
            std::io::ErrorKind::NotFound => at("manifest").error(
                "there is no such file, so this is no Graphmill dataset; make one with `graphmill import` or `graphmill generate`",
            ),
            std::io::ErrorKind::NotADirectory => {
                At::new(dir, "dataset").error("this is a file; a dataset is a directory: name that")
            }
            _ => Error::io(&path, "open", e),
        })?;
        let mut text = String::new();
        file.take(LONGEST + 1).read_to_string(&mut text).map_err(|e| Error::io(&path, "read", e))?;
        if text.len() as u64 > LONGEST {
            return Err(at("manifest").error(format!("longer than {LONGEST} bytes: this is no manifest")));
        }
        Self::parse(&text, &path)
    }

    /// Checks the text of the manifest at `path`.
    pub(super) fn parse(text: &str, path: &Path) -> Result<Self> {
        let at = |place: &'static str| At::new(path, place);
        let json = |e: serde_json::Error| {
            let place = format!("line {} column {}", e.line(), e.column());
            At::new(path, place).error(format!("not a dataset manifest: {e}"))
        };
        let stamp: Stamp = serde_json::from_str(text).map_err(json)?;
        if stamp.format != FORMAT {
            return Err(at("format").error(format!("'{}' found, '{FORMAT}' expected", stamp.format)));
        }
        if stamp.version != VERSION {
            return Err(at("version").error(format!(
                "version {} of the dataset format; this program reads version {VERSION}, import the data again",
                stamp.version
            )));
        }
        let manifest: Self = serde_json::from_str(text).map_err(json)?;
        if !is_signed(text, &manifest.checksum) {
            return Err(at("checksum").error(
                "the manifest is damaged or was edited: its checksum does not fit its text; restore it or import the data again",
            ));
        }
        Ok(manifest)
    }
}

/// A text that ends with [`UNSIGNED`], but for closing brackets: with its checksum in the place of that.
pub(crate) fn sign(text: &str) -> String {
    match split(text, UNSIGNED) {
        Some((before, after)) => format!("{before}{}{after}", checksum(text.as_bytes())),
        None => text.into(),
    }
}

/// Whether `text` is one that [`sign`] made, with the checksum `sum`.
pub(crate) fn is_signed(text: &str, sum: &str) -> bool {
    let well_formed = sum.len() == UNSIGNED.len() && sum.bytes().all(|b| b.is_ascii_hexdigit());
    well_formed
        && split(text, sum)
            .is_some_and(|(before, after)| checksum(format!("{before}{UNSIGNED}{after}").as_bytes()) == sum)
}

/// The text before and after the last occurrence of `middle`.
fn split<'a>(text: &'a str, middle: &str) -> Option<(&'a str, &'a str)> {
    let at = text.rfind(middle)?;
    Some((&text[..at], &text[at + middle.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let entry = FileEntry { dtype: "<u8".into(), shape: vec![3], bytes: 88, checksum: UNSIGNED.into() };
        Manifest {
            format: FORMAT.into(),
            version: VERSION,
            name: "tiny".into(),
            nodes: 2,
            edges: 1,
            feature_dim: 0,
            classes: 0,
            multilabel: false,
            metric: None,
            graphs: vec![NamedGraph::new("one", 0..2)],
            files: BTreeMap::from([("indptr.npy".into(), entry)]),
            checksum: String::new(),
        }
    }

    fn read(text: &[u8]) -> Result<Manifest, String> {
        let text = std::str::from_utf8(text).map_err(|e| e.to_string())?;
        Manifest::parse(text, Path::new(FILE_NAME)).map_err(|e| e.to_string())
    }

    #[test]
    fn it_reads_back_and_no_byte_may_change() {
        let text = manifest().to_text().unwrap();
        assert_eq!(read(text.as_bytes()).unwrap().files, manifest().files);
        for length in 0..text.len() {
            assert!(read(&text.as_bytes()[..length]).is_err(), "truncated to {length}");
        }
        for bit in 0..text.len() * 8 {
            let mut bad = text.clone().into_bytes();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn another_format_version_or_field_is_named() {
        let text = manifest().to_text().unwrap();
        let error = |from: &str, to: &str| read(text.replace(from, to).as_bytes()).unwrap_err();
        assert!(error("\"version\": 1", "\"version\": 7").contains("version 7"));
        assert!(error(FORMAT, "recipe").contains("'recipe' found"));
        assert!(error("\"nodes\"", "\"knots\"").contains("line "));
        assert!(error("tiny", "tidy").contains("edited"));
        let none = Manifest::read(Path::new("does-not-exist")).unwrap_err().to_string();
        assert!(none.contains("graphmill.json") && none.contains("no Graphmill dataset"), "{none}");
    }
}
