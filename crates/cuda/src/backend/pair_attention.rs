//! Attention whose scores read both ends of an edge at once.

#![allow(unsafe_code, reason = "device memory and kernels")]

use graphmill_nn::backend::ops::{PairSoftmax, PairSoftmaxBackward};

use super::{
    attention::{softmax_scores, softmax_scores_back},
    columns::Total,
    edge_rows::EdgeRows,
    elements::sum_columns,
    rows::copy_values,
    work::{Work, lanes},
};
use crate::{
    Result,
    kernels::{self, PairRows},
};

pub(super) fn pair_softmax(work: &Work, op: PairSoftmax) -> Result<()> {
    let width = op.width();
    let PairSoftmax { block, left, right, edge, vector, slope, alpha } = op;
    let resident = work.block(block)?;
    let (heads, lanes) = (alpha.num_cols(), lanes(width, 1));
    let mut scores = work.scratch::<f32>(alpha.num_rows() * heads)?;
    let EdgeRows { edges, rows } = EdgeRows::new(work, block, resident.get())?;
    let edge = edge.map(|edge| work.read(edge)).transpose()?;
    let (left, right, vector) = (work.read(left)?, work.read(right)?, work.read(vector)?);
    let of = PairRows { left, right, edge, vector, heads: heads as u32, width, slope };
    let kernel = kernels::PairScores { edges, of, score: scores.write(), lanes };
    // SAFETY: the shapes were checked
    unsafe { work.rows(&rows, heads, lanes, &kernel)? };
    softmax_scores(work, edges, &rows, heads, scores.read(), work.write(alpha)?)
}

pub(super) fn pair_softmax_backward(work: &Work, op: PairSoftmaxBackward) -> Result<()> {
    let (width, heads, entries) = (op.width(), op.alpha.num_cols(), op.alpha.num_rows());
    let PairSoftmaxBackward { block, left, right, edge, vector, slope, alpha, alpha_grad, .. } = op;
    let resident = work.block(block)?;
    let (resident, cols, lanes) = (resident.get(), heads * width, lanes(heads * width, 1));
    let (alpha, score_grad) = (work.read(alpha)?, work.write(op.scratch)?);
    copy_values(work, work.read(alpha_grad)?, score_grad, entries * heads)?;
    let destinations = EdgeRows::new(work, block, resident)?;
    softmax_scores_back(work, destinations.edges, &destinations.rows, heads, alpha, score_grad)?;
    let mut scratch = None;
    let pair_grad = match op.edge_grad {
        Some(grad) => work.write(grad)?,
        None => scratch.insert(work.scratch(entries * cols)?).write(),
    };
    let mut of_vector = work.scratch::<f32>(entries * cols)?;
    let right_grad = work.write(op.right_grad)?;
    let edge = edge.map(|edge| work.read(edge)).transpose()?;
    let (left, right, vector) = (work.read(left)?, work.read(right)?, work.read(vector)?);
    let kernel = kernels::PairBack {
        edges: destinations.edges,
        of: PairRows { left, right, edge, vector, heads: heads as u32, width, slope },
        score_grad: score_grad.into(),
        pair_grad,
        vector_grad: of_vector.write(),
        right_grad,
        lanes,
    };
    destinations.sum(work, cols, lanes, &kernel)?;
    let sources = EdgeRows::transposed(work, block, resident)?;
    sources.sum_rows(work, pair_grad.into(), cols, true, work.change(op.left_grad)?)?;
    let out = work.change(op.vector_grad)?;
    let total = Total { count: 1, keeps: true, out: [out; 2], split: cols };
    sum_columns(work, of_vector.read(), (entries, cols), total)
}
