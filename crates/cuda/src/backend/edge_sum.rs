//! Sums over edges of functions of the sources' rows and the edges' rows.

use graphmill_core::View;
use graphmill_nn::backend::ops::{Gated, GatedSum, GatedSumBackward, ReluSum, ReluSumBackward};

use super::{
    edge_rows::EdgeRows,
    work::{Work, lanes},
};
use crate::{
    Buffer, Result,
    kernels::{self, GatedRows},
};

pub(super) fn relu_sum(work: &Work, op: ReluSum) -> Result<()> {
    let ReluSum { block, x, edge, out } = op;
    let resident = work.block(block)?;
    let (cols, lanes) = (x.num_cols(), lanes(x.num_cols(), 1));
    let (x, edge, out) = (work.read(x)?, work.read(edge)?, work.write(out)?);
    let rows = EdgeRows::new(work, block, resident.get())?.alone();
    rows.sum(work, cols, lanes, &kernels::ReluSum { edges: rows.edges, x, edge, out, cols, lanes })
}

pub(super) fn relu_sum_backward(work: &Work, op: ReluSumBackward) -> Result<()> {
    let ReluSumBackward { block, x, edge, grad, x_grad, edge_grad } = op;
    let resident = work.block(block)?;
    let (resident, cols, lanes) = (resident.get(), x.num_cols(), lanes(x.num_cols(), 1));
    let edge_grad = work.write(edge_grad)?;
    let (x, edge, grad) = (work.read(x)?, work.read(edge)?, work.read(grad)?);
    let rows = EdgeRows::new(work, block, resident)?.alone();
    let kernel = kernels::ReluSumBack { edges: rows.edges, x, edge, grad, edge_grad, cols, lanes };
    rows.sum(work, cols, lanes, &kernel)?;
    let Some(x_grad) = x_grad else { return Ok(()) };
    let sources = EdgeRows::transposed(work, block, resident)?.alone();
    sources.sum_rows(work, edge_grad.into(), cols, false, work.write(x_grad)?)
}

/// Rows of a gated sum on the device.
fn gated(work: &Work, of: Gated) -> Result<GatedRows> {
    let [gate, value] = [0, 1].map(|part| of.edge.map(|edge| edge[part]));
    let edge = |x: Option<View>| x.map(|x| work.read(x)).transpose();
    Ok(GatedRows {
        target: work.read(of.target)?,
        source: work.read(of.source)?,
        value: work.read(of.value)?,
        edge_gate: edge(gate)?,
        edge_value: edge(value)?,
    })
}

pub(super) fn gated_sum(work: &Work, op: GatedSum) -> Result<()> {
    let GatedSum { of, out } = op;
    let resident = work.block(of.block)?;
    let (cols, lanes) = (of.source.num_cols(), lanes(of.source.num_cols(), 1));
    let (of_rows, out) = (gated(work, of)?, work.write(out)?);
    let rows = EdgeRows::new(work, of.block, resident.get())?.alone();
    rows.sum(work, cols, lanes, &kernels::GatedSum { edges: rows.edges, of: of_rows, out, cols, lanes })
}

pub(super) fn gated_sum_backward(work: &Work, op: GatedSumBackward) -> Result<()> {
    let GatedSumBackward { of, grad, target_grad, source_grad, value_grad, edge_grad } = op;
    let resident = work.block(of.block)?;
    let (resident, cols, lanes) = (resident.get(), of.source.num_cols(), lanes(of.source.num_cols(), 1));
    let mut scratch: [Option<Buffer<f32>>; 2] = [None, None];
    let [of_gates, of_values] = match edge_grad {
        Some([gate, value]) => [work.write(gate)?, work.write(value)?],
        None => {
            let [gate, value] = &mut scratch;
            let of_edges = || work.scratch(resident.num_edges * cols);
            [gate.insert(of_edges()?).write(), value.insert(of_edges()?).write()]
        }
    };
    let (of_rows, grad, target_grad) = (gated(work, of)?, work.read(grad)?, work.write(target_grad)?);
    let rows = EdgeRows::new(work, of.block, resident)?.alone();
    let kernel = kernels::GatedSumBack {
        edges: rows.edges,
        of: of_rows,
        grad,
        gate_grad: of_gates,
        value_grad: of_values,
        target_grad,
        cols,
        lanes,
    };
    rows.sum(work, cols, lanes, &kernel)?;
    let sources = EdgeRows::transposed(work, of.block, resident)?.alone();
    sources.sum_rows(work, of_gates.into(), cols, false, work.write(source_grad)?)?;
    sources.sum_rows(work, of_values.into(), cols, false, work.write(value_grad)?)
}
