//! Aggregation of some columns and copy of the others: a hop of MixHop's layer.

use std::ops::Range;

use super::{
    level::{Isa, kernel},
    parallel::{self, Rows},
    sum::{ByEdge, ByPosition, Own, Sum, Weight, run_of_row},
};
use crate::backend::{
    OwnWeight,
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
    let Hop { block, first, src, dst } = op;
    let weight = ByEdge(&block.edge_weight);
    let sum = Sum::weighted(&block.indptr, &block.indices, weight, src.host(), dst.num_cols(), 0.0);
    let sum = Sum { own: Own::of(block, OwnWeight::Stored), ..sum };
    Columns { sum, first, ids: block.dst_ids.as_deref(), stay: block.num_dst }.run(dst.host());
}

pub(super) fn hop_transposed(op: HopTransposed) {
    let HopTransposed { block, first, dst_grad, src_grad } = op;
    let transposed = &block.transposed;
    let weight = ByPosition { values: &block.edge_weight, position: &transposed.edge };
    let cols = dst_grad.num_cols();
    let sum = Sum::weighted(&transposed.indptr, &transposed.dst, weight, dst_grad.host(), cols, 0.0);
    let sum = Sum { own: Own::of(block, OwnWeight::Stored), ..sum };
    Columns { sum, first, ids: None, stay: block.num_dst }.run(src_grad.host());
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
        let ahead = Sum::<W>::ahead(job.sum.src, cols);
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
