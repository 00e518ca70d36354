//! Attention (GAT): logits by heads, softmax over edges, weighted sums, and their gradients.

use graphmill_core::{Block, View, ViewMut};
use graphmill_nn::backend::ops::EdgeSoftmaxBackward;

use super::{
    columns, shape,
    work::{Rows, Work, address, edge_lanes, lanes, wide},
};
use crate::{
    Buffer, Result, arguments,
    block::{Resident, ResidentTransposed},
    device::Argument,
    driver::Address,
};

/// What kernels are told of a block's edges first.
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

/// The same of its transpose.
pub(super) fn edges_back(block: &Resident, back: &ResidentTransposed) -> [Argument; 6] {
    let [indptr, dst, edge] = [&back.indptr, &back.dst, &back.edge].map(Buffer::address);
    let (edges, own) = (block.num_edges.into(), block.num_dst.into());
    [indptr.into(), dst.into(), edge.into(), Address(0).into(), edges, own]
}

/// The width of a head of `z`, one value of `out` per row and head.
fn head_dot_shape(z: View, a: View, heads: usize, out: View) -> usize {
    shape::row(a, z.num_cols());
    assert_eq!(shape::of(out), (z.num_rows(), heads), "one value per row and head");
    shape::width(z.num_cols(), heads)
}

pub(super) fn head_dot(work: &Work, z: View, a: View, heads: usize, out: ViewMut) -> Result<()> {
    let width = head_dot_shape(z, a, heads, out.as_view());
    let (rows, lanes) = (z.num_rows(), lanes(width, 1));
    let (z, a, out) = (work.read(z)?, work.read(a)?, work.write(out)?);
    let arguments = arguments![z, rows, heads as u32, width, a, out, lanes];
    // SAFETY: the shapes were checked above
    unsafe { work.groups("head_dot", rows * heads, lanes, arguments) }
}

pub(super) fn head_dot_backward(
    work: &Work,
    z: View,
    a: View,
    heads: usize,
    grad: View,
    z_grad: ViewMut,
    a_grad: ViewMut,
) -> Result<()> {
    let width = head_dot_shape(z, a, heads, grad);
    shape::same(z, z_grad.as_view());
    shape::same(a, a_grad.as_view());
    let ((rows, cols), lanes, heads) = (shape::of(z), lanes(width, 1), heads as u32);
    let (z, a, grad) = (work.read(z)?, work.read(a)?, work.read(grad)?);
    let (z_grad, a_grad) = (work.change(z_grad)?, work.change(a_grad)?);
    let [across, runs] = columns::grid(rows, cols);
    let partial = columns::partial(work, runs, cols)?;
    let arguments = arguments![grad, rows, heads, width, a, z_grad, lanes];
    // SAFETY: the shapes were checked above
    unsafe { work.groups("head_dot_back", rows * heads as usize, lanes, arguments)? };
    let arguments = arguments![grad, z, rows, heads, width, partial.address()];
    // SAFETY: as above; every run has room for its sums
    unsafe { work.blocks("head_dot_sums", [across, runs, 1], arguments)? };
    columns::total(work, &partial, runs, cols, cols, 1, true, [a_grad; 2])
}

/// The number of heads of logits by source.
fn logits(block: &Block, source: View, target: View) -> usize {
    shape::same(source, target);
    assert_eq!(source.num_rows(), block.num_src, "sources of an attention");
    source.num_cols()
}

pub(super) fn edge_softmax(
    work: &Work,
    block: &Block,
    source: View,
    target: View,
    slope: f32,
    alpha: ViewMut,
) -> Result<()> {
    let resident = work.block(block)?;
    let resident = resident.get();
    shape::block(block, resident);
    let (heads, rows) = (logits(block, source, target), block.num_dst);
    shape::entries(resident, heads, alpha.as_view());
    let lanes = edge_lanes(resident.num_edges, rows);
    let (source, target, alpha) = (work.read(source)?, work.read(target)?, work.write(alpha)?);
    let rest = arguments![source, target, heads as u32, slope, alpha, lanes];
    let arguments = [&edges(resident)[..], rest].concat();
    // SAFETY: the shapes were checked above
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
    let heads = logits(block, source, target);
    for x in [alpha, alpha_grad, scratch.as_view()] {
        shape::entries(resident, heads, x);
    }
    shape::source_grad(block, source, source_grad.as_view());
    shape::source_grad(block, target, target_grad.as_view());
    let (rows, sources) = (block.num_dst, back.num_src);
    let lanes = edge_lanes(resident.num_edges, rows);
    let (source, target) = (work.read(source)?, work.read(target)?);
    let (alpha, alpha_grad) = (work.read(alpha)?, work.read(alpha_grad)?);
    let (scratch, target_grad) = (work.write(scratch)?, work.write(target_grad)?);
    let rest =
        arguments![source, target, heads as u32, slope, alpha, alpha_grad, scratch, target_grad, lanes];
    let arguments = [&edges(resident)[..], rest].concat();
    // SAFETY: the shapes were checked above
    unsafe {
        let listed = work.list_rows(resident.indptr.address(), resident.num_edges, rows)?;
        work.rows(["edge_softmax_back", "edge_softmax_back_long"], &listed, heads, lanes, &arguments)?;
        work.fill(target_grad.offset(4 * rows * heads), 0.0, (sources - rows) * heads)?;
    }
    let source_grad = work.write(source_grad)?;
    // SAFETY: a transpose has as many edges and sources
    let listed = unsafe { work.list_rows(back.indptr.address(), back.num_edges, sources)? };
    let lanes = edge_lanes(back.num_edges, sources);
    sum_entries(work, edges_back(resident, back), &listed, lanes, scratch, heads, source_grad)
}

/// The sums over rows' entries of a value of each.
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

/// Sums of rows over entries, weighted by heads.
#[allow(clippy::too_many_arguments, reason = "a kernel's arguments")]
fn attend_rows(
    work: &Work,
    of: [Argument; 6],
    alpha: Address,
    heads: usize,
    width: usize,
    x: Address,
    rows: &Rows,
    out: Address,
) -> Result<()> {
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

/// The number of heads and their width.
fn attend_shape(block: &Block, resident: &Resident, alpha: View, z: View, out: View) -> (usize, usize) {
    let heads = alpha.num_cols();
    shape::entries(resident, heads, alpha);
    assert_eq!(z.num_rows(), block.num_src, "sources of an attention");
    assert_eq!(shape::of(out), (block.num_dst, z.num_cols()), "result of an attention");
    (heads, shape::width(z.num_cols(), heads))
}

pub(super) fn attend(work: &Work, block: &Block, alpha: View, z: View, out: ViewMut) -> Result<()> {
    let resident = work.block(block)?;
    let resident = resident.get();
    shape::block(block, resident);
    let (heads, width) = attend_shape(block, resident, alpha, z, out.as_view());
    let (alpha, z, out) = (work.read(alpha)?, work.read(z)?, work.write(out)?);
    // SAFETY: a block has as many edges and destinations
    let rows = unsafe { work.list_rows(resident.indptr.address(), resident.num_edges, block.num_dst)? };
    attend_rows(work, edges(resident), alpha, heads, width, z, &rows, out)
}

pub(super) fn attend_backward(
    work: &Work,
    block: &Block,
    alpha: View,
    z: View,
    grad: View,
    alpha_grad: ViewMut,
    z_grad: ViewMut,
) -> Result<()> {
    let resident = work.block(block)?;
    let resident = resident.get();
    let back = shape::local(block, resident);
    let (heads, width) = attend_shape(block, resident, alpha, z, grad);
    shape::same(alpha, alpha_grad.as_view());
    shape::source_grad(block, z, z_grad.as_view());
    let (alpha, z, grad) = (work.read(alpha)?, work.read(z)?, work.read(grad)?);
    let (alpha_grad, z_grad) = (work.write(alpha_grad)?, work.write(z_grad)?);
    let (names, vector) = if wide(width, &[(z, 4), (grad, 4)]) {
        (["attend_dots_4", "attend_dots_4_long"], 4)
    } else {
        (["attend_dots", "attend_dots_long"], 1)
    };
    let lanes = lanes(width, vector);
    let rest = arguments![grad, heads as u32, width, z, alpha_grad, lanes];
    let arguments = [&edges(resident)[..], rest].concat();
    // SAFETY: the shapes were checked above
    let sources = unsafe {
        let rows = work.list_rows(resident.indptr.address(), resident.num_edges, block.num_dst)?;
        work.rows(names, &rows, heads, lanes, &arguments)?;
        work.list_rows(back.indptr.address(), back.num_edges, back.num_src)?
    };
    attend_rows(work, edges_back(resident, back), alpha, heads, width, grad, &sources, z_grad)
}

pub(super) fn head_mean(work: &Work, x: View, heads: usize, out: ViewMut) -> Result<()> {
    let (rows, width) = (x.num_rows(), shape::width(x.num_cols(), heads));
    assert_eq!(shape::of(out.as_view()), (rows, width), "mean over heads");
    let lanes = lanes(width, 1);
    let arguments = arguments![work.read(x)?, rows, heads as u32, width, work.write(out)?, lanes];
    // SAFETY: the shapes were checked above
    unsafe { work.groups("head_mean", rows, lanes, arguments) }
}

pub(super) fn head_mean_backward(work: &Work, grad: View, heads: usize, x_grad: ViewMut) -> Result<()> {
    let (rows, width) = (x_grad.num_rows(), shape::width(x_grad.num_cols(), heads));
    assert_eq!(shape::of(grad), (rows, width), "mean over heads");
    let lanes = lanes(width, 1);
    let arguments = arguments![work.read(grad)?, rows, heads as u32, width, work.write(x_grad)?, lanes];
    // SAFETY: the shapes were checked above
    unsafe { work.groups("head_mean_back", rows, lanes, arguments) }
}
