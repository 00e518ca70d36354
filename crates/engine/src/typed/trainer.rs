//! A training run on several types, by the loop of [`crate::batchwise`].

use std::{ops::Range, time::Instant};

use graphmill_core::{NodeId, table};
use graphmill_data::typed::TypedDataset;
use graphmill_loader::{
    order::SeedOrder,
    time::{TimeDraw, TimeOptions},
    typed::{TypedExtracted, TypedSampler, unreached_types},
};
use graphmill_nn::{
    Matrix,
    metric::{Metric, classes::ClassReport, diagnostics::Diagnostics, values::is_error},
    regression::TargetScale,
};

use super::{
    build,
    inference::TypedInference,
    learner::TypedLearner,
    stages::{EpochBatches, Made},
    strategy::Strategy,
    task::{TypeCounts, TypedTask, unread_columns},
    tiers::TypedTiers,
    visits::batch_size,
};
use crate::{
    Error, Result, RunContext, TrainConfig,
    batchwise::{self, BatchRun, Completed, Part, Scored, Session},
    config::SelectBy,
    inference::{
        DIAGNOSED_TRAIN_NODES, Output, class_report, diagnosed_parts, diagnostics, fixed_sample, score_labels,
    },
    record::{DatasetRecord, EpochRecord, EpochTotals, PresamplingRecord, Summary, Traffic},
    run::notices::{ALL_IN_HOST, opening},
    strategy::{Flow, attempt},
    timeline::Stage,
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
    let began = Instant::now();
    let unverified = FeatureFiles::of_types(data).prepare(config)?;
    let task = TypedTask::new(data, &config.task)?.with_edges(config, data)?;
    let metric = build::metric(config, &task)?;
    if task.split.train.is_empty() {
        return Err(Error::dataset(&data.name, "its task has no training nodes; add some to the split"));
    }
    let sampler = build::sampler(config, &task)?;
    let tiers = TypedTiers::new(config, data, &task, &*sampler)?;
    let learner = TypedLearner::new(config, &task)?;
    let notes = notes(config, data, &task, &*sampler, &learner);
    context.observer.note(&opening(&config.strategy, tiers.description.as_deref().unwrap_or(ALL_IN_HOST)));
    unverified.iter().chain(&notes).for_each(|note| context.observer.note(note));
    let run = TypedRun {
        config,
        data,
        task: &task,
        order: build::order(config, &task)?,
        inference: TypedInference::new(config, &task, &*sampler, tiers.whole.clone())?,
        tiers: &tiers,
        sampler: &*sampler,
        strategy: Strategy::new(config, &task)?,
        metric,
        scored: [
            fixed_sample(&task.split.valid, config.eval_nodes),
            fixed_sample(&task.split.test, config.eval_nodes),
            fixed_sample(&task.split.train, DIAGNOSED_TRAIN_NODES),
        ],
        logits: Matrix::default(),
    };
    batchwise::train(config, run, learner, context, began)
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

/// A run on several types.
struct TypedRun<'a> {
    config: &'a TrainConfig,
    data: &'a TypedDataset,
    task: &'a TypedTask,
    order: Box<dyn SeedOrder + 'a>,
    sampler: &'a dyn TypedSampler,
    tiers: &'a TypedTiers,
    strategy: Strategy,
    metric: &'static table::Entry<Metric>,
    inference: TypedInference<'a>,
    /// Validation and test nodes that are scored, and training nodes for diagnostics.
    scored: [Vec<NodeId>; 3],
    /// Logits of the nodes scored last; their memory is reused.
    logits: Matrix,
}

impl<'a> BatchRun for TypedRun<'a> {
    type Learner = TypedLearner<'a>;

    fn data(&self) -> &TypedDataset {
        self.data
    }

    fn dataset(&self) -> DatasetRecord {
        self.task.record(self.data)
    }

    fn task(&self) -> &str {
        &self.task.name
    }

    fn num_seeds(&self) -> usize {
        self.task.split.train.len()
    }

    fn num_batches(&self) -> u64 {
        self.num_seeds().div_ceil(batch_size(self.config, self.task)) as u64
    }

    fn metric(&self) -> String {
        self.metric.name.to_string()
    }

    fn order(&self, epoch: u64, order: &mut Vec<NodeId>) {
        self.order.order(epoch, order);
    }

    fn train(
        &mut self,
        session: &mut Session<TypedLearner<'a>>,
        order: &[NodeId],
        batches: Range<u64>,
    ) -> Result<Flow> {
        let timeline = session.meter().timeline();
        let of = EpochBatches {
            task: self.task,
            source: self.task,
            sampler: self.sampler,
            tables: &self.tiers.tables,
            order,
            batch_size: batch_size(self.config, self.task),
            seed: self.config.seed,
            epoch: session.epoch(),
            aggregation: session.learner().model.aggregation(),
            timeline: &timeline,
        };
        let track = timeline.track("main");
        self.strategy.run(&of, batches, &mut |Made { batch, mut spent }| {
            let (clock, number) = (Instant::now(), batch.sampled.seeds.number);
            let (lr, learner) = (session.lr(number), session.learner());
            let outcome = attempt(Stage::Train, number, || learner.train(&batch, lr))?;
            spent.train = timeline.done(track, Stage::Train, number, clock);
            let traffic = total(&batch.traffic);
            let done = Completed { number, outcome, traffic, spent };
            let flow = session.complete(done, |sums, counts| add(&batch, sums, counts))?;
            Ok((flow, batch.recycle()))
        })
    }

    fn num_scored(&self, part: Part) -> usize {
        self.scored[part as usize].len()
    }

    fn score(&mut self, learner: &mut TypedLearner<'a>, part: Part) -> Result<Option<Scored>> {
        let nodes = &self.scored[part as usize];
        self.inference.run(&learner.model, nodes, Output::Logits, &mut self.logits)?;
        // the loss reads standardised values, metrics those at the scale of the targets
        let loss = learner.loss(&self.logits, nodes);
        if let Some(scale) = &self.task.scale {
            scale.undo(self.logits.view_mut().host());
        }
        let score = score_labels(self.metric.make, &self.logits, &self.task.labels, nodes);
        Ok(score.map(|score| {
            let judged = match self.config.select_by {
                SelectBy::Loss => -loss,
                SelectBy::Score if is_error(self.metric.name) => -score,
                SelectBy::Score => score,
            };
            Scored { score, loss, judged }
        }))
    }

    fn diagnosed(&self) -> &'static [&'static str] {
        diagnosed_parts(&self.task.labels)
    }

    fn diagnostics(&self, part: &str) -> Option<Diagnostics> {
        let nodes = &self.scored[Part::named(part) as usize];
        diagnostics(part, &self.logits, &self.task.labels, nodes, &self.task.classes)
    }

    fn target_scale(&self) -> Option<TargetScale> {
        self.task.scale.clone()
    }

    fn complete(&self, record: EpochRecord, counts: &TypeCounts) -> EpochRecord {
        self.task.complete(record, counts, self.has_devices())
    }

    fn by_class(&self) -> Option<ClassReport> {
        class_report(&self.logits, &self.task.labels, &self.scored[Part::Test as usize], &self.task.classes)
    }

    fn has_devices(&self) -> bool {
        self.config.num_devices() > 0
    }

    fn presampling(&self) -> Option<PresamplingRecord> {
        self.tiers.presampling
    }
}

/// Traffic of a batch over all types.
pub(super) fn total(of_types: &[Traffic]) -> Traffic {
    of_types.iter().fold(Traffic::default(), |mut sum, &of| {
        sum += of;
        sum
    })
}

/// Adds the edges of a batch, and its nodes, edges and traffic by type.
pub(super) fn add(batch: &TypedExtracted, sums: &mut EpochTotals, counts: &mut TypeCounts) {
    let TypedExtracted { sampled, traffic, .. } = batch;
    sums.edges += sampled.num_edges() as u64;
    sums.bottom_edges += sampled.blocks.first().map_or(0, |block| block.num_edges()) as u64;
    counts.nodes.resize(sampled.input_nodes.len(), 0);
    counts.nodes.iter_mut().zip(&sampled.input_nodes).for_each(|(sum, nodes)| *sum += nodes.len() as u64);
    counts.traffic.resize(traffic.len(), Traffic::default());
    counts.traffic.iter_mut().zip(traffic).for_each(|(sum, of)| *sum += *of);
    for block in &sampled.blocks {
        counts.edges.resize(block.relations.len(), 0);
        let edges = block.relations.iter().map(|slice| slice.indices.len() as u64);
        counts.edges.iter_mut().zip(edges).for_each(|(sum, edges)| *sum += edges);
    }
}
