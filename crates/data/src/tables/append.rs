//! Tables of rows that extend a dataset: their schema, by the record of the import, and the
//! datasets that they can extend.

use std::{collections::BTreeMap, path::PathBuf};

use graphmill_core::{Error, Labels, Result};

use super::{
    changed::Changed,
    encoding::EncodedColumn,
    memory::MemoryTable,
    names::TypeTables,
    preprocessing::{NodeEncoding, Preprocessing, TargetEncoding},
    removals::{Of, RemovalTable},
    schema::{Dangling, EdgeTable, ForeignKey, Names, NodeTable, TableSchema, TargetTable},
    split::FILES,
};
use crate::typed::{EdgeData, FeatureTable, NodeData, TableData, Targets, TaskOn, TypedDataset, Values};

/// Tables of rows that extend a dataset: they have the columns of its import.
#[derive(Clone, Debug, Default)]
pub struct MoreTables {
    /// Files of new nodes: paths, directories or patterns, or keys of `memory`. The node type
    /// stands before a name, as in `account=new.csv`, unless the dataset has one type.
    pub nodes: Names,
    /// Files of new edges. The edge type stands before a name, as in `transfer=new.csv` or
    /// `account__transfer__account=new.csv`, unless the dataset has one edge table.
    pub edges: Names,
    /// Files of new rows of tables of targets. The task stands before a name, as in
    /// `churn=new.csv`, unless the dataset has one such table.
    pub targets: Names,
    /// Files of keys of nodes that end, with the columns of the key that the import had. Types as
    /// for `nodes`.
    pub end_nodes: Names,
    /// Files of pairs of keys of edges that end, with the columns of the import. Types as for
    /// `edges`.
    pub end_edges: Names,
    /// Treatment of rows of nodes that the dataset has.
    pub changed: Changed,
    /// Rules that divide the new rows with labels instead of the rule of the import: `RULE` for all
    /// tasks, or `NAME=RULE` for one.
    pub splits: Vec<String>,
    /// Seed of random splits.
    pub seed: u64,
    /// Treatment of edges that name a node that neither the dataset nor a row has, and, by
    /// [`Dangling::Drop`], of ends that name a node or an edge that the dataset does not have.
    pub dangling: Dangling,
    /// Name of the new dataset; that of the extended one if missing.
    pub name: Option<String>,
    /// Separator of CSV files; found if missing.
    pub separator: Option<char>,
    /// Quote of CSV files; `"` if missing.
    pub quote: Option<char>,
    /// Directory against which paths are resolved.
    pub base: PathBuf,
    /// Tables in memory by name.
    pub memory: BTreeMap<String, MemoryTable>,
}

impl MoreTables {
    /// Returns true if there is a table.
    pub fn is_any(&self) -> bool {
        let all = [&self.nodes, &self.edges, &self.targets, &self.end_nodes, &self.end_edges];
        all.iter().any(|names| !names.is_empty())
    }

    /// Tables of the nodes and edges of `data` that end, by the record `known` of its import.
    ///
    /// # Errors
    /// A type is unknown or ambiguous; its nodes have no keys; its edges are foreign keys or
    /// reverse edges.
    pub(super) fn removals(&self, data: &TypedDataset, known: &Preprocessing) -> Result<Vec<RemovalTable>> {
        let tables = TypeTables::new((data, known), None, (&self.end_nodes, &self.end_edges), &self.memory)?;
        let table = |of, name: String, files: &Names, keys| RemovalTable {
            of,
            name,
            files: files.clone(),
            keys,
            separator: self.separator,
            quote: self.quote,
        };
        let mut removals = Vec::new();
        for (t, files) in tables.nodes.iter().enumerate().filter(|(_, files)| !files.is_empty()) {
            let kind = &data.nodes[t].name;
            let of = known.nodes.get(kind);
            if of.is_some_and(|of| of.is_numbered) {
                return Err(Error::invalid(format!(
                    "ends of nodes '{kind}': the import numbered them, so no key names them; import all \
                     tables again with a key"
                )));
            }
            let key = of.map(|of| of.key.clone()).unwrap_or_default();
            removals.push(table(Of::Nodes(t), format!("nodes '{kind}'"), files, vec![key]));
        }
        for (e, files) in tables.edges.iter().enumerate().filter(|(_, files)| !files.is_empty()) {
            let name = data.edges[e].edge_type.to_string();
            let of = known.edge_table(&name).unwrap_or_default();
            let keys = vec![of.src.list(), of.dst.list()];
            removals.push(table(Of::Edges(e), format!("edges '{name}'"), files, keys));
        }
        Ok(removals)
    }

    /// Schema of the tables, by the types of `data` and the record `known` of its import.
    ///
    /// # Errors
    /// There are no tables; a type or task is unknown or ambiguous, or has no table in the import.
    pub(super) fn schema(&self, data: &TypedDataset, known: &Preprocessing) -> Result<TableSchema> {
        if !self.is_any() {
            let message = "there are no tables; name tables of nodes, edges or targets, or of ends";
            return Err(Error::invalid(message));
        }
        if self.changed != Changed::Fail && self.nodes.is_empty() {
            let message = "changed has no effect without tables of nodes; leave it out";
            return Err(Error::invalid(message));
        }
        self.check_splits(data)?;
        let tables = TypeTables::new((data, known), None, (&self.nodes, &self.edges), &self.memory)?;
        let nodes = data.nodes.iter().zip(&tables.nodes);
        let nodes: Result<_> =
            nodes.map(|(nodes, files)| self.node_table(nodes, files, data, known)).collect();
        let edges = data.edges.iter().zip(&tables.edges).filter(|(_, files)| !files.is_empty());
        Ok(TableSchema {
            name: self.name.clone().or_else(|| Some(data.name.clone())),
            seed: self.seed,
            dangling: self.dangling,
            nodes: nodes?,
            edges: edges.filter_map(|(edges, files)| self.edge_table(edges, files, known)).collect(),
            targets: self.target_tables(data, known)?,
            links: Vec::new(),
            base: self.base.clone(),
            memory: self.memory.clone(),
        })
    }

    fn node_table(
        &self,
        nodes: &NodeData,
        files: &Names,
        data: &TypedDataset,
        known: &Preprocessing,
    ) -> Result<NodeTable> {
        let kind = nodes.name.clone();
        let of = known.nodes.get(&kind).filter(|of| !of.key.is_empty() || of.is_numbered);
        let of = match (of, files.is_empty()) {
            (_, true) => return Ok(NodeTable { kind, ..NodeTable::default() }),
            (Some(of), false) => of,
            (None, false) => {
                return Err(Error::invalid(format!(
                    "nodes '{kind}': the import had no table of them, its nodes are those that edges name; \
                     leave the table out"
                )));
            }
        };
        let own = data.edges.iter().filter(|edges| edges.edge_type.source == kind);
        let foreign = own.filter_map(|edges| {
            let name = edges.edge_type.to_string();
            let of = known.foreign_key(&name)?;
            let time = known.edges.get(&name).and_then(|of| of.time.as_ref());
            let time = time.map(|(column, _)| column.clone());
            let (to, name) = (edges.edge_type.destination.clone(), edges.edge_type.name.clone());
            Some(ForeignKey { to, kind: Some(name), time, reverse: edges.reverse.clone(), ..of })
        });
        let (label, split) = self.target(None, of.target.as_ref());
        Ok(NodeTable {
            kind: kind.clone(),
            files: files.clone(),
            id: of.key.clone().into(),
            time: of.time.as_ref().map(|(column, _)| column.clone()),
            label,
            split,
            separator: self.separator,
            quote: self.quote,
            foreign_keys: foreign.collect(),
            ..NodeTable::default()
        })
    }

    fn edge_table(&self, edges: &EdgeData, files: &Names, known: &Preprocessing) -> Option<EdgeTable> {
        let name = edges.edge_type.to_string();
        let of = known.edges.get(&name)?;
        let is_undirected = edges.reverse.as_ref() == Some(&edges.edge_type.name);
        let (label, split) = self.target(None, of.target.as_ref());
        Some(EdgeTable {
            kind: edges.edge_type.name.clone(),
            files: files.clone(),
            source: Some(edges.edge_type.source.clone()),
            destination: Some(edges.edge_type.destination.clone()),
            time: of.time.as_ref().map(|(column, _)| column.clone()),
            label,
            split,
            features: of.features.iter().map(|column| column.column.clone()).collect(),
            formats: of.formats.clone(),
            nulls: of.nulls.clone(),
            undirected: is_undirected,
            reverse: edges.reverse.clone().filter(|_| !is_undirected),
            separator: self.separator,
            quote: self.quote,
            ..known.edge_table(&name)?
        })
    }

    /// Tables of targets, of which each file names its task.
    fn target_tables(&self, data: &TypedDataset, known: &Preprocessing) -> Result<Vec<TargetTable>> {
        let names: Vec<&str> = known.targets.keys().map(String::as_str).collect();
        let mut files: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for given in self.targets.list() {
            let of_task = given.split_once('=').and_then(|(name, file)| {
                Some((*names.iter().find(|known| **known == name)?, file.to_string()))
            });
            let (name, file) = match (of_task, &names[..]) {
                (Some(found), _) => found,
                (None, [name]) => (*name, given),
                (None, []) => {
                    return Err(Error::invalid(format!(
                        "targets '{given}': {} has no table of targets; leave it out",
                        data.name
                    )));
                }
                (None, _) => {
                    return Err(Error::invalid(format!(
                        "targets '{given}': {} has several tables of targets; name the task before the \
                         table, as in '{}={given}': {}",
                        data.name,
                        names[0],
                        names.join(", ")
                    )));
                }
            };
            files.entry(name).or_default().push(file);
        }
        let mut tables = Vec::new();
        for (name, files) in files {
            let of = &known.targets[name];
            let on = data.tasks.iter().find(|task| task.name == name).map(|task| &task.on);
            let Some(TaskOn::Nodes(on)) = on.filter(|_| !of.id.is_empty()) else {
                return Err(Error::invalid(format!(
                    "targets '{name}': an earlier version imported the table and did not record its key \
                     columns; import the tables again"
                )));
            };
            let (label, split) = self.target(Some(name), Some(&of.target));
            if split.as_deref() == Some(FILES) {
                return Err(Error::invalid(format!(
                    "targets '{name}': the import read a file for each part of the split, and no rule \
                     divides the new rows; name one, as in --split {name}=random:60,20,20"
                )));
            }
            tables.push(TargetTable {
                name: Some(name.to_string()),
                files: files.into(),
                on: Some(on.clone()),
                id: of.id.clone().into(),
                time: of.time.as_ref().map(|(column, _)| column.clone()),
                label,
                split,
                separator: self.separator,
                quote: self.quote,
                ..TargetTable::default()
            });
        }
        Ok(tables)
    }

    /// Columns of a target, and the rule that divides new rows. The task is called `name`, or as
    /// its columns.
    fn target(&self, name: Option<&str>, known: Option<&TargetEncoding>) -> (Names, Option<String>) {
        let Some(known) = known else { return (Names::None, None) };
        let task = name.map_or_else(|| known.column.list().join("-"), String::from);
        let rule = |text: &String| match text.split_once('=') {
            Some((name, rule)) => (name == task).then(|| rule.to_string()),
            None => Some(text.clone()),
        };
        let given = self.splits.iter().rev().find_map(rule);
        (known.column.clone(), given.or_else(|| known.split.clone()))
    }

    /// Checks that the rules of splits name tasks.
    fn check_splits(&self, data: &TypedDataset) -> Result<()> {
        let names: Vec<&str> = data.tasks.iter().map(|task| &task.name[..]).collect();
        let named = self.splits.iter().filter_map(|text| text.split_once('='));
        match named.map(|(name, _)| name).find(|name| !names.contains(name)) {
            None => Ok(()),
            Some(name) => Err(Error::Unknown { axis: "task", name: name.into(), known: names.join(", ") }),
        }
    }
}

/// Checks that rows can be appended to `data`, which the tables of the record `known` were imported
/// to: its columns are those of the import.
///
/// # Errors
/// The first part that the import did not write, with the way out.
pub(super) fn check(data: &TypedDataset, known: &Preprocessing) -> Result<()> {
    let refuse =
        |why: String| Err(Error::invalid(format!("rows cannot be appended to {}: {why}", data.name)));
    if !known.knows_foreign_keys() {
        let why = "an earlier version imported its tables and did not record which edges are foreign keys; \
                   import the tables again";
        return refuse(why.into());
    }
    for nodes in &data.nodes {
        let kind = &nodes.name;
        if nodes.original_ids.is_some() {
            let why = "its nodes were renumbered; append to the dataset that was reordered, and reorder the \
                       result";
            return refuse(why.into());
        }
        let is_imported = |of: &NodeEncoding| {
            has_columns(nodes.features.as_ref(), &of.features) && nodes.time.is_some() == of.time.is_some()
        };
        if !known.nodes.get(kind).is_some_and(is_imported) || nodes.keys.is_none() {
            return refuse(format!(
                "the columns of nodes '{kind}' are not those that 'graphmill import tables' wrote; import \
                 all tables again"
            ));
        }
    }
    for edges in &data.edges {
        let name = edges.edge_type.to_string();
        let reverse_of = |of: &&EdgeData| {
            let back = of.reverse.as_ref().map(|name| of.edge_type.reversed(name));
            back.as_ref() == Some(&edges.edge_type) && of.edge_type != edges.edge_type
        };
        let of = known
            .edges
            .get(&name)
            .or_else(|| known.edges.get(&data.edges.iter().find(reverse_of)?.edge_type.to_string()));
        let is_imported = of.is_some_and(|of| {
            has_columns(edges.features.as_ref(), &of.features)
                && edges.time.is_some() == of.time.is_some()
                && edges.weights.is_some() == of.weight.is_some()
        });
        if !is_imported {
            return refuse(format!(
                "the columns of edges '{name}' are not those that 'graphmill import tables' wrote; import \
                 all tables again"
            ));
        }
    }
    for task in &data.tasks {
        let is_plain = match &task.targets {
            Targets::Classes(Labels::Single { .. } | Labels::Columns { .. }) | Targets::Values { .. } => true,
            Targets::Classes(_) | Targets::None => false,
        };
        let is_kept = task.seeds.is_some() || is_plain && matches!(task.on, TaskOn::Nodes(_));
        if !is_kept || task.negatives.iter().any(Option::is_some) {
            return refuse(format!(
                "no import of tables writes task '{}'; import all tables again",
                task.name
            ));
        }
    }
    Ok(())
}

/// Returns true if features are those that an import writes of these columns.
fn has_columns(features: Option<&FeatureTable>, columns: &[EncodedColumn]) -> bool {
    let names: Vec<String> = columns.iter().flat_map(EncodedColumn::names).collect();
    match features {
        None => names.is_empty(),
        Some(FeatureTable { names: found, data: TableData::Dense(Values::F32(_)), .. }) => *found == names,
        Some(_) => false,
    }
}
