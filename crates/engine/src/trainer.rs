//! A training run from its first epoch to its summary. Read this file first.
//!
//! ```text
//!   every epoch:  order ─► strategy { sample ─► extract ─► train } per batch ─► score ─► record, checkpoint
//! ```
//!
//! The result of a run is a function of its configuration, its dataset and the position it has
//! reached ([`RunState`]), which is why a run that was killed and resumed ends with the same bits as
//! one that was not: the checkpoint holds the models, the optimiser's state and the position, and nothing
//! else matters.

pub mod over_ranks;

use std::{sync::Arc, time::Instant};

use graphmill_core::{NodeId, memory::resident};
use graphmill_data::Dataset;
use graphmill_nn::schedule::EarlyStop;

pub use crate::run::{RunContext, RunState};
use crate::{
    Result, TrainConfig,
    accelerator::ComputeDevices,
    build,
    config::{Devices, SelectBy},
    distributed::{AssignedParts, RankDataset, Ranks},
    inference::{Inference, some},
    learner::Learner,
    memory::{self, MemoryPlacements},
    observer::{Observer, Start},
    record::{
        Best, DatasetRecord, EpochRecord, Origin, ReuseRecord, Samples, Staleness, Summary, TestScore,
        ValidationScore, WorkerRecord, bottleneck, workers,
    },
    run::{
        CheckpointWriter, RunPosition,
        notices::Choices,
        scoring::Scorer,
        setup::{self, Parts, Tables},
        updates::Updates,
    },
    stage::Loader,
    strategy::{self, Epoch, Flow, Nvidia, Setting, Strategy},
    tiers::Whole,
    timeline::Timeline,
};

/// Least seconds between the checkpoints that are written because an epoch has ended: epochs of milliseconds
/// are repeated faster than they are saved.
const EPOCH_CHECKPOINT_SECONDS: f64 = 1.0;

/// Trains a model and evaluates it. Runs on the current rayon pool.
///
/// Writes records into [`RunContext::run`]: the configuration, the metrics of every epoch, checkpoints and the summary.
/// The files for people (`report.html`, and `trace.json` and TensorBoard events if the options ask for them) are
/// written by the observer `graphmill_report::Recorder`, which the commands use; without it there are none.
///
/// # Errors
/// An option that is unknown or impossible, a dataset that cannot be trained on, a loss that is not
/// finite, a run directory that cannot be written, or [`Error::Interrupted`] with a valid checkpoint
/// behind it. A stage that failed: all batches before it are trained on, and where the model is whole they are in the
/// checkpoint.
pub fn train(config: &TrainConfig, data: &Dataset, job: RunContext) -> Result<Summary> {
    train_from(memory::residence(config, data), config, data, job)
}

fn train_from(
    residence: MemoryPlacements,
    config: &TrainConfig,
    data: &Dataset,
    job: RunContext,
) -> Result<Summary> {
    // before anything that takes long
    setup::check_all_reduce(config)?;
    let computers = ComputeDevices::open(config)?;
    run(&computers, Parts::new(config, data)?, residence, config, data, None, job)
}

/// A run of these parts.
fn run(
    computers: &ComputeDevices,
    parts: Parts,
    placements: MemoryPlacements,
    config: &TrainConfig,
    data: &Dataset,
    view: Option<&RankDataset>,
    context: RunContext,
) -> Result<Summary> {
    let clock = Instant::now();
    let Parts { metric, sampler, order, strategy: make, optimizer, schedule, model } = parts;
    let tables = match view {
        None => Tables::new(computers, config, data, placements, &*sampler, &*order)?,
        Some(view) => Tables::of_rank(config, view, &*sampler, &*order)?,
    };
    let ranks = view.map(|view| (view.ranks.clone(), view.feature()));
    let samplers = computers.samplers(config, data, &tables.graph, strategy::draws_in_parts(config))?;
    let draws = samplers.each.first().map_or(&*sampler, |sampler| &**sampler);
    let (loader, orders) = setup::loader(config, data, &tables, draws, &*order, &model)?;
    let scores = computers.inference(data, &model);
    let mut learner = Learner::new(computers.training(), model, optimizer, &data.labels, orders, config);
    if let (true, Whole::Table(table)) = (loader.fused, &tables.whole) {
        learner.passes.table = Some(table.clone());
    }
    learner.exchange = view.map(|view| view.ranks.clone() as _);

    let nvidia = tables.on_gpus.as_ref().map(|rows| Nvidia { computers, samplers: &samplers, rows });
    let setting = Setting { nvidia, ..Setting::new(config, data, &*sampler, &*order, &tables.feature) };
    let dataset = match (view, context.run) {
        (Some(view), _) => view.record(),
        (None, Some(_)) => DatasetRecord::identified(data)?,
        // nothing is written that could be compared
        (None, None) => data.into(),
    };
    let partition = view.map(|view| view.partition.clone());
    let symmetric = loader.symmetric.as_deref();
    let inference = Inference::new(&tables.graph, &tables.whole, symmetric, scores, config.eval_chunk);
    let inference = inference.taking(build::exact(config, data)?);
    let mut trainer = Trainer {
        config,
        computers,
        data,
        loader: &loader,
        strategy: make(setting)?,
        position: RunPosition {
            learner,
            state: RunState { dataset, partition, ..RunState::default() },
            schedule,
            early: EarlyStop::new(u32::try_from(config.patience).unwrap_or(u32::MAX)),
            records: Vec::new(),
            checkpoints: CheckpointWriter::new(context.run, clock),
        },
        ranks: view.map(|view| view.ranks.clone()),
        scorer: Scorer::new(metric, data, inference, ranks),
        dealt: view.and_then(|view| view.dealt.clone()),
        valid: some(&data.split.valid, config.eval_nodes),
        order: Vec::new(),
        timeline: Arc::new(Timeline::begin()),
        memory: Samples::of_run(config.epochs),
        workers: Vec::new(),
        observer: context.observer,
        reported_refusal: false,
        stop: context.stop,
    };
    let (tables, samplers, over_ranks) = (&tables, &samplers, view.is_some());
    let choices =
        Choices { config, data, computers, samplers, placements, tables, loader: &loader, over_ranks };
    choices.notices().iter().for_each(|note| trainer.observer.note(note));
    let outcome = trainer.run(context.resume);
    let ended = trainer.observer.end(outcome.as_ref());
    // the error of the run itself comes first
    let summary = outcome?;
    ended?;
    Ok(summary)
}

/// A run under way. `'a` outlives it: configuration, dataset, tables.
struct Trainer<'a> {
    config: &'a TrainConfig,
    computers: &'a ComputeDevices,
    data: &'a Dataset,
    loader: &'a Loader<'a>,
    strategy: Box<dyn Strategy + 'a>,
    scorer: Scorer<'a>,
    position: RunPosition<'a>,
    /// The ranks that train together.
    ranks: Option<Arc<Ranks>>,
    /// The parts that this rank draws subgraphs from, if it does.
    dealt: Option<Arc<AssignedParts>>,
    /// The validation nodes that are scored.
    valid: Vec<NodeId>,
    /// Order of the epoch in hand; its memory is reused.
    order: Vec<NodeId>,
    /// Stages of every worker.
    timeline: Arc<Timeline>,
    /// Memory in the epoch in hand.
    memory: Samples,
    /// Workers of the epoch in hand.
    workers: Vec<WorkerRecord>,
    observer: &'a mut dyn Observer,
    /// Whether it was reported that a device captures no steps.
    reported_refusal: bool,
    stop: &'a (dyn Fn() -> bool + Sync),
}

impl Trainer<'_> {
    /// From the first epoch, or from the checkpoint, to the summary.
    fn run(&mut self, resume: bool) -> Result<Summary> {
        if resume {
            self.position.resume(self.ranks.as_deref(), &mut *self.observer)?;
        }
        self.strategy.prepare(self.loader, &self.position.learner)?;
        self.start()?;
        while !self.is_done() {
            self.report_notes();
            let flow = self.epoch()?;
            let record = self.score()?;
            self.record(record, flow)?;
        }
        self.report_notes();
        self.finish()
    }

    /// Writes what the run is made from, now that its options and dataset are known to be sound.
    fn start(&mut self) -> Result<()> {
        if let Some(run) = self.position.checkpoints.run() {
            let origin = Origin::new(self.config, &self.position.state.dataset, self.data)?;
            origin.write(run)?;
            run.write_config(&origin.config(self.config))?;
        }
        self.observer.start(&Start {
            epochs: self.config.epochs,
            batches: self.loader.num_batches(),
            seeds: self.loader.num_seeds(),
            from: (self.position.state.epoch, self.position.state.batch),
            metric: self.scorer.metric.name.to_string(),
            parameters: self.position.learner.model.num_params(),
            earlier: self.position.records.clone(),
            timeline: self.timeline.clone(),
        })
    }

    /// Passes new notes of the strategy and the devices on to the observer.
    fn report_notes(&mut self) {
        while let Some(note) = self.strategy.note() {
            self.observer.note(&note);
        }
        if !self.reported_refusal
            && let Some(note) = self.computers.refusal()
        {
            self.reported_refusal = true;
            self.observer.note(&note);
        }
    }

    /// Whether all epochs are done, or early stopping has seen enough.
    fn is_done(&self) -> bool {
        self.position.state.epoch >= self.config.epochs || self.position.early.stops()
    }

    /// The batches of the epoch in hand: from the first, or from where a checkpoint left it.
    fn epoch(&mut self) -> Result<Flow> {
        if let Some(ranks) = &self.ranks {
            ranks.count_bytes(true)?;
        }
        if let Some(dealt) = &self.dealt {
            dealt.deal_for(self.position.state.epoch as u64)?;
        }
        let RunState { epoch, batch: from, sums, .. } = &self.position.state;
        let (number, from, earlier) = (*epoch as u64, *from, sums.seconds);
        let (loader, batches) = (self.loader, self.loader.num_batches());
        let (began, timeline) = (Instant::now(), self.timeline.clone());
        timeline.begin_epoch(number);
        loader.order(number, &mut self.order);
        self.position.state.sums.stages.order += began.elapsed().as_secs_f64();
        timeline.span("order", began);

        let mut updates = Updates {
            config: self.config,
            state: &mut self.position.state,
            checkpoints: &mut self.position.checkpoints,
            observer: &mut *self.observer,
            ranks: self.ranks.as_deref(),
            stop: self.stop,
            timeline: &timeline,
            memory: &mut self.memory,
            batches,
            began,
            earlier,
            is_recorded: true,
        };
        let schedule = self.position.schedule;
        let flow = self.strategy.run(Epoch {
            number,
            order: &self.order,
            from,
            to: batches,
            loader,
            learner: &mut self.position.learner,
            lr: &|batch| schedule.lr(number as u32, batch as usize, batches as usize),
            after: &mut |learner, done| updates.after(learner, done),
            timeline: &timeline,
        });
        let is_recorded = updates.is_recorded;
        if flow.is_err() && is_recorded {
            self.position.rescue(&mut *self.observer);
        }
        let flow = flow?;
        let seconds = began.elapsed().as_secs_f64();
        if let Some(ranks) = &self.ranks {
            ranks.count_bytes(false)?;
        }
        self.position.state.sums.seconds = earlier + seconds;
        self.workers = workers(&timeline.busy(), seconds);
        if flow == Flow::Stop && self.position.state.batch < batches {
            return Err(self.position.interrupted(batches));
        }
        Ok(flow)
    }

    /// Scores the validation nodes if it is their turn, and takes the model if it is the best so far.
    ///
    /// # Errors
    /// Features cannot be read.
    fn score(&mut self) -> Result<EpochRecord> {
        let clock = Instant::now();
        let (epoch, batches) = (self.position.state.epoch, self.loader.num_batches() as usize);
        let lr = self.position.schedule.lr(epoch as u32, batches - 1, batches);
        let (scored, better) = self.validate()?;
        if better {
            let valid_score = scored.map(|valid| valid.score);
            self.position.state.best = Some(Best { epoch: epoch + 1, valid_score });
            self.position.checkpoints.best.keep(&self.position.learner.model);
        }
        self.timeline.span("score", clock);
        let ranks = match &self.ranks {
            Some(ranks) => ranks.end_epoch(&mut self.position.state.sums)?,
            None => Vec::new(),
        };
        let has_device = *self.config.devices != Devices::Cpu;
        let workers = std::mem::take(&mut self.workers);
        let variation = || self.position.learner.history.place().variation;
        let eval_seconds = clock.elapsed().as_secs_f64();
        Ok(EpochRecord {
            bottleneck: bottleneck(&workers),
            workers,
            memory_bytes: resident(),
            memory: self.memory.take(),
            devices: self.strategy.devices(),
            ranks,
            reuse: self.strategy.reuse().map(|reuse| ReuseRecord { variation: variation(), ..reuse }),
            ..self.position.state.sums.record(epoch + 1, scored, lr, eval_seconds, has_device)
        })
    }

    /// Score of the validation nodes, if it is their turn, and whether the model is the best so far: without validation
    /// nodes, or while their score is not defined, the newest is.
    fn validate(&mut self) -> Result<(Option<ValidationScore>, bool)> {
        let (epoch, valid) = (self.position.state.epoch, &self.valid[..]);
        let turn = (epoch + 1).is_multiple_of(self.config.eval_every) || epoch + 1 == self.config.epochs;
        if !turn || valid.is_empty() {
            return Ok((None, valid.is_empty()));
        }
        self.observer.evaluate(valid.len());
        let score = self.scorer.score(&self.position.learner.model, valid);
        if score.is_err() {
            self.position.rescue(&mut *self.observer);
        }
        let RunPosition { learner, state, schedule, early, .. } = &mut self.position;
        let Some(mut score) = score? else {
            return Ok((None, state.best.is_none_or(|best| best.valid_score.is_none())));
        };
        let mut loss = learner.loss(self.scorer.logits(), valid);
        if let Some(ranks) = &self.ranks {
            // processors of different kinds round differently: decisions are made from the same numbers
            [score, loss] = ranks.agree([score, loss])?;
        }
        let judged = if self.config.select == SelectBy::Loss { -loss } else { score };
        schedule.observe(judged);
        Ok((Some(ValidationScore { score, loss }), early.observe(judged, loss)))
    }

    /// Records the epoch, goes on to the next, and writes a checkpoint if it is time.
    fn record(&mut self, record: EpochRecord, flow: Flow) -> Result<()> {
        let batches = self.loader.num_batches();
        self.position.next_epoch();
        if let Some(run) = self.position.checkpoints.run() {
            run.append_epoch(&record)?;
        }
        self.observer.epoch(&record)?;
        self.position.records.push(record);
        let due = self.position.checkpoints.seconds_since_save() >= EPOCH_CHECKPOINT_SECONDS;
        if due || self.is_done() || flow == Flow::Stop {
            let clock = Instant::now();
            self.position.save()?;
            self.timeline.span("checkpoint", clock);
        }
        if flow == Flow::Stop && self.position.state.epoch < self.config.epochs {
            return Err(self.position.interrupted(batches));
        }
        Ok(())
    }

    /// Scores the best model on the test nodes and sums the run up.
    fn finish(&mut self) -> Result<Summary> {
        self.position.checkpoints.export()?;
        if self.position.state.best.is_some() {
            self.position.checkpoints.best.restore(&mut self.position.learner.model)?;
        }
        self.observer.model(&self.position.learner.model);
        let test = &some(&self.data.split.test, self.config.eval_nodes)[..];
        let mut score = None;
        if !test.is_empty() {
            self.observer.evaluate(test.len());
            let clock = Instant::now();
            score = self.scorer.score(&self.position.learner.model, test)?;
            self.timeline.span("test", clock);
        }
        let mut summary = Summary::new(
            self.config,
            self.data,
            std::mem::take(&mut self.position.records),
            self.position.state.best.unwrap_or(Best { epoch: 0, valid_score: None }),
            TestScore { metric: self.scorer.metric.name.to_string(), score },
            self.position.checkpoints.seconds(),
        );
        summary.dataset.clone_from(&self.position.state.dataset);
        summary.staleness =
            Staleness { bound: self.strategy.staleness_bound(), max: self.position.state.staleness };
        summary.nvidia = self.computers.records();
        summary.all_reduce = self.computers.sums();
        if let Some(run) = self.position.checkpoints.run() {
            run.write_summary(&summary)?;
        }
        Ok(summary)
    }
}

#[cfg(test)]
mod faults;
#[cfg(test)]
mod tests;
