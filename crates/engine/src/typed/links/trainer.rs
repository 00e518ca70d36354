//! A training run on links of several types, by the loop of [`crate::batchwise`].

use std::{ops::Range, time::Instant};

use graphmill_core::{End, NodeId, progress::Quiet};
use graphmill_data::typed::TypedDataset;
use graphmill_loader::{
    order::SeedOrder,
    typed::{TypedSampler, unreached_types},
};
use graphmill_nn::Matrix;

use super::{
    super::{
        build,
        counts::{TypeCounts, total},
        devices::TypedDevices,
        inference::TypedInference,
        stages::EpochBatches,
        step::StepBytes,
        strategy::Strategy,
        tables::Tables,
        trainer::add,
    },
    batch::LinkSeeds,
    learner::{LinkLearner, LinkModel},
    task::TypedLinks,
    timed::TimedRanking,
};
use crate::{
    Error, Result, RunContext, TrainConfig,
    batchwise::{self, BatchRun, Completed, Part, Scored, Session},
    config::link::LinkOptions,
    link::{self, LinkMetric},
    record::{DatasetRecord, DeviceRecord, EpochRecord, LinkRelation, Summary},
    relational::{Ranking, ends, metric},
    run::notices::{ALL_IN_HOST, opening},
    strategy::{Flow, Timed, attempt},
    timeline::Stage,
    verification::FeatureFiles,
};

/// Trains a model on the links of a dataset of several types and evaluates it. Runs on the current
/// rayon pool.
///
/// Writes the same records as [`crate::train`] into [`RunContext::run`]; seeds are edges. The
/// observer gets all events but [`Observer::model`](crate::observer::Observer::model).
///
/// # Errors
/// As for [`crate::train`]; the dataset has no such task, an option is not for links, or the
/// decoder does not fit the relations.
pub fn train(config: &TrainConfig, data: &TypedDataset, context: RunContext) -> Result<Summary> {
    let began = Instant::now();
    check(config)?;
    let unverified = FeatureFiles::of_types(data).prepare(config)?;
    let mut of = TypedLinks::new(config, data)?;
    let metric = metric(config, &of.edges)?;
    if metric.is_pooled() {
        of.edges.draw_pairs(data, config)?;
    }
    let sampler = build::sampler(config, &of.inputs)?;
    let seeds = LinkSeeds::new(config, &of)?;
    let mut learner = LinkLearner::new(config, &of)?;
    learner.hard = seeds.negatives.hard(&config.own.get::<LinkOptions>());
    let numbers: Vec<NodeId> = (0..of.edges.parts[0].len() as NodeId).collect();
    let tables = of.inputs.host_tables();
    let observer = &mut *context.observer;
    observer.note(&opening(&config.strategy, ALL_IN_HOST));
    let notes = notes(&of, &*sampler);
    let all = unverified.iter().chain(&of.notes).chain(&seeds.negatives.notes).chain(&notes);
    all.for_each(|note| observer.note(note));
    let run = LinkRun {
        config,
        data,
        of: &of,
        order: build::order_of(config, &numbers, &of.inputs.labels)?,
        batch_size: if config.batch_size == 0 { numbers.len() } else { config.batch_size },
        inference: TypedInference::new(config, &of.inputs, &*sampler, tables.clone())?,
        strategy: Strategy::new(config, &of.inputs, TypedDevices::new(config, &of.inputs, &without_memory)?)?,
        devices: Vec::new(),
        ends: ends(config, &of.edges),
        sampler: &*sampler,
        seeds: &seeds,
        tables,
        metric,
        embeddings: Matrix::default(),
    };
    batchwise::train(config, run, learner, context, began).map(|(summary, _)| summary)
}

/// Refuses options with which a run cannot learn links of several types.
fn check(config: &TrainConfig) -> Result<()> {
    link::check(config)?;
    if config.head_layers > 0 {
        return Err(Error::usage(format!(
            "--head-layers {} with links: the decoder scores the rows of the last layer; leave it out, or \
             use --decoder mlp",
            config.head_layers
        )));
    }
    Ok(())
}

/// Refuses a memory of devices.
fn without_memory() -> Result<StepBytes> {
    Err(Error::usage("--device-budget with links of several types: the host holds all rows; leave it out"))
}

/// Notes for the user about choices of the run.
fn notes(of: &TypedLinks, sampler: &dyn TypedSampler) -> Vec<String> {
    let (schema, types) = (of.inputs.graph.schema(), of.types().collect::<Vec<_>>());
    let mut notes = Vec::new();
    let unreached = unreached_types(sampler, schema, &types);
    if !unreached.is_empty() {
        notes.push(format!(
            "no path of {} hops leads from nodes of type {} to an end of an edge, so they are not read",
            sampler.num_hops(),
            unreached.join(", ")
        ));
    }
    let without = schema.types().iter().zip(&of.inputs.features).filter(|(_, features)| features.is_none());
    let learned: Vec<&str> = without.map(|(node, _)| &node.name[..]).collect();
    if !learned.is_empty() {
        notes.push(format!(
            "nodes of type {} have no features: a learned row for each, by Adam on the rows of a batch and \
             without weight decay",
            learned.join(", ")
        ));
    }
    notes
}

/// A run on links of several types.
struct LinkRun<'a> {
    config: &'a TrainConfig,
    data: &'a TypedDataset,
    of: &'a TypedLinks,
    order: Box<dyn SeedOrder + 'a>,
    batch_size: usize,
    sampler: &'a dyn TypedSampler,
    seeds: &'a LinkSeeds<'a>,
    tables: Tables,
    strategy: Strategy,
    /// Work of each device in the last epoch, if devices work independently.
    devices: Vec<DeviceRecord>,
    metric: LinkMetric,
    /// Ends that are queries of single edges.
    ends: Vec<End>,
    inference: TypedInference<'a>,
    /// Embeddings of all ends of edges; their memory is reused.
    embeddings: Matrix,
}

impl LinkRun<'_> {
    /// The ranking by the model, of at most `max` edges of a part; 0 for all.
    fn ranking<'r>(&'r mut self, model: &'r LinkModel, max: usize) -> Result<Ranking<'r>> {
        self.inference.embed(&model.encoder, self.of.types(), &mut self.embeddings)?;
        let (decoder, embeddings) = (&*model.decoder, &self.embeddings);
        Ok(Ranking { edges: &self.of.edges, decoder, embeddings, ends: &self.ends, max })
    }
}

impl BatchRun for LinkRun<'_> {
    type Learner = LinkLearner;

    fn data(&self) -> &TypedDataset {
        self.data
    }

    fn dataset(&self) -> DatasetRecord {
        self.of.edges.record(self.data)
    }

    fn task(&self) -> &str {
        &self.of.edges.task
    }

    fn relations(&self) -> Vec<LinkRelation> {
        self.of.edges.recorded()
    }

    fn num_seeds(&self) -> usize {
        self.of.edges.parts[0].len()
    }

    fn num_batches(&self) -> u64 {
        let all = self.num_seeds().div_ceil(self.batch_size);
        if self.config.max_batches == 0 { all as u64 } else { all.min(self.config.max_batches) as u64 }
    }

    fn metric(&self) -> String {
        self.metric.name()
    }

    fn order(&self, epoch: u64, order: &mut Vec<NodeId>) {
        self.order.first(epoch, (self.num_batches() as usize).saturating_mul(self.batch_size), order);
    }

    fn train(
        &mut self,
        session: &mut Session<LinkLearner>,
        order: &[NodeId],
        batches: Range<u64>,
    ) -> Result<Flow> {
        let timeline = session.meter().timeline();
        let of = EpochBatches {
            task: &self.of.inputs,
            source: self.seeds,
            sampler: self.sampler,
            tables: &self.tables,
            order,
            batch_size: self.batch_size,
            seed: self.config.seed,
            epoch: session.epoch(),
            aggregation: session.learner().model.encoder.aggregation(),
            timeline: &timeline,
            owners: None,
        };
        let track = timeline.track(self.strategy.trainer());
        let flow = self.strategy.run(&of, batches, |Timed { batch, mut spent }| {
            let (clock, number) = (Instant::now(), batch.sampled.seeds.number);
            let (lr, learner) = (session.lr(number), session.learner());
            let outcome = attempt(Stage::Train, number, || learner.train(&batch, lr))?;
            spent.train = timeline.done(track, Stage::Train, number, clock);
            let done = Completed { number, outcome, traffic: total(&batch.traffic), spent };
            let flow = session.complete(done, |sums, counts| add(&batch, sums, counts))?;
            Ok((flow, batch.recycle()))
        })?;
        self.devices = self.strategy.records();
        Ok(flow)
    }

    fn num_scored(&self, part: Part) -> usize {
        match part {
            // nothing diagnoses the edges that were learned
            Part::Train => 0,
            part => self.of.edges.parts[1 + part as usize].len(),
        }
    }

    fn score(&mut self, learner: &mut LinkLearner, part: Part) -> Result<Option<Scored>> {
        let (metric, number) = (self.metric.clone(), 1 + part as usize);
        let metrics = std::slice::from_ref(&metric);
        let (scores, _) = if self.of.edges.times.is_some() {
            let Self { config, of, sampler, tables, .. } = self;
            TimedRanking { config, of, sampler: *sampler, tables, watch: &Quiet }.scores(
                &learner.model,
                number,
                metrics,
            )?
        } else {
            let ranking = self.ranking(&learner.model, self.config.eval_nodes)?;
            rayon::scope(|_| ranking.scores(number, metrics))
        };
        let score = scores.get(&metric.name()).copied();
        Ok(score.map(|score| Scored { score, loss: f64::NAN, judged: score }))
    }

    fn end_epoch(&mut self, learner: &mut LinkLearner) -> Result<()> {
        let Some(lists) = learner.hard.clone() else { return Ok(()) };
        let k = self.config.own.get::<LinkOptions>().hard_candidates;
        let fixed = |&end: &End| {
            let relations = self.of.edges.fixed(end).into_iter();
            relations.map(move |(relation, rows)| (end, relation, rows)).collect::<Vec<_>>()
        };
        let queries: Vec<_> = self.ends.iter().flat_map(fixed).collect();
        let ranking = self.ranking(&learner.model, 0)?;
        rayon::scope(|_| ranking.harden(&lists, &queries, k));
        Ok(())
    }

    fn complete(&self, record: EpochRecord, counts: &TypeCounts) -> EpochRecord {
        let record = self.of.inputs.complete(record, counts, false);
        EpochRecord { devices: self.devices.clone(), ..record }
    }
}
