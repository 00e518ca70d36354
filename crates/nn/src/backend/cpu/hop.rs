//! Aggregation of some columns and copy of the others: a hop of MixHop's layer, and GraphSAGE
//! with concatenation.

use std::ops::Range;

use super::{
    aggregate::{inverse_degrees, normalized},
    level::{Isa, kernel},
    parallel::{self, Rows},
    scratch,
    sum::{ByEdge, ByPosition, ByRow, Own, Sum, Unit, Weight, ahead, run_of_row},
};
use crate::backend::{
    EdgeWeight,
    ops::{Hop, HopTransposed},
};

/// Sum over edges for the columns from `first` on. The columns before are `src[ids[v]]`, or
/// `src[v]` without ids, in the first `stay` rows, and zeros in the others.
#[derive(Clone, Copy)]
pub(super) struct Columns<'a, W> {
    sum: Sum<'a, W>,
    first: usize,
    ids: Option<&'a [u32]>,
    stay: usize,
}

pub(super) fn hop(op: Hop) {
    let Hop { block, first, weights, src, dst } = op;
    let sum = Sum {
        indptr: &block.indptr,
        indices: &block.indices,
        weight: Unit,
        mean: weights.edge == EdgeWeight::Mean,
        own: Own::of(block, weights.own),
        src: src.host(),
        cols: dst.num_cols(),
        heads: 1,
        beta: 0.0,
    };
    let (columns, out) =
        (Columns { sum, first, ids: block.dst_ids.as_deref(), stay: block.num_dst }, dst.host());
    match weights.edge {
        EdgeWeight::Stored => columns.with(ByEdge(&block.edge_weight)).run(out),
        EdgeWeight::Normalized => {
            let mut scratch = scratch::take(block.num_edges().div_ceil(2));
            columns.with(ByEdge(normalized(block, &mut scratch))).run(out);
        }
        EdgeWeight::One | EdgeWeight::Mean => columns.run(out),
    }
}

pub(super) fn hop_transposed(op: HopTransposed) {
    let HopTransposed { block, first, weights, dst_grad, src_grad } = op;
    let transposed = &block.transposed;
    let position = &transposed.edge;
    let sum = Sum {
        indptr: &transposed.indptr,
        indices: &transposed.dst,
        weight: Unit,
        mean: false,
        own: Own::of(block, weights.own),
        src: dst_grad.host(),
        cols: dst_grad.num_cols(),
        heads: 1,
        beta: 0.0,
    };
    let (columns, out) = (Columns { sum, first, ids: None, stay: block.num_dst }, src_grad.host());
    match weights.edge {
        EdgeWeight::One => columns.run(out),
        EdgeWeight::Stored => columns.with(ByPosition { values: &block.edge_weight, position }).run(out),
        EdgeWeight::Normalized => {
            let mut scratch = scratch::take(block.num_edges().div_ceil(2));
            let values = normalized(block, &mut scratch);
            columns.with(ByPosition { values, position }).run(out);
        }
        EdgeWeight::Mean => {
            let mut scratch = scratch::take(block.num_dst.div_ceil(2));
            columns.with(ByRow(inverse_degrees(block, &mut scratch))).run(out);
        }
    }
}

impl<'a> Columns<'a, Unit> {
    /// The same columns with other coefficients.
    fn with<W>(self, weight: W) -> Columns<'a, W> {
        let Self { sum, first, ids, stay } = self;
        Columns { sum: sum.with(weight), first, ids, stay }
    }
}

impl<W: Weight> Columns<'_, W> {
    /// Fills `out`, in parallel.
    fn run(self, out: &mut [f32]) {
        let cols = self.sum.cols;
        if cols == 0 {
            return;
        }
        let isa = Isa::current();
        parallel::runs(self.sum.indptr, cols, Rows { data: out, width: cols }, |rows, out| {
            hop_rows(isa, &self, rows, out.data);
        });
    }
}

kernel! {
    fn hop_rows[W: Weight](s: S, job: &Columns<'_, W>, rows: Range<usize>, out: &mut [f32]) {
        let cols = job.sum.cols;
        let ahead = ahead(job.sum.src, cols);
        for (v, out) in rows.zip(out.chunks_exact_mut(cols)) {
            let (stays, sums) = out.split_at_mut(job.first);
            if v < job.stay {
                let own = job.ids.map_or(v, |ids| ids[v] as usize);
                stays.copy_from_slice(&job.sum.src[own * cols..][..job.first]);
            } else {
                stays.fill(0.0);
            }
            run_of_row(s, &job.sum, v, 0, job.first, ahead, sums);
        }
    }
}
