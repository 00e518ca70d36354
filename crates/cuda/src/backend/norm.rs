//! Normalizations.

#![allow(unsafe_code, reason = "device memory and kernels")]

use graphmill_core::ViewMut;
use graphmill_nn::backend::ops::{
    BatchNormApply, BatchNormBackward, BatchNormForward, L2NormBackward, L2NormForward, LayerNormBackward,
    LayerNormForward, shape,
};

use super::{
    columns::{self, Partial, Total},
    elements, rows as values,
    work::{Work, lanes},
};
use crate::{Buffer, Result, arguments, driver::Address};

pub(super) fn batch_norm(work: &Work, op: BatchNormForward) -> Result<()> {
    let BatchNormForward { x, gamma, beta, eps, mut stats, out } = op;
    let (rows, cols) = shape::of(x);
    let (from, to, count) = (work.read(x)?, work.write(stats.reborrow())?, rows.max(1));
    let mean_of = |to| Total { count, keeps: false, out: [to; 2], split: cols };
    elements::sum_columns(work, from, (rows, cols), mean_of(to))?;
    let [across, runs] = columns::grid(rows, cols);
    let partial = Partial::new(work, runs, cols)?;
    let arguments = arguments![from, rows, cols, to, partial.address()];
    // SAFETY: the shapes were checked, and there is one sum per column of each run
    unsafe { work.blocks("columns_squares", [across, runs, 1], arguments)? };
    partial.total(work, mean_of(to.offset(4 * cols)))?;
    batch_norm_apply(work, BatchNormApply { x, gamma, beta, eps, stats: stats.as_view(), out })
}

pub(super) fn batch_norm_apply(work: &Work, op: BatchNormApply) -> Result<()> {
    let BatchNormApply { x, gamma, beta, eps, stats, out } = op;
    let ((rows, cols), lanes) = (shape::of(x), lanes(x.num_cols(), 1));
    let [x, gamma, beta, stats] = [work.read(x)?, work.read(gamma)?, work.read(beta)?, work.read(stats)?];
    let arguments = arguments![x, rows, cols, gamma, beta, eps, stats, work.write(out)?, lanes];
    // SAFETY: the shapes were checked
    unsafe { work.groups("batch_norm_apply", rows, lanes, arguments) }
}

/// Gradient of normalized rows, on the device.
struct Gradient {
    x: Address,
    grad: Address,
    rows: usize,
    cols: usize,
    stats: Address,
    eps: f32,
}

/// Column sums of a gradient and of its product with normalized rows, on the device; added to the
/// gradients of `beta` and `gamma`.
fn sums(
    work: &Work,
    name: &'static str,
    of: &Gradient,
    [beta_grad, gamma_grad]: [ViewMut; 2],
) -> Result<Buffer> {
    let &Gradient { x, grad, rows, cols, stats, eps } = of;
    let [across, runs] = columns::grid(rows, cols);
    let partial = Partial::new(work, runs, 2 * cols)?;
    let sums = work.scratch::<f32>(2 * cols)?;
    let (beta_sums, gamma_sums) = (sums.address(), sums.address().offset(4 * cols));
    let arguments = arguments![x, grad, rows, cols, stats, eps, partial.address()];
    // SAFETY: the shapes were checked, and there is one sum per column of each run
    unsafe { work.blocks(name, [across, runs, 1], arguments)? };
    let out = [beta_sums, gamma_sums];
    partial.total(work, Total { count: 1, keeps: false, out, split: cols })?;
    values::add_values(work, 1.0, beta_sums, work.change(beta_grad)?, cols)?;
    values::add_values(work, 1.0, gamma_sums, work.change(gamma_grad)?, cols)?;
    Ok(sums)
}

pub(super) fn batch_norm_backward(work: &Work, op: BatchNormBackward) -> Result<()> {
    let BatchNormBackward { x, gamma, eps, stats, grad, gamma_grad, beta_grad } = op;
    let ((rows, cols), lanes) = (shape::of(x), lanes(x.num_cols(), 1));
    let (x, gamma, stats, grad) = (work.read(x)?, work.read(gamma)?, work.read(stats)?, work.change(grad)?);
    let of = Gradient { x, grad, rows, cols, stats, eps };
    let sums = sums(work, "batch_norm_sums", &of, [beta_grad, gamma_grad])?;
    let arguments = arguments![x, rows, cols, gamma, eps, stats, sums.address(), grad, lanes];
    // SAFETY: the shapes were checked
    unsafe { work.groups("batch_norm_back", rows, lanes, arguments) }
}

pub(super) fn layer_norm(work: &Work, op: LayerNormForward) -> Result<()> {
    let LayerNormForward { x, gamma, beta, eps, stats, out } = op;
    let (rows, cols) = shape::of(x);
    let (x, gamma, beta) = (work.read(x)?, work.read(gamma)?, work.read(beta)?);
    let arguments = arguments![x, rows, cols, gamma, beta, eps, work.write(stats)?, work.write(out)?];
    // SAFETY: the shapes were checked
    unsafe { work.groups("layer_norm_forward", rows, 32, arguments) }
}

pub(super) fn layer_norm_backward(work: &Work, op: LayerNormBackward) -> Result<()> {
    let LayerNormBackward { x, gamma, eps, stats, grad, gamma_grad, beta_grad } = op;
    let (rows, cols) = shape::of(x);
    let (x, gamma, stats, grad) = (work.read(x)?, work.read(gamma)?, work.read(stats)?, work.change(grad)?);
    let of = Gradient { x, grad, rows, cols, stats, eps };
    sums(work, "layer_norm_sums", &of, [beta_grad, gamma_grad])?;
    // SAFETY: the shapes were checked
    unsafe { work.groups("layer_norm_back", rows, 32, arguments![x, rows, cols, gamma, eps, stats, grad]) }
}

pub(super) fn l2_norm(work: &Work, op: L2NormForward) -> Result<()> {
    let L2NormForward { x, norms, out } = op;
    let (rows, cols) = shape::of(x);
    let arguments = arguments![work.read(x)?, rows, cols, work.write(norms)?, work.write(out)?];
    // SAFETY: the shapes were checked
    unsafe { work.groups("l2_norm_forward", rows, 32, arguments) }
}

pub(super) fn l2_norm_backward(work: &Work, op: L2NormBackward) -> Result<()> {
    let L2NormBackward { y, norms, grad } = op;
    let (rows, cols) = shape::of(y);
    let arguments = arguments![work.read(y)?, rows, cols, work.read(norms)?, work.change(grad)?];
    // SAFETY: the shapes were checked
    unsafe { work.groups("l2_norm_back", rows, 32, arguments) }
}
