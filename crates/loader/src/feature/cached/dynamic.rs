//! Rows that come and go as they are asked for.
//!
//! Rows are dealt to shards by their number, each with a policy, its rows and a lock of its own. A
//! read looks all its rows up, shard by shard side by side, and copies those that are held; reads
//! the others from the tier behind, with no lock held; and offers them to their shards (BGL's
//! feature cache engine looks up a whole batch before it inserts, too).
//!
//! **Consistency.** A row is copied from a slot, and to a slot, only under its shard's lock, and
//! between two calls the lock is free a slot holds the row of the id that the policy says: [`keep`]
//! asks the policy and copies under one lock. So a reader never sees a row of another id or half a
//! row, whatever other readers do.
//!
//! **Determinism.** The number of shards is fixed, and a shard sees the rows of a read in their
//! order, so one reader after the other gets the same hits for any number of threads.

use std::{
    sync::{Arc, Mutex},
    time::Instant,
};

use graphmill_core::{NodeId, ObjectPool, Result, matrix::TableType};
use rayon::prelude::*;

use super::{Level, near::Near};
use crate::{
    feature::{
        Beside, Capabilities, Feature, OverlappedFeature, Places, TierTraffic, Traffic, nothing,
        read_overlapped, scatter::Scatter,
    },
    policy::{self, CachePolicy, MISS},
};

/// Shards of a cache that is not small: more than the cores of most machines, so that few readers
/// wait.
const SHARDS: usize = 32;
/// Least slots of a shard.
const SMALL: usize = 256;

/// Some of a cache's slots.
pub(super) struct Shard {
    policy: Box<dyn CachePolicy>,
    near: Near,
}

/// What a read asks of a shard.
#[derive(Default)]
pub(super) struct Part {
    /// Numbers within the shard; after [`serve`] of the rows that are missing.
    pub(super) ids: Vec<NodeId>,
    /// Which rows of the request they are.
    pub(super) rows: Vec<u32>,
    slots: Vec<u32>,
    /// How many were held.
    pub(super) hits: u64,
}

/// Whatever lets one thread at a time in: the system's lock, or a model checker's.
pub(super) trait Lock<T> {
    fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R;
}

impl<T> Lock<T> for Mutex<T> {
    fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        work(&mut self.lock().expect("no reader has panicked while it held a part of the cache"))
    }
}

/// Copies the rows of `part` that are held to their places in `out`, and leaves the others in
/// `part`.
pub(super) fn serve(shard: &impl Lock<Shard>, part: &mut Part, out: &Scatter) {
    let Part { ids, rows, slots, hits } = part;
    let mut missing = 0;
    shard.with(|Shard { policy, near }| {
        policy.look_up(ids, slots);
        for i in 0..ids.len() {
            if slots[i] == MISS {
                (ids[missing], rows[missing]) = (ids[i], rows[i]);
                missing += 1;
            } else {
                // SAFETY: a request's rows are dealt to its parts, each to one, so no one else asks
                // for this one
                near.get(slots[i], unsafe { out.row(rows[i] as usize) });
            }
        }
    });
    *hits = (ids.len() - missing) as u64;
    ids.truncate(missing);
    rows.truncate(missing);
}

/// Offers the rows of `part`, which `row` gives, to the shard.
pub(super) fn keep<'r>(shard: &impl Lock<Shard>, part: &mut Part, row: impl Fn(u32) -> &'r [f32]) {
    let Part { ids, rows, slots, .. } = part;
    shard.with(|Shard { policy, near }| {
        policy.admit(ids, slots);
        // in this order: of two that are given one slot the later holds it
        for (&slot, &i) in slots.iter().zip(rows.iter()) {
            if slot != MISS {
                near.put(slot, row(i));
            }
        }
    });
}

impl Shard {
    /// Of so many ids, `slots` of them held, with rows of `dim` values.
    ///
    /// # Errors
    /// There is no memory for them.
    pub(super) fn new(
        make: policy::Make,
        ids: usize,
        slots: usize,
        dim: usize,
        kind: TableType,
    ) -> Result<Self> {
        let policy = make(ids, slots);
        let near = Near::new(policy.capacity(), dim, kind)?;
        Ok(Self { policy, near })
    }
}

/// A cache whose rows come and go.
pub struct Dynamic {
    shards: Vec<Mutex<Shard>>,
    dim: usize,
    kind: TableType,
    behind: Arc<dyn Feature>,
    level: Level,
    scratch: ObjectPool<Scratch>,
}

/// Memory of one read.
#[derive(Default)]
struct Scratch {
    parts: Vec<Part>,
    missing: Vec<bool>,
    ids: Vec<NodeId>,
    places: Vec<u32>,
}

impl Dynamic {
    /// `slots` rows in all, stored as `kind`, in front of `behind`. Several devices share the
    /// shards out among them.
    ///
    /// # Errors
    /// There is no memory for them.
    pub fn new(
        make: policy::Make,
        slots: usize,
        kind: TableType,
        behind: Arc<dyn Feature>,
        level: Level,
    ) -> Result<Self> {
        let (rows, dim) = (behind.num_rows(), behind.dim());
        let devices = level.devices();
        // a multiple of the devices: shard s is on device s mod devices
        let count = SHARDS.min(slots / SMALL).max(1).next_multiple_of(devices);
        let shard = |s: usize| {
            let ids = rows.saturating_sub(s).div_ceil(count);
            let slots = slots / count + usize::from(s < slots % count);
            Ok(Mutex::new(Shard::new(make, ids, slots, dim, kind)?))
        };
        let shards = (0..count).map(shard).collect::<Result<_>>()?;
        Ok(Self { shards, dim, kind, behind, level, scratch: ObjectPool::default() })
    }
}

impl Feature for Dynamic {
    fn dim(&self) -> usize {
        self.dim
    }

    fn num_rows(&self) -> usize {
        self.behind.num_rows()
    }

    fn read_to(&self, ids: &[NodeId], places: Places, out: &mut [f32]) -> Result<Traffic> {
        self.read_overlapped(ids, places, out, &mut nothing)
    }

    fn row_bytes(&self) -> u64 {
        self.behind.row_bytes()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities { overlapped: Some(self), ..Capabilities::default() }
    }
}

impl OverlappedFeature for Dynamic {
    fn read_overlapped(
        &self,
        ids: &[NodeId],
        places: Places,
        out: &mut [f32],
        beside: &mut Beside,
    ) -> Result<Traffic> {
        self.scratch.with(|Scratch { parts, missing, ids: far, places: far_places }| {
            let began = Instant::now();
            let (dim, count) = (self.dim, self.shards.len());
            parts.resize_with(count, Part::default);
            for part in &mut *parts {
                part.ids.clear();
                part.rows.clear();
            }
            for (i, &v) in ids.iter().enumerate() {
                let part = &mut parts[v as usize % count];
                part.ids.push(v / count as NodeId);
                part.rows.push(i as u32);
            }
            let scatter = Scatter::new(out, dim, ids.len(), places);
            parts.par_iter_mut().zip(&self.shards).for_each(|(part, shard)| serve(shard, part, &scatter));
            let mut own = TierTraffic::default();
            let mut peers = TierTraffic::default();
            for (s, part) in parts.iter().enumerate() {
                let side = if self.level.is_own(s % self.level.devices()) { &mut own } else { &mut peers };
                side.rows += part.hits;
                side.bytes += part.hits * (dim * self.kind.width()) as u64;
            }
            missing.clear();
            missing.resize(ids.len(), false);
            parts.iter().flat_map(|part| &part.rows).for_each(|&i| missing[i as usize] = true);
            far.clear();
            far_places.clear();
            for (i, _) in missing.iter().enumerate().filter(|(_, missing)| **missing) {
                far.push(ids[i]);
                far_places.push(match places {
                    Places::InOrder => i as u32,
                    Places::At(at) => at[i],
                });
            }
            own.nanos = TierTraffic::since(began, 0, 0).nanos;
            let mut behind = Traffic::default();
            if far.is_empty() {
                behind += beside(out)?;
            } else {
                behind = read_overlapped(&*self.behind, far, Places::At(far_places), out, beside)?;
                let began = Instant::now();
                let out = &*out;
                let row = |i: u32| {
                    let row = match places {
                        Places::InOrder => i as usize,
                        Places::At(at) => at[i as usize] as usize,
                    };
                    &out[row * dim..(row + 1) * dim]
                };
                parts.par_iter_mut().zip(&self.shards).for_each(|(part, shard)| keep(shard, part, row));
                own.nanos += TierTraffic::since(began, 0, 0).nanos;
            }
            let mut traffic = self.level.traffic(own, peers);
            traffic += behind;
            Ok(traffic)
        })
    }
}
