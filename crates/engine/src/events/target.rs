//! Targets of events: classes or values, of tasks that are not links.

use graphmill_core::{Buffer, Labels};
use graphmill_data::typed::{Targets, Task};
use graphmill_nn::{
    Matrix,
    backend::Cpu,
    metric::{self, Metric},
    regression::TargetScale,
};

use crate::{
    Error, Result, TrainConfig,
    inference::score_labels,
    learner::{SeedLabels, loss},
    predictions::Values,
    saved::{ClassOutputs, Kind, no_probabilities, values},
    stages::target_loss::check_no_values,
};

/// Targets of all events, in the order of the stream.
pub(super) enum EventTargets {
    /// Classes, or sets of classes.
    Classes(Labels),
    /// `width` values of each event, NaN if unknown, with the scale of those that train.
    Values { width: usize, values: Vec<f32>, scale: TargetScale },
}

/// A metric of targets.
#[derive(Clone, Copy)]
pub(super) enum TargetMetric {
    /// Of classes.
    Classes(&'static str, Metric),
    /// Of values: root of the mean squared error, or mean absolute error.
    Rmse,
    Mae,
}

impl TargetMetric {
    /// Name of the metric.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Classes(name, _) => name,
            Self::Rmse => "rmse",
            Self::Mae => "mae",
        }
    }

    /// Returns true if lower scores are better.
    pub(super) fn is_error(self) -> bool {
        !matches!(self, Self::Classes(..))
    }
}

impl EventTargets {
    /// Targets of the rows of a task, which are listed in the order of the stream; `None` for
    /// links. The first `train` of them train.
    ///
    /// # Errors
    /// `transform` is not the default, and the task has no values.
    pub(super) fn new(
        config: &TrainConfig,
        task: &Task,
        rows: &[[usize; 2]],
        train: usize,
    ) -> Result<Option<Self>> {
        if !matches!(task.targets, Targets::Values { .. } | Targets::Classes(Labels::Values { .. })) {
            check_no_values(config, &task.name)?;
        }
        Ok(match &task.targets {
            Targets::None => None,
            Targets::Classes(Labels::Single { class, classes }) => {
                let class: Vec<i32> = rows.iter().map(|&[row, _]| class[row]).collect();
                Some(Self::Classes(Labels::Single { class: class.into(), classes: *classes }))
            }
            Targets::Classes(Labels::Multi { member, classes }) => {
                let of_row = |&[row, _]: &[usize; 2]| &member[row * classes..(row + 1) * classes];
                let all: Vec<u8> = rows.iter().flat_map(of_row).copied().collect();
                Some(Self::Classes(Labels::Multi { member: Buffer::from(all), classes: *classes }))
            }
            Targets::Classes(Labels::Columns { .. }) => {
                return Err(Error::usage(format!(
                    "--task {}: events have a class in each of several columns, which no model of events \
                     learns; use a task of one class, of sets or of values",
                    task.name
                )));
            }
            Targets::Values { width, values } | Targets::Classes(Labels::Values { width, values }) => {
                let of_row = |&[row, _]: &[usize; 2]| &values[row * width..(row + 1) * width];
                let all: Vec<f32> = rows.iter().flat_map(of_row).copied().collect();
                let train: Vec<u32> = (0..train as u32).collect();
                let scale = TargetScale::fit(config.target_transform, &all, *width, &train);
                Some(Self::Values { width: *width, scale, values: all })
            }
        })
    }

    /// Number of outputs of a model.
    pub(super) fn outputs(&self) -> usize {
        match self {
            Self::Classes(labels) => labels.classes(),
            Self::Values { width, .. } => *width,
        }
    }

    /// Returns true if events have values.
    pub(super) fn is_values(&self) -> bool {
        matches!(self, Self::Values { .. })
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
    pub(super) fn predictions(&self, kind: Kind, mut outputs: Matrix) -> (usize, Values) {
        match self {
            Self::Classes(labels) => values(kind, ClassOutputs::new(labels.is_multi(), &[]), outputs),
            Self::Values { width, scale, .. } => {
                scale.undo(outputs.view_mut().host());
                (*width, Values::Values(outputs.view().host().to_vec()))
            }
        }
    }

    /// Mean loss of the outputs of `events` and its gradient: cross-entropy of classes, half the
    /// squared error of transformed values.
    pub(super) fn loss(&self, backend: &Cpu, events: &[u32], outputs: &Matrix, grad: &mut Matrix) -> f64 {
        grad.resize(outputs.num_rows(), outputs.num_cols());
        match self {
            Self::Classes(labels) => {
                let mut of_rows = SeedLabels::default();
                of_rows.gather(labels, events);
                loss(backend, labels, &mut of_rows, outputs.view(), &[], grad.view_mut())
            }
            Self::Values { width, values, scale } => {
                let mut truths = of_events(values, *width, events);
                scale.apply(&mut truths);
                let count = truths.iter().filter(|x| !x.is_nan()).count().max(1) as f64;
                let to = grad.view_mut().host();
                let mut sum = 0.0;
                for ((&truth, &output), to) in truths.iter().zip(outputs.view().host()).zip(to) {
                    let error = f64::from(output) - f64::from(truth);
                    let error = if truth.is_nan() { 0.0 } else { error };
                    *to = (error / count) as f32;
                    sum += 0.5 * error * error;
                }
                sum / count
            }
        }
    }

    /// Score of the outputs of `events`; `None` if it is not defined.
    pub(super) fn score(&self, metric: TargetMetric, events: &[u32], outputs: &Matrix) -> Option<f64> {
        match (self, metric) {
            (Self::Classes(labels), TargetMetric::Classes(_, make)) => {
                if events.is_empty() {
                    None
                } else {
                    score_labels(make, outputs, labels, events)
                }
            }
            (Self::Values { width, values, scale }, _) => {
                let truths = of_events(values, *width, events);
                let mut predicted = outputs.view().host().to_vec();
                scale.undo(&mut predicted);
                let pairs = truths.iter().zip(&predicted).filter(|(truth, _)| !truth.is_nan());
                let errors: Vec<f64> =
                    pairs.map(|(&truth, &output)| f64::from(output) - f64::from(truth)).collect();
                let mean = |of: fn(f64) -> f64| {
                    errors.iter().map(|&error| of(error)).sum::<f64>() / errors.len() as f64
                };
                match metric {
                    _ if errors.is_empty() => None,
                    TargetMetric::Mae => Some(mean(f64::abs)),
                    _ => Some(mean(|error| error * error).sqrt()),
                }
            }
            _ => None,
        }
    }

    /// All metrics of these targets.
    pub(super) fn metrics(&self) -> Vec<TargetMetric> {
        match self {
            Self::Classes(_) => {
                metric::TABLE.iter().map(|entry| TargetMetric::Classes(entry.name, entry.make)).collect()
            }
            Self::Values { .. } => vec![TargetMetric::Rmse, TargetMetric::Mae],
        }
    }

    /// The metric of a run: that of the configuration, else of the task, else the customary one.
    ///
    /// # Errors
    /// These targets have no such metric.
    pub(super) fn metric(&self, config: &TrainConfig, own: Option<&str>) -> Result<TargetMetric> {
        let all = self.metrics();
        let find = |name: &str| all.iter().find(|metric| metric.name() == name).copied();
        if config.metric == "auto" {
            let usual = match self {
                Self::Classes(labels) => metric::default_name(labels.is_multi()),
                Self::Values { .. } => "rmse",
            };
            return Ok(own.and_then(find).or_else(|| find(usual)).unwrap_or(TargetMetric::Rmse));
        }
        let known = || all.iter().map(|metric| metric.name()).collect::<Vec<_>>().join(", ");
        let unknown =
            || Error::usage(format!("--metric {}: the task has the metrics {}", config.metric, known()));
        find(&config.metric).ok_or_else(unknown)
    }
}

/// Values of `events`, of which each has `width`.
fn of_events(values: &[f32], width: usize, events: &[u32]) -> Vec<f32> {
    events.iter().flat_map(|&e| &values[e as usize * width..][..width]).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_have_neither_loss_nor_error() {
        let scale = TargetScale { mean: vec![1.0], deviation: vec![2.0], ..TargetScale::default() };
        let targets = EventTargets::Values { width: 1, values: vec![3.0, f32::NAN, 5.0], scale };
        let (outputs, mut grad) = (Matrix::from_slice(3, 1, &[1.0, 7.0, 1.0]), Matrix::default());
        let loss = targets.loss(&Cpu::default(), &[0, 1, 2], &outputs, &mut grad);
        assert_eq!((loss, grad.view().host()), (0.25, &[0.0, 0.0, -0.5][..]));
        let score = |metric| targets.score(metric, &[0, 1, 2], &outputs);
        assert_eq!((score(TargetMetric::Rmse), score(TargetMetric::Mae)), (Some(2f64.sqrt()), Some(1.0)));
        assert_eq!(targets.score(TargetMetric::Mae, &[], &Matrix::default()), None);
    }
}
