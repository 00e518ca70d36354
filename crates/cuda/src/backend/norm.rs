//! Normalisations.

use graphmill_core::{View, ViewMut};
use graphmill_nn::backend::ops::NormBackward;

use super::{
    columns, elements, rows as values, shape,
    work::{Work, lanes},
};
use crate::{Buffer, Result, arguments, driver::Address};

pub(super) fn batch_norm(
    work: &Work,
    x: View,
    gamma: View,
    beta: View,
    eps: f32,
    mut stats: ViewMut,
    out: ViewMut,
) -> Result<()> {
    shape::columns_norm(x, gamma, beta, stats.as_view(), out.as_view());
    let (rows, cols) = shape::of(x);
    let (from, to, count) = (work.read(x)?, work.write(stats.reborrow())?, rows.max(1));
    elements::sum_columns(work, from, rows, cols, count, false, to)?;
    let [across, runs] = columns::grid(rows, cols);
    let partial = columns::partial(work, runs, cols)?;
    let arguments = arguments![from, rows, cols, to, partial.address()];
    // SAFETY: the shapes were checked above, and every run has room for its sums
    unsafe { work.blocks("columns_squares", [across, runs, 1], arguments)? };
    columns::total(work, &partial, runs, cols, cols, count, false, [to.offset(4 * cols); 2])?;
    batch_norm_apply(work, x, gamma, beta, eps, stats.as_view(), out)
}

pub(super) fn batch_norm_apply(
    work: &Work,
    x: View,
    gamma: View,
    beta: View,
    eps: f32,
    stats: View,
    out: ViewMut,
) -> Result<()> {
    shape::columns_norm(x, gamma, beta, stats, out.as_view());
    let ((rows, cols), lanes) = (shape::of(x), lanes(x.num_cols(), 1));
    let [x, gamma, beta, stats] = [work.read(x)?, work.read(gamma)?, work.read(beta)?, work.read(stats)?];
    let arguments = arguments![x, rows, cols, gamma, beta, eps, stats, work.write(out)?, lanes];
    // SAFETY: the shapes were checked above
    unsafe { work.groups("batch_norm_apply", rows, lanes, arguments) }
}

/// The column sums of a gradient and of its product with normalised rows, on the device; added to those of
/// `beta` and `gamma`.
#[allow(clippy::too_many_arguments, reason = "a kernel's arguments")]
fn sums(
    work: &Work,
    name: &'static str,
    x: Address,
    grad: Address,
    (rows, cols): (usize, usize),
    stats: Address,
    eps: f32,
    [beta_grad, gamma_grad]: [ViewMut; 2],
) -> Result<Buffer> {
    let [across, runs] = columns::grid(rows, cols);
    let partial = columns::partial(work, runs, 2 * cols)?;
    let sums = work.scratch::<f32>(2 * cols)?;
    let (beta_sums, gamma_sums) = (sums.address(), sums.address().offset(4 * cols));
    let arguments = arguments![x, grad, rows, cols, stats, eps, partial.address()];
    // SAFETY: the operation checked the shapes, and every run has room for its sums
    unsafe { work.blocks(name, [across, runs, 1], arguments)? };
    columns::total(work, &partial, runs, 2 * cols, cols, 1, false, [beta_sums, gamma_sums])?;
    values::add_values(work, 1.0, beta_sums, work.change(beta_grad)?, cols)?;
    values::add_values(work, 1.0, gamma_sums, work.change(gamma_grad)?, cols)?;
    Ok(sums)
}

pub(super) fn batch_norm_backward(work: &Work, op: NormBackward) -> Result<()> {
    let NormBackward { x, gamma, eps, stats, grad, gamma_grad, beta_grad } = op;
    shape::columns_norm(x, gamma, beta_grad.as_view(), stats, grad.as_view());
    shape::same(gamma, gamma_grad.as_view());
    let ((rows, cols), lanes) = (shape::of(x), lanes(x.num_cols(), 1));
    let (x, gamma, stats, grad) = (work.read(x)?, work.read(gamma)?, work.read(stats)?, work.change(grad)?);
    let grads = [beta_grad, gamma_grad];
    let sums = sums(work, "batch_norm_sums", x, grad, (rows, cols), stats, eps, grads)?;
    let arguments = arguments![x, rows, cols, gamma, eps, stats, sums.address(), grad, lanes];
    // SAFETY: the shapes were checked above
    unsafe { work.groups("batch_norm_back", rows, lanes, arguments) }
}

pub(super) fn layer_norm(
    work: &Work,
    x: View,
    gamma: View,
    beta: View,
    eps: f32,
    stats: ViewMut,
    out: ViewMut,
) -> Result<()> {
    shape::rows_norm(x, gamma, beta, stats.as_view(), out.as_view());
    let (rows, cols) = shape::of(x);
    let (x, gamma, beta) = (work.read(x)?, work.read(gamma)?, work.read(beta)?);
    let arguments = arguments![x, rows, cols, gamma, beta, eps, work.write(stats)?, work.write(out)?];
    // SAFETY: the shapes were checked above
    unsafe { work.groups("layer_norm_forward", rows, 32, arguments) }
}

pub(super) fn layer_norm_backward(work: &Work, op: NormBackward) -> Result<()> {
    let NormBackward { x, gamma, eps, stats, grad, gamma_grad, beta_grad } = op;
    shape::rows_norm(x, gamma, beta_grad.as_view(), stats, grad.as_view());
    shape::same(gamma, gamma_grad.as_view());
    let (rows, cols) = shape::of(x);
    let (x, gamma, stats, grad) = (work.read(x)?, work.read(gamma)?, work.read(stats)?, work.change(grad)?);
    sums(work, "layer_norm_sums", x, grad, (rows, cols), stats, eps, [beta_grad, gamma_grad])?;
    // SAFETY: the shapes were checked above
    unsafe { work.groups("layer_norm_back", rows, 32, arguments![x, rows, cols, gamma, eps, stats, grad]) }
}

pub(super) fn l2_norm(work: &Work, x: View, norms: ViewMut, out: ViewMut) -> Result<()> {
    shape::l2_norm(x, norms.as_view(), out.as_view());
    let (rows, cols) = shape::of(x);
    let arguments = arguments![work.read(x)?, rows, cols, work.write(norms)?, work.write(out)?];
    // SAFETY: the shapes were checked above
    unsafe { work.groups("l2_norm_forward", rows, 32, arguments) }
}

pub(super) fn l2_norm_backward(work: &Work, y: View, norms: View, grad: ViewMut) -> Result<()> {
    shape::l2_norm(y, norms, grad.as_view());
    let (rows, cols) = shape::of(y);
    let arguments = arguments![work.read(y)?, rows, cols, work.read(norms)?, work.change(grad)?];
    // SAFETY: the shapes were checked above
    unsafe { work.groups("l2_norm_back", rows, 32, arguments) }
}
