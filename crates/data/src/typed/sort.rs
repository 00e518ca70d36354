//! External sort of an edge type with its columns: by destination, in the order of the input within
//! a row.
//!
//! # Algorithm
//!
//! Edges are collected as records of fixed length: destination, source, weight, time, feature row.
//! While they exceed a quarter of the memory budget, records move to a file: they are appended to
//! one of 256 buckets by range of destinations, in the order of the input. At the end each bucket
//! is read, ordered as in memory ([`super::csc`]), and its columns are appended to the results. A
//! bucket that exceeds the budget is divided again; a single destination needs no sort.
//!
//! # Source
//!
//! Aggarwal and Vitter, *The input/output complexity of sorting and related problems*,
//! Communications of the ACM 31 (9), 1988: distribution sort.
//!
//! # Cost
//!
//! O(V + E): every record is written once and read once, and again for each division.
//!
//! # Memory
//!
//! The budget of the scratch.

mod buckets;
mod output;

use graphmill_core::{Buffer, Error, NodeId, Result, progress::Unit};

use self::{
    buckets::Buckets,
    output::{Layout, Output},
};
pub use output::EdgeColumns;
pub(crate) use output::RowRules;

use super::{FeatureTable, Values};
use crate::{
    external::{Rows, Scratch},
    npy::Element,
};

/// Edges of an edge type in any number and any order, which are sorted within the memory budget of
/// a scratch. Feature values have the type `F`.
///
/// ```
/// use graphmill_data::{external::Scratch, typed::{EdgeColumns, EdgeSorter, TypedBuilder}};
///
/// // In memory; `typed::create` passes a scratch with a directory and a budget.
/// let scratch = Scratch::in_memory();
/// let columns = EdgeColumns { time: true, ..EdgeColumns::default() };
/// let mut edges = EdgeSorter::<f32>::new(&scratch, "buys", [3, 2], columns)?;
/// edges.extend(&[0, 1], &[1, 0], &[], &[20, 30], &[])?; // sources, destinations, weights, times, features
/// edges.extend(&[2], &[1], &[], &[10], &[])?;
///
/// let mut builder = TypedBuilder::new("shop");
/// builder.node_type("user", 3);
/// builder.node_type("item", 2);
/// builder.edge_type("user", "buys", "item").sorted(edges.finish()?);
/// let data = builder.build()?;
/// assert_eq!(data.edges[0].in_neighbors(1), [0, 2]);
/// assert_eq!(data.edges[0].time.as_deref(), Some(&[30, 20, 10][..]));
/// # Ok::<(), graphmill_core::Error>(())
/// ```
#[derive(Debug)]
pub struct EdgeSorter<F = f32> {
    scratch: Scratch,
    name: String,
    /// Numbers of sources and of destinations.
    nodes: [usize; 2],
    layout: Layout,
    /// Records in memory, in the order of the input.
    records: Vec<u8>,
    buckets: Option<Buckets>,
    edges: u64,
    of: std::marker::PhantomData<F>,
}

/// Sorted edges with their columns, in CSC order.
#[derive(Clone, Debug)]
pub struct SortedEdges {
    /// Start of each destination's row, and the number of edges.
    pub indptr: Buffer<u64>,
    /// Source of each edge.
    pub indices: Buffer<NodeId>,
    /// Weights.
    pub weights: Option<Buffer<f32>>,
    /// Times.
    pub time: Option<Buffer<i64>>,
    /// Feature rows.
    pub features: Option<FeatureTable>,
}

impl<F: Element> EdgeSorter<F>
where
    Values: From<Buffer<F>>,
{
    /// Creates an empty collection of edges between `nodes[0]` sources and `nodes[1]` destinations.
    /// `name` is unique within the scratch, and a part of file names.
    ///
    /// # Errors
    /// A feature row is too long.
    pub fn new(scratch: &Scratch, name: &str, nodes: [usize; 2], columns: EdgeColumns) -> Result<Self> {
        if columns.features > 1 << 20 {
            let message =
                format!("{} feature columns of edges; at most {} are sorted", columns.features, 1 << 20);
            return Err(Error::invalid(message));
        }
        if let Some(count) = nodes.iter().find(|count| **count > NodeId::MAX as usize) {
            return Err(Error::invalid(format!(
                "{count} nodes: node ids are 32-bit, at most {} nodes fit",
                NodeId::MAX
            )));
        }
        Ok(Self {
            scratch: scratch.clone(),
            name: super::names::escape(name),
            nodes,
            layout: Layout::new::<F>(columns),
            records: Vec::new(),
            buckets: None,
            edges: 0,
            of: std::marker::PhantomData,
        })
    }

    /// Number of edges added.
    pub fn len(&self) -> u64 {
        self.edges
    }

    /// Returns true if no edge was added.
    pub fn is_empty(&self) -> bool {
        self.edges == 0
    }

    /// Adds an edge from each `sources[i]` to `destinations[i]`, with the columns of the
    /// collection: a weight, a time and a feature row per edge, or none.
    ///
    /// # Errors
    /// A column has another length, an id does not exist, writing to the scratch directory fails,
    /// or the work is cancelled.
    pub fn extend(
        &mut self,
        sources: &[NodeId],
        destinations: &[NodeId],
        weights: &[f32],
        time: &[i64],
        features: &[F],
    ) -> Result<()> {
        let count = sources.len();
        let EdgeColumns { weights: weighted, time: timed, features: width } = self.layout.columns;
        let lengths = [
            ("destinations", destinations.len(), 1),
            ("weights", weights.len(), weighted.into()),
            ("times", time.len(), timed.into()),
            ("feature values", features.len(), width),
        ];
        for (what, found, each) in lengths {
            if Some(found) != count.checked_mul(each) {
                return Err(Error::invalid(format!("{found} {what} for {count} edges x {each}")));
            }
        }
        for (ids, count, end) in
            [(sources, self.nodes[0], "source"), (destinations, self.nodes[1], "destination")]
        {
            if let Some(i) = ids.iter().position(|&id| id as usize >= count) {
                let (edge, id) = (self.edges + i as u64, ids[i]);
                let message = format!("edge {edge} has the {end} {id}, but there are {count} such nodes");
                return Err(Error::invalid(message));
            }
        }
        self.scratch.check()?;
        for i in 0..count {
            self.records.extend_from_slice(&destinations[i].to_ne_bytes());
            self.records.extend_from_slice(&sources[i].to_ne_bytes());
            if weighted {
                // Adding 0 turns -0 into 0.
                self.records.extend_from_slice(&(weights[i] + 0.0).to_ne_bytes());
            }
            if timed {
                self.records.extend_from_slice(&time[i].to_ne_bytes());
            }
            self.records.extend_from_slice(bytemuck::cast_slice(&features[i * width..(i + 1) * width]));
        }
        self.edges += count as u64;
        if self.records.len() as u64 > self.most_in_memory() { self.spill() } else { Ok(()) }
    }

    /// Bytes of records that are kept in memory: ordering them takes as much again, and their
    /// columns too.
    fn most_in_memory(&self) -> u64 {
        if self.buckets.is_some() { 1 << 22 } else { self.scratch.memory() / 4 }
    }

    /// Moves the records in memory to buckets, if the scratch has a directory.
    fn spill(&mut self) -> Result<()> {
        if self.buckets.is_none() {
            let Some(path) = self.scratch.file(&format!("{}.bin", self.name)) else { return Ok(()) };
            let all = 0..self.nodes[1] as u64;
            self.buckets = Some(Buckets::create(path, all, self.layout.length)?);
        }
        if let Some(buckets) = &mut self.buckets {
            buckets.extend(&self.records)?;
            self.records.clear();
            self.records.shrink_to(1 << 23);
        }
        Ok(())
    }

    /// Sorts the edges. The columns are in memory, or mapped from files of the scratch if they are
    /// large.
    ///
    /// # Errors
    /// A feature value is not finite, memory is exhausted, or reading or writing fails.
    pub fn finish(self) -> Result<SortedEdges> {
        self.finish_by(RowRules::default()).map(|(edges, _)| edges)
    }

    /// Sorts the edges as [`EdgeSorter::finish`] does, and treats rows by `rules`. Returns also the
    /// number of edges beyond the first between the same nodes, if it is counted.
    ///
    /// # Errors
    /// As for [`EdgeSorter::finish`].
    pub(crate) fn finish_by(mut self, rules: RowRules) -> Result<(SortedEdges, u64)> {
        let EdgeColumns { weights, time, features } = self.layout.columns;
        let name = |column: &str| format!("{}-{column}", self.name);
        let mut output = Output {
            layout: self.layout,
            rules,
            indptr: self.scratch.column(&name("indptr"))?,
            indices: self.scratch.column(&name("indices"))?,
            weights: weights.then(|| self.scratch.column(&name("weights"))).transpose()?,
            time: time.then(|| self.scratch.column(&name("time"))).transpose()?,
            features: (features > 0).then(|| self.scratch.rows(&name("features"), features)).transpose()?,
            edges: 0,
            parallel: 0,
        };
        output.indptr.extend(&[0])?;
        let all = 0..self.nodes[1] as u64;
        if self.buckets.is_some() {
            self.spill()?;
        }
        match self.buckets.take() {
            None => output.add(&std::mem::take(&mut self.records), all)?,
            Some(buckets) => {
                let most = (self.scratch.memory() / 4).max(1 << 20);
                self.scratch.stage("sorting edges", Some(self.edges), Unit::Edges);
                buckets.drain(&self.scratch, most, 0, &mut output)?;
            }
        }
        let rows = output.features.map(Rows::finish).transpose()?;
        let sorted = SortedEdges {
            indptr: output.indptr.finish()?,
            indices: output.indices.finish()?,
            weights: output.weights.map(Rows::finish).transpose()?,
            time: output.time.map(Rows::finish).transpose()?,
            features: rows.map(|rows| FeatureTable::dense(features, rows)),
        };
        Ok((sorted, output.parallel))
    }
}

#[cfg(test)]
mod tests;
