//! Feature rows of a rank: those of its own parts, and those of other ranks behind them.
//!
//! Rows that are stored sparse stay sparse if a single process would keep them so
//! ([`keeps_sparse_rows`]): in the parts, on the wire and in caches.
//!
//! With `--bottom exact` the table has two rows for each node, at the node's owner: its features,
//! and the aggregate of its neighbours ([`OwnRows::with_aggregates`]).

use std::sync::Arc;

use graphmill_core::{Buffer, Features, NodeId, SparseRows, features::FeatureData, matrix::TableType};
use graphmill_data::{
    Dataset,
    dataset::StoredTable,
    partition::{Part, PartitionDir},
};
use graphmill_distributed::{
    NodeOwnership,
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
#[derive(Clone)]
pub(super) struct OwnRows {
    rows: Arc<dyn Feature>,
    /// The feature rows of each part, which those of the aggregates may follow.
    tables: Vec<Arc<dyn Feature>>,
    /// Owners of the rows: those of the nodes, whose aggregates may follow.
    book: Arc<NodeOwnership>,
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
    /// True if the parts store sparse rows, which may be kept as dense ones.
    is_stored_sparse: bool,
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
        let Agreed { sparse, sent, is_stored_sparse } = agreed(config, parts, ranks, dim)?;
        // the density of a single part may differ from that of all
        let config = &TrainConfig {
            sparse: if sparse.is_some() { Switch::On } else { Switch::Off },
            ..config.clone()
        };
        let stored: u64 = parts.iter().map(|part| part.dataset.features.bytes() as u64).sum();
        let on_disk = is_beyond(config, stored);
        let kinds: Vec<Option<TableType>> =
            parts.iter().map(|part| part.dataset.features.data.kind()).collect();
        let kind = match kinds[..] {
            [Some(first), ..] if kinds.iter().all(|kind| *kind == Some(first)) => first,
            _ => TableType::F32,
        };
        let tables = feature_tables(config, dir, parts, (on_disk, sparse.is_some()))?;
        let num_rows: usize = parts.iter().map(|part| part.nodes.len()).sum();
        let resident = resident(&tables, num_rows, on_disk);
        let rows: Arc<dyn Feature> = match &tables[..] {
            [one] => one.clone(),
            // this rank trains on rows of graph stores
            [] => Arc::new(Host::new(&without_rows(dim, kind, sparse))),
            _ => {
                let rows = ConcatRows::new(tables.clone(), parts.iter().map(|part| &part.nodes[..]))?;
                Arc::new(if sparse.is_some() { rows.sparse() } else { rows })
            }
        };
        let book = ranks.book().clone();
        let own = Self { rows, tables, book, dim, kind, sent, resident, on_disk, sparse, is_stored_sparse };
        own.serve(ranks);
        Ok(own)
    }

    /// The rows followed by the aggregates of each part's nodes, each with its file, and all of
    /// them in the tier that `--host-budget` leaves. [`OwnRows::serve`] serves them.
    ///
    /// # Errors
    /// A file cannot be opened, or memory cannot be allocated.
    pub(super) fn with_aggregates(
        &self,
        config: &TrainConfig,
        dir: &PartitionDir,
        parts: &[Part],
        aggregates: Vec<(Features, Option<StoredTable>)>,
    ) -> Result<Self> {
        let config = &TrainConfig { sparse: Switch::Off, ..config.clone() };
        let stored: u64 = parts.iter().map(|part| part.dataset.features.bytes() as u64).sum();
        let on_disk = is_beyond(config, 2 * stored);
        let mut tables = match on_disk == self.on_disk {
            true => self.tables.clone(),
            false => feature_tables(config, dir, parts, (on_disk, false))?,
        };
        for (part, (features, file)) in parts.iter().zip(aggregates) {
            let data = Dataset { features, ..part.dataset.clone() };
            tables.push(dense_table(config, &data, file.filter(|_| on_disk).as_ref())?);
        }
        let book = Arc::new(self.book.doubled()?);
        let nodes = book.num_nodes() / 2;
        let second = |part: &Part| part.nodes.iter().map(|v| v + nodes as NodeId).collect();
        let second: Vec<Vec<NodeId>> = parts.iter().map(second).collect();
        let ids = parts.iter().map(|part| &part.nodes[..]).chain(second.iter().map(|ids| &ids[..]));
        let rows: Arc<dyn Feature> = match tables[..] {
            [] => self.rows.clone(),
            _ => Arc::new(ConcatRows::new(tables.clone(), ids)?),
        };
        let resident = resident(&tables, book.num_own(), on_disk);
        Ok(Self { rows, tables, book, resident, on_disk, ..self.clone() })
    }

    /// Serves the rows to the other ranks, in the place of those that were served before.
    pub(super) fn serve(&self, ranks: &Ranks) {
        let (post, book, rows) = (ranks.post(), self.book.clone(), self.rows.clone());
        match self.sparse {
            Some(_) => post.serve(ROWS, Arc::new(SparseRowService::new(book, rows))),
            None => post.serve(ROWS, Arc::new(RowService::new(book, Table::Constant(rows)))),
        }
    }

    /// Owners of the rows.
    pub(super) fn book(&self) -> &Arc<NodeOwnership> {
        &self.book
    }

    /// Returns true if the parts store sparse rows.
    pub(super) fn is_stored_sparse(&self) -> bool {
        self.is_stored_sparse
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
            None => self.before(Arc::new(self.remote(ranks))),
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
        let nodes = self.book.num_nodes();
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
            let (filled, choose) = (rows.clone(), self.cached_first(slots));
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
                        let (late, choose) = (Arc::new(Late::new(behind)), self.cached_first(slots));
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
        let rows = if self.on_disk { cached } else { self.before(cached) };
        Ok((rows, filled_later))
    }

    /// The first `slots` rows of a ranking that a host cache holds: those of other ranks or, if
    /// dense own rows are on disk, of all.
    pub(super) fn cached_first(
        &self,
        slots: usize,
    ) -> impl Fn(&[NodeId]) -> Vec<NodeId> + Send + Sync + use<> {
        let (caches_own, book) = (self.caches_own(), self.book.clone());
        move |ranking| {
            ranking.iter().copied().filter(|&v| caches_own || !book.is_own(v)).take(slots).collect()
        }
    }

    fn sparse_rows(&self, ranks: &Ranks, mean: usize) -> SparseRankRows {
        SparseRankRows::new(ranks.post().clone(), self.book.clone(), ROWS, self.rows.clone(), mean)
    }

    fn remote(&self, ranks: &Ranks) -> Remote {
        Remote::new(ranks.post().clone(), self.book.clone(), ROWS, self.dim).stored_in(self.sent)
    }

    fn before(&self, others: Arc<dyn Feature>) -> Arc<dyn Feature> {
        let own = Table::Constant(self.rows.clone());
        Arc::new(OwnedAndRemoteRows::new(self.book.clone(), own, others))
    }
}

/// Returns true if `bytes` of rows exceed `--host-budget`, so that they are read from files.
fn is_beyond(config: &TrainConfig, bytes: u64) -> bool {
    let budget = config.host_budget.0;
    budget > 0 && bytes > budget
}

/// Bytes of `count` rows of these tables in host memory.
fn resident(tables: &[Arc<dyn Feature>], count: usize, on_disk: bool) -> u64 {
    match tables.first() {
        Some(table) if !on_disk => count as u64 * table.row_bytes(),
        _ => 0,
    }
}

/// The feature rows of each part, in memory or on disk, which may stay sparse.
///
/// # Errors
/// A file cannot be opened, or memory cannot be allocated.
fn feature_tables(
    config: &TrainConfig,
    dir: &PartitionDir,
    parts: &[Part],
    (on_disk, stays_sparse): (bool, bool),
) -> Result<Vec<Arc<dyn Feature>>> {
    let table = |part: &Part| -> Result<Arc<dyn Feature>> {
        let (data, path) = (&part.dataset, dir.part_path(part.number));
        if let (true, FeatureData::Csr(rows)) = (on_disk, &data.features.data) {
            let file = Arc::new(build::sparse_disk(&path, rows, &data.features)?);
            let kind = memory::table_type(config, data);
            return Ok(if stays_sparse { file } else { Arc::new(Rounded::new(file, kind)) });
        }
        let file = on_disk.then(|| StoredTable::features(path)).transpose()?;
        dense_table(config, data, file.as_ref())
    };
    parts.iter().map(table).collect()
}

/// The feature rows of `data`, from `file` if it is given, or else in memory.
///
/// # Errors
/// The file cannot be opened, or memory cannot be allocated.
fn dense_table(config: &TrainConfig, data: &Dataset, file: Option<&StoredTable>) -> Result<Arc<dyn Feature>> {
    let Some(table) = file else {
        let residence = memory::placements(config, data).features;
        return Ok(Arc::new(build::rows(config, data, residence)?));
    };
    let file = build::disk(table, data.features.verifier())?;
    let read = memory::table_type(config, data);
    Ok(match table.kind == read || read == TableType::F32 {
        true => Arc::new(file),
        // as the tables of other ranks
        false => Arc::new(Rounded::new(Arc::new(file), read)),
    })
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

/// Properties of the rows of all parts, the same on all ranks.
struct Agreed {
    /// Mean number of stored values of a row, if the rows stay sparse.
    sparse: Option<usize>,
    /// Type in which the owners of dense rows send them, or f32 if that differs between parts.
    sent: TableType,
    is_stored_sparse: bool,
}

/// Properties of the rows of all ranks' parts.
fn agreed(config: &TrainConfig, parts: &[Part], ranks: &Ranks, dim: usize) -> Result<Agreed> {
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
        return Ok(Agreed { sparse: None, sent, is_stored_sparse: false });
    }
    if dense > 0 {
        return Err(Error::usage(format!(
            "{dense} of {all} parts have dense feature rows and the others sparse ones; partition the \
             dataset again"
        )));
    }
    let keeps = keeps_sparse_rows(config, rows as usize, dim, stored as usize);
    let sparse = keeps.then(|| stored.div_ceil(rows.max(1)) as usize);
    Ok(Agreed { sparse, sent, is_stored_sparse: true })
}
