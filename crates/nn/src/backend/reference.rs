//! The naive backend: every operation as one plain serial loop over its definition, sums in f64.
//!
//! It is what the fast backends are tested against, and what to read to learn what an operation
//! means. A new backend starts as a copy of this file.

use graphmill_graph::{Block, NodeId};

use super::{
    Activation, AdamStep, Backend, Dropout, EdgeWeight, OwnWeight, SgdStep, Side, Weighting, dropped, shape,
};
use crate::{View, ViewMut, matrix::Table};

/// Plain loops.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;

/// Element (`r`, `c`) of a matrix, in f64.
fn at(x: View, r: usize, c: usize) -> f64 {
    if x.is_sparse() {
        let (columns, values) = x.sparse_row(r).expect("sparse rows");
        return columns.binary_search(&(c as u32)).map_or(0.0, |k| f64::from(values[k]));
    }
    let i = r * x.num_cols() + c;
    match x.table() {
        Table::F32(data) => f64::from(data[i]),
        Table::F16(data) => f64::from(data[i]),
        Table::Bf16(data) => f64::from(data[i]),
    }
}

/// Overwrites every element with `f(row, col, old value)`.
fn fill(x: ViewMut, mut f: impl FnMut(usize, usize, f32) -> f64) {
    let cols = x.num_cols();
    for (i, value) in x.host().iter_mut().enumerate() {
        *value = f(i / cols, i % cols, *value) as f32;
    }
}

/// `beta * old`, without reading `old` where `beta` is 0.
fn keep(beta: f32, old: f32) -> f64 {
    if beta == 0.0 { 0.0 } else { f64::from(beta) * f64::from(old) }
}

/// The coefficient of edge `e` into destination `v`.
fn edge_coefficient(block: &Block, weight: EdgeWeight, v: usize, e: usize) -> f64 {
    match weight {
        EdgeWeight::One => 1.0,
        EdgeWeight::Mean => 1.0 / block.edges(v).len() as f64,
        EdgeWeight::Stored => f64::from(block.edge_weight[e]),
        EdgeWeight::Normalised => {
            let sum: f64 = block.edges(v).map(|e| f64::from(block.edge_weight[e])).sum();
            f64::from(block.edge_weight[e]) / sum.max(1.0)
        }
    }
}

/// The coefficient of destination `v`'s own row.
fn own_coefficient(block: &Block, weight: OwnWeight, v: usize) -> f64 {
    match weight {
        OwnWeight::None => 0.0,
        OwnWeight::Constant(c) => f64::from(c),
        OwnWeight::Stored => f64::from(block.self_weight[v]),
    }
}

/// The entries of destination `v` in an attention matrix, with their source rows: its edges, then itself.
fn entries(block: &Block, v: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
    let own = (block.num_edges() + v, block.own_row(v));
    block.edges(v).map(|e| (e, block.indices[e] as usize)).chain([own])
}

fn leaky(x: f64, slope: f64) -> f64 {
    if x > 0.0 { x } else { slope * x }
}

fn activate(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Identity => x,
        // in this form a NaN stays one
        Activation::Relu => {
            if x <= 0.0 {
                0.0
            } else {
                x
            }
        }
        Activation::Elu if x > 0.0 => x,
        Activation::Elu => x.exp_m1(),
        Activation::LeakyRelu => leaky(x, 0.01),
    }
}

/// The derivative of an activation, from its output.
fn slope_at(activation: Activation, y: f64) -> f64 {
    match activation {
        Activation::Identity => 1.0,
        _ if y > 0.0 => 1.0,
        Activation::Relu => 0.0,
        Activation::Elu => y + 1.0,
        Activation::LeakyRelu => 0.01,
    }
}

/// `log(sum of exp)` of a row.
fn log_sum_exp(row: &[f32]) -> f64 {
    let max = row.iter().fold(f64::NEG_INFINITY, |m, &x| m.max(f64::from(x)));
    max + row.iter().map(|&x| (f64::from(x) - max).exp()).sum::<f64>().ln()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

impl Backend for Reference {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn gemm(&self, a: View, side_a: Side, b: View, side_b: Side, beta: f32, c: ViewMut) {
        let (_, _, k) = shape::gemm(a, side_a, b, side_b, &c);
        fill(c, |i, j, old| {
            let sum: f64 = (0..k)
                .map(|l| {
                    let x = if side_a == Side::Plain { at(a, i, l) } else { at(a, l, i) };
                    let y = if side_b == Side::Plain { at(b, l, j) } else { at(b, j, l) };
                    x * y
                })
                .sum();
            keep(beta, old) + sum
        });
    }

    fn head_gemm(&self, heads: usize, a: View, side_a: Side, b: View, side_b: Side, beta: f32, c: ViewMut) {
        let (of_a, of_b, of_c) = shape::head_gemm(heads, a, side_a, b, side_b, &c);
        let inner = if side_a == Side::Plain { of_a } else { a.num_rows() };
        fill(c, |i, j, old| {
            let (h, j) = (j / of_c, j % of_c);
            let sum: f64 = (0..inner)
                .map(|l| {
                    let (row, col) = if side_a == Side::Plain { (i, l) } else { (l, i) };
                    let x = at(a, row, h * of_a + col);
                    let (row, col) = if side_b == Side::Plain { (l, j) } else { (j, l) };
                    x * at(b, row, h * of_b + col)
                })
                .sum();
            keep(beta, old) + sum
        });
    }

    fn aggregate(&self, block: &Block, weighting: Weighting, src: View, beta: f32, dst: ViewMut) {
        shape::aggregate(block, weighting, src, &dst);
        fill(dst, |v, f, old| {
            let mut sum = own_coefficient(block, weighting.own, v);
            if sum != 0.0 {
                sum *= at(src, block.own_row(v), f);
            }
            for e in block.edges(v) {
                sum += edge_coefficient(block, weighting.edge, v, e) * at(src, block.indices[e] as usize, f);
            }
            keep(beta, old) + sum
        });
    }

    fn aggregate_transposed(
        &self,
        block: &Block,
        weighting: Weighting,
        dst_grad: View,
        beta: f32,
        src_grad: ViewMut,
    ) {
        shape::aggregate_transposed(block, weighting, dst_grad, &src_grad);
        let cols = dst_grad.num_cols();
        let mut sum = vec![0.0; block.num_src * cols];
        for v in 0..block.num_dst {
            for f in 0..cols {
                let grad = at(dst_grad, v, f);
                sum[block.own_row(v) * cols + f] += own_coefficient(block, weighting.own, v) * grad;
                for e in block.edges(v) {
                    let u = block.indices[e] as usize;
                    sum[u * cols + f] += edge_coefficient(block, weighting.edge, v, e) * grad;
                }
            }
        }
        fill(src_grad, |u, f, old| keep(beta, old) + sum[u * cols + f]);
    }

    fn hop(&self, first: usize, block: &Block, src: View, dst: ViewMut) {
        shape::hop(first, block, src, &dst);
        fill(dst, |v, f, _| {
            let own = at(src, block.own_row(v), f);
            if f < first {
                return own;
            }
            let edge = |e: usize| f64::from(block.edge_weight[e]) * at(src, block.indices[e] as usize, f);
            f64::from(block.self_weight[v]) * own + block.edges(v).map(edge).sum::<f64>()
        });
    }

    fn hop_transposed(&self, first: usize, block: &Block, dst_grad: View, mut src_grad: ViewMut) {
        shape::hop_transposed(first, block, dst_grad, &src_grad);
        self.aggregate_transposed(block, Weighting::STORED, dst_grad, 0.0, src_grad.reborrow());
        fill(src_grad, |u, f, aggregated| match (f < first, u < block.num_dst) {
            (false, _) => f64::from(aggregated),
            (true, true) => at(dst_grad, u, f),
            (true, false) => 0.0,
        });
    }

    fn aggregate_max(&self, block: &Block, src: View, dst: ViewMut, arg: &mut Vec<u32>) {
        shape::aggregate(block, Weighting { edge: EdgeWeight::One, own: OwnWeight::None }, src, &dst);
        let cols = dst.num_cols();
        arg.clear();
        arg.resize(block.num_dst * cols, u32::MAX);
        fill(dst, |v, f, _| {
            let mut edges = block.edges(v);
            let Some(mut best) = edges.next() else { return 0.0 };
            let value = |e: usize| at(src, block.indices[e] as usize, f);
            for e in edges {
                if value(e) > value(best) {
                    best = e;
                }
            }
            arg[v * cols + f] = best as u32;
            value(best)
        });
    }

    fn aggregate_max_transposed(&self, block: &Block, arg: &[u32], dst_grad: View, src_grad: ViewMut) {
        shape::aggregate_max_transposed(block, arg, dst_grad, &src_grad);
        let cols = dst_grad.num_cols();
        let mut sum = vec![0.0; block.num_src * cols];
        for v in 0..block.num_dst {
            for f in 0..cols {
                let e = arg[v * cols + f];
                if e != u32::MAX {
                    sum[block.indices[e as usize] as usize * cols + f] += at(dst_grad, v, f);
                }
            }
        }
        fill(src_grad, |u, f, _| sum[u * cols + f]);
    }

    fn head_dot(&self, z: View, a: View, heads: usize, out: ViewMut) {
        let width = shape::head_dot(z, a, heads, &out.as_view());
        fill(out, |r, h, _| (h * width..(h + 1) * width).map(|c| at(z, r, c) * at(a, 0, c)).sum());
    }

    fn head_dot_backward(
        &self,
        z: View,
        a: View,
        heads: usize,
        grad: View,
        z_grad: ViewMut,
        a_grad: ViewMut,
    ) {
        let width = shape::head_dot(z, a, heads, &grad);
        shape::same(z, z_grad.as_view());
        shape::same(a, a_grad.as_view());
        fill(z_grad, |r, c, old| f64::from(old) + at(grad, r, c / width) * at(a, 0, c));
        fill(a_grad, |_, c, old| {
            f64::from(old) + (0..z.num_rows()).map(|r| at(grad, r, c / width) * at(z, r, c)).sum::<f64>()
        });
    }

    fn edge_softmax(&self, block: &Block, source: View, target: View, slope: f32, alpha: ViewMut) {
        let heads = shape::edge_softmax(block, source, target, alpha.as_view());
        let alpha = alpha.host();
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

    fn edge_softmax_backward(
        &self,
        block: &Block,
        source: View,
        target: View,
        slope: f32,
        alpha: View,
        alpha_grad: View,
        scratch: ViewMut,
        source_grad: ViewMut,
        target_grad: ViewMut,
    ) {
        let heads = shape::edge_softmax(block, source, target, alpha);
        shape::local(block);
        shape::same(alpha, alpha_grad);
        shape::same(alpha, scratch.as_view());
        shape::same(source, source_grad.as_view());
        shape::same(target, target_grad.as_view());
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
        fill(source_grad, |u, h, _| source_sum[u * heads + h]);
        fill(target_grad, |u, h, _| target_sum[u * heads + h]);
    }

    fn attend(&self, block: &Block, alpha: View, z: View, out: ViewMut) {
        let width = shape::attend(block, alpha, z, out.as_view());
        fill(out, |v, c, _| entries(block, v).map(|(e, u)| at(alpha, e, c / width) * at(z, u, c)).sum());
    }

    fn attend_backward(
        &self,
        block: &Block,
        alpha: View,
        z: View,
        grad: View,
        alpha_grad: ViewMut,
        z_grad: ViewMut,
    ) {
        let width = shape::attend(block, alpha, z, grad);
        shape::local(block);
        shape::same(alpha, alpha_grad.as_view());
        shape::same(z, z_grad.as_view());
        let (heads, cols) = (alpha.num_cols(), z.num_cols());
        let alpha_grad = alpha_grad.host();
        let mut sum = vec![0.0; block.num_src * cols];
        for v in 0..block.num_dst {
            for (e, u) in entries(block, v) {
                for h in 0..heads {
                    let range = h * width..(h + 1) * width;
                    alpha_grad[e * heads + h] =
                        range.map(|c| at(grad, v, c) * at(z, u, c)).sum::<f64>() as f32;
                }
                for c in 0..cols {
                    sum[u * cols + c] += at(alpha, e, c / width) * at(grad, v, c);
                }
            }
        }
        fill(z_grad, |u, c, _| sum[u * cols + c]);
    }

    fn attend_input(
        &self,
        block: &Block,
        x: View,
        source: View,
        target: View,
        slope: f32,
        dropout: Dropout,
        mut score: ViewMut,
        mut alpha: ViewMut,
        mut used: ViewMut,
        out: ViewMut,
    ) {
        let of_entries = [score.as_view(), alpha.as_view()];
        let heads = shape::attend_input(block, x, [source, target], of_entries, out.as_view());
        let cols = x.num_cols();
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
            fill(
                used.reborrow(),
                |e, h, _| if dropped(dropout, e, h) { 0.0 } else { scale * at(alpha, e, h) },
            );
            used.as_view()
        };
        fill(out, |v, c, _| entries(block, v).map(|(e, u)| at(used, e, c / cols) * at(x, u, c % cols)).sum());
    }

    fn attend_input_backward(
        &self,
        block: &Block,
        x: View,
        slope: f32,
        score: View,
        alpha: View,
        used: View,
        grad: View,
        mut score_grad: ViewMut,
        source_grad: ViewMut,
        target_grad: ViewMut,
    ) {
        let weights = [source_grad.as_view(), target_grad.as_view()];
        let heads = shape::attend_input(block, x, weights, [score, alpha], grad);
        shape::same(score, used);
        shape::same(score, score_grad.as_view());
        let cols = x.num_cols();
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
        fill(source_grad, |f, h, _| sum(f, h, &|_, u| u));
        fill(target_grad, |f, h, _| sum(f, h, &|v, _| block.own_row(v)));
    }

    fn attend_input_transposed(
        &self,
        block: &Block,
        source: View,
        target: View,
        used: View,
        grad: View,
        score_grad: View,
        x_grad: ViewMut,
    ) {
        let of_entries = [used, score_grad];
        let heads = shape::attend_input(block, x_grad.as_view(), [source, target], of_entries, grad);
        shape::local(block);
        let cols = x_grad.num_cols();
        let mut sum = vec![0.0; block.num_src * cols];
        for v in 0..block.num_dst {
            for (e, u) in entries(block, v) {
                for h in 0..heads {
                    let g = at(score_grad, e, h);
                    for f in 0..cols {
                        sum[u * cols + f] +=
                            at(used, e, h) * at(grad, v, h * cols + f) + g * at(source, f, h);
                        sum[v * cols + f] += g * at(target, f, h);
                    }
                }
            }
        }
        fill(x_grad, |u, f, _| sum[u * cols + f]);
    }

    fn head_mean(&self, x: View, heads: usize, out: ViewMut) {
        let width = shape::head_mean(x, heads, out.as_view());
        fill(out, |r, o, _| (0..heads).map(|h| at(x, r, h * width + o)).sum::<f64>() / heads as f64);
    }

    fn head_mean_backward(&self, grad: View, heads: usize, x_grad: ViewMut) {
        let width = shape::head_mean(x_grad.as_view(), heads, grad);
        fill(x_grad, |r, c, _| at(grad, r, c % width) / heads as f64);
    }

    fn gather(&self, src: View, ids: &[NodeId], dst: ViewMut) {
        shape::gather(src, ids, &dst);
        fill(dst, |r, c, _| at(src, ids[r] as usize, c));
    }

    fn add(&self, alpha: f32, x: View, y: ViewMut) {
        shape::same(x, y.as_view());
        fill(y, |r, c, old| f64::from(old) + f64::from(alpha) * at(x, r, c));
    }

    fn drop_stored(&self, x: View, dropout: Dropout, out: ViewMut) {
        shape::drop_stored(x, &out);
        let out = out.host();
        let mut k = 0;
        for r in 0..x.num_rows() {
            let (columns, values) = x.sparse_row(r).expect("sparse rows");
            for (&c, &value) in columns.iter().zip(values) {
                out[k] = if dropped(dropout, r, c as usize) { 0.0 } else { value * dropout.scale() };
                k += 1;
            }
        }
    }

    fn fill(&self, value: f32, x: ViewMut) {
        fill(x, |_, _, _| f64::from(value));
    }

    fn scale(&self, alpha: f32, x: ViewMut) {
        fill(x, |_, _, old| f64::from(alpha) * f64::from(old));
    }

    fn copy(&self, src: View, dst: ViewMut) {
        shape::same(src, dst.as_view());
        dst.host().copy_from_slice(src.host());
    }

    fn add_column_sums(&self, x: View, out: ViewMut) {
        shape::row(&out.as_view(), x.num_cols());
        fill(out, |_, c, old| f64::from(old) + (0..x.num_rows()).map(|r| at(x, r, c)).sum::<f64>());
    }

    fn dot(&self, x: View, y: View) -> f64 {
        shape::same(x, y);
        x.host().iter().zip(y.host()).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum()
    }

    fn epilogue(&self, bias: Option<View>, activation: Activation, dropout: Dropout, x: ViewMut) {
        if let Some(bias) = &bias {
            shape::row(bias, x.num_cols());
        }
        fill(x, |r, c, old| {
            if dropped(dropout, r, c) {
                return 0.0;
            }
            let x = f64::from(old) + bias.map_or(0.0, |b| at(b, 0, c));
            f64::from(dropout.scale()) * activate(activation, x)
        });
    }

    fn epilogue_backward(
        &self,
        activation: Activation,
        dropout: Dropout,
        y: View,
        mut grad: ViewMut,
        bias_grad: Option<ViewMut>,
    ) {
        shape::same(y, grad.as_view());
        let scale = f64::from(dropout.scale());
        fill(grad.reborrow(), |r, c, old| {
            if dropped(dropout, r, c) {
                return 0.0;
            }
            f64::from(old) * scale * slope_at(activation, at(y, r, c) / scale)
        });
        if let Some(bias_grad) = bias_grad {
            self.add_column_sums(grad.as_view(), bias_grad);
        }
    }

    fn batch_norm(&self, x: View, gamma: View, beta: View, eps: f32, mut stats: ViewMut, out: ViewMut) {
        shape::columns_norm(x, gamma, beta, stats.as_view(), out.as_view());
        let (rows, count) = (x.num_rows(), x.num_rows().max(1) as f64);
        let mean = |c| (0..rows).map(|r| at(x, r, c)).sum::<f64>() / count;
        fill(stats.reborrow(), |which, c, _| {
            let mean = mean(c);
            match which {
                0 => mean,
                _ => (0..rows).map(|r| (at(x, r, c) - mean).powi(2)).sum::<f64>() / count,
            }
        });
        self.batch_norm_apply(x, gamma, beta, eps, stats.as_view(), out);
    }

    fn batch_norm_apply(&self, x: View, gamma: View, beta: View, eps: f32, stats: View, out: ViewMut) {
        shape::columns_norm(x, gamma, beta, stats, out.as_view());
        fill(out, |r, c, _| {
            let inverse = 1.0 / (at(stats, 1, c) + f64::from(eps)).sqrt();
            at(gamma, 0, c) * (at(x, r, c) - at(stats, 0, c)) * inverse + at(beta, 0, c)
        });
    }

    fn batch_norm_backward(
        &self,
        x: View,
        gamma: View,
        eps: f32,
        stats: View,
        grad: ViewMut,
        gamma_grad: ViewMut,
        beta_grad: ViewMut,
    ) {
        shape::columns_norm(x, gamma, beta_grad.as_view(), stats, grad.as_view());
        shape::same(gamma, gamma_grad.as_view());
        let (rows, cols) = (x.num_rows(), x.num_cols());
        let (gamma_grad, beta_grad, grad) = (gamma_grad.host(), beta_grad.host(), grad.host());
        for c in 0..cols {
            let inverse = 1.0 / (at(stats, 1, c) + f64::from(eps)).sqrt();
            let hat = |r| (at(x, r, c) - at(stats, 0, c)) * inverse;
            let sum: f64 = (0..rows).map(|r| f64::from(grad[r * cols + c])).sum();
            let dot: f64 = (0..rows).map(|r| f64::from(grad[r * cols + c]) * hat(r)).sum();
            for r in 0..rows {
                let g = &mut grad[r * cols + c];
                *g =
                    (at(gamma, 0, c) * inverse * (f64::from(*g) - (sum + hat(r) * dot) / rows as f64)) as f32;
            }
            gamma_grad[c] = (f64::from(gamma_grad[c]) + dot) as f32;
            beta_grad[c] = (f64::from(beta_grad[c]) + sum) as f32;
        }
    }

    fn layer_norm(&self, x: View, gamma: View, beta: View, eps: f32, stats: ViewMut, out: ViewMut) {
        shape::rows_norm(x, gamma, beta, stats.as_view(), out.as_view());
        let cols = x.num_cols();
        let (stats, out) = (stats.host(), out.host());
        for r in 0..x.num_rows() {
            let mean = (0..cols).map(|c| at(x, r, c)).sum::<f64>() / cols as f64;
            let var = (0..cols).map(|c| (at(x, r, c) - mean).powi(2)).sum::<f64>() / cols as f64;
            let inverse = 1.0 / (var + f64::from(eps)).sqrt();
            for c in 0..cols {
                out[r * cols + c] =
                    (at(gamma, 0, c) * (at(x, r, c) - mean) * inverse + at(beta, 0, c)) as f32;
            }
            stats[r * 2..][..2].copy_from_slice(&[mean as f32, var as f32]);
        }
    }

    fn layer_norm_backward(
        &self,
        x: View,
        gamma: View,
        eps: f32,
        stats: View,
        grad: ViewMut,
        gamma_grad: ViewMut,
        beta_grad: ViewMut,
    ) {
        shape::rows_norm(x, gamma, beta_grad.as_view(), stats, grad.as_view());
        shape::same(gamma, gamma_grad.as_view());
        let (rows, cols) = (x.num_rows(), x.num_cols());
        let grad = grad.host();
        let hat = |r, c| (at(x, r, c) - at(stats, r, 0)) / (at(stats, r, 1) + f64::from(eps)).sqrt();
        fill(gamma_grad, |_, c, old| {
            f64::from(old) + (0..rows).map(|r| f64::from(grad[r * cols + c]) * hat(r, c)).sum::<f64>()
        });
        fill(beta_grad, |_, c, old| {
            f64::from(old) + (0..rows).map(|r| f64::from(grad[r * cols + c])).sum::<f64>()
        });
        for r in 0..rows {
            let row = &mut grad[r * cols..][..cols];
            let inverse = 1.0 / (at(stats, r, 1) + f64::from(eps)).sqrt();
            let scaled = |row: &[f32], c| f64::from(row[c]) * at(gamma, 0, c);
            let sum: f64 = (0..cols).map(|c| scaled(row, c)).sum();
            let dot: f64 = (0..cols).map(|c| scaled(row, c) * hat(r, c)).sum();
            for (c, g) in row.iter_mut().enumerate() {
                let scaled = f64::from(*g) * at(gamma, 0, c);
                *g = (inverse * (scaled - (sum + hat(r, c) * dot) / cols as f64)) as f32;
            }
        }
    }

    fn l2_norm(&self, x: View, norms: ViewMut, out: ViewMut) {
        shape::l2_norm(x, norms.as_view(), out.as_view());
        let norm = |r| (0..x.num_cols()).map(|c| at(x, r, c).powi(2)).sum::<f64>().sqrt();
        fill(norms, |r, _, _| norm(r));
        fill(out, |r, c, _| at(x, r, c) / norm(r).max(1e-12));
    }

    fn l2_norm_backward(&self, y: View, norms: View, grad: ViewMut) {
        shape::l2_norm(y, norms, grad.as_view());
        let cols = y.num_cols();
        let grad = grad.host();
        for r in 0..y.num_rows() {
            let row = &mut grad[r * cols..][..cols];
            let norm = at(norms, r, 0);
            let inverse = if norm > 1e-12 { 1.0 / norm } else { 0.0 };
            let dot: f64 = (0..cols).map(|c| f64::from(row[c]) * at(y, r, c)).sum();
            for (c, g) in row.iter_mut().enumerate() {
                *g = (inverse * (f64::from(*g) - dot * at(y, r, c))) as f32;
            }
        }
    }

    fn softmax_cross_entropy(
        &self,
        logits: View,
        label: &[i32],
        weight: &[f32],
        scale: f32,
        grad: ViewMut,
    ) -> f64 {
        shape::softmax_cross_entropy(logits, label, weight, &grad);
        let cols = logits.num_cols();
        let mut loss = 0.0;
        let grad = grad.host();
        for r in 0..logits.num_rows() {
            let row = &mut grad[r * cols..][..cols];
            row.fill(0.0);
            if label[r] < 0 {
                continue;
            }
            let hit = label[r] as usize;
            let w = f64::from(scale) * weight.get(r).map_or(1.0, |&w| f64::from(w));
            let norm = log_sum_exp(&logits.host()[r * cols..][..cols]);
            loss += w * (norm - at(logits, r, hit));
            for (c, g) in row.iter_mut().enumerate() {
                *g = (w * ((at(logits, r, c) - norm).exp() - f64::from(u8::from(c == hit)))) as f32;
            }
        }
        loss
    }

    fn sigmoid_cross_entropy(
        &self,
        logits: View,
        target: &[u8],
        weight: &[f32],
        scale: f32,
        grad: ViewMut,
    ) -> f64 {
        shape::sigmoid_cross_entropy(logits, target, weight, &grad);
        let cols = logits.num_cols();
        let mut loss = 0.0;
        fill(grad, |r, c, _| {
            let w = f64::from(scale) * weight.get(r).map_or(1.0, |&w| f64::from(w));
            let (x, t) = (at(logits, r, c), f64::from(target[r * cols + c]));
            loss += w * (x.max(0.0) + (-x.abs()).exp().ln_1p() - t * x);
            w * (sigmoid(x) - t)
        });
        loss
    }

    fn softmax(&self, x: ViewMut) {
        let cols = x.num_cols().max(1);
        for row in x.host().chunks_exact_mut(cols) {
            let norm = log_sum_exp(row);
            row.iter_mut().for_each(|x| *x = (f64::from(*x) - norm).exp() as f32);
        }
    }

    fn sigmoid(&self, x: ViewMut) {
        fill(x, |_, _, old| sigmoid(f64::from(old)));
    }

    fn adam(&self, step: AdamStep, grad: View, m: ViewMut, v: ViewMut, value: ViewMut) {
        shape::same(grad, m.as_view());
        shape::same(grad, v.as_view());
        shape::same(grad, value.as_view());
        let [lr, beta1, beta2] = [step.lr, step.beta1, step.beta2].map(f64::from);
        let [eps, decay, correction1, correction2] =
            [step.eps, step.weight_decay, step.correction1, step.correction2].map(f64::from);
        let (m, v) = (m.host(), v.host());
        for (i, value) in value.host().iter_mut().enumerate() {
            let mut x = f64::from(*value);
            let mut g = f64::from(grad.host()[i]);
            if step.decoupled {
                x -= lr * decay * x;
            } else {
                g += decay * x;
            }
            m[i] = (beta1 * f64::from(m[i]) + (1.0 - beta1) * g) as f32;
            v[i] = (beta2 * f64::from(v[i]) + (1.0 - beta2) * g * g) as f32;
            let root = (f64::from(v[i]) / correction2).sqrt() + eps;
            *value = (x - lr * f64::from(m[i]) / correction1 / root) as f32;
        }
    }

    fn sgd(&self, step: SgdStep, grad: View, velocity: ViewMut, value: ViewMut) {
        shape::same(grad, velocity.as_view());
        shape::same(grad, value.as_view());
        let [lr, momentum, decay] = [step.lr, step.momentum, step.weight_decay].map(f64::from);
        let velocity = velocity.host();
        for (i, value) in value.host().iter_mut().enumerate() {
            let x = f64::from(*value);
            let g = f64::from(grad.host()[i]) + decay * x;
            let speed = momentum * f64::from(velocity[i]) + g;
            velocity[i] = speed as f32;
            *value = (x - lr * if step.nesterov { g + momentum * speed } else { speed }) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Matrix;

    /// Destinations 0 and 1 of sources 0..3; destination 0 has edges from 1 and 2, destination 1 none.
    fn block() -> Block {
        let mut block =
            Block { num_dst: 2, num_src: 3, indptr: vec![0, 2, 2], indices: vec![1, 2], ..Block::default() };
        block.transpose();
        block
    }

    #[test]
    fn products_by_hand() {
        let a = Matrix::from_slice(2, 2, &[1., 2., 3., 4.]);
        let b = Matrix::from_slice(2, 2, &[5., 6., 7., 8.]);
        let product = |side_a, side_b, beta| {
            let mut c = Matrix::from_slice(2, 2, &[1.0; 4]);
            Reference.gemm(a.view(), side_a, b.view(), side_b, beta, c.view_mut());
            c.view().host().to_vec()
        };
        assert_eq!(product(Side::Plain, Side::Plain, 0.0), [19., 22., 43., 50.]);
        assert_eq!(product(Side::Plain, Side::Transposed, 0.0), [17., 23., 39., 53.]);
        assert_eq!(product(Side::Transposed, Side::Plain, 2.0), [28., 32., 40., 46.]);
    }

    #[test]
    fn aggregations_by_hand() {
        let x = Matrix::from_slice(3, 1, &[1., 4., 2.]);
        let mut out = Matrix::zeros(2, 1);
        Reference.aggregate(&block(), Weighting::MEAN, x.view(), 0.0, out.view_mut());
        assert_eq!(out.view().host(), [3., 0.]);
        let own = Weighting { edge: EdgeWeight::One, own: OwnWeight::Constant(10.0) };
        Reference.aggregate(&block(), own, x.view(), 1.0, out.view_mut());
        assert_eq!(out.view().host(), [19., 40.]);
        let mut arg = Vec::new();
        Reference.aggregate_max(&block(), x.view(), out.view_mut(), &mut arg);
        assert_eq!((out.view().host(), &arg[..]), (&[4.0, 0.0][..], &[0, u32::MAX][..]));
        let mut back = Matrix::zeros(3, 1);
        let grad = Matrix::from_slice(2, 1, &[1., 2.]);
        Reference.aggregate_transposed(&block(), own, grad.view(), 0.0, back.view_mut());
        assert_eq!(back.view().host(), [10., 21., 1.]);
        Reference.aggregate_max_transposed(&block(), &arg, grad.view(), back.view_mut());
        assert_eq!(back.view().host(), [0., 1., 0.]);
    }

    #[test]
    fn a_destination_attends_to_its_edges_and_itself() {
        let zero = Matrix::zeros(3, 1);
        let mut alpha = Matrix::zeros(4, 1);
        Reference.edge_softmax(&block(), zero.view(), zero.view(), 0.2, alpha.view_mut());
        let third = 1.0f32 / 3.0;
        assert_eq!(alpha.view().host(), [third, third, third, 1.0]);
        let z = Matrix::from_slice(3, 2, &[3., 0., 6., 3., 9., 0.]);
        let mut out = Matrix::zeros(2, 2);
        Reference.attend(&block(), alpha.view(), z.view(), out.view_mut());
        let expected = [6.0f32, 1.0, 6.0, 3.0];
        assert!(out.view().host().iter().zip(expected).all(|(x, y)| (x - y).abs() < 1e-6), "{out:?}");
    }

    #[test]
    fn losses_by_hand() {
        let logits = Matrix::from_slice(2, 2, &[0., 0., 5., 1.]);
        let mut grad = Matrix::zeros(2, 2);
        let loss = Reference.softmax_cross_entropy(logits.view(), &[1, -1], &[], 1.0, grad.view_mut());
        assert!((loss - 2f64.ln()).abs() < 1e-12);
        assert_eq!(grad.view().host(), [0.5, -0.5, 0.0, 0.0]);
        let loss =
            Reference.sigmoid_cross_entropy(logits.rows(0..1), &[1, 0], &[3.0], 0.5, grad.rows_mut(0..1));
        assert!((loss - 3.0 * 2f64.ln()).abs() < 1e-12);
        assert_eq!(grad.view().host()[..2], [-0.75, 0.75]);
    }

    #[test]
    fn dropout_keeps_the_mean_and_backward_uses_the_same_mask() {
        let dropout = Dropout { p: 0.25, key: 7 };
        let mut x = Matrix::from_slice(100, 100, &[1.0; 10_000]);
        Reference.epilogue(None, Activation::Relu, dropout, x.view_mut());
        let survivors = x.view().host().iter().filter(|&&x| x != 0.0).count();
        // binomial(1e4, 0.75): sigma 43; five sigma
        assert!(survivors.abs_diff(7500) < 217, "{survivors}");
        let mut grad = Matrix::from_slice(100, 100, &[1.0; 10_000]);
        Reference.epilogue_backward(Activation::Relu, dropout, x.view(), grad.view_mut(), None);
        assert_eq!(grad.view().host(), x.view().host());
    }
}
