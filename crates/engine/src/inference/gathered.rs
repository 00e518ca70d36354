//! Buffers of gathered rows, the input of dense and sparse products.

use std::ops::Range;

use graphmill_core::NodeId;
use graphmill_nn::{Backend, Matrix, View, layer::gather_rows};

/// Gathered rows of a dense or a sparse table.
#[derive(Default)]
pub(crate) struct Gathered {
    pub(super) dense: Matrix,
    sparse: Matrix,
    /// Rows read from a [`Feature`](graphmill_loader::Feature).
    pub(super) streamed: Matrix,
}

impl Gathered {
    /// Gathers `table[ids]`.
    pub(super) fn fill(&mut self, backend: &dyn Backend, table: &Matrix, ids: &[NodeId]) -> View<'_> {
        let rows = if table.is_sparse() { &mut self.sparse } else { &mut self.dense };
        gather_rows(backend, table.view(), ids, rows);
        rows.view()
    }
}

/// Range of ascending, non-empty `ids`, if they are contiguous.
pub(super) fn contiguous(ids: &[NodeId]) -> Option<Range<usize>> {
    let span = ids[0] as usize..ids[ids.len() - 1] as usize + 1;
    (span.len() == ids.len()).then_some(span)
}

/// Rows `run` of the table as input of a product: in place, or gathered and widened in `scratch`.
pub(super) fn run_of<'r>(
    backend: &dyn Backend,
    table: &'r Matrix,
    run: Range<usize>,
    scratch: &'r mut Gathered,
) -> View<'r> {
    if table.is_wide() || table.view().sparse().is_some() {
        return table.rows(run);
    }
    let ids: Vec<NodeId> = run.map(|v| v as NodeId).collect();
    scratch.fill(backend, table, &ids)
}
