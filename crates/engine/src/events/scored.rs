//! Metrics of a run on events, and its scores of a part.

use std::collections::BTreeMap;

use graphmill_core::table::Entry;
use graphmill_nn::{
    Matrix,
    link::rank::Query,
    metric::{Metric, classes::ClassReport, diagnostics::Diagnostics, values::is_error},
};

use super::{stream::EventStream, target::EventTargets};
use crate::{Error, Result, TrainConfig, link::LinkMetric};

/// Metric of a run whose task names none, without destinations to rank events against.
const DEFAULT_METRIC: &str = "average-precision";
/// Metric of a run whose task names none, with such destinations.
const RANKED_METRIC: &str = "mrr";
/// Cutoffs of the metrics that a table of scores has.
const CUTOFFS: [usize; 3] = [1, 10, 20];
/// Prefix of the names of scores of events with new nodes.
const INDUCTIVE: &str = "inductive-";
/// End of the names of scores that are means over batches.
const BY_BATCH: &str = "-by-batch";

/// A metric of links, or of the targets of events.
pub(super) enum EventMetric {
    Links(LinkMetric),
    Targets(&'static Entry<Metric>),
}

impl EventMetric {
    /// Name of the metric.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Links(metric) => metric.name(),
            Self::Targets(metric) => metric.name.into(),
        }
    }

    /// Returns true if lower scores are better.
    pub(super) fn is_error(&self) -> bool {
        matches!(self, Self::Targets(metric) if is_error(metric.name))
    }
}

/// Scores of the events of a part.
pub(super) struct ScoredPart {
    /// Scored events, ascending.
    pub(super) events: Vec<u32>,
    /// Number of events of a batch.
    pub(super) batch_size: usize,
    /// Start of the values of each event, and the number of values.
    pub(super) starts: Vec<usize>,
    /// Score of each event followed by those of its negatives, or the outputs for its targets, at
    /// their scale.
    pub(super) scores: Vec<f32>,
    /// Mean loss of the targets; NaN of links.
    pub(super) loss: f64,
}

impl ScoredPart {
    /// Number of scored events.
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    /// Score of the events at the positions `of`; `None` if it is not defined.
    fn score_of(&self, stream: &EventStream, metric: &EventMetric, of: &[usize]) -> Option<f64> {
        let row = |at: usize| &self.scores[self.starts[at]..self.starts[at + 1]];
        match metric {
            EventMetric::Links(metric) => {
                let query = |&at: &usize| Query { scores: row(at), relevant: &[0] };
                let queries: Vec<Query> = of.iter().map(query).collect();
                if queries.is_empty() { None } else { metric.entry.make.score(&queries, metric.k) }
            }
            EventMetric::Targets(metric) => {
                let targets = stream.targets.as_ref()?;
                let events: Vec<u32> = of.iter().map(|&at| self.events[at]).collect();
                let rows: Vec<&[f32]> = of.iter().map(|&at| row(at)).collect();
                let outputs = Matrix::from_slice(events.len(), targets.outputs(), &rows.concat());
                targets.score(metric.make, &events, &outputs)
            }
        }
    }

    /// Mean score of the batches of the events at the positions `of`, the last one shorter; `None`
    /// unless the metric takes the scores of events together.
    fn score_by_batch(&self, stream: &EventStream, metric: &EventMetric, of: &[usize]) -> Option<f64> {
        if !matches!(metric, EventMetric::Links(links) if links.is_pooled()) {
            return None;
        }
        let batches = of.chunks(self.batch_size.max(1));
        let scores: Vec<f64> = batches.filter_map(|batch| self.score_of(stream, metric, batch)).collect();
        (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / scores.len() as f64)
    }

    /// Score of all events.
    pub(super) fn score(&self, stream: &EventStream, metric: &EventMetric) -> Option<f64> {
        self.score_of(stream, metric, &(0..self.len()).collect::<Vec<_>>())
    }

    /// Outputs for the targets of all events.
    fn outputs(&self, targets: &EventTargets) -> Matrix {
        Matrix::from_slice(self.len(), targets.outputs(), &self.scores)
    }

    /// Scores by class, of targets of one class for each event.
    pub(super) fn by_class(&self, stream: &EventStream) -> Option<ClassReport> {
        let targets = stream.targets.as_deref()?;
        targets.by_class(&self.events, &self.outputs(targets))
    }

    /// Diagnostics of the targets, of a part of this name.
    pub(super) fn diagnostics(&self, stream: &EventStream, part: &str) -> Option<Diagnostics> {
        let targets = stream.targets.as_deref()?;
        targets.diagnostics(part, &self.events, &self.outputs(targets))
    }

    /// Scores of all events, and of those with new nodes, by every metric.
    pub(super) fn all(&self, stream: &EventStream, chosen: &EventMetric) -> BTreeMap<String, Option<f64>> {
        let metrics: Vec<EventMetric> = match (&stream.targets, chosen) {
            (None, EventMetric::Links(chosen)) => {
                let of_cutoffs = CUTOFFS.into_iter().flat_map(LinkMetric::all);
                let is_ranked = self.starts.windows(2).any(|ends| ends[1] - ends[0] > 2);
                let fits = |of: &LinkMetric| of.is_pooled() || is_ranked && !of.is_of_lists();
                let all = std::iter::once(chosen.clone()).chain(of_cutoffs.filter(fits));
                all.map(EventMetric::Links).collect()
            }
            (targets, _) => targets
                .iter()
                .flat_map(|targets| targets.metrics().iter())
                .map(EventMetric::Targets)
                .collect(),
        };
        let all: Vec<usize> = (0..self.len()).collect();
        let is_new = |&at: &usize| stream.has_new_node(self.events[at] as usize);
        let of_new: Vec<usize> = all.iter().copied().filter(is_new).collect();
        let mut scores = BTreeMap::new();
        for metric in &metrics {
            for (prefix, of) in [("", &all), (INDUCTIVE, &of_new)] {
                let name = format!("{prefix}{}", metric.name());
                if let Some(mean) = self.score_by_batch(stream, metric, of) {
                    scores.insert(format!("{name}{BY_BATCH}"), Some(mean));
                }
                scores.insert(name, self.score_of(stream, metric, of));
            }
        }
        scores
    }
}

/// The metric of the run: that of the configuration, else of the task.
///
/// # Errors
/// The name is unknown, or a metric of rankings has no candidates.
pub(super) fn metric(config: &TrainConfig, stream: &EventStream) -> Result<EventMetric> {
    match &stream.targets {
        Some(targets) => targets.metric(config, stream.metric.as_deref()).map(EventMetric::Targets),
        None => link_metric(config, stream).map(EventMetric::Links),
    }
}

/// The metric of a run that learns links.
fn link_metric(config: &TrainConfig, stream: &EventStream) -> Result<LinkMetric> {
    let fits = |metric: &LinkMetric| {
        let has_lists = (1..3).all(|part| stream.parts[part].is_empty() || stream.given[part].is_some());
        !metric.is_of_lists() && (metric.is_pooled() || has_lists)
    };
    if config.metric == "auto" {
        let own = stream.metric.as_deref().and_then(|name| LinkMetric::find(name).ok()).filter(fits);
        let is_ranked = stream.given[1..].iter().any(Option::is_some);
        let default = LinkMetric::find(if is_ranked { RANKED_METRIC } else { DEFAULT_METRIC })?;
        return own.or(Some(default).filter(fits)).map_or_else(|| LinkMetric::find(DEFAULT_METRIC), Ok);
    }
    let metric = LinkMetric::find(&config.metric)?;
    if fits(&metric) {
        return Ok(metric);
    }
    let message =
        "the task has no destinations to rank events against; use --metric average-precision or auc";
    Err(Error::usage(format!("--metric {}: {message}", config.metric)))
}
