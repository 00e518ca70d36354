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
use crate::{
    Buffer, Result,
    kernels::{self, In, Kernel, Out},
};

pub(super) fn batch_norm(work: &Work, op: BatchNormForward) -> Result<()> {
    let BatchNormForward { x, gamma, beta, eps, mut stats, out } = op;
    let (rows, cols) = shape::of(x);
    let (from, to, count) = (work.read(x)?, work.write(stats.reborrow())?, rows.max(1));
    let mean_of = |to| Total { count, keeps: false, out: [to; 2], split: cols };
    elements::sum_columns(work, from, (rows, cols), mean_of(to))?;
    let [across, runs] = columns::grid(rows, cols);
    let mut partial = Partial::new(work, runs, cols)?;
    let kernel = kernels::ColumnsSquares { x: from, rows, cols, mean: to.into(), partial: partial.write() };
    // SAFETY: the shapes were checked, and there is one sum per column of each run
    unsafe { work.blocks([across, runs, 1], &kernel)? };
    partial.total(work, mean_of(to.offset(cols)))?;
    batch_norm_apply(work, BatchNormApply { x, gamma, beta, eps, stats: stats.as_view(), out })
}

pub(super) fn batch_norm_apply(work: &Work, op: BatchNormApply) -> Result<()> {
    let BatchNormApply { x, gamma, beta, eps, stats, out } = op;
    let ((rows, cols), lanes) = (shape::of(x), lanes(x.num_cols(), 1));
    let [x, gamma, beta, stats] = [work.read(x)?, work.read(gamma)?, work.read(beta)?, work.read(stats)?];
    let out = work.write(out)?;
    let kernel = kernels::BatchNormApply { x, rows, cols, gamma, beta, eps, stats, out, lanes };
    // SAFETY: the shapes were checked
    unsafe { work.groups(rows, lanes, &kernel) }
}

/// Column sums of a gradient of this shape and of its product with normalized rows, whose first
/// stage is `kernel`, on the device; added to the gradients of `beta` and `gamma`.
fn sums<K: Kernel>(
    work: &Work,
    (rows, cols): (usize, usize),
    [beta_grad, gamma_grad]: [ViewMut; 2],
    kernel: impl FnOnce(Out<f64>) -> K,
) -> Result<Buffer<f32>> {
    let [across, runs] = columns::grid(rows, cols);
    let mut partial = Partial::new(work, runs, 2 * cols)?;
    let mut sums = work.scratch::<f32>(2 * cols)?;
    let out = [sums.write(), sums.write().offset(cols)];
    let kernel = kernel(partial.write());
    // SAFETY: the shapes were checked, and there is one sum per column of each run
    unsafe { work.blocks([across, runs, 1], &kernel)? };
    partial.total(work, Total { count: 1, keeps: false, out, split: cols })?;
    let [beta_sums, gamma_sums] = out.map(In::from);
    values::add_values(work, 1.0, beta_sums, work.change(beta_grad)?, cols)?;
    values::add_values(work, 1.0, gamma_sums, work.change(gamma_grad)?, cols)?;
    Ok(sums)
}

pub(super) fn batch_norm_backward(work: &Work, op: BatchNormBackward) -> Result<()> {
    let BatchNormBackward { x, gamma, eps, stats, grad, gamma_grad, beta_grad } = op;
    let ((rows, cols), lanes) = (shape::of(x), lanes(x.num_cols(), 1));
    let (x, gamma, stats, grad) = (work.read(x)?, work.read(gamma)?, work.read(stats)?, work.change(grad)?);
    let sums = sums(work, (rows, cols), [beta_grad, gamma_grad], |partial| kernels::BatchNormSums {
        x,
        grad: grad.into(),
        rows,
        cols,
        stats,
        eps,
        partial,
    })?;
    let sums = sums.read();
    let kernel = kernels::BatchNormBack { x, rows, cols, gamma, eps, stats, sums, grad, lanes };
    // SAFETY: the shapes were checked
    unsafe { work.groups(rows, lanes, &kernel) }
}

pub(super) fn layer_norm(work: &Work, op: LayerNormForward) -> Result<()> {
    let LayerNormForward { x, gamma, beta, eps, stats, out } = op;
    let (rows, cols) = shape::of(x);
    let (x, gamma, beta) = (work.read(x)?, work.read(gamma)?, work.read(beta)?);
    let (stats, out) = (work.write(stats)?, work.write(out)?);
    let kernel = kernels::LayerNormForward { x, rows, cols, gamma, beta, eps, stats, out };
    // SAFETY: the shapes were checked
    unsafe { work.groups(rows, 32, &kernel) }
}

pub(super) fn layer_norm_backward(work: &Work, op: LayerNormBackward) -> Result<()> {
    let LayerNormBackward { x, gamma, eps, stats, grad, gamma_grad, beta_grad } = op;
    let (rows, cols) = shape::of(x);
    let (x, gamma, stats, grad) = (work.read(x)?, work.read(gamma)?, work.read(stats)?, work.change(grad)?);
    sums(work, (rows, cols), [beta_grad, gamma_grad], |partial| kernels::LayerNormSums {
        x,
        grad: grad.into(),
        rows,
        cols,
        stats,
        eps,
        partial,
    })?;
    let kernel = kernels::LayerNormBack { x, rows, cols, gamma, eps, stats, grad };
    // SAFETY: the shapes were checked
    unsafe { work.groups(rows, 32, &kernel) }
}

pub(super) fn l2_norm(work: &Work, op: L2NormForward) -> Result<()> {
    let L2NormForward { x, norms, out } = op;
    let (rows, cols) = shape::of(x);
    let (x, norms, out) = (work.read(x)?, work.write(norms)?, work.write(out)?);
    // SAFETY: the shapes were checked
    unsafe { work.groups(rows, 32, &kernels::L2NormForward { x, rows, cols, norms, out }) }
}

pub(super) fn l2_norm_backward(work: &Work, op: L2NormBackward) -> Result<()> {
    let L2NormBackward { y, norms, grad } = op;
    let (rows, cols) = shape::of(y);
    let (y, norms, grad) = (work.read(y)?, work.read(norms)?, work.change(grad)?);
    // SAFETY: the shapes were checked
    unsafe { work.groups(rows, 32, &kernels::L2NormBack { y, rows, cols, norms, grad }) }
}
