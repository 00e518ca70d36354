//! Attention whose scores read both ends of an edge at once.

#![allow(unsafe_code, reason = "device memory and kernels")]

use graphmill_core::View;
use graphmill_nn::backend::ops::{PairSoftmax, PairSoftmaxBackward};

use super::{
    attention::{softmax_scores, softmax_scores_back},
    columns::Total,
    edge_rows::EdgeRows,
    elements::sum_columns,
    rows::copy_values,
    work::{Work, address, lanes},
};
use crate::{Result, arguments, device::Argument, driver::Address};

/// Rows that the scores read: of both ends, of the entries if there are any, and the vector.
fn pair(work: &Work, [left, right, vector]: [View; 3], edge: Option<View>) -> Result<[Argument; 4]> {
    let edge = edge.map_or(Ok(Address(0)), |edge| work.read(edge))?;
    Ok([work.read(left)?, work.read(right)?, edge, work.read(vector)?].map(Argument::from))
}

pub(super) fn pair_softmax(work: &Work, op: PairSoftmax) -> Result<()> {
    let width = op.width();
    let PairSoftmax { block, left, right, edge, vector, slope, alpha } = op;
    let resident = work.block(block)?;
    let (heads, lanes) = (alpha.num_cols(), lanes(width, 1));
    let scores = work.scratch::<f32>(alpha.num_rows() * heads)?;
    let EdgeRows { of, rows } = EdgeRows::new(work, block, resident.get())?;
    let rest = arguments![heads as u32, width, slope, scores.address(), lanes];
    let arguments = [&of[..], &pair(work, [left, right, vector], edge)?[..], rest].concat();
    // SAFETY: the shapes were checked
    unsafe { work.rows(["pair_scores", "pair_scores_long"], &rows, heads, lanes, &arguments)? };
    softmax_scores(work, of, &rows, heads, scores.address(), work.write(alpha)?)
}

pub(super) fn pair_softmax_backward(work: &Work, op: PairSoftmaxBackward) -> Result<()> {
    let (width, heads, entries) = (op.width(), op.alpha.num_cols(), op.alpha.num_rows());
    let PairSoftmaxBackward { block, left, right, edge, vector, slope, alpha, alpha_grad, .. } = op;
    let resident = work.block(block)?;
    let (resident, cols) = (resident.get(), heads * width);
    let (alpha, score_grad) = (work.read(alpha)?, work.write(op.scratch)?);
    copy_values(work, work.read(alpha_grad)?, score_grad, entries * heads)?;
    let destinations = EdgeRows::new(work, block, resident)?;
    softmax_scores_back(work, destinations.of, &destinations.rows, heads, alpha, score_grad)?;
    let scratch = match op.edge_grad {
        Some(_) => None,
        None => Some(work.scratch::<f32>(entries * cols)?),
    };
    let pair_grad = op.edge_grad.map_or_else(|| Ok(address(scratch.as_ref())), |grad| work.write(grad))?;
    let of_vector = work.scratch::<f32>(entries * cols)?;
    let right_grad = work.write(op.right_grad)?;
    let rest = arguments![heads as u32, width, slope, score_grad, pair_grad, of_vector.address(), right_grad];
    let rest = [&pair(work, [left, right, vector], edge)?[..], rest].concat();
    destinations.sum(work, ["pair_back", "pair_back_long"], cols, &rest)?;
    let sources = EdgeRows::transposed(work, block, resident)?;
    sources.sum_rows(work, pair_grad, cols, true, work.change(op.left_grad)?)?;
    let out = work.change(op.vector_grad)?;
    sum_columns(
        work,
        of_vector.address(),
        (entries, cols),
        Total { count: 1, keeps: true, out: [out; 2], split: cols },
    )
}
