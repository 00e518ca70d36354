//! Attention (GAT): logits by heads, softmax over edges, weighted sums, and their gradients.

#![allow(unsafe_code, reason = "device memory and kernels")]

use graphmill_nn::backend::ops::{
    Attend, AttendBackward, EdgeSoftmax, EdgeSoftmaxBackward, HeadDot, HeadDotBackward, HeadMean,
    HeadMeanBackward, shape::of,
};

use super::{
    columns::{self, Partial},
    shape,
    work::{Rows, Work, edge_lanes, lanes, wide},
};
use crate::{
    Buffer, Result,
    block::{Resident, ResidentTransposed},
    kernels::{self, Edges, In, Late, Out},
};

/// Edges of a block.
pub(super) fn edges(block: &Resident) -> Edges {
    Edges {
        indptr: block.indptr.read(),
        indices: block.indices.read(),
        entry: None,
        own_rows: block.dst_ids.as_ref().map(Buffer::read),
        num_edges: block.num_edges,
        num_own: block.num_dst,
    }
}

/// Edges of its transpose.
pub(super) fn edges_back(block: &Resident, back: &ResidentTransposed) -> Edges {
    Edges {
        indptr: back.indptr.read(),
        indices: back.dst.read(),
        entry: Some(back.edge.read()),
        own_rows: None,
        num_edges: block.num_edges,
        num_own: block.num_dst,
    }
}

pub(super) fn head_dot(work: &Work, op: HeadDot) -> Result<()> {
    let width = op.width();
    let HeadDot { z, a, heads, out } = op;
    let (rows, lanes) = (z.num_rows(), lanes(width, 1));
    let (z, a, out) = (work.read(z)?, work.read(a)?, work.write(out)?);
    let kernel = kernels::HeadDot { z, rows, heads: heads as u32, width, a, out, lanes };
    // SAFETY: the shapes were checked
    unsafe { work.groups(rows * heads, lanes, &kernel) }
}

pub(super) fn head_dot_backward(work: &Work, op: HeadDotBackward) -> Result<()> {
    let width = op.width();
    let HeadDotBackward { z, a, heads, grad, z_grad, a_grad } = op;
    let ((rows, cols), lanes, heads) = (of(z), lanes(width, 1), heads as u32);
    let (z, a, grad) = (work.read(z)?, work.read(a)?, work.read(grad)?);
    let (z_grad, a_grad) = (work.change(z_grad)?, work.change(a_grad)?);
    let [across, runs] = columns::grid(rows, cols);
    let mut partial = Partial::new(work, runs, cols)?;
    let kernel = kernels::HeadDotBack { grad, rows, heads, width, a, z_grad, lanes };
    // SAFETY: the shapes were checked
    unsafe { work.groups(rows * heads as usize, lanes, &kernel)? };
    let kernel = kernels::HeadDotSums { grad, z, rows, heads, width, partial: partial.write() };
    // SAFETY: as above; one sum per column of each run
    unsafe { work.blocks([across, runs, 1], &kernel)? };
    partial.add_to(work, a_grad)
}

pub(super) fn edge_softmax(work: &Work, op: EdgeSoftmax) -> Result<()> {
    let EdgeSoftmax { block, source, target, slope, alpha } = op;
    let resident = work.block(block)?;
    let resident = resident.get();
    shape::block(block, resident);
    let (heads, rows) = (source.num_cols(), block.num_dst);
    let lanes = edge_lanes(resident.num_edges, rows);
    let (source, target, alpha) = (work.read(source)?, work.read(target)?, work.write(alpha)?);
    let (edges, of_heads) = (edges(resident), heads as u32);
    let kernel = kernels::EdgeSoftmax { edges, source, target, heads: of_heads, slope, alpha, lanes };
    // SAFETY: the shapes were checked
    unsafe {
        let rows = work.list_rows(edges.indptr, resident.num_edges, rows)?;
        work.rows(&rows, heads, lanes, &kernel)
    }
}

pub(super) fn edge_softmax_backward(work: &Work, op: EdgeSoftmaxBackward) -> Result<()> {
    let EdgeSoftmaxBackward {
        block,
        source,
        target,
        slope,
        alpha,
        alpha_grad,
        scratch,
        source_grad,
        target_grad,
    } = op;
    let resident = work.block(block)?;
    let resident = resident.get();
    let back = shape::local(block, resident);
    let heads = source.num_cols();
    let (rows, sources) = (block.num_dst, back.num_src);
    let lanes = edge_lanes(resident.num_edges, rows);
    let (source, target) = (work.read(source)?, work.read(target)?);
    let (alpha, alpha_grad) = (work.read(alpha)?, work.read(alpha_grad)?);
    let (scratch, target_grad) = (work.write(scratch)?, work.write(target_grad)?);
    let kernel = kernels::EdgeSoftmaxBack {
        edges: edges(resident),
        source,
        target,
        heads: heads as u32,
        slope,
        alpha,
        alpha_grad,
        out: scratch,
        sums: target_grad,
        lanes,
    };
    // SAFETY: the shapes were checked
    unsafe {
        let listed = work.list_rows(resident.indptr.read(), resident.num_edges, rows)?;
        work.rows(&listed, heads, lanes, &kernel)?;
        work.fill(target_grad.offset(rows * heads).address(), 0.0, (sources - rows) * heads)?;
    }
    let source_grad = work.write(source_grad)?;
    // SAFETY: a transpose has this number of edges and sources
    let listed = unsafe { work.list_rows(back.indptr.read(), back.num_edges, sources)? };
    let lanes = edge_lanes(back.num_edges, sources);
    sum_entries(work, edges_back(resident, back), &listed, lanes, scratch.into(), heads, source_grad)
}

/// Sums a value of each entry over the rows' entries.
pub(super) fn sum_entries(
    work: &Work,
    edges: Edges,
    rows: &Rows,
    lanes: u32,
    values: In<f32>,
    heads: usize,
    out: Out<f32>,
) -> Result<()> {
    let kernel = kernels::SumEntries { edges, values, heads: heads as u32, out, lanes };
    // SAFETY: the caller checked the shapes
    unsafe { work.rows(rows, heads, lanes, &kernel) }
}

/// Softmax of `scores` over the entries of these rows, by heads.
pub(super) fn softmax_scores(
    work: &Work,
    edges: Edges,
    rows: &Rows,
    heads: usize,
    scores: In<f32>,
    alpha: Out<f32>,
) -> Result<()> {
    let lanes = rows.lanes();
    let kernel = kernels::ScoreSoftmax {
        edges,
        score: scores,
        heads: heads as u32,
        slope: 1.0,
        alpha,
        used: None,
        key: Late(0),
        threshold: 0,
        scale: 1.0,
        lanes,
    };
    // SAFETY: the caller checked the shapes
    unsafe { work.rows(rows, heads, lanes, &kernel) }
}

/// Gradient of [`softmax_scores`], in the place of that of `alpha`.
pub(super) fn softmax_scores_back(
    work: &Work,
    edges: Edges,
    rows: &Rows,
    heads: usize,
    alpha: In<f32>,
    grad: Out<f32>,
) -> Result<()> {
    let (lanes, of_heads) = (rows.lanes(), heads as u32);
    // scores are not rectified, so any values take their place
    let (score, used, slope) = (alpha, alpha, 1.0);
    let kernel = kernels::ScoreSoftmaxBack { edges, score, heads: of_heads, slope, alpha, used, grad, lanes };
    // SAFETY: the caller checked the shapes
    unsafe { work.rows(rows, heads, lanes, &kernel) }
}

/// Sums of rows `x` over entries, weighted by heads.
pub(super) struct Attention {
    /// Edges of a block or of its transpose.
    pub(super) edges: Edges,
    pub(super) heads: usize,
    pub(super) width: usize,
    pub(super) x: In<f32>,
}

impl Attention {
    /// Computes the weights `alpha` of these rows' entries, for each head: dot products of `x` and
    /// the rows' `by`.
    pub(super) fn dots(&self, work: &Work, rows: &Rows, by: In<f32>, alpha: Out<f32>) -> Result<()> {
        let &Self { edges, heads, width, x } = self;
        let wide = wide(width, &[x.is_wide(), by.is_wide()]);
        let (lanes, of_heads) = (lanes(width, wide.vector()), heads as u32);
        let kernel =
            kernels::AttendDots { edges, grad: by, heads: of_heads, width, z: x, out: alpha, lanes, wide };
        // SAFETY: the callers checked the shapes
        unsafe { work.rows(rows, heads, lanes, &kernel) }
    }

    /// Sums over these rows' entries, weighted by `alpha` for each head.
    pub(super) fn sum(&self, work: &Work, rows: &Rows, alpha: In<f32>, out: Out<f32>) -> Result<()> {
        let &Self { edges, heads, width, x } = self;
        let wide = wide(width, &[x.is_wide(), out.is_wide()]);
        let (lanes, of_heads) = (lanes(heads * width, wide.vector()), heads as u32);
        let chunks = (heads * width).div_ceil(lanes as usize * wide.vector());
        let kernel = kernels::AttendRows { edges, alpha, heads: of_heads, width, x, out, lanes, wide };
        // SAFETY: the callers checked the shapes
        unsafe { work.rows(rows, chunks, lanes, &kernel) }
    }
}

pub(super) fn attend(work: &Work, op: Attend) -> Result<()> {
    let width = op.width();
    let Attend { block, alpha, z, out } = op;
    let resident = work.block(block)?;
    let resident = resident.get();
    shape::block(block, resident);
    let heads = alpha.num_cols();
    let (alpha, x, out) = (work.read(alpha)?, work.read(z)?, work.write(out)?);
    // SAFETY: a block has this number of edges and destinations
    let rows = unsafe { work.list_rows(resident.indptr.read(), resident.num_edges, block.num_dst)? };
    Attention { edges: edges(resident), heads, width, x }.sum(work, &rows, alpha, out)
}

pub(super) fn attend_backward(work: &Work, op: AttendBackward) -> Result<()> {
    let width = op.width();
    let AttendBackward { block, alpha, z, grad, alpha_grad, z_grad } = op;
    let resident = work.block(block)?;
    let resident = resident.get();
    let back = shape::local(block, resident);
    let heads = alpha.num_cols();
    let (alpha, z, grad) = (work.read(alpha)?, work.read(z)?, work.read(grad)?);
    let (alpha_grad, z_grad) = (work.write(alpha_grad)?, work.write(z_grad)?);
    // SAFETY: a block and its transpose have these numbers of edges and rows
    let [rows, sources] = unsafe {
        [
            work.list_rows(resident.indptr.read(), resident.num_edges, block.num_dst)?,
            work.list_rows(back.indptr.read(), back.num_edges, back.num_src)?,
        ]
    };
    Attention { edges: edges(resident), heads, width, x: z }.dots(work, &rows, grad, alpha_grad)?;
    let edges = edges_back(resident, back);
    Attention { edges, heads, width, x: grad }.sum(work, &sources, alpha, z_grad)
}

pub(super) fn head_mean(work: &Work, op: HeadMean) -> Result<()> {
    let HeadMean { x, heads, out } = op;
    let (rows, width) = of(out.as_view());
    let lanes = lanes(width, 1);
    let (x, out) = (work.read(x)?, work.write(out)?);
    let kernel = kernels::HeadMean { x, rows, heads: heads as u32, width, out, lanes };
    // SAFETY: the shapes were checked
    unsafe { work.groups(rows, lanes, &kernel) }
}

pub(super) fn head_mean_backward(work: &Work, op: HeadMeanBackward) -> Result<()> {
    let HeadMeanBackward { grad, heads, x_grad } = op;
    let (rows, width) = of(grad);
    let lanes = lanes(width, 1);
    let (grad, x_grad) = (work.read(grad)?, work.write(x_grad)?);
    let kernel = kernels::HeadMeanBack { grad, rows, heads: heads as u32, width, x_grad, lanes };
    // SAFETY: the shapes were checked
    unsafe { work.groups(rows, lanes, &kernel) }
}
