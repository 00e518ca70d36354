//! A custom cache policy, which is registered by name and caches the features of a training run.
//!
//! Run it with `cargo run --release --example 04-own-cache-policy`.

use graphmill::{
    dataset::generate::{GenerateOptions, generate},
    engine::config::{Devices, Ratio},
    graph::table::Entry,
    loader::policy::{self, CachePolicy, MISS},
    prelude::*,
};

/// The clock policy: first in, first out, with a second chance for used rows.
///
/// A hand moves around the slots. It skips slots that were used since its last visit, and evicts the
/// row of the first other slot. A look-up costs O(1), an admission O(1) on average. Memory: 4 bytes
/// per id, 5 bytes per slot.
///
/// Source: F. J. Corbató, A paging experiment with the Multics system, 1968.
pub struct Clock {
    /// Slot of each id, or [`MISS`].
    slot: Vec<u32>,
    /// Id in each occupied slot.
    id: Vec<NodeId>,
    /// True if the slot was used since the hand's last visit.
    used: Vec<bool>,
    capacity: usize,
    hand: usize,
}

impl Clock {
    /// A policy for `num_ids` ids and `capacity` slots.
    pub fn new(num_ids: usize, capacity: usize) -> Self {
        let capacity = capacity.min(num_ids);
        Self { slot: vec![MISS; num_ids], id: Vec::new(), used: Vec::new(), capacity, hand: 0 }
    }

    /// Assigns a slot to an id that has none.
    fn assign_slot(&mut self, id: NodeId) -> u32 {
        if self.id.len() < self.capacity {
            self.id.push(id);
            self.used.push(false);
            return (self.id.len() - 1) as u32;
        }
        while std::mem::take(&mut self.used[self.hand]) {
            self.hand = (self.hand + 1) % self.capacity;
        }
        let slot = self.hand;
        self.slot[self.id[slot] as usize] = MISS;
        self.id[slot] = id;
        self.hand = (slot + 1) % self.capacity;
        slot as u32
    }
}

impl CachePolicy for Clock {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn look_up(&mut self, ids: &[NodeId], slots: &mut Vec<u32>) {
        slots.clear();
        slots.extend(ids.iter().map(|&id| self.slot[id as usize]));
        slots.iter().filter(|&&slot| slot != MISS).for_each(|&slot| self.used[slot as usize] = true);
    }

    fn admit(&mut self, ids: &[NodeId], slots: &mut Vec<u32>) {
        slots.clear();
        for &id in ids {
            if self.capacity > 0 && self.slot[id as usize] == MISS {
                self.slot[id as usize] = self.assign_slot(id);
            }
            slots.push(self.slot[id as usize]);
        }
    }
}

/// Row of the table of policies.
pub const CLOCK: Entry<policy::Make> = Entry {
    name: "clock",
    summary: "first in, first out, with a second chance for used rows",
    source: "Corbató, A paging experiment with the Multics system, 1968",
    options: &[],
    make: |num_ids, capacity| Box::new(Clock::new(num_ids, capacity)),
};

/// Trains with each of three policies.
pub fn main() -> graphmill::Result<()> {
    policy::TABLE.register(CLOCK)?;
    let data = generate("sbm", &GenerateOptions { nodes: 3000, classes: 4, dim: 32, ..Default::default() })?;
    for cache in ["fifo", "clock", "lru"] {
        let config = TrainConfig {
            devices: Devices::Virtual(1).into(), // a simulated device that caches a tenth of the rows
            cache: cache.into(),
            cache_ratio: Ratio(Some(0.1)),
            epochs: 2,
            batch_size: 64,
            hidden: 16,
            ..TrainConfig::default()
        };
        let summary = graphmill::train(&config, &data)?.summary().clone();
        let hits = summary.epochs[1].hit_rate.unwrap_or(0.0);
        println!(
            "{cache:5}: {:4.1} % of rows found in the cache, loss {:.4}",
            100.0 * hits,
            summary.epochs[1].loss
        );
    }
    Ok(())
}
