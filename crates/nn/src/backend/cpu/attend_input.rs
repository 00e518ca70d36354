//! Attention over input rows (GAT, aggregate first).
//!
//! A row is read once for its dot products with every head's vector, and soon after, from the inner
//! caches, for the sums. Destinations are processed one by one, in runs whose rows fit these
//! caches.

use std::ops::Range;

use super::{
    attend_rows::{Input, add_entries, dots, entry_dots, of_heads},
    attention::{entries, for_heads, softmax_rows},
    epilogue::{Identity, forward_rows},
    level::{Isa, kernel},
    parallel::{self, Rows},
    scratch::{self, Scratch},
    source::Source,
};
use crate::{
    View, ViewMut,
    backend::{Dropout, ops::AttendInput},
    matrix::Table,
};

/// Two matrices of `F x H`, transposed to `H x F` each, one after the other.
pub(super) fn by_head(source: View, target: View) -> Scratch {
    let (cols, heads) = (source.num_rows(), source.num_cols());
    let mut scratch = scratch::take(cols * heads);
    let weights: &mut [f32] = bytemuck::cast_slice_mut(&mut scratch);
    for (i, w) in source.host().iter().chain(target.host()).enumerate() {
        let (part, i) = (i / (cols * heads), i % (cols * heads));
        weights[(part * heads + i % heads) * cols + i / heads] = *w;
    }
    scratch
}

pub(super) fn attend_input(op: AttendInput) {
    let AttendInput { block, x, source, target, slope, dropout, score, alpha, used, out } = op;
    let (cols, heads) = (x.num_cols(), source.num_cols());
    if heads == 0 {
        return;
    }
    let weights = by_head(source, target);
    let weights = bytemuck::cast_slice(&weights)[..2 * cols * heads].split_at(cols * heads);
    let outputs = [score, alpha, used, out];
    if let Some(x) = x.slots() {
        return forward(Input { block, x, cols, heads }, weights, slope, dropout, outputs);
    }
    match x.table() {
        Table::F32(x) => forward(Input { block, x, cols, heads }, weights, slope, dropout, outputs),
        Table::F16(x) => forward(Input { block, x, cols, heads }, weights, slope, dropout, outputs),
        Table::Bf16(x) => forward(Input { block, x, cols, heads }, weights, slope, dropout, outputs),
    }
}

/// `weights` are those of the source and of the target; the outputs are scores, attention,
/// attention after dropout, and sums.
fn forward<R: Source>(
    job: Input<R>,
    (of_source, of_target): (&[f32], &[f32]),
    slope: f32,
    dropout: Dropout,
    [score, alpha, used, out]: [ViewMut; 4],
) {
    let isa = Isa::current();
    let Input { block, cols, heads, .. } = job;
    let (drops, edges) = (dropout.threshold() != 0, block.num_edges());
    // without dropout, the matrix after dropout is empty
    let used = if drops { entries(block, used.host(), heads) } else { entries(block, &mut [], 0) };
    let alphas = (entries(block, alpha.host(), heads), used);
    let parts = (entries(block, score.host(), heads), alphas, Rows { data: out.host(), width: heads * cols });
    parallel::runs(&block.indptr, cols, parts, |rows, (score, (alpha, used), out)| {
        let first = block.indptr[rows.start] as usize;
        score_rows(isa, job, of_source, of_target, rows.clone(), score.0.data, score.1.data);
        alpha.0.data.copy_from_slice(score.0.data);
        alpha.1.data.copy_from_slice(score.1.data);
        softmax_rows(isa, block, heads, slope, rows.clone(), alpha.0.data, alpha.1.data);
        let weights = if drops {
            used.0.data.copy_from_slice(alpha.0.data);
            used.1.data.copy_from_slice(alpha.1.data);
            forward_rows(isa, Identity, None, dropout, first, heads, used.0.data);
            forward_rows(isa, Identity, None, dropout, edges + rows.start, heads, used.1.data);
            used
        } else {
            alpha
        };
        sum_rows(isa, job, rows, weights.0.data, weights.1.data, out.data);
    });
}

kernel! {
    /// Computes `x[u] . source + x[own_row(v)] . target` for the entries of some destinations.
    fn score_rows[R: Source](
        s: S,
        job: Input<'_, R>,
        source: &[f32],
        target: &[f32],
        rows: Range<usize>,
        edges: &mut [f32],
        own: &mut [f32],
    ) {
        let Input { block, heads, .. } = job;
        let base = block.indptr[rows.start] as usize;
        for (v, own) in rows.zip(own.chunks_exact_mut(heads)) {
            let (row, edges) = (job.row(block.own_row(v)), &mut edges[job.run(v, base)]);
            for_heads!(heads, (h, N) => {
                let of_target = dots::<_, R::Value, N>(s, row, of_heads(job, target, h), [0.0; N]);
                let source = of_heads::<R, N>(job, source, h);
                entry_dots(s, job, v, h, source, of_target, edges);
                own[h..h + N].copy_from_slice(&dots(s, row, source, of_target));
            });
        }
    }

    /// Computes `out[v, h] = sum over the entries of weight[e, h] x[u]` for some destinations.
    fn sum_rows[R: Source](
        s: S, job: Input<'_, R>, rows: Range<usize>, edges: &[f32], own: &[f32], out: &mut [f32],
    ) {
        let Input { block, heads, cols, .. } = job;
        if cols == 0 {
            return;
        }
        let base = block.indptr[rows.start] as usize;
        let rows = rows.zip(own.chunks_exact(heads)).zip(out.chunks_exact_mut(heads * cols));
        for ((v, own), out) in rows {
            add_entries(s, job, v, &edges[job.run(v, base)], own, false, out);
        }
    }
}
