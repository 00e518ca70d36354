//! A trial: a run that is trained up to a rung, and continued from there later.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use graphmill_nn::{metric::values::is_error, model::Model};

use super::{MakeObserver, record::RungScore};
use crate::{
    Error, Result, RunContext, RunDir, TrainConfig,
    any_dataset::AnyDataset,
    config::SelectBy,
    observer::{Observer, Progress, Start},
    record::{EpochRecord, Summary},
};

/// Result of training up to a rung.
pub(super) struct Reached {
    pub(super) dataset: String,
    pub(super) metric: String,
    pub(super) epochs: Vec<EpochRecord>,
    /// Summary of a run that has ended.
    pub(super) summary: Option<Summary>,
}

/// Trains the run in `dir` from where it is up to the end of `epochs` epochs, or to its end if that
/// is sooner. The run is the same as one that is trained in one go: its options include all epochs,
/// it is stopped after the last batch of the rung, and resumed from its checkpoint.
///
/// # Errors
/// Those of the run; [`Error::Interrupted`] only if `stop` is true.
pub(super) fn train_to(
    config: &TrainConfig,
    dir: &Path,
    epochs: usize,
    observe: &mut MakeObserver,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Reached> {
    let data = AnyDataset::open(config)?;
    // a run that was killed before it wrote its options starts again
    let resume = RunDir::config_path(dir).is_file();
    let run = if resume { RunDir::reopen(dir)? } else { RunDir::create(dir)? };
    let is_reached = Arc::new(AtomicBool::new(false));
    let mut watch = Watch {
        observer: observe(config, &run),
        rung: (epochs < config.epochs).then_some(epochs),
        batches: 0,
        is_reached: Arc::clone(&is_reached),
        metric: String::new(),
        epochs: Vec::new(),
    };
    let context = RunContext {
        run: Some(&run),
        resume,
        observer: &mut watch,
        stop: &|| is_reached.load(Relaxed) || stop(),
    };
    let summary = match data.train(config, context) {
        Ok(summary) => Some(summary),
        Err(Error::Interrupted { .. }) if is_reached.load(Relaxed) => None,
        Err(error) => return Err(error),
    };
    let Watch { metric, epochs, .. } = watch;
    Ok(Reached { dataset: data.name().to_string(), metric, epochs, summary })
}

/// Best epoch among the first `rung` ones, by the criterion of the run: of equal scores, that of
/// the smaller validation loss.
pub(super) fn score(config: &TrainConfig, metric: &str, epochs: &[EpochRecord], rung: usize) -> RungScore {
    let judged = |epoch: &EpochRecord| match config.select_by {
        SelectBy::Loss => epoch.valid_loss.map(|loss| -loss),
        SelectBy::Score if is_error(metric) => epoch.valid_score.map(|error| -error),
        SelectBy::Score => epoch.valid_score,
    };
    let epochs = &epochs[..epochs.len().min(rung)];
    let mut best = RungScore { epochs: epochs.len(), best_epoch: epochs.len(), ..RungScore::default() };
    let mut loss = f64::INFINITY;
    for epoch in epochs {
        let value = judged(epoch).filter(|value| value.is_finite());
        let of_epoch = epoch.valid_loss.unwrap_or(f64::INFINITY);
        if value.is_some() && (value > best.judged || value == best.judged && of_epoch < loss) {
            loss = of_epoch;
            best = RungScore {
                best_epoch: epoch.epoch,
                valid: epoch.valid_score,
                judged: value,
                epochs: best.epochs,
            };
        }
    }
    best
}

/// Observer that ends the run after the last batch of a rung, and keeps the records of the epochs.
struct Watch<'o> {
    observer: Box<dyn Observer + 'o>,
    /// Epochs of the rung, if the run does not end there by itself.
    rung: Option<usize>,
    /// Batches of an epoch.
    batches: u64,
    /// True once the last batch of the rung is trained on.
    is_reached: Arc<AtomicBool>,
    metric: String,
    epochs: Vec<EpochRecord>,
}

impl Observer for Watch<'_> {
    fn preparation(&self) -> Arc<dyn graphmill_core::progress::Progress> {
        self.observer.preparation()
    }

    fn start(&mut self, start: &Start) -> Result<()> {
        self.batches = start.batches;
        self.metric.clone_from(&start.metric);
        self.epochs.clone_from(&start.earlier);
        self.observer.start(start)
    }

    fn batch(&mut self, progress: &Progress) -> Result<()> {
        if self.rung.is_some_and(|rung| progress.epoch + 1 >= rung) && progress.batches >= self.batches {
            self.is_reached.store(true, Relaxed);
        }
        self.observer.batch(progress)
    }

    fn evaluate(&mut self, nodes: usize) {
        self.observer.evaluate(nodes);
    }

    fn epoch(&mut self, record: &EpochRecord) -> Result<()> {
        self.epochs.push(record.clone());
        self.observer.epoch(record)
    }

    fn model(&mut self, model: &Model) {
        self.observer.model(model);
    }

    fn note(&mut self, message: &str) {
        self.observer.note(message);
    }

    fn end(&mut self, outcome: Result<&Summary, &Error>) -> Result<()> {
        self.observer.end(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rungs_are_scored_by_the_criterion_of_the_run() {
        let epoch = |epoch, score, loss| EpochRecord {
            epoch,
            valid_score: score,
            valid_loss: Some(loss),
            ..EpochRecord::default()
        };
        let epochs = [
            epoch(1, Some(0.5), 3.0),
            epoch(2, None, 2.0),
            epoch(3, Some(0.7), 1.0),
            epoch(4, Some(0.9), 4.0),
        ];
        let by = |select_by, metric, rung| {
            let config = TrainConfig { select_by, ..TrainConfig::default() };
            let best = score(&config, metric, &epochs, rung);
            (best.best_epoch, best.valid, best.judged, best.epochs)
        };
        assert_eq!(by(SelectBy::Score, "accuracy", 3), (3, Some(0.7), Some(0.7), 3));
        assert_eq!(by(SelectBy::Score, "rmse", 9), (1, Some(0.5), Some(-0.5), 4));
        assert_eq!(by(SelectBy::Loss, "accuracy", 4), (3, Some(0.7), Some(-1.0), 4));
        assert_eq!(score(&TrainConfig::default(), "accuracy", &epochs[1..2], 1).judged, None);
    }
}
