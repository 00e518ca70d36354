//! Application of an order to a dataset.
//!
//! # Algorithm
//!
//! All steps are parallel: the rank of every node (its new id), the lengths of the new rows and
//! their prefix sum, then a copy of every row with mapped ids.
//!
//! # Source
//!
//! Min et al., *Graph neural network training with data tiering*, 2021, Algorithm 2.
//!
//! # Cost
//!
//! O(V + E log d) for rows of d in-neighbours, and O(V F) for the features.
//!
//! # Deviations
//!
//! The paper keeps the order within rows; here rows are sorted, as in every dataset, and all other
//! arrays of the dataset follow.

use std::{ops::Range, time::Instant};

use graphmill_core::{
    Buffer, Error, Features, Graph, Labels, NodeId, Result, SparseRows, Split, features::FeatureData, memory,
    node_order::inverse, progress::Unit,
};
use rayon::prelude::*;
use serde::Serialize;

use super::rows::{gather, indptr, ragged};
use crate::{Dataset, external::Scratch};

/// Durations of the stages of a reordering.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Seconds {
    /// Computing the order.
    pub order: f64,
    /// Relabelling and writing row starts, in-neighbours and edge weights.
    pub topology: f64,
    /// Moving and writing feature rows.
    pub features: f64,
    /// Moving labels, split and original ids.
    pub labels: f64,
    /// Checking the result, writing the remaining arrays, and moving the directory into place.
    pub finish: f64,
}

impl Seconds {
    /// Total duration.
    pub fn sum(&self) -> f64 {
        self.order + self.topology + self.features + self.labels + self.finish
    }
}

/// Relabels the dataset by `order`: node `order[i]` becomes node `i`. Edges and their weights,
/// features, labels, the split and original ids follow; rows are ascending. In a dataset of named
/// graphs, each keeps its range of ids and the order applies within it. Deterministic, parallel;
/// large tables go to the scratch's directory as they are computed.
///
/// # Errors
/// `order` is not a permutation of the nodes, an allocation fails, or writing fails.
pub fn relabel(dataset: &Dataset, order: &[NodeId], scratch: &Scratch) -> Result<(Dataset, Seconds)> {
    let nodes = dataset.num_nodes();
    if order.len() != nodes {
        return Err(Error::invalid(format!("an order of {} nodes, but there are {nodes}", order.len())));
    }
    let mut began = Instant::now();
    let mut lap = || std::mem::replace(&mut began, Instant::now()).elapsed().as_secs_f64();
    let mut seconds = Seconds::default();
    let graphs: Vec<Range<usize>> = dataset.graphs.iter().map(|graph| graph.nodes.clone()).collect();
    let whole = if graphs.len() > 1 { Some(within(order, &graphs)?) } else { None };
    let order = whole.as_deref().unwrap_or(order);
    let rank = inverse(order)?;
    let graph = topology(&dataset.graph, order, &rank, scratch)?;
    seconds.topology = lap();
    let features = features(&dataset.features, order, scratch)?;
    seconds.features = lap();
    let labels = labels(&dataset.labels, order, scratch)?;
    let part = |ids: &Buffer<NodeId>| {
        let mut ids: Vec<NodeId> = ids.par_iter().map(|&v| rank[v as usize]).collect();
        ids.par_sort_unstable();
        ids.into()
    };
    let Split { train, valid, test } = &dataset.split;
    let split = Split { train: part(train), valid: part(valid), test: part(test) };
    let to = scratch.column("original_ids")?;
    let original_ids = match &dataset.original_ids {
        Some(ids) => gather(ids, 1, order, to)?,
        None => order.to_vec().into(),
    };
    let keys = dataset.keys.as_ref().map(|keys| keys.gather(order)).transpose()?;
    seconds.labels = lap();
    let made = Dataset {
        name: dataset.name.clone(),
        graph,
        features,
        labels,
        split,
        graphs: dataset.graphs.clone(),
        metric: dataset.metric.clone(),
        normalization: dataset.normalization.clone(),
        checksum: None,
        directory: None,
        original_ids: Some(original_ids),
        keys,
    };
    Ok((made, seconds))
}

/// Order of the nodes within each of the ascending `ranges`, which cover all nodes, concatenated.
/// O(V log ranges).
pub(super) fn within(order: &[NodeId], ranges: &[Range<usize>]) -> Result<Vec<NodeId>> {
    let mut next: Vec<usize> = ranges.iter().map(|range| range.start).collect();
    let mut whole: Vec<NodeId> = memory::zeroed(order.len())?;
    for &v in order {
        let number = ranges.partition_point(|range| range.end <= v as usize);
        // An order that is not a permutation is rejected here or later.
        let place = next.get_mut(number).filter(|place| **place < ranges[number].end);
        let place = place.ok_or_else(|| Error::invalid(format!("node {v} occurs twice in an order")))?;
        whole[*place] = v;
        *place += 1;
    }
    Ok(whole)
}

/// Row length from which all threads sort a single row.
const PARALLEL_SORT_LEN: usize = 1 << 16;

fn topology(graph: &Graph, order: &[NodeId], rank: &[NodeId], scratch: &Scratch) -> Result<Graph> {
    scratch.stage("relabelling the edges", None, Unit::Edges);
    let starts = indptr(graph.indptr(), order)?;
    let of_ids = scratch.column("indices")?;
    let Some(weight) = graph.edge_weight() else {
        let row = |i: usize, ids: &mut [NodeId], _: &mut [f32]| {
            let old = graph.in_neighbors(order[i]);
            ids.iter_mut().zip(old).for_each(|(id, &u)| *id = rank[u as usize]);
            if ids.len() > PARALLEL_SORT_LEN { ids.par_sort_unstable() } else { ids.sort_unstable() }
        };
        let (ids, _) = ragged(&starts, of_ids, None, row)?;
        return Ok(Graph::sorted(starts.into(), ids, None));
    };
    let row = |i: usize, ids: &mut [NodeId], weights: &mut [f32]| {
        let (old, start) = (graph.in_neighbors(order[i]), graph.indptr()[order[i] as usize] as usize);
        // Each id is stored above its weight; parallel edges sort by ascending weight regardless of
        // their original order.
        let pairs = old.iter().zip(&weight[start..start + old.len()]);
        let mut keys: Vec<u64> =
            pairs.map(|(&u, w)| u64::from(rank[u as usize]) << 32 | u64::from(w.to_bits())).collect();
        if keys.len() > PARALLEL_SORT_LEN {
            keys.par_sort_unstable()
        } else {
            keys.sort_unstable()
        }
        for ((id, weight), key) in ids.iter_mut().zip(weights).zip(keys) {
            (*id, *weight) = ((key >> 32) as NodeId, f32::from_bits(key as u32));
        }
    };
    let (ids, weights) = ragged(&starts, of_ids, Some(scratch.column("edge_weight")?), row)?;
    Ok(Graph::sorted(starts.into(), ids, weights))
}

/// Labels of the nodes `order`, in that order.
pub(crate) fn labels(labels: &Labels, order: &[NodeId], scratch: &Scratch) -> Result<Labels> {
    Ok(match labels {
        Labels::Single { class, classes } => {
            Labels::Single { class: gather(class, 1, order, scratch.column("labels")?)?, classes: *classes }
        }
        Labels::Multi { member, classes } if *classes > 0 => {
            let to = scratch.rows("labels", *classes)?;
            Labels::Multi { member: gather(member, *classes, order, to)?, classes: *classes }
        }
        Labels::Columns { class, columns } if !columns.is_empty() => {
            let to = scratch.rows("labels", columns.len())?;
            let class = gather(class, columns.len(), order, to)?;
            Labels::Columns { class, columns: columns.clone() }
        }
        Labels::Values { values, width } if *width > 0 => {
            let to = scratch.rows("labels", *width)?;
            Labels::Values { values: gather(values, *width, order, to)?, width: *width }
        }
        without => without.clone(),
    })
}

/// Feature rows of the nodes `order`, in that order.
pub(crate) fn features(features: &Features, order: &[NodeId], scratch: &Scratch) -> Result<Features> {
    scratch.stage("moving the features", None, Unit::Rows);
    let dim = features.dim;
    if dim == 0 {
        return Ok(features.clone());
    }
    features.verify()?;
    let data = match &features.data {
        FeatureData::F32(data) => FeatureData::F32(gather(data, dim, order, scratch.rows("features", dim)?)?),
        FeatureData::F16(data) => FeatureData::F16(gather(data, dim, order, scratch.rows("features", dim)?)?),
        FeatureData::Csr(rows) => {
            let starts = indptr(rows.indptr(), order)?;
            let row = |i: usize, columns: &mut [u32], values: &mut [f32]| {
                let old = rows.row(order[i] as usize);
                columns.copy_from_slice(old.0);
                values.copy_from_slice(old.1);
            };
            let to = (scratch.column("features_indices")?, scratch.column("features_values")?);
            let (columns, values) = ragged(&starts, to.0, Some(to.1), row)?;
            FeatureData::Csr(SparseRows::new(dim, starts.into(), columns, values.unwrap_or_default())?)
        }
    };
    Ok(Features { dim, data })
}
