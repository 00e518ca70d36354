//! Attention.

use graphmill_core::Block;

use super::{at, leaky, set};
use crate::{
    View,
    backend::{
        dropped,
        ops::{
            Attend, AttendBackward, AttendInput, AttendInputBackward, AttendInputTransposed, EdgeSoftmax,
            EdgeSoftmaxBackward, HeadDot, HeadDotBackward, HeadMean, HeadMeanBackward,
        },
    },
};

/// Entries of destination `v` in an attention matrix, with their source rows: its edges, then
/// itself.
fn entries(block: &Block, v: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
    let own = (block.num_edges() + v, block.own_row(v));
    block.edges(v).map(|e| (e, block.indices[e] as usize)).chain([own])
}

pub(super) fn head_dot(op: HeadDot) {
    let width = op.width();
    let HeadDot { z, a, out, .. } = op;
    set(out, |r, h, _| (h * width..(h + 1) * width).map(|c| at(z, r, c) * at(a, 0, c)).sum());
}

pub(super) fn head_dot_backward(op: HeadDotBackward) {
    let width = op.width();
    let HeadDotBackward { z, a, grad, z_grad, a_grad, .. } = op;
    set(z_grad, |r, c, old| f64::from(old) + at(grad, r, c / width) * at(a, 0, c));
    set(a_grad, |_, c, old| {
        f64::from(old) + (0..z.num_rows()).map(|r| at(grad, r, c / width) * at(z, r, c)).sum::<f64>()
    });
}

pub(super) fn edge_softmax(op: EdgeSoftmax) {
    let EdgeSoftmax { block, source, target, slope, alpha } = op;
    let (heads, alpha) = (source.num_cols(), alpha.host());
    for v in 0..block.num_dst {
        for h in 0..heads {
            let t = at(target, block.own_row(v), h);
            let logit = |u: usize| leaky(at(source, u, h) + t, f64::from(slope));
            let max = entries(block, v).fold(f64::NEG_INFINITY, |m, (_, u)| m.max(logit(u)));
            let sum: f64 = entries(block, v).map(|(_, u)| (logit(u) - max).exp()).sum();
            for (e, u) in entries(block, v) {
                alpha[e * heads + h] = ((logit(u) - max).exp() / sum) as f32;
            }
        }
    }
}

pub(super) fn edge_softmax_backward(op: EdgeSoftmaxBackward) {
    let EdgeSoftmaxBackward {
        block, source, target, slope, alpha, alpha_grad, source_grad, target_grad, ..
    } = op;
    let heads = source.num_cols();
    let mut source_sum = vec![0.0; block.num_src * heads];
    let mut target_sum = vec![0.0; block.num_src * heads];
    for v in 0..block.num_dst {
        for h in 0..heads {
            let mean: f64 = entries(block, v).map(|(e, _)| at(alpha, e, h) * at(alpha_grad, e, h)).sum();
            for (e, u) in entries(block, v) {
                let mut g = at(alpha, e, h) * (at(alpha_grad, e, h) - mean);
                if source.host()[u * heads + h] + target.host()[v * heads + h] <= 0.0 {
                    g *= f64::from(slope);
                }
                source_sum[u * heads + h] += g;
                target_sum[v * heads + h] += g;
            }
        }
    }
    set(source_grad, |u, h, _| source_sum[u * heads + h]);
    set(target_grad, |u, h, _| target_sum[u * heads + h]);
}

pub(super) fn attend(op: Attend) {
    let width = op.width();
    let Attend { block, alpha, z, out } = op;
    set(out, |v, c, _| entries(block, v).map(|(e, u)| at(alpha, e, c / width) * at(z, u, c)).sum());
}

pub(super) fn attend_backward(op: AttendBackward) {
    let width = op.width();
    let AttendBackward { block, alpha, z, grad, alpha_grad, z_grad } = op;
    let (heads, cols) = (alpha.num_cols(), z.num_cols());
    let alpha_grad = alpha_grad.host();
    let mut sum = vec![0.0; block.num_src * cols];
    for v in 0..block.num_dst {
        for (e, u) in entries(block, v) {
            for h in 0..heads {
                let range = h * width..(h + 1) * width;
                alpha_grad[e * heads + h] = range.map(|c| at(grad, v, c) * at(z, u, c)).sum::<f64>() as f32;
            }
            for c in 0..cols {
                sum[u * cols + c] += at(alpha, e, c / width) * at(grad, v, c);
            }
        }
    }
    set(z_grad, |u, c, _| sum[u * cols + c]);
}

pub(super) fn attend_input(op: AttendInput) {
    let AttendInput { block, x, source, target, slope, dropout, mut score, mut alpha, mut used, out } = op;
    let (cols, heads) = (x.num_cols(), source.num_cols());
    let dot = |u: usize, w: View, h: usize| (0..cols).map(|f| at(x, u, f) * at(w, f, h)).sum::<f64>();
    for v in 0..block.num_dst {
        for h in 0..heads {
            let t = dot(block.own_row(v), target, h);
            for (e, u) in entries(block, v) {
                score.reborrow().host()[e * heads + h] = (dot(u, source, h) + t) as f32;
            }
            let logit = |e: usize| leaky(at(score.as_view(), e, h), f64::from(slope));
            let max = entries(block, v).fold(f64::NEG_INFINITY, |m, (e, _)| m.max(logit(e)));
            let sum: f64 = entries(block, v).map(|(e, _)| (logit(e) - max).exp()).sum();
            for (e, _) in entries(block, v) {
                alpha.reborrow().host()[e * heads + h] = ((logit(e) - max).exp() / sum) as f32;
            }
        }
    }
    let alpha = alpha.as_view();
    let used = if dropout.threshold() == 0 {
        alpha
    } else {
        let scale = f64::from(dropout.scale());
        set(used.reborrow(), |e, h, _| if dropped(dropout, e, h) { 0.0 } else { scale * at(alpha, e, h) });
        used.as_view()
    };
    set(out, |v, c, _| entries(block, v).map(|(e, u)| at(used, e, c / cols) * at(x, u, c % cols)).sum());
}

pub(super) fn attend_input_backward(op: AttendInputBackward) {
    let AttendInputBackward {
        block,
        x,
        slope,
        score,
        alpha,
        used,
        grad,
        mut score_grad,
        source_grad,
        target_grad,
    } = op;
    let (cols, heads) = (x.num_cols(), score.num_cols());
    for v in 0..block.num_dst {
        for h in 0..heads {
            let dot = |u: usize| (0..cols).map(|f| at(grad, v, h * cols + f) * at(x, u, f)).sum::<f64>();
            let mean: f64 = entries(block, v).map(|(e, u)| at(used, e, h) * dot(u)).sum();
            for (e, u) in entries(block, v) {
                let g = at(used, e, h) * dot(u) - at(alpha, e, h) * mean;
                let slope = if at(score, e, h) > 0.0 { 1.0 } else { f64::from(slope) };
                score_grad.reborrow().host()[e * heads + h] = (slope * g) as f32;
            }
        }
    }
    let score_grad = score_grad.as_view();
    let sum = |f: usize, h: usize, row: &dyn Fn(usize, usize) -> usize| -> f64 {
        (0..block.num_dst)
            .flat_map(|v| entries(block, v).map(move |(e, u)| (v, e, u)))
            .map(|(v, e, u)| at(score_grad, e, h) * at(x, row(v, u), f))
            .sum()
    };
    set(source_grad, |f, h, _| sum(f, h, &|_, u| u));
    set(target_grad, |f, h, _| sum(f, h, &|v, _| block.own_row(v)));
}

pub(super) fn attend_input_transposed(op: AttendInputTransposed) {
    let AttendInputTransposed { block, source, target, used, grad, score_grad, x_grad } = op;
    let (cols, heads) = (x_grad.num_cols(), source.num_cols());
    let mut sum = vec![0.0; block.num_src * cols];
    for v in 0..block.num_dst {
        for (e, u) in entries(block, v) {
            for h in 0..heads {
                let g = at(score_grad, e, h);
                for f in 0..cols {
                    sum[u * cols + f] += at(used, e, h) * at(grad, v, h * cols + f) + g * at(source, f, h);
                    sum[v * cols + f] += g * at(target, f, h);
                }
            }
        }
    }
    set(x_grad, |u, f, _| sum[u * cols + f]);
}

pub(super) fn head_mean(op: HeadMean) {
    let HeadMean { x, heads, out } = op;
    let width = out.num_cols();
    set(out, |r, o, _| (0..heads).map(|h| at(x, r, h * width + o)).sum::<f64>() / heads as f64);
}

pub(super) fn head_mean_backward(op: HeadMeanBackward) {
    let HeadMeanBackward { grad, heads, x_grad } = op;
    let width = grad.num_cols();
    set(x_grad, |r, c, _| at(grad, r, c % width) / heads as f64);
}
