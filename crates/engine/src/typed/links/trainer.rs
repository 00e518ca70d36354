//! A training run on links of several types, by the loop of [`crate::batchwise`].

use std::{ops::Range, sync::Arc, time::Instant};

use graphmill_core::{End, NodeId, progress::Quiet};
use graphmill_data::typed::TypedDataset;
use graphmill_loader::{
    order::SeedOrder,
    typed::{TypedSampler, unreached_types},
};
use graphmill_nn::Matrix;

use super::{
    super::{
        batches::{Learned, RunBatches},
        build,
        computing::InferenceDevice,
        counts::TypeCounts,
        devices::compute_devices,
        inference::TypedInference,
        notices::{note_of_learned, note_of_sparse},
        ranks::{RankInference, TypedRankView},
        reuse,
        rounds::Rounds,
        stages::{EpochBatches, SeedSource},
        strategy::Strategy,
        tiers::TypedTiers,
        trainer::{Inference, PROJECTED},
        turns,
    },
    batch::LinkSeeds,
    learner::{LinkLearner, LinkModel},
    shares::RankSeeds,
    task::TypedLinks,
    timed::TimedRanking,
};
use crate::{
    Error, Result, RunContext, TrainConfig,
    accelerator::ComputeDevices,
    batchwise::{self, BatchRun, Part, Scored, Session},
    bottom,
    build::processor,
    cache_kind::{OF_LINKS, counts_training},
    config::{Work, link::LinkOptions},
    distributed::Ranks,
    link::{self, LinkMetric, QueryShare},
    options::NO_REUSE_OF_LINKS,
    record::{
        DatasetRecord, DeviceRecord, EpochRecord, EpochTotals, LinkRelation, NvidiaRecord, PresamplingRecord,
        RankRecord, Summary,
    },
    relational::{Ranking, VALID, ends, metric},
    run::{
        Preparation,
        notices::{ALL_IN_HOST, emulated, opening},
    },
    strategy::{self, Flow},
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
    train_alone(config, data, context, |sampler| sampler).map_err(Error::before_training)
}

/// Trains with the sampler that `wrap` makes of that of the options.
pub(in crate::typed) fn train_alone(
    config: &TrainConfig,
    data: &TypedDataset,
    context: RunContext,
    wrap: impl FnOnce(Box<dyn TypedSampler>) -> Box<dyn TypedSampler>,
) -> Result<Summary> {
    let began = Instant::now();
    check(config)?;
    let unverified = FeatureFiles::of_types(data).prepare(config)?;
    let mut of = TypedLinks::new(config, data)?;
    of.notes = unverified.into_iter().chain(of.notes).collect();
    of.inputs.learned_in = build::learned_rows_in(config, &of.inputs, &context.directory());
    let sampler = wrap(build::sampler(config, &of.inputs)?);
    run(config, (data, of), (sampler, None), context, began)
}

/// Trains a model as one of several ranks, on its view of the dataset with the links that it has
/// found, with the sampler that `wrap` makes of that of the options. All ranks call this at the
/// same time.
///
/// # Errors
/// As for [`train`]; a rank did not take part.
pub(in crate::typed) fn train_as_rank(
    config: &TrainConfig,
    (view, of): (&TypedRankView, TypedLinks),
    context: RunContext,
    wrap: impl FnOnce(Box<dyn TypedSampler>) -> Box<dyn TypedSampler>,
) -> Result<Summary> {
    let began = Instant::now();
    check(config)?;
    // a rank announces its wish with its next batch, and all stop after the same one
    let RunContext { run: dir, resume, observer, stop: wants } = context;
    let stop = || view.ranks.agree_to_stop(wants());
    let context = RunContext { run: dir, resume, observer, stop: &stop };
    let sampler = wrap(view.sampler(config)?);
    run(config, (&view.data, of), (sampler, Some(view)), context, began)
}

/// Trains on these links of a dataset by batches of this sampler, alone or as the rank of a view.
fn run(
    config: &TrainConfig,
    (data, mut of): (&TypedDataset, TypedLinks),
    (sampler, view): (Box<dyn TypedSampler>, Option<&TypedRankView>),
    context: RunContext,
    began: Instant,
) -> Result<Summary> {
    // before any long work
    let compute = compute_devices(config)?;
    let metric = metric(config, &of.edges)?;
    if metric.is_pooled() && of.edges.times.is_none() {
        of.edges.draw_pairs(data, config)?;
    }
    let seeds = LinkSeeds::new(config, &of)?;
    let share = view.map(|view| RankSeeds { whole: &seeds, owners: &view.owners });
    let source = share.as_ref().map_or(&seeds as &dyn SeedSource, |share| share);
    let numbers: Vec<NodeId> = (0..of.edges.parts[0].len() as NodeId).collect();
    let (task, order) = (&of.inputs, || build::order_of(config, &numbers, &of.inputs.labels));
    let learned =
        Learned { task, sampler: &*sampler, source, models: &of, order: order()?, seeds: numbers.len() };
    let batches = RunBatches::new(config, learned);
    let progress = Preparation::new(&*context.observer);
    let (tiers, devices) = match view {
        None => TypedTiers::with_devices(data, &batches, &compute, &progress)?,
        Some(view) => TypedTiers::over_ranks(&batches, view, &progress)?,
    };
    let over = || view.map(TypedRankView::row_owners);
    let mut learner = LinkLearner::new(config, &of, over())?.on(compute.training());
    learner.hard = seeds.negatives.hard(&config.own.get::<LinkOptions>());
    let rank = view.map(|view| view.ranks.rank());
    let replica = || LinkLearner::replica(config, &of).map(|copy| copy.of_rank(rank));
    let rounds = devices.as_ref().map(|devices| Rounds::new(config, devices.trainers(), over(), replica));
    let rounds = rounds.transpose()?.flatten();
    let inference = match view {
        None => {
            let alone = TypedInference::new(config, task, &*sampler, tiers.whole.clone())?;
            let device = compute.gpus().first().map(|gpu| gpu as &dyn InferenceDevice);
            Inference::Alone(Box::new(alone.on(device)))
        }
        Some(view) => Inference::OverRanks(Box::new(RankInference::new(config, view, &*sampler)?)),
    };
    let observer = &mut *context.observer;
    let parts = [view.map(|view| view.describe(config)), tiers.description.clone()];
    let rows = parts.into_iter().flatten().collect::<Vec<_>>().join("; ");
    observer.note(&opening(&config.strategy, if rows.is_empty() { ALL_IN_HOST } else { &rows }));
    if !compute.gpus().is_empty() {
        observer.note(&format!("{compute}; the processor samples and ranks"));
    }
    let notes = notes(config, &of, &*sampler);
    let all = of.notes.iter().chain(&seeds.negatives.notes).chain(&notes);
    all.for_each(|note| observer.note(note));
    let run = LinkRun {
        config,
        data,
        of: &of,
        order: order()?,
        batch_size: batches.size(),
        inference,
        strategy: Strategy::new(config, task, devices)?,
        rounds,
        devices: Vec::new(),
        ends: ends(config, &of.edges),
        sampler: &*sampler,
        source,
        tiers: &tiers,
        metric,
        embeddings: Matrix::default(),
        compute: &compute,
        view,
        ranks: Vec::new(),
    };
    batchwise::train(config, run, learner, context, began).map(|(summary, _)| summary)
}

/// Refuses options with which a run cannot learn links of several types.
fn check(config: &TrainConfig) -> Result<()> {
    link::check(config, true)?;
    for (flag, name) in [("cache", &config.cache), ("host-cache", &config.host_cache)] {
        if counts_training(name) {
            return Err(Error::usage(format!(
                "--{flag} {name} with links: runs on links of several types fill their caches before the \
                 first epoch; use {OF_LINKS}, which counts before training"
            )));
        }
    }
    bottom::refuse(config, PROJECTED)?;
    reuse::refuse(config, NO_REUSE_OF_LINKS)?;
    if config.head_layers > 0 {
        return Err(Error::usage(format!(
            "--head-layers {} with links: the decoder scores the rows of the last layer; leave it out, or \
             use --decoder mlp",
            config.head_layers
        )));
    }
    Ok(())
}

/// Notes for the user about choices of the run.
fn notes(config: &TrainConfig, of: &TypedLinks, sampler: &dyn TypedSampler) -> Vec<String> {
    let (schema, types) = (of.inputs.graph.schema(), of.types().collect::<Vec<_>>());
    let mut notes: Vec<String> = emulated(config).map(str::to_string).into_iter().collect();
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
    notes.extend(note_of_learned(&learned, &of.inputs));
    notes.extend(note_of_sparse(config, &of.inputs));
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
    source: &'a dyn SeedSource,
    tiers: &'a TypedTiers,
    strategy: Strategy,
    /// Copies of the model, if devices compute gradients for it.
    rounds: Option<Rounds<LinkLearner<'a>>>,
    /// Work of each device in the last epoch, if devices work independently.
    devices: Vec<DeviceRecord>,
    metric: LinkMetric,
    /// Ends that are queries of single edges.
    ends: Vec<End>,
    inference: Inference<'a>,
    /// Embeddings of all ends of edges; their memory is reused.
    embeddings: Matrix,
    compute: &'a ComputeDevices,
    /// This rank's part of the dataset, if several ranks train together.
    view: Option<&'a TypedRankView>,
    /// Work of each rank in the last epoch.
    ranks: Vec<RankRecord>,
}

impl LinkRun<'_> {
    /// The ranking by the model, of at most `max` edges of a part; 0 for all.
    fn ranking<'r>(&'r mut self, model: &'r LinkModel, max: usize) -> Result<Ranking<'r>> {
        let (encoder, types, rows) = (&model.encoder, self.of.types(), &mut self.embeddings);
        match &mut self.inference {
            Inference::Alone(of) => of.embed(encoder, types, rows)?,
            Inference::OverRanks(of) => of.embed(encoder, types, rows)?,
        }
        let (decoder, embeddings) = (&*model.decoder, &self.embeddings);
        let (processor, edges, ends) = (processor(self.config), &self.of.edges, &self.ends[..]);
        Ok(Ranking { processor, edges, decoder, embeddings, ends, max })
    }
}

impl<'a> BatchRun for LinkRun<'a> {
    type Learner = LinkLearner<'a>;

    fn data(&self) -> &TypedDataset {
        self.data
    }

    fn dataset(&self) -> DatasetRecord {
        self.of.edges.record(self.data)
    }

    fn ranks(&self) -> Option<&Arc<Ranks>> {
        self.view.map(|view| &view.ranks)
    }

    fn partition(&self) -> Option<String> {
        self.view.map(|view| view.partition.clone())
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
        session: &mut Session<LinkLearner<'a>>,
        order: &[NodeId],
        batches: Range<u64>,
    ) -> Result<Flow> {
        if let Some(view) = self.view {
            view.ranks.count_bytes(true)?;
        }
        let timeline = session.meter().timeline();
        let of = EpochBatches {
            task: &self.of.inputs,
            source: self.source,
            sampler: self.sampler,
            tables: &self.tiers.tables,
            order,
            batch_size: self.batch_size,
            seed: self.config.seed,
            epoch: session.epoch(),
            aggregation: session.learner().model.encoder.aggregation(),
            timeline: &timeline,
            // the source makes the share of a rank
            owners: None,
            ahead: None,
        };
        let (last, cost) = (batches.end, &self.tiers.counted);
        let flow = match &mut self.rounds {
            Some(rounds) => self.strategy.run_rounds(rounds, session, of, (batches, cost))?,
            None => turns::train(&mut self.strategy, session, &of, (batches, cost), |_, _| false)?,
        };
        self.devices = self.strategy.records();
        let is_done = session.num_done() >= last;
        if let Some(view) = self.view.filter(|_| is_done) {
            self.ranks = view.end_epoch(session)?;
        }
        Ok(flow)
    }

    fn num_scored(&self, part: Part) -> usize {
        match part {
            // nothing diagnoses the edges that were learned
            Part::Train => 0,
            part => self.of.edges.parts[1 + part as usize].len(),
        }
    }

    fn score(&mut self, learner: &mut LinkLearner<'a>, part: Part) -> Result<Option<Scored>> {
        let (metric, max, view) = (self.metric.clone(), self.config.eval_nodes, self.view);
        let (number, metrics) = (1 + part as usize, std::slice::from_ref(&metric));
        let (scores, _) = if self.of.edges.times.is_some() {
            let Self { config, of, sampler, tiers, .. } = self;
            let (sampler, tables) = (*sampler, &tiers.whole);
            let ranking = TimedRanking { config, of, sampler, tables, watch: &Quiet };
            ranking.scores(&learner.model, number, metrics)?
        } else {
            let ranking = self.ranking(&learner.model, max)?;
            match view.map(|view| &view.ranks) {
                None => rayon::scope(|_| ranking.scores(number, metrics)),
                Some(ranks) => {
                    let gather = |own: &[Vec<f64>]| ranks.gather_lists(own);
                    let share = QueryShare { number: ranks.rank(), of: ranks.size(), gather: &gather };
                    ranking.scores_by_share(number, metrics, &share)?
                }
            }
        };
        let mut score = scores.get(&metric.name()).copied();
        if let (Some(view), Some(score)) = (view, &mut score) {
            // decisions are the same on all ranks, whose processors may round differently
            [*score, _] = view.ranks.agree([*score, 0.0])?;
        }
        Ok(score.map(|score| Scored { score, loss: f64::NAN, judged: score }))
    }

    fn work(&self, learner: &LinkLearner<'a>, epoch: &EpochTotals) -> Result<[Work; 2]> {
        let (decoder, max) = (&*learner.model.decoder, self.config.eval_nodes);
        let (edges, embeddings, ends) = (&self.of.edges, &self.embeddings, &self.ends[..]);
        let ranking = Ranking { processor: processor(self.config), edges, decoder, embeddings, ends, max };
        let pairs = ranking.num_pairs(VALID, &self.metric);
        let own = self.inference.work();
        let rows = self.view.map_or(Ok(own), |view| view.ranks.sum_work(own))?;
        let scoring = [rows, Work::of_pairs(decoder, pairs)];
        Ok([epoch.work(Some(decoder)), scoring.into_iter().sum()])
    }

    fn end_epoch(&mut self, learner: &mut LinkLearner<'a>) -> Result<()> {
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
        let record = self.of.inputs.complete(record, counts, self.has_devices());
        EpochRecord { ranks: self.ranks.clone(), devices: self.devices.clone(), ..record }
    }

    fn has_devices(&self) -> bool {
        self.config.num_devices() > 0
    }

    fn staleness_bound(&self) -> u64 {
        strategy::update_bound(self.config)
    }

    fn nvidia(&self) -> Vec<NvidiaRecord> {
        self.compute.records()
    }

    fn presampling(&self) -> Option<PresamplingRecord> {
        self.tiers.presampling()
    }

    fn note(&mut self) -> Option<String> {
        match &mut self.inference {
            Inference::Alone(inference) => inference.note(),
            Inference::OverRanks(_) => None,
        }
    }
}
