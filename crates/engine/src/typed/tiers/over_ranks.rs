//! Tiers of a rank's rows of several types.
//!
//! ```text
//!   cpu:        host caches (--cache, --cache-ratio, --host-budget)  ─►  network, and disk
//!   virtual:N:  device caches (--cache)  ─►  host caches (--host-cache, --host-budget)
//!                                            ─►  network, and disk
//! ```
//!
//! Devices that work independently read through a pool of their caches, or each through its own
//! (`readers.rs`).
//!
//! Own rows are in host memory, in front of which nothing is cached there, unless they exceed
//! `--host-budget`: then the dense ones are read from the files of the parts, and the host caches
//! hold own rows and those of other ranks alike. Hotness is that of the rank's shares of the
//! batches.

use std::{sync::Arc, time::Instant};

use graphmill_core::progress::Progress;
use graphmill_distributed::{NodeOwnership, rows::OwnedAndRemoteRows};
use graphmill_loader::{Feature, feature::cached::Level};

use super::{
    TypedTiers,
    levels::{CacheLevel, CachedRows, Levels},
    resolve,
};
use crate::{
    Error, Result,
    typed::{
        batches::{HeldRows, RunBatches},
        devices::TypedDevices,
        ranks::{RankRows, TypedRankView},
        step,
        tables::{Tables, borrowed},
        visits::TypedVisits,
    },
};

impl TypedTiers {
    /// Builds the tiers that the options request for a rank, whose shares of the batches `of` are,
    /// and the simulated devices of its stages, if its strategy has some. All ranks call this at
    /// the same time, because each counts its own shares.
    ///
    /// # Errors
    /// A policy is unknown or not defined for several types; the rows of a cache ratio or a
    /// training step exceed a budget; a rank did not reply; an allocation fails.
    pub(in crate::typed) fn over_ranks(
        of: &RunBatches,
        view: &TypedRankView,
        progress: &dyn Progress,
    ) -> Result<(Self, Option<TypedDevices>)> {
        let step = |held: HeldRows<'_>| step::bytes(of, held, &borrowed(&view.tables));
        let devices = TypedDevices::new(of.config, of.task, Some(&view.owners), &step)?;
        let tiers = Self::of_rank(of, view, devices.as_ref(), progress)?;
        Ok(tiers.equip(devices))
    }

    /// Builds the tiers of a rank with these devices.
    fn of_rank(
        of: &RunBatches,
        view: &TypedRankView,
        by_device: Option<&TypedDevices>,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let config = of.config;
        let (budget, devices) = (config.host_budget.0, config.devices.simulated());
        let caches_in_host = budget > 0 || devices == 0 && config.cache_ratio.0.is_some();
        let clock = Instant::now();
        let visits = TypedVisits::new(of, progress);
        let mut levels = if caches_in_host {
            let resident = view.rows.iter().flatten().map(|rows| rows.resident).sum::<u64>();
            let Some(free) = budget.checked_sub(resident).or((budget == 0).then_some(0)) else {
                return Err(Error::usage(format!(
                    "--host-budget {budget}: rank {} has own rows of {resident} bytes that are sparse or \
                     not stored as f16 or f32, so they stay in host memory; raise it, or import them as \
                     dense f16 or f32",
                    view.ranks.rank()
                )));
            };
            let behind = |(rows, all): (&Option<RankRows>, &Option<Arc<dyn Feature>>)| {
                rows.as_ref()
                    .and_then(|rows| if rows.is_on_disk() { all.clone() } else { Some(rows.others.clone()) })
            };
            let behind: Tables = view.rows.iter().zip(&view.tables).map(behind).collect();
            let mut levels = Levels::new(&visits, behind);
            levels.add(&CacheLevel {
                flag: if devices == 0 { "cache" } else { "host-cache" },
                policy: resolve(if devices == 0 { &config.cache } else { &config.host_cache }),
                budget: if budget == 0 { f64::INFINITY } else { free as f64 },
                memory: format!("--host-budget {budget} on rank {}", view.ranks.rank()),
                ratio: config.cache_ratio.0.filter(|_| devices == 0),
                devices: 1,
                level: Level::Host,
                nvidia: None,
                readers: None,
                of: &|t| cached_in_host(view.rows[t].as_ref(), &view.owners[t]),
            })?;
            let tables = levels.tables.iter_mut().zip(&view.rows).zip(&view.owners);
            for ((table, rows), owners) in tables {
                if let (Some(others), Some(rows)) = (&*table, rows.as_ref().filter(|rows| !rows.is_on_disk()))
                {
                    *table = Some(Arc::new(OwnedAndRemoteRows::new(
                        owners.clone(),
                        rows.own.clone(),
                        others.clone(),
                    )));
                }
            }
            levels
        } else {
            Levels::new(&visits, view.tables.clone())
        };
        if devices > 0 {
            levels.add_devices(by_device, Some(&view.owners))?;
        }
        Ok(levels.finish(clock, view.tables.clone()))
    }
}

/// Rows of a type that caches in host memory hold.
fn cached_in_host<'c>(rows: Option<&RankRows>, owners: &'c Arc<NodeOwnership>) -> CachedRows<'c> {
    match rows {
        None => CachedRows::None,
        Some(rows) if rows.is_on_disk() => CachedRows::All,
        Some(_) => CachedRows::OfOthers(owners),
    }
}
