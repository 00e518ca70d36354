//! Profiling of a few minibatches on this machine, one stage after the other on all threads.
//!
//! Each time of a batch is the median of several rounds: other load on the machine lengthens some
//! of them, as it does in the run. A stage's time is the mean over the batches, which differ in
//! size.

use std::{sync::Arc, time::Instant};

use graphmill_core::{Block, NodeId, progress::Quiet};
use graphmill_data::Dataset;
use graphmill_distributed::NodeOwnership;
use graphmill_engine::{
    Error, Result, TrainConfig,
    bench::machine::Machine,
    build,
    hotness::{self, loader},
    learner::Learner,
    memory::{placements, topology},
    reuse::ReusePlan,
    stage::{Drawn, Loader},
    strategy::{
        self,
        reuse::{AUTO, LAYERED, NONE},
    },
    tiers::{sampling_bytes, step_of_run},
};
use graphmill_loader::{
    Feature, MinibatchSampler, Sampled, Seeds, Workspace, feature::Host, order::SeedOrder,
};
use graphmill_nn::{Matrix, backend::Cpu, cost::BlockShape};

use crate::{
    profile::{HitRate, Profile, Seconds, Sizes},
    reuse::{self, ReusedRows},
};

/// Numbers of warm-up batches and of timed batches.
const BATCHES: [u64; 2] = [2, 8];
/// Least and largest number of timed rounds of these batches, and the seconds after which no other
/// begins.
const PROFILED: ([usize; 2], f64) = ([3, 7], 2.0);
/// Numbers of warm-up rounds and of timed rounds of a rank's share.
const ROUNDS: [usize; 2] = [1, 5];
/// Batches of a round: those of an epoch, including a short last one, if they are as few.
const ROUND: u64 = 16;
/// Margin by which later batches may be larger.
const MARGIN: f64 = 1.1;
/// Cache sizes whose hit rates are measured.
pub(crate) const RATIOS: [f64; 11] = [0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0];
/// Default cache policy.
const POLICY: &str = "posterior:2";

/// Profiles a run with these options. Takes some minibatches, and sampling of about three epochs
/// for the hit rates. With `--reuse auto`, profiles it without reused rows and with `--reuse
/// layered`, if that can run, so that a plan compares both.
///
/// # Errors
/// As for training; an unknown `--cache`.
pub fn measure(config: &TrainConfig, data: &Dataset) -> Result<Profile> {
    if config.reuse != AUTO {
        return measure_one(config, data);
    }
    let with = |reuse: &str| TrainConfig { reuse: reuse.into(), ..config.clone() };
    let mut profile = measure_one(&with(NONE), data)?;
    match measure_one(&with(LAYERED), data) {
        Ok(layered) => profile.layered = Some(Box::new(layered)),
        // the sampler, the model or an option does not allow it
        Err(error) if error.is_usage() => profile.without_reuse = Some(error.to_string()),
        Err(error) => return Err(error),
    }
    Ok(profile)
}

/// Profiles a run with the reuse of its options.
fn measure_one(config: &TrainConfig, data: &Dataset) -> Result<Profile> {
    let parts = Parts::new(config, data)?;
    let (sampler, order) = (&*parts.sampler, &*parts.order);
    let plan = reuse::plan_of(config, data, sampler, order)?;
    let step = step_of_run(config, data, (sampler, order), plan.as_ref(), None)?;
    let mut stages = Stages::new(config, data, &parts, None)?;
    let reused = plan.as_ref().map(|plan| stages.reuse_rows(plan)).transpose()?;
    let mut held = Largest::default();
    // The last batch may be short.
    let whole = stages.loader.num_batches().saturating_sub(1).max(1);
    let whole = reused.map_or(whole, |(_, batches)| whole.min(batches));
    let mut see = |batch: &Sampled| held.see(batch, parts.feature.row_bytes());
    for i in 0..BATCHES[0] {
        stages.batch(i % whole, config.lr, &mut see)?;
    }
    let [sample, gather, train] = seconds_of_rounds(&mut stages, BATCHES[1].min(whole), config.lr, &mut see)?;
    let sampling = sampling_bytes(data.num_nodes(), (MARGIN * held.bytes) as u64) as f64;
    let (count, batch_size) = (stages.loader.num_batches(), stages.loader.batch_size);
    Ok(Profile {
        name: format!("{}, {} {} {}", data.name, config.model, config.sampler, config.fanout),
        batches: count,
        last_batch: last(data.split.train.len(), batch_size, count),
        cores: rayon::current_num_threads() as f64,
        bandwidth: Some(1e9 * Machine::new(3).copy()?),
        seconds: Seconds { sample, sample_host: None, gather, near: gather, train },
        bytes: Sizes {
            topology: topology(data),
            features: parts.feature.row_bytes() as f64 * data.num_nodes() as f64,
            maps: 0.0,
            row_maps: 0.0,
            device_maps: None,
            batch_rows: held.rows,
            next_rows: Some(step.rows as f64),
            batch: held.blocks,
            sample: sampling,
            sample_thread: Some(sampling),
            train: step.bytes as f64,
            train_gradients: None,
            parameters: 4.0 * stages.learner.model.num_params() as f64,
        }
        .with_maps(policy(config), &[(data.num_nodes(), parts.feature.row_bytes())])?,
        hit_rates: hit_rates(config, data, plan.as_ref())?,
        reuse: reused.map(|(costs, _)| costs),
        layered: None,
        without_reuse: None,
        types: Vec::new(),
    })
}

/// Seconds of the stages of the first `batches` minibatches of the epoch: the mean over them, of
/// each the median over the timed rounds.
fn seconds_of_rounds(
    stages: &mut Stages,
    batches: u64,
    lr: f64,
    see: &mut dyn FnMut(&Sampled),
) -> Result<[f64; 3]> {
    let mut rounds: Vec<[Vec<f64>; 3]> = (0..batches).map(|_| Default::default()).collect();
    let ([least, most], seconds) = PROFILED;
    let clock = Instant::now();
    for round in 1..=most {
        for (i, of_batch) in (0..).zip(&mut rounds) {
            let seconds = stages.batch(i, lr, see)?;
            of_batch.iter_mut().zip(seconds).for_each(|(of, seconds)| of.push(seconds));
        }
        if round >= least && clock.elapsed().as_secs_f64() >= seconds {
            break;
        }
    }
    let mut mean = [0.0; 3];
    for of_batch in &mut rounds {
        mean.iter_mut().zip(of_batch).for_each(|(sum, of)| *sum += median(of) / batches as f64);
    }
    Ok(mean)
}

/// Median of some numbers, the lower one of two; 0 of none.
fn median(of: &mut [f64]) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len().saturating_sub(1) / 2).copied().unwrap_or_default()
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
    let parts = Parts::new(config, data)?;
    let mut stages = Stages::new(config, data, &parts, own)?;
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
            let seconds = stages.batch(i, config.lr, &mut |_| {})?;
            if number >= ROUNDS[0] && sum(&seconds) < sum(least) {
                *least = seconds;
            }
        }
    }
    Ok(least.into_iter().map(|batch| batch.map(|seconds| whole * seconds)).collect())
}

/// Parts of a run that its stages share.
struct Parts<'a> {
    sampler: Box<dyn MinibatchSampler>,
    order: Box<dyn SeedOrder + 'a>,
    feature: Host,
    table: Matrix,
    backend: Cpu,
}

impl<'a> Parts<'a> {
    fn new(config: &TrainConfig, data: &'a Dataset) -> Result<Self> {
        let (sampler, order) = (strategy::sampler(config, data)?, build::order(config, data)?);
        let (feature, table) = build::features(config, data, placements(config, data).features)?;
        Ok(Self { sampler, order, feature, table, backend: Cpu { precision: build::precision(config) } })
    }
}

/// Stages of a run, executed sequentially.
struct Stages<'a> {
    loader: Loader<'a>,
    learner: Learner<'a>,
    seeds: Vec<NodeId>,
    memory: Seeds,
    workspace: Workspace,
}

impl<'a> Stages<'a> {
    fn new(
        config: &TrainConfig,
        data: &'a Dataset,
        parts: &'a Parts<'a>,
        own: Option<Arc<NodeOwnership>>,
    ) -> Result<Self> {
        let Parts { sampler, order, feature, table, backend } = parts;
        let model = build::model(config, data)?;
        let mut loader = Loader { own, ..loader(config, data, &**sampler, &**order, feature)? };
        loader.symmetric = build::symmetric(&model, data);
        loader.aggregation = model.aggregation();
        let mut seeds = Vec::new();
        let mut workspace = Workspace::new(data.num_nodes());
        workspace.set_parallel(true);
        loader.order(0, &mut seeds);
        let batch = loader.sample(0, &mut workspace, loader.pick(0, &seeds, 0, Seeds::default())?)?;
        let shapes: Vec<BlockShape> = batch.blocks.iter().map(BlockShape::from).collect();
        let mut orders = model.orders(&shapes);
        if table.is_sparse() && !model.start_with_product(&mut orders) {
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
        Ok(Self { loader, learner, seeds, memory: batch.recycle(), workspace })
    }

    /// Lets batches reuse rows; returns their costs, and the number of batches of a super-batch.
    fn reuse_rows(&mut self, plan: &ReusePlan) -> Result<(ReusedRows, u64)> {
        reuse::reuse_rows(plan, &mut self.loader, &mut self.learner, &self.seeds)
    }

    /// Seconds to sample batch `i` of the first epoch, to gather its rows and to train on it; `see`
    /// is called after the first stage.
    fn batch(&mut self, i: u64, lr: f64, see: &mut dyn FnMut(&Sampled)) -> Result<[f64; 3]> {
        let Self { loader, learner, seeds, memory, workspace } = self;
        let ahead = loader.ahead.clone();
        let (sample, batch) = match ahead {
            None => {
                let picked = loader.pick(i, seeds, i, std::mem::take(memory))?;
                let clock = Instant::now();
                let batch = loader.sample(i, workspace, picked)?;
                (clock.elapsed(), batch)
            }
            Some(ahead) => {
                let clock = Instant::now();
                let batch = ahead.complete(loader, seeds, i, workspace, std::mem::take(memory))?;
                (clock.elapsed(), batch)
            }
        };
        see(&batch);
        let clock = Instant::now();
        let batch = loader.extract(Drawn::New(batch))?;
        let gather = clock.elapsed();
        let clock = Instant::now();
        learner.train(&batch, lr)?;
        let train = clock.elapsed();
        *memory = batch.into_batch().recycle();
        Ok([sample, gather, train].map(|time| time.as_secs_f64()))
    }
}

/// Sizes of the largest batch.
#[derive(Default)]
struct Largest {
    blocks: f64,
    rows: f64,
    /// All that a device holds of a sampled batch.
    bytes: f64,
}

impl Largest {
    fn see(&mut self, batch: &Sampled, row_bytes: u64) {
        // Offsets and neighbours of each block, and its node ids.
        let block = |block: &Block| 8 * (block.num_dst + 1) + 4 * block.num_edges();
        let blocks = batch.blocks.iter().map(block).sum::<usize>() + 4 * batch.input_nodes.len();
        self.blocks = self.blocks.max(blocks as f64);
        self.bytes = self.bytes.max(batch.bytes() as f64);
        self.rows = self.rows.max(batch.input_nodes.len() as f64 * row_bytes as f64);
    }
}

/// Size of the last of `count` batches relative to the others.
pub(crate) fn last(train: usize, batch: usize, count: u64) -> f64 {
    let before = (count.saturating_sub(1) as usize).saturating_mul(batch);
    match train.checked_sub(before) {
        Some(rest) if rest > 0 && rest < batch && count > 1 => rest as f64 / batch as f64,
        _ => 1.0,
    }
}

/// Policy of the caches of a run.
pub(crate) fn policy(config: &TrainConfig) -> &str {
    if config.cache == "auto" { POLICY } else { &config.cache }
}

/// Hit rates of caches by the policy of `--cache`.
fn hit_rates(config: &TrainConfig, data: &Dataset, reuse: Option<&ReusePlan>) -> Result<Vec<HitRate>> {
    let policy = policy(config);
    let options = hotness::Options {
        train: config.clone(),
        policies: vec![policy.into()],
        samplers: vec![config.sampler.clone()],
        ratios: RATIOS.into(),
        epochs: 1,
    };
    let report = hotness::run_with(&options, data, reuse, &Quiet)?;
    Ok(report.results.iter().map(|row| HitRate { ratio: row.ratio, rate: row.hit_rate }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_ignore_a_disturbed_round() {
        assert_eq!(median(&mut [9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [3.0, 1.0]), 1.0);
        assert_eq!((median(&mut [4.0]), median(&mut [])), (4.0, 0.0));
    }

    #[test]
    fn the_last_batch_has_the_remaining_nodes() {
        assert_eq!(last(25, 10, 3), 0.5);
        assert_eq!(last(30, 10, 3), 1.0);
        assert_eq!(last(100, 10, 3), 1.0); // not all of them
        assert_eq!(last(5, 10, 1), 1.0);
    }
}
