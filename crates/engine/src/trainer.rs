//! A training run from its first epoch to its summary. Read this file first.
//!
//! ```text
//!   every epoch:  order ─► strategy { sample ─► extract ─► train } per batch ─► score ─► record, checkpoint
//! ```
//!
//! [`train`] opens the devices, makes the parts that the options name, and assembles a `Trainer`,
//! whose `run` is the loop. Each part has a file in [`crate::run`].
//!
//! The result of a run is a function of its configuration, its dataset and its position
//! ([`RunState`]). A run that is killed and resumed therefore ends with the same bits as an
//! uninterrupted one: the checkpoint holds the models, the optimiser's state and the position, and
//! the run depends on nothing else.

#![forbid(unsafe_code)]

pub mod over_ranks;

use std::time::Instant;

use graphmill_core::NodeId;
use graphmill_data::Dataset;

pub use crate::run::{RunContext, RunState};
use crate::{
    Error, Result, TrainConfig,
    accelerator::{ComputeDevices, Samplers, topology_share},
    bottom,
    config::Devices,
    config::link_task::is_link,
    distributed,
    link::{self, LinkTask},
    memory::{self, MemoryPlacements},
    observer::Observer,
    record::{DeviceRecord, EpochRecord, ReuseRecord, Summary},
    run::{
        Inputs, Meter, Peers, Preparation, RunPosition,
        notices::{Choices, LaterNotes},
        scoring::{Scorer, Tested},
        setup::{self, Parts, Tables},
        summary,
        updates::Updates,
    },
    stage::Loader,
    strategy::{self, Epoch, Flow, Strategy},
    tiers::{OnlineCounts, Presampling, Restart, counted_epochs},
};

/// Trains a model and evaluates it. Runs on the current rayon pool.
///
/// Writes records into [`RunContext::run`]: the configuration, the metrics of every epoch,
/// checkpoints and the summary. The files for people (`report.html`, and `trace.json` and
/// TensorBoard events if the options ask for them) are written by the observer
/// `graphmill_report::Recorder`, which the commands use.
///
/// # Errors
/// An option is unknown or impossible, the dataset is not suitable for training, the loss is not
/// finite, the run directory cannot be written, or the run is stopped
/// ([`Error::Interrupted`], with a valid checkpoint). If a stage fails,
/// all batches before it are trained on, and the checkpoint holds them if no update is incomplete.
pub fn train(config: &TrainConfig, data: &Dataset, context: RunContext) -> Result<Summary> {
    let outcome = match is_link(config) {
        true => train_links(config, data, context),
        false => train_from(memory::placements(config, data), config, data, None, context),
    };
    outcome.map_err(Error::before_training)
}

/// Trains on the links of a graph.
fn train_links(config: &TrainConfig, data: &Dataset, context: RunContext) -> Result<Summary> {
    link::check(config, false)?;
    link::check_tiers(config)?;
    let links = LinkTask::new(config, data)?;
    links.notes.iter().for_each(|note| context.observer.note(note));
    train_from(memory::placements(config, &links.data), config, &links.data, Some(&links), context)
}

/// Trains in one process.
fn train_from(
    placements: MemoryPlacements,
    config: &TrainConfig,
    data: &Dataset,
    links: Option<&LinkTask>,
    context: RunContext,
) -> Result<Summary> {
    // before any long work
    setup::check_all_reduce(config)?;
    let (config, note) = bottom::chosen(config, data, None, context.run.filter(|_| context.resume))?;
    note.iter().for_each(|note| context.observer.note(note));
    let config = &*config;
    let devices = &ComputeDevices::open(config)?;
    let progress = &Preparation::new(&*context.observer);
    // of links, `data` is without the edges that validate and test
    let parts = Parts::new(config, data, progress)?;
    let (presampling, view) = (&Presampling::default(), None);
    run(Inputs { config, data, devices, placements, presampling, links, view, progress }, parts, context)
}

/// Makes the tables that the parts read, the stages on the tables, and a trainer, and runs it.
fn run(inputs: Inputs, parts: Parts, context: RunContext) -> Result<Summary> {
    let began = Instant::now();
    let Inputs { config, data, devices, progress, .. } = inputs;
    let Parts { metric, sampler, order, strategy, optimizer, schedule, model, bottom, labels } = parts;

    inputs.files().prepare(config)?.iter().for_each(|note| context.observer.note(note));
    let source = inputs.links.map(|links| links.source(config)).transpose()?;
    let tables = Tables::new(&inputs, (&*sampler, &*order), source.as_ref(), bottom)?.with_labels(labels);
    let samplers = match inputs.view {
        // the graph of a rank has the lists of its own nodes only
        Some(_) => Samplers::default(),
        None => {
            // if their number is balanced later, the first one samples until then
            let all = devices.gpus().len();
            let sampling = setup::sampling_devices(&inputs);
            let (draw, share) = (sampling.map_or(all, |of| of.count.unwrap_or(1)), topology_share(sampling));
            let in_parts = strategy::draws_in_parts(config);
            devices.samplers(config, data, &tables.graph, in_parts, 0..draw, share)?
        }
    };

    let draws = samplers.each.first().map_or(&*sampler, |sampler| &**sampler);
    progress.check()?;
    let (loader, orders) = setup::loader(&inputs, &tables, draws, &*order, source.as_ref(), &model)?;
    let scorer = Scorer::new(&inputs, metric, &tables, &loader, &model)?;
    let learner = setup::learner(&inputs, &tables, &loader, orders, model, optimizer)?;
    let drawing = (&*sampler, &*order);
    let setting = setup::strategy_context(&inputs, &tables, &samplers, drawing, source.as_ref());

    // of the ranks that train: a graph store, which serves them, takes part in their checkpoints
    let reuses = strategy::draws_in_parts(config);
    let restart = match inputs.view {
        _ if !reuses && inputs.links.is_none() => Restart::Redraw,
        None => Restart::Stored,
        Some(view) => Restart::StoredByRank(view.ranks.clone()),
    };
    let online = |epochs| OnlineCounts::new(epochs, restart, &data.graph, inputs.presampling, &tables.late);
    let online = counted_epochs(config)?.map(|epochs| online(epochs).with_aggregates(bottom.is_some()));
    let mut trainer = Trainer {
        inputs,
        loader: &loader,
        strategy: strategy.make(setting)?,
        position: RunPosition::new(&inputs, learner, schedule, online, context.run, began)?,
        scorer,
        peers: Peers::new(inputs.view),
        order: Vec::new(),
        meter: Meter::new(config.epochs),
        notes: LaterNotes::new(devices),
        observer: context.observer,
        stop: context.stop,
    };
    Choices { inputs, samplers: &samplers, tables: &tables, loader: &loader }.report(trainer.observer);
    let outcome = trainer.run(context.resume);
    let ended = trainer.observer.end(outcome.as_ref());
    // the error of the run itself comes first
    let summary = outcome?;
    ended?;
    Ok(summary)
}

/// Run in progress. Configuration, dataset and tables (`'a`) outlive it.
struct Trainer<'a> {
    inputs: Inputs<'a>,
    /// Order, sample and extract.
    loader: &'a Loader<'a>,
    /// Decides which worker runs each stage, on which device, and how far ahead.
    strategy: Box<dyn Strategy + 'a>,
    /// The model and everything else that a checkpoint holds.
    position: RunPosition<'a>,
    /// Decides if an epoch is scored, and if it is the best.
    scorer: Scorer<'a>,
    /// The other ranks, if several train together.
    peers: Peers,
    /// Order of the current epoch; its memory is reused.
    order: Vec<NodeId>,
    /// Time and memory of the current epoch.
    meter: Meter,
    notes: LaterNotes<'a>,
    observer: &'a mut dyn Observer,
    /// Returns true once the run is asked to stop.
    stop: &'a (dyn Fn() -> bool + Sync),
}

impl Trainer<'_> {
    /// Trains from the first epoch, or from the checkpoint, to the summary.
    fn run(&mut self, resume: bool) -> Result<Summary> {
        self.prepare(resume)?;
        while !self.position.is_done(self.inputs.config.epochs) {
            self.notes.report(&mut *self.strategy, self.observer);
            let flow = self.train()?;
            let record = self.score()?;
            self.record(record, flow)?;
        }
        self.notes.report(&mut *self.strategy, self.observer);
        self.finish()
    }

    /// Continues from the checkpoint if the run resumes, and writes the origin of the run once its
    /// options and dataset are known to be valid.
    fn prepare(&mut self, resume: bool) -> Result<()> {
        let is_resumed = resume && self.position.resume(&self.peers, self.observer)?;
        let earlier = if is_resumed { None } else { self.peers.earlier(self.inputs.config)? };
        earlier.iter().try_for_each(|earlier| self.position.start_from(earlier, self.observer))?;
        if let (true, Some(online)) = (resume, &mut self.position.online) {
            let (epoch, batch) = (self.position.state.epoch as u64, self.position.state.batch);
            let begin = |epoch| self.peers.begin_draws(epoch);
            online.replay(self.loader, (epoch, batch), &begin, self.inputs.progress)?;
            online.fill(epoch)?;
        }
        self.strategy.prepare(self.loader, &self.position.learner)?;
        let (metric, timeline) = (self.scorer.metric_name(), self.meter.timeline());
        self.position.write_origin(&self.inputs, &metric)?;
        if earlier.is_some() {
            // from now on, the run does not depend on the other one
            self.position.save()?;
        }
        let start = self.position.start(self.inputs.config, self.loader, &metric, timeline);
        self.observer.start(&start)
    }

    /// Trains on the batches of the current epoch, from the first or from the checkpoint's.
    fn train(&mut self) -> Result<Flow> {
        self.fill_caches()?;
        let (loader, batches) = (self.loader, self.loader.num_batches());
        let RunPosition { learner, state, schedule, checkpoints, online, .. } = &mut self.position;
        let (number, schedule) = (state.epoch as u64, *schedule);
        self.peers.begin_epoch(number)?;
        self.meter.begin_epoch(number, state.sums.seconds);
        let clock = Instant::now();
        loader.order(number, &mut self.order);
        state.sums.stages.order += clock.elapsed().as_secs_f64();
        self.meter.span("order", clock);

        let (from, timeline) = (state.batch, self.meter.timeline());
        let mut updates = Updates {
            config: self.inputs.config,
            state,
            checkpoints,
            observer: &mut *self.observer,
            peers: &self.peers,
            meter: &mut self.meter,
            online: online.as_mut(),
            stop: self.stop,
            batches,
            is_recorded: true,
        };
        let flow = self.strategy.run(Epoch {
            number,
            order: &self.order,
            from,
            to: batches,
            loader,
            learner,
            lr: &|batch| schedule.lr(number as u32, batch as usize, batches as usize),
            after: &mut |learner, done| updates.after(learner, done),
            timeline: &timeline,
        });
        if flow.is_err() && updates.is_recorded {
            self.position.rescue(self.observer);
        }
        let flow = flow?;
        self.position.state.sums.seconds = self.meter.end_batches();
        self.peers.end_batches()?;
        if flow == Flow::Stop && self.position.state.batch < batches {
            return Err(self.position.interrupted(batches));
        }
        Ok(flow)
    }

    /// Fills the caches that wait for the counts of the first epochs, if these are complete.
    fn fill_caches(&mut self) -> Result<()> {
        let epoch = self.position.state.epoch;
        let Some(online) = &mut self.position.online else { return Ok(()) };
        if !online.fill(epoch as u64)? {
            return Ok(());
        }
        let config = self.inputs.config;
        if strategy::is_by_device(config) && config.cuda_devices().is_empty() {
            // each simulated device has a cache of its own, or a share of a pool
            self.strategy.prepare(self.loader, &self.position.learner)?;
        }
        self.observer.note(&format!("the minibatches of {epoch} epochs were counted, and fill the caches"));
        Ok(())
    }

    /// Scores the epoch if it is selected, takes the model if it is the best so far, and makes the
    /// record.
    fn score(&mut self) -> Result<EpochRecord> {
        let clock = Instant::now();
        let batches = self.loader.num_batches();
        let lr = self.position.lr(batches - 1, batches);
        let verdict = self.scorer.judge(&mut self.position, &self.peers, self.observer)?;
        if verdict.is_best {
            self.position.keep_best(verdict.scored.map(|valid| valid.score))?;
        }
        if self.position.state.epoch + 1 < self.inputs.config.epochs {
            self.scorer.rank_negatives(&self.position.learner)?;
        }
        self.meter.span("score", clock);
        let RunPosition { learner, state, .. } = &mut self.position;
        let devices = self.strategy.devices();
        let ranks = self.peers.end_epoch(&mut state.sums, DeviceRecord::links(&devices))?;
        let has_device = *self.inputs.config.devices != Devices::Cpu;
        let seconds = clock.elapsed().as_secs_f64();
        let variation = || learner.history.position().variation;
        let record = state.sums.record(state.epoch + 1, verdict.scored, lr, seconds, has_device);
        let record = self.meter.complete(EpochRecord {
            devices,
            ranks,
            reuse: self.strategy.reuse().map(|reuse| ReuseRecord { variation: variation(), ..reuse }),
            ..record
        });
        let stores = self.peers.num_stores();
        if stores > 0 && record.epoch == 1 {
            let cores = rayon::current_num_threads();
            self.observer.note(&distributed::stages::describe(&record, batches, stores, cores));
        }
        Ok(record)
    }

    /// Records the epoch, advances to the next, and writes a checkpoint if one is due.
    fn record(&mut self, record: EpochRecord, flow: Flow) -> Result<()> {
        let epochs = self.inputs.config.epochs;
        self.position.end_epoch(record, self.observer)?;
        let is_due = self.position.agree_to_save(&self.peers)?;
        if is_due || self.position.is_done(epochs) || flow == Flow::Stop {
            let clock = Instant::now();
            self.position.save()?;
            self.meter.span("checkpoint", clock);
        }
        if flow == Flow::Stop && self.position.state.epoch < epochs {
            return Err(self.position.interrupted(self.loader.num_batches()));
        }
        Ok(())
    }

    /// Scores the best model on the test nodes, and writes the summary.
    fn finish(&mut self) -> Result<Summary> {
        self.position.restore_best()?;
        let model = &self.position.learner.model;
        self.observer.model(model);
        let tested = self.scorer.test(model, &self.meter, self.observer)?;
        let bound = self.strategy.staleness_bound();
        let Tested { test, by_class, diagnostics, baseline } = tested;
        let summary = summary(&self.inputs, &mut self.position, test, bound);
        let summary = Summary { by_class, diagnostics, baseline, ..summary };
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
