//! Attention over input rows, which all heads share.

#![allow(unsafe_code, reason = "device memory and kernels")]

use graphmill_core::matrix::TableType;
use graphmill_nn::backend::ops::{AttendInput, AttendInputBackward, AttendInputTransposed};

use super::{
    attention::{edges, edges_back, sum_entries},
    columns::{self, Partial, Total},
    shape,
    work::{Work, edge_lanes, lanes, wide},
};
use crate::{Result, arguments, device::Late};

/// Heads per block of threads.
const HEADS: usize = 4;

/// The variant of a kernel, or of a pair of kernels, for tables of this type.
fn variant<N: Copy>(kind: TableType, names: [N; 3]) -> N {
    match kind {
        TableType::F32 => names[0],
        TableType::F16 => names[1],
        TableType::Bf16 => names[2],
    }
}

pub(super) fn attend_input(work: &Work, op: AttendInput) -> Result<()> {
    let AttendInput { block, x, source, target, slope, dropout, score, alpha, used, out } = op;
    let resident = work.block(block)?;
    let resident = resident.get();
    shape::block(block, resident);
    let (heads, threshold, scale) = (source.num_cols(), dropout.threshold(), dropout.scale());
    let (rows, cols, edge_lanes) =
        (block.num_dst, x.num_cols(), edge_lanes(resident.num_edges, block.num_dst));
    let edges = edges(resident);
    let (kind, x) = work.table(x)?;
    let (source, target) = (work.read(source)?, work.read(target)?);
    let (score, alpha, out) = (work.write(score)?, work.write(alpha)?, work.write(out)?);
    let used = if threshold != 0 { work.write(used)? } else { alpha };
    let of_heads = heads as u32;

    let name = variant(kind, ["input_scores_f32", "input_scores_f16", "input_scores_bf16"]);
    let arguments = [&edges[..], arguments![x, cols, source, target, of_heads, rows, score]].concat();
    // SAFETY: the shapes were checked above, here and below
    unsafe { work.groups(name, rows, 32, &arguments)? };

    let rest =
        arguments![score, of_heads, slope, alpha, used, Late(dropout.key), threshold, scale, edge_lanes];
    let names = ["score_softmax", "score_softmax_long"];
    // SAFETY: see above
    let rows = unsafe {
        let rows = work.list_rows(resident.indptr.address(), resident.num_edges, rows)?;
        work.rows(names, &rows, heads, edge_lanes, &[&edges[..], rest].concat())?;
        rows
    };

    let (names, vector) = if wide(cols, &[(x, kind.width()), (out, 4)]) {
        (
            [
                ["input_rows_f32_4", "input_rows_f32_4_long"],
                ["input_rows_f16_4", "input_rows_f16_4_long"],
                ["input_rows_bf16_4", "input_rows_bf16_4_long"],
            ],
            4,
        )
    } else {
        (
            [
                ["input_rows_f32", "input_rows_f32_long"],
                ["input_rows_f16", "input_rows_f16_long"],
                ["input_rows_bf16", "input_rows_bf16_long"],
            ],
            1,
        )
    };
    let lanes = lanes(cols, vector);
    let chunks = cols.div_ceil(lanes as usize * vector);
    let arguments = [&edges[..], arguments![x, cols, used, of_heads, out, lanes]].concat();
    // SAFETY: see above
    unsafe { work.rows(variant(kind, names), &rows, chunks, lanes, &arguments) }
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
    let (kind, x) = work.table(x)?;
    let (score, alpha, used, grad) =
        (work.read(score)?, work.read(alpha)?, work.read(used)?, work.read(grad)?);
    let score_grad = work.write(score_grad)?;
    let grads = [work.write(source_grad)?, work.write(target_grad)?];
    let of_heads = heads as u32;

    let name = variant(kind, ["input_dots_f32", "input_dots_f16", "input_dots_bf16"]);
    let arguments = [&edges[..], arguments![x, cols, grad, of_heads, rows, score_grad]].concat();
    // SAFETY: the shapes were checked above, here and below
    unsafe { work.groups(name, rows, 32, &arguments)? };

    let rest = arguments![score, of_heads, slope, alpha, used, score_grad, lanes];
    let names = ["score_softmax_back", "score_softmax_back_long"];
    // SAFETY: see above
    unsafe {
        let listed = work.list_rows(resident.indptr.address(), resident.num_edges, rows)?;
        work.rows(names, &listed, heads, lanes, &[&edges[..], rest].concat())?;
    }

    let [across, runs] = columns::grid(rows, cols);
    let split = cols * heads;
    let partial = Partial::new(work, runs, 2 * split)?;
    let name = variant(kind, ["input_weight_sums_f32", "input_weight_sums_f16", "input_weight_sums_bf16"]);
    let arguments = [&edges[..], arguments![x, cols, score_grad, of_heads, rows, partial.address()]].concat();
    // SAFETY: see above; one sum per column of each run
    unsafe { work.blocks(name, [across, runs, heads.div_ceil(HEADS)], &arguments)? };
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
    let by_source = work.scratch::<f32>(rows * heads)?;
    let by_target = work.scratch::<f32>(block.num_dst * heads)?;
    let (of_source, of_target) = (by_source.address(), by_target.address());
    let transposed = edges_back(resident, back);
    let by = |indptr, edges, rows| {
        // SAFETY: a block and its transpose have these numbers of edges and rows
        unsafe { work.list_rows(indptr, edges, rows) }.map(|listed| (listed, edge_lanes(edges, rows)))
    };
    let (sources, edge_lanes) = by(back.indptr.address(), back.num_edges, rows)?;
    sum_entries(work, transposed, &sources, edge_lanes, score_grad, heads, of_source)?;
    let (targets, edge_lanes) = by(resident.indptr.address(), resident.num_edges, block.num_dst)?;
    sum_entries(work, edges(resident), &targets, edge_lanes, score_grad, heads, of_target)?;
    let lanes = lanes(cols, 1);
    #[rustfmt::skip]
    let rest = arguments![
        used, heads as u32, grad, cols, of_source, source, of_target, target, x_grad, lanes
    ];
    let (names, chunks) = (["input_back", "input_back_long"], cols.div_ceil(lanes as usize));
    // SAFETY: the shapes were checked above
    unsafe { work.rows(names, &sources, chunks, lanes, &[&transposed[..], rest].concat()) }
}
