//! Nodes and edges of a dataset that end: tables of keys, as `--end-nodes` and `--end-edges` name
//! them.

use graphmill_core::{Error, NodeId, Result};

use super::{
    column_formats::{ColumnFormats, profile},
    faults::{Faults, FaultyRows},
    kept::Kept,
    keys::{Ends, KeyColumns, NONE, NodeKeys, shown},
    report::EndReport,
    schema::{Dangling, Names},
    source::Table,
};
use crate::typed::{EdgeData, TypedDataset};

/// Nodes of a type, or edges of a type.
#[derive(Clone, Copy, Debug)]
pub(super) enum Of {
    /// Number of the node type.
    Nodes(usize),
    /// Number of the edge type.
    Edges(usize),
}

/// Table of the keys of nodes, or of the pairs of keys of edges, that end.
#[derive(Clone, Debug)]
pub(super) struct RemovalTable {
    pub(super) of: Of,
    /// Type in messages: `nodes 'user'`.
    pub(super) name: String,
    pub(super) files: Names,
    /// Columns of the node's key, or of the keys of the source and the destination. Without names,
    /// the table has one column.
    pub(super) keys: Vec<Vec<String>>,
    pub(super) separator: Option<char>,
    pub(super) quote: Option<char>,
}

/// Table of ends with the positions of its keys.
pub(super) struct RemovalPlan {
    /// Number of the table, which names its files.
    index: usize,
    of: Of,
    name: String,
    keys: Vec<KeyColumns>,
    table: Table,
}

/// Nodes and edges of a dataset that end, by type.
#[derive(Default)]
pub(super) struct Removals {
    /// Nodes of each type, ascending.
    pub(super) nodes: Vec<Vec<NodeId>>,
    /// Destination and source of edges of each type, ascending. All edges of the pair end, and of
    /// an undirected type those of the opposite pair.
    pub(super) pairs: Vec<Vec<[NodeId; 2]>>,
    /// Nodes of each type whose rows changed: the edges of their foreign keys are replaced.
    pub(super) changed: Vec<Vec<NodeId>>,
}

impl Removals {
    /// Creates the removals from `data` of no rows but the foreign keys of changed nodes, by the
    /// keys of its node types.
    pub(super) fn new(data: &TypedDataset, keys: &[&NodeKeys]) -> Self {
        let changed = |keys: &&NodeKeys| {
            let mut nodes: Vec<NodeId> = keys.rows.changed.iter().map(|(_, v)| *v).collect();
            nodes.sort_unstable();
            nodes
        };
        Self {
            nodes: vec![Vec::new(); data.nodes.len()],
            pairs: vec![Vec::new(); data.edges.len()],
            changed: keys.iter().map(changed).collect(),
        }
    }
}

impl RemovalPlan {
    /// Finds the keys in the columns of the table; faults are added to `faults`.
    pub(super) fn new(
        (index, spec): (usize, &RemovalTable),
        mut table: Table,
        kept: &Kept,
        faults: &mut Faults,
    ) -> Result<Self> {
        let formats = ColumnFormats::none(&table);
        let profiles = profile(&mut table, kept, &format!("types-of-ends-{index}"), formats, faults)?;
        let name = table.name();
        let mut keys = Vec::new();
        for columns in &spec.keys {
            let positions: Vec<usize> = match (&columns[..], table.columns.len()) {
                ([], 1) => vec![0],
                ([], count) => {
                    let message = format!(
                        "the nodes have no table and so no name of their key, and the table of ends has \
                         {count} columns; leave one, of the keys"
                    );
                    faults.add(&name, message);
                    Vec::new()
                }
                (columns, _) => {
                    columns.iter().filter_map(|column| faults.take(&name, table.position(column))).collect()
                }
            };
            keys.push(KeyColumns::new(&positions, &profiles));
        }
        Ok(Self { index, of: spec.of, name: spec.name.clone(), keys, table })
    }

    /// Reads the rows, and adds the nodes or edges of `data` that they name to `removals`. Rows
    /// that name others are faults, or dropped under [`Dangling::Drop`].
    pub(super) fn read(
        &self,
        (data, keys): (&TypedDataset, &[&NodeKeys]),
        dangling: Dangling,
        removals: &mut Removals,
        faults: &mut Faults,
    ) -> Result<EndReport> {
        let types = match self.of {
            Of::Nodes(t) => vec![t],
            Of::Edges(e) => ends(data, &data.edges[e])?.to_vec(),
        };
        let ids = types.iter().enumerate().map(|(k, &t)| self.ids(k, keys[t], faults));
        let ids = ids.collect::<Result<Vec<_>>>()?;
        let rows = ids.first().map_or(0, Vec::len);
        let mut unknown: Vec<u64> = Vec::new();
        let (ended, what) = match self.of {
            Of::Nodes(t) => {
                let known = |row: &usize| is_known(ids[0][*row], *row, &mut unknown);
                let nodes: Vec<NodeId> = (0..rows).filter(known).map(|row| ids[0][row]).collect();
                (merge(&mut removals.nodes[t], nodes), "with a key that the dataset does not have")
            }
            Of::Edges(e) => {
                let (src, dst) = (&ids[0], &ids[1]);
                let pairs: Vec<[NodeId; 2]> = (0..rows).map(|row| [dst[row], src[row]]).collect();
                let known = having(&data.edges[e], pairs.clone());
                let has = |row: &usize| {
                    let is_edge = known.binary_search(&pairs[*row]).is_ok();
                    if !is_edge {
                        unknown.push(*row as u64);
                    }
                    is_edge
                };
                let found: Vec<[NodeId; 2]> = (0..rows).filter(has).map(|row| pairs[row]).collect();
                (merge(&mut removals.pairs[e], found), "with an edge that the dataset does not have")
            }
        };
        let mut report =
            EndReport { on: self.name.clone(), rows: rows as u64, ended, ..EndReport::default() };
        let listed = self.listed(&unknown)?;
        if dangling == Dangling::Drop {
            (report.unknown, report.unknown_examples) = (listed.count, listed.places);
        } else {
            let fix = "correct them, or choose dangling = drop (drop these rows)";
            listed.report(&self.table.name(), what, fix, faults);
        }
        Ok(report)
    }

    /// Node of the dataset that key number `k` of each row names, [`NONE`] if there is none.
    fn ids(&self, k: usize, keys: &NodeKeys, faults: &mut Faults) -> Result<Vec<NodeId>> {
        let mut found = Ends::new(keys, &format!("removed-{}-{k}", self.index), false)?;
        let (mut key, mut rows) = (String::new(), 0);
        let table = &self.table;
        table.scan(&vec![true; table.columns.len()], faults, |batch, _| {
            for row in 0..batch.rows {
                let is_there = self.keys[k].read(batch, row, &mut key);
                found.push(batch.first + row as u64, is_there.then_some(&key))?;
            }
            rows += batch.rows as u64;
            Ok(())
        })?;
        let (ids, _) = found.finish(rows)?;
        // A new row has no edge yet, and does not end.
        let of_base = |&v: &NodeId| if u64::from(v) < keys.rows.base { v } else { NONE };
        Ok(ids.iter().map(of_base).collect())
    }

    /// Positions and keys of rows, which ascend.
    fn listed(&self, rows: &[u64]) -> Result<FaultyRows> {
        let (mut listed, mut key) = (FaultyRows::default(), String::new());
        if rows.is_empty() {
            return Ok(listed);
        }
        let table = &self.table;
        table.scan(&vec![true; table.columns.len()], &mut Faults::default(), |batch, _| {
            let is_listed = |row: &usize| rows.binary_search(&(batch.first + *row as u64)).is_ok();
            for row in (0..batch.rows).filter(is_listed) {
                let mut read = |columns: &KeyColumns| {
                    columns.read(batch, row, &mut key);
                    format!("'{}'", shown(&key))
                };
                let keys: Vec<String> = self.keys.iter().map(&mut read).collect();
                listed.add(|| format!("{} {}", table.place(batch, row), keys.join(" -> ")));
            }
            Ok(())
        })?;
        Ok(listed)
    }
}

/// Returns true for a node; the row of another one is added to `unknown`.
fn is_known(v: NodeId, row: usize, unknown: &mut Vec<u64>) -> bool {
    if v == NONE {
        unknown.push(row as u64);
    }
    v != NONE
}

/// Adds values to an ascending list without repetitions, and returns the number of different ones.
fn merge<T: Ord + Copy>(list: &mut Vec<T>, mut values: Vec<T>) -> u64 {
    values.sort_unstable();
    values.dedup();
    let count = values.len() as u64;
    list.append(&mut values);
    list.sort_unstable();
    list.dedup();
    count
}

/// Numbers of the node types of the source and the destination.
///
/// # Errors
/// The dataset does not have them.
pub(super) fn ends(data: &TypedDataset, edges: &EdgeData) -> Result<[usize; 2]> {
    let number = |name: &String| {
        let found = data.nodes.iter().position(|nodes| nodes.name == *name);
        found.ok_or_else(|| Error::invalid(format!("edges '{}': unknown nodes '{name}'", edges.edge_type)))
    };
    Ok([number(&edges.edge_type.source)?, number(&edges.edge_type.destination)?])
}

/// Pairs of a destination and a source that have an edge, ascending. O(edges of these
/// destinations).
fn having(edges: &EdgeData, mut pairs: Vec<[NodeId; 2]>) -> Vec<[NodeId; 2]> {
    pairs.sort_unstable();
    pairs.dedup();
    let mut found = Vec::new();
    for of_row in pairs.chunk_by(|a, b| a[0] == b[0]) {
        let v = of_row[0][0];
        // [`NONE`] is no destination.
        if (v as usize) + 1 < edges.indptr.len() {
            let sources = edges.in_neighbors(v).iter();
            found.extend(sources.map(|&u| [v, u]).filter(|pair| of_row.binary_search(pair).is_ok()));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}
