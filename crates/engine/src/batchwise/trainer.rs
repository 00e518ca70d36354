//! A run from its first epoch to its summary: the loop of [`crate::trainer`] for runs whose batches
//! are trained on one after the other.
//!
//! The result of a run is a function of its configuration, its dataset and its position, so a run
//! that is killed and resumed ends with the same bits as an uninterrupted one.

use std::time::Instant;

use graphmill_core::memory;

use super::{
    batch_run::{BatchRun, Part},
    learner::BatchLearner,
    position::Position,
    session::Session,
};
use crate::{
    Error, Result, RunContext, TrainConfig,
    build::schedule,
    config::{EvalEvery, SelectBy, link_task::seeds_are},
    observer::Start,
    record::{
        Best, EpochRecord, MachineRecord, Origin, ScoredRows, Staleness, Summary, TestScore, TypedOrigin,
        ValidationScore,
    },
    run::{Earlier, Meter, scoring::choose_interval},
    strategy::Flow,
    verification::FeatureFiles,
};

/// Trains `learner` by the batches of `run` and evaluates it. The run began at `began`. Returns the
/// summary, and the learner with the best model.
///
/// # Errors
/// A stage fails, the loss is not finite, a file cannot be written, the observer fails, or the run
/// is asked to stop.
pub(crate) fn train<R: BatchRun>(
    config: &TrainConfig,
    run: R,
    learner: R::Learner,
    context: RunContext,
    began: Instant,
) -> Result<(Summary, R::Learner)> {
    let schedule = schedule(config)?;
    let mut position = Position::new(config, run.dataset(), learner, schedule, context.run, began);
    position.state.run.partition = run.partition();
    let session = Session {
        config,
        batches: run.num_batches(),
        position,
        meter: Meter::new(config.epochs),
        observer: context.observer,
        stop: context.stop,
        is_reporting: false,
        ranks: run.ranks().cloned(),
    };
    let mut trainer = Trainer { run, session };
    let outcome = trainer.run(context.resume);
    let ended = trainer.session.observer.end(outcome.as_ref());
    // the error of the run itself comes first
    let summary = outcome?;
    ended?;
    Ok((summary, trainer.session.position.learner))
}

/// Run in progress.
struct Trainer<'a, 'o, R: BatchRun> {
    run: R,
    session: Session<'a, 'o, R::Learner>,
}

impl<R: BatchRun> Trainer<'_, '_, R> {
    /// Trains from the first epoch, or from the checkpoint, to the summary.
    fn run(&mut self, resume: bool) -> Result<Summary> {
        self.prepare(resume)?;
        while !self.session.position.is_done(self.session.config.epochs) {
            let flow = self.train()?;
            let record = self.score()?;
            self.record(record, flow)?;
        }
        self.finish()
    }

    /// Continues from the checkpoint if the run resumes, and writes the origin of the run once its
    /// options and dataset are known to be valid.
    fn prepare(&mut self, resume: bool) -> Result<()> {
        let Session { config, batches, position, meter, observer, ranks, .. } = &mut self.session;
        let is_resumed = resume && position.resume(ranks.as_deref(), *observer)?;
        let mut earlier = if is_resumed { None } else { Earlier::open(config, ranks.as_deref())? };
        if let Some(earlier) = &mut earlier {
            position.start_from(earlier, self.run.data(), *observer)?;
        }
        if let Some(run) = position.checkpoints.run() {
            let types = TypedOrigin::new(self.run.data(), self.run.task());
            let types = TypedOrigin { relations: self.run.relations(), ..types };
            let origin = Origin::of_types(config, &position.state.run.dataset, types)?;
            let origin = origin.scored_by(&self.run.metric());
            let origin = Origin { targets: self.run.target_scale(), ..origin };
            origin.write(run)?;
            run.write_config(&origin.config(config))?;
        }
        if earlier.is_some() {
            // from now on, the run does not depend on the other one
            position.save()?;
        }
        let state = &position.state.run;
        observer.start(&Start {
            epochs: config.epochs,
            batches: *batches,
            seeds: self.run.num_seeds(),
            seeds_are: seeds_are(config),
            from: (state.epoch, state.batch),
            metric: self.run.metric(),
            selects_by_loss: config.select_by == SelectBy::Loss,
            parameters: position.learner.num_params(),
            earlier: position.records.clone(),
            timeline: meter.timeline(),
        })
    }

    /// Trains on the batches of the current epoch, from the first or from the checkpoint's.
    fn train(&mut self) -> Result<Flow> {
        let Self { run, session } = self;
        let state = &mut session.position.state.run;
        let epoch = state.epoch as u64;
        session.meter.begin_epoch(epoch, state.sums.seconds);
        let clock = Instant::now();
        let mut order = Vec::new();
        run.order(epoch, &mut order);
        state.sums.stages.order += clock.elapsed().as_secs_f64();
        session.meter.span("order", clock);
        let (from, to) = (state.batch, session.batches);
        let outcome = run.train(session, &order, from..to);
        if outcome.is_err() && !session.is_reporting {
            session.position.rescue(session.observer);
        }
        let flow = outcome?;
        session.position.state.run.sums.seconds = session.meter.end_batches();
        if flow == Flow::Stop && session.position.state.run.batch < to {
            return Err(session.position.interrupted(to));
        }
        Ok(flow)
    }

    /// Scores the epoch if it is selected, takes the model if it is the best so far, and makes the
    /// record.
    fn score(&mut self) -> Result<EpochRecord> {
        let clock = Instant::now();
        let (scored, is_best) = self.judge()?;
        let Self { run, session } = self;
        if is_best {
            session.position.keep_best(scored.map(|valid| valid.score))?;
        }
        if session.position.state.run.epoch + 1 < session.config.epochs {
            run.end_epoch(&mut session.position.learner)?;
        }
        session.meter.span("score", clock);
        let (state, lr) = (&session.position.state, session.lr(session.batches - 1));
        let seconds = clock.elapsed().as_secs_f64();
        let record = state.run.sums.record(state.run.epoch + 1, scored, lr, seconds, run.has_devices());
        let record = run.complete(record, &state.counts);
        Ok(session.meter.complete(record))
    }

    /// Score of the current epoch, if `--eval-every` selects it and the score is defined, and
    /// whether the model is the best so far. Without validation seeds the newest model is the best.
    fn judge(&mut self) -> Result<(Option<ValidationScore>, bool)> {
        let Self { run, session } = self;
        let (config, scored) = (session.config, run.num_scored(Part::Valid));
        let done = session.position.state.run.epoch + 1;
        let chosen = session.position.state.run.eval_interval;
        let every = config.eval_every.fixed().or(chosen).unwrap_or(1);
        let is_turn = done.is_multiple_of(every) || done == config.epochs;
        if !is_turn || scored == 0 {
            return Ok((None, scored == 0));
        }
        session.observer.evaluate(scored);
        // memory that is refused to the score costs no update
        let score = memory::catch(|| run.score(&mut session.position.learner, Part::Valid));
        let score = score.map_err(Error::from).and_then(|score| score);
        run.note().into_iter().for_each(|note| session.observer.note(&note));
        if score.is_err() {
            session.position.rescue(session.observer);
        } else if config.eval_every == EvalEvery::Auto && chosen.is_none() {
            let work = run.work(&session.position.learner, &session.position.state.run.sums)?;
            session.position.state.run.eval_interval = Some(choose_interval(work, session.observer));
        }
        let Some(scored) = score? else {
            let best = session.position.state.run.best;
            return Ok((None, best.is_none_or(|best| best.valid_score.is_none())));
        };
        let is_best = session.position.observe(scored.judged, scored.loss);
        Ok((Some(ValidationScore { score: scored.score, loss: scored.loss }), is_best))
    }

    /// Records the epoch, advances to the next, and writes a checkpoint if one is due.
    fn record(&mut self, record: EpochRecord, flow: Flow) -> Result<()> {
        let session = &mut self.session;
        let epochs = session.config.epochs;
        session.position.end_epoch(record, session.observer)?;
        let is_due = session.is_due_after_epoch()?;
        if is_due || session.position.is_done(epochs) || flow == Flow::Stop {
            session.save()?;
        }
        if flow == Flow::Stop && session.position.state.run.epoch < epochs {
            return Err(session.position.interrupted(session.batches));
        }
        Ok(())
    }

    /// Scores the best model on the test seeds, and writes the summary.
    fn finish(&mut self) -> Result<Summary> {
        let Self { run, session } = self;
        session.position.restore_best()?;
        let mut test = TestScore { metric: run.metric(), score: None };
        let scored = run.num_scored(Part::Test);
        let (mut diagnostics, mut baseline) = (Vec::new(), None);
        if scored > 0 {
            session.observer.evaluate(scored);
            let clock = Instant::now();
            for &part in run.diagnosed() {
                if run.num_scored(Part::named(part)) > 0 {
                    run.score(&mut session.position.learner, Part::named(part))?;
                    diagnostics.extend(run.diagnostics(part));
                }
            }
            let score = run.score(&mut session.position.learner, Part::Test)?;
            run.note().into_iter().for_each(|note| session.observer.note(&note));
            diagnostics.extend(run.diagnostics("test"));
            test.score = score.map(|scored| scored.score);
            baseline = run.baseline()?;
            session.meter.span("test", clock);
        }
        let position = &mut session.position;
        let state = &position.state.run;
        let summary = Summary {
            graphmill: env!("CARGO_PKG_VERSION").to_string(),
            dataset: state.dataset.clone(),
            config: session.config.to_json(),
            scored_rows: ScoredRows::of(session.config),
            best: state.best.unwrap_or(Best { epoch: 0, valid_score: None }),
            test,
            by_class: if scored > 0 { run.by_class() } else { None },
            diagnostics,
            baseline,
            machine: Some(MachineRecord::here()),
            staleness: Staleness { bound: run.staleness_bound(), max: state.staleness },
            nvidia: run.nvidia(),
            presampling: run.presampling(),
            verification: FeatureFiles::of_types(run.data()).record(),
            peak_rss_bytes: memory::peak().unwrap_or(0),
            seconds: position.checkpoints.seconds(),
            epochs: std::mem::take(&mut position.records),
            ..Summary::default()
        };
        if let Some(run) = position.checkpoints.run() {
            run.write_summary(&summary)?;
        }
        Ok(summary)
    }
}
