//! Rows from devices equal those of the table, byte by byte, and the reported traffic is correct.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::sync::Arc;

use graphmill_core::{
    Features, Matrix, NodeId,
    features::FeatureData,
    keyed,
    matrix::{TableData, TableType},
};
use graphmill_cuda::{
    Device, Queue,
    driver::shim::{Options, Order},
    feature::{Behind, Cached, Dynamic, Policy, Stored, Tiered},
};
use graphmill_loader::{
    Feature,
    feature::{
        DeviceFeature, DeviceIds, Host, OutputRows,
        cached::{CacheLayout, Placement},
    },
    policy::{self, CachePolicy, MISS, fifo::Fifo, lru::Lru},
};
use half::{bf16, f16};
use proptest::prelude::*;

use crate::device;

fn device(index: usize, order: Order) -> Arc<Device> {
    device::device(index, Options { order, ..Options::default() })
}

/// Table whose values encode their position, and its values as f32.
fn table(rows: usize, dim: usize, kind: TableType) -> (TableData, Vec<f32>) {
    let value = |i: usize| keyed::mix(i as u64) as u16 & 0x3fff;
    match kind {
        TableType::F32 => {
            let values: Vec<f32> = (0..rows * dim).map(|i| i as f32 * 0.37 - 5.0).collect();
            (TableData::F32(values.clone().into()), values)
        }
        TableType::F16 => {
            let values: Vec<f16> = (0..rows * dim).map(|i| f16::from_bits(value(i))).collect();
            let wide = values.iter().map(|x| x.to_f32()).collect();
            (TableData::F16(values.into()), wide)
        }
        TableType::Bf16 => {
            let values: Vec<bf16> = (0..rows * dim).map(|i| bf16::from_bits(value(i))).collect();
            let wide = values.iter().map(|x| x.to_f32()).collect();
            (TableData::Bf16(values.into()), wide)
        }
    }
}

fn rows_of(wide: &[f32], dim: usize, ids: &[NodeId]) -> Vec<f32> {
    ids.iter().flat_map(|&v| wide[v as usize * dim..][..dim].iter().copied()).collect()
}

fn kinds() -> impl Strategy<Value = TableType> {
    prop_oneof![Just(TableType::F32), Just(TableType::F16), Just(TableType::Bf16)]
}

fn orders() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::Forward), Just(Order::Reverse), any::<u64>().prop_map(Order::Shuffled)]
}

/// Widths of rows for units of 16, 4 and 2 bytes, shorter and longer than one pass of a warp.
fn dims() -> impl Strategy<Value = usize> {
    prop_oneof![
        Just(1usize),
        Just(3),
        Just(4),
        Just(8),
        Just(33),
        Just(64),
        Just(100),
        Just(128),
        Just(602),
        1usize..300
    ]
}

fn batches(rows: usize) -> impl Strategy<Value = Vec<Vec<NodeId>>> {
    prop::collection::vec(prop::collection::vec(0..rows as NodeId, 0..60), 1..6)
}

/// Distinct rows, hottest first.
fn ranking(rows: usize, seed: u64) -> Vec<NodeId> {
    let mut all: Vec<NodeId> = (0..rows as NodeId).collect();
    keyed::Stream::new(seed).shuffle(&mut all);
    all
}

/// Reads a batch by every method and returns its rows by tier.
fn read(feature: &dyn Feature, wide: &[f32], ids: &[NodeId]) -> [u64; 3] {
    let dim = feature.dim();
    let expected = rows_of(wide, dim, ids);
    let mut out = Matrix::default();
    let traffic = feature.gather(ids, &mut out).unwrap();
    assert!(ids.is_empty() || out.is_on_device());
    assert_eq!((out.num_rows(), out.num_cols()), (ids.len(), dim));
    assert_eq!(out.view().host(), expected);
    let rows = [traffic.device, traffic.peer, traffic.host];
    assert!(rows.iter().all(|tier| tier.bytes == tier.rows * feature.row_bytes()));
    assert_eq!(traffic.total().rows, ids.len() as u64);
    rows.map(|tier| tier.rows)
}

fn read_on_host(feature: &dyn Feature, wide: &[f32], ids: &[NodeId]) {
    let dim = feature.dim();
    let expected = rows_of(wide, dim, ids);
    let mut in_order = vec![-1.0; ids.len() * dim];
    feature.read(ids, &mut in_order).unwrap();
    assert_eq!(in_order, expected);
    let at: Vec<u32> = (0..ids.len() as u32).map(|i| 2 * i + 1).collect();
    let mut spread = vec![-1.0; (2 * ids.len() + 1) * dim];
    let traffic = feature.read_to(ids, OutputRows::At(&at), &mut spread).unwrap();
    assert_eq!(traffic.total().rows, ids.len() as u64);
    for (i, row) in spread.chunks_exact(dim).enumerate() {
        let filled = i % 2 == 1;
        assert!(if filled { row == &expected[i / 2 * dim..][..dim] } else { row.iter().all(|&x| x == -1.0) });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tiers_return_the_rows_of_the_table(
        (rows, dim, kind) in (1usize..90, dims(), kinds()),
        (seed, order) in (any::<u64>(), orders()),
        (slots, devices, placement) in (0usize..100, 1usize..4, 0usize..5),
        is_reordered in any::<bool>(),
        batches in batches(90),
    ) {
        let (data, wide) = table(rows, dim, kind);
        let devices = devices.min(device::count());
        let all: Vec<Arc<Device>> = (0..devices).map(|i| device(i, order)).collect();
        let stored = Stored::new(&all[0], &data, dim).unwrap();
        let placement = [
            Placement::Shard,
            Placement::Interleave,
            Placement::Replicate(0.4),
            Placement::Blocked,
            Placement::Private,
        ][placement];
        // the hottest rows of a reordered dataset come first, and a boundary replaces the map
        let ranking = if is_reordered { (0..rows as NodeId).collect() } else { ranking(rows, seed) };
        let assigned = CacheLayout::new(&ranking, slots, devices, placement);
        let tiers = Tiered::new(&all, &stored, &assigned).unwrap();
        prop_assert_eq!(tiers.len(), devices);
        for (own, tier) in tiers.iter().enumerate() {
            prop_assert_eq!((tier.dim(), tier.num_rows()), (dim, rows));
            let is_in_turns = devices == 1 || placement != Placement::Blocked;
            if is_reordered && is_in_turns {
                prop_assert_eq!(tier.lookup_bytes(), 0, "a boundary needs no map");
            } else {
                prop_assert!([0, 4 * rows as u64].contains(&tier.lookup_bytes()));
            }
            for ids in &batches {
                let ids: Vec<NodeId> = ids.iter().map(|v| v % rows as NodeId).collect();
                let mut expected = [0; 3];
                for v in &ids {
                    let slot = assigned.ids.iter().position(|u| u == v);
                    let tier = match slot {
                        None => 2,
                        Some(slot) if devices == 1 || slot < assigned.replicated => 0,
                        Some(slot) => usize::from(usize::from(assigned.owners[slot]) != own),
                    };
                    expected[tier] += 1;
                }
                prop_assert_eq!(read(tier, &wide, &ids), expected);
                read_on_host(tier, &wide, &ids);
            }
        }
    }

    #[test]
    fn devices_without_rows_read_those_of_others(
        (rows, dim, kind) in (1usize..90, dims(), kinds()),
        (seed, order) in (any::<u64>(), orders()),
        (slots, holders, placement) in (0usize..100, 1usize..4, 0usize..5),
        is_reordered in any::<bool>(),
        batches in batches(90),
    ) {
        let (data, wide) = table(rows, dim, kind);
        let holders = holders.min(device::count().saturating_sub(2).max(1));
        let others = device::count().saturating_sub(holders).min(2);
        let all: Vec<Arc<Device>> = (0..holders + others).map(|i| device(i, order)).collect();
        let stored = Stored::new(&all[0], &data, dim).unwrap();
        let placement = [
            Placement::Shard,
            Placement::Interleave,
            Placement::Replicate(0.4),
            Placement::Replicate(1.0),
            Placement::Blocked,
        ][placement];
        let ranking = if is_reordered { (0..rows as NodeId).collect() } else { ranking(rows, seed) };
        let assigned = CacheLayout::new(&ranking, slots, holders, placement);
        let tiers = Tiered::with_readers(&all[..holders], &all[holders..], &stored, &assigned).unwrap();
        prop_assert_eq!(tiers.len(), holders + others);
        let held: u64 = assigned.rows_by_device(holders).iter().sum::<usize>() as u64;
        let bytes: u64 = tiers[..holders].iter().map(Tiered::device_bytes).sum();
        prop_assert_eq!(bytes, held * tiers[0].row_bytes());
        for tier in &tiers[holders..] {
            prop_assert_eq!(tier.device_bytes(), 0);
            let needs_no_map = is_reordered && assigned.replicated == 0 && placement != Placement::Blocked;
            prop_assert!(tier.lookup_bytes() == 0 || !needs_no_map);
            for ids in &batches {
                let ids: Vec<NodeId> = ids.iter().map(|v| v % rows as NodeId).collect();
                let peers = ids.iter().filter(|v| assigned.ids.contains(v)).count() as u64;
                prop_assert_eq!(read(tier, &wide, &ids), [0, peers, ids.len() as u64 - peers]);
                read_on_host(tier, &wide, &ids);
            }
        }
        for ids in &batches {
            let ids: Vec<NodeId> = ids.iter().map(|v| v % rows as NodeId).collect();
            for tier in &tiers[..holders] {
                read(tier, &wide, &ids);
            }
        }
    }

    #[test]
    fn fifo_hits_match_the_policy_on_the_cpu(
        (rows, dim, kind) in (1usize..90, dims(), kinds()),
        (slots, order) in (0usize..100, orders()),
        batches in batches(90),
    ) {
        let (data, wide) = table(rows, dim, kind);
        let device = device(0, order);
        let stored = Stored::new(&device, &data, dim).unwrap();
        let cache = Dynamic::new(&device, &stored, slots, Policy::Fifo).unwrap();
        let mut policy = Fifo::new(rows, slots);
        let mut found = Vec::new();
        for ids in &batches {
            let ids: Vec<NodeId> = ids.iter().map(|v| v % rows as NodeId).collect();
            policy.look_up(&ids, &mut found);
            let missing: Vec<NodeId> =
                ids.iter().zip(&found).filter(|(_, slot)| **slot == MISS).map(|(&v, _)| v).collect();
            let mut distinct = missing.clone();
            let mut seen = std::collections::HashSet::new();
            distinct.retain(|v| seen.insert(*v));
            policy.admit(&distinct, &mut found);
            let hits = (ids.len() - missing.len()) as u64;
            prop_assert_eq!(read(&cache, &wide, &ids), [hits, 0, missing.len() as u64]);
        }
    }

    #[test]
    fn sieve_keeps_rows_used_since_the_last_pass(
        (rows, dim, kind) in (1usize..40, dims(), kinds()),
        (slots, order) in (0usize..24, orders()),
        batches in prop::collection::vec(prop::collection::vec(0u32..40, 0..14), 1..14),
    ) {
        let (data, wide) = table(rows, dim, kind);
        let device = device(0, order);
        let stored = Stored::new(&device, &data, dim).unwrap();
        let cache = Dynamic::new(&device, &stored, slots, Policy::Sieve).unwrap();
        let mut model = Model::new(slots.min(rows));
        for ids in &batches {
            let ids: Vec<NodeId> = ids.iter().map(|v| v % rows as NodeId).collect();
            let hits = model.batch(&ids);
            prop_assert_eq!(read(&cache, &wide, &ids), [hits, 0, ids.len() as u64 - hits]);
        }
        read_on_host(&cache, &wide, &[0, rows as NodeId - 1, 0]);
    }

    #[test]
    fn policies_of_the_host_give_its_hits(
        (rows, dim, kind) in (1usize..90, dims(), kinds()),
        (slots, order, policy) in (0usize..100, orders(), 0..policy::TABLE.iter().len()),
        is_tier in any::<bool>(),
        batches in batches(90),
    ) {
        let (data, wide) = table(rows, dim, kind);
        let device = device(0, order);
        let behind = behind(&device, &data, dim, is_tier);
        let make = policy::TABLE.iter().nth(policy).unwrap().make;
        let cache = Cached::new(&device, behind.clone(), make(rows, slots)).unwrap();
        let mut policy = make(rows, slots);
        let mut found = Vec::new();
        for ids in &batches {
            let ids: Vec<NodeId> = ids.iter().map(|v| v % rows as NodeId).collect();
            policy.look_up(&ids, &mut found);
            let missing: Vec<NodeId> =
                ids.iter().zip(&found).filter(|(_, slot)| **slot == MISS).map(|(&v, _)| v).collect();
            if !missing.is_empty() {
                policy.admit(&missing, &mut found);
            }
            let hits = (ids.len() - missing.len()) as u64;
            prop_assert_eq!(read(&cache, &wide, &ids), [hits, 0, missing.len() as u64]);
        }
        // a fixed set of rows
        let held: Vec<NodeId> = ranking(rows, 7).into_iter().take(slots).collect();
        let fixed = Cached::new(&device, behind, Box::new(Fifo::new(rows, held.len()))).unwrap();
        let fixed = fixed.holding(&held).unwrap();
        prop_assert_eq!(fixed.device_bytes(), held.len() as u64 * fixed.row_bytes());
        for ids in &batches {
            let ids: Vec<NodeId> = ids.iter().map(|v| v % rows as NodeId).collect();
            let hits = ids.iter().filter(|v| held.contains(v)).count() as u64;
            prop_assert_eq!(read(&fixed, &wide, &ids), [hits, 0, ids.len() as u64 - hits]);
            read_on_host(&fixed, &wide, &ids);
        }
    }
}

/// The table, or a tier of the host that reads it.
fn behind(device: &Arc<Device>, data: &TableData, dim: usize, is_tier: bool) -> Behind {
    if !is_tier {
        return Behind::Table(Stored::new(device, data, dim).unwrap());
    }
    let (kind, data) = match data {
        TableData::F32(values) => (TableType::F32, FeatureData::F32(values.clone())),
        TableData::F16(values) => (TableType::F16, FeatureData::F16(values.clone())),
        TableData::Bf16(values) => {
            let wide: Vec<f32> = values.iter().map(|x| x.to_f32()).collect();
            (TableType::Bf16, FeatureData::F32(wide.into()))
        }
    };
    let host = Host::resident(&Features { dim, data }, kind).unwrap();
    Behind::Tier(Arc::new(host), kind)
}

/// Model of the hand, step by step.
struct Model {
    holder: Vec<Option<NodeId>>,
    used: Vec<bool>,
    hand: usize,
}

impl Model {
    fn new(slots: usize) -> Self {
        Self { holder: vec![None; slots], used: vec![false; slots], hand: 0 }
    }

    /// Admits a batch and returns its number of hits.
    fn batch(&mut self, ids: &[NodeId]) -> u64 {
        let slots = self.holder.len();
        let (mut hits, mut missing) = (0, Vec::new());
        for &v in ids {
            match self.holder.iter().position(|assigned| *assigned == Some(v)) {
                Some(slot) => {
                    self.used[slot] = true;
                    hits += 1;
                }
                None if !missing.contains(&v) => missing.push(v),
                None => {}
            }
        }
        missing.truncate(slots);
        let mut given = vec![false; slots];
        for v in missing {
            while given[self.hand] || std::mem::take(&mut self.used[self.hand]) {
                self.hand = (self.hand + 1) % slots;
            }
            (self.holder[self.hand], given[self.hand]) = (Some(v), true);
            self.hand = (self.hand + 1) % slots;
        }
        hits
    }
}

#[test]
fn caches_may_hold_all_rows() {
    let (data, wide) = table(500, 16, TableType::F32);
    let device = device(0, Order::Shuffled(4));
    let stored = Stored::new(&device, &data, 16).unwrap();
    let assigned = CacheLayout::new(&ranking(500, 3), 500, 1, Placement::Interleave);
    let tier = Tiered::new(&[device], &stored, &assigned).unwrap().pop().unwrap();
    assert_eq!(tier.device_bytes(), 500 * 64);
    let ids: Vec<NodeId> = (0..700).map(|i| i * 37 % 500).collect();
    assert_eq!(read(&tier, &wide, &ids), [700, 0, 0]);
    assert_eq!(tier.table().len(), 500 * 16);
}

#[test]
fn missing_rows_are_errors() {
    let (data, _) = table(5, 4, TableType::F16);
    let device = device(0, Order::Forward);
    let stored = Stored::new(&device, &data, 4).unwrap();
    let cache = Dynamic::new(&device, &stored, 2, Policy::Fifo).unwrap();
    let error = cache.gather(&[1, 5], &mut Matrix::default()).unwrap_err().to_string();
    assert!(error.contains("row 5") && error.contains("5 rows"), "{error}");
    let assigned = CacheLayout::new(&[7], 1, 1, Placement::Interleave);
    assert!(Tiered::new(&[device], &stored, &assigned).is_err());
}

#[test]
fn unlockable_memory_is_copied() {
    // memory below 32 MiB may share its pages
    let small = Stored::new(&device(0, Order::Forward), &table(40, 6, TableType::F32).0, 6).unwrap();
    assert!(small.mapped().is_copy());
    let (data, wide) = table(1_400_000, 6, TableType::F32);
    let device = device(0, Order::Forward);
    let first = Stored::new(&device, &data, 6).unwrap();
    // the second one finds it already locked
    let second = Stored::new(&device, &data, 6).unwrap();
    assert!(!first.mapped().is_copy() && second.mapped().is_copy());
    let cache = Dynamic::new(&device, &second, 4, Policy::Sieve).unwrap();
    drop(first);
    assert_eq!(read(&cache, &wide, &[3, 39, 3]), [0, 0, 3]);
    assert_eq!(read(&cache, &wide, &[3, 39, 0]), [2, 0, 1]);
}

#[test]
fn ids_on_the_device_are_not_copied() {
    let (data, wide) = table(90, 8, TableType::F32);
    let device = device(0, Order::Shuffled(2));
    let queue = Queue::new(&device).unwrap();
    let stored = Stored::new(&device, &data, 8).unwrap();
    let assigned = CacheLayout::new(&ranking(90, 3), 30, 1, Placement::Interleave);
    let tier = Tiered::new(std::slice::from_ref(&device), &stored, &assigned).unwrap().pop().unwrap();
    let cache = Dynamic::new(&device, &stored, 20, Policy::Fifo).unwrap();
    let lru = Cached::new(&device, Behind::Table(stored), Box::new(Lru::new(90, 20))).unwrap();
    for first in 0..3 {
        let ids: Vec<NodeId> = (0..40).map(|i| (first * 13 + i * 7) % 90).collect();
        // SAFETY: the memory is that of the ids.
        let drawn = unsafe { DeviceIds::new(Arc::new(queue.upload(&ids).unwrap()), &ids) };
        queue.synchronize().unwrap();
        for feature in [&tier as &dyn DeviceFeature, &cache, &lru] {
            let mut out = Matrix::default();
            let traffic = feature.gather_on_device(&ids, &drawn, &mut out).unwrap();
            assert_eq!(traffic.total().rows, 40);
            assert_eq!(out.view().host(), rows_of(&wide, 8, &ids));
        }
    }
}
