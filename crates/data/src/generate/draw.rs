//! Parallel drawing of edges and feature rows, batch by batch, into a scratch, so that the result
//! may exceed memory.
//!
//! Batches depend only on the numbers of edges and nodes, and every edge and row has a stream of
//! its own, so neither the number of threads nor the batch length affects the result.

use std::ops::Range;

use graphmill_core::{EdgeOptions, Features, Graph, NodeId, Result, features::FeatureData, progress::Unit};
use half::{f16, slice::HalfFloatSliceExt};
use rayon::prelude::*;

use super::{FeatureType, GenerateOptions};
use crate::{
    external::{Rows, Scratch},
    npy::Element,
};

/// Edges of a batch: 32 MiB of ids. Tests use several batches.
const EDGES: usize = if cfg!(test) { 1 << 10 } else { 1 << 22 };
/// Values of a batch of rows: 16 MiB.
const VALUES: usize = if cfg!(test) { 1 << 10 } else { 1 << 22 };

/// Builds the graph of the edges `edge(0)`, `edge(1)`, .. `edge(draws - 1)`, which need not be
/// distinct.
///
/// # Errors
/// Writing to the scratch directory fails.
pub(super) fn graph(
    options: &GenerateOptions,
    scratch: &Scratch,
    nodes: usize,
    draws: usize,
    edge: impl Fn(u64) -> (NodeId, NodeId) + Sync,
) -> Result<Graph> {
    let mut all =
        scratch.edges(if options.directed { EdgeOptions::DIRECTED } else { EdgeOptions::UNDIRECTED });
    edges(scratch, draws, &edge, |src, dst| all.extend(src, dst))?;
    all.build(nodes)
}

/// Passes the ends of the edges `edge(0)`, `edge(1)`, .. `edge(draws - 1)` to `add`, batch by
/// batch.
///
/// # Errors
/// Those of `add`.
pub(super) fn edges(
    scratch: &Scratch,
    draws: usize,
    edge: &(impl Fn(u64) -> (NodeId, NodeId) + Sync),
    mut add: impl FnMut(&[NodeId], &[NodeId]) -> Result<()>,
) -> Result<()> {
    scratch.stage("drawing edges", Some(draws as u64), Unit::Edges);
    let (mut src, mut dst) = (Vec::new(), Vec::new());
    for run in runs(draws, EDGES) {
        let ids = run.clone().into_par_iter().with_min_len(1 << 12);
        ids.map(|e| edge(e as u64)).unzip_into_vecs(&mut src, &mut dst);
        add(&src, &dst)?;
        scratch.done(run.end as u64);
    }
    Ok(())
}

/// Builds features `V x F` of the type in the options, where `fill(v, row)` computes a row of F
/// numbers (rounded to nearest for narrower types). `name` is unique within the scratch.
///
/// # Errors
/// Writing to the scratch directory fails.
pub(super) fn features(
    options: &GenerateOptions,
    (scratch, name): (&Scratch, &str),
    nodes: usize,
    fill: impl Fn(usize, &mut [f32]) + Sync,
) -> Result<Features> {
    let dim = options.dim;
    if dim == 0 {
        return Ok(Features::default());
    }
    scratch.stage("drawing features", Some(nodes as u64), Unit::Rows);
    let data = match options.feature_type {
        FeatureType::F32 => {
            let same = |values: &[f32], to: &mut Rows<f32>| to.extend(values);
            FeatureData::F32(rows(options, (scratch, name), nodes, &fill, same)?.finish()?)
        }
        FeatureType::F16 => {
            let mut half = Vec::new();
            let narrow = |values: &[f32], to: &mut Rows<f16>| {
                half.resize(values.len(), f16::ZERO);
                let pieces = half.par_chunks_mut(1 << 16).zip(values.par_chunks(1 << 16));
                pieces.for_each(|(half, values)| half.convert_from_f32_slice(values));
                to.extend(&half)
            };
            FeatureData::F16(rows(options, (scratch, name), nodes, &fill, narrow)?.finish()?)
        }
    };
    Ok(Features { dim, data })
}

/// Fills batches of rows and passes each to `add`.
fn rows<T: Element>(
    options: &GenerateOptions,
    (scratch, name): (&Scratch, &str),
    nodes: usize,
    fill: &(impl Fn(usize, &mut [f32]) + Sync),
    mut add: impl FnMut(&[f32], &mut Rows<T>) -> Result<()>,
) -> Result<Rows<T>> {
    let dim = options.dim;
    let mut table = scratch.rows(name, dim)?;
    let mut values = Vec::new();
    for run in runs(nodes, (VALUES / dim).max(1)) {
        values.resize(run.len() * dim, 0.0);
        let each = values.par_chunks_exact_mut(dim).with_min_len(1 << 6).enumerate();
        each.for_each(|(i, row)| fill(run.start + i, row));
        add(&values, &mut table)?;
        scratch.done(run.end as u64);
    }
    Ok(table)
}

/// Ranges of `length` covering `0..count`, the last perhaps shorter.
fn runs(count: usize, length: usize) -> impl Iterator<Item = Range<usize>> {
    (0..count).step_by(length).map(move |start| start..start.saturating_add(length).min(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_and_a_single_pass_give_the_same_result() {
        let options = GenerateOptions { dim: 3, directed: true, ..Default::default() };
        let (nodes, draws) = (VALUES, 3 * EDGES + 5);
        let edge = |e: u64| ((e * 7 % nodes as u64) as NodeId, (e * e % nodes as u64) as NodeId);
        let made = graph(&options, &Scratch::in_memory(), nodes, draws, edge).unwrap();
        let (src, dst): (Vec<_>, Vec<_>) = (0..draws as u64).map(edge).unzip();
        let whole = graphmill_core::build(nodes, &src, &dst, EdgeOptions::DIRECTED).unwrap();
        assert_eq!((made.indptr(), made.indices()), (whole.indptr(), whole.indices()));

        let fill =
            |v: usize, row: &mut [f32]| row.iter_mut().zip(0..).for_each(|(x, i)| *x = (v * 3 + i) as f32);
        let made = features(&options, (&Scratch::in_memory(), "features"), nodes, fill).unwrap();
        let FeatureData::F32(data) = &made.data else { panic!("f32 was requested") };
        assert!(data.iter().copied().eq((0..3 * nodes).map(|x| x as f32)));
        let options = GenerateOptions { feature_type: FeatureType::F16, ..options };
        let FeatureData::F16(half) =
            features(&options, (&Scratch::in_memory(), "features"), nodes, fill).unwrap().data
        else {
            panic!("f16 was requested")
        };
        assert!(half.iter().zip(data.iter()).all(|(h, &x)| *h == f16::from_f32(x)));
    }
}
