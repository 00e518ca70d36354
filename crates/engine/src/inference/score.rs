//! Metrics of logits.

use graphmill_core::{ClassColumn, Labels, NodeId};
use graphmill_data::Dataset;
use graphmill_nn::{
    Matrix,
    metric::{Input, Metric, Truth, classes::ClassReport, diagnostics::Diagnostics},
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
    input(logits, labels, nodes).score(metric)
}

/// Scores by class of the `logits` of `nodes`, by the labels of all nodes and the names of the
/// classes; `None` if they are undefined, or of several columns of classes.
pub(crate) fn class_report(
    logits: &Matrix,
    labels: &Labels,
    nodes: &[NodeId],
    names: &[String],
) -> Option<ClassReport> {
    if labels.is_values() || !labels.columns().is_empty() {
        return None;
    }
    ClassReport::new(&input(logits, labels, nodes), names)
}

/// Largest number of training nodes whose residuals are computed at the end of a run.
pub(crate) const DIAGNOSED_TRAIN_NODES: usize = 10_000;

/// Parts of the split besides the test nodes that the diagnostics of a finished run need: residuals
/// are compared between all parts, and a threshold is chosen on the validation nodes.
pub(crate) fn diagnosed_parts(labels: &Labels) -> &'static [&'static str] {
    match labels {
        Labels::Values { .. } => &["train", "valid"],
        Labels::Single { classes: 2, .. } | Labels::Multi { .. } | Labels::Columns { .. } => &["valid"],
        Labels::Single { .. } => &[],
    }
}

/// Diagnostics of the `logits` of the `nodes` of `part`, of values at the scale of their targets;
/// `None` if they are undefined.
pub(crate) fn diagnostics(
    part: &str,
    logits: &Matrix,
    labels: &Labels,
    nodes: &[NodeId],
    names: &[String],
) -> Option<Diagnostics> {
    let mut of = Diagnostics::new(part, &input(logits, labels, nodes))?;
    for residuals in &mut of.residuals {
        residuals.name = names.get(residuals.target).cloned().unwrap_or_default();
    }
    if names.len() == labels.classes() {
        for (column, range) in labels.columns().iter().zip(ClassColumn::ranges(labels.columns())) {
            let of = of.columns.iter_mut().filter(|of| of.name == column.name);
            let classes = of.flat_map(|of| &mut of.by_class.classes);
            classes.zip(&names[range]).for_each(|(class, name)| class.class.clone_from(name));
        }
    }
    Some(of)
}

/// Logits of `nodes` with their labels.
fn input<'a>(logits: &'a Matrix, labels: &'a Labels, nodes: &'a [NodeId]) -> Input<'a> {
    let truth = match labels {
        Labels::Single { class, .. } => Truth::Single(class),
        Labels::Multi { member, .. } => Truth::Multi(member),
        Labels::Columns { class, columns } => Truth::Columns(class, columns),
        Labels::Values { values, .. } => Truth::Values(values),
    };
    Input::new(logits.view().host(), labels.classes(), truth).against(nodes)
}
