//! Attention by dot products of query and key: the softmax of each destination's edges, and its
//! gradients.

use super::{
    attention::{dot_rows, entries, softmax_rows},
    level::Isa,
    parallel::{self, Runs},
    sum::{ByEdge, ByPosition, Sum, Unit},
};
use crate::backend::ops::{DotSoftmax, DotSoftmaxBackward};

/// Score of a destination's own entry: so low that its exponential is 0, but finite.
pub(super) const NEVER: f32 = -1e30;

pub(super) fn dot_softmax(op: DotSoftmax) {
    let width = op.width();
    let DotSoftmax { block, query, key, scale, alpha } = op;
    let heads = alpha.num_cols();
    if heads == 0 {
        return;
    }
    let (isa, query, key) = (Isa::current(), query.host(), key.host());
    let cost = heads * (8 + width);
    let parts = entries(block, alpha.host(), heads);
    parallel::runs(&block.indptr, cost, parts, |rows, (edges, own)| {
        dot_rows(isa, block, heads, width, key, query, rows.clone(), edges.data, own.data);
        edges.data.iter_mut().for_each(|score| *score *= scale);
        own.data.fill(NEVER);
        softmax_rows(isa, block, heads, 1.0, rows, edges.data, own.data);
        // a destination without edges would attend to itself
        own.data.fill(0.0);
    });
}

pub(super) fn dot_softmax_backward(op: DotSoftmaxBackward) {
    let (mut scratch, query_grad, key_grad) = (op.scratch, op.query_grad, op.key_grad);
    let DotSoftmaxBackward { block, query, key, scale, alpha, alpha_grad, .. } = op;
    let (heads, cols) = (alpha.num_cols(), key.num_cols());
    if heads == 0 {
        return;
    }
    let (alpha, alpha_grad) = (alpha.host(), alpha_grad.host());
    let (of_edges, of_own) = scratch.reborrow().host().split_at_mut(block.num_edges() * heads);
    of_own.fill(0.0);
    let parts = Runs { data: of_edges, indptr: &block.indptr, width: heads };
    parallel::runs(&block.indptr, 4 * heads, parts, |rows, out| {
        let base = block.indptr[rows.start] as usize * heads;
        for v in rows {
            let run = block.edges(v);
            let run = run.start * heads..run.end * heads;
            let (alpha, grad) = (&alpha[run.clone()], &alpha_grad[run.clone()]);
            let out = &mut out.data[run.start - base..run.end - base];
            for h in 0..heads {
                let of_head = || alpha.iter().zip(grad).skip(h).step_by(heads);
                let mean = of_head().map(|(a, g)| a * g).sum::<f32>();
                for (out, (a, g)) in out.iter_mut().skip(h).step_by(heads).zip(of_head()) {
                    *out = scale * a * (g - mean);
                }
            }
        }
    });
    let scores = &scratch.as_view().host()[..block.num_edges() * heads];
    let sum = |indptr, indices, src| Sum {
        indptr,
        indices,
        weight: Unit,
        mean: false,
        own: None,
        src,
        cols,
        heads,
        beta: 0.0,
    };
    sum(&block.indptr[..], &block.indices[..], key.host()).with(ByEdge(scores)).run(query_grad.host());
    let t = &block.transposed;
    let weight = ByPosition { values: scores, position: &t.edge };
    sum(&t.indptr[..], &t.dst[..], query.host()).with(weight).run(key_grad.host());
}
