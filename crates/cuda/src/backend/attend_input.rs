//! Attention over input rows, which all heads share.

#![allow(unsafe_code, reason = "device memory and kernels")]

use graphmill_nn::backend::ops::{AttendInput, AttendInputBackward, AttendInputTransposed};

use super::{
    attention::{edges, edges_back, sum_entries},
    columns::{self, Partial, Total},
    shape,
    work::{Work, edge_lanes, lanes, wide},
};
use crate::{
    Result,
    kernels::{self, Late},
};

/// Heads per block of threads.
const HEADS: usize = 4;

pub(super) fn attend_input(work: &Work, op: AttendInput) -> Result<()> {
    let AttendInput { block, x, source, target, slope, dropout, score, alpha, used, out } = op;
    let resident = work.block(block)?;
    let resident = resident.get();
    shape::block(block, resident);
    let (heads, threshold, scale) = (source.num_cols(), dropout.threshold(), dropout.scale());
    let (rows, cols, edge_lanes) =
        (block.num_dst, x.num_cols(), edge_lanes(resident.num_edges, block.num_dst));
    let edges = edges(resident);
    let x = work.table(x)?;
    let (source, target) = (work.read(source)?, work.read(target)?);
    let (score, alpha, out) = (work.write(score)?, work.write(alpha)?, work.write(out)?);
    let used = if threshold != 0 { work.write(used)? } else { alpha };
    let of_heads = heads as u32;

    let kernel = kernels::InputScores { edges, x, cols, source, target, heads: of_heads, rows, score };
    // SAFETY: the shapes were checked above, here and below
    unsafe { work.groups(rows, 32, &kernel)? };

    let kernel = kernels::ScoreSoftmax {
        edges,
        score: score.into(),
        heads: of_heads,
        slope,
        alpha,
        used: Some(used),
        key: Late(dropout.key),
        threshold,
        scale,
        lanes: edge_lanes,
    };
    // SAFETY: see above
    let rows = unsafe {
        let rows = work.list_rows(edges.indptr, resident.num_edges, rows)?;
        work.rows(&rows, heads, edge_lanes, &kernel)?;
        rows
    };

    let wide = wide(cols, &[x.is_wide(), out.is_wide()]);
    let lanes = lanes(cols, wide.vector());
    let chunks = cols.div_ceil(lanes as usize * wide.vector());
    let used = used.into();
    let kernel = kernels::InputRows { edges, x, cols, used, heads: of_heads, out, lanes, wide };
    // SAFETY: see above
    unsafe { work.rows(&rows, chunks, lanes, &kernel) }
}

pub(super) fn attend_input_backward(work: &Work, op: AttendInputBackward) -> Result<()> {
    let AttendInputBackward {
        block,
        x,
        slope,
        score,
        alpha,
        used,
        grad,
        score_grad,
        source_grad,
        target_grad,
    } = op;
    let resident = work.block(block)?;
    let resident = resident.get();
    shape::block(block, resident);
    let heads = score.num_cols();
    let (rows, cols, lanes) = (block.num_dst, x.num_cols(), edge_lanes(resident.num_edges, block.num_dst));
    let edges = edges(resident);
    let x = work.table(x)?;
    let (score, alpha, used, grad) =
        (work.read(score)?, work.read(alpha)?, work.read(used)?, work.read(grad)?);
    let score_grad = work.write(score_grad)?;
    let grads = [work.write(source_grad)?, work.write(target_grad)?];
    let of_heads = heads as u32;

    let kernel = kernels::InputDots { edges, x, cols, grad, heads: of_heads, rows, out: score_grad };
    // SAFETY: the shapes were checked above, here and below
    unsafe { work.groups(rows, 32, &kernel)? };

    let kernel = kernels::ScoreSoftmaxBack {
        edges,
        score,
        heads: of_heads,
        slope,
        alpha,
        used,
        grad: score_grad,
        lanes,
    };
    // SAFETY: see above
    unsafe {
        let listed = work.list_rows(edges.indptr, resident.num_edges, rows)?;
        work.rows(&listed, heads, lanes, &kernel)?;
    }

    let [across, runs] = columns::grid(rows, cols);
    let split = cols * heads;
    let mut partial = Partial::new(work, runs, 2 * split)?;
    let kernel = kernels::InputWeightSums {
        edges,
        x,
        cols,
        score_grad: score_grad.into(),
        heads: of_heads,
        rows,
        partial: partial.write(),
    };
    // SAFETY: see above; one sum per column of each run
    unsafe { work.blocks([across, runs, heads.div_ceil(HEADS)], &kernel)? };
    partial.total(work, Total { count: 1, keeps: false, out: grads, split })
}

pub(super) fn attend_input_transposed(work: &Work, op: AttendInputTransposed) -> Result<()> {
    let AttendInputTransposed { block, source, target, used, grad, score_grad, x_grad } = op;
    let resident = work.block(block)?;
    let resident = resident.get();
    let back = shape::local(block, resident);
    let (heads, rows, cols) = (source.num_cols(), x_grad.num_rows(), x_grad.num_cols());
    let (source, target) = (work.read(source)?, work.read(target)?);
    let (used, grad, score_grad) = (work.read(used)?, work.read(grad)?, work.read(score_grad)?);
    let x_grad = work.write(x_grad)?;
    let mut by_source = work.scratch::<f32>(rows * heads)?;
    let mut by_target = work.scratch::<f32>(block.num_dst * heads)?;
    let transposed = edges_back(resident, back);
    let by = |indptr, edges, rows| {
        // SAFETY: a block and its transpose have these numbers of edges and rows
        unsafe { work.list_rows(indptr, edges, rows) }.map(|listed| (listed, edge_lanes(edges, rows)))
    };
    let (sources, edge_lanes) = by(back.indptr.read(), back.num_edges, rows)?;
    sum_entries(work, transposed, &sources, edge_lanes, score_grad, heads, by_source.write())?;
    let (targets, edge_lanes) = by(resident.indptr.read(), resident.num_edges, block.num_dst)?;
    sum_entries(work, edges(resident), &targets, edge_lanes, score_grad, heads, by_target.write())?;
    let lanes = lanes(cols, 1);
    let kernel = kernels::InputBack {
        edges: transposed,
        used,
        heads: heads as u32,
        grad,
        cols,
        by_source: by_source.read(),
        source,
        by_target: by_target.read(),
        target,
        x_grad,
        lanes,
    };
    // SAFETY: the shapes were checked above
    unsafe { work.rows(&sources, cols.div_ceil(lanes as usize), lanes, &kernel) }
}
