//! Statistics of an import, by which other tables are encoded: `preprocessing.json`.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use graphmill_core::{Error, Result};
use serde::{Deserialize, Serialize};

use super::{
    encoding::EncodedColumn,
    format::Format,
    plan::{PlannedClasses, PlannedTarget},
    profile::Shape,
    schema::{EdgeTable, ForeignKey, Names},
    times::TimeUnit,
};
use crate::typed::TypedDataset;

/// Name of the file in a dataset.
pub const FILE: &str = "preprocessing.json";
/// Version of the format.
const VERSION: u32 = 1;

/// Encodings of all tables.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Preprocessing {
    /// Version of this format.
    pub version: u32,
    /// Node types by name.
    #[serde(default)]
    pub(super) nodes: BTreeMap<String, NodeEncoding>,
    /// Edge types by their name `source:name:destination`.
    #[serde(default)]
    pub(super) edges: BTreeMap<String, EdgeEncoding>,
    /// Tables of targets by the name of their task.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) targets: BTreeMap<String, TaskEncoding>,
    /// Rows that were appended since the import, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub appended: Vec<Appended>,
}

/// Rows that were appended to a dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Appended {
    /// Name of the dataset that they were appended to.
    pub base: String,
    /// Its checksum.
    pub checksum: String,
    /// Nodes of each type before, and new ones.
    pub nodes: BTreeMap<String, [u64; 2]>,
    /// Edges of each type before, and new ones.
    pub edges: BTreeMap<String, [u64; 2]>,
    /// Rows of each task that train, validate or test before, and new ones.
    pub tasks: BTreeMap<String, [u64; 2]>,
    /// Nodes of each type whose columns rows replaced, if any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub changed: BTreeMap<String, u64>,
    /// Nodes of each type that ended, if any: they stay as nodes without edges, and keep their
    /// numbers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ended_nodes: BTreeMap<String, u64>,
    /// Edges of each type that ended, if any: also those of ended nodes, and the foreign keys of
    /// changed ones.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ended_edges: BTreeMap<String, u64>,
}

/// Encoding of a table of targets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct TaskEncoding {
    /// Columns of the node's key; empty in records of versions that did not append rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) id: Vec<String>,
    /// Column of the time, with its unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) time: Option<(String, TimeUnit)>,
    /// Formats of the columns that have one, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) formats: BTreeMap<String, Format>,
    /// Texts that stand for missing values in single columns.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) nulls: BTreeMap<String, Names>,
    /// Column of the target.
    pub(super) target: TargetEncoding,
}

/// Encodings of a node table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct NodeEncoding {
    /// Columns of the key.
    pub(super) key: Vec<String>,
    /// True if the table has no key, so that its rows are numbered.
    #[serde(default, rename = "numbered", skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_numbered: bool,
    /// Column of the time, with its unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) time: Option<(String, TimeUnit)>,
    /// Formats of the columns that have one, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) formats: BTreeMap<String, Format>,
    /// Texts that stand for missing values in single columns.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) nulls: BTreeMap<String, Names>,
    /// Columns that became features, in order.
    pub(super) features: Vec<EncodedColumn>,
    /// Column of the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) target: Option<TargetEncoding>,
}

/// Target of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct TargetEncoding {
    /// Names of the columns.
    pub(super) column: Names,
    /// Names of the classes, by class; `None` for numbers.
    pub(super) classes: Option<Vec<String>>,
    /// Type of the values.
    pub(super) of: Shape,
    /// Classes of each column, if there are several; `classes` is `None` then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) columns: Vec<ClassEncoding>,
    /// Rule of the split, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) split: Option<String>,
}

/// Classes of one of several columns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ClassEncoding {
    /// Names of the classes, by class.
    pub(super) classes: Vec<String>,
    /// Type of the values.
    pub(super) of: Shape,
}

impl TargetEncoding {
    /// Encoding of the target `planned` of the columns `column`, whose rows the rule `split`
    /// divides.
    pub(super) fn new(column: Names, planned: &PlannedTarget, split: Option<&String>) -> Self {
        let (classes, of, columns) = match planned {
            PlannedTarget::Values => (None, Shape::Number, Vec::new()),
            PlannedTarget::Classes(columns) => match &columns[..] {
                [PlannedClasses { names, of }] => (Some(names.clone()), *of, Vec::new()),
                columns => {
                    let encoding = |PlannedClasses { names, of }: &PlannedClasses| ClassEncoding {
                        classes: names.clone(),
                        of: *of,
                    };
                    (None, Shape::Text, columns.iter().map(encoding).collect())
                }
            },
        };
        Self { column, classes, of, columns, split: split.cloned() }
    }

    /// Returns true if the encoding reads the columns `names`.
    pub(super) fn reads(&self, names: &[String]) -> bool {
        match (&self.classes, self.columns.len()) {
            (Some(_), _) => names.len() == 1,
            (None, 0) => true,
            (None, count) => names.len() == count && self.column.list() == names,
        }
    }

    /// Target that the encoding reads.
    pub(super) fn planned(&self) -> PlannedTarget {
        match &self.classes {
            Some(names) => PlannedTarget::Classes(vec![PlannedClasses { names: names.clone(), of: self.of }]),
            None if self.columns.is_empty() => PlannedTarget::Values,
            None => {
                let planned =
                    |column: &ClassEncoding| PlannedClasses { names: column.classes.clone(), of: column.of };
                PlannedTarget::Classes(self.columns.iter().map(planned).collect())
            }
        }
    }
}

/// Encodings of an edge table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct EdgeEncoding {
    /// Columns of the source's key.
    pub(super) src: Vec<String>,
    /// Columns of the destination's key.
    pub(super) dst: Vec<String>,
    /// Column of the time, with its unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) time: Option<(String, TimeUnit)>,
    /// Column of the weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) weight: Option<String>,
    /// True if parallel edges are kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) keep_duplicates: bool,
    /// True if the edges are those of a foreign key: `dst` are columns of the source's node table.
    /// `None` in records of versions that did not distinguish them from edge tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) foreign_key: Option<bool>,
    /// Column of the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) target: Option<TargetEncoding>,
    /// Formats of the columns that have one, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) formats: BTreeMap<String, Format>,
    /// Texts that stand for missing values in single columns.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) nulls: BTreeMap<String, Names>,
    /// Columns that became features, in order.
    pub(super) features: Vec<EncodedColumn>,
}

impl Preprocessing {
    /// Creates an empty record of this version.
    pub(super) fn new() -> Self {
        Self { version: VERSION, ..Self::default() }
    }

    /// Reads the record of the dataset in `dir`.
    ///
    /// # Errors
    /// The dataset has none, or it cannot be read.
    pub fn read(dir: &Path) -> Result<Self> {
        let path: PathBuf = dir.join(FILE);
        if !path.exists() {
            return Err(Error::format(
                dir,
                FILE,
                "the file is missing, so the dataset was not imported from tables; name one that was",
            ));
        }
        let text = fs::read_to_string(&path).map_err(|e| Error::io(&path, "read", e))?;
        Self::parse(&text, &path)
    }

    /// Parses a record; `path` is its file in messages.
    ///
    /// # Errors
    /// The text is not a record of a known version.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        let fail = |e: serde_json::Error| {
            let place = format!("line {} column {}", e.line(), e.column());
            Error::format(path, place, format!("{e}; import the tables again"))
        };
        let found: Self = serde_json::from_str(text).map_err(fail)?;
        if found.version != VERSION {
            return Err(Error::format(
                path,
                "version",
                format!(
                    "version {} is unknown, {VERSION} is expected; import the tables again",
                    found.version
                ),
            ));
        }
        Ok(found)
    }

    /// The record with further rows.
    pub(super) fn with(&self, appended: Appended) -> Self {
        let mut longer = self.clone();
        longer.appended.push(appended);
        longer
    }

    /// Rows that were appended last to `data`.
    ///
    /// # Errors
    /// It has no record of them.
    pub(super) fn last_appended(data: &TypedDataset) -> Result<Appended> {
        let record = data.preprocessing.as_ref().and_then(|record| record["appended"].as_array()?.last());
        let record = record.map(|record| serde_json::from_value(record.clone()));
        match record {
            Some(Ok(appended)) => Ok(appended),
            _ => Err(Error::invalid(format!("{} has no record of appended rows", data.name))),
        }
    }

    /// The record as a document of a dataset.
    pub(super) fn to_value(&self) -> Result<serde_json::Value> {
        serde_json::to_value(self).map_err(|e| Error::invalid(e.to_string()))
    }

    /// Columns of the key of the node type `name`, if the record has it.
    pub fn key_columns(&self, name: &str) -> Option<&[String]> {
        self.nodes.get(name).map(|nodes| &nodes.key[..])
    }

    /// Returns true if the record distinguishes foreign keys from edge tables.
    pub fn knows_foreign_keys(&self) -> bool {
        self.edges.values().all(|known| known.foreign_key.is_some())
    }

    /// Record for further rows: of the node types, and with `edge_features` of the features of
    /// edges. Edges that are read by it need no columns of times, and get none; without
    /// `edge_features` the same holds for features.
    pub fn of_new_rows(&self, edge_features: bool) -> Self {
        let edges = self.edges.iter().filter(|_| edge_features);
        let without_times = |known: &EdgeEncoding| EdgeEncoding { time: None, ..known.clone() };
        Self {
            version: self.version,
            nodes: self.nodes.clone(),
            edges: edges.map(|(name, known)| (name.clone(), without_times(known))).collect(),
            targets: BTreeMap::new(),
            appended: Vec::new(),
        }
    }

    /// Schema of a table of further edges of the type `name`, `source:name:destination`: its
    /// columns of keys and weights, without files, times and features. `None` if the record does
    /// not have the type, or has it from a foreign key.
    pub fn edge_table(&self, name: &str) -> Option<EdgeTable> {
        let known = self.edges.get(name).filter(|known| known.foreign_key != Some(true))?;
        Some(EdgeTable {
            src: known.src.clone().into(),
            dst: known.dst.clone().into(),
            weight: known.weight.clone(),
            formats: known
                .formats
                .iter()
                .filter(|(name, _)| known.weight.as_ref() == Some(*name))
                .map(|(name, format)| (name.clone(), format.clone()))
                .collect(),
            nulls: known
                .nulls
                .iter()
                .filter(|(name, _)| {
                    known.weight.iter().chain(&known.src).chain(&known.dst).any(|of| of == *name)
                })
                .map(|(name, nulls)| (name.clone(), nulls.clone()))
                .collect(),
            // Edges with times or features are always kept.
            keep_duplicates: known.keep_duplicates || known.time.is_some() || !known.features.is_empty(),
            ..EdgeTable::default()
        })
    }

    /// Columns of the foreign key whose edges have the type `name`, without their time, destination
    /// and names. `None` if the record does not have the type, or has it from an edge table.
    pub fn foreign_key(&self, name: &str) -> Option<ForeignKey> {
        let known = self.edges.get(name).filter(|known| known.foreign_key == Some(true))?;
        Some(ForeignKey { column: known.dst.clone().into(), ..ForeignKey::default() })
    }
}
