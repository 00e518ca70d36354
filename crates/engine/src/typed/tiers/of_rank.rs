//! Cache of a rank for rows of other ranks of several types, before a run: its size by the options,
//! as [`super::over_ranks`] builds it, and the requests that it serves, counted by drawing an epoch
//! of the rank's shares of the minibatches.
//!
//! # Cost
//!
//! The drawing of one epoch, and the scores of a hotness.
//!
//! # Deviations
//!
//! A hotness by edges counts those of the whole graph; a rank has those into its own nodes.

use std::sync::Arc;

use graphmill_core::{NodeId, Result as CoreResult, node_order::by_scores, progress::Quiet, typed::Schema};
use graphmill_distributed::NodeOwnership;
use graphmill_loader::{
    feature::cached::Level,
    hotness::{Footprint, Visits},
};

use super::{
    Rows,
    levels::{CacheLevel, CachedRows, Levels},
    measured,
    online::range_of,
    read_rows, resolve,
};
use crate::{
    Error, Result,
    cache_kind::{Kind, counts_training, kind},
    hotness::dynamic_rates,
    partition::RankCache,
    tiers::{CacheBytes, pooled_rows},
    typed::{batches::RunBatches, visits::TypedVisits},
};

/// Cache of a rank for rows of other ranks.
#[derive(Default)]
pub(in crate::typed) struct TypedRankCache {
    /// Figures over all types. The ratio is a fraction of bytes.
    pub(in crate::typed) all: RankCache,
    /// Requested rows of other ranks, and those among them that the cache serves, by type. Empty if
    /// nothing is cached.
    pub(in crate::typed) rows: Vec<[u64; 2]>,
}

impl TypedRankCache {
    /// Adds the cache of another of `ranks` ranks: the mean ratio, the summed requests, and the
    /// largest number of bytes.
    pub(in crate::typed) fn add(&mut self, other: &Self, ranks: usize) {
        self.rows.resize(self.rows.len().max(other.rows.len()), [0; 2]);
        for (sum, of) in self.rows.iter_mut().zip(&other.rows) {
            *sum = [sum[0] + of[0], sum[1] + of[1]];
        }
        self.all.ratio += other.all.ratio / ranks as f64;
        self.all.bytes = self.all.bytes.max(other.all.bytes);
        self.all.hit_rate = hit_rate(&self.rows);
    }

    /// Served fraction of the requested rows of type `t`.
    pub(in crate::typed) fn served(&self, t: usize) -> f64 {
        self.rows.get(t).map_or(0.0, |of| hit_rate(&[*of]))
    }
}

/// Cache that `--cache`, `--cache-ratio` and `--host-budget` give a rank whose shares of the
/// batches `of` are, and whose nodes by type those of `owners`. Simulated devices hold own rows as
/// well.
///
/// # Errors
/// The cache is unknown or depends on training, or does not fit the budget; a batch cannot be
/// drawn.
pub(in crate::typed) fn rank_cache(of: &RunBatches, owners: &[Arc<NodeOwnership>]) -> Result<TypedRankCache> {
    let (config, schema) = (of.config, of.task.graph.schema());
    let (budget, devices, ratio) = (config.host_budget.0, config.num_devices(), config.cache_ratio.0);
    if budget == 0 && ratio.is_none() {
        return Ok(TypedRankCache::default());
    }
    let policy = resolve(&config.cache);
    refuse(policy, devices)?;
    let mut all = read_rows(of);
    let own = |(of, owners): (&Option<Rows>, &Arc<NodeOwnership>)| {
        of.map_or(0, |of| of.bytes * owners.num_own() as u64)
    };
    let resident: u64 = all.iter().zip(owners).map(own).sum();
    for (of, owners) in all.iter_mut().zip(owners) {
        *of = of.filter(|of| devices > 0 || of.count > owners.num_own());
    }
    if budget > 0 && resident > budget {
        return Err(Error::usage(format!(
            "--host-budget {budget}: the own rows of a machine take {resident} bytes, so a run would read \
             them from a disk, which predictions for several machines do not follow; use a larger budget, \
             or more parts"
        )));
    }
    let visits = TypedVisits::new(of, &Quiet);
    let cached = |t: usize| match all[t] {
        None => CachedRows::None,
        Some(_) if devices > 0 => CachedRows::All,
        Some(_) => CachedRows::OfOthers(&owners[t]),
    };
    let level = CacheLevel {
        flag: "cache",
        policy,
        budget: if budget == 0 { f64::INFINITY } else { (budget - resident) as f64 },
        memory: format!("--host-budget {budget}"),
        ratio,
        devices: devices.max(1),
        level: if devices == 0 { Level::Host } else { Level::Device { devices, reader: 0 } },
        nvidia: None,
        readers: None,
        of: &cached,
    };
    let (shares, scores) = Levels::new(&visits, measured(config, of.task)?).shares(&level, &all)?;
    let counted = Counted { visits: &visits, schema, owners, all: &all };
    let footprint = Footprint::of(schema.num_nodes(), &counted.of(None), 0..1)?;
    let mut cache = TypedRankCache { rows: vec![[0; 2]; all.len()], ..TypedRankCache::default() };
    let (mut bytes, mut held_bytes) = (0.0, 0.0);
    for (t, rows) in all.iter().enumerate().filter_map(|(t, of)| Some((t, (*of)?))) {
        let slots = shares[t] / level.devices;
        let held = match devices {
            0 => slots,
            _ => pooled_rows(*config.placement, slots, devices).min(rows.count),
        };
        bytes += rows.count as f64 * rows.bytes as f64;
        held_bytes += held as f64 * rows.bytes as f64;
        if slots > 0 {
            let of_cache = CacheBytes::new(policy, rows.count, rows.bytes).bytes(slots as f64);
            cache.all.bytes += level.devices as f64 * of_cache;
        }
        let counts = Footprint { counts: footprint.counts[range_of(schema, t)].to_vec() };
        let served = match kind(policy)? {
            Kind::Dynamic(make) => {
                let part = held as f64 / rows.count.max(1) as f64;
                let rates = dynamic_rates(make, rows.count, &counted.of(Some(t)), 1, &[part])?;
                (rates.first().copied().unwrap_or_default() * counts.total() as f64).round() as u64
            }
            Kind::Pinned => {
                let ranking = counted.ranking(t, rows.count, (&scores, devices > 0))?;
                counts.hits(&ranking)[held.min(ranking.len())]
            }
        };
        cache.rows[t] = [counts.total(), served];
    }
    cache.all.ratio = if bytes > 0.0 { held_bytes / bytes } else { 0.0 };
    cache.all.hit_rate = hit_rate(&cache.rows);
    Ok(cache)
}

/// Served fraction of the requested rows of all types; 0 without requests.
fn hit_rate(rows: &[[u64; 2]]) -> f64 {
    let [requested, served] = rows.iter().fold([0; 2], |sum, of| [sum[0] + of[0], sum[1] + of[1]]);
    if requested == 0 { 0.0 } else { served as f64 / requested as f64 }
}

/// Refuses a cache whose rows depend on the epochs of training, or, on devices, on all reads.
fn refuse(policy: &str, devices: usize) -> Result<()> {
    let why = match kind(policy)? {
        _ if counts_training(policy) => {
            "the first epochs of training fill it, which predictions for several machines do not follow; use \
             presc:2, which counts before training"
        }
        Kind::Dynamic(_) if devices > 0 => {
            "a policy on devices admits own rows as well, and predictions for several machines count only \
             rows of the others; use a hotness, such as degree"
        }
        Kind::Dynamic(_) | Kind::Pinned => return Ok(()),
    };
    Err(Error::usage(format!("--cache {policy}: {why}")))
}

/// Requests of a rank for feature rows of other ranks.
struct Counted<'c> {
    visits: &'c TypedVisits<'c>,
    schema: &'c Schema,
    owners: &'c [Arc<NodeOwnership>],
    all: &'c [Option<Rows>],
}

impl<'c> Counted<'c> {
    /// The `count` rows of type `t`, the first to be cached first, by the `scores` of all nodes or
    /// as they are stored; without own rows unless the cache `holds_own`.
    fn ranking(
        &self,
        t: usize,
        count: usize,
        (scores, holds_own): (&[f64], bool),
    ) -> CoreResult<Vec<NodeId>> {
        let mut ranking = match scores.get(range_of(self.schema, t)) {
            Some(scores) => by_scores(scores)?,
            None => (0..count as NodeId).collect(),
        };
        ranking.retain(|&v| holds_own || !self.owners[t].is_own(v));
        Ok(ranking)
    }

    /// Those for a type, by local ids, or those for all types, by global ids.
    fn of(&'c self, node_type: Option<usize>) -> RemoteVisits<'c> {
        RemoteVisits { of: self, node_type }
    }
}

/// Requests for the rows of a type, or of all.
struct RemoteVisits<'c> {
    of: &'c Counted<'c>,
    node_type: Option<usize>,
}

impl Visits for RemoteVisits<'_> {
    fn visit(&self, epoch: u64, see: &mut dyn FnMut(&[NodeId])) -> CoreResult<()> {
        let Counted { visits, schema, owners, all } = *self.of;
        let mut remote = Vec::new();
        visits.visit(epoch, &mut |nodes| {
            remote.clear();
            remote.extend(nodes.iter().filter_map(|&v| {
                let (t, local) = schema.local(v)?;
                let is_counted = all[t].is_some() && self.node_type.is_none_or(|of| of == t);
                let is_remote = is_counted && !owners[t].is_own(local);
                is_remote.then_some(if self.node_type.is_some() { local } else { v })
            }));
            see(&remote);
        })
    }
}
