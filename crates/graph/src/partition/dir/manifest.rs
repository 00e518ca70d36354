//! `partition.json`: what a partition directory is and what its files must be, protected by a checksum over its own text.

use std::{collections::BTreeMap, fs::File, io::Read, path::Path};

use serde::{Deserialize, Serialize};

use crate::{
    Error, Result,
    dataset::manifest::{FileEntry, UNSIGNED, is_signed, sign},
    place::At,
};

pub(super) const FILE_NAME: &str = "partition.json";
/// What `format` says: the magic word of a partition directory.
const FORMAT: &str = "graphmill-partition";
/// The version this program reads and writes.
const VERSION: u64 = 1;
/// Each of at most 65535 parts takes less than a kilobyte.
const LONGEST: u64 = 64 << 20;

/// The contents of `partition.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    pub(super) format: String,
    pub(super) version: u64,
    pub(super) method: String,
    pub(super) parts: u16,
    pub(super) seed: u64,
    pub(super) options: serde_json::Value,
    /// The name of what was partitioned.
    pub(super) source: String,
    pub(super) source_checksum: Option<String>,
    pub(super) nodes: usize,
    pub(super) edges: usize,
    pub(super) weighted: bool,
    pub(super) train: usize,
    pub(super) valid: usize,
    pub(super) test: usize,
    pub(super) statistics: serde_json::Value,
    /// Part by part.
    pub(super) each: Vec<Counts>,
    pub(super) files: BTreeMap<String, FileEntry>,
    /// Of this text, with zeros in the place of these 32 digits.
    pub(super) checksum: String,
}

/// What a part holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Counts {
    pub(super) nodes: usize,
    /// Among its own nodes.
    pub(super) edges: usize,
    /// Into its nodes from any.
    pub(super) neighbors: usize,
    /// Of the part's own manifest.
    pub(super) checksum: String,
}

/// The fields that every version has; read first, so that another version is named as such.
#[derive(Deserialize)]
struct Stamp {
    format: String,
    version: u64,
}

impl Manifest {
    /// A manifest of nothing yet.
    pub(super) fn new(method: &str, parts: u16) -> Self {
        Self {
            format: FORMAT.into(),
            version: VERSION,
            method: method.into(),
            parts,
            seed: 0,
            options: serde_json::Value::Null,
            source: String::new(),
            source_checksum: None,
            nodes: 0,
            edges: 0,
            weighted: false,
            train: 0,
            valid: 0,
            test: 0,
            statistics: serde_json::Value::Null,
            each: Vec::new(),
            files: BTreeMap::new(),
            checksum: UNSIGNED.into(),
        }
    }

    /// The text to write, and this manifest with the checksum filled in.
    pub(super) fn to_text(&self) -> Result<String> {
        let unsigned = Self { checksum: UNSIGNED.into(), ..self.clone() };
        let text = serde_json::to_string_pretty(&unsigned);
        let text = text.map_err(|e| Error::invalid(format!("{FILE_NAME} cannot be written: {e}")))? + "\n";
        if text.len() as u64 > LONGEST {
            let length = text.len();
            return Err(Error::invalid(format!(
                "{FILE_NAME} would take {length} bytes, more than {LONGEST}: shorter names fit"
            )));
        }
        Ok(sign(&text))
    }

    /// Reads and checks the manifest of `dir`.
    ///
    /// # Errors
    /// It is missing, too long, no manifest, of another version, not as it was written, or its counts disagree.
    pub(super) fn read(dir: &Path) -> Result<Self> {
        let path = dir.join(FILE_NAME);
        let at = |place: &'static str| At::new(&path, place);
        let file = File::open(&path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => at("manifest").error(
                "there is no such file, so this is no partitioned dataset; make one with `graphmill partition`",
            ),
            std::io::ErrorKind::NotADirectory => {
                At::new(dir, "partition").error("this is a file; a partitioned dataset is a directory: name that")
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
    fn parse(text: &str, path: &Path) -> Result<Self> {
        let at = |place: &'static str| At::new(path, place);
        let json = |e: serde_json::Error| {
            let place = format!("line {} column {}", e.line(), e.column());
            At::new(path, place).error(format!("not the manifest of a partition: {e}"))
        };
        let stamp: Stamp = serde_json::from_str(text).map_err(json)?;
        if stamp.format != FORMAT {
            return Err(at("format").error(format!("'{}' found, '{FORMAT}' expected", stamp.format)));
        }
        if stamp.version != VERSION {
            return Err(at("version").error(format!(
                "version {} of the partition format; this program reads version {VERSION}, partition the dataset again",
                stamp.version
            )));
        }
        let manifest: Self = serde_json::from_str(text).map_err(json)?;
        if !is_signed(text, &manifest.checksum) {
            return Err(at("checksum").error(
                "the manifest is damaged or was edited: its checksum does not fit its text; restore it or partition the dataset again",
            ));
        }
        manifest.check().map_err(|(place, message)| at(place).error(message))?;
        Ok(manifest)
    }

    /// That the counts agree.
    fn check(&self) -> Result<(), (&'static str, String)> {
        if self.each.len() != usize::from(self.parts) || self.parts == 0 {
            return Err((
                "each",
                format!("{} parts are described, parts is {}", self.each.len(), self.parts),
            ));
        }
        let sum = |count: fn(&Counts) -> usize| {
            self.each.iter().try_fold(0usize, |sum, part| sum.checked_add(count(part)))
        };
        if sum(|part| part.nodes) != Some(self.nodes) {
            return Err(("each", format!("the parts' nodes do not add up to {}", self.nodes)));
        }
        if sum(|part| part.neighbors) != Some(self.edges) {
            return Err(("each", format!("the parts' neighbors do not add up to {} edges", self.edges)));
        }
        for (name, said) in super::SPLIT.iter().zip([self.train, self.valid, self.test]) {
            let found = self.files.get(*name).and_then(|file| file.shape.first().copied());
            if found != Some(said) {
                return Err((name, format!("{said} nodes, but the file is listed with {found:?}")));
            }
        }
        Ok(())
    }
}
