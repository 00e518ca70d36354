//! Losses with their gradients, softmax and sigmoid. A loss stays on the device until the host
//! reads it.

#![allow(unsafe_code, reason = "device memory and kernels")]

use graphmill_core::{View, ViewMut};
use graphmill_nn::backend::ops::{SigmoidCrossEntropy, SoftmaxCrossEntropy, shape};

use super::{
    rows as values,
    work::{Work, address},
};
use crate::{Buffer, Result, arguments};

/// Rows per block of threads.
const ROWS: usize = 8;
/// Maximum number of blocks of a loss: independent of the device, so that the sum is too.
const BLOCKS: usize = 1024;

/// Runs a loss kernel; `targets` are by row or by logit.
fn loss(
    work: &Work,
    name: &'static str,
    logits: View,
    targets: Buffer,
    weight: &[f32],
    scale: f32,
    grad: ViewMut,
) -> Result<Option<Buffer>> {
    let (rows, cols) = shape::of(logits);
    if rows == 0 {
        return Ok(None);
    }
    let weight = (!weight.is_empty()).then(|| work.queue.upload(weight)).transpose()?;
    let blocks = rows.div_ceil(ROWS).min(BLOCKS);
    let losses = work.scratch::<f64>(blocks)?;
    let (logits, grad, weight) = (work.read(logits)?, work.write(grad)?, address(weight.as_ref()));
    let arguments = arguments![logits, rows, cols, targets.address(), weight, scale, grad, losses.address()];
    // SAFETY: the operation checked the shapes, and there is one loss per block
    unsafe { work.blocks(name, [blocks, 1, 1], arguments)? };
    values::total(work, &losses, blocks, scale).map(Some)
}

pub(super) fn softmax_cross_entropy(work: &Work, op: SoftmaxCrossEntropy) -> Result<Option<Buffer>> {
    let SoftmaxCrossEntropy { logits, label, weight, scale, grad } = op;
    loss(work, "softmax_loss", logits, work.queue.upload(label)?, weight, scale, grad)
}

pub(super) fn sigmoid_cross_entropy(work: &Work, op: SigmoidCrossEntropy) -> Result<Option<Buffer>> {
    let SigmoidCrossEntropy { logits, target, weight, scale, grad } = op;
    loss(work, "sigmoid_loss", logits, work.queue.upload(target)?, weight, scale, grad)
}

pub(super) fn softmax(work: &Work, x: ViewMut) -> Result<()> {
    let (rows, cols) = shape::of(x.as_view());
    // SAFETY: the view has this shape
    unsafe { work.groups("softmax_rows", rows, 32, arguments![work.change(x)?, rows, cols]) }
}

pub(super) fn sigmoid(work: &Work, x: ViewMut) -> Result<()> {
    let count = x.num_rows() * x.num_cols();
    // SAFETY: the view has this shape
    unsafe { work.queue.run("sigmoid_values", count, arguments![work.change(x)?, count]) }
}
