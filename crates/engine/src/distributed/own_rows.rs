//! Feature rows of a rank: those of its own parts, and those of other ranks behind them.
//!
//! Rows that are stored sparse stay sparse if a single process would keep them so
//! ([`keeps_sparse_rows`]): in the parts, on the wire and in caches.

use std::sync::Arc;

use graphmill_core::{Buffer, Features, NodeId, SparseRows, features::FeatureData, matrix::TableType};
use graphmill_data::{
    dataset::StoredTable,
    partition::{Part, PartitionDir},
};
use graphmill_distributed::{
    numbers::{of_words, to_words},
    rows::{ConcatRows, OwnedAndRemoteRows, ROWS, Remote, RowService, Table},
    sparse::{SparseRankRows, SparseRowService},
};
use graphmill_loader::{
    Feature,
    feature::{
        Host, Rounded,
        cached::{CacheLayout, Dynamic, Late, Level, Pinned, Placement, SparseCache},
    },
    policy::{CachePolicy, fifo::Fifo},
};

use super::Ranks;
use crate::{
    Error, Result, TrainConfig, build,
    cache_kind::Kind,
    config::Switch,
    memory::{self, keeps_sparse_rows},
    tiers::LateCache,
};

/// Rows of a rank's own parts.
pub(super) struct OwnRows {
    rows: Arc<dyn Feature>,
    dim: usize,
    /// Type of the values at rest, if they are dense.
    kind: TableType,
    /// Type of the values of dense rows that other ranks send.
    sent: TableType,
    /// Bytes of the rows in host memory; 0 if they are on disk.
    resident: u64,
    on_disk: bool,
    /// Mean number of stored values of a row over all ranks, if rows stay sparse.
    sparse: Option<usize>,
}

impl OwnRows {
    /// Opens the rows of `parts`, of `dim` features each, and serves them to the other ranks. All
    /// ranks call this at the same time.
    ///
    /// # Errors
    /// A part cannot be read, parts store different rows, or a rank did not take part.
    pub(super) fn open(
        config: &TrainConfig,
        dir: &PartitionDir,
        parts: &[Part],
        ranks: &Ranks,
        dim: usize,
    ) -> Result<Self> {
        let (sparse, sent) = agreed(config, parts, ranks, dim)?;
        // the density of a single part may differ from that of all
        let config = &TrainConfig {
            sparse: if sparse.is_some() { Switch::On } else { Switch::Off },
            ..config.clone()
        };
        let budget = config.host_budget.0;
        let stored: u64 = parts.iter().map(|part| part.dataset.features.bytes() as u64).sum();
        let on_disk = budget > 0 && stored > budget;
        let kinds: Vec<Option<TableType>> =
            parts.iter().map(|part| part.dataset.features.data.kind()).collect();
        let kind = match kinds[..] {
            [Some(first), ..] if kinds.iter().all(|kind| *kind == Some(first)) => first,
            _ => TableType::F32,
        };
        let mut tables: Vec<Arc<dyn Feature>> = Vec::with_capacity(parts.len());
        for part in parts {
            if let (true, FeatureData::Csr(rows)) = (on_disk, &part.dataset.features.data) {
                let path = dir.part_path(part.number);
                let file = Arc::new(build::sparse_disk(path.as_ref(), rows, &part.dataset.features)?);
                let kind = memory::table_type(config, &part.dataset);
                tables.push(if sparse.is_some() { file } else { Arc::new(Rounded::new(file, kind)) });
                continue;
            }
            if on_disk {
                let table = StoredTable::features(dir.part_path(part.number))?;
                let file = build::disk(&table, part.dataset.features.verifier())?;
                let read = memory::table_type(config, &part.dataset);
                tables.push(match table.kind == read || read == TableType::F32 {
                    true => Arc::new(file),
                    // as the tables of other ranks
                    false => Arc::new(Rounded::new(Arc::new(file), read)),
                });
                continue;
            }
            let residence = memory::placements(config, &part.dataset).features;
            tables.push(Arc::new(build::rows(config, &part.dataset, residence)?));
        }
        let num_rows: usize = parts.iter().map(|part| part.nodes.len()).sum();
        let resident = match tables.first() {
            Some(table) if !on_disk => num_rows as u64 * table.row_bytes(),
            _ => 0,
        };
        let rows: Arc<dyn Feature> = match &tables[..] {
            [one] => one.clone(),
            // this rank trains on rows of graph stores
            [] => Arc::new(Host::new(&without_rows(dim, kind, sparse))),
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
        Ok(Self { rows, dim, kind, sent, resident, on_disk, sparse })
    }

    /// Returns true if the rows are read from files.
    pub(super) fn is_on_disk(&self) -> bool {
        self.on_disk
    }

    /// Returns true if a cache in host memory also holds own rows: dense ones on disk.
    pub(super) fn caches_own(&self) -> bool {
        self.on_disk && self.sparse.is_none()
    }

    /// Bytes of a row in a cache of the host.
    pub(super) fn cached_bytes(&self) -> u64 {
        match self.sparse {
            Some(mean) => 8 * (1 + mean) as u64,
            None => (self.sent.width() * self.dim) as u64,
        }
    }

    /// Bytes that the rows leave of a budget of host memory.
    pub(super) fn left_of(&self, budget: u64) -> u64 {
        budget.saturating_sub(self.resident)
    }

    /// Features of a rank's dataset: the layout of the rows, without rows.
    pub(super) fn layout(&self) -> Features {
        without_rows(self.dim, self.kind, self.sparse)
    }

    /// Own rows, and rows of other ranks from their owners.
    pub(super) fn with_others(&self, ranks: &Ranks) -> Arc<dyn Feature> {
        match self.sparse {
            Some(mean) => Arc::new(self.sparse_rows(ranks, mean)),
            None => self.before(ranks, Arc::new(self.remote(ranks))),
        }
    }

    /// [`OwnRows::with_others`] with a cache in host memory of `slots` rows, of other ranks or, if
    /// own rows are on disk, of all: the `hottest` ones (at most `slots`), or those that a policy
    /// keeps. Without `hottest`, the cache of a metric is filled later.
    ///
    /// # Errors
    /// The rows cannot be fetched, or the memory cannot be allocated.
    pub(super) fn with_host_cache(
        &self,
        ranks: &Ranks,
        kind: Kind,
        slots: usize,
        hottest: Option<&[NodeId]>,
    ) -> Result<(Arc<dyn Feature>, Option<LateCache>)> {
        let nodes = ranks.book().num_nodes();
        if let Some(mean) = self.sparse {
            let (policy, is_static): (Box<dyn CachePolicy>, _) = match kind {
                Kind::Dynamic(make) => (make(nodes, slots), false),
                Kind::Pinned => (Box::new(Fifo::new(nodes, slots)), true),
            };
            let rows = self.sparse_rows(ranks, mean).with_cache(SparseCache::new(policy, is_static));
            let rows = Arc::new(rows);
            if let Some(hottest) = hottest {
                rows.fill(hottest)?;
                return Ok((rows, None));
            }
            let (filled, choose) = (rows.clone(), self.cached_first(ranks, slots));
            return Ok((rows, Some(LateCache::new(move |ranking| Ok(filled.fill(&choose(ranking))?)))));
        }
        // rows that are sent in 16 bits have these values, and so have own ones on disk
        let (stored, mut filled_later) = (self.sent, None);
        let behind: Arc<dyn Feature> =
            if self.on_disk { self.with_others(ranks) } else { Arc::new(self.remote(ranks)) };
        let cached: Arc<dyn Feature> = match kind {
            Kind::Dynamic(make) => Arc::new(Dynamic::new(make, slots, stored, behind, Level::Host)?),
            Kind::Pinned => {
                let pinned = move |hottest: &[NodeId], behind| {
                    let held = CacheLayout::new(hottest, slots, 1, Placement::Shard);
                    Pinned::new(held, stored, behind, Level::Host)
                };
                match hottest {
                    Some(hottest) => Arc::new(pinned(hottest, behind)?),
                    None => {
                        let (late, choose) = (Arc::new(Late::new(behind)), self.cached_first(ranks, slots));
                        let rows = late.clone();
                        filled_later = Some(LateCache::new(move |ranking| {
                            late.fill(Arc::new(pinned(&choose(ranking), late.behind().clone())?));
                            Ok(())
                        }));
                        rows
                    }
                }
            }
        };
        let rows = if self.on_disk { cached } else { self.before(ranks, cached) };
        Ok((rows, filled_later))
    }

    /// The first `slots` rows of a ranking that a host cache holds: those of other ranks or, if
    /// dense own rows are on disk, of all.
    pub(super) fn cached_first(
        &self,
        ranks: &Ranks,
        slots: usize,
    ) -> impl Fn(&[NodeId]) -> Vec<NodeId> + Send + Sync + use<> {
        let (caches_own, book) = (self.caches_own(), ranks.book().clone());
        move |ranking| {
            ranking.iter().copied().filter(|&v| caches_own || !book.is_own(v)).take(slots).collect()
        }
    }

    fn sparse_rows(&self, ranks: &Ranks, mean: usize) -> SparseRankRows {
        SparseRankRows::new(ranks.post().clone(), ranks.book().clone(), ROWS, self.rows.clone(), mean)
    }

    fn remote(&self, ranks: &Ranks) -> Remote {
        Remote::new(ranks.post().clone(), ranks.book().clone(), ROWS, self.dim).stored_in(self.sent)
    }

    fn before(&self, ranks: &Ranks, others: Arc<dyn Feature>) -> Arc<dyn Feature> {
        let own = Table::Constant(self.rows.clone());
        Arc::new(OwnedAndRemoteRows::new(ranks.book().clone(), own, others))
    }
}

/// Layout of rows of `dim` values, dense of type `kind` or sparse, without rows.
fn without_rows(dim: usize, kind: TableType, sparse: Option<usize>) -> Features {
    let data = match (sparse, kind) {
        (Some(_), _) => FeatureData::Csr(SparseRows::empty(dim)),
        (None, TableType::F16) => FeatureData::F16(Buffer::default()),
        (None, _) => FeatureData::default(),
    };
    Features { dim, data }
}

/// Mean number of stored values of a row over all ranks, if the rows stay sparse, and the type in
/// which the owners of dense rows send them, or f32 if that differs between parts.
fn agreed(
    config: &TrainConfig,
    parts: &[Part],
    ranks: &Ranks,
    dim: usize,
) -> Result<(Option<usize>, TableType)> {
    let (mut rows, mut stored, mut dense) = (0u64, 0u64, 0);
    let read_as =
        |kind| parts.iter().filter(|part| memory::table_type(config, &part.dataset) == kind).count();
    let [f16, bf16] = [TableType::F16, TableType::Bf16].map(|kind| read_as(kind) as u64);
    for part in parts {
        rows += part.nodes.len() as u64;
        match &part.dataset.features.data {
            FeatureData::Csr(own) => stored += own.stored() as u64,
            _ => dense += 1,
        }
    }
    let mut sums = [0; 6];
    for words in ranks.gather(&to_words([rows, stored, dense, parts.len() as u64, f16, bf16]))? {
        sums.iter_mut().zip(of_words(&words)).for_each(|(sum, own)| *sum += own);
    }
    let [rows, stored, dense, all, f16, bf16] = sums;
    let sent = match all {
        0 => TableType::F32,
        _ if f16 == all => TableType::F16,
        _ if bf16 == all => TableType::Bf16,
        _ => TableType::F32,
    };
    if dense == all {
        return Ok((None, sent));
    }
    if dense > 0 {
        return Err(Error::usage(format!(
            "{dense} of {all} parts have dense feature rows and the others sparse ones; partition the \
             dataset again"
        )));
    }
    let keeps = keeps_sparse_rows(config, rows as usize, dim, stored as usize);
    Ok((keeps.then(|| stored.div_ceil(rows.max(1)) as usize), sent))
}
