//! Schema of an import: tables, their roles and the treatment of their columns, as `schema.toml`.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
    str::FromStr,
};

use graphmill_core::{Error, Result};
use serde::{Deserialize, Serialize};

pub use super::one_or_more::Names;
use super::{
    format::Format,
    memory::MemoryTable,
    rule::{ColumnRule, Missing},
};

/// Maximum number of values of a text column that becomes a category on its own.
pub const CATEGORY_LIMIT: usize = 50;

/// Tables of an import and their roles.
///
/// ```toml
/// [[nodes]]
/// type = "account"
/// files = "accounts.csv"
/// id = "account_id"
/// label = "segment"
/// split = "random:60,20,20"
///
/// [[edges]]
/// type = "transfer"
/// files = "transfers.parquet"
/// src = "from_account"
/// dst = "to_account"
/// time = "timestamp"
/// features = ["amount"]
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableSchema {
    /// Name of the dataset; that of its directory if empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Seed of random splits.
    #[serde(default)]
    pub seed: u64,
    /// Treatment of edges that name a node without a row.
    #[serde(default)]
    pub dangling: Dangling,
    /// Node tables, one per node type.
    #[serde(default)]
    pub nodes: Vec<NodeTable>,
    /// Edge tables, one per edge type.
    #[serde(default)]
    pub edges: Vec<EdgeTable>,
    /// Tables of targets, one per task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetTable>,
    /// Tables of links at times, one per task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkTable>,
    /// Directory against which paths are resolved.
    #[serde(skip)]
    pub base: PathBuf,
    /// Tables in memory, by the name that `files` gives.
    #[serde(skip)]
    pub memory: BTreeMap<String, MemoryTable>,
}

/// Treatment of edges that name a node without a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dangling {
    /// Rejects the import.
    #[default]
    Error,
    /// Drops the edges.
    Drop,
    /// Adds the nodes, with missing values in all columns.
    Add,
}

impl FromStr for Dangling {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "error" => Ok(Self::Error),
            "drop" => Ok(Self::Drop),
            "add" => Ok(Self::Add),
            _ => {
                Err(Error::Unknown { axis: "treatment", name: text.into(), known: "error, drop, add".into() })
            }
        }
    }
}

/// Table with a row per node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeTable {
    /// Name of the node type.
    #[serde(rename = "type", default = "node")]
    pub kind: String,
    /// Files: paths, directories, patterns, or `-`. Without files the nodes are those that edges
    /// name.
    #[serde(default, skip_serializing_if = "Names::is_empty")]
    pub files: Names,
    /// Columns of the key; without them the key of a row is its number, from 0, and no other table
    /// can name it.
    #[serde(default, skip_serializing_if = "Names::is_empty")]
    pub id: Names,
    /// Column of the time from which a node exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// Column of the target, or columns of several values or of a class each.
    #[serde(default, skip_serializing_if = "Names::is_empty")]
    pub label: Names,
    /// Kind of the target: `classification` or `regression`; inferred if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Target>,
    /// Rule of the split, see [`super::SplitRule`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// Columns that become features; empty takes all columns without another role.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// Columns that are not read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<String>,
    /// Treatment of single columns, such as `age = "number, quantile"`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub columns: BTreeMap<String, ColumnRule>,
    /// Treatment of missing values of all columns without a rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<Missing>,
    /// Maximum number of values of a category that is recognized.
    #[serde(default = "category_limit")]
    pub category_limit: usize,
    /// Formats of single columns, such as `amount = "decimal-comma"`, `opened = "%d.%m.%Y"`; found
    /// if missing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub formats: BTreeMap<String, Format>,
    /// Texts that stand for a missing value in single columns, such as `age = ["unknown", "<5"]`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nulls: BTreeMap<String, Names>,
    /// Separator of a CSV file; found if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub separator: Option<char>,
    /// Quote of a CSV file; `"` if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<char>,
    /// Columns that name nodes of other tables, each an edge type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub foreign_keys: Vec<ForeignKey>,
}

impl NodeTable {
    /// Returns true if the rows have no key, so that they are numbered.
    pub fn is_numbered(&self) -> bool {
        self.id.is_empty() && !self.files.is_empty()
    }
}

/// Table with a row per edge.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeTable {
    /// Name of the relation.
    #[serde(rename = "type", default = "edge")]
    pub kind: String,
    /// Files: paths, directories, patterns, or `-`.
    pub files: Names,
    /// Node type of the sources; the only node type if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Node type of the destinations; the only node type if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// Columns of the source's key.
    pub src: Names,
    /// Columns of the destination's key.
    pub dst: Names,
    /// Column of the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// Column of the weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<String>,
    /// Column of the target, or columns of several values or of a class each.
    #[serde(default, skip_serializing_if = "Names::is_empty")]
    pub label: Names,
    /// Kind of the target: `classification` or `regression`; inferred if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Target>,
    /// Rule of the split, see [`super::SplitRule`]; by the time, if edges have one, without a rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// Columns that become edge features.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// Treatment of single columns.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub columns: BTreeMap<String, ColumnRule>,
    /// Treatment of missing values of all columns without a rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<Missing>,
    /// Name of an edge type of the reverse edges, which is added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverse: Option<String>,
    /// True to store every edge in both directions.
    #[serde(default)]
    pub undirected: bool,
    /// True to keep parallel edges; edges with times or features are always kept.
    #[serde(default)]
    pub keep_duplicates: bool,
    /// Formats of single columns, such as `amount = "decimal-comma"`, `opened = "%d.%m.%Y"`; found
    /// if missing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub formats: BTreeMap<String, Format>,
    /// Texts that stand for a missing value in single columns, such as `age = ["unknown", "<5"]`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nulls: BTreeMap<String, Names>,
    /// Separator of a CSV file; found if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub separator: Option<char>,
    /// Quote of a CSV file; `"` if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<char>,
}

/// Table with a row per target of a node, at a time if the targets have one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetTable {
    /// Name of the task; that of the label if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Files: paths, directories, patterns, or `-`.
    #[serde(default, skip_serializing_if = "Names::is_empty")]
    pub files: Names,
    /// Files of the rows that train, instead of `files` and a rule of the split.
    #[serde(default, skip_serializing_if = "Names::is_empty")]
    pub train: Names,
    /// Files of the rows that validate, beside those of `train`.
    #[serde(default, skip_serializing_if = "Names::is_empty")]
    pub valid: Names,
    /// Files of the rows that test, beside those of `train`. They may lack the label: such rows are
    /// predicted.
    #[serde(default, skip_serializing_if = "Names::is_empty")]
    pub test: Names,
    /// Type of the nodes; the only node type if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
    /// Columns of the node's key.
    pub id: Names,
    /// Column of the time: a prediction of the row sees what existed then. A node may have a row at
    /// each of several times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// Column of the target, or columns of several values or of a class each.
    pub label: Names,
    /// Kind of the target: `classification` or `regression`; inferred if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Target>,
    /// Rule of the split, see [`super::SplitRule`]; by the time, if rows have one, without a rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// Formats of single columns, such as `amount = "decimal-comma"`, `opened = "%d.%m.%Y"`; found
    /// if missing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub formats: BTreeMap<String, Format>,
    /// Texts that stand for a missing value in single columns, such as `age = ["unknown", "<5"]`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nulls: BTreeMap<String, Names>,
    /// Separator of a CSV file; found if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub separator: Option<char>,
    /// Quote of a CSV file; `"` if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<char>,
}

impl TargetTable {
    /// Name of the task.
    pub fn task_name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.label.list().join("-"))
    }
}

/// Table with a row per source and time: the destinations that the source is linked to from then on
/// are to be ranked first. A row sees what existed at its time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkTable {
    /// Name of the task, and of the edge type that it is on, which need not have edges.
    pub name: String,
    /// Files: paths, directories, patterns, or `-`.
    #[serde(default, skip_serializing_if = "Names::is_empty")]
    pub files: Names,
    /// Files of the rows that train, instead of `files` and a rule of the split.
    #[serde(default, skip_serializing_if = "Names::is_empty")]
    pub train: Names,
    /// Files of the rows that validate, beside those of `train`.
    #[serde(default, skip_serializing_if = "Names::is_empty")]
    pub valid: Names,
    /// Files of the rows that test, beside those of `train`. Rows without destinations are left
    /// out.
    #[serde(default, skip_serializing_if = "Names::is_empty")]
    pub test: Names,
    /// Node type of the sources; the only node type if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Node type of the destinations; the only node type if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// Columns of the source's key.
    pub src: Names,
    /// Columns of the destination's key, or a column of lists of integer keys.
    pub dst: Names,
    /// Column of the time.
    pub time: String,
    /// Rule of the split, `time:COLUMN:A,B,C` by the column of the time; by default 60,20,20.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// Customary metric, such as `map@10`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// Formats of single columns, such as `amount = "decimal-comma"`, `opened = "%d.%m.%Y"`; found
    /// if missing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub formats: BTreeMap<String, Format>,
    /// Texts that stand for a missing value in single columns, such as `age = ["unknown", "<5"]`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nulls: BTreeMap<String, Names>,
    /// Separator of a CSV file; found if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub separator: Option<char>,
    /// Quote of a CSV file; `"` if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<char>,
}

/// Column of a node table that names a node of another table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForeignKey {
    /// Columns of the key.
    pub column: Names,
    /// Node type of the destination.
    pub to: String,
    /// Name of the relation; that of the column if missing.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Column of the time of the edges, such as that of the nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// Name of an edge type of the reverse edges, which is added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverse: Option<String>,
}

/// Kind of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// A class per node, edge or row.
    Classification,
    /// A number per node, edge or row.
    Regression,
}

impl FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "classification" => Ok(Self::Classification),
            "regression" => Ok(Self::Regression),
            _ => Err(Error::Unknown {
                axis: "task",
                name: text.into(),
                known: "classification, regression".into(),
            }),
        }
    }
}

fn node() -> String {
    "node".into()
}

fn edge() -> String {
    "edge".into()
}

fn category_limit() -> usize {
    CATEGORY_LIMIT
}

impl TableSchema {
    /// Reads a schema file. Paths in it are relative to its directory.
    ///
    /// # Errors
    /// The file cannot be read, or has a fault, reported with line and column.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(|e| Error::io(path, "read", e))?;
        let mut schema = Self::parse(&text, path)?;
        schema.base = path.parent().unwrap_or(Path::new("")).to_path_buf();
        Ok(schema)
    }

    /// Parses the text of a schema file.
    ///
    /// # Errors
    /// The text has a fault, reported with line and column.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        let schema: Self = toml::from_str(text).map_err(|e| {
            let place = e.span().map_or("schema".to_string(), |span| {
                let before = &text[..span.start.min(text.len())];
                let line = before.lines().count().max(1) + usize::from(before.ends_with('\n'));
                let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
                format!("line {line}, column {column}")
            });
            Error::format(path, place, format!("{}; fix the schema, TOML that names tables", e.message()))
        })?;
        schema.check()?;
        Ok(schema)
    }
}

impl fmt::Display for TableSchema {
    /// Writes the schema as `schema.toml`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&toml::to_string_pretty(self).map_err(|_| fmt::Error)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_names_are_no_names_and_are_written_so() {
        let path = Path::new("schema.toml");
        let text = "[[nodes]]\nfiles = \"\"\nid = [\"\"]\n\
                    [[edges]]\nfiles = \"\"\nsrc = \"a\"\ndst = [\"b\", \"c\"]\n";
        let schema = TableSchema::parse(text, path).unwrap();
        assert_eq!([&schema.nodes[0].files, &schema.nodes[0].id, &schema.edges[0].files], [&Names::None; 3]);
        assert_eq!(TableSchema::parse(&schema.to_string(), path).unwrap(), schema);
        let error = TableSchema::parse("[[nodes]]\nfiles = 1\n", path).unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("a name, or a list of names"), "{error}");
    }
}
