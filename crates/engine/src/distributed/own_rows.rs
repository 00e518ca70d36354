//! Feature rows of a rank: those of its own parts, and those of other ranks behind them.
//!
//! Rows that are stored sparse stay sparse if a single process would keep them so
//! ([`keeps_sparse_rows`]): in the parts, on the wire and in caches.

use std::sync::Arc;

use graphmill_core::{Features, NodeId, SparseRows, features::FeatureData, matrix::TableType};
use graphmill_data::partition::Part;
use graphmill_distributed::{
    rows::{ConcatRows, OwnedAndRemoteRows, ROWS, Remote, RowService, Table},
    sparse::{SparseCache, SparseRankRows, SparseRowService},
};
use graphmill_loader::{
    Feature,
    feature::cached::{CacheLayout, Dynamic, Level, Pinned, Placement},
    policy::{CachePolicy, fifo::Fifo},
};

use super::Ranks;
use crate::{
    Error, Result, TrainConfig, build,
    cache_kind::Kind,
    config::Switch,
    memory::{self, keeps_sparse_rows},
};

/// Rows of a rank's own parts.
pub(super) struct OwnRows {
    rows: Arc<dyn Feature>,
    dim: usize,
    /// Mean number of stored values of a row over all ranks, if rows stay sparse.
    sparse: Option<usize>,
}

impl OwnRows {
    /// Opens the rows of `parts`, and serves them to the other ranks. All ranks call this at the
    /// same time.
    ///
    /// # Errors
    /// A part cannot be read, parts store different rows, or a rank did not take part.
    pub(super) fn open(config: &TrainConfig, parts: &[Part], ranks: &Ranks) -> Result<Self> {
        let sparse = mean_stored(config, parts, ranks)?;
        // the density of a single part may differ from that of all
        let config = &TrainConfig {
            sparse: if sparse.is_some() { Switch::On } else { Switch::Off },
            ..config.clone()
        };
        let mut tables: Vec<Arc<dyn Feature>> = Vec::with_capacity(parts.len());
        for part in parts {
            let residence = memory::placements(config, &part.dataset).features;
            tables.push(Arc::new(build::features(config, &part.dataset, residence)?.0));
        }
        let dim = tables.first().map_or(0, |table| table.dim());
        let rows: Arc<dyn Feature> = match &tables[..] {
            [one] => one.clone(),
            _ => {
                let rows = ConcatRows::new(tables, parts.iter().map(|part| &part.nodes[..]))?;
                Arc::new(if sparse.is_some() { rows.sparse() } else { rows })
            }
        };
        let (post, book) = (ranks.post(), ranks.book().clone());
        match sparse {
            Some(_) => post.serve(ROWS, Arc::new(SparseRowService::new(book, rows.clone()))),
            None => post.serve(ROWS, Arc::new(RowService::new(book, Table::Constant(rows.clone())))),
        }
        Ok(Self { rows, dim, sparse })
    }

    /// Features of a rank's dataset: the layout of the rows, without rows.
    pub(super) fn layout(&self) -> Features {
        let data = match self.sparse {
            Some(_) => FeatureData::Csr(SparseRows::empty(self.dim)),
            None => FeatureData::default(),
        };
        Features { dim: self.dim, data }
    }

    /// Own rows, and rows of other ranks from their owners.
    pub(super) fn with_others(&self, ranks: &Ranks) -> Arc<dyn Feature> {
        match self.sparse {
            Some(mean) => Arc::new(self.sparse_rows(ranks, mean)),
            None => self.before(ranks, Arc::new(self.remote(ranks))),
        }
    }

    /// [`OwnRows::with_others`] with a cache of `slots` rows of other ranks: the `hottest` ones
    /// (at most `slots`), or those that a policy keeps.
    ///
    /// # Errors
    /// The rows cannot be fetched, or the memory cannot be allocated.
    pub(super) fn with_cached_others(
        &self,
        ranks: &Ranks,
        kind: Kind,
        slots: usize,
        hottest: &[NodeId],
    ) -> Result<Arc<dyn Feature>> {
        let nodes = ranks.book().num_nodes();
        if let Some(mean) = self.sparse {
            let (policy, is_static): (Box<dyn CachePolicy>, _) = match kind {
                Kind::Dynamic(make) => (make(nodes, slots), false),
                Kind::Pinned => (Box::new(Fifo::new(nodes, slots)), true),
            };
            let rows = self.sparse_rows(ranks, mean).with_cache(SparseCache::new(policy, is_static));
            rows.fill(hottest)?;
            return Ok(Arc::new(rows));
        }
        let behind = Arc::new(self.remote(ranks));
        let others: Arc<dyn Feature> = match kind {
            Kind::Dynamic(make) => Arc::new(Dynamic::new(make, slots, TableType::F32, behind, Level::Host)?),
            Kind::Pinned => {
                let held = CacheLayout::new(hottest, slots, 1, Placement::Shard);
                Arc::new(Pinned::new(held, TableType::F32, behind, Level::Host)?)
            }
        };
        Ok(self.before(ranks, others))
    }

    fn sparse_rows(&self, ranks: &Ranks, mean: usize) -> SparseRankRows {
        SparseRankRows::new(ranks.post().clone(), ranks.book().clone(), ROWS, self.rows.clone(), mean)
    }

    fn remote(&self, ranks: &Ranks) -> Remote {
        Remote::new(ranks.post().clone(), ranks.book().clone(), ROWS, self.dim)
    }

    fn before(&self, ranks: &Ranks, others: Arc<dyn Feature>) -> Arc<dyn Feature> {
        let own = Table::Constant(self.rows.clone());
        Arc::new(OwnedAndRemoteRows::new(ranks.book().clone(), own, others))
    }
}

/// Mean number of stored values of a row over all ranks, if the rows stay sparse.
fn mean_stored(config: &TrainConfig, parts: &[Part], ranks: &Ranks) -> Result<Option<usize>> {
    let (mut rows, mut stored, mut dense) = (0u64, 0u64, 0);
    for part in parts {
        rows += part.nodes.len() as u64;
        match &part.dataset.features.data {
            FeatureData::Csr(own) => stored += own.stored() as u64,
            _ => dense += 1,
        }
    }
    let halves = |x: u64| [x as u32, (x >> 32) as u32];
    let words = [halves(rows), halves(stored), [dense, parts.len() as u32]].concat();
    let (mut rows, mut stored, mut dense, mut all) = (0, 0, 0, 0);
    for words in ranks.gather(&words)? {
        let [r0, r1, s0, s1, without, parts] = words[..] else { continue };
        rows += u64::from(r1) << 32 | u64::from(r0);
        stored += u64::from(s1) << 32 | u64::from(s0);
        dense += without;
        all += parts;
    }
    if dense == all {
        return Ok(None);
    }
    if dense > 0 {
        return Err(Error::usage(format!(
            "{dense} of {all} parts have dense feature rows and the others sparse ones; partition the dataset \
             again"
        )));
    }
    let dim = parts.first().map_or(0, |part| part.dataset.features.dim);
    let keeps = keeps_sparse_rows(config, rows as usize, dim, stored as usize);
    Ok(keeps.then(|| stored.div_ceil(rows.max(1)) as usize))
}
