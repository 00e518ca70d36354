//! Caches of sparse rows, whose rows have different lengths.
//!
//! A slot of a [`SparseCache`] is a row in memory of its own, so the cache bounds the number of
//! rows, not their bytes. A [`Dynamic`](super::Dynamic) of sparse rows has one for each device that
//! shares it: device `v mod N` holds node `v`. A read clones pointers to the cached rows under the
//! lock of a device, reads the misses without a lock, and offers them to their devices.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use graphmill_core::{Error, Matrix, NodeId, Result, memory};

use super::{Level, Reader};
use crate::{
    feature::{TierTraffic, Traffic},
    policy::{self, CachePolicy, MISS},
};

/// A sparse row of a cache.
pub type CachedRow = Arc<(Vec<u32>, Vec<f32>)>;

/// Bytes of sparse rows at rest: a start for each, and columns and values.
pub fn sparse_bytes(rows: usize, stored: usize) -> u64 {
    8 * (rows + stored) as u64
}

/// Error of rows that are read sparse from a tier of dense ones.
pub(super) fn dense_rows() -> Error {
    Error::invalid("a cache of sparse rows reads from a tier of dense rows; cache dense rows instead")
}

/// Cache of sparse rows. It bounds the number of rows, not their bytes.
pub struct SparseCache(Mutex<Slots>);

struct Slots {
    policy: Box<dyn CachePolicy>,
    rows: Vec<CachedRow>,
    /// True if rows are admitted after the first ones.
    admits: bool,
    slots: Vec<u32>,
}

impl SparseCache {
    /// Creates an empty cache with this policy. If `is_static`, it only ever holds the rows that it
    /// admits with `first`.
    pub fn new(policy: Box<dyn CachePolicy>, is_static: bool) -> Self {
        let rows = vec![CachedRow::default(); policy.capacity()];
        Self(Mutex::new(Slots { policy, rows, admits: !is_static, slots: Vec::new() }))
    }

    fn with<T>(&self, work: impl FnOnce(&mut Slots) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks up `ids`; `None` for those that are not cached.
    pub fn look_up(&self, ids: &[NodeId]) -> Vec<Option<CachedRow>> {
        self.with(|Slots { policy, rows, slots, .. }| {
            policy.look_up(ids, slots);
            let row = |&slot: &u32| (slot != MISS).then(|| rows[slot as usize].clone());
            memory::demand_collect(slots.iter().map(row))
        })
    }

    /// Offers rows that have been read, columns and values, and returns the bytes of those that the
    /// cache takes ([`sparse_bytes`]).
    pub fn admit<'r>(
        &self,
        ids: &[NodeId],
        row: impl Fn(usize) -> (&'r [u32], &'r [f32]),
        first: bool,
    ) -> u64 {
        self.with(|Slots { policy, rows, admits, slots }| {
            let mut bytes = 0;
            if !(*admits || first) {
                return bytes;
            }
            policy.admit(ids, slots);
            for (i, &slot) in slots.iter().enumerate() {
                if slot != MISS {
                    let (columns, values) = row(i);
                    rows[slot as usize] = Arc::new((columns.to_vec(), values.to_vec()));
                    bytes += sparse_bytes(1, columns.len());
                }
            }
            bytes
        })
    }
}

/// Memory that holds a row of a request, and its number there.
#[derive(Clone, Copy)]
enum Place {
    Cached(u32),
    Far(u32),
}

/// Rows that a request has in one shard: ids within the shard, and numbers in a list of rows.
type Share = (Vec<NodeId>, Vec<u32>);

/// One cache per device, for `slots` of `rows` rows in total.
pub(super) fn shards(make: policy::Make, rows: usize, slots: usize, level: Level) -> Arc<[SparseCache]> {
    let count = level.devices();
    let shard = |s: usize| {
        let ids = rows.saturating_sub(s).div_ceil(count);
        SparseCache::new(make(ids, slots / count + usize::from(s < slots % count)), false)
    };
    (0..count).map(shard).collect()
}

/// Gathers the rows of `ids` from the shards of the devices, and their misses from the next tier,
/// whose rows `missed` holds meanwhile.
pub(super) fn gather(
    shards: &[SparseCache],
    reader: &Reader,
    ids: &[NodeId],
    missed: &mut Matrix,
    out: &mut Matrix,
) -> Result<Traffic> {
    let (began, level, count) = (Instant::now(), reader.level, shards.len());
    let mut shares: Vec<Share> = vec![Share::default(); count];
    for (i, &v) in (0..).zip(ids) {
        let (of_shard, at) = &mut shares[v as usize % count];
        memory::demand_push(of_shard, v / count as NodeId);
        memory::demand_push(at, i);
    }
    let (mut own, mut peers) = (TierTraffic::default(), TierTraffic::default());
    let (mut from, mut cached) = (Vec::new(), Vec::new());
    memory::demand_len(&mut from, ids.len(), Place::Far(0));
    for (s, (of_shard, at)) in shares.iter_mut().enumerate() {
        let side = if level.is_own(s) { &mut own } else { &mut peers };
        for (row, &i) in shards[s].look_up(of_shard).into_iter().zip(&*at) {
            let Some(row) = row else { continue };
            from[i as usize] = Place::Cached(cached.len() as u32);
            side.rows += 1;
            side.bytes += sparse_bytes(1, row.0.len());
            memory::demand_push(&mut cached, row);
        }
        of_shard.clear();
        at.clear();
    }
    let mut far = Vec::new();
    for (place, &v) in from.iter_mut().zip(ids) {
        if let Place::Far(number) = place {
            *number = far.len() as u32;
            let (of_shard, numbers) = &mut shares[v as usize % count];
            memory::demand_push(of_shard, v / count as NodeId);
            memory::demand_push(numbers, *number);
            memory::demand_push(&mut far, v);
        }
    }
    own.nanos = TierTraffic::since(began, 0, 0).nanos;
    let mut traffic = level.traffic(own, reader.cross(peers, began));
    if !far.is_empty() {
        traffic += reader.behind.gather(&far, missed)?;
        if !missed.is_sparse() {
            return Err(dense_rows());
        }
    }
    let (began, missed) = (Instant::now(), missed.view());
    let far_row = |number: u32| missed.sparse_row(number as usize).unwrap_or_default();
    let mut written = 0;
    for (s, (shard, (of_shard, numbers))) in shards.iter().zip(&shares).enumerate() {
        let bytes = shard.admit(of_shard, |i| far_row(numbers[i]), false);
        written += if level.is_own(s) { 0 } else { bytes };
    }
    reader.write_to_peers(written, began);
    let all = memory::demand_collect(0..ids.len() as u32);
    out.gather_sparse_with(reader.behind.dim(), &all, |i| match from[i as usize] {
        Place::Cached(row) => (&cached[row as usize].0[..], &cached[row as usize].1[..]),
        Place::Far(number) => far_row(number),
    });
    traffic += level.traffic(TierTraffic::since(began, 0, 0), TierTraffic::default());
    Ok(traffic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::fifo::Fifo;

    #[test]
    fn static_caches_hold_their_first_rows() {
        let row = |i: usize| if i == 0 { (&[3][..], &[1.5][..]) } else { (&[][..], &[][..]) };
        for is_static in [true, false] {
            let cache = SparseCache::new(Box::new(Fifo::new(10, 2)), is_static);
            cache.admit(&[4, 6], row, true);
            cache.admit(&[8], row, false);
            let found = cache.look_up(&[4, 6, 8]);
            let held: Vec<bool> = found.iter().map(Option::is_some).collect();
            assert_eq!(held, [is_static, true, !is_static]);
            assert_eq!(*found[if is_static { 0 } else { 2 }].clone().unwrap(), (vec![3], vec![1.5]));
        }
    }
}
