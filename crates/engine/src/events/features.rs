//! Features of the events and of the nodes of a stream, in memory or in the file of the dataset.

use std::ops::Range;

use graphmill_core::{Buffer, Matrix, NodeId, maps};
use graphmill_data::{
    external::SortedArray,
    typed::{EdgeData, FeatureTable, Seeds, TableData, Task, TypedDataset},
};

use super::{
    destinations::{self, Destinations},
    files::{RowFiles, settle},
    opening::{Column, Opening, RUN, SORTS, divided, joined, of_time, share, to_time},
    rows::Rows,
};
use crate::{Error, Result};

/// Features of each event, `E x K`, as 32-bit floats.
pub(super) struct EventFeatures {
    width: usize,
    place: Place,
}

/// Place of the rows.
enum Place {
    /// In memory, in the order of the events.
    Memory(Matrix),
    /// In the dataset's table, and the row there of each event.
    File { table: FeatureTable, rows: Buffer<u32> },
}

impl EventFeatures {
    /// Features of the rows of a task, those of their edges, in the file. Of edges with the same
    /// ends and time, the first is that of the first such row, and so on. Destinations begin at
    /// `first`.
    ///
    /// # Errors
    /// A row is not an edge, the features are damaged, or memory or disk space is exhausted.
    pub(super) fn new(
        data: &TypedDataset,
        task: &Task,
        edges: &EdgeData,
        (rows, first): (&Rows, NodeId),
        opening: Option<&Opening>,
        notes: &mut Vec<String>,
    ) -> Result<Self> {
        let count = rows.row.len();
        let Some(table) = &edges.features else { return Ok(Self::none(count)) };
        let edge_of = match (&task.seeds, &edges.time) {
            (Some(Seeds::Pairs(_)), Some(edge_times)) => {
                edges_of(data, task, (edges, edge_times), (rows, first), opening)?
            }
            (None, _) => rows.row.clone(),
            _ => {
                notes.push(format!("the features of {} are not read: its edges have no times", task.on));
                return Ok(Self::none(count));
            }
        };
        table.verify()?;
        Ok(Self { width: table.width, place: Place::File { table: table.clone(), rows: edge_of } })
    }

    /// Edges of the graph among which those of the rows of a task are sought; 0 if the rows are
    /// edges, or have no features.
    pub(super) fn sought(task: &Task, edges: &EdgeData) -> usize {
        let is_sought = task.seeds.is_some() && edges.features.is_some() && edges.time.is_some();
        if is_sought { edges.num_edges() } else { 0 }
    }

    /// No features of `count` events.
    fn none(count: usize) -> Self {
        Self { width: 0, place: Place::Memory(Matrix::zeros(count, 0)) }
    }

    /// Number of features of an event, `K`.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// The same features in memory. O(E K) if they are in the file.
    pub(super) fn in_memory(self) -> Self {
        let Place::File { rows, .. } = &self.place else { return self };
        let mut all = Matrix::default();
        self.copy(0..rows.len(), &mut all);
        self.release();
        Self { width: self.width, place: Place::Memory(all) }
    }

    /// The same features in the file, with the row of each event in `files`.
    ///
    /// # Errors
    /// The disk has too little space.
    pub(super) fn in_file(self, files: &RowFiles) -> Result<Self> {
        let Place::File { table, rows } = self.place else { return Ok(self) };
        Ok(Self { place: Place::File { table, rows: settle(rows, Some(files))? }, ..self })
    }

    /// Takes rows of the file out of the memory of the process, until they are used again.
    pub(super) fn release(&self) {
        if let Place::File { table, rows } = &self.place {
            release(table);
            maps::release(rows);
        }
    }

    /// The features with those of further events behind them, whose numbers are `added`; in memory.
    pub(super) fn with(&self, added: Range<usize>, new: &[f32]) -> Self {
        let mut all = Matrix::default();
        self.copy(0..added.start, &mut all);
        let joined = [all.view().host(), new].concat();
        Self { width: self.width, place: Place::Memory(Matrix::from_slice(added.end, self.width, &joined)) }
    }

    /// Copies the features of some events to `out`, `N x K`.
    pub(super) fn copy(&self, events: impl ExactSizeIterator<Item = usize>, out: &mut Matrix) {
        let width = self.width;
        out.resize(events.len(), width);
        let to = out.view_mut().host().chunks_exact_mut(width.max(1)).zip(events);
        match &self.place {
            Place::Memory(all) => {
                let all = all.view().host();
                to.for_each(|(to, e)| to.copy_from_slice(&all[e * width..][..width]));
            }
            Place::File { table, rows } => {
                let mut row = vec![0.0; width];
                to.for_each(|(to, e)| copy_row(table, rows[e] as usize, &mut row, to));
            }
        }
    }
}

/// Edge of each row of a task on pairs: both are sorted by time and ends, and joined.
///
/// # Errors
/// A row is not an edge, or memory or disk space is exhausted.
fn edges_of(
    data: &TypedDataset,
    task: &Task,
    (edges, times): (&EdgeData, &[i64]),
    (rows, first): (&Rows, NodeId),
    opening: Option<&Opening>,
) -> Result<Buffer<u32>> {
    let (count, mut found) = (rows.row.len(), Destinations::new(&edges.indptr));
    let of_edges = (0..edges.num_edges()).map(move |e| {
        if e % RUN == 0 {
            destinations::release(edges);
            maps::release(times);
        }
        [of_time(times[e]), joined(edges.indices[e], found.of(e)), e as u64]
    });
    let of_rows = (0..count).map(move |i| {
        if i % RUN == 0 {
            rows.release();
        }
        let ends = joined(rows.source[i], rows.destination[i] - first);
        [of_time(rows.time[i]), ends, joined(rows.row[i], i as u32)]
    });
    let mut stored = SortedArray::new(of_edges, edges.num_edges(), share(opening, SORTS))?;
    let mut sorted = SortedArray::new(of_rows, count, share(opening, SORTS))?;
    let mut edge_of = Column::new(opening.map(|opening| &*opening.dir), count)?;
    (0..count).for_each(|_| edge_of.push(0));
    let mut written = 0;
    while let Some([time, ends, numbers]) = sorted.take_next()? {
        let [row, i] = divided(numbers);
        let edge = loop {
            match stored.take_next()? {
                Some([of_edge, other, e]) if (of_edge, other) == (time, ends) => break e as u32,
                Some([of_edge, other, _]) if (of_edge, other) < (time, ends) => {}
                _ => {
                    let [source, destination] = divided(ends);
                    let message = format!(
                        "row {row} of task '{}' ({source} to {destination} at time {}) is not an edge of {}, \
                         whose features it needs; list the edges of the graph as rows, or leave the features \
                         out",
                        task.name,
                        to_time(time),
                        task.on
                    );
                    return Err(Error::dataset(&data.name, message));
                }
            }
        };
        // rows of one time are neighbours, so these writes are near each other
        edge_of.values_mut()[i as usize] = edge;
        written += 1;
        if written % RUN == 0 {
            maps::release(edge_of.values_mut());
        }
    }
    edge_of.finish()
}

/// Copies row `i` of a table to `to`, through `row`, which is as wide.
fn copy_row(table: &FeatureTable, i: usize, row: &mut [f64], to: &mut [f32]) {
    table.copy_row(i, row);
    to.iter_mut().zip(row).for_each(|(to, x)| *to = *x as f32);
}

/// Takes the rows of a table in a file out of the memory of the process.
fn release(table: &FeatureTable) {
    match &table.data {
        TableData::Dense(values) => maps::release(values.bytes()),
        TableData::Sparse(rows) => {
            maps::release(rows.indptr());
            maps::release(rows.indices());
            maps::release(rows.values());
        }
    }
}

/// Features of the nodes of a stream, `V x F`, as 32-bit floats.
pub(super) struct NodeFeatures {
    width: usize,
    place: NodePlace,
}

/// Place of the rows of nodes.
enum NodePlace {
    Memory(Box<Matrix>),
    /// The tables of the types, each with the number of its first node; a type without features has
    /// zeros.
    File(Vec<(NodeId, Option<FeatureTable>)>),
}

impl NodeFeatures {
    /// Features of the nodes of both types, in the file, if they have the same width; zeros for a
    /// type without features.
    ///
    /// # Errors
    /// The features are damaged.
    pub(super) fn new(
        data: &TypedDataset,
        ends: [usize; 2],
        notes: &mut Vec<String>,
    ) -> Result<Option<Self>> {
        let types = if ends[0] == ends[1] { &ends[..1] } else { &ends[..] };
        let of_types = || types.iter().map(|&t| &data.nodes[t]);
        let widths: Vec<usize> =
            of_types().flat_map(|node| &node.features).map(|table| table.width).collect();
        let Some(&width) = widths.first() else { return Ok(None) };
        if widths.iter().any(|&other| other != width) {
            notes.push(format!(
                "node features of the widths {} and {} are not read; give both types the same width",
                widths[0], widths[1]
            ));
            return Ok(None);
        }
        let (mut tables, mut first) = (Vec::new(), 0);
        for node in of_types() {
            node.features.as_ref().map_or(Ok(()), FeatureTable::verify)?;
            tables.push((first, node.features.clone()));
            first += node.count as NodeId;
        }
        Ok(Some(Self { width, place: NodePlace::File(tables) }))
    }

    /// Number of features of a node, `F`.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// The same features of all `count` nodes in memory. O(V F) if they are in the file.
    pub(super) fn in_memory(self, count: usize) -> Self {
        let mut all = Matrix::default();
        self.copy(0..count as NodeId, &mut all);
        self.release();
        Self { place: NodePlace::Memory(Box::new(all)), ..self }
    }

    /// Copies the features of some nodes to `out`, `N x F`.
    pub(super) fn copy(&self, nodes: impl ExactSizeIterator<Item = NodeId>, out: &mut Matrix) {
        let width = self.width;
        out.resize(nodes.len(), width);
        let to = out.view_mut().host().chunks_exact_mut(width.max(1)).zip(nodes);
        match &self.place {
            NodePlace::Memory(all) => {
                let all = all.view().host();
                to.for_each(|(to, v)| to.copy_from_slice(&all[v as usize * width..][..width]));
            }
            NodePlace::File(tables) => {
                let mut row = vec![0.0; width];
                for (to, v) in to {
                    match &tables[tables.partition_point(|(first, _)| *first <= v) - 1] {
                        (first, Some(table)) => copy_row(table, (v - first) as usize, &mut row, to),
                        (_, None) => to.fill(0.0),
                    }
                }
            }
        }
    }

    /// Takes rows of the file out of the memory of the process, until they are used again.
    pub(super) fn release(&self) {
        if let NodePlace::File(tables) = &self.place {
            tables.iter().filter_map(|(_, table)| table.as_ref()).for_each(release);
        }
    }
}
