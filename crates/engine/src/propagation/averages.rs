//! Means of targets by the weights of a propagation: shares of labels, and values.

use std::ops::{Range, RangeInclusive};

use graphmill_core::{Labels, NodeId, Result, spread::Spread};
use graphmill_nn::Matrix;
use rayon::prelude::*;

use super::{Known, MIN, PropagationOptions, spread};

/// Range of values: all of them.
const ALL: RangeInclusive<f32> = f32::MIN..=f32::MAX;

/// Mean of the training targets near each node; the mean of all for a node that none reaches.
pub(super) fn labels(known: &Known, options: &PropagationOptions) -> Result<Matrix> {
    let width = known.outputs;
    let mut start = unknown(known.paths.num_nodes(), width);
    let (mut sums, mut counts) = (vec![0.0f64; width], vec![0u64; width]);
    for (row, of_node) in of_training(known) {
        for (c, value) in of_node.into_iter().enumerate().filter(|(_, value)| !value.is_nan()) {
            start.view_mut().host()[row.start + c] = value;
            sums[c] += f64::from(value);
            counts[c] += 1;
        }
    }
    let means: Vec<f32> =
        sums.iter().zip(&counts).map(|(sum, &count)| (sum / count.max(1) as f64) as f32).collect();
    let mut out = Matrix::zeros(known.paths.num_nodes(), width);
    out.view_mut().host().par_chunks_exact_mut(width).for_each(|row| row.copy_from_slice(&means));
    let (steps, alpha) = (options.propagation_steps, options.propagation_alpha);
    average(known, &Spread::new(&known.paths), start, (steps, alpha), &mut out)?;
    Ok(out)
}

/// Adds the mean of the training errors near each node to its outputs, then averages the outputs,
/// with the true targets at the training nodes. Outputs that nothing reaches stay.
pub(super) fn correct_and_smooth(
    known: &Known,
    options: &PropagationOptions,
    mut outputs: Matrix,
) -> Result<Matrix> {
    let (count, width, steps) = (known.paths.num_nodes(), known.outputs, options.propagation_steps);
    let over = Spread::new(&known.paths);
    let mut errors = unknown(count, width);
    for (row, of_node) in of_training(known) {
        let from = &outputs.view().host()[row.clone()];
        let to = &mut errors.view_mut().host()[row];
        for ((to, from), value) in to.iter_mut().zip(from).zip(of_node) {
            *to = value - from;
        }
    }
    let mut correction = Matrix::zeros(count, width);
    average(known, &over, errors, (steps, options.correction_alpha), &mut correction)?;
    let range = if known.labels.is_values() { ALL } else { 0.0..=1.0 };
    let to = outputs.view_mut().host().par_iter_mut();
    to.zip(correction.view().host()).for_each(|(x, add)| *x = (*x + add).clamp(*range.start(), *range.end()));
    for (row, of_node) in of_training(known) {
        let to = &mut outputs.view_mut().host()[row];
        to.iter_mut().zip(of_node).filter(|(_, value)| !value.is_nan()).for_each(|(to, value)| *to = value);
    }
    let start = outputs.clone();
    average(known, &over, start, (steps, options.propagation_alpha), &mut outputs)?;
    Ok(outputs)
}

/// Rows without a known target.
fn unknown(rows: usize, width: usize) -> Matrix {
    let mut out = Matrix::zeros(rows, width);
    out.view_mut().host().fill(f32::NAN);
    out
}

/// Place of the row of each training node, and its targets, NaN if unknown.
fn of_training<'k>(known: &Known<'k>) -> impl Iterator<Item = (Range<usize>, Vec<f32>)> + 'k {
    let (labels, width) = (known.labels, known.outputs);
    known.train.iter().map(move |&v: &NodeId| {
        let row = v as usize * width..(v as usize + 1) * width;
        let targets = match labels {
            Labels::Multi { member, .. } => member[row.clone()].iter().map(|&x| f32::from(x)).collect(),
            Labels::Values { values, .. } => values[row.clone()].to_vec(),
            Labels::Single { .. } | Labels::Columns { .. } => Vec::new(),
        };
        (row, targets)
    })
}

/// Replaces each value of `out` by the mean of the known values of `start` (`V x C`, NaN if
/// unknown), weighted by `steps` of propagation; a value without weight stays.
fn average(
    known: &Known,
    over: &Spread,
    mut start: Matrix,
    (steps, alpha): (usize, f32),
    out: &mut Matrix,
) -> Result<()> {
    let (count, width) = (start.num_rows(), start.num_cols());
    // one column of weights if all values of a row are known or none is
    let is_even = |row: &[f32]| row.iter().all(|x| x.is_nan() == row[0].is_nan());
    let is_shared = start.view().host().par_chunks_exact(width).all(is_even);
    let columns = if is_shared { 1 } else { width };
    let mut weights = Matrix::zeros(count, columns);
    let rows = weights.view_mut().host().par_chunks_exact_mut(columns);
    rows.zip(start.view_mut().host().par_chunks_exact_mut(width)).for_each(|(weights, row)| {
        weights.iter_mut().zip(&*row).for_each(|(weight, x)| *weight = f32::from(u8::from(!x.is_nan())));
        row.iter_mut().filter(|x| x.is_nan()).for_each(|x| *x = 0.0);
    });
    let weights = spread(known, over, &weights, steps, alpha, 0.0..=f32::MAX)?;
    let sums = spread(known, over, &start, steps, alpha, ALL)?;
    let of_nodes =
        sums.view().host().par_chunks_exact(width).zip(weights.view().host().par_chunks_exact(columns));
    out.view_mut().host().par_chunks_exact_mut(width).zip(of_nodes).for_each(|(out, (sums, weights))| {
        for (c, (out, sum)) in out.iter_mut().zip(sums).enumerate() {
            let weight = weights[if is_shared { 0 } else { c }];
            if weight > MIN {
                *out = sum / weight;
            }
        }
    });
    Ok(())
}
