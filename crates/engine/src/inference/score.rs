//! Metrics of logits.

use graphmill_core::{Labels, NodeId};
use graphmill_data::Dataset;
use graphmill_nn::{
    Matrix,
    metric::{Input, Metric, Truth, classes::ClassReport},
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
    metric(&input(logits, labels, nodes))
}

/// Scores by class of the `logits` of `nodes`, by the labels of all nodes and the names of the
/// classes; `None` if they are undefined.
pub(crate) fn class_report(
    logits: &Matrix,
    labels: &Labels,
    nodes: &[NodeId],
    names: &[String],
) -> Option<ClassReport> {
    if labels.is_values() {
        return None;
    }
    ClassReport::new(&input(logits, labels, nodes), names)
}

/// Logits of `nodes` with their labels.
fn input<'a>(logits: &'a Matrix, labels: &'a Labels, nodes: &'a [NodeId]) -> Input<'a> {
    let truth = match labels {
        Labels::Single { class, .. } => Truth::Single(class),
        Labels::Multi { member, .. } => Truth::Multi(member),
        Labels::Values { values, .. } => Truth::Values(values),
    };
    Input::new(logits.view().host(), labels.classes(), truth).against(nodes)
}
