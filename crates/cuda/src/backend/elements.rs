//! What follows a product, and back; sums of columns.

use graphmill_core::{View, ViewMut};
use graphmill_nn::backend::{Activation, Dropout};

use super::{
    columns, shape,
    work::{Work, lanes, wide},
};
use crate::{Result, arguments, device::Late, driver::Address};

/// As kernels number activations.
fn number(activation: Activation) -> u32 {
    match activation {
        Activation::Identity => 0,
        Activation::Relu => 1,
        Activation::Elu => 2,
        Activation::LeakyRelu => 3,
    }
}

pub(super) fn epilogue(
    work: &Work,
    bias: Option<View>,
    activation: Activation,
    dropout: Dropout,
    x: ViewMut,
) -> Result<()> {
    let (rows, cols) = shape::of(x.as_view());
    if let Some(bias) = bias {
        shape::row(bias, cols);
    }
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
    // SAFETY: the shapes were checked above
    unsafe { work.groups(name, rows, lanes, arguments) }
}

pub(super) fn epilogue_backward(
    work: &Work,
    activation: Activation,
    dropout: Dropout,
    y: View,
    grad: ViewMut,
    bias_grad: Option<ViewMut>,
) -> Result<()> {
    shape::same(y, grad.as_view());
    let (rows, cols) = shape::of(y);
    if let Some(bias_grad) = &bias_grad {
        shape::row(bias_grad.as_view(), cols);
    }
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
        // SAFETY: the shapes were checked above
        return unsafe { work.groups(name, rows, lanes, arguments) };
    };
    let [across, runs] = columns::grid(rows, cols);
    let partial = columns::partial(work, runs, cols)?;
    let bias_grad = work.change(bias_grad)?;
    #[rustfmt::skip]
    let arguments = arguments![
        y, grad, rows, cols, activation, Late(dropout.key), threshold, scale, partial.address()
    ];
    // SAFETY: the shapes were checked above, and every run has room for its sums
    unsafe { work.blocks("epilogue_backward_sums", [across, runs, 1], arguments)? };
    columns::total(work, &partial, runs, cols, cols, 1, true, [bias_grad; 2])
}

pub(super) fn add_column_sums(work: &Work, x: View, out: ViewMut) -> Result<()> {
    shape::row(out.as_view(), x.num_cols());
    let (x, out, (rows, cols)) = (work.read(x)?, work.change(out)?, shape::of(x));
    sum_columns(work, x, rows, cols, 1, true, out)
}

/// `out` becomes the column sums of `x` over `count`, or they are added to it.
pub(super) fn sum_columns(
    work: &Work,
    x: Address,
    rows: usize,
    cols: usize,
    count: usize,
    keeps: bool,
    out: Address,
) -> Result<()> {
    let [across, runs] = columns::grid(rows, cols);
    let partial = columns::partial(work, runs, cols)?;
    // SAFETY: the caller has as many values there, and every run has room for its sums
    unsafe {
        work.blocks("columns_values", [across, runs, 1], arguments![x, rows, cols, partial.address()])?
    };
    columns::total(work, &partial, runs, cols, cols, count, keeps, [out; 2])
}
