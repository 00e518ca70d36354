//! Figures of a typed dataset, as printed by `graphmill info`.

use std::fmt::{self, Write};

use graphmill_core::{ClassColumn, Labels, units::decimal_bytes};
use serde::Serialize;
use serde_json::Value;

use super::{EdgeData, FeatureTable, Negatives, NodeData, Seeds, TableData, Targets, Task, TypedDataset};
use crate::stats::{grouped, sizes};

/// Names that are listed of classes and feature columns.
const MAX_LISTED_NAMES: usize = 12;

/// Figures of a typed dataset; `Display` prints the table, [`Serialize`] the JSON document.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TypedInfo {
    /// Version of the format.
    pub format: u64,
    /// Name of the dataset.
    pub name: String,
    /// Number of nodes of all types.
    pub nodes: usize,
    /// Number of edges of all types.
    pub edges: usize,
    /// Node types.
    pub node_types: Vec<NodeTypeInfo>,
    /// Edge types.
    pub edge_types: Vec<EdgeTypeInfo>,
    /// Tasks.
    pub tasks: Vec<TaskInfo>,
    /// Operations that were applied to columns.
    pub preprocessing: Option<Value>,
    /// Bytes of all arrays.
    pub bytes: usize,
}

/// Figures of feature rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FeatureInfo {
    /// Number of columns, `F`.
    pub columns: usize,
    /// NumPy's name of the number type.
    pub dtype: String,
    /// True if only nonzero values are stored.
    pub sparse: bool,
    /// Number of stored values.
    pub values: usize,
    /// Names of the columns; may be empty.
    pub names: Vec<String>,
    /// Bytes of the values.
    pub bytes: usize,
}

/// Figures of a node type.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeTypeInfo {
    /// Name.
    pub name: String,
    /// Number of nodes.
    pub nodes: usize,
    /// Feature rows.
    pub features: Option<FeatureInfo>,
    /// Normalization of the features: "rows" or "standard".
    pub normalize: Option<&'static str>,
    /// Kind of the original keys: "integers" or "texts".
    pub keys: Option<&'static str>,
    /// True if nodes have times.
    pub time: bool,
    /// True if the nodes were renumbered and their original ids are recorded.
    pub reordered: bool,
}

/// Figures of an edge type.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EdgeTypeInfo {
    /// Node type of the sources.
    pub source: String,
    /// Name.
    pub name: String,
    /// Node type of the destinations.
    pub destination: String,
    /// Number of edges.
    pub edges: usize,
    /// Name of the edge type with the reverse edges.
    pub reverse: Option<String>,
    /// True if edges have weights.
    pub weights: bool,
    /// True if edges have times.
    pub time: bool,
    /// Feature rows.
    pub features: Option<FeatureInfo>,
    /// Largest number of edges of a destination.
    pub max_degree: u64,
}

/// Figures of a task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskInfo {
    /// Name.
    pub name: String,
    /// Kind, such as "node-classification".
    pub kind: &'static str,
    /// Node type or edge type of the seeds.
    pub on: String,
    /// Number of rows.
    pub rows: usize,
    /// Number of rows with a target; that of all rows in link prediction.
    pub with_target: usize,
    /// True if the seeds are listed, and not all nodes or edges of the type.
    pub seeds: bool,
    /// True if rows have times.
    pub time: bool,
    /// Number of classes; 0 without classes.
    pub classes: usize,
    /// True if a row may have several classes.
    pub multilabel: bool,
    /// Columns of classes, if a row has a class in each of several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<ClassColumn>,
    /// Number of values of a row; 0 without values.
    pub values: usize,
    /// Names of the classes, or of the values; may be empty.
    pub names: Vec<String>,
    /// Number of training rows.
    pub train: usize,
    /// Number of validation rows.
    pub valid: usize,
    /// Number of test rows.
    pub test: usize,
    /// Numbers of given negatives of the three parts.
    pub negatives: [usize; 3],
    /// Customary metric, if known.
    pub metric: Option<String>,
}

/// Collects the figures of `data`. O(V), and O(rows) for each task; parallel where it matters.
pub fn info(data: &TypedDataset) -> TypedInfo {
    let node_types: Vec<_> = data.nodes.iter().map(NodeTypeInfo::new).collect();
    let edge_types: Vec<_> = data.edges.iter().map(EdgeTypeInfo::new).collect();
    TypedInfo {
        format: super::manifest::VERSION,
        name: data.name.clone(),
        nodes: data.num_nodes(),
        edges: data.num_edges(),
        bytes: data.nodes.iter().map(node_bytes).chain(data.edges.iter().map(edge_bytes)).sum(),
        node_types,
        edge_types,
        tasks: data.tasks.iter().map(|task| TaskInfo::new(task, data.rows_of(task))).collect(),
        preprocessing: data.preprocessing.clone(),
    }
}

fn node_bytes(nodes: &NodeData) -> usize {
    let keys = match &nodes.keys {
        None => 0,
        Some(super::Keys::Integers(keys)) => size_of_val(&keys[..]),
        Some(super::Keys::Texts(texts)) => size_of_val(&texts.offsets[..]) + texts.bytes.len(),
    };
    let time = nodes.time.as_ref().map_or(0, |time| size_of_val(&time[..]));
    nodes.features.as_ref().map_or(0, table_bytes) + keys + time
}

fn edge_bytes(edges: &EdgeData) -> usize {
    size_of_val(&edges.indptr[..])
        + size_of_val(&edges.indices[..])
        + edges.weights.as_ref().map_or(0, |weights| size_of_val(&weights[..]))
        + edges.time.as_ref().map_or(0, |time| size_of_val(&time[..]))
        + edges.features.as_ref().map_or(0, table_bytes)
}

fn table_bytes(table: &FeatureTable) -> usize {
    match &table.data {
        TableData::Dense(values) => values.bytes().len(),
        TableData::Sparse(rows) => rows.bytes(),
    }
}

impl FeatureInfo {
    fn new(table: &FeatureTable) -> Self {
        Self {
            columns: table.width,
            dtype: table.dtype().to_string(),
            sparse: table.is_sparse(),
            values: match &table.data {
                TableData::Dense(values) => values.len(),
                TableData::Sparse(rows) => rows.stored(),
            },
            names: table.names.clone(),
            bytes: table_bytes(table),
        }
    }
}

impl NodeTypeInfo {
    fn new(nodes: &NodeData) -> Self {
        Self {
            name: nodes.name.clone(),
            nodes: nodes.count,
            features: nodes.features.as_ref().map(FeatureInfo::new),
            normalize: nodes.normalization.as_ref().map(|how| how.name()),
            keys: nodes.keys.as_ref().map(|keys| keys.kind()),
            time: nodes.time.is_some(),
            reordered: nodes.original_ids.is_some(),
        }
    }
}

impl EdgeTypeInfo {
    fn new(edges: &EdgeData) -> Self {
        let of = edges.edge_type.clone();
        Self {
            source: of.source,
            name: of.name,
            destination: of.destination,
            edges: edges.num_edges(),
            reverse: edges.reverse.clone(),
            weights: edges.weights.is_some(),
            time: edges.time.is_some(),
            features: edges.features.as_ref().map(FeatureInfo::new),
            max_degree: edges.indptr.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0),
        }
    }
}

impl TaskInfo {
    fn new(task: &Task, rows: usize) -> Self {
        let (with_target, values) = match &task.targets {
            Targets::None | Targets::Classes(Labels::Multi { .. }) => (rows, 0),
            Targets::Classes(Labels::Single { class, .. }) => (class.iter().filter(|c| **c >= 0).count(), 0),
            Targets::Classes(Labels::Columns { class, columns }) => {
                let has_class = |row: &&[i32]| row.iter().any(|&c| c >= 0);
                (class.chunks(columns.len().max(1)).filter(has_class).count(), 0)
            }
            Targets::Values { width, values } | Targets::Classes(Labels::Values { width, values }) => {
                let has_value = |row: &&[f32]| row.iter().any(|x| !x.is_nan());
                (values.chunks((*width).max(1)).filter(has_value).count(), *width)
            }
        };
        let counts = task.split.parts().map(|(_, rows)| rows.len());
        let negatives = |part: usize| match &task.negatives[part] {
            None => 0,
            Some(Negatives::Pairs(pairs)) => pairs.len() / 2,
            Some(Negatives::Destinations { nodes, .. } | Negatives::Sources { nodes, .. }) => nodes.len(),
            Some(Negatives::Lists(lists)) => lists.nodes.len(),
        };
        Self {
            name: task.name.clone(),
            kind: task.kind().map_or("unknown", |kind| kind.name()),
            on: task.on.to_string(),
            rows,
            with_target,
            seeds: task.seeds.as_ref().is_some_and(|seeds: &Seeds| !seeds.is_empty()),
            time: task.time.is_some(),
            classes: if values == 0 { task.width() } else { 0 },
            multilabel: task.is_multi_label(),
            columns: task.columns().to_vec(),
            values,
            names: task.names.clone(),
            train: counts[0],
            valid: counts[1],
            test: counts[2],
            negatives: [0, 1, 2].map(negatives),
            metric: task.metric.clone(),
        }
    }
}

/// A number of things, with the plural of `what`.
fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {what}{plural}", grouped(count))
}

/// The first names of a list in brackets, or nothing.
fn listed(names: &[String]) -> String {
    if names.is_empty() {
        return String::new();
    }
    let more = match names.len().saturating_sub(MAX_LISTED_NAMES) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    format!(" ({}{more})", names[..names.len().min(MAX_LISTED_NAMES)].join(", "))
}

impl fmt::Display for FeatureInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = grouped(self.columns);
        let sparse =
            if self.sparse { format!(" sparse, {} values", grouped(self.values)) } else { String::new() };
        write!(
            f,
            "{columns} features, {}{sparse}, {}{}",
            self.dtype,
            decimal_bytes(self.bytes as u64),
            listed(&self.names)
        )
    }
}

impl fmt::Display for TypedInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.node_types.iter().map(|t| t.name.chars().count());
        let edge_name = |t: &EdgeTypeInfo| format!("{}:{}:{}", t.source, t.name, t.destination);
        let edges = self.edge_types.iter().map(|t| edge_name(t).chars().count());
        let width = names.chain(edges).chain(self.tasks.iter().map(|t| t.name.chars().count())).max();
        let width = width.unwrap_or(0).clamp(10, 60);
        let mut row = |what: &str, figure: String, notes: Vec<String>| {
            let line = format!("  {what:<width$}{figure:>14}   {}", notes.join("; "));
            writeln!(f, "{}", line.trim_end())
        };
        row("node types", grouped(self.nodes), vec![counted(self.node_types.len(), "type")])?;
        for t in &self.node_types {
            let flag = |set: bool, note: &str| set.then(|| note.to_string());
            let notes = [
                t.features.as_ref().map(FeatureInfo::to_string),
                t.normalize.map(|how| format!("normalized: {how}")),
                t.keys.map(|kind| format!("keys: {kind}")),
                flag(t.time, "times"),
                flag(t.reordered, "reordered, original ids kept"),
            ];
            row(&t.name, grouped(t.nodes), notes.into_iter().flatten().collect())?;
        }
        let notes = vec![counted(self.edge_types.len(), "type")];
        row("edge types", grouped(self.edges), notes)?;
        for t in &self.edge_types {
            let flag = |set: bool, note: &str| set.then(|| note.to_string());
            let notes = [
                Some(format!("max in-degree {}", grouped(t.max_degree as usize))),
                flag(t.weights, "weights"),
                flag(t.time, "times"),
                t.features.as_ref().map(FeatureInfo::to_string),
                t.reverse.as_ref().map(|name| match *name == t.name {
                    true => "undirected, stored both ways".into(),
                    false => format!("reverse: {name}"),
                }),
            ];
            row(&edge_name(t), grouped(t.edges), notes.into_iter().flatten().collect())?;
        }
        row("tasks", grouped(self.tasks.len()), Vec::new())?;
        for t in &self.tasks {
            row(&t.name, grouped(t.rows), t.notes())?;
        }
        for appended in self.preprocessing.iter().filter_map(|document| document["appended"].as_array()) {
            for of in appended {
                row("appended", String::new(), vec![describe_appended(of)])?;
            }
        }
        if let Some(document) = &self.preprocessing {
            row("preprocessing", String::new(), vec![describe_preprocessing(document)])?;
        }
        Ok(())
    }
}

/// Contents of `preprocessing.json`: the encodings of imported tables, or names of other fields.
fn describe_preprocessing(document: &Value) -> String {
    let fields = |of: &Value| of.as_object().map_or(Vec::new(), |of| of.keys().cloned().collect());
    let tables: Vec<String> = ["nodes", "edges"].iter().flat_map(|kind| fields(&document[*kind])).collect();
    match tables.len() {
        0 => fields(document).join(", "),
        _ => format!("encodings of the tables of {}, which encode new rows", tables.join(", ")),
    }
}

/// Rows that were appended, by their record in `preprocessing.json`.
fn describe_appended(of: &Value) -> String {
    let text = |name: &str| of[name].as_str().unwrap_or_default().to_string();
    let mut parts = vec![format!("to {} ({})", text("base"), text("checksum"))];
    for kind in ["nodes", "edges"] {
        let counts = of[kind].as_object().into_iter().flatten();
        let new = counts.map(|(name, counts)| (name, counts[1].as_u64().unwrap_or(0)));
        parts.extend(
            new.filter(|(_, new)| *new > 0).map(|(name, new)| format!("{name} +{}", grouped(new as usize))),
        );
    }
    // Ended nodes stay as nodes without edges.
    for (kind, what) in [("changed", "changed"), ("ended_nodes", "ended"), ("ended_edges", "ended")] {
        let counts = of[kind].as_object().into_iter().flatten();
        let number = |count: &Value| grouped(count.as_u64().unwrap_or(0) as usize);
        parts.extend(counts.map(|(name, count)| format!("{name} {} {what}", number(count))));
    }
    parts.join(", ")
}

impl TaskInfo {
    /// Notes behind the number of rows.
    fn notes(&self) -> Vec<String> {
        let mut kind = format!("{} on {}", self.kind, self.on);
        if self.seeds || self.time {
            let time = if self.time { " with times" } else { "" };
            let _ = write!(kind, ", {}{time}", if self.seeds { "listed seeds" } else { "seeds" });
        }
        let targets = match (self.classes, self.values) {
            (0, 0) => None,
            (classes, 0) if !self.columns.is_empty() => {
                Some(format!("{} classes in columns{}", grouped(classes), listed(&sizes(&self.columns))))
            }
            (classes, 0) => {
                let several = if self.multilabel { ", several a row" } else { "" };
                Some(format!("{} classes{}{several}", grouped(classes), listed(&self.names)))
            }
            (_, values) => Some(format!("{}{}", counted(values, "value"), listed(&self.names))),
        };
        let without = match self.rows - self.with_target {
            0 => None,
            n => Some(format!("{} without a target", grouped(n))),
        };
        let [train, valid, test] = [self.train, self.valid, self.test].map(grouped);
        let split = format!("train {train}, valid {valid}, test {test}");
        let negatives = (self.negatives != [0; 3]).then(|| {
            let [train, valid, test] = self.negatives.map(grouped);
            format!("negatives {train}, {valid}, {test}")
        });
        let metric = self.metric.as_ref().map(|metric| format!("metric {metric}"));
        [Some(kind), targets, without, Some(split), negatives, metric].into_iter().flatten().collect()
    }
}
