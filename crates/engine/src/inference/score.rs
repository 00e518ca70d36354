//! Metrics of logits.

use graphmill_core::{Labels, NodeId};
use graphmill_data::Dataset;
use graphmill_nn::{
    Matrix,
    metric::{Input, Metric, Truth},
};

/// Value of a metric for the `logits` of `nodes`; `None` if the metric is undefined.
pub(crate) fn score(metric: Metric, logits: &Matrix, data: &Dataset, nodes: &[NodeId]) -> Option<f64> {
    score_labels(metric, logits, &data.labels, nodes)
}

/// [`score`] by the labels of all nodes.
pub(crate) fn score_labels(
    metric: Metric,
    logits: &Matrix,
    labels: &Labels,
    nodes: &[NodeId],
) -> Option<f64> {
    let truth = match labels {
        Labels::Single { class, .. } => Truth::Single(class),
        Labels::Multi { member, .. } => Truth::Multi(member),
    };
    metric(&Input::new(logits.view().host(), labels.classes(), truth).against(nodes))
}
