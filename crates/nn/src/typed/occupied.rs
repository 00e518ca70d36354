//! Relations whose edges end in few of a block's destinations, restricted to these.
//!
//! # Algorithm
//!
//! A graph of many relations has few edges of each, but a block has a row for every destination.
//! If at least half of the destinations have no edge of a relation, their rows are left out: the
//! others are gathered, aggregated and multiplied, and written back. A row of a product does not
//! depend on the others, so outputs and gradients of inputs keep their bits. The gradient of a
//! weight sums fewer rows.
//!
//! # Source
//!
//! None: compaction is common knowledge.
//!
//! # Cost
//!
//! O(D + E) per relation for the lists, and O(A F O) for the products of `A` occupied destinations.
//!
//! # Memory
//!
//! 12 bytes an edge, 4 a source and 8 an occupied destination of such a relation.

use graphmill_core::{Block, NodeId, memory};
use rayon::prelude::*;

use crate::{Matrix, Pass, View, ViewMut, backend::ops::Gather};

/// Rows of a result that a task writes.
const ROWS_OF_TASK: usize = 256;

/// Destinations with edges of a relation, and its edges with these alone.
#[derive(Clone, Debug, Default)]
pub(super) struct Occupied {
    /// Destinations with edges, ascending; empty if the relation is not restricted.
    rows: Vec<NodeId>,
    /// The edges; its destinations are numbers in `rows`.
    pub(super) block: Block,
}

impl Occupied {
    /// Number of destinations of a block in host memory to which a relation may be restricted;
    /// `None` if more than half of them have edges.
    pub(super) fn count(block: &Block) -> Option<usize> {
        if block.drawn_on_device().is_some() || block.dst_ids.is_some() {
            return None;
        }
        let count = block.indptr.windows(2).filter(|ends| ends[0] < ends[1]).count();
        (2 * count <= block.num_dst).then_some(count)
    }

    /// Returns true if the relation is restricted.
    pub(super) fn is_restricted(&self) -> bool {
        !self.rows.is_empty()
    }

    /// Does not restrict the relation.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
    }

    /// Restricts a relation. `numbers` is scratch memory.
    pub(super) fn fill(&mut self, block: &Block, numbers: &mut Vec<u32>) {
        let Self { rows, block: to } = self;
        rows.clear();
        to.clear();
        numbers.clear();
        memory::demand(numbers, block.num_dst);
        memory::demand_push(&mut to.indptr, 0);
        for (v, ends) in (0..).zip(block.indptr.windows(2)) {
            numbers.push(rows.len() as u32);
            if ends[0] < ends[1] {
                memory::demand_push(rows, v);
                memory::demand_push(&mut to.indptr, ends[1]);
            }
        }
        (to.num_dst, to.num_src, to.grad_src) = (rows.len(), block.num_src, block.grad_src);
        memory::demand_copy(&mut to.indices, &block.indices);
        memory::demand_copy(&mut to.edge_weight, &block.edge_weight);
        let (transposed, from) = (&mut to.transposed, &block.transposed);
        memory::demand_copy(&mut transposed.indptr, &from.indptr);
        memory::demand_copy(&mut transposed.edge, &from.edge);
        memory::demand_extend(&mut transposed.dst, from.dst.iter().map(|&v| numbers[v as usize]));
    }

    /// Copies the rows of the occupied destinations.
    pub(super) fn gather(&self, pass: &Pass, from: View, to: &mut Matrix) {
        to.resize(self.rows.len(), from.num_cols());
        Gather { src: from, ids: &self.rows, dst: to.view_mut() }.run(pass.backend);
    }

    /// Overwrites the rows of the occupied destinations.
    pub(super) fn scatter(&self, from: View, to: ViewMut) {
        let cols = from.num_cols().max(1);
        let from = from.host();
        let tasks = to.host().par_chunks_mut(ROWS_OF_TASK * cols).enumerate();
        tasks.for_each(|(task, to)| {
            let first = task * ROWS_OF_TASK;
            let last = first + to.len() / cols;
            let [start, end] = [first, last].map(|at| self.rows.partition_point(|&v| (v as usize) < at));
            let rows = from[start * cols..].chunks_exact(cols);
            for (&v, row) in self.rows[start..end].iter().zip(rows) {
                to[(v as usize - first) * cols..][..cols].copy_from_slice(row);
            }
        });
    }
}
