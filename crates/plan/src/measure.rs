//! Profiling of a few minibatches on this machine, one stage after the other on all threads.
//!
//! Each timing is the minimum of several runs, because other load on the machine only ever
//! increases it.

use std::{sync::Arc, time::Instant};

use graphmill_core::{Block, NodeId, memory, progress::Quiet};
use graphmill_data::Dataset;
use graphmill_distributed::NodeOwnership;
use graphmill_engine::{
    Error, Result, TrainConfig,
    bench::machine::Machine,
    build,
    hotness::{self, loader},
    learner::Learner,
    memory::{residence, topology},
    stage::Loader,
};
use graphmill_loader::{Feature, MiniBatch, MinibatchSampler, Workspace, feature::Host, order::Order};
use graphmill_nn::{backend::Cpu, cost::BlockShape};

use crate::profile::{HitRate, Profile, Seconds, Sizes};

/// Numbers of warm-up batches and of timed batches.
const BATCHES: [u64; 2] = [2, 4];
/// Numbers of warm-up rounds and of timed rounds of a rank's share.
const ROUNDS: [usize; 2] = [1, 5];
/// Batches of a round: those of an epoch, including a short last one, if they are as few.
const ROUND: u64 = 16;
/// Margin by which later batches may be larger.
const MARGIN: f64 = 1.1;
/// Bytes per node of a cache's maps.
const MAPS: f64 = 8.0;
/// Cache sizes whose hit rates are measured.
const RATIOS: [f64; 11] = [0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0];
/// Default cache policy.
const POLICY: &str = "posterior:2";

/// Profiles a run with these options. Takes some minibatches, and sampling of about three epochs
/// for the hit rates.
///
/// # Errors
/// As for training; an unknown `--cache`.
pub fn measure(config: &TrainConfig, data: &Dataset) -> Result<Profile> {
    let (sampler, order) = (build::sampler(config, data)?, build::order(config, data)?);
    let (feature, table) = build::features(config, data, residence(config, data).features)?;
    let backend = Cpu { precision: build::precision(config) };
    let before = memory::anonymous();
    let grown = || memory::anonymous().zip(before).map_or(0.0, |(now, then)| now.saturating_sub(then) as f64);
    let mut stages =
        Stages::new(config, data, &*sampler, &*order, &feature, table.is_sparse(), &backend, None)?;
    let parameters = 4.0 * stages.learner.model.num_params() as f64;
    let mut least = [f64::INFINITY; 3];
    let (mut held, mut sampling) = (Largest::default(), 0.0f64);
    for i in 0..BATCHES.iter().sum() {
        // The last batch may be short.
        let whole = stages.loader.num_batches().saturating_sub(1).max(1);
        let mut sampled = || sampling = if i == 0 { grown() } else { sampling };
        let seconds = stages.batch(i % whole, config.lr, &mut sampled)?;
        if i >= BATCHES[0] {
            least.iter_mut().zip(seconds).for_each(|(least, seconds)| *least = least.min(seconds));
        }
        held.see(&stages.batch, feature.row_bytes());
    }
    let (count, batch_size) = (stages.loader.num_batches(), stages.loader.batch_size);
    let known = held.blocks + held.rows;
    let trained = grown().max(known + 4.0 * parameters);
    let [sample, gather, train] = least;
    Ok(Profile {
        name: format!("{}, {} {} {}", data.name, config.model, config.sampler, config.fanout),
        batches: count,
        last_batch: last(data.split.train.len(), batch_size, count),
        cores: rayon::current_num_threads() as f64,
        bandwidth: Some(1e9 * Machine::new(3).copy()?),
        seconds: Seconds { sample, sample_host: None, gather, near: gather, train },
        bytes: Sizes {
            topology: topology(data),
            features: feature.row_bytes() as f64 * data.num_nodes() as f64,
            maps: MAPS * data.num_nodes() as f64,
            batch_rows: held.rows,
            batch: held.blocks,
            sample: MARGIN * sampling.max(held.blocks),
            train: MARGIN * trained,
            parameters,
        },
        hit_rates: hit_rates(config, data)?,
    })
}

/// Seconds of the stages of every minibatch of an epoch (of a long epoch, of its first ones, as if
/// the last were among them), each the minimum over a few rounds: of a rank's share if `own` lists
/// its nodes, with all rows local.
///
/// # Errors
/// As for training.
pub(crate) fn seconds_of_batches(
    config: &TrainConfig,
    data: &Dataset,
    own: Option<Arc<NodeOwnership>>,
) -> Result<Vec<[f64; 3]>> {
    let (sampler, order) = (build::sampler(config, data)?, build::order(config, data)?);
    let (feature, table) = build::features(config, data, residence(config, data).features)?;
    let backend = Cpu { precision: build::precision(config) };
    let sparse = table.is_sparse();
    let mut stages = Stages::new(config, data, &*sampler, &*order, &feature, sparse, &backend, own)?;
    let count = stages.loader.num_batches();
    let batches = count.min(ROUND);
    // In an epoch longer than a round, all but the last batch are full.
    let whole = if count > ROUND {
        1.0 - (1.0 - last(data.split.train.len(), stages.loader.batch_size, count)) / count as f64
    } else {
        1.0
    };
    let sum = |batch: &[f64; 3]| batch.iter().sum::<f64>();
    let mut least = vec![[f64::INFINITY; 3]; batches as usize];
    for number in 0..ROUNDS.iter().sum() {
        for (i, least) in (0..).zip(&mut least) {
            let seconds = stages.batch(i, config.lr, &mut || {})?;
            if number >= ROUNDS[0] && sum(&seconds) < sum(least) {
                *least = seconds;
            }
        }
    }
    Ok(least.into_iter().map(|batch| batch.map(|seconds| whole * seconds)).collect())
}

/// Stages of a run, executed sequentially.
struct Stages<'a> {
    loader: Loader<'a>,
    learner: Learner<'a>,
    seeds: Vec<NodeId>,
    batch: MiniBatch,
    workspace: Workspace,
}

impl<'a> Stages<'a> {
    #[allow(clippy::too_many_arguments, reason = "the stages of a run")]
    fn new(
        config: &TrainConfig,
        data: &'a Dataset,
        sampler: &'a dyn MinibatchSampler,
        order: &'a dyn Order,
        feature: &'a Host,
        sparse: bool,
        backend: &'a Cpu,
        own: Option<Arc<NodeOwnership>>,
    ) -> Result<Self> {
        let model = build::model(config, data)?;
        let mut loader = Loader { own, ..loader(config, data, sampler, order, feature)? };
        loader.symmetric = build::symmetric(&model, data);
        loader.aggregation = model.aggregation();
        let (mut seeds, mut batch) = (Vec::new(), MiniBatch::default());
        let mut workspace = Workspace::new(data.num_nodes());
        workspace.set_parallel(true);
        loader.order(0, &mut seeds);
        loader.pick(&seeds, 0, &mut batch);
        loader.sample(0, &mut workspace, &mut batch)?;
        let shapes: Vec<BlockShape> = batch.blocks.iter().map(BlockShape::from).collect();
        let mut orders = model.orders(&shapes);
        if sparse && !model.start_with_product(&mut orders) {
            return Err(Error::usage(format!(
                "--sparse {}: this model's bottom layer aggregates before it multiplies, so it cannot read \
                 sparse rows; use --sparse off",
                config.sparse
            )));
        }
        loader.transposed = (0..orders.len())
            .filter(|&l| model.needs_transposed(&orders, l))
            .fold(0, |bits, l| bits | 1 << l);
        let learner = Learner::new(backend, model, build::optimizer(config)?, &data.labels, orders, config);
        Ok(Self { loader, learner, seeds, batch, workspace })
    }

    /// Seconds to sample batch `i` of the first epoch, to gather its rows and to train on it;
    /// `sampled` is called after the first stage.
    fn batch(&mut self, i: u64, lr: f64, sampled: &mut dyn FnMut()) -> Result<[f64; 3]> {
        let Self { loader, learner, seeds, batch, workspace } = self;
        loader.pick(seeds, i, batch);
        let clock = Instant::now();
        loader.sample(i, workspace, batch)?;
        let sample = clock.elapsed();
        sampled();
        let clock = Instant::now();
        loader.extract(batch)?;
        let gather = clock.elapsed();
        let clock = Instant::now();
        learner.train(batch, lr)?;
        Ok([sample, gather, clock.elapsed()].map(|time| time.as_secs_f64()))
    }
}

/// Sizes of the largest batch.
#[derive(Default)]
struct Largest {
    blocks: f64,
    rows: f64,
}

impl Largest {
    fn see(&mut self, batch: &MiniBatch, row_bytes: u64) {
        // Offsets and neighbours of each block, and its node ids.
        let block = |block: &Block| 8 * (block.num_dst + 1) + 4 * block.num_edges();
        let blocks = batch.blocks.iter().map(block).sum::<usize>() + 4 * batch.input_nodes.len();
        self.blocks = self.blocks.max(blocks as f64);
        self.rows = self.rows.max(batch.input_nodes.len() as f64 * row_bytes as f64);
    }
}

/// Size of the last of `count` batches relative to the others.
fn last(train: usize, batch: usize, count: u64) -> f64 {
    let before = (count.saturating_sub(1) as usize).saturating_mul(batch);
    match train.checked_sub(before) {
        Some(rest) if rest > 0 && rest < batch && count > 1 => rest as f64 / batch as f64,
        _ => 1.0,
    }
}

/// Hit rates of caches by the policy of `--cache`.
fn hit_rates(config: &TrainConfig, data: &Dataset) -> Result<Vec<HitRate>> {
    let policy = if config.cache == "auto" { POLICY } else { &config.cache };
    let options = hotness::Options {
        train: config.clone(),
        policies: vec![policy.into()],
        samplers: vec![config.sampler.clone()],
        ratios: RATIOS.into(),
        epochs: 1,
    };
    let report = hotness::run(&options, data, &Quiet)?;
    Ok(report.results.iter().map(|row| HitRate { ratio: row.ratio, rate: row.hit_rate }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_batch_has_the_remaining_nodes() {
        assert_eq!(last(25, 10, 3), 0.5);
        assert_eq!(last(30, 10, 3), 1.0);
        assert_eq!(last(100, 10, 3), 1.0); // not all of them
        assert_eq!(last(5, 10, 1), 1.0);
    }
}
