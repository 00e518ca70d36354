//! A training run of a table of embeddings, by the loop of [`crate::batchwise`].

use std::{ops::Range, time::Instant};

use graphmill_core::{End, NodeId};
use graphmill_data::typed::TypedDataset;
use graphmill_loader::{
    BatchKey,
    order::{SeedOrder, random::Random},
};
use graphmill_nn::{backend::Cpu, link::table::QueryBatch};

use super::{batch::Batches, learner::TableLearner, model::TableModel};
use crate::{
    Error, Result, RunContext, TrainConfig,
    batchwise::{self, BatchRun, Completed, Part, Scored, Session},
    bottom,
    build::processor,
    config::{Work, embedding::EmbeddingOptions, link::LinkOptions},
    link::LinkMetric,
    record::{DatasetRecord, EpochTotals, LinkRelation, Stages, Summary, Traffic},
    relational::{Buckets, LinkEdges, Ranking, VALID, Visits, ends, metric},
    strategy::{Flow, attempt},
    timeline::Stage,
};

/// Trains a table of embeddings on the link tasks of a dataset and evaluates it. Runs on the
/// current rayon pool.
///
/// Writes the same records as [`crate::train`] into [`RunContext::run`]; seeds are edges. The
/// observer gets all events but [`Observer::model`](crate::observer::Observer::model).
///
/// # Errors
/// As for [`crate::train`]; the dataset has no link task, or the decoder does not fit it.
pub fn train(config: &TrainConfig, data: &TypedDataset, context: RunContext) -> Result<Summary> {
    let began = Instant::now();
    let why = format!("--model {} does not use it: its parameters are a row for each node", config.model);
    bottom::refuse(config, &why)?;
    if let Some(option) = config.own.get::<LinkOptions>().option_of_times() {
        return Err(Error::usage(format!("--{option}: {why}; leave it out")));
    }
    let mut edges = LinkEdges::new(data, config)?;
    let metric = metric(config, &edges)?;
    if metric.is_pooled() {
        edges.draw_pairs(data, config)?;
    }
    let batches = Batches::new(config, &edges)?;
    let mut learner = TableLearner::new(config, &edges, &context.directory())?;
    learner.hard = batches.hard(config);
    let numbers: Vec<NodeId> = (0..batches.num_seeds() as NodeId).collect();
    let buckets = Buckets::new(edges.num_rows(), config.own.get::<EmbeddingOptions>().buckets);
    let place = match (learner.is_in_file(), buckets.len()) {
        (false, 1) => "the host holds all".into(),
        (false, count) => format!("the host holds all; edges by pairs of {count} buckets"),
        (true, count) => format!("in files, by pairs of {count} buckets"),
    };
    context.observer.note(&format!("rows of the table: {place}; batches one after the other"));
    context.observer.note(&format!(
        "{} rows and {} relations learn {} edges; {} validate, {} test",
        edges.num_rows(),
        edges.relations.len(),
        edges.parts[0].len(),
        edges.parts[1].len(),
        edges.parts[2].len()
    ));
    batches.notes.iter().for_each(|note| context.observer.note(note));
    let run = TableRun {
        config,
        data,
        edges: &edges,
        batches,
        order: Random::new(&numbers, config.seed),
        batch_size: if config.batch_size == 0 { numbers.len() } else { config.batch_size },
        ends: ends(config, &edges),
        metric,
        queries: QueryBatch::default(),
        buckets,
    };
    batchwise::train(config, run, learner, context, began).map(|(summary, _)| summary)
}

/// A run of a table of embeddings.
struct TableRun<'a> {
    config: &'a TrainConfig,
    data: &'a TypedDataset,
    edges: &'a LinkEdges,
    batches: Batches<'a>,
    order: Random<'a>,
    batch_size: usize,
    /// Ends that are queries of single edges.
    ends: Vec<End>,
    metric: LinkMetric,
    /// Queries of a batch; their memory is reused.
    queries: QueryBatch,
    buckets: Buckets,
}

impl TableRun<'_> {
    /// Announces to the learner which rows a batch of these edges uses, and which follow.
    fn hold(&self, learner: &mut TableLearner, visits: &Visits, edges: &[NodeId]) {
        let (Some(&first), Some(&last)) = (edges.first(), edges.last()) else { return };
        if self.buckets.len() == 1 {
            return;
        }
        let triple = |i: NodeId| self.edges.parts[0][i as usize];
        let [now, next] = visits.used(triple(first), triple(last));
        learner.hold(&now, &next);
    }

    /// The ranking of all rows by the model, of at most `max` edges of a part; 0 for all.
    fn ranking<'r>(&'r self, model: &'r mut TableModel, max: usize) -> Ranking<'r> {
        model.embeddings(&Cpu::default());
        let (decoder, embeddings) = (&*model.decoder, model.last_embeddings());
        let (processor, edges, ends) = (processor(self.config), self.edges, &self.ends[..]);
        Ranking { processor, edges, decoder, embeddings, ends, max }
    }
}

impl BatchRun for TableRun<'_> {
    type Learner = TableLearner;

    fn data(&self) -> &TypedDataset {
        self.data
    }

    fn dataset(&self) -> DatasetRecord {
        self.edges.record(self.data)
    }

    fn task(&self) -> &str {
        &self.edges.task
    }

    fn relations(&self) -> Vec<LinkRelation> {
        self.edges.recorded()
    }

    fn num_seeds(&self) -> usize {
        self.batches.num_seeds()
    }

    fn num_batches(&self) -> u64 {
        let all = self.num_seeds().div_ceil(self.batch_size);
        if self.config.max_batches == 0 { all as u64 } else { all.min(self.config.max_batches) as u64 }
    }

    fn metric(&self) -> String {
        self.metric.name()
    }

    fn order(&self, epoch: u64, order: &mut Vec<NodeId>) {
        let of_batches = (self.num_batches() as usize).saturating_mul(self.batch_size);
        // pairs of buckets order all edges before the first batches are taken
        let by_buckets = self.buckets.len() > 1;
        self.order.first(epoch, if by_buckets { usize::MAX } else { of_batches }, order);
        if by_buckets {
            self.buckets.visits(self.config.seed, epoch).sort(&self.edges.parts[0], order);
        }
    }

    fn train(
        &mut self,
        session: &mut Session<TableLearner>,
        order: &[NodeId],
        batches: Range<u64>,
    ) -> Result<Flow> {
        let (timeline, epoch) = (session.meter().timeline(), session.epoch());
        let track = timeline.track("main");
        let visits = self.buckets.visits(self.config.seed, epoch);
        for number in batches {
            let mut spent = Stages::default();
            let from = number as usize * self.batch_size;
            let edges = &order[from..order.len().min(from + self.batch_size)];
            self.hold(session.learner(), &visits, edges);

            let clock = Instant::now();
            let of = BatchKey { seed: self.config.seed, epoch, batch: number };
            let (source, queries) = (&self.batches, &mut self.queries);
            attempt(Stage::Sample, number, || rayon::scope(|_| source.fill(of, edges, queries)))?;
            spent.sample = timeline.done(track, Stage::Sample, number, clock);

            let clock = Instant::now();
            let (lr, learner, queries) = (session.lr(number), session.learner(), &self.queries);
            let outcome = attempt(Stage::Train, number, || Ok(learner.train(queries, lr, edges.len())))?;
            spent.train = timeline.done(track, Stage::Train, number, clock);

            let done = Completed { number, outcome, traffic: Traffic::default(), spent };
            let pairs = self.batches.num_pairs(&self.queries);
            if session.complete(done, |sums, _| sums.pairs += pairs)? == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        Ok(Flow::Continue)
    }

    fn num_scored(&self, part: Part) -> usize {
        self.edges.parts[1 + part as usize].len()
    }

    fn score(&mut self, learner: &mut TableLearner, part: Part) -> Result<Option<Scored>> {
        let score = rayon::scope(|_| {
            let ranking = self.ranking(&mut learner.model, self.config.eval_nodes);
            let (scores, _) = ranking.scores(1 + part as usize, std::slice::from_ref(&self.metric));
            scores.get(&self.metric.name()).copied()
        });
        learner.release();
        Ok(score.map(|score| Scored { score, loss: f64::NAN, judged: score }))
    }

    fn work(&self, learner: &TableLearner, epoch: &EpochTotals) -> Result<[Work; 2]> {
        let model = &learner.model;
        let (decoder, embeddings) = (&*model.decoder, model.last_embeddings());
        let (edges, ends, max) = (self.edges, &self.ends[..], self.config.eval_nodes);
        let ranking = Ranking { processor: processor(self.config), edges, decoder, embeddings, ends, max };
        let pairs = ranking.num_pairs(VALID, &self.metric);
        let (mut training, mut scoring) = (epoch.work(Some(decoder)), Work::of_pairs(decoder, pairs));
        if let Some(propagation) = &model.propagation {
            let (layers, edges) = (propagation.num_layers() as u64, propagation.num_edges() as u64);
            // a batch reads the last hop of its own rows alone
            training.edges += self.num_batches() * layers.saturating_sub(1) * edges;
            scoring.edges += layers * edges;
        }
        Ok([training, scoring])
    }

    fn end_epoch(&mut self, learner: &mut TableLearner) -> Result<()> {
        let Some(lists) = learner.hard.clone() else { return Ok(()) };
        let k = self.config.own.get::<LinkOptions>().hard_candidates;
        let queries = self.batches.queries();
        rayon::scope(|_| self.ranking(&mut learner.model, 0).harden(&lists, &queries, k));
        Ok(())
    }
}
