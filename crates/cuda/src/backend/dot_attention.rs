//! Attention by dot products (HGT), over edges alone: destinations have no entries of their own.

#![allow(unsafe_code, reason = "device memory and kernels")]

use graphmill_nn::backend::ops::{DotSoftmax, DotSoftmaxBackward};

use super::{
    attention::{Attention, softmax_scores, softmax_scores_back},
    edge_rows::EdgeRows,
    rows::{copy_values, scale_values},
    work::Work,
};
use crate::Result;

pub(super) fn dot_softmax(work: &Work, op: DotSoftmax) -> Result<()> {
    let width = op.width();
    let DotSoftmax { block, query, key, scale, alpha } = op;
    let resident = work.block(block)?;
    let heads = alpha.num_cols();
    let (entries, own) = (block.num_edges() * heads, block.num_dst * heads);
    let (query, key, alpha) = (work.read(query)?, work.read(key)?, work.write(alpha)?);
    let mut scores = work.scratch::<f32>(entries)?;
    let EdgeRows { edges, rows } = EdgeRows::new(work, block, resident.get())?.alone();
    Attention { edges, heads, width, x: key }.dots(work, &rows, query, scores.write())?;
    scale_values(work, scale, scores.write(), entries)?;
    softmax_scores(work, edges, &rows, heads, scores.read(), alpha)?;
    // SAFETY: the destinations' own entries follow those of the edges
    unsafe { work.fill(alpha.offset(entries).address(), 0.0, own) }
}

pub(super) fn dot_softmax_backward(work: &Work, op: DotSoftmaxBackward) -> Result<()> {
    let DotSoftmaxBackward { block, query, key, scale, alpha, alpha_grad, scratch, query_grad, key_grad } =
        op;
    let resident = work.block(block)?;
    let resident = resident.get();
    let heads = alpha.num_cols();
    let (width, entries) = (key.num_cols() / heads, block.num_edges() * heads);
    let (query, key, alpha) = (work.read(query)?, work.read(key)?, work.read(alpha)?);
    let (alpha_grad, scratch) = (work.read(alpha_grad)?, work.write(scratch)?);
    let EdgeRows { edges, rows } = EdgeRows::new(work, block, resident)?.alone();
    copy_values(work, alpha_grad, scratch, entries)?;
    softmax_scores_back(work, edges, &rows, heads, alpha, scratch)?;
    scale_values(work, scale, scratch, entries)?;
    let alpha = scratch.into();
    Attention { edges, heads, width, x: key }.sum(work, &rows, alpha, work.write(query_grad)?)?;
    let EdgeRows { edges, rows } = EdgeRows::transposed(work, block, resident)?.alone();
    Attention { edges, heads, width, x: query }.sum(work, &rows, alpha, work.write(key_grad)?)
}
