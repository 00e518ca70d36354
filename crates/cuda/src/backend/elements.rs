//! Epilogues of products, and their gradients; column sums.

#![allow(unsafe_code, reason = "device memory and kernels")]

use graphmill_core::{View, ViewMut};
use graphmill_nn::backend::{
    Activation,
    ops::{EpilogueBackward, EpilogueForward, GeluBackward, GeluForward, shape},
};

use super::{
    columns::{self, Partial, Total},
    work::{Work, lanes, wide},
};
use crate::{
    Result,
    kernels::{self, In, Late},
};

/// Number of an activation in the kernels.
fn number(activation: Activation) -> u32 {
    match activation {
        Activation::Identity => 0,
        Activation::Relu => 1,
        Activation::Elu => 2,
        Activation::LeakyRelu => 3,
    }
}

pub(super) fn epilogue(work: &Work, op: EpilogueForward) -> Result<()> {
    let EpilogueForward { bias, activation, dropout, x } = op;
    let (rows, cols) = shape::of(x.as_view());
    let (threshold, scale) = (dropout.threshold(), dropout.scale());
    if bias.is_none() && activation == Activation::Identity && threshold == 0 {
        return Ok(());
    }
    let bias = bias.map(|bias| work.read(bias)).transpose()?;
    let x = work.change(x)?;
    let wide = wide(cols, &[x.is_wide(), bias.is_none_or(In::is_wide)]);
    let lanes = lanes(cols, wide.vector());
    let (activation, key) = (number(activation), Late(dropout.key));
    let kernel =
        kernels::EpilogueForward { x, rows, cols, bias, activation, key, threshold, scale, lanes, wide };
    // SAFETY: the shapes were checked
    unsafe { work.groups(rows, lanes, &kernel) }
}

pub(super) fn epilogue_backward(work: &Work, op: EpilogueBackward) -> Result<()> {
    let EpilogueBackward { activation, dropout, y, grad, bias_grad } = op;
    let (rows, cols) = shape::of(y);
    let (threshold, scale) = (dropout.threshold(), dropout.scale());
    if activation == Activation::Identity && threshold == 0 {
        return match bias_grad {
            Some(bias_grad) => add_column_sums(work, grad.as_view(), bias_grad),
            None => Ok(()),
        };
    }
    let (y, grad) = (work.read(y)?, work.change(grad)?);
    let (activation, key) = (number(activation), Late(dropout.key));
    let Some(bias_grad) = bias_grad else {
        let wide = wide(cols, &[y.is_wide(), grad.is_wide()]);
        let lanes = lanes(cols, wide.vector());
        let kernel =
            kernels::EpilogueBackward { y, grad, rows, cols, activation, key, threshold, scale, lanes, wide };
        // SAFETY: the shapes were checked
        return unsafe { work.groups(rows, lanes, &kernel) };
    };
    let [across, runs] = columns::grid(rows, cols);
    let mut partial = Partial::new(work, runs, cols)?;
    let bias_grad = work.change(bias_grad)?;
    let kernel = kernels::EpilogueBackwardSums {
        y,
        grad,
        rows,
        cols,
        activation,
        key,
        threshold,
        scale,
        partial: partial.write(),
    };
    // SAFETY: the shapes were checked, and there is one sum per column of each run
    unsafe { work.blocks([across, runs, 1], &kernel)? };
    partial.add_to(work, bias_grad)
}

pub(super) fn gelu(work: &Work, op: GeluForward) -> Result<()> {
    let GeluForward { x, out } = op;
    let count = x.num_rows() * x.num_cols();
    let kernel = kernels::GeluForward { x: work.read(x)?, count, out: work.write(out)? };
    // SAFETY: the shapes were checked
    unsafe { work.queue.run(count, &kernel) }
}

pub(super) fn gelu_backward(work: &Work, op: GeluBackward) -> Result<()> {
    let GeluBackward { x, grad } = op;
    let count = x.num_rows() * x.num_cols();
    let kernel = kernels::GeluBackward { x: work.read(x)?, count, grad: work.change(grad)? };
    // SAFETY: the shapes were checked
    unsafe { work.queue.run(count, &kernel) }
}

pub(super) fn add_column_sums(work: &Work, x: View, out: ViewMut) -> Result<()> {
    shape::row(out.as_view(), x.num_cols());
    let (x, out, (rows, cols)) = (work.read(x)?, work.change(out)?, shape::of(x));
    sum_columns(work, x, (rows, cols), Total { count: 1, keeps: true, out: [out; 2], split: cols })
}

/// Computes the column sums of `x`, which has this shape.
pub(super) fn sum_columns(work: &Work, x: In<f32>, (rows, cols): (usize, usize), to: Total) -> Result<()> {
    let [across, runs] = columns::grid(rows, cols);
    let mut partial = Partial::new(work, runs, cols)?;
    let kernel = kernels::ColumnsValues { x, rows, cols, partial: partial.write() };
    // SAFETY: the caller ensures that many values, and there is one sum per column of each run
    unsafe { work.blocks([across, runs, 1], &kernel)? };
    partial.total(work, to)
}
