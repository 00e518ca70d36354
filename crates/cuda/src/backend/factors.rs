//! Products with learned factors, which stay on the device.

#![allow(unsafe_code, reason = "device memory and kernels")]

use graphmill_nn::backend::ops::{AddTimes, ScaleHeads, ScaleHeadsBackward, Skip, SkipBackward};

use super::{rows::dot_sums, work::Work};
use crate::{Result, kernels};

pub(super) fn add_times(work: &Work, op: AddTimes) -> Result<()> {
    let AddTimes { factors, at, plus, x, y } = op;
    let count = x.num_rows() * x.num_cols();
    let (factor, x, y) = (work.read(factors)?.offset(at), work.read(x)?, work.change(y)?);
    // SAFETY: the shapes were checked
    unsafe { work.queue.run(count, &kernels::AddTimes { factor, plus, x, y, count }) }
}

pub(super) fn scale_heads(work: &Work, op: ScaleHeads) -> Result<()> {
    let ScaleHeads { factors, x, out } = op;
    let (cols, count) = (x.num_cols(), x.num_rows() * x.num_cols());
    let width = cols / factors.num_cols();
    let (factors, x, out) = (work.read(factors)?, work.read(x)?, work.write(out)?);
    let kernel = kernels::ScaleHeads { factors, x, count, cols, width, onto: false, out };
    // SAFETY: the shapes were checked
    unsafe { work.queue.run(count, &kernel) }
}

pub(super) fn scale_heads_backward(work: &Work, op: ScaleHeadsBackward) -> Result<()> {
    let ScaleHeadsBackward { factors, x, grad, factors_grad, x_grad } = op;
    let (heads, rows, cols) = (factors.num_cols(), x.num_rows(), x.num_cols());
    let (width, count) = (cols / heads, rows * cols);
    let (factors, x, grad) = (work.read(factors)?, work.read(x)?, work.read(grad)?);
    let (factors_grad, x_grad) = (work.change(factors_grad)?, work.change(x_grad)?);
    let of_x = kernels::ScaleHeads { factors, x: grad, count, cols, width, onto: true, out: x_grad };
    let of_factors = kernels::AddHeadDots { x: grad, y: x, rows, cols, width, out: factors_grad };
    // SAFETY: the shapes were checked
    unsafe {
        work.queue.run(count, &of_x)?;
        work.blocks([heads, 1, 1], &of_factors)
    }
}

pub(super) fn skip(work: &Work, op: Skip) -> Result<()> {
    let Skip { skip, x, y } = op;
    let count = x.num_rows() * x.num_cols();
    let kernel = kernels::SkipForward { skip: work.read(skip)?, x: work.read(x)?, count, y: work.change(y)? };
    // SAFETY: the shapes were checked
    unsafe { work.queue.run(count, &kernel) }
}

pub(super) fn skip_backward(work: &Work, op: SkipBackward) -> Result<()> {
    let SkipBackward { skip, x, y, grad, x_grad, skip_grad } = op;
    let count = x.num_rows() * x.num_cols();
    let (with, blocks) = dot_sums(work, grad.as_view(), y)?;
    let (without, _) = dot_sums(work, grad.as_view(), x)?;
    let (skip, skip_grad) = (work.read(skip)?, work.change(skip_grad)?);
    let (grad, x_grad) = (work.change(grad)?, work.change(x_grad)?);
    let (with, without) = (with.read(), without.read());
    let of_skip = kernels::AddSkipGrad { skip, with, without, count: blocks, out: skip_grad };
    // SAFETY: the shapes were checked, and both buffers have a sum for each block
    unsafe {
        work.blocks([1; 3], &of_skip)?;
        work.queue.run(count, &kernels::SkipBackward { skip, count, grad, x_grad })
    }
}
