//! Targets of events: classes or values, of tasks that are not links. Their losses and metrics are
//! those of nodes.

use std::path::Path;

use bytemuck::Pod;
use graphmill_core::{
    Buffer, Labels, maps,
    table::{Entry, Table},
};
use graphmill_data::typed::{Targets, Task};
use graphmill_nn::{
    Matrix,
    backend::Cpu,
    metric::{self, Metric, classes::ClassReport, diagnostics::Diagnostics, values::DEFAULT},
};

use super::{files::RowFiles, opening::Column};
use crate::{
    Error, Result, TrainConfig,
    inference::{class_report, diagnosed_parts, diagnostics, score_labels},
    learner::SeedLabels,
    predictions::Values,
    record::DatasetRecord,
    saved::{ClassOutputs, Kind, no_probabilities, values},
    stages::target_loss::{Learned, TargetLoss, check_no_values},
};

/// Targets of all events, in the order of the stream.
pub(super) struct EventTargets {
    /// Classes or values of each event.
    labels: Labels,
    /// Loss, with the scale of the values that train.
    loss: TargetLoss,
    /// Names of the classes or values; empty if they have none.
    names: Vec<String>,
}

impl EventTargets {
    /// Targets of the rows of a task, which are listed in the order of the stream; `None` for
    /// links. The events `learned` train. Targets are in `files` if there are any.
    ///
    /// # Errors
    /// The loss of the configuration does not fit the targets, or memory or disk space is
    /// exhausted.
    pub(super) fn new(
        config: &TrainConfig,
        task: &Task,
        rows: &[u32],
        learned: &[u32],
        files: Option<&RowFiles>,
    ) -> Result<Option<Self>> {
        let dir = files.map(|files| &*files.dir);
        let of_values = |values: &[f32], width: usize| -> Result<Labels> {
            Ok(Labels::Values { values: of_rows(values, (width, rows), dir)?, width })
        };
        let labels = match &task.targets {
            Targets::None => {
                check_no_values(config, &task.name)?;
                return Ok(None);
            }
            Targets::Values { width, values } => of_values(values, *width)?,
            Targets::Classes(labels) => match labels {
                Labels::Single { class, classes } => {
                    Labels::Single { class: of_rows(class, (1, rows), dir)?, classes: *classes }
                }
                Labels::Multi { member, classes } => {
                    Labels::Multi { member: of_rows(member, (*classes, rows), dir)?, classes: *classes }
                }
                Labels::Columns { class, columns } => Labels::Columns {
                    class: of_rows(class, (columns.len(), rows), dir)?,
                    columns: columns.clone(),
                },
                Labels::Values { values, width } => of_values(values, *width)?,
            },
        };
        Self::of(config, &task.name, labels, learned)
            .map(|targets| Some(Self { names: task.names.clone(), ..targets }))
    }

    /// Targets `labels` without names, of which the events `learned` train.
    fn of(config: &TrainConfig, task: &str, labels: Labels, learned: &[u32]) -> Result<Self> {
        let loss = TargetLoss::of_targets(config, &Learned { name: task, labels: &labels, train: learned })?;
        Ok(Self { labels, loss, names: Vec::new() })
    }

    /// Takes targets in files out of the memory of the process, until they are used again.
    pub(super) fn release(&self) {
        match &self.labels {
            Labels::Single { class, .. } | Labels::Columns { class, .. } => maps::release(class),
            Labels::Multi { member, .. } => maps::release(member),
            Labels::Values { values, .. } => maps::release(values),
        }
    }

    /// Number of outputs of a model.
    pub(super) fn outputs(&self) -> usize {
        self.labels.classes()
    }

    /// Returns true if events have values.
    pub(super) fn is_values(&self) -> bool {
        self.labels.is_values()
    }

    /// The targets.
    pub(super) fn labels(&self) -> &Labels {
        &self.labels
    }

    /// Adds the targets to the record of a dataset.
    pub(super) fn complete(&self, record: DatasetRecord) -> DatasetRecord {
        DatasetRecord {
            classes: self.labels.classes(),
            multilabel: self.labels.is_multi(),
            values: self.is_values(),
            columns: self.labels.columns().to_vec(),
            ..record
        }
    }

    /// Refuses probabilities of values.
    ///
    /// # Errors
    /// Wrong usage: there are no predictions of this kind.
    pub(super) fn check_kind(&self, kind: Kind) -> Result<()> {
        match kind == Kind::Probabilities && self.is_values() {
            true => Err(no_probabilities()),
            false => Ok(()),
        }
    }

    /// Predictions of a kind from the outputs of events, and their number for each event: values
    /// are at the scale of the targets.
    ///
    /// # Errors
    /// An output is not finite.
    pub(super) fn predictions(&self, kind: Kind, outputs: Matrix) -> Result<(usize, Values)> {
        if self.is_values() {
            let outputs = self.undone(outputs);
            return Ok((outputs.num_cols(), Values::Values(outputs.view().host().to_vec())));
        }
        values(kind, ClassOutputs::new(self.labels.is_multi(), self.labels.columns()), outputs)
    }

    /// Outputs at the scale of the targets.
    pub(super) fn undone(&self, mut outputs: Matrix) -> Matrix {
        if let Some(scale) = self.loss.scale() {
            scale.undo(outputs.view_mut().host());
        }
        outputs
    }

    /// Mean loss of the outputs of `events` and its gradient.
    pub(super) fn loss(
        &self,
        backend: &Cpu,
        (events, scratch): (&[u32], &mut SeedLabels),
        outputs: &Matrix,
        grad: &mut Matrix,
    ) -> f64 {
        grad.resize(outputs.num_rows(), outputs.num_cols());
        self.loss.gather(&self.labels, events, scratch);
        self.loss.run(backend, &self.labels, scratch, outputs.view(), &[], grad.view_mut())
    }

    /// Score of the outputs of `events`, at the scale of the targets; `None` if it is not defined.
    pub(super) fn score(&self, metric: Metric, events: &[u32], outputs: &Matrix) -> Option<f64> {
        (!events.is_empty()).then(|| score_labels(metric, outputs, &self.labels, events))?
    }

    /// Scores by class of the outputs of `events`, of one class for each.
    pub(super) fn by_class(&self, events: &[u32], outputs: &Matrix) -> Option<ClassReport> {
        class_report(outputs, &self.labels, events, &self.names)
    }

    /// Parts whose diagnostics a run records beside those of the test events.
    pub(super) fn diagnosed(&self) -> &'static [&'static str] {
        diagnosed_parts(&self.labels)
    }

    /// Diagnostics of the outputs of the `events` of `part`, at the scale of the targets.
    pub(super) fn diagnostics(&self, part: &str, events: &[u32], outputs: &Matrix) -> Option<Diagnostics> {
        diagnostics(part, outputs, &self.labels, events, &self.names)
    }

    /// All metrics of these targets.
    pub(super) fn metrics(&self) -> &'static Table<Metric> {
        metric::table(self.is_values())
    }

    /// The metric of a run: that of the configuration, else of the task, else the customary one.
    ///
    /// # Errors
    /// These targets have no such metric.
    pub(super) fn metric(&self, config: &TrainConfig, own: Option<&str>) -> Result<&'static Entry<Metric>> {
        let table = self.metrics();
        let usual = if self.is_values() { DEFAULT } else { metric::default_name(self.labels.is_multi()) };
        let name = match config.metric.as_str() {
            "auto" => own.filter(|name| table.get(name).is_some()).unwrap_or(usual),
            given => given,
        };
        table.get(name).ok_or_else(|| {
            let known = table.names();
            Error::usage(format!("--metric {name}: the task has the metrics {known}"))
        })
    }
}

/// The entries of `rows`, of which each has `width`, in a file if there is a directory.
fn of_rows<T: Pod>(all: &[T], (width, rows): (usize, &[u32]), dir: Option<&Path>) -> Result<Buffer<T>> {
    let mut out = Column::new(dir, rows.len().saturating_mul(width))?;
    for &row in rows {
        all[row as usize * width..][..width].iter().for_each(|&x| out.push(x));
    }
    maps::release(all);
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(loss: &str, values: &[f32]) -> EventTargets {
        let config = TrainConfig { loss: loss.into(), ..TrainConfig::default() };
        let labels = Labels::Values { values: values.to_vec().into(), width: 1 };
        let learned: Vec<u32> = (0..values.len() as u32).collect();
        EventTargets::of(&config, "rating", labels, &learned).unwrap()
    }

    #[test]
    fn unknown_values_have_neither_loss_nor_error() {
        // Standardized values are -1 and 1.
        let targets = targets("mse", &[3.0, f32::NAN, 5.0]);
        let (outputs, mut grad) = (Matrix::from_slice(3, 1, &[-1.0, 7.0, 0.0]), Matrix::default());
        let scratch = &mut SeedLabels::default();
        let loss = targets.loss(&Cpu::default(), (&[0, 1, 2], scratch), &outputs, &mut grad);
        assert!((loss - 0.5).abs() < 1e-6, "{loss}");
        assert_eq!(grad.view().host()[..2], [0.0, 0.0]);
        assert!((grad.view().host()[2] + 1.0).abs() < 1e-6, "{grad:?}");
        let outputs = targets.undone(outputs);
        let score = |name: &str| {
            targets.score(targets.metrics().find(name).unwrap().make, &[0, 1, 2], &outputs).unwrap()
        };
        assert!((score("rmse") - 0.5f64.sqrt()).abs() < 1e-6 && (score("mae") - 0.5).abs() < 1e-6);
        assert_eq!(targets.score(targets.metrics().find("mae").unwrap().make, &[], &Matrix::default()), None);
    }
}
