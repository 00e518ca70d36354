//! Application of an order to a dataset of several types, and selection of some of its nodes.
//!
//! # Algorithm
//!
//! An order of the nodes of each type, by their old ids. The rank of every node (its new id) is
//! computed, then the edges of each relation in their new order, and every column is gathered by
//! these orders. An order that lists some nodes selects them, with the edges among them and the
//! rows of tasks on both.
//!
//! # Source
//!
//! Min et al., *Graph neural network training with data tiering*, 2021, Algorithm 2, for each type
//! and relation.
//!
//! # Cost
//!
//! O(V + E log d) for rows of d in-neighbours, and O(V F) for the features.
//!
//! # Memory
//!
//! 4 bytes per node of all types; 8 bytes per edge of one relation at a time, or of all relations
//! whose edges are rows of tasks. Columns beyond the budget of the scratch go to its directory.
//!
//! # Deviations
//!
//! The paper keeps the order within rows; here rows ascend by source, and parallel edges keep their
//! order.

mod edges;
mod tasks;
#[cfg(test)]
mod tests;

use std::{ops::Range, path::Path, time::Instant};

use graphmill_core::{Buffer, Error, NodeId, Result, SparseRows, node_order::inverse, progress::Unit};

use super::{
    Seconds,
    relabel::within,
    rows::{gather_by, indptr, ragged},
};
use crate::{
    dataset::{Work, work},
    external::{Rows, Scratch},
    npy::Element,
    typed::{FeatureTable, NodeData, Schema, TableData, TypedDataset, Values, each_buffer},
};

/// Rank of a node that an order does not list.
const NONE: NodeId = NodeId::MAX;

/// Writes the dataset directory `dst`: `dataset` in the order that `order` computes, which lists
/// the nodes of all types by global ids. The types stay where they are in the id space: the order
/// applies within each type, and within each named graph. `what` describes the order with
/// everything it depends on besides the dataset.
///
/// Interrupted work resumes when it is started again.
///
/// # Errors
/// Errors of `order`; it is not a permutation of the nodes; the graph has no nodes; `dst` is not
/// empty; the disk is too small.
pub fn reorder_types_to(
    dataset: &TypedDataset,
    dst: &Path,
    what: &str,
    order: impl FnOnce(&TypedDataset) -> Result<Vec<NodeId>>,
    work: Work,
) -> Result<(TypedDataset, Seconds)> {
    if dataset.num_nodes() == 0 {
        return Err(Error::invalid(format!("{}: there are no nodes to reorder", dataset.name)));
    }
    let began = Instant::now();
    let mut seconds = Seconds::default();
    let replace = work.replace;
    // A dataset that was not read from a directory is known to this process only.
    let identity = dataset.checksum.clone().unwrap_or_else(|| format!("process {}", std::process::id()));
    let identity = || Ok(format!("{} reorder {identity} by {what}", env!("CARGO_PKG_VERSION")));
    let make = |scratch: &Scratch| {
        let order = order(dataset)?;
        seconds.order = began.elapsed().as_secs_f64();
        let orders = orders_by_type(dataset, &order)?;
        rearrange(dataset, Orders { by_type: &orders, is_selection: false }, scratch, &mut seconds)
    };
    let made = work::run_saved(work, dst, ".reordering", identity, make, |data, scratch| {
        data.save_by_way_of(scratch, dst, replace)
    })?;
    seconds.finish = began.elapsed().as_secs_f64() - seconds.sum();
    Ok((made, seconds))
}

/// Order of the nodes of each type by local ids, from an order of all nodes by global ids.
///
/// # Errors
/// `order` is not a permutation of the nodes.
fn orders_by_type(dataset: &TypedDataset, order: &[NodeId]) -> Result<Vec<Vec<NodeId>>> {
    let nodes = dataset.num_nodes();
    if order.len() != nodes {
        return Err(Error::invalid(format!("an order of {} nodes, but there are {nodes}", order.len())));
    }
    let schema = dataset.schema()?;
    let offsets: Vec<usize> = schema.offsets().iter().map(|&first| first as usize).collect();
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for (nodes, offset) in dataset.nodes.iter().zip(&offsets) {
        match &nodes.graphs[..] {
            [] => ranges.push(*offset..offset + nodes.count),
            graphs => ranges.extend(graphs.iter().map(|graph| graph.nodes.clone())),
        }
    }
    let whole = within(order, &ranges)?;
    let of_type = |ends: &[usize]| whole[ends[0]..ends[1]].iter().map(|&v| v - ends[0] as NodeId).collect();
    Ok(offsets.windows(2).map(of_type).collect())
}

/// Nodes of each type by their old ids, in their new order.
#[derive(Clone, Copy)]
pub(crate) struct Orders<'o> {
    pub(crate) by_type: &'o [Vec<NodeId>],
    /// True if the orders select nodes, false if they list all.
    pub(crate) is_selection: bool,
}

/// Dataset whose node `i` of type `t` is node `orders.by_type[t][i]` of `data`, with the edges
/// among these nodes and the rows of tasks on them. A selection has no given negatives, original
/// ids and names of graphs.
///
/// # Errors
/// An order lists a node twice or one that does not exist, an allocation fails, or writing fails.
pub(crate) fn rearrange(
    data: &TypedDataset,
    Orders { by_type: orders, is_selection }: Orders,
    scratch: &Scratch,
    seconds: &mut Seconds,
) -> Result<TypedDataset> {
    let mut began = Instant::now();
    let mut lap = || std::mem::replace(&mut began, Instant::now()).elapsed().as_secs_f64();
    let ranks = data.nodes.iter().zip(orders).map(|(nodes, order)| rank(order, nodes.count));
    let arrangement = Arrangement {
        data,
        schema: data.schema()?,
        orders,
        ranks: ranks.collect::<Result<_>>()?,
        is_whole: !is_selection,
        scratch,
    };
    let (edges, positions) = arrangement.edges()?;
    seconds.topology = lap();
    let nodes = (0..data.nodes.len()).map(|t| arrangement.nodes(t)).collect::<Result<_>>()?;
    seconds.features = lap();
    let tasks = data.tasks.iter().map(|task| arrangement.task(task, &positions)).collect::<Result<_>>()?;
    seconds.labels = lap();
    let (name, preprocessing) = (data.name.clone(), data.preprocessing.clone());
    Ok(TypedDataset { name, nodes, edges, tasks, preprocessing, ..TypedDataset::default() })
}

/// New id of each of `count` nodes; [`NONE`] for those that `order` does not list.
fn rank(order: &[NodeId], count: usize) -> Result<Vec<NodeId>> {
    if order.len() == count {
        return inverse(order);
    }
    let mut rank = vec![NONE; count];
    for (i, &v) in order.iter().enumerate() {
        match rank.get_mut(v as usize) {
            Some(rank) if *rank == NONE => *rank = i as NodeId,
            Some(_) => return Err(Error::invalid(format!("node {v} occurs twice in an order"))),
            None => return Err(Error::invalid(format!("node {v} in an order of {count} nodes"))),
        }
    }
    Ok(rank)
}

/// Orders of the nodes of all types, and the place where their columns are written.
struct Arrangement<'a> {
    data: &'a TypedDataset,
    schema: Schema,
    /// Old id of each new node, by type.
    orders: &'a [Vec<NodeId>],
    /// New id of each old node, by type.
    ranks: Vec<Vec<NodeId>>,
    /// True if the orders list all nodes.
    is_whole: bool,
    scratch: &'a Scratch,
}

impl Arrangement<'_> {
    /// Columns of node type `t`.
    fn nodes(&self, t: usize) -> Result<NodeData> {
        let (nodes, order, scratch) = (&self.data.nodes[t], &self.orders[t], self.scratch);
        scratch.stage("moving the features", None, Unit::Rows);
        let name = |what: &str| format!("nodes-{t}-{what}");
        let rows = RowOrder { len: order.len(), at: &|i| order[i] as usize };
        let original = match &nodes.original_ids {
            Some(ids) => rows.column(ids, scratch.column(&name("original-ids"))?)?,
            None => order.clone().into(),
        };
        Ok(NodeData {
            name: nodes.name.clone(),
            count: order.len(),
            features: rows.features(nodes.features.as_ref(), &name("features"), scratch)?,
            normalization: nodes.normalization.clone(),
            keys: nodes.keys.as_ref().map(|keys| keys.gather(order)).transpose()?,
            time: rows.optional(nodes.time.as_ref(), &name("time"), scratch)?,
            // the ids of a selection are no permutation of the old ones
            original_ids: self.is_whole.then_some(original),
            graphs: if self.is_whole { nodes.graphs.clone() } else { Vec::new() },
        })
    }
}

/// Old rows of a column in their new order.
pub(crate) struct RowOrder<'o> {
    /// Number of rows.
    pub(crate) len: usize,
    /// Old row of each new one.
    pub(crate) at: &'o (dyn Fn(usize) -> usize + Sync),
}

impl RowOrder<'_> {
    /// Rows of `width` values.
    fn rows<T: Element>(&self, data: &[T], width: usize, to: Rows<T>) -> Result<Buffer<T>> {
        gather_by(data, width, self.len, self.at, to)
    }

    /// Single values.
    pub(crate) fn column<T: Element>(&self, data: &[T], to: Rows<T>) -> Result<Buffer<T>> {
        self.rows(data, 1, to)
    }

    /// Single values, if there are any.
    pub(crate) fn optional<T: Element>(
        &self,
        data: Option<&Buffer<T>>,
        name: &str,
        scratch: &Scratch,
    ) -> Result<Option<Buffer<T>>> {
        data.map(|data| self.column(data, scratch.column(name)?)).transpose()
    }

    /// Feature rows, if there are any.
    pub(crate) fn features(
        &self,
        table: Option<&FeatureTable>,
        name: &str,
        scratch: &Scratch,
    ) -> Result<Option<FeatureTable>> {
        let Some(table) = table else { return Ok(None) };
        table.verify()?;
        let width = table.width;
        let data = match &table.data {
            TableData::Dense(values) => TableData::Dense(each_buffer!(values, buffer => {
                Values::from(self.rows(buffer, width, scratch.rows(name, width)?)?)
            })),
            TableData::Sparse(rows) => {
                let order: Vec<NodeId> = (0..self.len).map(|i| (self.at)(i) as NodeId).collect();
                let starts = indptr(rows.indptr(), &order)?;
                let row = |i: usize, columns: &mut [u32], values: &mut [f32]| {
                    let old = rows.row(order[i] as usize);
                    columns.copy_from_slice(old.0);
                    values.copy_from_slice(old.1);
                };
                let columns = scratch.column(&format!("{name}-indices"))?;
                let values = scratch.column(&format!("{name}-values"))?;
                let (columns, values) = ragged(&starts, columns, Some(values), row)?;
                let values = values.unwrap_or_default();
                TableData::Sparse(SparseRows::new(width, starts.into(), columns, values)?)
            }
        };
        Ok(Some(FeatureTable { width, names: table.names.clone(), data }))
    }
}
