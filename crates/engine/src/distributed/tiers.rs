//! Memory tiers of a rank's feature rows.
//!
//! ```text
//!   cpu:        host cache (--cache, --cache-ratio, --host-budget)  ─►  network, and disk
//!   virtual:N, cuda:N:  device cache (--cache)
//!                 ─►  host cache (--host-cache, --host-budget)      ─►  network, and disk
//! ```
//!
//! Each of several NVIDIA devices of a rank has a cache of its own; the host reads the rows that it
//! misses.
//!
//! Own rows are in host memory, in front of which nothing is cached there, unless they exceed
//! `--host-budget`: then they are read from the part's file, and the host cache holds own rows and
//! those of other ranks alike. Otherwise it holds rows of other ranks in what the own rows leave of
//! the budget.
//!
//! A rank that draws subgraphs reads the rows of its assigned parts from memory. Only batches with
//! reused rows read other nodes, through these tiers. A rank that trains on subgraphs of graph
//! stores reads all rows through them.

use std::sync::Arc;

use graphmill_core::{NodeId, node_order::by_scores, progress::Progress};
use graphmill_data::Dataset;
use graphmill_loader::{Feature, MinibatchSampler, feature::Host, link::LinkSource, order::SeedOrder};

use super::{RankDataset, links::link_cache};
use crate::{
    Error, Result, TrainConfig,
    accelerator::{ComputeDevices, SamplingDevices},
    cache_kind::{Kind, counts_training, kind, resolve_cache},
    config::{Devices, link_task::is_link},
    strategy::{self, Chosen, StrategyContext},
    tiers::{AllRows, Batches, GpuTiers, HostRows, LateCache, LinkedTiers, Plan, Presampling, rows_within},
};

/// Host cache of a rank: its policy, and its number of rows.
struct HostCache<'c> {
    policy: &'c str,
    slots: usize,
}

/// Feature tiers of a rank.
pub(crate) struct RankTiers {
    pub(crate) feature: Arc<dyn Feature>,
    /// Caches that are filled during the run.
    pub(crate) late: Vec<LateCache>,
    /// The rows as NVIDIA devices read them, if the rank has some.
    pub(crate) on_gpus: Option<GpuTiers>,
    /// Description for the user.
    pub(crate) text: String,
}

impl RankDataset {
    /// The rows as the stages of a run with these options on `data` read them, in a run on links
    /// with the batches of `links`, on these NVIDIA devices, of which some may only sample. All
    /// ranks call this at the same time: hotness is that of the rank's shares of the batches, whose
    /// neighbours the other ranks serve.
    ///
    /// # Errors
    /// Options contradict each other, rows cannot be fetched, the memory of a cache cannot be
    /// allocated, or `progress` stops the work.
    pub(crate) fn tiers(
        &self,
        (config, data): (&TrainConfig, &Dataset),
        (sampler, order): (&dyn MinibatchSampler, &dyn SeedOrder),
        links: Option<&LinkSource>,
        (presampling, progress): (&Presampling, &dyn Progress),
        (computers, sampling): (&ComputeDevices, Option<SamplingDevices>),
    ) -> Result<RankTiers> {
        let own = self.ranks.book();
        let without_devices = |feature, late: Option<LateCache>, text| RankTiers {
            feature,
            late: late.into_iter().collect(),
            on_gpus: None,
            text,
        };
        if !own.trains() {
            return Ok(without_devices(self.feature(), None, self.describe(config)));
        }
        let (reuse, cost) = (None, Some(&presampling.cost));
        let own_nodes = Some(own);
        let batches = Batches { config, data, sampler, order, reuse, own: own_nodes, links, cost, progress };
        let (rows, filled_later, mut text) = match self.assigned() {
            Some(assigned) if assigned.reads_surroundings() => {
                let (others, late, text) = self.host_rows(&batches)?;
                assigned.cache_others(others);
                (assigned.clone() as Arc<dyn Feature>, late, text)
            }
            Some(assigned) => (assigned.clone() as Arc<dyn Feature>, None, self.describe(config)),
            None => self.host_rows(&batches)?,
        };
        let by_device = strategy::is_by_device(config);
        let has_gpus = !computers.gpus().is_empty();
        // by device, the strategy divides the memory of each simulated device
        let divides = match has_gpus {
            true => config.cache_ratio.0.is_none(),
            false => !by_device && config.device_budget.0 > 0,
        };
        let context = || {
            let context = StrategyContext::new(config, data, sampler, order, &rows);
            StrategyContext { own: Some(own), exchange: Some(&*self.ranks), ..context }
        };
        let divides = divides && *config.devices != Devices::Cpu && Chosen::find(config)?.reuses_rows();
        let reuse = divides.then(|| strategy::reuse_plan_of(&context())).transpose()?;
        let batches = Batches { reuse: reuse.as_ref(), ..batches };
        if let Some(gpu) = computers.gpus().first() {
            let host = HostRows::of_tier(gpu, rows.clone(), self.layout(), text);
            let mut on = GpuTiers::in_front_of(host, computers, batches, sampling)?;
            let mut tiers = without_devices(on.feature.clone(), filled_later, on.description.clone());
            tiers.late.append(&mut on.late);
            return Ok(RankTiers { on_gpus: Some(on), ..tiers });
        }
        let plan = match &*config.devices {
            Devices::Virtual(_) => Plan::new(config, data)?,
            Devices::Cpu | Devices::Cuda(_) => None,
        };
        let Some(plan) = plan else { return Ok(without_devices(rows, filled_later, text)) };
        let mut plan = plan.by_device(by_device).with_sizes_of(&*rows);
        let LinkedTiers { feature, mut late, .. } = plan.add_devices(&batches, rows.clone())?;
        late.extend(filled_later);
        text = format!("{text}; {}", plan.describe_devices());
        Ok(RankTiers { feature, late, on_gpus: None, text })
    }

    /// The layout of all rows, without rows: inference reads rows of all ranks.
    pub(crate) fn layout(&self) -> AllRows {
        AllRows::Table(Host::new(&self.data.features).matrix())
    }

    /// The rows behind the host cache, if there is one, that cache if it is filled during the run,
    /// and their description.
    fn host_rows(&self, batches: &Batches) -> Result<(Arc<dyn Feature>, Option<LateCache>, String)> {
        let (config, own) = (batches.config, self.rows());
        let (all, has) = (own.book().num_nodes(), self.describe(config));
        let HostCache { policy, slots } = self.host_cache(config)?;
        let on_disk = own.is_on_disk();
        let part = 100.0 * slots as f64 / all.max(1) as f64;
        let text = match (on_disk, slots) {
            (false, 0) => format!("{has}, and caches no rows of other ranks"),
            (false, _) => format!("{has}, and caches the rows of another {part:.1} % ({policy})"),
            (true, 0) => format!("{has}, whose rows are on disk, and caches no rows in host memory"),
            (true, _) => {
                format!("{has}, whose rows are on disk, and caches the rows of {part:.1} % of all ({policy})")
            }
        };
        if slots == 0 {
            return Ok((self.feature(), None, text));
        }
        let kind = kind(policy)?;
        let hottest: Option<Vec<NodeId>> = match kind {
            Kind::Dynamic(_) => Some(Vec::new()),
            Kind::Pinned if counts_training(policy) => None,
            Kind::Pinned => {
                let scores = batches.scores(policy).map_err(|e| Error::of_option("--cache", policy, e))?;
                Some(own.cached_first(slots)(&by_scores(&scores)?))
            }
        };
        let (rows, late) = own.with_host_cache(&self.ranks, kind, slots, hottest.as_deref())?;
        Ok((rows, late, text))
    }

    /// Host cache that the options request.
    fn host_cache<'c>(&self, config: &'c TrainConfig) -> Result<HostCache<'c>> {
        let (own, budget) = (self.rows(), config.host_budget.0);
        // a node has two rows if aggregates are stored
        let all = own.book().num_nodes();
        let has_devices = *config.devices != Devices::Cpu;
        let name = if has_devices { &config.host_cache } else { &config.cache };
        let policy = match is_link(config) {
            true => link_cache(name),
            false => resolve_cache(name, &config.order, "lru"),
        };
        let rows = if own.caches_own() { all } else { all - own.book().num_own() };
        let fit = match budget {
            0 => usize::MAX,
            _ => rows_within(policy, all, own.cached_bytes(), own.left_of(budget)),
        };
        let slots = match config.cache_ratio.0.filter(|_| !has_devices) {
            Some(ratio) => {
                let slots = ((ratio * all as f64).round() as usize).min(rows);
                if slots > fit {
                    return Err(Error::usage(format!(
                        "--cache-ratio {ratio}: {slots} rows of {} bytes and their maps do not fit in \
                         --host-budget {budget} on rank {}; use --cache-ratio auto",
                        own.cached_bytes(),
                        self.ranks.rank()
                    )));
                }
                slots
            }
            None if budget > 0 => fit.min(rows),
            None => 0,
        };
        Ok(HostCache { policy, slots })
    }
}
