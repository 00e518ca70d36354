//! Costs of a few minibatches on several types, one stage after the other on all threads, for plans
//! of runs on other machines.

use std::time::Instant;

use graphmill_core::progress::Quiet;
use graphmill_data::typed::TypedDataset;
use graphmill_loader::{
    BatchKey,
    typed::{TypedRequest, TypedSampled, TypedSeeds, TypedWorkspace},
};
use graphmill_nn::typed::TypedModel;
use serde::{Deserialize, Serialize};

use super::{
    batches::{HeldRows, RunBatches, batch_size, batches},
    build, hotness,
    learner::TypedLearner,
    rounds::RoundLearner,
    step::{self, StepBytes},
    tables::{Tables, borrowed},
    task::TypedTask,
    tiers::{self, rows},
};
use crate::{Error, Result, TrainConfig, hotness::Options, tiers::sampling_bytes};

/// Numbers of warm-up batches and of timed batches.
const BATCHES: [u64; 2] = [2, 4];

/// Mean cost of a minibatch by a node type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TypeCost {
    /// Name of the type.
    pub name: String,
    /// Input nodes.
    pub nodes: f64,
    /// Bytes of a feature row; 0 for a type without features.
    pub row_bytes: f64,
    /// Bytes of a learned row; 0 for a type with features.
    #[serde(default)]
    pub learned_bytes: f64,
    /// Seconds of gathering its rows in the host's memory.
    pub gather: f64,
    /// Ratios of caches over all types, ascending, and the fraction of the type's requested rows
    /// that each serves; empty for a type whose rows are not cached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hit_rates: Vec<[f64; 2]>,
}

impl TypeCost {
    /// Type `t` of a task, before the first batch.
    fn of(task: &TypedTask, t: usize) -> Self {
        let row_bytes = rows(task, t).map_or(0.0, |of| of.bytes as f64);
        let name = task.graph.schema().types()[t].name.clone();
        Self { name, nodes: 0.0, row_bytes, learned_bytes: 0.0, gather: 0.0, hit_rates: Vec::new() }
    }

    /// Bytes of the feature rows of a minibatch.
    pub fn bytes(&self) -> f64 {
        self.nodes * self.row_bytes
    }
}

/// Costs of minibatches of a run on several types.
#[derive(Clone, Debug)]
pub struct TypedCosts {
    /// Number of training nodes.
    pub seeds: usize,
    /// Number of seeds of a batch.
    pub batch_size: usize,
    /// Seconds of sampling, gathering and training of a batch, each the minimum of several.
    pub seconds: [f64; 3],
    /// Bytes of the graph.
    pub topology: f64,
    /// Bytes of all feature rows.
    pub features: f64,
    /// Number of rows of each type with features, and bytes of a row.
    pub tables: Vec<(usize, u64)>,
    /// Bytes of the blocks of the largest batch, and of its feature rows.
    pub largest: [f64; 2],
    /// Bytes of a training step.
    pub step: f64,
    /// The same on a device that only computes gradients, which holds the learned rows of its
    /// batch; `None` without learned rows.
    pub step_of_gradients: Option<f64>,
    /// Bytes of the rows of the next batch on a device that extracts it while it trains, as a run
    /// reserves them.
    pub next_rows: f64,
    /// Bytes of a thread that samples on a device, as a run reserves them on a simulated one.
    pub sample_thread: f64,
    /// Bytes of the dense parameters.
    pub parameters: f64,
    /// Means by node type.
    pub types: Vec<TypeCost>,
    /// Ratio and hit rate of caches by the policy of `--cache`, over all types.
    pub hit_rates: Vec<[f64; 2]>,
}

/// Measures a few minibatches of a run with these options, and hit rates of caches of these
/// `ratios`.
///
/// # Errors
/// As for training; an unknown `--cache`.
pub fn measure(config: &TrainConfig, data: &TypedDataset, ratios: &[f64]) -> Result<TypedCosts> {
    let task = TypedTask::new(data, &config.task)?.with_edges(config, data)?;
    if task.split.train.is_empty() {
        return Err(Error::dataset(&data.name, "its task has no training nodes; add some to the split"));
    }
    let schema = task.graph.schema();
    let sampler = build::sampler(config, &task)?;
    let tables = tiers::measured(config, &task)?;
    let of_nodes = RunBatches::of_nodes(config, &task, &*sampler)?;
    let (step, of_gradients) = steps(&of_nodes, &tables)?;
    let mut learner = TypedLearner::new(config, &task)?;
    let mut order = Vec::new();
    build::order(config, &task)?.order(0, &mut order);
    let size = batch_size(config, &task).max(1);
    let (mut workspace, mut memory) = (TypedWorkspace::new(schema), TypedSeeds::default());
    let (mut seconds, mut largest) = ([f64::INFINITY; 3], [0.0f64; 2]);
    let mut types: Vec<TypeCost> = (0..schema.num_types()).map(|t| TypeCost::of(&task, t)).collect();
    let batches = batches(&*sampler, &order, size);
    // the last batch may be short
    let whole = if sampler.subgraphs().is_some() { batches.len() } else { (order.len() / size).max(1) };
    for number in 0..BATCHES.iter().sum() {
        let seeds = batches[number as usize % whole];
        let key = BatchKey { seed: config.seed, epoch: 0, batch: number };
        let request =
            TypedRequest { aggregation: learner.model.aggregation(), ..task.request(key).transposed() };
        let of_batch = std::mem::take(&mut memory).refill(number, &task.seeds(seeds));
        let clock = Instant::now();
        let batch = sampler.sample(&request, &mut workspace, of_batch)?;
        let sample = clock.elapsed().as_secs_f64();
        largest[0] = largest[0].max(block_bytes(&batch));
        let clock = Instant::now();
        let mut batch = task.extract(batch, &borrowed(&tables), 0)?;
        let gather = clock.elapsed().as_secs_f64();
        let mut bytes = 0.0;
        for (t, of) in types.iter_mut().enumerate() {
            let nodes = batch.sampled.input_nodes[t].len() as f64;
            bytes += nodes * of.row_bytes;
            if number >= BATCHES[0] {
                of.nodes += nodes / BATCHES[1] as f64;
                of.gather += batch.traffic[t].host.seconds() / BATCHES[1] as f64;
            }
        }
        largest[1] = largest[1].max(bytes);
        let clock = Instant::now();
        learner.train(&mut batch, config.lr, Some(seeds.len()))?;
        let train = clock.elapsed().as_secs_f64();
        if number >= BATCHES[0] {
            let of = [sample, gather, train];
            seconds.iter_mut().zip(of).for_each(|(least, seconds)| *least = least.min(seconds));
        }
        memory = batch.recycle();
    }
    for (t, rows) in learner.model.learned_rows() {
        types[t].learned_bytes = 4.0 * rows.table().num_cols() as f64;
    }
    let of_types = || (0..schema.num_types()).filter_map(|t| rows(&task, t));
    Ok(TypedCosts {
        seeds: sampler.subgraphs().map_or(order.len(), |count| count as usize * size),
        batch_size: size,
        seconds,
        topology: step::topology_bytes(&task.graph, &*sampler),
        features: of_types().map(|of| of.count as f64 * of.bytes as f64).sum(),
        tables: of_types().map(|of| (of.count, of.bytes)).collect(),
        largest,
        step: step.all as f64,
        step_of_gradients: of_gradients,
        next_rows: step.rows as f64,
        sample_thread: sampling_bytes(schema.num_nodes(), step.blocks) as f64,
        parameters: 4.0 * dense_parameters(&learner.model) as f64,
        hit_rates: hit_rates(config, data, ratios, &mut types)?,
        types,
    })
}

/// Memory of a training step, and of one that only computes gradients if there are learned rows.
fn steps(of: &RunBatches, tables: &Tables) -> Result<(StepBytes, Option<f64>)> {
    let step = |held: HeldRows| step::bytes(of, held, &borrowed(tables));
    if of.task.features.iter().all(Option::is_some) {
        return Ok((step(HeldRows::All)?, None));
    }
    Ok((step(HeldRows::All)?, Some(step(HeldRows::OfBatch)?.all as f64)))
}

/// Bytes of the blocks of a batch: row starts and neighbours of each relation, and node ids.
pub(super) fn block_bytes(batch: &TypedSampled) -> f64 {
    let slices = batch.blocks.iter().flat_map(|block| &block.relations);
    let blocks: usize = slices.map(|slice| 8 * (slice.num_dst + 1) + 4 * slice.num_edges()).sum();
    (blocks + 4 * batch.input_nodes.iter().map(Vec::len).sum::<usize>()) as f64
}

/// Number of trained parameters, without learned rows.
pub(super) fn dense_parameters(model: &TypedModel) -> usize {
    let mut count = 0;
    model.visit(&mut |_, param| {
        count += if param.trainable { param.value.num_rows() * param.value.num_cols() } else { 0 };
    });
    count
}

/// Hit rates of caches by the policy of `--cache`, over all types and of each of `types`.
fn hit_rates(
    config: &TrainConfig,
    data: &TypedDataset,
    ratios: &[f64],
    types: &mut [TypeCost],
) -> Result<Vec<[f64; 2]>> {
    let options = Options {
        train: config.clone(),
        policies: vec![tiers::resolve(&config.cache).into()],
        samplers: vec![config.sampler.clone()],
        ratios: ratios.into(),
        epochs: 1,
    };
    let report = hotness::run(&options, data, &Quiet)?;
    for row in &report.results {
        for rate in &row.types {
            let of = types.iter_mut().filter(|of| of.name == rate.name);
            of.for_each(|of| of.hit_rates.push([row.all.ratio, rate.hit_rate]));
        }
    }
    Ok(report.results.iter().map(|row| [row.all.ratio, row.all.hit_rate]).collect())
}
