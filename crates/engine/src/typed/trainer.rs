//! A training run on several types, by the loop of [`crate::batchwise`].

use std::{ops::Range, sync::Arc, time::Instant};

use graphmill_core::{NodeId, progress::Quiet, table};
use graphmill_data::typed::TypedDataset;
use graphmill_loader::{order::SeedOrder, typed::TypedSampler};
use graphmill_nn::{
    Matrix,
    metric::{Metric, classes::ClassReport, diagnostics::Diagnostics, values::is_error},
    regression::TargetScale,
    typed::TypedModel,
};

use super::{
    batches::{RunBatches, batch_size},
    build,
    computing::InferenceDevice,
    counts::TypeCounts,
    devices::{TypedDevices, compute_devices},
    inference::TypedInference,
    label_columns,
    learner::TypedLearner,
    notices::notes,
    ranks::{RankInference, TypedRankView},
    reuse::{self, TypedReuse},
    rounds::Rounds,
    saved::rows_of,
    stages::EpochBatches,
    strategy::Strategy,
    task::TypedTask,
    tiers::{self, TypedTiers},
    turns,
};
use crate::{
    Error, Result, RunContext, TrainConfig,
    accelerator::ComputeDevices,
    batchwise::{self, BatchRun, Part, Scored, Session},
    bottom,
    build::target_scale_of,
    config::{SelectBy, Work},
    distributed::Ranks,
    inference::{
        DIAGNOSED_TRAIN_NODES, Output, class_report, diagnosed_parts, diagnostics, fixed_sample, score_labels,
    },
    options::NO_REUSE_OVER_RANKS,
    record::{
        Baseline, DatasetRecord, DeviceRecord, EpochRecord, EpochTotals, NvidiaRecord, PresamplingRecord,
        RankRecord, Summary,
    },
    run::{
        Preparation, label_propagation,
        notices::{ALL_IN_HOST, opening},
    },
    strategy::{self, Flow},
    tiers::{Restart, counted_epochs},
    verification::FeatureFiles,
};

/// Trains a model on a dataset of several types and evaluates it. Runs on the current rayon pool.
///
/// Writes the same records as [`crate::train`] into [`RunContext::run`]. The observer gets all
/// events but [`Observer::model`](crate::observer::Observer::model).
///
/// # Errors
/// As for [`crate::train`]; the dataset has no task on nodes, or several and none is
/// chosen by the option `task`.
pub fn train(config: &TrainConfig, data: &TypedDataset, context: RunContext) -> Result<Summary> {
    train_model(config, data, context).map(|(summary, _)| summary)
}

/// Trains as [`train`] does, and returns the model of the best epoch, too.
///
/// # Errors
/// As [`train`].
pub(crate) fn train_model(
    config: &TrainConfig,
    data: &TypedDataset,
    context: RunContext,
) -> Result<(Summary, TypedModel)> {
    train_alone(config, data, context, |sampler| sampler).map_err(Error::before_training)
}

/// Trains with the sampler that `wrap` makes of that of the options.
pub(super) fn train_alone(
    config: &TrainConfig,
    data: &TypedDataset,
    context: RunContext,
    wrap: impl FnOnce(Box<dyn TypedSampler>) -> Box<dyn TypedSampler>,
) -> Result<(Summary, TypedModel)> {
    let began = Instant::now();
    // before any long work
    let compute = compute_devices(config)?;
    let unverified = FeatureFiles::of_types(data).prepare(config)?;
    let mut task = TypedTask::new(data, &config.task)?.with_edges(config, data)?;
    check(config, data, &task)?;
    task.learned_in = build::learned_rows_in(config, &task, &context.directory());
    let counted = counted_epochs(config)?;
    let sampler = wrap(build::sampler(config, &task)?);
    let batches = RunBatches::of_nodes(config, &task, &*sampler)?;
    let progress = Preparation::new(&*context.observer);
    let (tiers, devices) = TypedTiers::with_devices(data, &batches, &compute, &progress)?;
    let learner = TypedLearner::new(config, &task)?.on(compute.training());
    let learner = learner.counting(tiers.reads(counted, &task, Restart::Stored));
    let reuse = TypedReuse::new(&batches, &learner, &progress)?;
    let notes = notes(config, data, &task, &*sampler, &learner);
    context.observer.note(&opening(&config.strategy, tiers.description.as_deref().unwrap_or(ALL_IN_HOST)));
    if !compute.gpus().is_empty() {
        let note = "the processor samples";
        context.observer.note(&format!("{compute}; {note}"));
    }
    unverified.iter().chain(&notes).for_each(|note| context.observer.note(note));
    let inference = TypedInference::new(config, &task, &*sampler, tiers.whole.clone())?;
    let inference = inference.on(compute.gpus().first().map(|gpu| gpu as &dyn InferenceDevice));
    let scoring = (Inference::Alone(Box::new(inference)), None);
    let replica = || TypedLearner::replica(config, &task);
    let rounds = devices.as_ref().map(|devices| Rounds::new(config, devices.trainers(), None, replica));
    let rounds = rounds.transpose()?.flatten();
    let run = TypedRun::new(config, (data, &task), (&*sampler, &tiers, devices), scoring)?;
    let run = TypedRun { compute: Some(&compute), rounds, reuse, ..run };
    batchwise::train(config, run, learner, context, began).map(|(summary, learner)| (summary, learner.model))
}

/// Rows of `nodes`, which may repeat, of the task's type by `model`, from all their neighbours. A
/// dataset without a task has one type.
///
/// # Errors
/// A node is out of range, the model does not fit the dataset, or features cannot be read.
pub(crate) fn infer(
    config: &TrainConfig,
    data: &TypedDataset,
    model: &TypedModel,
    (nodes, output): (&[NodeId], Output),
) -> Result<Matrix> {
    let task = match data.tasks.is_empty() {
        true => TypedTask::of_links(data, &config.task, data.graph()?)?,
        false => TypedTask::new(data, &config.task)?,
    };
    let task = task.with_edges(config, data)?;
    let mut rows = Matrix::default();
    if nodes.is_empty() {
        return Ok(rows);
    }
    let sampler = build::inference_sampler(config, &task)?;
    let mut inference = TypedInference::new(config, &task, &*sampler, tiers::whole(config, data, &task)?)?;
    rows_of(nodes, &mut rows, |nodes, rows| inference.run(model, nodes, output, rows))?;
    Ok(rows)
}

/// Reason why no run on several types reads stored aggregates of features.
pub(super) const PROJECTED: &str = "training on several types does not use it, because feature rows are \
                                    projected before they are aggregated";

/// Checks that the task can be trained on and scored.
fn check(config: &TrainConfig, data: &TypedDataset, task: &TypedTask) -> Result<()> {
    bottom::refuse(config, PROJECTED)?;
    reuse::check(config)?;
    build::metric(config, task)?;
    label_columns::check(config, task)?;
    match task.split.train.is_empty() {
        true => Err(Error::dataset(&data.name, "its task has no training nodes; add some to the split")),
        false => Ok(()),
    }
}

/// Trains a model as one of several ranks, on its view of the dataset, with the sampler that `wrap`
/// makes of that of the options. All ranks call this at the same time.
///
/// # Errors
/// As for [`train`]; a rank did not take part.
pub(super) fn train_as_rank(
    config: &TrainConfig,
    view: &TypedRankView,
    context: RunContext,
    wrap: impl FnOnce(Box<dyn TypedSampler>) -> Box<dyn TypedSampler>,
) -> Result<Summary> {
    let (began, task, ranks) = (Instant::now(), &view.task, &view.ranks);
    check(config, &view.data, task)?;
    reuse::refuse(config, NO_REUSE_OVER_RANKS)?;
    let counted = counted_epochs(config)?;
    let sampler = wrap(view.sampler(config)?);
    let progress = Preparation::new(&*context.observer);
    let batches = RunBatches::of_nodes(config, task, &*sampler)?.of_rank(view.of_seeds());
    let (tiers, devices) = TypedTiers::over_ranks(&batches, view, &progress)?;
    let learner = TypedLearner::of_owners(config, task, Some(&view.owners))?.over_ranks(view.row_owners());
    let replica = || TypedLearner::replica(config, task).map(|copy| copy.of_rank(Some(ranks.rank())));
    let over = || Some(view.row_owners());
    let rounds = devices.as_ref().map(|devices| Rounds::new(config, devices.trainers(), over(), replica));
    let rounds = rounds.transpose()?.flatten();
    let learner = learner.counting(tiers.reads(counted, task, Restart::StoredByRank(ranks.clone())));
    let mut notes = notes(config, &view.data, task, &*sampler, &learner);
    notes.extend(view.unread.clone());
    let has = view.describe(config);
    let rows = tiers.description.as_ref().map_or_else(|| has.clone(), |caches| format!("{has}; {caches}"));
    context.observer.note(&opening(&config.strategy, &rows));
    notes.iter().for_each(|note| context.observer.note(note));
    let inference = RankInference::new(config, view, &*sampler)?;
    let scoring = (Inference::OverRanks(Box::new(inference)), Some(view));
    let run = TypedRun::new(config, (&view.data, task), (&*sampler, &tiers, devices), scoring)?;
    let run = TypedRun { rounds, ..run };
    // a rank announces its wish with its next batch, and all stop after the same one
    let RunContext { run: dir, resume, observer, stop: wants } = context;
    let stop = || ranks.agree_to_stop(wants());
    let context = RunContext { run: dir, resume, observer, stop: &stop };
    batchwise::train(config, run, learner, context, began).map(|(summary, _)| summary)
}

/// Rows of nodes from all their neighbours.
pub(super) enum Inference<'a> {
    Alone(Box<TypedInference<'a>>),
    OverRanks(Box<RankInference<'a>>),
}

impl Inference<'_> {
    /// Work of the last call: of this rank, if there are several.
    pub(super) fn work(&self) -> Work {
        match self {
            Self::Alone(of) => of.work(),
            Self::OverRanks(of) => of.work(),
        }
    }
}

/// A run on several types.
struct TypedRun<'a> {
    config: &'a TrainConfig,
    data: &'a TypedDataset,
    task: &'a TypedTask,
    order: Box<dyn SeedOrder + 'a>,
    sampler: &'a dyn TypedSampler,
    tiers: &'a TypedTiers,
    strategy: Strategy,
    /// Copies of the model, if devices compute gradients for it.
    rounds: Option<Rounds<TypedLearner<'a>>>,
    /// Rows that batches reuse, if they do.
    reuse: Option<TypedReuse>,
    metric: &'static table::Entry<Metric>,
    inference: Inference<'a>,
    /// Validation and test nodes that are scored, and training nodes for diagnostics.
    scored: [Vec<NodeId>; 3],
    /// Logits of the nodes scored last; their memory is reused.
    logits: Matrix,
    /// Devices that compute, except of a rank.
    compute: Option<&'a ComputeDevices>,
    /// This rank's part of the dataset, if several ranks train together.
    view: Option<&'a TypedRankView>,
    /// Work of each rank in the last epoch.
    ranks: Vec<RankRecord>,
    /// Work of each device in the last epoch, if devices work independently.
    devices: Vec<DeviceRecord>,
    /// True once the caches that wait for counts are filled.
    is_filled: bool,
    /// Note that they were, until it is reported.
    filled: Option<String>,
}

impl<'a> TypedRun<'a> {
    /// A run before its first epoch.
    ///
    /// # Errors
    /// An option is impossible.
    fn new(
        config: &'a TrainConfig,
        (data, task): (&'a TypedDataset, &'a TypedTask),
        (sampler, tiers, devices): (&'a dyn TypedSampler, &'a TypedTiers, Option<TypedDevices>),
        (inference, view): (Inference<'a>, Option<&'a TypedRankView>),
    ) -> Result<Self> {
        Ok(Self {
            config,
            data,
            task,
            order: build::order(config, task)?,
            sampler,
            tiers,
            strategy: Strategy::new(config, task, devices)?,
            rounds: None,
            reuse: None,
            metric: build::metric(config, task)?,
            inference,
            scored: [
                fixed_sample(&task.split.valid, config.eval_nodes),
                fixed_sample(&task.split.test, config.eval_nodes),
                fixed_sample(&task.split.train, DIAGNOSED_TRAIN_NODES),
            ],
            logits: Matrix::default(),
            compute: None,
            view,
            ranks: Vec::new(),
            devices: Vec::new(),
            is_filled: false,
            filled: None,
        })
    }

    /// Fills the caches that wait for the counts of the first epochs, if these are complete.
    fn fill_caches(&mut self, epoch: u64, learner: &TypedLearner<'a>) -> Result<()> {
        let Some(reads) = learner.reads.as_ref().filter(|reads| epoch >= reads.epochs()) else {
            return Ok(());
        };
        if !std::mem::replace(&mut self.is_filled, true) {
            let rows = self.tiers.fill(self.task, reads.counts())?;
            self.strategy.set_cache_rows(rows);
            let epochs = reads.epochs();
            self.filled =
                Some(format!("the minibatches of {epochs} epochs were counted, and fill the caches"));
        }
        Ok(())
    }
}

impl<'a> BatchRun for TypedRun<'a> {
    type Learner = TypedLearner<'a>;

    fn data(&self) -> &TypedDataset {
        self.data
    }

    fn dataset(&self) -> DatasetRecord {
        self.view.map_or_else(|| self.task.record(self.data), |view| view.record.clone())
    }

    fn ranks(&self) -> Option<&Arc<Ranks>> {
        self.view.map(|view| &view.ranks)
    }

    fn partition(&self) -> Option<String> {
        self.view.map(|view| view.partition.clone())
    }

    fn task(&self) -> &str {
        &self.task.name
    }

    fn num_seeds(&self) -> usize {
        self.task.split.train.len()
    }

    fn num_batches(&self) -> u64 {
        let of_seeds = || self.num_seeds().div_ceil(batch_size(self.config, self.task)) as u64;
        self.sampler.subgraphs().unwrap_or_else(of_seeds)
    }

    fn metric(&self) -> String {
        self.metric.name.to_string()
    }

    fn order(&self, epoch: u64, order: &mut Vec<NodeId>) {
        match self.sampler.subgraphs() {
            Some(_) => order.clear(),
            None => self.order.order(epoch, order),
        }
    }

    fn train(
        &mut self,
        session: &mut Session<TypedLearner<'a>>,
        order: &[NodeId],
        batches: Range<u64>,
    ) -> Result<Flow> {
        let epoch = session.epoch();
        self.fill_caches(epoch, session.learner())?;
        if let Some(view) = self.view {
            view.ranks.count_bytes(true)?;
        }
        let timeline = session.meter().timeline();
        let of = EpochBatches {
            task: self.task,
            source: self.task,
            sampler: self.sampler,
            tables: &self.tiers.tables,
            order,
            batch_size: batch_size(self.config, self.task),
            seed: self.config.seed,
            epoch,
            aggregation: session.learner().model.aggregation(),
            timeline: &timeline,
            owners: self.view.map(TypedRankView::of_seeds),
            ahead: None,
        };
        let (last, cost) = (batches.end, &self.tiers.counted);
        let flow = match (&mut self.rounds, &mut self.reuse) {
            (Some(rounds), _) => self.strategy.run_rounds(rounds, session, of, (batches, cost))?,
            (None, Some(reuse)) => {
                reuse.train(&mut self.strategy, session, (of, &*self.order), (batches, cost))?
            }
            (None, None) => turns::train(&mut self.strategy, session, &of, (batches, cost), |_, _| false)?,
        };
        self.devices = self.strategy.records();
        // an epoch of subgraphs may be shorter over the ranks that resume it
        let is_done = session.num_done() >= last;
        if let Some(view) = self.view.filter(|_| is_done) {
            self.ranks = view.end_epoch(session)?;
        }
        Ok(flow)
    }

    fn num_scored(&self, part: Part) -> usize {
        self.scored[part as usize].len()
    }

    fn score(&mut self, learner: &mut TypedLearner<'a>, part: Part) -> Result<Option<Scored>> {
        let nodes = &self.scored[part as usize];
        match &mut self.inference {
            Inference::Alone(of) => of.run(&learner.model, nodes, Output::Logits, &mut self.logits)?,
            Inference::OverRanks(of) => of.run(&learner.model, nodes, &mut self.logits)?,
        }
        // the loss reads transformed values, metrics those at the scale of the targets
        let loss = learner.loss(&self.logits, nodes);
        if let Some(scale) = learner.scale() {
            scale.undo(self.logits.view_mut().host());
        }
        let score = score_labels(self.metric.make, &self.logits, &self.task.labels, nodes);
        let (score, loss) = match self.view {
            // decisions are the same on all ranks, whose processors may round differently
            Some(view) => {
                let [agreed, loss] = view.ranks.agree([score.unwrap_or_default(), loss])?;
                (score.map(|_| agreed), loss)
            }
            None => (score, loss),
        };
        Ok(score.map(|score| {
            let judged = match self.config.select_by {
                SelectBy::Loss => -loss,
                SelectBy::Score if is_error(self.metric.name) => -score,
                SelectBy::Score => score,
            };
            Scored { score, loss, judged }
        }))
    }

    fn work(&self, _: &TypedLearner<'a>, epoch: &EpochTotals) -> Result<[Work; 2]> {
        let own = self.inference.work();
        let scoring = self.view.map_or(Ok(own), |view| view.ranks.sum_work(own))?;
        Ok([epoch.work(None), scoring])
    }

    fn diagnosed(&self) -> &'static [&'static str] {
        match diagnosed_parts(&self.task.labels) {
            // training nodes would see their own labels
            ["train", others @ ..] if self.task.label_columns.is_some() => others,
            all => all,
        }
    }

    fn diagnostics(&self, part: &str) -> Option<Diagnostics> {
        let nodes = &self.scored[Part::named(part) as usize];
        diagnostics(part, &self.logits, &self.task.labels, nodes, &self.task.classes)
    }

    fn target_scale(&self) -> Option<TargetScale> {
        target_scale_of(self.config, &self.task.labels, &self.task.split.train)
    }

    fn complete(&self, record: EpochRecord, counts: &TypeCounts) -> EpochRecord {
        let record = self.task.complete(record, counts, self.has_devices());
        let reuse = self.reuse.as_ref().and_then(TypedReuse::record);
        EpochRecord { ranks: self.ranks.clone(), devices: self.devices.clone(), reuse, ..record }
    }

    fn by_class(&self) -> Option<ClassReport> {
        class_report(&self.logits, &self.task.labels, &self.scored[Part::Test as usize], &self.task.classes)
    }

    fn baseline(&self) -> Result<Option<Baseline>> {
        match (self.view, self.task.known(&Quiet)) {
            (None, Ok(known)) => {
                let parts = [&self.scored[Part::Valid as usize][..], &self.scored[Part::Test as usize]];
                label_propagation(self.config, &known, self.metric.make, parts)
            }
            // a rank has the labels and edges of its own nodes only
            _ => Ok(None),
        }
    }

    fn has_devices(&self) -> bool {
        self.config.num_devices() > 0
    }

    fn staleness_bound(&self) -> u64 {
        // gradients of rounds are stale or rows are
        let of_rows = self.reuse.as_ref().map_or(0, TypedReuse::staleness_bound);
        strategy::update_bound(self.config).max(of_rows)
    }

    fn nvidia(&self) -> Vec<NvidiaRecord> {
        self.compute.map_or_else(Vec::new, ComputeDevices::records)
    }

    fn note(&mut self) -> Option<String> {
        let of_reuse = || self.reuse.as_mut().and_then(TypedReuse::note);
        self.filled.take().or_else(of_reuse).or_else(|| match &mut self.inference {
            Inference::Alone(of) => of.note(),
            Inference::OverRanks(_) => None,
        })
    }

    fn presampling(&self) -> Option<PresamplingRecord> {
        self.tiers.presampling()
    }
}
