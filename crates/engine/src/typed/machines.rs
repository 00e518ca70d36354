//! Costs of minibatches on several types that machines with a part each share, for plans.

use std::{sync::Arc, time::Instant};

use graphmill_core::{NodeId, matrix::TableType, progress::Quiet};
use graphmill_data::{partition::TypedPartitionDir, typed::TypedDataset};
use graphmill_distributed::NodeOwnership;
use graphmill_loader::{
    BatchKey, Feature,
    typed::{TypedRequest, TypedSampler, TypedSeeds, TypedWorkspace},
};

use super::{
    batches::{RunBatches, batch_size, batches},
    build,
    cost::dense_parameters,
    learner::TypedLearner,
    partition::{Counted, requests},
    rounds::RoundLearner,
    step,
    tables::borrowed,
    task::TypedTask,
    tiers::{
        measured,
        of_rank::{TypedRankCache, rank_cache},
        rows,
    },
};
use crate::{
    Error, Result, TrainConfig,
    partition::{CrossRequests, RankCache},
};

/// Number of minibatches that are timed.
const TIMED: usize = 6;
/// Numbers of rounds over them: warm-up rounds, and rounds of which the quickest counts.
const ROUNDS: [usize; 2] = [1, 3];
/// Number of shares that are timed; the slowest counts.
const SHARES: usize = 4;

/// Costs of a run on several types over machines with a part each.
#[derive(Clone, Debug)]
pub struct MachineCosts {
    /// Requests between the parts in the drawn minibatches.
    pub requests: CrossRequests,
    /// 4-byte words of the rows that cross parts in the drawn minibatches, with their ids, except
    /// the ids of feature rows: feature rows, also those of edges, and learned rows with their
    /// gradients.
    pub words: f64,
    /// Number of node types and edge types whose rows cross parts.
    pub types: usize,
    /// Seconds of sampling, gathering and training of a batch on one machine.
    pub alone: [f64; 3],
    /// The same of the slowest share.
    pub share: [f64; 3],
    /// Number of dense parameters.
    pub parameters: usize,
    /// Bytes of a machine's memory: its part, the data about all nodes, and its cache.
    pub memory_bytes: f64,
    /// Cache of a machine for rows of the others: means over the timed shares, and the largest
    /// number of bytes.
    pub cache: RankCache,
}

/// Measures some shares of a run with these options on this machine, and counts the requests
/// between the parts of `dir` in at most `counted` batches.
///
/// # Errors
/// As for training; `dir` belongs to another dataset.
pub fn measure(
    config: &TrainConfig,
    data: &TypedDataset,
    dir: &TypedPartitionDir,
    counted: u64,
) -> Result<MachineCosts> {
    let counts = (dir.schema().num_nodes(), dir.num_edges());
    if counts != (data.num_nodes(), data.num_edges()) {
        return Err(Error::usage(format!(
            "--partition {}: the partition belongs to another dataset, of {} nodes and {} edges",
            dir.path().display(),
            counts.0,
            counts.1
        )));
    }
    let task = TypedTask::new(data, &config.task)?.with_edges(config, data)?;
    if task.split.train.is_empty() {
        return Err(Error::dataset(&data.name, "its task has no training nodes; add some to the split"));
    }
    let Counted { mut requests, rows: by_type, edges } = requests(config, counted, &task, &dir.book, &Quiet)?;
    let parts = usize::from(dir.parts());
    let mut learner = TypedLearner::new(config, &task)?;
    let sampler = build::sampler(config, &task)?;
    let alone = mean(&seconds(config, &task, &*sampler, &mut learner, None)?);
    let mut slowest: Vec<[f64; 3]> = Vec::new();
    let (measured, mut cache) = (parts.min(SHARES), TypedRankCache::default());
    for rank in 0..measured {
        let of_type = |t: usize| Ok(Arc::new(NodeOwnership::new(dir.book_of(t)?, rank, parts)?));
        let owners = (0..by_type.len()).map(of_type).collect::<Result<Vec<_>>>()?;
        let of = RunBatches::of_nodes(config, &task, &*sampler)?.of_rank(&owners[task.node_type]);
        cache.add(&rank_cache(&of, &owners)?, measured);
        let batches = seconds(config, &task, &*sampler, &mut learner, Some(&owners[task.node_type]))?;
        slowest.resize(batches.len(), [0.0; 3]);
        let pairs = slowest.iter_mut().zip(batches);
        pairs.filter(|(most, batch)| sum(batch) > sum(most)).for_each(|(most, batch)| *most = batch);
    }
    let (mut words, mut types) = (0.0, 0);
    // rows that a machine caches are not requested
    let mut requested = 0.0;
    for (t, ([_, remote], features)) in by_type.iter().zip(&task.features).enumerate() {
        types += usize::from(*remote > 0);
        let missed = (1.0 - cache.served(t)) * *remote as f64;
        requested += if features.is_some() { missed } else { 0.0 };
        words += missed
            * match features {
                Some(features) => words_of_row(features.dim, task.kind(t)),
                // a row is requested, sent, and its gradient returned with its id
                None => 2.0 * (1 + config.hidden) as f64,
            };
    }
    for (table, remote) in task.edges.iter().zip(edges) {
        let dim = table.as_ref().map_or(0, |table| table.dim());
        let half = table.as_ref().and_then(|table| table.capabilities().half);
        types += usize::from(remote > 0 && dim > 0);
        // an edge is numbered in a reply, its row requested by that number, and sent
        words += remote as f64 * if dim > 0 { 2.0 + words_of_row(dim, half) } else { 1.0 };
    }
    requests.remote_rows = requested.round() as u64;
    Ok(MachineCosts {
        requests,
        words,
        types,
        alone,
        share: mean(&slowest),
        parameters: dense_parameters(&learner.model),
        memory_bytes: memory(config, &task, &*sampler, parts) + cache.all.bytes,
        cache: cache.all,
    })
}

/// Words of 32 bits of a row of `dim` values in a message; f32 without a type.
fn words_of_row(dim: usize, kind: Option<TableType>) -> f64 {
    (dim * kind.unwrap_or(TableType::F32).width()) as f64 / 4.0
}

/// Bytes of the memory of one of `parts` machines.
fn memory(config: &TrainConfig, task: &TypedTask, sampler: &dyn TypedSampler, parts: usize) -> f64 {
    let schema = task.graph.schema();
    let starts: f64 = schema.relations().iter().map(|of| 8.0 * schema.types()[of.dst].count as f64).sum();
    // own rows and the optimiser's state; owners of all nodes take 2 bytes and 3 bits
    let own = |t: usize| match rows(task, t) {
        Some(of) => of.count as f64 * of.bytes as f64,
        None => 12.0 * (schema.types()[t].count * config.hidden) as f64,
    };
    let own: f64 = (0..schema.num_types()).map(own).sum();
    let of_edges = |table: &Arc<dyn Feature>| table.num_rows() as f64 * table.row_bytes() as f64;
    let of_edges: f64 = task.edges.iter().flatten().map(of_edges).sum();
    let edges = step::topology_bytes(&task.graph, sampler) - starts + of_edges;
    let whole = starts + 2.4 * schema.num_nodes() as f64 + 4.0 * task.num_nodes() as f64;
    whole + (own + edges) / parts as f64
}

fn sum(batch: &[f64; 3]) -> f64 {
    batch.iter().sum()
}

fn mean(batches: &[[f64; 3]]) -> [f64; 3] {
    std::array::from_fn(|stage| {
        batches.iter().map(|batch| batch[stage]).sum::<f64>() / batches.len().max(1) as f64
    })
}

/// Seconds of the stages of the first minibatches of an epoch, each the minimum over the rounds: of
/// a rank's share, if `owners` are those of the seeds, with all rows local.
fn seconds(
    config: &TrainConfig,
    task: &TypedTask,
    sampler: &dyn TypedSampler,
    learner: &mut TypedLearner,
    owners: Option<&NodeOwnership>,
) -> Result<Vec<[f64; 3]>> {
    let tables = measured(config, task)?;
    let mut order = Vec::new();
    let size = batch_size(config, task);
    build::order(config, task)?.first(0, TIMED.saturating_mul(size), &mut order);
    let batches = batches(sampler, &order, size);
    let batches = &batches[..batches.len().min(TIMED)];
    let (mut workspace, mut memory) = (TypedWorkspace::new(task.graph.schema()), TypedSeeds::default());
    let mut least = vec![[f64::INFINITY; 3]; batches.len()];
    for round in 0..ROUNDS.iter().sum() {
        for (number, (seeds, least)) in batches.iter().zip(&mut least).enumerate() {
            let own = |v: &NodeId| owners.is_none_or(|owners| owners.is_own(*v));
            let own: Vec<NodeId> = seeds.iter().copied().filter(own).collect();
            let key = BatchKey { seed: config.seed, epoch: 0, batch: number as u64 };
            let request =
                TypedRequest { aggregation: learner.model.aggregation(), ..task.request(key).transposed() };
            let seeds_of_batch = std::mem::take(&mut memory).refill(key.batch, &task.seeds(&own));
            let clock = Instant::now();
            let batch = sampler.sample(&request, &mut workspace, seeds_of_batch)?;
            let sample = clock.elapsed().as_secs_f64();
            let clock = Instant::now();
            let mut batch = task.extract(batch, &borrowed(&tables), 0)?;
            let gather = clock.elapsed().as_secs_f64();
            let clock = Instant::now();
            learner.train(&mut batch, config.lr, Some(seeds.len()))?;
            let batch_seconds = [sample, gather, clock.elapsed().as_secs_f64()];
            if round >= ROUNDS[0] && sum(&batch_seconds) < sum(least) {
                *least = batch_seconds;
            }
            memory = batch.recycle();
        }
    }
    Ok(least)
}
