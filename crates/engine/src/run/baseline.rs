//! Score of label propagation alone, beside which that of the model stands.
//!
//! # Algorithm
//!
//! That of `eval --propagate label-propagation` with its default options, from the targets of the
//! training nodes, on the nodes that the model is scored on.
//!
//! # Source
//!
//! [`crate::propagation`].
//!
//! # Cost
//!
//! `50 E C` multiplications, twice as many for sets of labels and values, once, after the last
//! epoch; a graph for which these exceed [`MAX_PRODUCTS`] has no baseline, nor one for which the
//! rows exceed [`MAX_VALUES`].
//!
//! # Memory
//!
//! At most 100 MB. None is computed under a memory limit of the run.

use graphmill_core::{Labels, NodeId};
use graphmill_nn::metric::Metric;

use crate::{
    Result, TrainConfig,
    inference::{score_labels, select},
    propagation::{Known, PropagationOptions, labels, outputs},
    record::Baseline,
};

/// Most multiplications: seconds on a few cores.
const MAX_PRODUCTS: f64 = 5e9;
/// Most values of a matrix.
const MAX_VALUES: usize = 1 << 23;

/// Scores of label propagation on the nodes that validate and test, by the `metric` of the run and
/// the targets of `known`; `None` without targets of training nodes, or if it costs too much.
///
/// # Errors
/// Those of the propagation.
pub(crate) fn label_propagation(
    config: &TrainConfig,
    known: &Known,
    metric: Metric,
    [valid, test]: [&[NodeId]; 2],
) -> Result<Option<Baseline>> {
    let Known { paths, labels: targets, outputs: width, train, .. } = known;
    let options = PropagationOptions::default();
    // sets and values have weights beside their sums
    let columns =
        if matches!(targets, Labels::Multi { .. } | Labels::Values { .. }) { 2 * width } else { *width };
    let products = paths.num_edges() as f64 * columns as f64 * options.propagation_steps as f64;
    let is_dear = products > MAX_PRODUCTS || paths.num_rows() * columns > MAX_VALUES;
    if is_dear || *width == 0 || train.is_empty() || config.host_budget.0 > 0 {
        return Ok(None);
    }
    let rows = outputs(targets, labels(known, &options)?);
    let of = |nodes: &[NodeId]| score_labels(metric, &select(&rows, nodes), targets, nodes);
    let [valid, test] = [valid, test].map(|nodes| if nodes.is_empty() { None } else { of(nodes) });
    Ok(Some(Baseline { method: "label-propagation".into(), valid, test }))
}
