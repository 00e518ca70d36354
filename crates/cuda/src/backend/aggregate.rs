//! Aggregation over the edges of a block.

#![allow(unsafe_code, reason = "device memory and kernels")]

use graphmill_nn::backend::{
    EdgeWeight, OwnWeight,
    ops::{
        Aggregate, AggregateMax, AggregateMaxTransposed, AggregateTransposed, Hop, HopTransposed, shape::of,
    },
};

use super::{
    shape,
    work::{Work, edge_lanes, lanes, wide},
};
use crate::{
    Buffer, Result,
    block::Resident,
    kernels::{self, In, Out, Table, WeightedSum},
};

/// Weighted sum of rows over edges, with their own rows.
struct Sum {
    sum: WeightedSum,
    /// Number of edges.
    edges: usize,
    /// First aggregated column.
    first: usize,
}

/// Weights of own rows.
struct Own {
    /// Weight of each row; if `None`, all use the constant and the shared value.
    of_row: Option<In<f32>>,
    constant: f32,
    shared: Option<In<f32>>,
}

impl Sum {
    /// Sums the columns from `first` on of `rows` rows.
    fn run(&self, work: &Work, src: Table, cols: usize, beta: f32, dst: Out<f32>, rows: usize) -> Result<()> {
        let &Self { sum, edges, first } = self;
        if first >= cols || rows == 0 {
            return Ok(());
        }
        let wide = wide(cols, &[first.is_multiple_of(4), src.is_wide(), dst.is_wide()]);
        let lanes = lanes(cols - first, wide.vector());
        let chunks = (cols - first).div_ceil(lanes as usize * wide.vector());
        let kernel = kernels::Aggregate { sum, src, cols, first, beta, dst, lanes, wide };
        // SAFETY: the operation checked the shapes
        unsafe {
            let rows = work.list_rows(sum.indptr, edges, rows)?;
            work.rows(&rows, chunks, lanes, &kernel)
        }
    }

    /// Copies the columns before [`Sum::first`] of the own rows.
    fn keep(&self, work: &Work, src: In<f32>, cols: usize, dst: Out<f32>, rows: usize) -> Result<()> {
        let WeightedSum { own_rows, num_own, .. } = self.sum;
        let kernel = kernels::AggregateKeep { own_rows, num_own, src, cols, first: self.first, dst, rows };
        // SAFETY: the operation checked the shapes
        unsafe { work.groups(rows, 32, &kernel) }
    }
}

/// Factors of the destinations' sums: 1 / max(sum of their `weight`s, 1), or 1 / (number of edges)
/// without weights.
fn scales(work: &Work, block: &Resident, weight: Option<In<f32>>) -> Result<Buffer<f32>> {
    let mut scales = work.scratch::<f32>(block.num_dst)?;
    let lanes = edge_lanes(block.num_edges, block.num_dst);
    let (indptr, rows) = (block.indptr.read(), block.num_dst);
    let kernel = kernels::AggregateScales { indptr, weight, rows, lanes, scales: scales.write() };
    // SAFETY: one scale per destination; weights are by edge
    unsafe { work.groups(rows, lanes, &kernel)? };
    Ok(scales)
}

/// Weights of the destinations' own rows.
fn own(work: &Work, block: &Resident, weight: OwnWeight) -> Result<Own> {
    let none = Own { of_row: None, constant: 0.0, shared: None };
    Ok(match weight {
        OwnWeight::None => none,
        OwnWeight::Constant(constant) => Own { constant, ..none },
        OwnWeight::OnePlus(x) => Own { constant: 1.0, shared: Some(work.read(x)?), ..none },
        OwnWeight::Stored => Own { of_row: block.self_weight.as_ref().map(Buffer::read), ..none },
    })
}

pub(super) fn aggregate(work: &Work, op: Aggregate) -> Result<()> {
    forward(work, 0, op)
}

/// Aggregates the columns from `first` on and copies the own rows' columns before.
fn forward(work: &Work, first: usize, op: Aggregate) -> Result<()> {
    let Aggregate { block, weights: weighting, src, beta, mut dst } = op;
    let resident = work.block(block)?;
    let resident = resident.get();
    shape::block(block, resident);
    shape::weights(resident, weighting);
    let (rows, cols) = of(dst.as_view());
    let from = work.table(src)?;
    let to = work.place(dst.reborrow(), beta != 0.0)?;
    let weights = resident.edge_weight.as_ref().map(Buffer::read);
    let is_weighted = matches!(weighting.edge, EdgeWeight::Stored | EdgeWeight::Normalized);
    let normalized = (weighting.edge == EdgeWeight::Normalized && rows > 0)
        .then(|| scales(work, resident, weights))
        .transpose()?;
    let own = own(work, resident, weighting.own)?;
    let sum = WeightedSum {
        indptr: resident.indptr.read(),
        indices: resident.indices.read(),
        position: None,
        of_edge: weights.filter(|_| is_weighted),
        of_source: None,
        mean: weighting.edge == EdgeWeight::Mean,
        of_row: normalized.as_ref().map(Buffer::read),
        own_rows: resident.dst_ids.as_ref().map(Buffer::read),
        num_own: rows,
        own_weight: own.of_row,
        own_constant: own.constant,
        own_shared: own.shared,
    };
    let sum = Sum { sum, edges: resident.num_edges, first };
    sum.run(work, from, cols, beta, to, rows)?;
    if first == 0 { Ok(()) } else { sum.keep(work, from.floats(), cols, to, rows) }
}

pub(super) fn aggregate_transposed(work: &Work, op: AggregateTransposed) -> Result<()> {
    backward(work, 0, op)
}

/// Gradient of [`forward`].
fn backward(work: &Work, first: usize, op: AggregateTransposed) -> Result<()> {
    let AggregateTransposed { block, weights: weighting, dst_grad, beta, src_grad } = op;
    let resident = work.block(block)?;
    let resident = resident.get();
    let back = shape::local(block, resident);
    shape::weights(resident, weighting);
    let (rows, cols) = of(src_grad.as_view());
    let from = work.read(dst_grad)?;
    let to = work.place(src_grad, beta != 0.0)?;
    let weights = resident.edge_weight.as_ref().map(Buffer::read);
    let is_weighted = matches!(weighting.edge, EdgeWeight::Stored | EdgeWeight::Normalized);
    let of_source = match weighting.edge {
        EdgeWeight::One | EdgeWeight::Stored => None,
        EdgeWeight::Mean => Some(scales(work, resident, None)?),
        EdgeWeight::Normalized => Some(scales(work, resident, weights)?),
    };
    let own = own(work, resident, weighting.own)?;
    let sum = WeightedSum {
        indptr: back.indptr.read(),
        indices: back.dst.read(),
        position: Some(back.edge.read()),
        of_edge: weights.filter(|_| is_weighted),
        of_source: of_source.as_ref().map(Buffer::read),
        mean: false,
        of_row: None,
        own_rows: None,
        num_own: block.num_dst,
        own_weight: own.of_row,
        own_constant: own.constant,
        own_shared: own.shared,
    };
    let sum = Sum { sum, edges: back.num_edges, first };
    sum.run(work, from.into(), cols, beta, to, rows)?;
    if first > 0 { sum.keep(work, from, cols, to, rows) } else { Ok(()) }
}

pub(super) fn hop(work: &Work, op: Hop) -> Result<()> {
    let Hop { block, first, weights, src, dst } = op;
    forward(work, first, Aggregate { block, weights, src, beta: 0.0, dst })
}

pub(super) fn hop_transposed(work: &Work, op: HopTransposed) -> Result<()> {
    let HopTransposed { block, first, weights, dst_grad, src_grad } = op;
    backward(work, first, AggregateTransposed { block, weights, dst_grad, beta: 0.0, src_grad })
}

pub(super) fn aggregate_max(work: &Work, op: AggregateMax) -> Result<()> {
    let AggregateMax { block, src, dst, arg } = op;
    let resident = work.block(block)?;
    let resident = resident.get();
    shape::block(block, resident);
    let (rows, cols) = of(dst.as_view());
    arg.resize(rows, cols);
    let (src, dst, arg) = (work.read(src)?, work.write(dst)?, work.write(arg.bits_mut())?);
    let wide = wide(cols, &[src.is_wide(), dst.is_wide()]);
    let lanes = lanes(cols, wide.vector());
    let chunks = cols.div_ceil(lanes as usize * wide.vector());
    let (indptr, indices) = (resident.indptr.read(), resident.indices.read());
    let kernel = kernels::AggregateMax { indptr, indices, src, cols, dst, arg: arg.cast(), lanes, wide };
    // SAFETY: the shapes were checked above
    unsafe {
        let rows = work.list_rows(indptr, resident.num_edges, rows)?;
        work.rows(&rows, chunks, lanes, &kernel)
    }
}

pub(super) fn aggregate_max_transposed(work: &Work, op: AggregateMaxTransposed) -> Result<()> {
    let AggregateMaxTransposed { block, arg, dst_grad, src_grad } = op;
    let resident = work.block(block)?;
    let resident = resident.get();
    let back = shape::local(block, resident);
    let (rows, cols) = of(src_grad.as_view());
    let (arg, grad, out) = (work.read(arg.bits())?.cast(), work.read(dst_grad)?, work.write(src_grad)?);
    let lanes = lanes(cols, 1);
    let chunks = cols.div_ceil(lanes as usize);
    let [indptr, dst, edge] = [&back.indptr, &back.dst, &back.edge].map(Buffer::read);
    let kernel = kernels::AggregateMaxBack { indptr, dst, edge, arg, grad, cols, out, lanes };
    // SAFETY: the shapes were checked above
    unsafe {
        let rows = work.list_rows(indptr, back.num_edges, rows)?;
        work.rows(&rows, chunks, lanes, &kernel)
    }
}
