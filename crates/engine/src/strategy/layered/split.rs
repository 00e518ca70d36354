//! Share of the hot nodes whose rows are made for reuse; the others are left to the devices'
//! feature caches, with the memory of their rows.
//!
//! # Algorithm
//!
//! A reused row saves its neighbours' features on the link, but takes memory that could cache
//! features. For each candidate share, count the bytes that a super-batch moves over the link: its
//! reused rows, and the features of its input nodes that the rest of the memory does not hold. The
//! cache is filled by the reads of a super-batch of the first epoch, and the bytes are counted for
//! one of the second epoch, so that the cache does not know what it is asked for. Take the share
//! with the fewest bytes, or 1 unless that saves enough.
//!
//! # Source
//!
//! Ai et al., *NeutronOrch: Rethinking Sample-based GNN Training under CPU-GPU Heterogeneous
//! Environments*, VLDB 2024, section 4.1.3 (hybrid hot-node processing).
//!
//! # Cost
//!
//! Two super-batches are drawn for each candidate.
//!
//! # Memory
//!
//! 9 bytes per row of the feature table.
//!
//! # Deviations
//!
//! The paper moves nodes to the cache while the GPU waits for the CPU. Measured times would make
//! the results of a run depend on timing. Therefore `--hot-split auto` counts bytes, and only
//! `--hot-split timed` follows the waiting time.

use std::{cmp::Reverse, sync::Mutex};

use graphmill_core::NodeId;
use graphmill_distributed::numbers::{of_words, to_words};
use graphmill_loader::{Sampled, Seeds, Workspace};
use graphmill_nn::model::Model;
use rayon::prelude::*;

use crate::{
    Result,
    learner::Learner,
    memory,
    reuse::{Preview, ReusePlan, RowExchange},
    stage::{DrawAhead, Loader},
    strategy::{interface::StrategyContext, is_by_device, non_trainers},
    tiers::DeviceCaches,
};

/// Candidate shares.
const SHARES: [f64; 5] = [1.0, 0.75, 0.5, 0.25, 0.1];
/// Least part of the bytes of share 1 that a smaller share must save.
const MIN_GAIN: f64 = 0.05;

/// Bytes that a super-batch moves to devices, and the rows that are cached there.
#[derive(Clone, Copy)]
struct Estimate {
    bytes: u64,
    cached: usize,
}

/// Share for the devices' budget; 1 without a budget, or if all features fit beside all rows. A
/// function of the options and of draws, not of times or of measured memory. Ranks add up the bytes
/// of their shares of the batches, and choose the same share.
///
/// # Errors
/// A hop cannot be drawn, or a rank did not take part.
pub(super) fn choose(
    context: &StrategyContext,
    loader: &Loader,
    learner: &Learner,
    plan: &ReusePlan,
) -> Result<f64> {
    let config = context.config;
    let caches = DeviceCaches::new(config, context.data, context.sampler, context.order, None)?;
    let Some(caches) = caches.filter(|_| config.device_budget.0 > 0 && plan.max_hot > 0) else {
        return Ok(1.0);
    };
    let caches = caches.for_rank(context.own.cloned(), &**context.feature);
    let estimate = |share: f64| -> Result<Option<Estimate>> {
        let plan = plan.with_max_hot((share * plan.max_hot as f64).round() as usize);
        let own = estimate(context, loader, learner, &plan, &caches)?;
        context.exchange.map_or(Ok(own), |exchange| over_ranks(exchange, own))
    };
    let all = estimate(1.0)?;
    if all.as_ref().is_some_and(|all| all.cached >= num_rows(context)) {
        return Ok(1.0);
    }
    let limit = all.map_or(u64::MAX, |all| (all.bytes as f64 * (1.0 - MIN_GAIN)) as u64);
    let mut best = (limit, 1.0);
    for share in &SHARES[1..] {
        if let Some(Estimate { bytes, .. }) = estimate(*share)?
            && bytes < best.0
        {
            best = (bytes, *share);
        }
    }
    Ok(best.1)
}

/// Estimate for all ranks from that of each: the sum of their bytes, and the fewest cached rows;
/// `None` if the step of a rank does not fit.
///
/// # Errors
/// A rank did not take part.
fn over_ranks(exchange: &dyn RowExchange, own: Option<Estimate>) -> Result<Option<Estimate>> {
    let words = own.map(|Estimate { bytes, cached }| to_words([bytes, cached as u64]));
    let all = exchange.gather(&words.unwrap_or_default())?;
    let of_rank = |words: &Vec<u32>| {
        let mut numbers = of_words(words);
        Some(Estimate { bytes: numbers.next()?, cached: numbers.next()? as usize })
    };
    let sum = |a: Estimate, b: Estimate| Estimate {
        bytes: a.bytes.saturating_add(b.bytes),
        cached: a.cached.min(b.cached),
    };
    let each: Option<Vec<Estimate>> = all.iter().map(of_rank).collect();
    Ok(each.and_then(|each| each.into_iter().reduce(sum)))
}

/// Estimate for a plan; `None` if a step does not fit.
fn estimate(
    context: &StrategyContext,
    loader: &Loader,
    learner: &Learner,
    plan: &ReusePlan,
    caches: &DeviceCaches,
) -> Result<Option<Estimate>> {
    let (config, data, rows) = (context.config, context.data, num_rows(context));
    let mut counts = vec![0u32; rows];
    let (first, _) = draw(context.exchange, loader, plan, 0)?;
    first.iter().flat_map(|batch| &batch.input_nodes).for_each(|&v| counts[v as usize] += 1);
    let (second, held) = draw(context.exchange, loader, plan, 1)?;

    let step = first.iter().chain(&second).map(|batch| step_bytes(batch, &learner.model, data.features.dim));
    let (by_device, samplers) = (is_by_device(config), non_trainers(config));
    let topology = if by_device && samplers == 0 { memory::topology(data) as u64 } else { 0 };
    let taken = topology + plan.table_bytes() + step.max().unwrap_or(0);
    let Some(slots) = caches.rows_beside(taken) else { return Ok(None) };

    let devices = config.num_devices().saturating_sub(samplers).max(1);
    let trainers = if by_device { devices } else { 1 };
    let cached = caches.pooled_rows(slots, devices).min(rows);
    let mut ranking: Vec<NodeId> = (0..rows as NodeId).collect();
    ranking.par_sort_unstable_by_key(|&v| (Reverse(counts[v as usize]), v));
    let mut is_cached = vec![false; rows];
    ranking[..cached].iter().for_each(|&v| is_cached[v as usize] = true);
    let reads = second.iter().flat_map(|batch| &batch.input_nodes);
    let missed = reads.filter(|&&v| !is_cached[v as usize]).count() as u64;
    let reused = held as u64 * plan.shape.bytes() * trainers as u64;
    Ok(Some(Estimate { bytes: missed * loader.feature.row_bytes() + reused, cached }))
}

/// Number of rows of the feature table, where stored aggregates may follow the nodes.
fn num_rows(context: &StrategyContext) -> usize {
    context.feature.num_rows().max(context.data.num_nodes())
}

/// Draws the first super-batch of an epoch; also returns the number of its hot nodes.
fn draw(
    exchange: Option<&dyn RowExchange>,
    loader: &Loader,
    plan: &ReusePlan,
    epoch: u64,
) -> Result<(Vec<Sampled>, usize)> {
    let mut order = Vec::new();
    loader.order(epoch, &mut order);
    let Preview { batches, reuse } = plan.preview_over(exchange, loader, &order, (epoch, 0))?;
    let (nodes, ahead) = (loader.graph.num_nodes(), &reuse.ahead);
    let spaces = Mutex::new(Vec::new());
    let complete = |number: u64| -> Result<Sampled> {
        let taken = spaces.lock().ok().and_then(|mut spaces| spaces.pop());
        let mut space = taken.unwrap_or_else(|| Workspace::new(nodes));
        let drawn = ahead.complete(loader, &order, number, &mut space, Seeds::default());
        if let Ok(mut spaces) = spaces.lock() {
            spaces.push(space);
        }
        drawn
    };
    let drawn = batches.into_par_iter().map(complete).collect::<Result<Vec<_>>>()?;
    Ok((drawn, ahead.slots.nodes().len()))
}

/// Bytes of a training step by the sizes of its blocks: gathered rows, and aggregated rows and
/// outputs before and after the activation with their gradients.
fn step_bytes(batch: &Sampled, model: &Model, dim: usize) -> u64 {
    let mut values = batch.input_nodes.len() * dim;
    let mut width = dim;
    for (l, block) in batch.blocks.iter().enumerate().take(model.num_layers()) {
        let out = model.layer_out_dim(l);
        values += block.num_dst * (2 * width + 4 * out);
        width = out;
    }
    4 * (values + 4 * model.num_params()) as u64
}
