//! A training run on several types, from its first epoch to its summary: the loop of
//! [`crate::trainer`] for typed minibatches.
//!
//! The result of a run is a function of its configuration, its dataset and its position, so a run
//! that is killed and resumed ends with the same bits as an uninterrupted one.

use std::time::Instant;

use graphmill_core::{NodeId, memory, table};
use graphmill_data::typed::TypedDataset;
use graphmill_loader::{
    order::{SeedOrder, random::Random},
    time::{TimeDraw, TimeOptions},
    typed::{TypedExtracted, TypedSampler, TypedSeeds, unreached_types},
};
use graphmill_nn::{Matrix, metric::Metric};

use super::{
    build,
    inference::TypedInference,
    learner::TypedLearner,
    position::TypedPosition,
    stages::{EpochBatches, Made},
    strategy::Strategy,
    task::{TypedTask, unread_columns},
    tiers::TypedTiers,
    visits::batch_size,
};
use crate::{
    Error, Result, RunContext, TrainConfig,
    build::schedule,
    config::SelectBy,
    inference::{Output, class_report, fixed_sample, score_labels},
    observer::{Observer, Progress, Start},
    record::{
        BatchOutcome, Best, EpochRecord, MachineRecord, Origin, Stages, Summary, TestScore, Traffic,
        TypedOrigin, ValidationScore,
    },
    run::Meter,
    strategy::{Flow, attempt},
    timeline::Stage,
};

/// Trains a model on a dataset of several types and evaluates it. Runs on the current rayon pool.
///
/// Writes the same records as [`crate::train`] into [`RunContext::run`]. The observer gets all
/// events but [`Observer::model`].
///
/// # Errors
/// As for [`crate::train`]; the dataset has no task that classifies nodes, or several and none is
/// chosen by the option `task`.
pub fn train(config: &TrainConfig, data: &TypedDataset, context: RunContext) -> Result<Summary> {
    let began = Instant::now();
    let task = TypedTask::new(data, &config.task)?;
    let metric = build::metric(config, &task)?;
    if task.split.train.is_empty() {
        return Err(Error::dataset(&data.name, "its task has no training nodes; add some to the split"));
    }
    let sampler = build::sampler(config, &task)?;
    let tiers = TypedTiers::new(config, data, &task, &*sampler)?;
    let mut strategy = Strategy::new(config, &task)?;
    let learner = TypedLearner::new(config, &task)?;
    let notes = notes(config, data, &task, &*sampler, &learner);
    tiers.description.iter().chain(&notes).for_each(|note| context.observer.note(note));
    let mut trainer = Trainer {
        config,
        task: &task,
        order: Random::new(&task.split.train, config.seed),
        batch_size: batch_size(config, &task),
        inference: TypedInference::new(config, &task, &*sampler, tiers.whole.clone())?,
        tiers: &tiers,
        sampler: &*sampler,
        metric,
        position: TypedPosition::new(
            config,
            task.record(data),
            learner,
            schedule(config)?,
            context.run,
            began,
        ),
        valid: fixed_sample(&task.split.valid, config.eval_nodes),
        logits: Matrix::default(),
        meter: Meter::new(config.epochs),
        observer: context.observer,
        stop: context.stop,
    };
    let outcome = trainer.run(data, context.resume, &mut strategy);
    let ended = trainer.observer.end(outcome.as_ref());
    // the error of the run itself comes first
    let summary = outcome?;
    ended?;
    Ok(summary)
}

/// Notes for the user about choices of the run.
fn notes(
    config: &TrainConfig,
    data: &TypedDataset,
    task: &TypedTask,
    sampler: &dyn TypedSampler,
    learner: &TypedLearner,
) -> Vec<String> {
    let schema = task.graph.schema();
    let mut notes = Vec::new();
    let unreached = unreached_types(sampler, schema, &[task.node_type]);
    if !unreached.is_empty() {
        notes.push(format!(
            "no path of {} hops leads from nodes of type {} to a training node, so they are not read",
            sampler.num_hops(),
            unreached.join(", ")
        ));
    }
    let learned: Vec<&str> = learner.model.learned_rows().map(|(t, _)| &schema.types()[t].name[..]).collect();
    if !learned.is_empty() {
        notes.push(format!(
            "nodes of type {} have no features: a learned row for each, by Adam on the rows of a batch and \
             without weight decay",
            learned.join(", ")
        ));
    }
    notes.extend(unread_columns(data, task));
    let draws: TimeOptions = config.own.get();
    if config.sampler == "weighted" || task.times.is_some() && draws.time_draw == TimeDraw::Recency {
        notes.push("scores use all neighbours with equal weights".into());
    }
    notes
}

/// Run in progress.
struct Trainer<'a, 'o> {
    config: &'a TrainConfig,
    task: &'a TypedTask,
    order: Random<'a>,
    batch_size: usize,
    sampler: &'a dyn TypedSampler,
    tiers: &'a TypedTiers,
    metric: &'static table::Entry<Metric>,
    /// The model and everything else that a checkpoint holds.
    position: TypedPosition<'a>,
    inference: TypedInference<'a>,
    /// Validation nodes that are scored.
    valid: Vec<NodeId>,
    /// Logits of the nodes scored last; their memory is reused.
    logits: Matrix,
    meter: Meter,
    observer: &'o mut dyn Observer,
    /// Returns true once the run is asked to stop.
    stop: &'o (dyn Fn() -> bool + Sync),
}

impl Trainer<'_, '_> {
    /// Trains from the first epoch, or from the checkpoint, to the summary.
    fn run(&mut self, data: &TypedDataset, resume: bool, strategy: &mut Strategy) -> Result<Summary> {
        self.prepare(data, resume)?;
        while !self.position.is_done(self.config.epochs) {
            let flow = self.train(strategy)?;
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
            let types = TypedOrigin::new(data, &self.task.name);
            let origin = Origin::of_types(self.config, &self.position.state.run.dataset, types)?;
            origin.write(run)?;
            run.write_config(&origin.config(self.config))?;
        }
        let state = &self.position.state.run;
        self.observer.start(&Start {
            epochs: self.config.epochs,
            batches: self.num_batches(),
            seeds: self.task.split.train.len(),
            from: (state.epoch, state.batch),
            metric: self.metric.name.to_string(),
            parameters: self.position.learner.model.num_params(),
            earlier: self.position.records.clone(),
            timeline: self.meter.timeline(),
        })
    }

    /// Number of batches of an epoch.
    fn num_batches(&self) -> u64 {
        self.task.split.train.len().div_ceil(self.batch_size) as u64
    }

    /// Trains on the batches of the current epoch, from the first or from the checkpoint's.
    fn train(&mut self, strategy: &mut Strategy) -> Result<Flow> {
        let state = &mut self.position.state.run;
        let epoch = state.epoch as u64;
        self.meter.begin_epoch(epoch, state.sums.seconds);
        let clock = Instant::now();
        let mut order = Vec::new();
        self.order.order(epoch, &mut order);
        state.sums.stages.order += clock.elapsed().as_secs_f64();
        self.meter.span("order", clock);
        let timeline = self.meter.timeline();
        let batches = EpochBatches {
            task: self.task,
            sampler: self.sampler,
            tiers: self.tiers,
            order: &order,
            batch_size: self.batch_size,
            seed: self.config.seed,
            epoch,
            aggregation: self.position.learner.model.aggregation(),
            timeline: &timeline,
        };
        let (from, to, mut is_trained) = (state.batch, self.num_batches(), false);
        let outcome = strategy.run(&batches, from..to, &mut |made| {
            is_trained = false;
            let memory = self.train_batch(made)?;
            is_trained = true;
            let flow = self.after_batch()?;
            is_trained = false;
            Ok((flow, memory))
        });
        if outcome.is_err() && !is_trained {
            self.position.rescue(self.observer);
        }
        let flow = outcome?;
        self.position.state.run.sums.seconds = self.meter.end_batches();
        if flow == Flow::Stop && self.position.state.run.batch < to {
            return Err(self.position.interrupted(to));
        }
        Ok(flow)
    }

    /// Trains on a batch and counts it. Returns its memory.
    fn train_batch(&mut self, made: Made<TypedExtracted>) -> Result<TypedSeeds> {
        let Made { batch, mut spent } = made;
        let (timeline, number) = (self.meter.timeline(), batch.sampled.seeds.number);
        let epoch = self.position.state.run.epoch as u32;
        let clock = Instant::now();
        let lr = self.position.schedule.lr(epoch, number as usize, self.num_batches() as usize);
        let learner = &mut self.position.learner;
        let outcome = attempt(Stage::Train, number, || learner.train(&batch, lr))?;
        spent.train = timeline.done(timeline.track("main"), Stage::Train, number, clock);
        self.count(&batch, outcome, spent)?;
        Ok(batch.recycle())
    }

    /// Adds a batch to the totals of the epoch.
    fn count(&mut self, batch: &TypedExtracted, outcome: BatchOutcome, spent: Stages) -> Result<()> {
        let (state, sampled) = (&mut self.position.state, &batch.sampled);
        let number = sampled.seeds.number + 1;
        if !outcome.loss.is_finite() {
            return Err(Error::Diverged { epoch: state.run.epoch + 1, batch: number, loss: outcome.loss });
        }
        let traffic = batch.traffic.iter().copied().fold(Traffic::default(), |mut sum, of| {
            sum += of;
            sum
        });
        let sums = &mut state.run.sums;
        sums.add_counts(outcome, traffic, &spent);
        sums.edges += sampled.num_edges() as u64;
        sums.bottom_edges += sampled.blocks.first().map_or(0, |block| block.num_edges()) as u64;
        sums.seconds = self.meter.seconds();
        state.nodes.resize(sampled.input_nodes.len(), 0);
        state.nodes.iter_mut().zip(&sampled.input_nodes).for_each(|(sum, nodes)| *sum += nodes.len() as u64);
        state.edges.resize(self.task.graph.schema().num_relations(), 0);
        state.traffic.resize(batch.traffic.len(), Traffic::default());
        state.traffic.iter_mut().zip(&batch.traffic).for_each(|(sum, of)| *sum += *of);
        for block in &sampled.blocks {
            let edges = block.relations.iter().map(|slice| slice.indices.len() as u64);
            state.edges.iter_mut().zip(edges).for_each(|(sum, edges)| *sum += edges);
        }
        (state.run.batch, state.run.step) = (number, self.position.learner.step);
        Ok(())
    }

    /// Reports a batch, and writes a checkpoint if one is due.
    fn after_batch(&mut self) -> Result<Flow> {
        let state = &self.position.state.run;
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
        let (epoch, batches) = (state.run.epoch, self.num_batches());
        let has_device = self.config.num_devices() > 0;
        let lr = self.position.schedule.lr(epoch as u32, batches as usize - 1, batches as usize);
        let seconds = clock.elapsed().as_secs_f64();
        let record = EpochRecord {
            node_types: self.task.count_nodes(|t| state.nodes.get(t).copied().unwrap_or(0)),
            edge_types: self.task.count_edges(|r| state.edges.get(r).copied().unwrap_or(0)),
            type_traffic: self.task.traffic(&state.traffic, has_device),
            ..state.run.sums.record(epoch + 1, scored, lr, seconds, has_device)
        };
        Ok(self.meter.complete(record))
    }

    /// Score of the current epoch, if `--eval-every` selects it and the score is defined, and
    /// whether the model is the best so far. Without validation nodes the newest model is the best.
    fn judge(&mut self) -> Result<(Option<ValidationScore>, bool)> {
        let done = self.position.state.run.epoch + 1;
        let is_turn = done.is_multiple_of(self.config.eval_every) || done == self.config.epochs;
        if !is_turn || self.valid.is_empty() {
            return Ok((None, self.valid.is_empty()));
        }
        self.observer.evaluate(self.valid.len());
        let valid = std::mem::take(&mut self.valid);
        let score = self.score_of(&valid);
        self.valid = valid;
        if score.is_err() {
            self.position.rescue(self.observer);
        }
        let Some(score) = score? else {
            let best = self.position.state.run.best;
            return Ok((None, best.is_none_or(|best| best.valid_score.is_none())));
        };
        let loss = self.position.learner.loss(&self.logits, &self.valid);
        let judged = if self.config.select_by == SelectBy::Loss { -loss } else { score };
        let is_best = self.position.observe(judged, loss);
        Ok((Some(ValidationScore { score, loss }), is_best))
    }

    /// Score of the model on `nodes`; `None` if it is not defined.
    fn score_of(&mut self, nodes: &[NodeId]) -> Result<Option<f64>> {
        let model = &self.position.learner.model;
        self.inference.run(model, nodes, Output::Logits, &mut self.logits)?;
        Ok(score_labels(self.metric.make, &self.logits, &self.task.labels, nodes))
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
        if flow == Flow::Stop && self.position.state.run.epoch < epochs {
            return Err(self.position.interrupted(self.num_batches()));
        }
        Ok(())
    }

    /// Scores the best model on the test nodes, and writes the summary.
    fn finish(&mut self) -> Result<Summary> {
        self.position.restore_best()?;
        let nodes = fixed_sample(&self.task.split.test, self.config.eval_nodes);
        let mut test = TestScore { metric: self.metric.name.to_string(), score: None };
        let mut by_class = None;
        if !nodes.is_empty() {
            self.observer.evaluate(nodes.len());
            let clock = Instant::now();
            test.score = self.score_of(&nodes)?;
            by_class = class_report(&self.logits, &self.task.labels, &nodes, &self.task.classes);
            self.meter.span("test", clock);
        }
        let state = &self.position.state.run;
        let summary = Summary {
            graphmill: env!("CARGO_PKG_VERSION").to_string(),
            dataset: state.dataset.clone(),
            config: self.config.to_json(),
            best: state.best.unwrap_or(Best { epoch: 0, valid_score: None }),
            test,
            by_class,
            machine: Some(MachineRecord::here()),
            peak_rss_bytes: memory::peak().unwrap_or(0),
            presampling: self.tiers.presampling,
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
