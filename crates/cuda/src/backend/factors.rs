//! Products with learned factors, which stay on the device.

#![allow(unsafe_code, reason = "device memory and kernels")]

use graphmill_nn::backend::ops::{AddTimes, ScaleHeads, ScaleHeadsBackward, Skip, SkipBackward};

use super::{rows::dot_sums, work::Work};
use crate::{Result, arguments};

pub(super) fn add_times(work: &Work, op: AddTimes) -> Result<()> {
    let AddTimes { factors, at, plus, x, y } = op;
    let count = x.num_rows() * x.num_cols();
    let (factor, x, y) = (work.read(factors)?.offset(4 * at), work.read(x)?, work.change(y)?);
    let arguments = arguments![factor, plus, x, y, count];
    // SAFETY: the shapes were checked
    unsafe { work.queue.run("add_times", count, arguments) }
}

pub(super) fn scale_heads(work: &Work, op: ScaleHeads) -> Result<()> {
    let ScaleHeads { factors, x, out } = op;
    let (cols, count) = (x.num_cols(), x.num_rows() * x.num_cols());
    let width = cols / factors.num_cols();
    let arguments =
        arguments![work.read(factors)?, work.read(x)?, count, cols, width, 0u32, work.write(out)?];
    // SAFETY: the shapes were checked
    unsafe { work.queue.run("scale_heads", count, arguments) }
}

pub(super) fn scale_heads_backward(work: &Work, op: ScaleHeadsBackward) -> Result<()> {
    let ScaleHeadsBackward { factors, x, grad, factors_grad, x_grad } = op;
    let (heads, rows, cols) = (factors.num_cols(), x.num_rows(), x.num_cols());
    let (width, count) = (cols / heads, rows * cols);
    let (factors, x, grad) = (work.read(factors)?, work.read(x)?, work.read(grad)?);
    let (factors_grad, x_grad) = (work.change(factors_grad)?, work.change(x_grad)?);
    // SAFETY: the shapes were checked
    unsafe {
        work.queue.run("scale_heads", count, arguments![factors, grad, count, cols, width, 1u32, x_grad])?;
        work.blocks("add_head_dots", [heads, 1, 1], arguments![grad, x, rows, cols, width, factors_grad])
    }
}

pub(super) fn skip(work: &Work, op: Skip) -> Result<()> {
    let Skip { skip, x, y } = op;
    let count = x.num_rows() * x.num_cols();
    let arguments = arguments![work.read(skip)?, work.read(x)?, count, work.change(y)?];
    // SAFETY: the shapes were checked
    unsafe { work.queue.run("skip_forward", count, arguments) }
}

pub(super) fn skip_backward(work: &Work, op: SkipBackward) -> Result<()> {
    let SkipBackward { skip, x, y, grad, x_grad, skip_grad } = op;
    let count = x.num_rows() * x.num_cols();
    let (with, blocks) = dot_sums(work, grad.as_view(), y)?;
    let (without, _) = dot_sums(work, grad.as_view(), x)?;
    let (skip, skip_grad) = (work.read(skip)?, work.change(skip_grad)?);
    let (grad, x_grad) = (work.change(grad)?, work.change(x_grad)?);
    let sums = arguments![skip, with.address(), without.address(), blocks, skip_grad];
    // SAFETY: the shapes were checked, and both buffers have a sum for each block
    unsafe {
        work.blocks("add_skip_grad", [1; 3], sums)?;
        work.queue.run("skip_backward", count, arguments![skip, count, grad, x_grad])
    }
}
