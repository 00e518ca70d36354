//! A cache whose rows are admitted and evicted by a policy.
//!
//! Rows are assigned to shards by their number; each shard has its policy, its rows and its lock. A
//! read looks up all its rows, shard by shard in parallel, and copies the hits. It then reads the
//! misses from the next tier without holding a lock, and offers them to their shards (BGL's feature
//! cache engine also looks up a whole batch before it inserts).
//!
//! **Consistency.** A row is copied from or to a slot only under its shard's lock, and whenever the
//! lock is free, a slot holds the row of the id that the policy reports: [`admit`] calls the policy
//! and copies under one lock. So a reader never sees a row of another id or a partial row, whatever
//! other readers do.
//!
//! **Determinism.** The number of shards is fixed, and a shard sees the rows of a read in their
//! order, so successive reads have the same hits for any number of threads.

#![allow(unsafe_code, reason = "disjoint parallel writes")]

use std::{
    sync::{Arc, Mutex},
    time::Instant,
};

use graphmill_core::{Matrix, NodeId, ObjectPool, Result, matrix::TableType, memory};
use rayon::prelude::*;

use super::{
    Level, Reader, RowFormat,
    rows::CachedRows,
    sparse::{self, SparseCache},
};
use crate::{
    feature::{
        Capabilities, Feature, Link, OutputRows, OverlappedFeature, OverlappedWork, TierTraffic, Traffic,
        no_work, read_overlapped, scatter::Scatter, widen::widen_sparse,
    },
    policy::{self, CachePolicy, MISS},
};

/// Maximum number of shards: more than the cores of most machines, so that few readers wait.
const MAX_SHARDS: usize = 32;
/// Minimum number of slots per shard.
const MIN_SHARD_SLOTS: usize = 256;

/// Shard of a cache: a policy with its rows.
pub(super) struct Shard {
    policy: Box<dyn CachePolicy>,
    rows: CachedRows,
}

/// Rows that a read requests from a shard.
#[derive(Default)]
pub(super) struct ShardRequest {
    /// Ids within the shard; after [`serve`], those of the misses.
    pub(super) ids: Vec<NodeId>,
    /// Index of each row in the request.
    pub(super) rows: Vec<u32>,
    slots: Vec<u32>,
    /// Number of hits.
    pub(super) hits: u64,
    /// Number of misses that [`admit`] wrote to the shard.
    pub(super) written: u64,
}

/// A lock that admits one thread at a time: the system's, or a model checker's.
pub(super) trait Lock<T> {
    fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R;
}

impl<T> Lock<T> for Mutex<T> {
    fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        work(&mut self.lock().expect("no reader panicked while it held a shard of the cache"))
    }
}

/// Copies the hits of `part` to their positions in `out`, and leaves the misses in `part`.
pub(super) fn serve(shard: &impl Lock<Shard>, part: &mut ShardRequest, out: &Scatter) {
    let ShardRequest { ids, rows, slots, hits, .. } = part;
    let mut missing = 0;
    // memory that is refused while the lock is held would poison it
    slots.clear();
    memory::demand(slots, ids.len());
    shard.with(|Shard { policy, rows: cached }| {
        policy.look_up(ids, slots);
        for i in 0..ids.len() {
            if slots[i] == MISS {
                (ids[missing], rows[missing]) = (ids[i], rows[i]);
                missing += 1;
            } else {
                // SAFETY: each row of a request is in exactly one part, so no other call has this
                // row
                cached.get(slots[i], unsafe { out.row(rows[i] as usize) });
            }
        }
    });
    *hits = (ids.len() - missing) as u64;
    ids.truncate(missing);
    rows.truncate(missing);
}

/// Offers the rows of `part`, which `row` returns, to the shard, and counts those that it takes.
pub(super) fn admit<'r>(shard: &impl Lock<Shard>, part: &mut ShardRequest, row: impl Fn(u32) -> &'r [f32]) {
    let ShardRequest { ids, rows, slots, written, .. } = part;
    slots.clear();
    memory::demand(slots, ids.len());
    shard.with(|Shard { policy, rows: cached }| {
        policy.admit(ids, slots);
        // in order: if two ids received one slot, the later one holds it
        for (&slot, &i) in slots.iter().zip(rows.iter()) {
            if slot != MISS {
                cached.put(slot, row(i));
            }
        }
    });
    *written = slots.iter().filter(|&&slot| slot != MISS).count() as u64;
}

impl Shard {
    /// Creates a shard of `ids` ids and `slots` slots, for rows of `dim` values.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub(super) fn new(
        make: policy::Make,
        ids: usize,
        slots: usize,
        dim: usize,
        kind: TableType,
    ) -> Result<Self> {
        let policy = make(ids, slots);
        let rows = CachedRows::new(policy.capacity(), dim, kind)?;
        Ok(Self { policy, rows })
    }
}

/// A cache whose rows are admitted and evicted by a policy, or a reader of one that several devices
/// share.
pub struct Dynamic {
    shards: Shards,
    dim: usize,
    reader: Reader,
    scratch: ObjectPool<Scratch>,
}

/// Shards of a cache, by the form of its rows.
#[derive(Clone)]
enum Shards {
    Dense(Arc<[Mutex<Shard>]>, TableType),
    Sparse(Arc<[SparseCache]>),
}

/// Scratch buffers of one read.
#[derive(Default)]
struct Scratch {
    parts: Vec<ShardRequest>,
    missing: Vec<bool>,
    ids: Vec<NodeId>,
    places: Vec<u32>,
    /// Rows of a request, and its misses, if rows are sparse.
    sparse: [Matrix; 2],
}

impl Dynamic {
    /// Creates a cache of `slots` rows in total, stored in this format, in front of `behind`.
    /// Several devices divide the shards among them.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub fn new(
        make: policy::Make,
        slots: usize,
        format: impl Into<RowFormat>,
        behind: Arc<dyn Feature>,
        level: Level,
    ) -> Result<Self> {
        let (rows, dim) = (behind.num_rows(), behind.dim());
        let with = |shards: Shards, behind| Self {
            shards,
            dim,
            reader: Reader::new(behind, level),
            scratch: ObjectPool::default(),
        };
        let kind = match format.into() {
            RowFormat::Dense(kind) => kind,
            RowFormat::Sparse => {
                return Ok(with(Shards::Sparse(sparse::shards(make, rows, slots, level)), behind));
            }
        };
        let devices = level.devices();
        // a multiple of the devices: shard s is on device s mod devices
        let count = MAX_SHARDS.min(slots / MIN_SHARD_SLOTS).max(1).next_multiple_of(devices);
        let shard = |s: usize| {
            let ids = rows.saturating_sub(s).div_ceil(count);
            let slots = slots / count + usize::from(s < slots % count);
            Ok(Mutex::new(Shard::new(make, ids, slots, dim, kind)?))
        };
        let shards = (0..count).map(shard).collect::<Result<_>>()?;
        Ok(with(Shards::Dense(shards, kind), behind))
    }

    /// The same rows as device `reader` reads them; `behind` is the tier of its misses.
    #[must_use]
    pub fn reader(&self, reader: usize, behind: Arc<dyn Feature>) -> Self {
        let Self { shards, dim, reader: first, .. } = self;
        let reader = first.on(reader, behind);
        Self { shards: shards.clone(), dim: *dim, reader, scratch: ObjectPool::default() }
    }

    /// The same cache with a link over which it reads the rows of other devices.
    #[must_use]
    pub fn with_peer_link(mut self, link: Arc<Link>) -> Self {
        self.reader.peer_link = Some(link);
        self
    }
}

impl Feature for Dynamic {
    fn dim(&self) -> usize {
        self.dim
    }

    fn num_rows(&self) -> usize {
        self.reader.behind.num_rows()
    }

    fn read_to(&self, ids: &[NodeId], places: OutputRows, out: &mut [f32]) -> Result<Traffic> {
        self.read_overlapped(ids, places, out, &mut no_work)
    }

    fn gather(&self, ids: &[NodeId], out: &mut Matrix) -> Result<Traffic> {
        let Shards::Sparse(shards) = &self.shards else {
            out.resize(ids.len(), self.dim);
            return self.read(ids, out.view_mut().host());
        };
        self.scratch.with(|Scratch { sparse: [_, missed], .. }| {
            sparse::gather(shards, &self.reader, ids, missed, out)
        })
    }

    fn row_bytes(&self) -> u64 {
        self.reader.behind.row_bytes()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities { overlapped: Some(self), ..Capabilities::default() }
    }
}

/// Divides a request among `count` shards.
fn divide(ids: &[NodeId], count: usize, parts: &mut Vec<ShardRequest>) {
    parts.resize_with(count, ShardRequest::default);
    for part in &mut *parts {
        part.ids.clear();
        part.rows.clear();
    }
    for (i, &v) in ids.iter().enumerate() {
        let part = &mut parts[v as usize % count];
        memory::demand_push(&mut part.ids, v / count as NodeId);
        memory::demand_push(&mut part.rows, i as u32);
    }
}

impl OverlappedFeature for Dynamic {
    fn read_overlapped(
        &self,
        ids: &[NodeId],
        places: OutputRows,
        out: &mut [f32],
        work: &mut OverlappedWork,
    ) -> Result<Traffic> {
        let (shards, kind) = match &self.shards {
            Shards::Dense(shards, kind) => (shards, *kind),
            Shards::Sparse(shards) => {
                return self.scratch.with(|Scratch { sparse: [rows, missed], .. }| {
                    let mut traffic = sparse::gather(shards, &self.reader, ids, missed, rows)?;
                    widen_sparse(rows.view(), places, out);
                    traffic += work(out)?;
                    Ok(traffic)
                });
            }
        };
        self.scratch.with(|Scratch { parts, missing, ids: far, places: far_places, .. }| {
            let began = Instant::now();
            let (dim, count) = (self.dim, shards.len());
            let row_bytes = (dim * kind.width()) as u64;
            divide(ids, count, parts);
            let scatter = Scatter::new(out, dim, ids.len(), places);
            parts.par_iter_mut().zip(&**shards).for_each(|(part, shard)| serve(shard, part, &scatter));
            let mut own = TierTraffic::default();
            let mut peers = TierTraffic::default();
            let level = self.reader.level;
            for (s, part) in parts.iter().enumerate() {
                let side = if level.is_own(s % level.devices()) { &mut own } else { &mut peers };
                side.rows += part.hits;
                side.bytes += part.hits * row_bytes;
            }
            missing.clear();
            memory::demand_len(missing, ids.len(), false);
            parts.iter().flat_map(|part| &part.rows).for_each(|&i| missing[i as usize] = true);
            far.clear();
            far_places.clear();
            for (i, _) in missing.iter().enumerate().filter(|(_, missing)| **missing) {
                memory::demand_push(far, ids[i]);
                let place = match places {
                    OutputRows::InOrder => i as u32,
                    OutputRows::At(at) => at[i],
                };
                memory::demand_push(far_places, place);
            }
            own.nanos = TierTraffic::since(began, 0, 0).nanos;
            let peers = self.reader.cross(peers, began);
            let mut later = Traffic::default();
            if far.is_empty() {
                later += work(out)?;
            } else {
                later = read_overlapped(&*self.reader.behind, far, OutputRows::At(far_places), out, work)?;
                let began = Instant::now();
                let out = &*out;
                let row = |i: u32| {
                    let row = match places {
                        OutputRows::InOrder => i as usize,
                        OutputRows::At(at) => at[i as usize] as usize,
                    };
                    &out[row * dim..(row + 1) * dim]
                };
                parts.par_iter_mut().zip(&**shards).for_each(|(part, shard)| admit(shard, part, row));
                let of_peers = |s: &usize| !level.is_own(s % level.devices());
                let written = (0..count).filter(of_peers).map(|s| parts[s].written * row_bytes);
                self.reader.write_to_peers(written.sum(), began);
                own.nanos += TierTraffic::since(began, 0, 0).nanos;
            }
            let mut traffic = level.traffic(own, peers);
            traffic += later;
            Ok(traffic)
        })
    }
}
