//! A cache policy of one's own: it is registered by name, and then caches the features of a
//! training run.
//!
//! Run it with `cargo run --release --example 04-own-cache-policy`.

use graphmill::{
    dataset::generate::{GenerateOptions, generate},
    engine::config::{Devices, Ratio},
    graph::table::Entry,
    loader::policy::{self, CachePolicy, MISS},
    prelude::*,
};

/// The clock: first in, first out, except that a row that was used gets a second chance.
///
/// A hand goes around the slots. A slot that was used since the hand last passed is spared once;
/// the first other slot is given away. A look-up costs O(1), an admission O(1) on average. Memory:
/// 4 bytes an id, 5 bytes a slot.
///
/// Source: F. J. Corbató, A paging experiment with the Multics system, 1968.
pub struct Clock {
    /// Slot of each id, or [`MISS`].
    slot: Vec<u32>,
    /// Id in each slot that has been given.
    id: Vec<NodeId>,
    used: Vec<bool>,
    capacity: usize,
    hand: usize,
}

impl Clock {
    /// A policy for so many ids and slots.
    pub fn new(num_ids: usize, capacity: usize) -> Self {
        let capacity = capacity.min(num_ids);
        Self { slot: vec![MISS; num_ids], id: Vec::new(), used: Vec::new(), capacity, hand: 0 }
    }

    /// Slot for an id that has none.
    fn place(&mut self, id: NodeId) -> u32 {
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
                self.slot[id as usize] = self.place(id);
            }
            slots.push(self.slot[id as usize]);
        }
    }
}

/// Row of the table of policies.
pub const CLOCK: Entry<policy::Make> = Entry {
    name: "clock",
    summary: "first in, first out, with a second chance for what was used",
    source: "Corbató, A paging experiment with the Multics system, 1968",
    options: &[],
    make: |num_ids, capacity| Box::new(Clock::new(num_ids, capacity)),
};

/// Trains with three policies in turn.
pub fn main() -> graphmill::Result<()> {
    policy::TABLE.register(CLOCK)?;
    let data = generate("sbm", &GenerateOptions { nodes: 3000, classes: 4, dim: 32, ..Default::default() })?;
    for cache in ["fifo", "clock", "lru"] {
        let config = TrainConfig {
            devices: Devices::Virtual(1).into(), // a simulated accelerator with memory for one row in ten
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
