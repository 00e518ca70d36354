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
//! # Cost
//!
//! O(V + E): every record is written once and read once, and again for each division.
//!
//! # Memory
//!
//! The budget of the scratch.

use std::{
    fs::{self, File},
    io::{Read, Seek, SeekFrom, Write},
    ops::Range,
    path::PathBuf,
};

use graphmill_core::{Buffer, Error, NodeId, Result, memory, progress::Unit};
use rayon::prelude::*;

use super::{FeatureTable, Values, csc};
use crate::{
    atomic,
    external::{Rows, Scratch},
    npy::Element,
};

/// Buckets of a division.
const BUCKETS: u64 = 256;
/// Bytes of a bucket that are written at a time.
const BLOCK: usize = 1 << 16;
/// Number of destinations whose row starts are written at a time.
const ROWS: usize = 1 << 16;

/// Columns of an [`EdgeSorter`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgeColumns {
    /// True if edges have weights.
    pub weights: bool,
    /// True if edges have times.
    pub time: bool,
    /// Number of feature columns; 0 without features.
    pub features: usize,
}

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

/// Places of the values in a record.
#[derive(Clone, Copy, Debug)]
struct Layout {
    columns: EdgeColumns,
    /// Offset of the weight, of the time, and of the features.
    places: [usize; 3],
    /// Bytes of a record.
    length: usize,
}

impl Layout {
    fn new<F>(columns: EdgeColumns) -> Self {
        let weight = 8;
        let time = weight + if columns.weights { 4 } else { 0 };
        let features = time + if columns.time { 8 } else { 0 };
        let length = features + columns.features * size_of::<F>();
        Self { columns, places: [weight, time, features], length }
    }
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
    /// A column has another length, an id does not exist, writing to the scratch directory fails, or
    /// the work is cancelled.
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
    pub fn finish(mut self) -> Result<SortedEdges> {
        let EdgeColumns { weights, time, features } = self.layout.columns;
        let name = |column: &str| format!("{}-{column}", self.name);
        let mut output = Output {
            layout: self.layout,
            indptr: self.scratch.column(&name("indptr"))?,
            indices: self.scratch.column(&name("indices"))?,
            weights: weights.then(|| self.scratch.column(&name("weights"))).transpose()?,
            time: time.then(|| self.scratch.column(&name("time"))).transpose()?,
            features: (features > 0).then(|| self.scratch.rows(&name("features"), features)).transpose()?,
            edges: 0,
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
        Ok(SortedEdges {
            indptr: output.indptr.finish()?,
            indices: output.indices.finish()?,
            weights: output.weights.map(Rows::finish).transpose()?,
            time: output.time.map(Rows::finish).transpose()?,
            features: rows.map(|rows| FeatureTable::dense(features, rows)),
        })
    }
}

/// Columns of the result, from the first row to the last.
struct Output<F> {
    layout: Layout,
    indptr: Rows<u64>,
    indices: Rows<NodeId>,
    weights: Option<Rows<f32>>,
    time: Option<Rows<i64>>,
    features: Option<Rows<F>>,
    edges: u64,
}

impl<F: Element> Output<F> {
    /// Adds the edges of a range of destinations, from records in the order of the input.
    fn add(&mut self, records: &[u8], range: Range<u64>) -> Result<()> {
        let length = self.layout.length;
        let first = range.start as NodeId;
        let record = |e: u64| &records[e as usize * length..][..length];
        let rows: Vec<NodeId> =
            records.par_chunks_exact(length).map(|record| number::<NodeId>(record, 0) - first).collect();
        let csc::Order { indptr, order } = csc::order(&rows, (range.end - range.start) as usize);
        drop(rows);
        for ends in indptr[1..].chunks(ROWS) {
            let ends: Vec<u64> = ends.iter().map(|end| self.edges + end).collect();
            self.indptr.extend(&ends)?;
        }
        self.edges += order.len() as u64;
        let [weight, time, features] = self.layout.places;
        fn column<'a, T: Element>(
            to: &mut Rows<T>,
            order: &[u64],
            at: usize,
            record: impl Fn(u64) -> &'a [u8] + Sync,
        ) -> Result<()> {
            let values: Vec<T> = order.par_iter().map(|&e| number(record(e), at)).collect();
            to.extend(&values)
        }
        column(&mut self.indices, &order, 4, record)?;
        if let Some(to) = &mut self.weights {
            column(to, &order, weight, record)?;
        }
        if let Some(to) = &mut self.time {
            column(to, &order, time, record)?;
        }
        if let Some(to) = &mut self.features {
            let width = to.columns();
            let mut table: Vec<F> = memory::zeroed(order.len().saturating_mul(width))?;
            table.par_chunks_mut(width).zip(&order).for_each(|(row, &e)| {
                bytemuck::cast_slice_mut(row).copy_from_slice(&record(e)[features..]);
            });
            to.extend(&table)?;
        }
        Ok(())
    }

    /// Adds edges of the last destination that [`Output::add`] was called with.
    fn add_to_last(&mut self, records: &[u8]) -> Result<()> {
        let [weight, time, features] = self.layout.places;
        let each = || records.chunks_exact(self.layout.length);
        self.indices.extend(&each().map(|record| number(record, 4)).collect::<Vec<_>>())?;
        if let Some(to) = &mut self.weights {
            to.extend(&each().map(|record| number(record, weight)).collect::<Vec<_>>())?;
        }
        if let Some(to) = &mut self.time {
            to.extend(&each().map(|record| number(record, time)).collect::<Vec<_>>())?;
        }
        if let Some(to) = &mut self.features {
            let bytes: Vec<u8> = each().flat_map(|record| &record[features..]).copied().collect();
            to.extend(&bytemuck::pod_collect_to_vec::<u8, F>(&bytes))?;
        }
        self.edges += each().len() as u64;
        Ok(())
    }
}

/// Value at a place of a record.
fn number<T: Element>(record: &[u8], at: usize) -> T {
    bytemuck::pod_read_unaligned(&record[at..at + size_of::<T>()])
}

/// Records in a file, by range of destinations and in the order of the input within a range.
#[derive(Debug)]
struct Buckets {
    path: PathBuf,
    file: File,
    /// Bytes written.
    end: u64,
    range: Range<u64>,
    /// Destinations of a bucket.
    width: u64,
    /// Bytes of a record.
    length: usize,
    open: Vec<Vec<u8>>,
    /// Offset and length of the blocks of each bucket.
    blocks: Vec<Vec<(u64, usize)>>,
}

impl Buckets {
    fn create(path: PathBuf, range: Range<u64>, length: usize) -> Result<Self> {
        let file = atomic::create_fresh(&path).map_err(|e| Error::io(&path, "create", e))?;
        let width = (range.end - range.start).div_ceil(BUCKETS).max(1);
        let count = (range.end - range.start).div_ceil(width).max(1) as usize;
        let (open, blocks) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        Ok(Self { path, file, end: 0, range, width, length, open, blocks })
    }

    /// Adds records in order.
    fn extend(&mut self, records: &[u8]) -> Result<()> {
        for record in records.chunks_exact(self.length) {
            let destination: NodeId = number(record, 0);
            let bucket = ((u64::from(destination) - self.range.start) / self.width) as usize;
            self.open[bucket].extend_from_slice(record);
            if self.open[bucket].len() >= BLOCK {
                self.write(bucket)?;
            }
        }
        Ok(())
    }

    /// Writes the records of a bucket that are in memory.
    fn write(&mut self, bucket: usize) -> Result<()> {
        let block = &mut self.open[bucket];
        if !block.is_empty() {
            self.file.write_all(block).map_err(|e| Error::io(&self.path, "write", e))?;
            self.blocks[bucket].push((self.end, block.len()));
            self.end += block.len() as u64;
            block.clear();
        }
        Ok(())
    }

    /// Reads a block into `to`.
    fn read(&mut self, (offset, length): (u64, usize), to: &mut Vec<u8>) -> Result<()> {
        let start = to.len();
        to.resize(start + length, 0);
        let read =
            self.file.seek(SeekFrom::Start(offset)).and_then(|_| self.file.read_exact(&mut to[start..]));
        read.map_err(|e| Error::io(&self.path, "read", e))
    }

    /// Passes all edges to `output`, bucket by bucket, and removes the file.
    fn drain<F: Element>(
        mut self,
        scratch: &Scratch,
        most: u64,
        depth: usize,
        output: &mut Output<F>,
    ) -> Result<()> {
        for bucket in 0..self.open.len() {
            self.write(bucket)?;
        }
        for bucket in 0..self.open.len() {
            scratch.check()?;
            let first = self.range.start + bucket as u64 * self.width;
            let range = first..(first + self.width).min(self.range.end);
            let blocks = std::mem::take(&mut self.blocks[bucket]);
            let bytes: u64 = blocks.iter().map(|&(_, length)| length as u64).sum();
            let mut records = Vec::new();
            if bytes <= most {
                records = memory::reserve(bytes as usize)?;
                blocks.into_iter().try_for_each(|block| self.read(block, &mut records))?;
                output.add(&records, range)?;
            } else if range.end - range.start == 1 {
                for block in blocks {
                    records.clear();
                    self.read(block, &mut records)?;
                    output.add_to_last(&records)?;
                }
                output.indptr.extend(&[output.edges])?;
            } else {
                let path = atomic::suffixed(&self.path, &format!("-{depth}"));
                let mut smaller = Self::create(path, range, self.length)?;
                for block in blocks {
                    records.clear();
                    self.read(block, &mut records)?;
                    smaller.extend(&records)?;
                }
                smaller.drain(scratch, most, depth + 1, output)?;
            }
            scratch.done(output.edges);
        }
        fs::remove_file(&self.path).map_err(|e| Error::io(&self.path, "remove", e))
    }
}

#[cfg(test)]
mod tests;
