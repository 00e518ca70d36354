//! Attention over the edges of a block (GAT): the softmax of each destination's entries, the
//! weighted sum, and their gradients. An attention matrix has a row per edge, then one per
//! destination.

use std::ops::Range;

use graphmill_core::Block;

use super::{
    level::{Isa, kernel, prefetch},
    math,
    parallel::{self, Rows, Runs},
    row_norm::dot,
    sum::{ByEdge, ByPosition, Own, OwnValue, Sum, Unit, ahead},
};
use crate::backend::ops::{Attend, AttendBackward, EdgeSoftmax, EdgeSoftmaxBackward};

/// Expands `$call` over all heads, `$n` (a constant) at a time from `$h` on: their values are
/// adjacent, and loops over a constant number of them become vectors.
macro_rules! for_heads {
    ($heads:expr, ($h:ident, $n:ident) => $call:expr) => {{
        let mut $h = 0;
        while $h < $heads {
            $h += match $heads - $h {
                8.. => {
                    const $n: usize = 8;
                    $call;
                    $n
                }
                4.. => {
                    const $n: usize = 4;
                    $call;
                    $n
                }
                2.. => {
                    const $n: usize = 2;
                    $call;
                    $n
                }
                _ => {
                    const $n: usize = 1;
                    $call;
                    $n
                }
            };
        }
    }};
}
pub(super) use for_heads;

/// Splits an attention matrix by destination: the entries of their edges, and their own entries.
pub(super) fn entries<'a>(block: &'a Block, alpha: &'a mut [f32], heads: usize) -> (Runs<'a>, Rows<'a, f32>) {
    let (edges, own) = alpha.split_at_mut(block.num_edges() * heads);
    (Runs { data: edges, indptr: &block.indptr, width: heads }, Rows { data: own, width: heads })
}

pub(super) fn edge_softmax(op: EdgeSoftmax) {
    let EdgeSoftmax { block, source, target, slope, alpha } = op;
    let heads = source.num_cols();
    if heads == 0 {
        return;
    }
    let (isa, source, target) = (Isa::current(), source.host(), target.host());
    // about ten operations per entry
    parallel::runs(&block.indptr, 8 * heads, entries(block, alpha.host(), heads), |rows, (edges, own)| {
        scores(block, heads, source, target, rows.clone(), edges.data, own.data);
        softmax_rows(isa, block, heads, slope, rows, edges.data, own.data);
    });
}

/// Computes `source[u] + target[v]` for the entries of some destinations.
fn scores(
    block: &Block,
    heads: usize,
    source: &[f32],
    target: &[f32],
    rows: Range<usize>,
    edges: &mut [f32],
    own: &mut [f32],
) {
    let mut edges = edges.chunks_exact_mut(heads);
    for (v, own) in rows.zip(own.chunks_exact_mut(heads)) {
        let at = block.own_row(v);
        let target = &target[at * heads..][..heads];
        let add = |u: usize, out: &mut [f32]| {
            let source = &source[u * heads..][..heads];
            out.iter_mut().zip(source).zip(target).for_each(|((out, s), t)| *out = s + t);
        };
        for (&u, edge) in block.indices[block.edges(v)].iter().zip(&mut edges) {
            add(u as usize, edge);
        }
        add(at, own);
    }
}

kernel! {
    /// Turns the scores of some destinations' entries into attention, in place.
    fn softmax_rows[](
        s: S,
        block: &Block,
        heads: usize,
        slope: f32,
        rows: Range<usize>,
        edges: &mut [f32],
        own: &mut [f32],
    ) {
        let base = block.indptr[rows.start] as usize;
        for (v, own) in rows.clone().zip(own.chunks_exact_mut(heads)) {
            let run = block.edges(v);
            let edges = &mut edges[(run.start - base) * heads..(run.end - base) * heads];
            for_heads!(heads, (h, N) => less_largest::<N>(heads, h, slope, edges, own));
        }
        // all exponentials at once, because the entries of a run of destinations are adjacent
        for run in [&mut *edges, &mut *own] {
            let mut c = 0;
            while c < run.len() {
                s.store(run, c, math::exp(s, s.load(run, c)));
                c += S::LANES;
            }
        }
        for (v, own) in rows.zip(own.chunks_exact_mut(heads)) {
            let run = block.edges(v);
            let edges = &mut edges[(run.start - base) * heads..(run.end - base) * heads];
            for_heads!(heads, (h, N) => normalize::<N>(heads, h, edges, own));
        }
    }
}

/// Applies the leaky ReLU to the scores of heads `h..h + N` of a destination's entries and
/// subtracts their maximum.
#[inline(always)]
fn less_largest<const N: usize>(heads: usize, h: usize, slope: f32, edges: &mut [f32], own: &mut [f32]) {
    let mut max = [f32::NEG_INFINITY; N];
    for at in (h..edges.len()).step_by(heads) {
        leaky::<N>(slope, &mut edges[at..at + N], &mut max);
    }
    leaky::<N>(slope, &mut own[h..h + N], &mut max);
    for at in (h..edges.len()).step_by(heads) {
        let edge = &mut edges[at..at + N];
        for i in 0..N {
            edge[i] -= max[i];
        }
    }
    let own = &mut own[h..h + N];
    for i in 0..N {
        own[i] -= max[i];
    }
}

/// Applies the leaky ReLU to `N` values in place and updates `max`.
#[inline(always)]
fn leaky<const N: usize>(slope: f32, x: &mut [f32], max: &mut [f32; N]) {
    let x = &mut x[..N];
    for i in 0..N {
        x[i] = if x[i] > 0.0 { x[i] } else { slope * x[i] };
        max[i] = if x[i] > max[i] { x[i] } else { max[i] };
    }
}

/// Divides heads `h..h + N` of a destination's entries by their sums.
#[inline(always)]
fn normalize<const N: usize>(heads: usize, h: usize, edges: &mut [f32], own: &mut [f32]) {
    let own = &mut own[h..h + N];
    let mut sum = [0.0; N];
    sum.copy_from_slice(own);
    for at in (h..edges.len()).step_by(heads) {
        let edge = &edges[at..at + N];
        for i in 0..N {
            sum[i] += edge[i];
        }
    }
    for i in 0..N {
        sum[i] = 1.0 / sum[i];
        own[i] *= sum[i];
    }
    for at in (h..edges.len()).step_by(heads) {
        let edge = &mut edges[at..at + N];
        for i in 0..N {
            edge[i] *= sum[i];
        }
    }
}

pub(super) fn edge_softmax_backward(op: EdgeSoftmaxBackward) {
    let EdgeSoftmaxBackward {
        block,
        source,
        target,
        slope,
        alpha,
        alpha_grad,
        mut scratch,
        source_grad,
        target_grad,
    } = op;
    let heads = source.num_cols();
    if heads == 0 {
        return;
    }
    let logits = Logits {
        block,
        heads,
        source: source.host(),
        target: target.host(),
        slope,
        alpha: alpha.host(),
        alpha_grad: alpha_grad.host(),
    };
    let (of_dst, of_others) = target_grad.host().split_at_mut(block.num_dst * heads);
    of_others.fill(0.0);
    let (edges, own) = entries(block, scratch.reborrow().host(), heads);
    let parts = (edges, own, Rows { data: of_dst, width: heads });
    parallel::runs(&block.indptr, 8 * heads, parts, |rows, (edges, own, sums)| {
        logits.gradients(rows, edges.data, own.data, sums.data);
    });
    let transposed = &block.transposed;
    let own =
        Own { weight: OwnValue::Constant(1.0), ids: None, first: block.num_edges(), rows: block.num_dst };
    let sum = Sum {
        indptr: &transposed.indptr,
        indices: &transposed.edge,
        weight: Unit,
        mean: false,
        own: Some(own),
        src: scratch.as_view().host(),
        cols: heads,
        heads: 1,
        beta: 0.0,
    };
    sum.run(source_grad.host());
}

/// Logits of an attention matrix, with the attention and its gradient.
struct Logits<'a> {
    block: &'a Block,
    heads: usize,
    source: &'a [f32],
    target: &'a [f32],
    slope: f32,
    alpha: &'a [f32],
    alpha_grad: &'a [f32],
}

impl Logits<'_> {
    /// Writes the gradients of the logits of some destinations to `edges` and `own`, and their sums
    /// over each destination to `sums`.
    fn gradients(&self, rows: Range<usize>, edges: &mut [f32], own: &mut [f32], sums: &mut [f32]) {
        let &Self { block, heads, source, target, slope, alpha, alpha_grad } = self;
        let base = block.indptr[rows.start] as usize;
        for ((v, own), sums) in rows.zip(own.chunks_exact_mut(heads)).zip(sums.chunks_exact_mut(heads)) {
            let run = block.edges(v);
            let indices = &block.indices[run.clone()];
            let own_at = (block.num_edges() + v) * heads;
            let (alpha_own, grad_own) = (&alpha[own_at..][..heads], &alpha_grad[own_at..][..heads]);
            let (alpha, grad) =
                (&alpha[run.start * heads..][..run.len() * heads], &alpha_grad[run.start * heads..]);
            let edges = &mut edges[(run.start - base) * heads..][..run.len() * heads];
            for h in 0..heads {
                let mean = alpha.iter().zip(grad).skip(h).step_by(heads).map(|(a, g)| a * g).sum::<f32>()
                    + alpha_own[h] * grad_own[h];
                let t = target[v * heads + h];
                let back = |u: usize, a: f32, g: f32| {
                    let g = a * (g - mean);
                    if source[u * heads + h] + t > 0.0 { g } else { slope * g }
                };
                own[h] = back(v, alpha_own[h], grad_own[h]);
                sums[h] = own[h];
                for (i, &u) in indices.iter().enumerate() {
                    let at = i * heads + h;
                    edges[at] = back(u as usize, alpha[at], grad[at]);
                    sums[h] += edges[at];
                }
            }
        }
    }
}

pub(super) fn attend(op: Attend) {
    let Attend { block, alpha, z, out } = op;
    let heads = alpha.num_cols();
    let (of_edges, of_own) = alpha.host().split_at(block.num_edges() * heads);
    let own = Own {
        weight: OwnValue::Stored(of_own),
        ids: block.dst_ids.as_deref(),
        first: 0,
        rows: block.num_dst,
    };
    let sum = Sum {
        indptr: &block.indptr,
        indices: &block.indices,
        weight: ByEdge(of_edges),
        mean: false,
        own: Some(own),
        src: z.host(),
        cols: z.num_cols(),
        heads,
        beta: 0.0,
    };
    sum.run(out.host());
}

pub(super) fn attend_backward(op: AttendBackward) {
    let width = op.width();
    let AttendBackward { block, alpha, z, grad, alpha_grad, z_grad } = op;
    let (heads, cols) = (alpha.num_cols(), z.num_cols());
    let (of_edges, of_own) = alpha.host().split_at(block.num_edges() * heads);
    let (isa, z, grad) = (Isa::current(), z.host(), grad.host());
    parallel::runs(&block.indptr, cols, entries(block, alpha_grad.host(), heads), |rows, (edges, own)| {
        dot_rows(isa, block, heads, width, z, grad, rows, edges.data, own.data);
    });
    let transposed = &block.transposed;
    let sum = Sum {
        indptr: &transposed.indptr,
        indices: &transposed.dst,
        weight: ByPosition { values: of_edges, position: &transposed.edge },
        mean: false,
        own: Some(Own { weight: OwnValue::Stored(of_own), ids: None, first: 0, rows: block.num_dst }),
        src: grad,
        cols,
        heads,
        beta: 0.0,
    };
    sum.run(z_grad.host());
}

kernel! {
    /// Computes the dot products of the destinations' rows of `grad` with their entries' rows of
    /// `z`, head by head.
    fn dot_rows[](
        s: S,
        block: &Block,
        heads: usize,
        width: usize,
        z: &[f32],
        grad: &[f32],
        rows: Range<usize>,
        edges: &mut [f32],
        own: &mut [f32],
    ) {
        if width == 0 {
            edges.fill(0.0);
            own.fill(0.0);
            return;
        }
        let cols = heads * width;
        let ahead = ahead(z, cols);
        let first = block.indptr[rows.start] as usize;
        for (v, own) in rows.zip(own.chunks_exact_mut(heads)) {
            let grad = &grad[v * cols..][..cols];
            let run = block.edges(v);
            let of_edges = run.clone().map(|e| block.indices[e] as usize);
            let edges = &mut edges[(run.start - first) * heads..(run.end - first) * heads];
            for (i, (u, out)) in of_edges.zip(edges.chunks_exact_mut(heads)).enumerate() {
                if ahead != 0
                    && let Some(&next) = block.indices.get(run.start + i + ahead)
                {
                    prefetch(z, next as usize * cols, cols);
                }
                let z = &z[u * cols..][..cols];
                for ((z, grad), out) in z.chunks_exact(width).zip(grad.chunks_exact(width)).zip(out) {
                    *out = dot(s, z, grad);
                }
            }
            let z = &z[v * cols..][..cols];
            for ((z, grad), out) in z.chunks_exact(width).zip(grad.chunks_exact(width)).zip(own) {
                *out = dot(s, z, grad);
            }
        }
    }
}
