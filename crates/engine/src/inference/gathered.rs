//! Rows of a table, gathered to be multiplied.

use std::ops::Range;

use graphmill_core::NodeId;
use graphmill_nn::{Backend, Matrix, View, layer::gather_rows};

/// Rows of a table, dense or sparse as the table is.
#[derive(Default)]
pub(crate) struct Gathered {
    pub(super) dense: Matrix,
    sparse: Matrix,
    /// Rows that were read.
    pub(super) streamed: Matrix,
}

impl Gathered {
    /// `table[ids]`.
    pub(super) fn fill(&mut self, backend: &dyn Backend, table: &Matrix, ids: &[NodeId]) -> View<'_> {
        let room = if table.is_sparse() { &mut self.sparse } else { &mut self.dense };
        gather_rows(backend, table.view(), ids, room);
        room.view()
    }
}

/// The ids as a span, where there are no others between them. Ascending ids, at least one.
pub(super) fn contiguous(ids: &[NodeId]) -> Option<Range<usize>> {
    let span = ids[0] as usize..ids[ids.len() - 1] as usize + 1;
    (span.len() == ids.len()).then_some(span)
}

/// A run of the table's rows, to be multiplied: where they are, or widened or gathered in `room`.
pub(super) fn run_of<'r>(
    backend: &dyn Backend,
    table: &'r Matrix,
    run: Range<usize>,
    room: &'r mut Gathered,
) -> View<'r> {
    if table.is_wide() || table.view().sparse().is_some() {
        return table.rows(run);
    }
    let ids: Vec<NodeId> = run.map(|v| v as NodeId).collect();
    room.fill(backend, table, &ids)
}
