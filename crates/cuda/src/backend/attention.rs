//! Attention (GAT): logits by heads, softmax over edges, weighted sums, and their gradients.

#![allow(unsafe_code, reason = "device memory and kernels")]

use graphmill_nn::backend::ops::{
    Attend, AttendBackward, EdgeSoftmax, EdgeSoftmaxBackward, HeadDot, HeadDotBackward, HeadMean,
    HeadMeanBackward, shape::of,
};

use super::{
    columns::{self, Partial},
    shape,
    work::{Rows, Work, address, edge_lanes, lanes, wide},
};
use crate::{
    Buffer, Result, arguments,
    block::{Resident, ResidentTransposed},
    device::{Argument, Late},
    driver::Address,
};

/// Leading kernel arguments that describe a block's edges.
pub(super) fn edges(block: &Resident) -> [Argument; 6] {
    [
        block.indptr.address().into(),
        block.indices.address().into(),
        Address(0).into(),
        address(block.dst_ids.as_ref()).into(),
        block.num_edges.into(),
        block.num_dst.into(),
    ]
}

/// Leading kernel arguments that describe the edges of its transpose.
pub(super) fn edges_back(block: &Resident, back: &ResidentTransposed) -> [Argument; 6] {
    let [indptr, dst, edge] = [&back.indptr, &back.dst, &back.edge].map(Buffer::address);
    let (edges, own) = (block.num_edges.into(), block.num_dst.into());
    [indptr.into(), dst.into(), edge.into(), Address(0).into(), edges, own]
}

pub(super) fn head_dot(work: &Work, op: HeadDot) -> Result<()> {
    let width = op.width();
    let HeadDot { z, a, heads, out } = op;
    let (rows, lanes) = (z.num_rows(), lanes(width, 1));
    let (z, a, out) = (work.read(z)?, work.read(a)?, work.write(out)?);
    let arguments = arguments![z, rows, heads as u32, width, a, out, lanes];
    // SAFETY: the shapes were checked
    unsafe { work.groups("head_dot", rows * heads, lanes, arguments) }
}

pub(super) fn head_dot_backward(work: &Work, op: HeadDotBackward) -> Result<()> {
    let width = op.width();
    let HeadDotBackward { z, a, heads, grad, z_grad, a_grad } = op;
    let ((rows, cols), lanes, heads) = (of(z), lanes(width, 1), heads as u32);
    let (z, a, grad) = (work.read(z)?, work.read(a)?, work.read(grad)?);
    let (z_grad, a_grad) = (work.change(z_grad)?, work.change(a_grad)?);
    let [across, runs] = columns::grid(rows, cols);
    let partial = Partial::new(work, runs, cols)?;
    let arguments = arguments![grad, rows, heads, width, a, z_grad, lanes];
    // SAFETY: the shapes were checked
    unsafe { work.groups("head_dot_back", rows * heads as usize, lanes, arguments)? };
    let arguments = arguments![grad, z, rows, heads, width, partial.address()];
    // SAFETY: as above; one sum per column of each run
    unsafe { work.blocks("head_dot_sums", [across, runs, 1], arguments)? };
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
    let rest = arguments![source, target, heads as u32, slope, alpha, lanes];
    let arguments = [&edges(resident)[..], rest].concat();
    // SAFETY: the shapes were checked
    unsafe {
        let rows = work.list_rows(resident.indptr.address(), resident.num_edges, rows)?;
        work.rows(["edge_softmax", "edge_softmax_long"], &rows, heads, lanes, &arguments)
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
    let rest =
        arguments![source, target, heads as u32, slope, alpha, alpha_grad, scratch, target_grad, lanes];
    let arguments = [&edges(resident)[..], rest].concat();
    // SAFETY: the shapes were checked
    unsafe {
        let listed = work.list_rows(resident.indptr.address(), resident.num_edges, rows)?;
        work.rows(["edge_softmax_back", "edge_softmax_back_long"], &listed, heads, lanes, &arguments)?;
        work.fill(target_grad.offset(4 * rows * heads), 0.0, (sources - rows) * heads)?;
    }
    let source_grad = work.write(source_grad)?;
    // SAFETY: a transpose has this number of edges and sources
    let listed = unsafe { work.list_rows(back.indptr.address(), back.num_edges, sources)? };
    let lanes = edge_lanes(back.num_edges, sources);
    sum_entries(work, edges_back(resident, back), &listed, lanes, scratch, heads, source_grad)
}

/// Sums a value of each entry over the rows' entries.
pub(super) fn sum_entries(
    work: &Work,
    of: [Argument; 6],
    rows: &Rows,
    lanes: u32,
    values: Address,
    heads: usize,
    out: Address,
) -> Result<()> {
    let arguments = [&of[..], &arguments![values, heads as u32, out, lanes][..]].concat();
    // SAFETY: the caller checked the shapes
    unsafe { work.rows(["sum_entries", "sum_entries_long"], rows, heads, lanes, &arguments) }
}

/// Softmax of `scores` over the entries of these rows, by heads.
pub(super) fn softmax_scores(
    work: &Work,
    of: [Argument; 6],
    rows: &Rows,
    heads: usize,
    scores: Address,
    alpha: Address,
) -> Result<()> {
    let lanes = rows.lanes();
    let (used, key, no_threshold) = (Address(0), Late(0u64), 0u32);
    let rest = arguments![scores, heads as u32, 1.0f32, alpha, used, key, no_threshold, 1.0f32, lanes];
    // SAFETY: the caller checked the shapes
    unsafe {
        let names = ["score_softmax", "score_softmax_long"];
        work.rows(names, rows, heads, lanes, &[&of[..], rest].concat())
    }
}

/// Gradient of [`softmax_scores`], in the place of that of `alpha`.
pub(super) fn softmax_scores_back(
    work: &Work,
    of: [Argument; 6],
    rows: &Rows,
    heads: usize,
    alpha: Address,
    grad: Address,
) -> Result<()> {
    let lanes = rows.lanes();
    // scores are not rectified, so any values take their place
    let (scores, used) = (alpha, alpha);
    let rest = arguments![scores, heads as u32, 1.0f32, alpha, used, grad, lanes];
    // SAFETY: the caller checked the shapes
    unsafe {
        let names = ["score_softmax_back", "score_softmax_back_long"];
        work.rows(names, rows, heads, lanes, &[&of[..], rest].concat())
    }
}

/// Sums of rows `x` over entries, weighted by heads.
pub(super) struct Attention {
    /// Edges of a block or of its transpose.
    pub(super) of: [Argument; 6],
    /// A weight for each entry and head.
    pub(super) alpha: Address,
    pub(super) heads: usize,
    pub(super) width: usize,
    pub(super) x: Address,
}

impl Attention {
    /// Computes the weights of these rows' entries: dot products of `x` and the rows' `by`.
    pub(super) fn dots(&self, work: &Work, rows: &Rows, by: Address) -> Result<()> {
        let &Self { of, alpha, heads, width, x } = self;
        let (names, vector) = if wide(width, &[(x, 4), (by, 4)]) {
            (["attend_dots_4", "attend_dots_4_long"], 4)
        } else {
            (["attend_dots", "attend_dots_long"], 1)
        };
        let lanes = lanes(width, vector);
        let arguments = [&of[..], arguments![by, heads as u32, width, x, alpha, lanes]].concat();
        // SAFETY: the callers checked the shapes
        unsafe { work.rows(names, rows, heads, lanes, &arguments) }
    }

    /// Sums over these rows' entries.
    pub(super) fn sum(&self, work: &Work, rows: &Rows, out: Address) -> Result<()> {
        let &Self { of, alpha, heads, width, x } = self;
        let (names, vector) = if wide(width, &[(x, 4), (out, 4)]) {
            (["attend_rows_4", "attend_rows_4_long"], 4)
        } else {
            (["attend_rows", "attend_rows_long"], 1)
        };
        let lanes = lanes(heads * width, vector);
        let chunks = (heads * width).div_ceil(lanes as usize * vector);
        let arguments = [&of[..], arguments![alpha, heads as u32, width, x, out, lanes]].concat();
        // SAFETY: the callers checked the shapes
        unsafe { work.rows(names, rows, chunks, lanes, &arguments) }
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
    let rows = unsafe { work.list_rows(resident.indptr.address(), resident.num_edges, block.num_dst)? };
    Attention { of: edges(resident), alpha, heads, width, x }.sum(work, &rows, out)
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
            work.list_rows(resident.indptr.address(), resident.num_edges, block.num_dst)?,
            work.list_rows(back.indptr.address(), back.num_edges, back.num_src)?,
        ]
    };
    Attention { of: edges(resident), alpha: alpha_grad, heads, width, x: z }.dots(work, &rows, grad)?;
    let of = edges_back(resident, back);
    Attention { of, alpha, heads, width, x: grad }.sum(work, &sources, z_grad)
}

pub(super) fn head_mean(work: &Work, op: HeadMean) -> Result<()> {
    let HeadMean { x, heads, out } = op;
    let (rows, width) = of(out.as_view());
    let lanes = lanes(width, 1);
    let arguments = arguments![work.read(x)?, rows, heads as u32, width, work.write(out)?, lanes];
    // SAFETY: the shapes were checked
    unsafe { work.groups("head_mean", rows, lanes, arguments) }
}

pub(super) fn head_mean_backward(work: &Work, op: HeadMeanBackward) -> Result<()> {
    let HeadMeanBackward { grad, heads, x_grad } = op;
    let (rows, width) = of(grad);
    let lanes = lanes(width, 1);
    let arguments = arguments![work.read(grad)?, rows, heads as u32, width, work.write(x_grad)?, lanes];
    // SAFETY: the shapes were checked
    unsafe { work.groups("head_mean_back", rows, lanes, arguments) }
}
