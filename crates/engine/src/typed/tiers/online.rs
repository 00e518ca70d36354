//! Caches of the rows of several types that are filled during a run, by the reads of its first
//! epochs (`presc-online:K`).
//!
//! # Algorithm
//!
//! Until then, all reads go to the next tier. Then the rows of all types are ranked together, by
//! reads per byte as those of a static cache ([`shares`]), and each type's cache loads its share.
//!
//! # Source
//!
//! Yang et al., *GNNLab: A Factored System for Sample-based GNN Training over GPUs*, EuroSys 2022,
//! section 6.3. The division by type is ours.
//!
//! # Cost
//!
//! O(V log V) for V nodes, and a read of each cached row.

use std::{ops::Range, sync::Arc};

use graphmill_core::typed::Schema;
use graphmill_distributed::NodeOwnership;
use graphmill_loader::{
    Feature,
    feature::{
        LinkOptions,
        cached::{Late, Level, Placement, RowFormat},
    },
};

use super::readers::Readers;
use crate::{
    Result,
    tiers::NewCache,
    typed::shares::{self, Competing},
};

/// Metric of the caches once they are filled: their scores are counts.
const FILLED: &str = "presc";

/// Sets the scores of the own nodes of a type to negative infinity.
pub(super) fn mask(owners: &NodeOwnership, scores: &mut [f64]) {
    owners.own().for_each(|v| scores[v as usize] = f64::NEG_INFINITY);
}

/// Global ids of the nodes of type `t`.
pub(super) fn range_of(schema: &Schema, t: usize) -> Range<usize> {
    schema.range(t).start as usize..schema.range(t).end as usize
}

/// Caches of a level, one for each type, that are empty until the first epochs are counted.
pub(super) struct LateLevel {
    /// Rows of each type that compete for the budget.
    pub(super) competing: Vec<Option<Competing>>,
    pub(super) tables: Vec<Option<LateTable>>,
    /// Bytes for the rows of all types on all devices.
    pub(super) budget: f64,
    /// Devices that read the rows independently, if some do.
    pub(super) readers: Option<Readers>,
    /// Number of devices that share each cache.
    pub(super) devices: usize,
    pub(super) placement: Placement,
    pub(super) level: Level,
    pub(super) peer_link: LinkOptions,
}

/// Rows of a type behind a cache that is filled later.
pub(super) struct LateTable {
    /// The next tier.
    pub(super) behind: Arc<dyn Feature>,
    /// Rows as each device reads them, if devices read independently.
    pub(super) rows: Vec<Arc<Late>>,
    pub(super) format: RowFormat,
    /// Owners of the nodes, if own rows are not cached.
    pub(super) owners: Option<Arc<NodeOwnership>>,
}

impl LateLevel {
    /// Fills the caches with the rows of the highest `scores`, which are by global id. Returns the
    /// number of rows of all types on a device, 0 for caches in host memory.
    ///
    /// # Errors
    /// The rows cannot be read, or an allocation fails.
    pub(super) fn fill(&self, schema: &Schema, scores: &[f64]) -> Result<usize> {
        let mut scores = scores.to_vec();
        for (t, table) in self.tables.iter().enumerate() {
            if let Some(owners) = table.as_ref().and_then(|table| table.owners.as_ref()) {
                mask(owners, &mut scores[range_of(schema, t)]);
            }
        }
        let shares = shares::by_score(&self.competing, schema, &scores, self.budget)?;
        let mut on_device = 0;
        for (t, (table, share)) in self.tables.iter().zip(shares).enumerate() {
            let slots = share / self.devices;
            let Some(table) = table.as_ref().filter(|_| slots > 0) else { continue };
            let LateTable { behind, rows, format, .. } = table;
            let cache = NewCache {
                policy: FILLED,
                slots,
                devices: self.devices,
                placement: self.placement,
                format: *format,
                level: self.level,
                peer_link: self.peer_link,
            };
            let of_type = |_: &str| Ok(scores[range_of(schema, t)].to_vec());
            let filled = match &self.readers {
                Some(readers) => readers.cached(cache, behind, &of_type)?,
                None => vec![cache.build(behind.clone(), &of_type)?.rows],
            };
            rows.iter().zip(filled).for_each(|(late, filled)| late.fill(filled));
            if matches!(self.level, Level::Device { .. }) {
                on_device += slots;
            }
        }
        Ok(on_device)
    }
}
