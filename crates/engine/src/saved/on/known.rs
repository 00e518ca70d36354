//! The dataset that new nodes are added to, and the import of their tables.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use graphmill_core::{Features, NodeId, memory, progress::Progress};
use graphmill_data::{
    dataset::Work,
    external::Scratch,
    tables::{
        EdgeTable, ForeignKey, ImportedTables, NodeReport, NodeTable, Preprocessing, TableReport,
        TableSchema, TypeTables, import_new_tables,
    },
    typed::{EdgeData, EdgeType, FeatureTable, KEY_SEPARATOR, Keys, TableData, TypedDataset, Values},
};
use rayon::prelude::*;

use super::{
    NewTables,
    graph::{NewEdges, NodeIds},
    scratch::ScratchDir,
};
use crate::{Error, Result};

/// Number of keys that a message lists.
const EXAMPLES: usize = 5;

/// A dataset that was imported from tables, with the encodings of their columns.
pub(crate) struct Known<'d> {
    data: &'d TypedDataset,
    preprocessing: &'d Preprocessing,
    /// Finds nodes by their keys.
    finder: &'d dyn FindKeys,
    /// True to read the features of new edges.
    edge_features: bool,
}

/// Finds the nodes of a dataset by their keys.
pub(crate) trait FindKeys: Sync {
    /// The nodes of type `t` that have one of the keys `wanted`, by key.
    fn find(&self, data: &TypedDataset, t: usize, wanted: &[String]) -> HashMap<String, NodeId>;
}

/// A pass over all keys for each question.
struct Scan;

impl FindKeys for Scan {
    fn find(&self, data: &TypedDataset, t: usize, wanted: &[String]) -> HashMap<String, NodeId> {
        find(data.nodes[t].keys.as_ref(), wanted)
    }
}

/// Directory of the dataset `name`, and the encodings of its columns.
///
/// # Errors
/// It was not imported from tables, or is in memory only.
pub(crate) fn encodings<'p>(name: &str, dir: Option<&'p Path>) -> Result<(&'p Path, Preprocessing)> {
    let Some(dir) = dir else {
        let message = "it is in memory, without the encodings of its columns; new rows need a dataset that \
                       'graphmill import tables' wrote";
        return Err(Error::dataset(name, message));
    };
    Ok((dir, Preprocessing::read(dir)?))
}

/// Imported tables of new nodes.
pub(crate) struct NewRows {
    /// The new nodes of each type, followed by the known ones that edges name, and the edges.
    imported: TypedDataset,
    /// Number of new nodes of each type.
    counts: Vec<usize>,
    /// Number of known nodes of each type.
    known: Vec<usize>,
    /// Ids in the dataset of the known nodes that edges name, by type.
    places: Vec<Vec<NodeId>>,
    /// Columns with values that the encodings do not know, with the number of such values.
    pub(crate) unknown_values: Vec<(String, u64)>,
    memory: u64,
    dir: ScratchDir,
    watch: Arc<dyn Progress>,
}

impl<'d> Known<'d> {
    /// Creates the dataset with its encodings, as [`encodings`] reads them.
    pub(crate) fn new(data: &'d TypedDataset, preprocessing: &'d Preprocessing) -> Self {
        Self { data, preprocessing, finder: &Scan, edge_features: false }
    }

    /// The same dataset, whose nodes `finder` finds.
    #[must_use]
    pub(crate) fn found_by(self, finder: &'d dyn FindKeys) -> Self {
        Self { finder, ..self }
    }

    /// The same dataset, to which new edges bring their features if `edge_features`.
    #[must_use]
    pub(crate) fn with_edge_features(self, edge_features: bool) -> Self {
        Self { edge_features, ..self }
    }

    /// Assigns new tables to types. Nodes without a type are of the type number `target`.
    ///
    /// # Errors
    /// As for [`TypeTables::new`]; the dataset has several types, and an earlier version imported
    /// it.
    pub(crate) fn assign(&self, new: &NewTables, target: usize) -> Result<TypeTables> {
        let has_types = self.data.nodes.len() > 1 || self.data.edges.len() > 1;
        if has_types && !self.preprocessing.knows_foreign_keys() {
            let message = "an earlier version imported its tables and did not record which edges are \
                           foreign keys; import the tables again";
            return Err(Error::dataset(&self.data.name, message));
        }
        let (data, tables) = ((self.data, self.preprocessing), (&new.nodes, &new.edges));
        TypeTables::new(data, Some(target), tables, &new.memory).map_err(|e| Error::usage(e.to_string()))
    }

    /// The dataset's first edge type.
    pub(super) fn first_edge_type(&self) -> Option<&EdgeType> {
        self.data.edges.first().map(|edges| &edges.edge_type)
    }

    /// Schema of new tables, with the columns and the reverse edges of the first import.
    fn schema(&self, tables: &TypeTables, new: &NewTables) -> TableSchema {
        let is_undirected = |edges: &EdgeData| edges.reverse.as_ref() == Some(&edges.edge_type.name);
        let reverse = |edges: &EdgeData| edges.reverse.clone().filter(|_| !is_undirected(edges));
        let nodes = self.data.nodes.iter().zip(&tables.nodes).map(|(nodes, files)| {
            let foreign = self.data.edges.iter().filter_map(|edges| {
                let is_own = edges.edge_type.source == nodes.name && !files.is_empty();
                let known = self.preprocessing.foreign_key(&edges.edge_type.to_string());
                Some(ForeignKey {
                    to: edges.edge_type.destination.clone(),
                    kind: Some(edges.edge_type.name.clone()),
                    reverse: reverse(edges),
                    ..known.filter(|_| is_own)?
                })
            });
            NodeTable {
                kind: nodes.name.clone(),
                files: files.clone(),
                id: self.preprocessing.key_columns(&nodes.name).unwrap_or_default().to_vec().into(),
                foreign_keys: foreign.collect(),
                ..NodeTable::default()
            }
        });
        let given = self.data.edges.iter().zip(&tables.edges).filter(|(_, files)| !files.is_empty());
        let edges = given.map(|(edges, files)| EdgeTable {
            kind: edges.edge_type.name.clone(),
            files: files.clone(),
            source: Some(edges.edge_type.source.clone()),
            destination: Some(edges.edge_type.destination.clone()),
            undirected: is_undirected(edges),
            reverse: reverse(edges),
            ..self.preprocessing.edge_table(&edges.edge_type.to_string()).unwrap_or_default()
        });
        TableSchema {
            nodes: nodes.collect(),
            edges: edges.collect(),
            base: PathBuf::new(),
            memory: new.memory.clone(),
            ..TableSchema::default()
        }
    }

    /// Imports new tables into a temporary directory.
    ///
    /// # Errors
    /// A table has faults or no rows, repeats a key or has a known one; an edge names a key that
    /// neither the dataset nor a new node has; or `watch` stops the work.
    pub(crate) fn import(
        &self,
        new: &NewTables,
        tables: &TypeTables,
        watch: &Arc<dyn Progress>,
    ) -> Result<NewRows> {
        self.refuse_without_keys(tables)?;
        let dir = ScratchDir::create()?;
        let memory = new.budget.or_else(|| Some(memory::available()? / 2)).unwrap_or(1 << 30);
        let work = Work { memory: Some(memory), replace: false, progress: Box::new(Stop(watch.clone())) };
        let has = |kind: &str, keys: &[String]| -> Vec<bool> {
            let known = self.data.nodes.iter().position(|nodes| nodes.name == kind);
            let found = known.map(|t| self.finder.find(self.data, t, keys)).unwrap_or_default();
            keys.iter().map(|key| found.contains_key(key)).collect()
        };
        let schema = self.schema(tables, new);
        let encodings = self.preprocessing.of_new_rows(self.edge_features);
        let ImportedTables { dataset: imported, report } =
            import_new_tables(&schema, dir.path().join("new"), &encodings, &has, work)?;
        watch.check()?;
        check_edges(&report)?;
        let (mut counts, mut places, mut unknown_values) = (Vec::new(), Vec::new(), Vec::new());
        for (t, report) in report.nodes.iter().enumerate() {
            if !tables.nodes[t].is_empty() {
                check_rows(&tables.source(t), report)?;
            }
            let count = report.rows as usize;
            places.push(self.places(t, imported.nodes[t].keys.as_ref(), count, &tables.source(t))?);
            counts.push(count);
            let column = |column: &str| match self.data.nodes.len() {
                1 => column.to_string(),
                _ => format!("{}.{column}", report.kind),
            };
            let unknown = report.unknown_values.iter();
            unknown_values.extend(unknown.map(|(name, count)| (column(name), *count)));
        }
        let known = self.data.nodes.iter().map(|nodes| nodes.count).collect();
        let watch = watch.clone();
        Ok(NewRows { imported, counts, known, places, unknown_values, memory, dir, watch })
    }

    /// Refuses new nodes of types whose table has no key: they have no name of their own.
    fn refuse_without_keys(&self, tables: &TypeTables) -> Result<()> {
        for (nodes, files) in self.data.nodes.iter().zip(&tables.nodes) {
            let has_no_key = self.preprocessing.key_columns(&nodes.name).is_some_and(<[String]>::is_empty);
            if has_no_key && !files.is_empty() {
                return Err(Error::usage(format!(
                    "nodes '{}': the import read no column of their keys, so new nodes have none; import \
                     the tables again with such a column (id), or leave the table out",
                    nodes.name
                )));
            }
        }
        Ok(())
    }

    /// Ids in the dataset of the nodes of type `t` that edges name beside the `count` new ones.
    ///
    /// # Errors
    /// A new node is known.
    fn places(&self, t: usize, keys: Option<&Keys>, count: usize, source: &str) -> Result<Vec<NodeId>> {
        let texts: Vec<String> =
            keys.map(|keys| (0..keys.len()).map(|v| keys.get(v).to_string()).collect()).unwrap_or_default();
        let ids = self.finder.find(self.data, t, &texts);
        let (new_keys, others) = texts.split_at(count.min(texts.len()));
        let known: Vec<&String> = new_keys.iter().filter(|key| ids.contains_key(*key)).collect();
        if !known.is_empty() {
            return Err(Error::usage(format!(
                "{source}: {} of {count} rows have a key that is in {} already: {}; remove them, or predict \
                 them with --keys",
                known.len(),
                self.data.name,
                examples(&known)
            )));
        }
        Ok(others.iter().filter_map(|key| ids.get(key).copied()).collect())
    }
}

impl NewRows {
    /// Number of new nodes of type `t`.
    pub(crate) fn count(&self, t: usize) -> usize {
        self.counts[t]
    }

    /// Ids of the nodes of type `t`.
    pub(crate) fn ids(&self, t: usize) -> NodeIds<'_> {
        NodeIds { known: self.known[t], new: self.counts[t], places: &self.places[t] }
    }

    /// New edges of the type `of`, from the node type number `src` to `dst`.
    pub(crate) fn edges(&self, of: Option<&EdgeType>, (src, dst): (usize, usize)) -> NewEdges {
        let imported = self.imported.edges.iter().find(|edges| Some(&edges.edge_type) == of);
        NewEdges::of(imported, self.ids(src), self.ids(dst))
    }

    /// Features of the new edges of the type `of`, in the order of their numbers.
    pub(crate) fn edge_features(&self, of: &EdgeType) -> Features {
        let imported = self.imported.edges.iter().find(|edges| edges.edge_type == *of);
        match imported.and_then(|edges| edges.features.as_ref()) {
            Some(FeatureTable { width, data: TableData::Dense(Values::F32(values)), .. }) => {
                Features::f32(*width, values.to_vec())
            }
            _ => Features::default(),
        }
    }

    /// Keys of the new nodes of type `t`, and of others behind them.
    pub(crate) fn keys(&self, t: usize) -> Keys {
        self.imported.nodes[t].keys.clone().unwrap_or(Keys::Integers(Vec::new().into()))
    }

    /// Features of the new nodes of type `t`.
    pub(crate) fn features(&self, t: usize) -> Features {
        // Nodes that only edges name have rows without values behind those of the new nodes.
        match &self.imported.nodes[t].features {
            Some(FeatureTable { width, data: TableData::Dense(Values::F32(values)), .. }) => {
                Features::f32(*width, values[..self.counts[t] * width].to_vec())
            }
            _ => Features::default(),
        }
    }

    /// Scratch of the graph called `name`, within one of `shares` of the memory budget.
    ///
    /// # Errors
    /// Its directory cannot be created.
    pub(crate) fn scratch(&self, name: &str, shares: usize) -> Result<Scratch> {
        let memory = self.memory / shares.max(1) as u64;
        let progress = Box::new(Stop(self.watch.clone()));
        Ok(Scratch::open(&self.dir.path().join(name), name, memory, progress)?)
    }
}

/// Progress that reports nothing and ends with the work that it belongs to.
struct Stop(Arc<dyn Progress>);

impl Progress for Stop {
    fn is_stopped(&self) -> bool {
        self.0.is_stopped()
    }
}

/// Checks that a table has rows, and that none repeats the key of an earlier row.
fn check_rows(source: &str, report: &NodeReport) -> Result<()> {
    if report.repeated_keys > 0 {
        return Err(Error::usage(format!(
            "{source}: {} of {} rows repeat the key of an earlier row: {}; remove them",
            report.repeated_keys,
            report.rows,
            report.repeated_examples.join(", ")
        )));
    }
    if report.rows == 0 {
        return Err(Error::usage(format!("{source}: the table has no rows; add new nodes")));
    }
    Ok(())
}

/// Checks that all edges have both ends.
fn check_edges(report: &TableReport) -> Result<()> {
    match report.edges.iter().find(|edges| edges.missing_ends > 0) {
        Some(edges) => Err(Error::usage(format!(
            "edges '{}': {} of {} rows have no source or destination; complete or remove them",
            edges.kind, edges.missing_ends, edges.rows
        ))),
        None => Ok(()),
    }
}

/// Nodes with one of the keys `wanted`, by key. Parallel; its cost is that of a pass over all keys.
fn find(keys: Option<&Keys>, wanted: &[String]) -> HashMap<String, NodeId> {
    let Some(keys) = keys.filter(|_| !wanted.is_empty()) else { return HashMap::new() };
    let wanted: HashSet<&str> = wanted.iter().map(String::as_str).collect();
    let found = |v: usize| {
        let key = keys.get(v).to_string();
        wanted.contains(key.as_str()).then_some((key, v as NodeId))
    };
    (0..keys.len()).into_par_iter().with_min_len(1 << 12).filter_map(found).collect()
}

/// First keys of a list, for a message.
fn examples(keys: &[&String]) -> String {
    let shown = keys.iter().take(EXAMPLES).map(|key| format!("'{}'", key.replace(KEY_SEPARATOR, ", ")));
    shown.collect::<Vec<_>>().join(", ")
}
