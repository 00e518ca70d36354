//! Aggregation over the edges of a block: sum, mean and stored weights, and their transposes,
//! computed as gathers over the transposed block.

use graphmill_core::Block;

use super::{
    parallel::{self, Runs},
    rows, scratch, slicing,
    source::Source,
    sum::{ByEdge, ByPosition, ByRow, Own, Sum, Unit, Weight},
};
use crate::{
    backend::{
        EdgeWeight,
        ops::{Aggregate, AggregateTransposed},
    },
    matrix::Table,
};

pub(super) fn aggregate(op: Aggregate) {
    if let Some(slots) = op.src.slots() {
        return aggregate_of(slots, op);
    }
    match op.src.table() {
        Table::F32(table) => aggregate_of(table, op),
        Table::F16(table) => aggregate_of(table, op),
        Table::Bf16(table) => aggregate_of(table, op),
    }
}

/// Aggregation of `src`, the values of the operation's sources.
fn aggregate_of<R: Source>(src: R, op: Aggregate) {
    let Aggregate { block, weights, beta, dst, .. } = op;
    let sum = Sum {
        indptr: &block.indptr,
        indices: &block.indices,
        weight: Unit,
        mean: weights.edge == EdgeWeight::Mean,
        own: Own::of(block, weights.own),
        src,
        cols: dst.num_cols(),
        heads: 1,
        beta,
    };
    // a global block reads few rows of a large table
    let width = if block.dst_ids.is_none() { slicing::width(work(&sum)) } else { None };
    match weights.edge {
        EdgeWeight::Stored => run(sum.with(ByEdge(&block.edge_weight)), width, dst.host()),
        EdgeWeight::Normalized => {
            let mut scratch = scratch::take(block.num_edges().div_ceil(2));
            run(sum.with(ByEdge(normalized(block, &mut scratch))), width, dst.host());
        }
        EdgeWeight::One | EdgeWeight::Mean => run(sum, width, dst.host()),
    }
}

/// Fills `out`, either with all columns at once or in slices of `width` columns.
fn run<W: Weight, R: Source>(sum: Sum<W, R>, width: Option<usize>, out: &mut [f32]) {
    match width {
        Some(width) => sum.run_sliced(width, out),
        None => sum.run(out),
    }
}

/// Sizes that decide the width of slices.
fn work<W, R: Source>(sum: &Sum<W, R>) -> slicing::Work {
    let rows = sum.src.num_values().checked_div(sum.cols).unwrap_or(0);
    slicing::Work { rows, sums: sum.indptr.len() - 1, edges: sum.indices.len(), cols: sum.cols }
}

/// Coefficients of [`EdgeWeight::Normalized`], in `scratch` of that length.
pub(super) fn normalized<'a>(block: &Block, scratch: &'a mut [f64]) -> &'a [f32] {
    let data = &mut bytemuck::cast_slice_mut::<f64, f32>(scratch)[..block.num_edges()];
    let runs = Runs { data: &mut *data, indptr: &block.indptr, width: 1 };
    parallel::runs(&block.indptr, 1, runs, |rows, out| {
        let mut out = out.data.iter_mut();
        for v in rows {
            let weight = &block.edge_weight[block.edges(v)];
            let scale = 1.0 / weight.iter().sum::<f32>().max(1.0);
            out.by_ref().zip(weight).for_each(|(x, w)| *x = scale * w);
        }
    });
    data
}

pub(super) fn aggregate_transposed(op: AggregateTransposed) {
    let AggregateTransposed { block, weights, dst_grad, beta, src_grad } = op;
    let transposed = &block.transposed;
    let sum = Sum {
        indptr: &transposed.indptr,
        indices: &transposed.dst,
        weight: Unit,
        mean: false,
        own: Own::of(block, weights.own),
        src: dst_grad.host(),
        cols: dst_grad.num_cols(),
        heads: 1,
        beta,
    };
    let out = src_grad.host();
    let width = slicing::width(work(&sum));
    match weights.edge {
        EdgeWeight::One => run(sum, width, out),
        EdgeWeight::Stored => by_position(sum, width, &block.edge_weight, &transposed.edge, out),
        EdgeWeight::Normalized => {
            let mut scratch = scratch::take(block.num_edges().div_ceil(2));
            by_position(sum, width, normalized(block, &mut scratch), &transposed.edge, out);
        }
        EdgeWeight::Mean => {
            let mut scratch = scratch::take(block.num_dst.div_ceil(2));
            run(sum.with(ByRow(inverse_degrees(block, &mut scratch))), width, out);
        }
    }
}

/// Coefficients of [`EdgeWeight::Mean`] by destination, in `scratch` of half that length.
pub(super) fn inverse_degrees<'a>(block: &Block, scratch: &'a mut [f64]) -> &'a [f32] {
    let inverse = &mut bytemuck::cast_slice_mut::<f64, f32>(scratch)[..block.num_dst];
    for (v, x) in inverse.iter_mut().enumerate() {
        // never read for destinations without edges
        *x = 1.0 / block.edges(v).len() as f32;
    }
    inverse
}

/// The sum with the coefficients `values[position[e]]`.
fn by_position(sum: Sum<Unit>, width: Option<usize>, values: &[f32], position: &[u32], out: &mut [f32]) {
    if width.is_none() {
        return sum.with(ByPosition { values, position }).run(out);
    }
    // every slice reads the coefficients, so they are reordered once
    let mut scratch = scratch::take_uncounted(position.len().div_ceil(2));
    let weight = &mut bytemuck::cast_slice_mut::<f64, f32>(&mut scratch)[..position.len()];
    rows::elements(weight, 1, |first, weight| {
        for (w, &e) in weight.iter_mut().zip(&position[first..]) {
            *w = values[e as usize];
        }
    });
    run(sum.with(ByEdge(weight)), width, out);
}
