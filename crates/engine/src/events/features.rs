//! Features of the events of a stream, in memory or in the file of the dataset.

use std::ops::Range;

use graphmill_core::{Matrix, NodeId, maps};
use graphmill_data::typed::{EdgeData, FeatureTable, Seeds, TableData, Task, TypedDataset};

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
    File { table: FeatureTable, rows: Vec<u32> },
}

impl EventFeatures {
    /// Features of the rows of a task (number in the task, and in its part), those of their edges,
    /// in the file. Of edges with the same ends and time, the first is that of the first such row,
    /// and so on.
    ///
    /// # Errors
    /// A row is not an edge, or the features are damaged.
    pub(super) fn new(
        data: &TypedDataset,
        task: &Task,
        edges: &EdgeData,
        rows: &[[usize; 2]],
        notes: &mut Vec<String>,
    ) -> Result<Self> {
        let Some(table) = &edges.features else { return Ok(Self::none(rows.len())) };
        let edge_of = match (&task.seeds, &edges.time, &task.time) {
            (Some(Seeds::Pairs(pairs)), Some(edge_times), Some(row_times)) => {
                edges_of(data, task, edges, (rows, &pairs[..]), [&edge_times[..], &row_times[..]])?
            }
            (None, ..) => rows.iter().map(|&[row, _]| row as u32).collect(),
            _ => {
                notes.push(format!("the features of {} are not read: its edges have no times", task.on));
                return Ok(Self::none(rows.len()));
            }
        };
        table.verify()?;
        Ok(Self { width: table.width, place: Place::File { table: table.clone(), rows: edge_of } })
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
        Self { width: self.width, place: Place::Memory(all) }
    }

    /// The features with those of further events behind them, whose numbers are `added`; in memory.
    pub(super) fn with(&self, added: Range<usize>, new: &[f32]) -> Self {
        let mut all = Matrix::default();
        self.copy(0..added.start, &mut all);
        let joined = [all.view().host(), new].concat();
        Self { width: self.width, place: Place::Memory(Matrix::from_slice(added.end, self.width, &joined)) }
    }

    /// Copies the features of some events to `out`, `N x K`. Rows of the file leave the memory of
    /// the process afterwards.
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
                if let TableData::Dense(values) = &table.data {
                    maps::release(values.bytes());
                }
            }
        }
    }
}

/// Edge of each row of a task on pairs.
///
/// # Errors
/// A row is not an edge.
fn edges_of(
    data: &TypedDataset,
    task: &Task,
    edges: &EdgeData,
    (rows, pairs): (&[[usize; 2]], &[NodeId]),
    [edge_times, row_times]: [&[i64]; 2],
) -> Result<Vec<u32>> {
    let destinations = edges.destinations();
    let mut stored: Vec<u32> = (0..edges.num_edges() as u32).collect();
    let of_edge = |e: usize| (edge_times[e], edges.indices[e], destinations[e]);
    stored.sort_by_key(|&e| of_edge(e as usize));
    let of_row = |row: usize| (row_times[row], pairs[2 * row], pairs[2 * row + 1]);
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|&i| (of_row(rows[i][0]), rows[i][0]));
    let (mut edge_of, mut at) = (vec![0; rows.len()], 0);
    for i in order {
        let wanted = of_row(rows[i][0]);
        at += stored[at..].partition_point(|&e| of_edge(e as usize) < wanted);
        if at == stored.len() || of_edge(stored[at] as usize) != wanted {
            let message = format!(
                "row {} of task '{}' ({} to {} at time {}) is not an edge of {}, whose features it \
                 needs; list the edges of the graph as rows, or leave the features out",
                rows[i][0], task.name, wanted.1, wanted.2, wanted.0, task.on
            );
            return Err(Error::dataset(&data.name, message));
        }
        edge_of[i] = stored[at];
        at += 1;
    }
    Ok(edge_of)
}

/// Copies row `i` of a table to `to`, through `row`, which is as wide.
fn copy_row(table: &FeatureTable, i: usize, row: &mut [f64], to: &mut [f32]) {
    table.copy_row(i, row);
    to.iter_mut().zip(row).for_each(|(to, x)| *to = *x as f32);
}

/// All `count` rows of a table.
///
/// # Errors
/// The table is damaged.
pub(super) fn select(table: &FeatureTable, count: usize) -> Result<Matrix> {
    table.verify()?;
    let mut out = Matrix::zeros(count, table.width);
    let mut row = vec![0.0; table.width];
    for (i, to) in out.view_mut().host().chunks_exact_mut(table.width.max(1)).enumerate() {
        copy_row(table, i, &mut row, to);
    }
    Ok(out)
}
