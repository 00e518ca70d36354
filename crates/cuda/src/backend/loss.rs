//! Losses with their gradients, softmax and sigmoid. A loss stays on the device until the host
//! reads it.

#![allow(unsafe_code, reason = "device memory and kernels")]

use graphmill_core::{View, ViewMut};
use graphmill_nn::backend::ops::{SigmoidCrossEntropy, SoftmaxCrossEntropy, shape};

use super::{rows as values, work::Work};
use crate::{
    Buffer, Result,
    kernels::{self, In, Kernel, Out},
};

/// Rows per block of threads.
const ROWS: usize = 8;
/// Maximum number of blocks of a loss: independent of the device, so that the sum is too.
const BLOCKS: usize = 1024;

/// Operands of a loss on the device, without its targets.
struct Operands {
    logits: In<f32>,
    rows: usize,
    cols: usize,
    weight: Option<In<f32>>,
    scale: f32,
    grad: Out<f32>,
    losses: Out<f64>,
}

/// Runs the kernel of a loss.
fn loss<K: Kernel>(
    work: &Work,
    logits: View,
    weight: &[f32],
    scale: f32,
    grad: ViewMut,
    kernel: impl FnOnce(Operands) -> K,
) -> Result<Option<Buffer<f64>>> {
    let (rows, cols) = shape::of(logits);
    if rows == 0 {
        return Ok(None);
    }
    let weight = (!weight.is_empty()).then(|| work.queue.upload(weight)).transpose()?;
    let blocks = rows.div_ceil(ROWS).min(BLOCKS);
    let mut losses = work.scratch::<f64>(blocks)?;
    let (logits, grad) = (work.read(logits)?, work.write(grad)?);
    let weight = weight.as_ref().map(Buffer::read);
    let kernel = kernel(Operands { logits, rows, cols, weight, scale, grad, losses: losses.write() });
    // SAFETY: the operation checked the shapes, and there is one loss per block
    unsafe { work.blocks([blocks, 1, 1], &kernel)? };
    values::total(work, &losses, blocks, scale).map(Some)
}

pub(super) fn softmax_cross_entropy(work: &Work, op: SoftmaxCrossEntropy) -> Result<Option<Buffer<f64>>> {
    let SoftmaxCrossEntropy { logits, label, weight, scale, grad } = op;
    let labels = work.queue.upload(label)?;
    loss(work, logits, weight, scale, grad, |of| {
        let Operands { logits, rows, cols, weight, scale, grad, losses } = of;
        kernels::SoftmaxLoss { logits, rows, cols, label: labels.read(), weight, scale, grad, losses }
    })
}

pub(super) fn sigmoid_cross_entropy(work: &Work, op: SigmoidCrossEntropy) -> Result<Option<Buffer<f64>>> {
    let SigmoidCrossEntropy { logits, target, weight, scale, grad } = op;
    let targets = work.queue.upload(target)?;
    loss(work, logits, weight, scale, grad, |of| {
        let Operands { logits, rows, cols, weight, scale, grad, losses } = of;
        kernels::SigmoidLoss { logits, rows, cols, target: targets.read(), weight, scale, grad, losses }
    })
}

pub(super) fn softmax(work: &Work, x: ViewMut) -> Result<()> {
    let (rows, cols) = shape::of(x.as_view());
    let kernel = kernels::SoftmaxRows { x: work.change(x)?, rows, cols };
    // SAFETY: the view has this shape
    unsafe { work.groups(rows, 32, &kernel) }
}

pub(super) fn sigmoid(work: &Work, x: ViewMut) -> Result<()> {
    let count = x.num_rows() * x.num_cols();
    let kernel = kernels::SigmoidValues { x: work.change(x)?, count };
    // SAFETY: the view has this shape
    unsafe { work.queue.run(count, &kernel) }
}
