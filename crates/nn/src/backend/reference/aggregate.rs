//! Aggregation over the edges of a block.

use graphmill_core::Block;

use super::{at, keep, set};
use crate::backend::{
    EdgeWeight, OwnWeight,
    ops::{Aggregate, AggregateMax, AggregateMaxTransposed, AggregateTransposed, Hop, HopTransposed},
};

/// Coefficient of edge `e` into destination `v`.
fn edge_coefficient(block: &Block, weight: EdgeWeight, v: usize, e: usize) -> f64 {
    match weight {
        EdgeWeight::One => 1.0,
        EdgeWeight::Mean => 1.0 / block.edges(v).len() as f64,
        EdgeWeight::Stored => f64::from(block.edge_weight[e]),
        EdgeWeight::Normalized => {
            let sum: f64 = block.edges(v).map(|e| f64::from(block.edge_weight[e])).sum();
            f64::from(block.edge_weight[e]) / sum.max(1.0)
        }
    }
}

/// Coefficient of destination `v`'s own row.
fn own_coefficient(block: &Block, weight: OwnWeight, v: usize) -> f64 {
    match weight {
        OwnWeight::None => 0.0,
        OwnWeight::Constant(c) => f64::from(c),
        OwnWeight::OnePlus(x) => 1.0 + at(x, 0, 0),
        OwnWeight::Stored => f64::from(block.self_weight[v]),
    }
}

pub(super) fn aggregate(op: Aggregate) {
    let Aggregate { block, weights, src, beta, dst } = op;
    set(dst, |v, f, old| {
        let mut sum = own_coefficient(block, weights.own, v);
        if sum != 0.0 {
            sum *= at(src, block.own_row(v), f);
        }
        for e in block.edges(v) {
            sum += edge_coefficient(block, weights.edge, v, e) * at(src, block.indices[e] as usize, f);
        }
        keep(beta, old) + sum
    });
}

pub(super) fn aggregate_transposed(op: AggregateTransposed) {
    let AggregateTransposed { block, weights, dst_grad, beta, src_grad } = op;
    let cols = dst_grad.num_cols();
    let mut sum = vec![0.0; block.num_src * cols];
    for v in 0..block.num_dst {
        for f in 0..cols {
            let grad = at(dst_grad, v, f);
            let own = own_coefficient(block, weights.own, v);
            if own != 0.0 {
                sum[block.own_row(v) * cols + f] += own * grad;
            }
            for e in block.edges(v) {
                let u = block.indices[e] as usize;
                sum[u * cols + f] += edge_coefficient(block, weights.edge, v, e) * grad;
            }
        }
    }
    set(src_grad, |u, f, old| keep(beta, old) + sum[u * cols + f]);
}

pub(super) fn hop(op: Hop) {
    let Hop { block, first, weights, src, dst } = op;
    set(dst, |v, f, _| {
        let own = at(src, block.own_row(v), f);
        if f < first {
            return own;
        }
        let edge =
            |e: usize| edge_coefficient(block, weights.edge, v, e) * at(src, block.indices[e] as usize, f);
        let coefficient = own_coefficient(block, weights.own, v);
        let own = if coefficient == 0.0 { 0.0 } else { coefficient * own };
        own + block.edges(v).map(edge).sum::<f64>()
    });
}

pub(super) fn hop_transposed(op: HopTransposed) {
    let HopTransposed { block, first, weights, dst_grad, mut src_grad } = op;
    let to = src_grad.reborrow();
    aggregate_transposed(AggregateTransposed { block, weights, dst_grad, beta: 0.0, src_grad: to });
    set(src_grad, |u, f, aggregated| match (f < first, u < block.num_dst) {
        (false, _) => f64::from(aggregated),
        (true, true) => at(dst_grad, u, f),
        (true, false) => 0.0,
    });
}

pub(super) fn aggregate_max(op: AggregateMax) {
    let AggregateMax { block, src, dst, arg } = op;
    let cols = dst.num_cols();
    arg.resize(block.num_dst, cols);
    let arg = arg.host_mut();
    arg.fill(u32::MAX);
    set(dst, |v, f, _| {
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

pub(super) fn aggregate_max_transposed(op: AggregateMaxTransposed) {
    let AggregateMaxTransposed { block, arg, dst_grad, src_grad } = op;
    let cols = dst_grad.num_cols();
    let (arg, mut sum) = (arg.host(), vec![0.0; block.num_src * cols]);
    for v in 0..block.num_dst {
        for f in 0..cols {
            let e = arg[v * cols + f];
            if e != u32::MAX {
                sum[block.indices[e as usize] as usize * cols + f] += at(dst_grad, v, f);
            }
        }
    }
    set(src_grad, |u, f, _| sum[u * cols + f]);
}
