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
use crate::{Result, arguments, device::Late, driver::Address};

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
    let bias = bias.map_or(Ok(Address(0)), |bias| work.read(bias))?;
    let x = work.change(x)?;
    let (name, vector) =
        if wide(cols, &[(x, 4), (bias, 4)]) { ("epilogue_forward_4", 4) } else { ("epilogue_forward", 1) };
    let lanes = lanes(cols, vector);
    let arguments =
        arguments![x, rows, cols, bias, number(activation), Late(dropout.key), threshold, scale, lanes];
    // SAFETY: the shapes were checked
    unsafe { work.groups(name, rows, lanes, arguments) }
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
    let activation = number(activation);
    let Some(bias_grad) = bias_grad else {
        let is_wide = wide(cols, &[(y, 4), (grad, 4)]);
        let (name, vector) = if is_wide { ("epilogue_backward_4", 4) } else { ("epilogue_backward", 1) };
        let lanes = lanes(cols, vector);
        let arguments =
            arguments![y, grad, rows, cols, activation, Late(dropout.key), threshold, scale, lanes];
        // SAFETY: the shapes were checked
        return unsafe { work.groups(name, rows, lanes, arguments) };
    };
    let [across, runs] = columns::grid(rows, cols);
    let partial = Partial::new(work, runs, cols)?;
    let bias_grad = work.change(bias_grad)?;
    #[rustfmt::skip]
    let arguments = arguments![
        y, grad, rows, cols, activation, Late(dropout.key), threshold, scale, partial.address()
    ];
    // SAFETY: the shapes were checked, and there is one sum per column of each run
    unsafe { work.blocks("epilogue_backward_sums", [across, runs, 1], arguments)? };
    partial.add_to(work, bias_grad)
}

pub(super) fn gelu(work: &Work, op: GeluForward) -> Result<()> {
    let GeluForward { x, out } = op;
    let count = x.num_rows() * x.num_cols();
    let arguments = arguments![work.read(x)?, count, work.write(out)?];
    // SAFETY: the shapes were checked
    unsafe { work.queue.run("gelu_forward", count, arguments) }
}

pub(super) fn gelu_backward(work: &Work, op: GeluBackward) -> Result<()> {
    let GeluBackward { x, grad } = op;
    let count = x.num_rows() * x.num_cols();
    let arguments = arguments![work.read(x)?, count, work.change(grad)?];
    // SAFETY: the shapes were checked
    unsafe { work.queue.run("gelu_backward", count, arguments) }
}

pub(super) fn add_column_sums(work: &Work, x: View, out: ViewMut) -> Result<()> {
    shape::row(out.as_view(), x.num_cols());
    let (x, out, (rows, cols)) = (work.read(x)?, work.change(out)?, shape::of(x));
    sum_columns(work, x, (rows, cols), Total { count: 1, keeps: true, out: [out; 2], split: cols })
}

/// Computes the column sums of `x`, which has this shape.
pub(super) fn sum_columns(work: &Work, x: Address, (rows, cols): (usize, usize), to: Total) -> Result<()> {
    let [across, runs] = columns::grid(rows, cols);
    let partial = Partial::new(work, runs, cols)?;
    // SAFETY: the caller ensures that many values, and there is one sum per column of each run
    unsafe {
        work.blocks("columns_values", [across, runs, 1], arguments![x, rows, cols, partial.address()])?
    };
    partial.total(work, to)
}
