//! A training run from its first epoch to its summary. Read this file first.
//!
//! ```text
//!   every epoch:  order ─► strategy { sample ─► extract ─► train } per batch ─► score ─► record, checkpoint
//! ```
//!
//! What a run computes is a function of its configuration, its dataset and the place it has
//! reached ([`Place`]), which is why a run that was killed and resumed ends with the same bits as
//! one that was not: the checkpoint holds the models, the optimiser's state and the place, and nothing
//! else matters.

use std::{path::Path, sync::Arc, time::Instant};

use graphmill_graph::{Dataset, NodeId, memory::resident, table};
use graphmill_loader::Feature;
use graphmill_nn::{
    Matrix,
    metric::Metric,
    schedule::{EarlyStop, Schedule},
};

pub use crate::place::Place;
use crate::{
    Error, Result, RunDir, TrainConfig,
    best::BestModel,
    build,
    checkpoint::{self, Checkpoint},
    distributed::{Dealt, Ranks, View},
    evaluate::{Inference, Output, score},
    gpu::Computers,
    learner::Learner,
    memory::{self, Residence, Residences},
    nodes::some,
    observer::{Observer, Progress, Start},
    record::{
        Best, EpochRecord, MemorySample, ReuseRecord, Samples, Staleness, Summary, TestScore, WorkerRecord,
        bottleneck, workers,
    },
    setup::{self, Parts, Tables},
    stage::Loader,
    strategy::{Done, Epoch, Flow, Nvidia, Setting, Strategy},
    sums::Valid,
    tensorboard::Events,
    tiers::Whole,
    timeline::Timeline,
    trace::Trace,
};

/// Least seconds between the checkpoints that are written because an epoch has ended: epochs of milliseconds
/// are repeated faster than they are saved.
const EPOCH_CHECKPOINT_SECONDS: f64 = 1.0;

/// What a run is given besides its configuration and dataset.
pub struct Job<'j> {
    /// Where it records itself; nowhere if there is none.
    pub run: Option<&'j RunDir>,
    /// Whether to go on from the checkpoint in there.
    pub resume: bool,
    /// Who watches.
    pub observer: &'j mut dyn Observer,
    /// Asked after every batch: whether to stop.
    pub stop: &'j (dyn Fn() -> bool + Sync),
}

/// Trains a model and evaluates it. Runs on the current rayon pool.
///
/// # Errors
/// An option that is unknown or impossible, a dataset that cannot be trained on, a loss that is not
/// finite, a run directory that cannot be written, or [`Error::Interrupted`] with a valid checkpoint
/// behind it. A stage that failed: all batches before it are trained on, and where the model is whole they are in the
/// checkpoint.
pub fn train(config: &TrainConfig, data: &Dataset, job: Job) -> Result<Summary> {
    train_from(memory::residence(config, data), config, data, job)
}

/// [`train`] as one of several ranks.
pub(crate) fn train_over_ranks(config: &TrainConfig, view: &View, job: Job) -> Result<Summary> {
    let computers = Computers::open(config)?;
    let parts = view.parts(config)?;
    run(&computers, parts, Residences::both(Residence::InPlace), config, &view.data, Some(view), job)
}

fn train_from(residence: Residences, config: &TrainConfig, data: &Dataset, job: Job) -> Result<Summary> {
    // before anything that takes long
    let computers = Computers::open(config)?;
    run(&computers, Parts::new(config, data)?, residence, config, data, None, job)
}

/// A run of these parts.
fn run(
    computers: &Computers,
    parts: Parts,
    residence: Residences,
    config: &TrainConfig,
    data: &Dataset,
    view: Option<&View>,
    job: Job,
) -> Result<Summary> {
    let clock = Instant::now();
    let Parts { metric, sampler, order, strategy: make, optimizer, schedule, model } = parts;
    let tables = match view {
        None => Tables::new(computers, config, data, residence, &*sampler, &*order)?,
        Some(view) => Tables::of_rank(config, view, &*sampler, &*order)?,
    };
    let whole_rows = view.map(View::feature);
    let samplers = computers.samplers(config, data, &tables.graph)?;
    let draws = samplers.each.first().map_or(&*sampler, |sampler| &**sampler);
    let (loader, orders) = setup::loader(config, data, &tables, draws, &*order, &model)?;
    let scores = computers.inference(data, &model);
    let mut learner = Learner::new(computers.training(), model, optimizer, &data.labels, orders, config);
    if let (true, Whole::Table(table)) = (loader.fused, &tables.whole) {
        learner.passes.table = Some(table.clone());
    }

    let ranks = view.map(|view| view.ranks.clone());
    learner.ranks.clone_from(&ranks);
    let nvidia = tables.on_gpus.as_ref().map(|rows| Nvidia { computers, samplers: &samplers, rows });
    let setting = Setting { nvidia, ..Setting::new(config, data, &*sampler, &*order, &tables.feature) };
    let Job { run, resume, observer, stop } = job;
    let traced = run.filter(|_| config.trace);
    let timeline = Timeline::new(traced.is_some());
    let mut trainer = Trainer {
        config,
        computers,
        data,
        metric,
        loader: &loader,
        strategy: make(setting)?,
        learner,
        inference: Inference::new(
            &tables.graph,
            &tables.whole,
            loader.symmetric.as_deref(),
            scores,
            config.eval_chunk,
        )
        .taking(build::exact(config, data)?),
        valid: some(&data.split.valid, config.eval_nodes),
        order: Vec::new(),
        logits: Matrix::default(),
        schedule,
        early: EarlyStop::new(u32::try_from(config.patience).unwrap_or(u32::MAX)),
        ranks,
        whole_rows,
        dealt: view.and_then(|view| view.dealt.clone()),
        place: Place { dataset: view.map_or_else(|| data.into(), View::record), ..Place::default() },
        records: Vec::new(),
        timeline: &timeline,
        trace: None,
        events: None,
        memory: Samples::of_run(config.epochs),
        workers: Vec::new(),
        keeper: Keeper {
            run,
            best: BestModel::default(),
            saved: clock,
            saved_at: (0, 0),
            began: clock,
            before: 0.0,
        },
        observer,
        told_refusal: false,
        stop,
    };
    if !computers.gpus().is_empty() {
        trainer.observer.note(&computers.to_string());
        samplers.note.iter().for_each(|note| trainer.observer.note(note));
    } else if !computers.cpu().precision.is_native() {
        trainer.observer.note(
            "this processor has no instructions for bf16: products are rounded to it and computed in f32, slower",
        );
    }
    if let Some(choice) = loader.order.choice() {
        trainer.observer.note(&choice);
    }
    let in_place = match (residence.graph, residence.features) {
        (Residence::InPlace, _) => Some("graph and features are"),
        (_, Residence::InPlace) if matches!(tables.whole, Whole::Table(_)) => Some("features are"),
        _ => None,
    };
    if let Some(what) = in_place {
        let note = format!("memory is short: {what} read in place instead of from copies in huge pages");
        trainer.observer.note(&note);
    }
    if let Some(tiers) = &tables.tiers {
        trainer.observer.note(tiers);
    }
    if data.graph.edge_weight().is_some() {
        trainer.observer.note(if loader.sampler.reads_edge_weights() {
            "this dataset has edge weights: neighbours are drawn by them, and scores weigh edges as draws do"
        } else {
            "this dataset has edge weights: training does not use them, all edges count alike"
        });
    }
    if resume {
        trainer.resume()?;
    }
    trainer.strategy.prepare(&loader, &trainer.learner)?;
    trainer.start()?;
    trainer.trace = traced.map(|run| Trace::create(&run.trace(), &timeline)).transpose()?;
    let followed = run.filter(|_| config.tensorboard);
    trainer.events = followed.map(|run| Events::create(&run.tensorboard(), &trainer.records)).transpose()?;
    while !trainer.is_done() {
        trainer.pass_on_note();
        let flow = trainer.epoch()?;
        let record = trainer.score()?;
        trainer.record(record, flow)?;
    }
    trainer.pass_on_note();
    trainer.finish()
}

/// A run under way. `'a` outlives it: configuration, dataset, tables.
struct Trainer<'a> {
    config: &'a TrainConfig,
    computers: &'a Computers,
    data: &'a Dataset,
    metric: &'static table::Entry<Metric>,
    loader: &'a Loader<'a>,
    strategy: Box<dyn Strategy + 'a>,
    learner: Learner<'a>,
    inference: Inference<'a>,
    /// The ranks that train together, and all rows as this one reads them for inference.
    ranks: Option<Arc<Ranks>>,
    whole_rows: Option<Arc<dyn Feature>>,
    /// The parts that this rank draws subgraphs from, where it does.
    dealt: Option<Arc<Dealt>>,
    /// The validation nodes that are scored.
    valid: Vec<NodeId>,
    /// Of the epoch in hand; its memory is reused.
    order: Vec<NodeId>,
    /// Of the nodes that were scored last; its memory is reused.
    logits: Matrix,
    schedule: Schedule,
    early: EarlyStop,
    place: Place,
    records: Vec<EpochRecord>,
    /// Told what every worker does.
    timeline: &'a Timeline,
    /// Writes it down, where that is asked for.
    trace: Option<Trace<'a>>,
    /// TensorBoard's file, where that is asked for.
    events: Option<Events>,
    /// Of the epoch in hand.
    memory: Samples,
    /// What they did in the epoch in hand.
    workers: Vec<WorkerRecord>,
    keeper: Keeper<'a>,
    observer: &'a mut dyn Observer,
    /// Whether it was said that a device captures no steps.
    told_refusal: bool,
    stop: &'a (dyn Fn() -> bool + Sync),
}

impl Trainer<'_> {
    /// Takes up the checkpoint of the run directory, where there is one.
    fn resume(&mut self) -> Result<()> {
        let run = self.keeper.run;
        let saved = match (&self.ranks, run) {
            (Some(ranks), run) => ranks.checkpoint(run)?,
            (None, Some(run)) => Checkpoint::<Place>::load(&run.checkpoint())?,
            (None, None) => return Ok(()),
        };
        let Some(saved) = saved else {
            self.observer.note("there is no checkpoint yet: starting from the beginning");
            return run.map_or(Ok(()), |run| run.keep_epochs(0).map(drop));
        };
        let path = run.map_or(Path::new("the run"), RunDir::path);
        let now = &self.place.dataset;
        if !saved.state.dataset.is_same(now) {
            let then = &saved.state.dataset;
            let message = format!("this run was trained on {then} and cannot go on with {now}");
            return Err(Error::run(path, message));
        }
        saved.restore(&mut self.learner.model, &mut *self.learner.optimizer)?;
        self.keeper.best = BestModel::saved(saved.best);
        self.keeper.before = saved.state.seconds;
        self.keeper.saved_at = (saved.state.epoch, saved.state.batch);
        self.place = saved.state;
        self.learner.step = self.place.step;
        self.schedule.set_state(self.place.schedule);
        self.early.state = self.place.patience;
        self.records = run.map_or(Ok(Vec::new()), |run| run.keep_epochs(self.place.epoch))?;
        if let Some(ranks) = &self.ranks {
            ranks.resume(&mut self.place.sums);
        }
        let reuse = std::mem::take(&mut self.place.reuse);
        self.learner.history.restore(reuse, saved.history).map_err(|what| {
            Error::run(path, format!("its checkpoint cannot be gone on with: {what}; train again"))
        })
    }

    /// From here on there is a run: what could be wrong with the options and the dataset has been seen.
    fn start(&mut self) -> Result<()> {
        if let Some(run) = self.keeper.run {
            run.write_config(self.config)?;
        }
        self.observer.start(&Start {
            epochs: self.config.epochs,
            batches: self.loader.num_batches(),
            seeds: self.loader.num_seeds(),
            from: (self.place.epoch, self.place.batch),
            metric: self.metric.name.to_string(),
            parameters: self.learner.model.num_params(),
        });
        Ok(())
    }

    /// Tells what the strategy has to say.
    fn pass_on_note(&mut self) {
        if let Some(note) = self.strategy.note() {
            self.observer.note(&note);
        }
        if !self.told_refusal
            && let Some(note) = self.computers.refusal()
        {
            self.told_refusal = true;
            self.observer.note(&note);
        }
    }

    /// Whether all epochs are done, or early stopping has seen enough.
    fn is_done(&self) -> bool {
        self.place.epoch >= self.config.epochs || self.early.stops()
    }

    /// The batches of the epoch in hand: from the first, or from where a checkpoint left it.
    fn epoch(&mut self) -> Result<Flow> {
        let Self {
            config,
            loader,
            strategy,
            learner,
            place,
            keeper,
            observer,
            stop,
            order,
            timeline,
            trace,
            memory,
            ranks,
            dealt,
            ..
        } = self;
        if let Some(ranks) = ranks {
            ranks.count_bytes(true)?;
        }
        if let Some(dealt) = dealt {
            dealt.deal_for(place.epoch as u64)?;
        }
        let (number, batches, from) = (place.epoch, loader.num_batches(), place.batch);
        let (began, earlier) = (Instant::now(), place.sums.seconds);
        timeline.begin_epoch(number as u64);
        loader.order(number as u64, order);
        place.sums.stages.order += began.elapsed().as_secs_f64();
        timeline.span("order", began);

        let schedule = self.schedule;
        let mut listened = true;
        let mut after = |learner: &Learner, done: &[Done]| {
            let before = place.batch;
            listened = false;
            for Done { batch, outcome, spent } in done {
                place.sums.add(batch, *outcome, spent);
                if !outcome.loss.is_finite() {
                    return Err(Error::Diverged {
                        epoch: number + 1,
                        batch: batch.number + 1,
                        loss: outcome.loss,
                    });
                }
                place.batch = batch.number + 1;
            }
            place.sums.seconds = earlier + began.elapsed().as_secs_f64();
            place.step = learner.step;
            place.staleness = place.staleness.max(learner.staleness);
            if let Some(bytes) = timeline.look_at_memory() {
                memory.offer(MemorySample { seconds: place.sums.seconds, bytes });
            }
            if let Some(trace) = trace {
                trace.relieve()?;
            }
            observer.batch(&Progress {
                epoch: number,
                batches: place.batch,
                seeds: place.sums.seeds,
                loss: place.sums.mean_loss(),
                seconds: began.elapsed().as_secs_f64(),
                timeline,
            });
            let stopping = match &ranks {
                Some(ranks) => ranks.agree_to_stop(stop()),
                None => stop(),
            };
            if let (Some(ranks), true) = (&ranks, stopping && place.batch < batches) {
                ranks.stop(&mut place.sums)?;
            }
            let many = config.checkpoint_batches as u64;
            let due = (many > 0 && place.batch / many > before / many)
                || keeper.saved.elapsed().as_secs_f64() >= config.checkpoint_seconds;
            // behind the last batch the epoch's own checkpoint follows
            if stopping || (due && place.batch < batches) {
                let clock = Instant::now();
                keeper.save(learner, place)?;
                timeline.span("checkpoint", clock);
            }
            listened = true;
            Ok(if stopping { Flow::Stop } else { Flow::Continue })
        };
        let flow = strategy.run(Epoch {
            number: number as u64,
            order,
            from,
            to: batches,
            loader,
            learner,
            lr: &|batch| schedule.lr(number as u32, batch as usize, batches as usize),
            after: &mut after,
            timeline,
        });
        let flow = match flow {
            Ok(flow) => flow,
            Err(error) => {
                // not where recording itself failed: nothing is known to be sound then
                if listened {
                    self.rescue();
                }
                return Err(error);
            }
        };
        let seconds = began.elapsed().as_secs_f64();
        if let Some(ranks) = ranks {
            ranks.count_bytes(false)?;
        }
        place.sums.seconds = earlier + seconds;
        self.workers = workers(&timeline.busy(), seconds);
        if flow == Flow::Stop && place.batch < batches {
            return Err(self.interrupted());
        }
        Ok(flow)
    }

    /// Scores the validation nodes where it is their turn, and keeps the model if it is the best so far.
    ///
    /// # Errors
    /// Features cannot be read.
    fn score(&mut self) -> Result<EpochRecord> {
        let clock = Instant::now();
        let Self { config, data, learner, place, logits, valid, .. } = self;
        let (epoch, batches) = (place.epoch, self.loader.num_batches());
        let lr = self.schedule.lr(epoch as u32, batches as usize - 1, batches as usize);
        let mut scored = None;
        // without validation nodes, or while their score is not defined, the newest model is the best there is
        let mut better = valid.is_empty();
        let turn = (epoch + 1).is_multiple_of(config.eval_every) || epoch + 1 == config.epochs;
        if turn && !valid.is_empty() {
            self.observer.evaluate(valid.len());
            let scores = match (&self.ranks, &self.whole_rows) {
                (Some(ranks), Some(rows)) => {
                    ranks.infer(&mut self.inference, rows, &learner.model, valid, logits)
                }
                _ => self.inference.run(&learner.model, valid, Output::Logits, logits),
            };
            if let Err(error) = scores {
                self.rescue();
                return Err(error);
            }
            if let Some(mut score) = score(self.metric.make, logits, data, valid) {
                let mut loss = learner.loss(logits, valid);
                if let Some(ranks) = &self.ranks {
                    // processors of different kinds round differently: what is decided by these is decided alike
                    [score, loss] = ranks.agree([score, loss])?;
                }
                let judged = if config.select == "loss" { -loss } else { score };
                self.schedule.observe(judged);
                better = self.early.observe(judged, loss);
                scored = Some(Valid { score, loss });
            } else {
                better = place.best.is_none_or(|best| best.valid_score.is_none());
            }
        }
        if better {
            place.best = Some(Best { epoch: epoch + 1, valid_score: scored.map(|valid| valid.score) });
            self.keeper.best.keep(&learner.model);
        }
        self.timeline.span("score", clock);
        let ranks = match &self.ranks {
            Some(ranks) => ranks.end_epoch(&mut place.sums)?,
            None => Vec::new(),
        };
        let has_device = config.devices != "cpu";
        let workers = std::mem::take(&mut self.workers);
        Ok(EpochRecord {
            bottleneck: bottleneck(&workers),
            workers,
            memory_bytes: resident(),
            memory: self.memory.take(),
            devices: self.strategy.devices(),
            ranks,
            reuse: self.strategy.reuse().map(|reuse| {
                let variation = self.learner.history.place().variation;
                ReuseRecord { variation, ..reuse }
            }),
            ..place.sums.record(epoch + 1, scored, lr, clock.elapsed().as_secs_f64(), has_device)
        })
    }

    /// Records the epoch, goes on to the next, and writes a checkpoint where it is time.
    fn record(&mut self, record: EpochRecord, flow: Flow) -> Result<()> {
        self.observer.epoch(&record);
        self.place.next_epoch();
        self.learner.history.end_epoch();
        self.place.patience = self.early.state;
        self.place.schedule = self.schedule.state();
        if let Some(run) = self.keeper.run {
            run.append_epoch(&record)?;
        }
        if let Some(events) = &mut self.events {
            events.epoch(&record)?;
        }
        self.records.push(record);
        let done = self.is_done();
        let due = self.keeper.saved.elapsed().as_secs_f64() >= EPOCH_CHECKPOINT_SECONDS;
        if due || done || flow == Flow::Stop {
            let clock = Instant::now();
            self.keeper.save(&self.learner, &mut self.place)?;
            self.timeline.span("checkpoint", clock);
        }
        if let Some(trace) = &mut self.trace {
            trace.flush()?;
        }
        if flow == Flow::Stop && self.place.epoch < self.config.epochs {
            return Err(self.interrupted());
        }
        Ok(())
    }

    /// Scores the best model on the test nodes and sums the run up.
    fn finish(mut self) -> Result<Summary> {
        self.keeper.export()?;
        if self.place.best.is_some() {
            self.keeper.best.restore(&mut self.learner.model)?;
        }
        let test = &some(&self.data.split.test, self.config.eval_nodes)[..];
        let mut of_test = None;
        if !test.is_empty() {
            self.observer.evaluate(test.len());
            let clock = Instant::now();
            let (model, logits) = (&self.learner.model, &mut self.logits);
            match (&self.ranks, &self.whole_rows) {
                (Some(ranks), Some(rows)) => ranks.infer(&mut self.inference, rows, model, test, logits)?,
                _ => self.inference.run(model, test, Output::Logits, logits)?,
            }
            of_test = score(self.metric.make, &self.logits, self.data, test);
            self.timeline.span("test", clock);
        }
        let mut summary = Summary::new(
            self.config,
            self.data,
            self.records,
            self.place.best.unwrap_or(Best { epoch: 0, valid_score: None }),
            TestScore { metric: self.metric.name.to_string(), score: of_test },
            self.keeper.seconds(),
        );
        summary.dataset.clone_from(&self.place.dataset);
        summary.staleness = Staleness { bound: self.strategy.staleness_bound(), max: self.place.staleness };
        summary.nvidia = self.computers.records();
        summary.all_reduce = self.computers.sums();
        if let Some(run) = self.keeper.run {
            run.write_summary(&summary)?;
        }
        if let Some(trace) = self.trace {
            trace.finish()?;
        }
        Ok(summary)
    }

    /// Something failed: keeps what was trained since the last checkpoint, as far as the model is that of a whole update. What
    /// failed first is the error to tell, whatever becomes of this.
    fn rescue(&mut self) {
        let Self { learner, place, keeper, observer, .. } = self;
        if keeper.run.is_none() || !learner.is_whole || keeper.saved_at == (place.epoch, place.batch) {
            return;
        }
        if keeper.save(learner, place).is_ok() {
            let (epoch, batch) = (place.epoch + 1, place.batch);
            observer.note(&format!(
                "epoch {epoch} is saved up to its first {batch} batches: --resume goes on from there"
            ));
        }
    }

    /// Someone asked the run to stop: where it stands.
    fn interrupted(&self) -> Error {
        let (epoch, batch) = match self.place.batch {
            0 => (self.place.epoch, self.loader.num_batches()),
            batch => (self.place.epoch + 1, batch),
        };
        Error::Interrupted { epoch, batch, saved: self.keeper.run.is_some() }
    }
}

/// Who writes checkpoints, and keeps the best model for them.
struct Keeper<'a> {
    run: Option<&'a RunDir>,
    best: BestModel,
    /// When the last checkpoint was written, or the run began.
    saved: Instant,
    /// Epoch and batch of that.
    saved_at: (usize, u64),
    /// When this part of the run began.
    began: Instant,
    /// Seconds that earlier parts took.
    before: f64,
}

impl Keeper<'_> {
    /// Seconds that the run has taken.
    fn seconds(&self) -> f64 {
        self.before + self.began.elapsed().as_secs_f64()
    }

    /// Writes a checkpoint, with the best model in it.
    fn save(&mut self, learner: &Learner, place: &mut Place) -> Result<()> {
        place.seconds = self.seconds();
        let Some(run) = self.run else { return Ok(()) };
        let best = self.best.tensors();
        place.reuse = learner.history.place();
        let history = learner.history.tensors();
        checkpoint::save(&run.checkpoint(), &learner.model, &best, &*learner.optimizer, &history, place)?;
        self.saved = Instant::now();
        self.saved_at = (place.epoch, place.batch);
        self.export()
    }

    /// Writes the best model where users look for it.
    fn export(&mut self) -> Result<()> {
        self.run.map_or(Ok(()), |run| self.best.export(run))
    }
}

#[cfg(test)]
mod faults;

#[cfg(test)]
mod tests {
    use graphmill_graph::{
        EdgeOptions, Features, Labels, SparseRows, Split, build as graph,
        dataset::FeatureData,
        generate::{GenerateOptions, generate},
    };
    use half::f16;

    use super::*;
    use crate::{config::Fanout, observer::Quiet};

    fn four() -> Dataset {
        Dataset {
            name: "four".into(),
            graph: graph(4, &[0, 1, 2], &[1, 2, 3], EdgeOptions::UNDIRECTED).unwrap(),
            features: Features::f32(1, vec![0.0, 1.0, 0.5, 0.25]),
            labels: Labels::Single { class: vec![0, 1, 1, 0].into(), classes: 2 },
            // a single class among the validation nodes: there is no area under the curve
            split: Split { train: vec![0, 1].into(), valid: vec![2].into(), test: vec![3].into() },
            metric: Some("roc-auc".into()),
            ..Dataset::default()
        }
    }

    fn config() -> TrainConfig {
        TrainConfig { epochs: 3, layers: 1, fanout: Fanout(vec![-1]), ..TrainConfig::default() }
    }

    #[test]
    fn the_newest_model_is_the_best_while_no_score_is_defined() {
        let job = Job { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
        let best = train(&config(), &four(), job).unwrap().best;
        assert_eq!((best.epoch, best.valid_score), (3, None));
    }

    /// Remembers the notes.
    #[derive(Default)]
    struct Notes(Vec<String>);

    impl Observer for Notes {
        fn note(&mut self, message: &str) {
            self.0.push(message.to_string());
        }
    }

    /// Sparse rows are another order of summation, with the same batches and the same dropped values.
    #[test]
    fn sparse_and_dense_features_train_alike() {
        let options = GenerateOptions { nodes: 800, classes: 4, dim: 30, ..GenerateOptions::default() };
        let mut dense = generate("sbm", &options).unwrap();
        let FeatureData::F32(rows) = &dense.features.data else { unreachable!() };
        let rows: Vec<f32> = rows.iter().map(|&x| if x < 1.2 { 0.0 } else { x }).collect();
        let mut sparse = dense.clone();
        sparse.features = Features::csr(SparseRows::from_dense(30, &rows).unwrap());
        dense.features = Features::f32(30, rows);
        let run = |residence, config: &TrainConfig, data: &Dataset| {
            let job = Job { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
            train_from(Residences::both(residence), config, data, job).unwrap()
        };
        let base = TrainConfig {
            hidden: 16,
            epochs: 3,
            batch_size: 150,
            fanout: Fanout(vec![5, 5]),
            lr: 0.01,
            sparse: "on".into(),
            ..TrainConfig::default()
        };
        let s = String::from;
        for config in [
            TrainConfig { model: s("sage"), input_dropout: 0.3, ..base.clone() },
            TrainConfig { model: s("sage"), aggregator: s("max-pool"), ..base.clone() },
            TrainConfig { model: s("gcn"), batch_size: 0, input_dropout: 0.3, ..base.clone() },
            TrainConfig { model: s("gcn"), residual: s("linear"), norm: s("batch"), ..base.clone() },
            TrainConfig { model: s("gat"), input_dropout: 0.3, ..base.clone() },
            TrainConfig { model: s("gin"), norm: s("layer"), ..base.clone() },
            TrainConfig { model: s("pinsage"), ..base.clone() },
            TrainConfig { model: s("mixhop"), fanout: Fanout(vec![5; 4]), ..base.clone() },
            TrainConfig { model: s("sage"), input_layer: true, head_layers: 1, ..base.clone() },
        ] {
            let of_sparse = run(Residence::HugePages, &config, &sparse);
            let in_place = run(Residence::InPlace, &config, &sparse);
            let of_dense =
                run(Residence::HugePages, &TrainConfig { fused: s("off"), ..config.clone() }, &dense);
            let off = run(Residence::HugePages, &TrainConfig { sparse: s("off"), ..config.clone() }, &sparse);
            for (e, a) in of_sparse.epochs.iter().enumerate() {
                assert_eq!(a.loss.to_bits(), in_place.epochs[e].loss.to_bits(), "{config:?}");
                for b in [&of_dense.epochs[e], &off.epochs[e]] {
                    assert!((a.loss - b.loss).abs() < 2e-3 * b.loss, "{} and {}, {config:?}", a.loss, b.loss);
                    let (a, b) = (a.valid_score.unwrap(), b.valid_score.unwrap());
                    assert!((a - b).abs() < 0.02, "{a} and {b}, {config:?}");
                }
            }
        }
    }

    #[test]
    fn in_place_and_from_copies_the_numbers_are_the_same() {
        let mut half = four();
        half.metric = None;
        let mut whole = half.clone();
        let FeatureData::F32(rows) = &whole.features.data else { unreachable!() };
        half.features.data =
            FeatureData::F16(rows.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>().into());
        whole.graph = whole.graph.with_edge_weight(vec![1.0; 6].into()).unwrap();
        let mut runs = Vec::new();
        for data in [&whole, &half] {
            for (residence, said) in [(Residence::HugePages, 0), (Residence::InPlace, 1)] {
                let mut notes = Notes::default();
                let job = Job { run: None, resume: false, observer: &mut notes, stop: &|| false };
                let summary = train_from(Residences::both(residence), &config(), data, job).unwrap();
                let about = |word: &str| notes.0.iter().filter(|note| note.contains(word)).count();
                assert_eq!(
                    (about("in place"), about("edge weights")),
                    (said, usize::from(data.graph.edge_weight().is_some()))
                );
                let bits = |epoch: &EpochRecord| (epoch.loss.to_bits(), epoch.valid_loss.map(f64::to_bits));
                runs.push((summary.epochs.iter().map(bits).collect::<Vec<_>>(), summary.test.score));
            }
        }
        assert!(runs.iter().all(|run| *run == runs[0]), "{runs:?}");
    }
}
