//! Counts of an import, for a person and as JSON.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{leak::Leak, plan::ColumnLine};

/// Counts of all tables of an import.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TableReport {
    /// Node types.
    pub nodes: Vec<NodeReport>,
    /// Edge types.
    pub edges: Vec<EdgeReport>,
    /// Tables of targets.
    pub targets: Vec<TargetReport>,
    /// Tables of nodes and edges that end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<EndReport>,
}

/// Counts of a table of nodes or edges that end.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EndReport {
    /// Node type or edge type, as in `nodes 'user'`.
    pub on: String,
    /// Rows of the table.
    pub rows: u64,
    /// Nodes, or pairs of a source and a destination, that end.
    pub ended: u64,
    /// Rows that name a node or an edge that the dataset does not have, and are dropped.
    pub unknown: u64,
    /// Positions and keys of the first of them.
    pub unknown_examples: Vec<String>,
}

/// Counts of the targets of a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LabelReport {
    /// Rows without a label.
    pub missing_labels: u64,
    /// Rule of the split.
    pub split_rule: String,
    /// Rows that train, validate and test.
    pub split: [u64; 3],
    /// Labelled rows in no part of the split.
    pub outside_split: u64,
    /// Rows in a part of the split without a label, which are left out of it.
    pub split_without_label: u64,
    /// Columns that determine the label.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaks: Vec<Leak>,
}

/// Counts of a node table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Name of the node type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Rows of the table.
    pub rows: u64,
    /// Nodes of the dataset.
    pub nodes: u64,
    /// Rows that repeat the key of an earlier row, and are dropped.
    pub repeated_keys: u64,
    /// First repeated keys.
    pub repeated_examples: Vec<String>,
    /// Nodes of the extended dataset whose columns rows replaced.
    pub changed: u64,
    /// Rows of nodes of the extended dataset that changed nothing, as asked.
    pub unchanged: u64,
    /// Nodes that only edges name.
    pub added: u64,
    /// Nodes without a time.
    pub missing_times: u64,
    /// Counts of the labels.
    #[serde(flatten)]
    pub labels: LabelReport,
    /// Role of every column.
    pub columns: Vec<ColumnLine>,
    /// Columns with values that the encoding of another dataset does not know, and their numbers.
    pub unknown_values: Vec<(String, u64)>,
}

/// Counts of an edge table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EdgeReport {
    /// Name of the edge type: `source:name:destination`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Rows of the table.
    pub rows: u64,
    /// Edges of the dataset.
    pub edges: u64,
    /// Rows that name a node without a row, and are dropped.
    pub dangling: u64,
    /// First of these keys.
    pub dangling_examples: Vec<String>,
    /// Rows without a key of a node, and are dropped.
    pub missing_ends: u64,
    /// Edges merged into an edge between the same nodes.
    pub merged: u64,
    /// Edges added in the opposite direction.
    pub reversed: u64,
    /// Missing times.
    pub missing_times: u64,
    /// Counts of the labels.
    #[serde(flatten)]
    pub labels: LabelReport,
    /// Role of every column.
    pub columns: Vec<ColumnLine>,
}

/// Counts of a table of targets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetReport {
    /// Name of the task.
    pub name: String,
    /// Type of the nodes.
    pub on: String,
    /// Rows of the table.
    pub rows: u64,
    /// Rows of the task.
    pub targets: u64,
    /// Rows that name a node without a row, or none, and are dropped.
    pub dangling: u64,
    /// First of these keys.
    pub dangling_examples: Vec<String>,
    /// Rows from before their node exists, which are dropped.
    pub early: u64,
    /// Positions of the first of them.
    pub early_examples: Vec<String>,
    /// Counts of the labels.
    #[serde(flatten)]
    pub labels: LabelReport,
    /// Role of every column.
    pub columns: Vec<ColumnLine>,
}

/// Writes `1 row` or `2 rows`.
fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn write_columns(f: &mut fmt::Formatter<'_>, columns: &[ColumnLine]) -> fmt::Result {
    let width = columns.iter().map(|line| line.column.chars().count()).max().unwrap_or(0);
    for line in columns {
        let missing = if line.missing > 0 { format!(" ({} missing)", line.missing) } else { String::new() };
        let features = match line.features {
            0 | 1 => String::new(),
            features => format!(" -> {features} features"),
        };
        let format = line.format.as_ref().map(|format| format!(", written as {format}")).unwrap_or_default();
        writeln!(f, "  {:width$}  {}{format}{features}{missing}", line.column, line.becomes)?;
    }
    columns.iter().filter_map(|line| line.note.as_ref()).try_for_each(|note| writeln!(f, "  warning: {note}"))
}

impl fmt::Display for TableReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.nodes.iter().try_for_each(|nodes| write!(f, "{nodes}"))?;
        self.edges.iter().try_for_each(|edges| write!(f, "{edges}"))?;
        self.targets.iter().try_for_each(|targets| write!(f, "{targets}"))?;
        self.ends.iter().try_for_each(|ends| write!(f, "{ends}"))
    }
}

impl fmt::Display for LabelReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.split_rule.is_empty() {
            let [train, valid, test] = self.split;
            writeln!(f, "  split {}: {train} train, {valid} validate, {test} test", self.split_rule)?;
        }
        if self.missing_labels > 0 {
            writeln!(f, "  {} without a label, which are predicted", counted(self.missing_labels, "row"))?;
        }
        if self.outside_split > 0 {
            writeln!(f, "  {} in no part of the split", counted(self.outside_split, "labelled row"))?;
        }
        if self.split_without_label > 0 {
            let rows = counted(self.split_without_label, "row");
            writeln!(f, "  {rows} of the split left out, because the label is missing")?;
        }
        self.leaks.iter().try_for_each(|leak| writeln!(f, "  warning: {leak}"))
    }
}

impl fmt::Display for NodeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let features: usize = self.columns.iter().map(|line| line.features).sum();
        writeln!(
            f,
            "nodes '{}': {}, {}",
            self.kind,
            counted(self.nodes, "node"),
            counted(features as u64, "feature")
        )?;
        write_columns(f, &self.columns)?;
        if self.repeated_keys > 0 {
            let examples = self.repeated_examples.join(", ");
            writeln!(
                f,
                "  {} dropped, whose keys occur before: {examples}",
                counted(self.repeated_keys, "row")
            )?;
        }
        if self.changed > 0 {
            writeln!(f, "  {} changed", counted(self.changed, "node"))?;
        }
        if self.unchanged > 0 {
            let rows = counted(self.unchanged, "row");
            writeln!(f, "  {rows} left out, whose nodes the dataset has and keeps as they are")?;
        }
        if self.added > 0 {
            writeln!(f, "  {} added that only edges name", counted(self.added, "node"))?;
        }
        if self.missing_times > 0 {
            writeln!(
                f,
                "  {} without a time, which exist from the start",
                counted(self.missing_times, "node")
            )?;
        }
        write!(f, "{}", self.labels)?;
        for (column, count) in &self.unknown_values {
            writeln!(
                f,
                "  column '{column}': {} that the other dataset does not have, encoded as zeros",
                counted(*count, "value")
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for EdgeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "edges '{}': {}", self.kind, counted(self.edges, "edge"))?;
        write_columns(f, &self.columns)?;
        if self.dangling > 0 {
            let examples = self.dangling_examples.join(", ");
            writeln!(
                f,
                "  {} dropped, because a node has no row: {examples}",
                counted(self.dangling, "row")
            )?;
        }
        if self.missing_ends > 0 {
            writeln!(f, "  {} dropped, because a key is missing", counted(self.missing_ends, "row"))?;
        }
        if self.merged > 0 {
            writeln!(f, "  {} merged into an edge between the same nodes", counted(self.merged, "edge"))?;
        }
        if self.reversed > 0 {
            writeln!(f, "  {} added in the opposite direction", counted(self.reversed, "edge"))?;
        }
        if self.missing_times > 0 {
            writeln!(
                f,
                "  {} without a time, which exist from the start",
                counted(self.missing_times, "edge")
            )?;
        }
        write!(f, "{}", self.labels)
    }
}

impl fmt::Display for TargetReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "targets '{}' of '{}': {}", self.name, self.on, counted(self.targets, "row"))?;
        write_columns(f, &self.columns)?;
        if self.dangling > 0 {
            let examples = self.dangling_examples.join(", ");
            writeln!(
                f,
                "  {} dropped, because the node has no row: {examples}",
                counted(self.dangling, "row")
            )?;
        }
        if self.early > 0 {
            let (rows, examples) = (counted(self.early, "row"), self.early_examples.join(", "));
            writeln!(f, "  {rows} dropped, because the node exists only later: {examples}")?;
        }
        write!(f, "{}", self.labels)
    }
}

impl fmt::Display for EndReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "ends of {}: {} of {}", self.on, self.ended, counted(self.rows, "row"))?;
        if self.unknown > 0 {
            let (rows, examples) = (counted(self.unknown, "row"), self.unknown_examples.join(", "));
            writeln!(f, "  {rows} dropped, because the dataset does not have it: {examples}")?;
        }
        Ok(())
    }
}
