//! Sums over edges of functions of the sources' rows and the edges' rows.

use graphmill_core::View;
use graphmill_nn::backend::ops::{Gated, GatedSum, GatedSumBackward, ReluSum, ReluSumBackward};

use super::{
    edge_rows::EdgeRows,
    work::{Work, address},
};
use crate::{Buffer, Result, arguments, device::Argument, driver::Address};

pub(super) fn relu_sum(work: &Work, op: ReluSum) -> Result<()> {
    let ReluSum { block, x, edge, out } = op;
    let resident = work.block(block)?;
    let cols = x.num_cols();
    let rest = arguments![work.read(x)?, work.read(edge)?, work.write(out)?, cols];
    let rows = EdgeRows::new(work, block, resident.get())?.alone();
    rows.sum(work, ["relu_sum", "relu_sum_long"], cols, rest)
}

pub(super) fn relu_sum_backward(work: &Work, op: ReluSumBackward) -> Result<()> {
    let ReluSumBackward { block, x, edge, grad, x_grad, edge_grad } = op;
    let resident = work.block(block)?;
    let (resident, cols) = (resident.get(), x.num_cols());
    let edge_grad = work.write(edge_grad)?;
    let rest = arguments![work.read(x)?, work.read(edge)?, work.read(grad)?, edge_grad, cols];
    let rows = EdgeRows::new(work, block, resident)?.alone();
    rows.sum(work, ["relu_sum_back", "relu_sum_back_long"], cols, rest)?;
    let Some(x_grad) = x_grad else { return Ok(()) };
    let sources = EdgeRows::transposed(work, block, resident)?.alone();
    sources.sum_rows(work, edge_grad, cols, false, work.write(x_grad)?)
}

/// Addresses of the rows of a gated sum.
fn gated(work: &Work, of: Gated) -> Result<[Argument; 5]> {
    let [gate, value] = [0, 1].map(|part| of.edge.map(|edge| edge[part]));
    let edge = |x: Option<View>| x.map_or(Ok(Address(0)), |x| work.read(x));
    let all = [work.read(of.target)?, work.read(of.source)?, work.read(of.value)?, edge(gate)?, edge(value)?];
    Ok(all.map(Argument::from))
}

pub(super) fn gated_sum(work: &Work, op: GatedSum) -> Result<()> {
    let GatedSum { of, out } = op;
    let resident = work.block(of.block)?;
    let cols = of.source.num_cols();
    let rest = [&gated(work, of)?[..], arguments![work.write(out)?, cols]].concat();
    let rows = EdgeRows::new(work, of.block, resident.get())?.alone();
    rows.sum(work, ["gated_sum", "gated_sum_long"], cols, &rest)
}

pub(super) fn gated_sum_backward(work: &Work, op: GatedSumBackward) -> Result<()> {
    let GatedSumBackward { of, grad, target_grad, source_grad, value_grad, edge_grad } = op;
    let resident = work.block(of.block)?;
    let (resident, cols) = (resident.get(), of.source.num_cols());
    let mut scratch: [Option<Buffer>; 2] = [None, None];
    let of_edges = match edge_grad {
        Some([gate, value]) => [work.write(gate)?, work.write(value)?],
        None => {
            for scratch in &mut scratch {
                *scratch = Some(work.scratch::<f32>(resident.num_edges * cols)?);
            }
            scratch.each_ref().map(|scratch| address(scratch.as_ref()))
        }
    };
    let [of_gate, of_value] = of_edges;
    let grads = arguments![work.read(grad)?, of_gate, of_value, work.write(target_grad)?, cols];
    let rest = [&gated(work, of)?[..], grads].concat();
    let rows = EdgeRows::new(work, of.block, resident)?.alone();
    rows.sum(work, ["gated_sum_back", "gated_sum_back_long"], cols, &rest)?;
    let sources = EdgeRows::transposed(work, of.block, resident)?.alone();
    sources.sum_rows(work, of_gate, cols, false, work.write(source_grad)?)?;
    sources.sum_rows(work, of_value, cols, false, work.write(value_grad)?)
}
