//! A training run on a stream of events, from its first epoch to its summary: the loop of
//! [`crate::trainer`] for batches in the order of their times.
//!
//! The result of a run is a function of its configuration, its dataset and its position, so a run
//! that is killed and resumed ends with the same bits as an uninterrupted one.

use std::time::Instant;

use graphmill_core::memory;
use graphmill_data::typed::TypedDataset;
use graphmill_loader::BatchKey;

use super::{
    evaluation::{Evaluation, EventMetric, batch_size, metric},
    learner::{BatchScratch, EventLearner, training_rows},
    position::EventPosition,
    stream::EventStream,
};
use crate::{
    Error, Result, RunContext, TrainConfig,
    build::schedule,
    config::events::EventOptions,
    observer::{Observer, Progress, Start},
    record::{
        BatchOutcome, Best, EpochRecord, Origin, Stages, Summary, TestScore, Traffic, TypedOrigin,
        ValidationScore,
    },
    run::Meter,
    strategy::attempt,
    timeline::Stage,
    verification::FeatureFiles,
};

/// Trains a model of events on a task on edges with times, and evaluates it. Runs on the current
/// rayon pool.
///
/// Writes the same records as [`crate::train`] into [`RunContext::run`]; seeds are events. The
/// observer gets all events but [`Observer::model`].
///
/// # Errors
/// As for [`crate::train`]; the dataset has no such task, or it is not split by time.
pub fn train(config: &TrainConfig, data: &TypedDataset, context: RunContext) -> Result<Summary> {
    let began = Instant::now();
    let options: EventOptions = config.own.get();
    let files = FeatureFiles::of_types(data);
    files.prepare(config)?.iter().for_each(|note| context.observer.note(note));
    let stream = EventStream::new(data, &config.task, options.new_nodes)?;
    let metric = metric(config, &stream)?;
    let learner = EventLearner::new(config, &stream)?;
    stream.notes.iter().for_each(|note| context.observer.note(note));
    context.observer.note(&format!(
        "{} nodes, {} events learn; {} validate, {} test",
        stream.num_nodes,
        stream.learned.len(),
        stream.parts[1].len(),
        stream.parts[2].len()
    ));
    let mut trainer = Trainer {
        config,
        files,
        stream: &stream,
        batch_size: batch_size(config, &stream),
        metric,
        evaluation: Evaluation::new(config, &stream, &learner.model)?,
        scratch: BatchScratch::new(config, &stream)?,
        position: EventPosition::new(
            config,
            stream.record(data),
            learner,
            schedule(config)?,
            context.run,
            began,
        ),
        meter: Meter::new(config.epochs),
        observer: context.observer,
        stop: context.stop,
    };
    let outcome = trainer.run(data, context.resume);
    let ended = trainer.observer.end(outcome.as_ref());
    // the error of the run itself comes first
    let summary = outcome?;
    ended?;
    Ok(summary)
}

/// Run in progress.
struct Trainer<'a, 'o> {
    config: &'a TrainConfig,
    files: FeatureFiles,
    stream: &'a EventStream,
    batch_size: usize,
    metric: EventMetric,
    evaluation: Evaluation<'a>,
    scratch: BatchScratch<'a>,
    /// The model and everything else that a checkpoint holds.
    position: EventPosition<'a>,
    meter: Meter,
    observer: &'o mut dyn Observer,
    /// Returns true once the run is asked to stop.
    stop: &'o (dyn Fn() -> bool + Sync),
}

/// Decision after a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Continue,
    Stop,
}

impl Trainer<'_, '_> {
    /// Trains from the first epoch, or from the checkpoint, to the summary.
    fn run(&mut self, data: &TypedDataset, resume: bool) -> Result<Summary> {
        self.prepare(data, resume)?;
        while !self.position.is_done(self.config.epochs) {
            let flow = self.train()?;
            let record = self.score()?;
            self.record(record, flow)?;
        }
        self.finish()
    }

    /// Continues from the checkpoint if the run resumes, and writes the origin of the run once its
    /// options and dataset are known to be valid.
    fn prepare(&mut self, data: &TypedDataset, resume: bool) -> Result<()> {
        if resume {
            self.position.resume(self.observer)?;
        }
        if let Some(run) = self.position.checkpoints.run() {
            let types = TypedOrigin::new(data, &self.stream.task);
            let origin = Origin::of_types(self.config, &self.position.state.dataset, types)?;
            origin.write(run)?;
            run.write_config(&origin.config(self.config))?;
        }
        let state = &self.position.state;
        self.observer.start(&Start {
            epochs: self.config.epochs,
            batches: self.num_batches(),
            seeds: self.stream.learned.len(),
            from: (state.epoch, state.batch),
            metric: self.metric.name(),
            parameters: self.position.learner.model.num_params(),
            earlier: self.position.records.clone(),
            timeline: self.meter.timeline(),
        })
    }

    /// Number of batches of an epoch.
    fn num_batches(&self) -> u64 {
        self.stream.learned.len().div_ceil(self.batch_size) as u64
    }

    /// Trains on the batches of the current epoch, from the first or from the checkpoint's.
    fn train(&mut self) -> Result<Flow> {
        let state = &mut self.position.state;
        self.meter.begin_epoch(state.epoch as u64, state.sums.seconds);
        let (from, size) = (state.batch, self.batch_size);
        if from == 0 {
            self.position.learner.forget();
        }
        let stream = self.stream;
        for (batch, events) in (from..).zip(stream.learned.chunks(size).skip(from as usize)) {
            let trained = self.train_batch(batch, events);
            if trained.is_err() {
                self.position.rescue(self.observer);
            }
            trained?;
            if self.after_batch()? == Flow::Stop {
                self.position.state.sums.seconds = self.meter.end_batches();
                let batches = self.num_batches();
                let is_in_epoch = self.position.state.batch < batches;
                return if is_in_epoch { Err(self.position.interrupted(batches)) } else { Ok(Flow::Stop) };
            }
        }
        self.position.state.sums.seconds = self.meter.end_batches();
        Ok(Flow::Continue)
    }

    /// Draws the negatives and neighbours of a batch, trains on it, and counts it.
    fn train_batch(&mut self, number: u64, events: &[u32]) -> Result<()> {
        let (timeline, mut spent) = (self.meter.timeline(), Stages::default());
        let track = timeline.track("main");
        let epoch = self.position.state.epoch as u64;

        let clock = Instant::now();
        let of = BatchKey { seed: self.config.seed, epoch, batch: number };
        let (stream, scratch) = (self.stream, &mut self.scratch);
        attempt(Stage::Sample, number, || {
            training_rows(stream, of, events, &mut scratch.rows)?;
            scratch.draw(of, true)
        })?;
        spent.sample = timeline.done(track, Stage::Sample, number, clock);

        let clock = Instant::now();
        let lr = self.position.schedule.lr(epoch as u32, number as usize, self.num_batches() as usize);
        let (learner, scratch) = (&mut self.position.learner, &self.scratch);
        let train = || learner.train(events, &scratch.rows, &scratch.near, lr);
        let outcome = attempt(Stage::Train, number, train)?;
        spent.train = timeline.done(track, Stage::Train, number, clock);
        self.count(number + 1, outcome, spent)
    }

    /// Adds a batch to the totals of the epoch.
    fn count(&mut self, number: u64, outcome: BatchOutcome, spent: Stages) -> Result<()> {
        let state = &mut self.position.state;
        if !outcome.loss.is_finite() {
            return Err(Error::Diverged { epoch: state.epoch + 1, batch: number, loss: outcome.loss });
        }
        state.sums.add_counts(outcome, Traffic::default(), &spent);
        state.sums.seconds = self.meter.seconds();
        (state.batch, state.step) = (number, self.position.learner.step);
        Ok(())
    }

    /// Reports a batch, and writes a checkpoint if one is due.
    fn after_batch(&mut self) -> Result<Flow> {
        let state = &self.position.state;
        self.meter.sample_memory(state.sums.seconds);
        self.observer.batch(&Progress {
            epoch: state.epoch,
            batches: state.batch,
            seeds: state.sums.seeds,
            loss: state.sums.mean_loss(),
            seconds: self.meter.seconds_here(),
        })?;
        let is_stopping = (self.stop)();
        let every = self.config.checkpoint_batches as u64;
        let is_due = every > 0 && state.batch.is_multiple_of(every)
            || self.position.checkpoints.seconds_since_save() >= self.config.checkpoint_seconds;
        // after the last batch the checkpoint of the epoch follows
        if is_stopping || is_due && state.batch < self.num_batches() {
            let clock = Instant::now();
            self.position.save()?;
            self.meter.span("checkpoint", clock);
        }
        Ok(if is_stopping { Flow::Stop } else { Flow::Continue })
    }

    /// Scores the epoch if it is selected, takes the model if it is the best so far, and makes the
    /// record.
    fn score(&mut self) -> Result<EpochRecord> {
        let clock = Instant::now();
        let (scored, is_best) = self.judge()?;
        if is_best {
            self.position.keep_best(scored.map(|valid| valid.score))?;
        }
        self.meter.span("score", clock);
        let state = &self.position.state;
        let (epoch, batches) = (state.epoch, self.num_batches());
        let lr = self.position.schedule.lr(epoch as u32, batches as usize - 1, batches as usize);
        let seconds = clock.elapsed().as_secs_f64();
        let record = state.sums.record(epoch + 1, scored, lr, seconds, false);
        Ok(self.meter.complete(record))
    }

    /// Score of the current epoch, if `--eval-every` selects it and the score is defined, and
    /// whether the model is the best so far. Without validation events the newest model is the
    /// best.
    fn judge(&mut self) -> Result<(Option<ValidationScore>, bool)> {
        let done = self.position.state.epoch + 1;
        let is_turn = done.is_multiple_of(self.config.eval_every) || done == self.config.epochs;
        let events = self.stream.parts[1].len();
        if !is_turn || events == 0 {
            return Ok((None, events == 0));
        }
        self.observer.evaluate(events);
        let Some(score) = self.score_of(1)? else {
            let best = self.position.state.best;
            return Ok((None, best.is_none_or(|best| best.valid_score.is_none())));
        };
        let judged = if self.metric.is_error() { -score } else { score };
        let is_best = self.position.observe(judged, f64::NAN);
        Ok((Some(ValidationScore { score, loss: f64::NAN }), is_best))
    }

    /// Score of the model on a part of the split; `None` if it is not defined.
    fn score_of(&mut self, part: usize) -> Result<Option<f64>> {
        let (evaluation, model, stream) = (&mut self.evaluation, &self.position.learner.model, self.stream);
        let scored = rayon::scope(|_| {
            evaluation.begin(model)?;
            (1..part).try_for_each(|earlier| evaluation.skip(model, stream.parts[earlier].clone()))?;
            evaluation.score(model, part)
        })?;
        Ok(scored.score(stream, &self.metric))
    }

    /// Records the epoch, advances to the next, and writes a checkpoint if one is due.
    fn record(&mut self, record: EpochRecord, flow: Flow) -> Result<()> {
        let epochs = self.config.epochs;
        self.position.end_epoch(record, self.observer)?;
        let is_due = self.position.checkpoints.is_due_after_epoch();
        if is_due || self.position.is_done(epochs) || flow == Flow::Stop {
            let clock = Instant::now();
            self.position.save()?;
            self.meter.span("checkpoint", clock);
        }
        if flow == Flow::Stop && self.position.state.epoch < epochs {
            return Err(self.position.interrupted(self.num_batches()));
        }
        Ok(())
    }

    /// Scores the best model on the test events, and writes the summary.
    fn finish(&mut self) -> Result<Summary> {
        self.position.restore_best()?;
        let mut test = TestScore { metric: self.metric.name(), score: None };
        let events = self.stream.parts[2].len();
        if events > 0 {
            self.observer.evaluate(events);
            let clock = Instant::now();
            test.score = self.score_of(2)?;
            self.meter.span("test", clock);
        }
        let state = &self.position.state;
        let summary = Summary {
            graphmill: env!("CARGO_PKG_VERSION").to_string(),
            dataset: state.dataset.clone(),
            config: self.config.to_json(),
            best: state.best.unwrap_or(Best { epoch: 0, valid_score: None }),
            test,
            verification: self.files.record(),
            peak_rss_bytes: memory::peak().unwrap_or(0),
            seconds: self.position.checkpoints.seconds(),
            epochs: std::mem::take(&mut self.position.records),
            ..Summary::default()
        };
        if let Some(run) = self.position.checkpoints.run() {
            run.write_summary(&summary)?;
        }
        Ok(summary)
    }
}
