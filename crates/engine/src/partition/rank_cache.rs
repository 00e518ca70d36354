//! Cache of a rank for rows of other ranks: its size by the options of a run, and the share of the
//! requests that it serves, counted by drawing an epoch of the rank's shares of the minibatches.

use std::sync::Arc;

use graphmill_core::{NodeId, Result as CoreResult, node_order::by_scores, progress::Quiet};
use graphmill_data::Dataset;
use graphmill_distributed::NodeOwnership;
use graphmill_loader::{
    Feature,
    feature::Host,
    hotness::{Footprint, Visits},
};

use crate::{
    Error, Result, TrainConfig, build,
    cache_kind::{Kind, kind, resolve_cache},
    hotness::{self, OrderedVisits, dynamic_rates, scores::counted},
    stage::Loader,
    tiers::{CacheBytes, pooled_rows, rows_within},
};

/// Cache of a rank for rows of other ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RankCache {
    /// Cached share of the rows of all ranks.
    pub ratio: f64,
    /// Share of the requested rows of other ranks that it serves.
    pub hit_rate: f64,
    /// Share of all requested rows that an NVIDIA device serves; 0 without such devices.
    pub on_device: f64,
    /// Bytes of its rows and maps, on an NVIDIA device those of one device.
    pub bytes: f64,
}

/// Cache that `--cache`, `--cache-ratio` and `--host-budget` give a rank, which owns the nodes of
/// `own`; empty without a ratio and a budget. On simulated devices, those of all its devices
/// together, which hold own rows as well. On NVIDIA devices, that of any of them, because each has
/// a cache of its own. Costs the drawing of one epoch, on NVIDIA devices of two, and for a hotness
/// its scores.
///
/// # Errors
/// An unknown cache, one of devices that follows the reads, the cache does not fit the budget, or a
/// batch cannot be drawn.
pub fn rank_cache(config: &TrainConfig, data: &Dataset, own: &Arc<NodeOwnership>) -> Result<RankCache> {
    let (nodes, feature) = (data.num_nodes(), Host::new(&data.features));
    let policy = resolve_cache(&config.cache, &config.order, "lru");
    let row_bytes = feature.row_bytes();
    let (devices, of_each) = match config.num_devices() {
        0 => (1, slots(config, policy, [nodes, own.num_own()], row_bytes)?),
        devices => (devices, of_ratio(config.cache_ratio.0.unwrap_or_default(), nodes).min(nodes)),
    };
    if of_each == 0 {
        return Ok(RankCache::default());
    }
    let has_devices = config.num_devices() > 0;
    let is_nvidia = !config.cuda_devices().is_empty();
    let slots = match has_devices && !is_nvidia {
        true => pooled_rows(*config.placement, of_each, devices).min(nodes),
        false => of_each,
    };
    let (sampler, order) = (build::sampler(config, data)?, build::order(config, data)?);
    let loader = hotness::loader(config, data, &*sampler, &*order, &feature)?;
    let loader = Loader { own: Some(own.clone()), ..loader };
    let drawn = OrderedVisits::new(&loader, &Quiet);
    let remote = RemoteVisits { visits: &drawn, own };
    let ratio = slots as f64 / nodes as f64;
    let mut on_device = 0.0;
    let hit_rate = match kind(policy)? {
        Kind::Dynamic(_) if has_devices => {
            return Err(Error::usage(format!(
                "--cache {policy}: a policy on devices admits own rows as well, and predictions for several \
                 machines count only rows of the others; use a hotness, such as degree"
            )));
        }
        Kind::Dynamic(make) => {
            dynamic_rates(make, nodes, &remote, 1, &[ratio])?.first().copied().unwrap_or_default()
        }
        Kind::Pinned => {
            let of_rank = (None, Some(own), None);
            let (scores, _) = counted(policy, config, data, &*sampler, &*order, of_rank, &Quiet)
                .map_err(|e| Error::of_option("--cache", policy, e))?;
            let mut ranking = by_scores(&scores)?;
            if !has_devices {
                ranking.retain(|&v| !own.is_own(v));
            }
            let served = |visits: &dyn Visits| -> Result<f64> {
                let footprint = Footprint::of(nodes, visits, 0..1)?;
                let (hits, total) = (footprint.hits(&ranking), footprint.total());
                Ok(if total == 0 { 1.0 } else { hits[slots.min(ranking.len())] as f64 / total as f64 })
            };
            if is_nvidia {
                on_device = served(&drawn)?;
            }
            served(&remote)?
        }
    };
    let bytes = match is_nvidia {
        true => CacheBytes::on_nvidia(policy, nodes, row_bytes)?.bytes(of_each as f64),
        false => devices as f64 * CacheBytes::new(policy, nodes, row_bytes).bytes(of_each as f64),
    };
    Ok(RankCache { ratio, hit_rate, on_device, bytes })
}

/// Number of rows of the share `ratio` of `rows` rows.
fn of_ratio(ratio: f64, rows: usize) -> usize {
    (ratio * rows as f64).round() as usize
}

/// Number of cached rows of `row_bytes` bytes, for a rank that owns the second of these numbers of
/// nodes.
fn slots(config: &TrainConfig, policy: &str, [nodes, own]: [usize; 2], row_bytes: u64) -> Result<usize> {
    let (others, resident) = (nodes - own, row_bytes * own as u64);
    let fit = match config.host_budget.0 {
        0 => others,
        budget if resident > budget => {
            return Err(Error::usage(format!(
                "--host-budget {budget}: the own rows of a machine take {resident} bytes, so a run would \
                 read them from a disk, which predictions for several machines do not follow; use a larger \
                 budget, or more parts"
            )));
        }
        budget => rows_within(policy, nodes, row_bytes, budget - resident).min(others),
    };
    match config.cache_ratio.0 {
        None if config.host_budget.0 == 0 => Ok(0),
        None => Ok(fit),
        Some(ratio) => {
            let wanted = of_ratio(ratio, nodes).min(others);
            if wanted <= fit {
                return Ok(wanted);
            }
            Err(Error::usage(format!(
                "--cache-ratio {ratio}: {wanted} rows of {row_bytes} bytes and their maps do not fit in \
                 --host-budget {}; use --cache-ratio auto",
                config.host_budget.0
            )))
        }
    }
}

/// Requests of a rank for rows of other ranks.
struct RemoteVisits<'v> {
    visits: &'v dyn Visits,
    own: &'v NodeOwnership,
}

impl Visits for RemoteVisits<'_> {
    fn visit(&self, epoch: u64, see: &mut dyn FnMut(&[NodeId])) -> CoreResult<()> {
        let mut remote = Vec::new();
        self.visits.visit(epoch, &mut |nodes| {
            remote.clear();
            remote.extend(nodes.iter().copied().filter(|&v| !self.own.is_own(v)));
            see(&remote);
        })
    }
}
