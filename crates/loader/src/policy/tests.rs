//! Compares each policy with its definition, written as plainly as possible.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// Reference policy over ids, in lists that are searched linearly. It is full, and `victim` names
/// the id to evict.
trait Plain {
    fn touch(&mut self, id: NodeId);
    fn enter(&mut self, id: NodeId);
    fn victim(&mut self) -> NodeId;
}

/// Evicts the first id in the queue, which is the oldest, or with `by_use` the least recently used.
struct Queue {
    ids: VecDeque<NodeId>,
    by_use: bool,
}

impl Plain for Queue {
    fn touch(&mut self, id: NodeId) {
        if self.by_use {
            self.ids.retain(|&other| other != id);
            self.ids.push_back(id);
        }
    }
    fn enter(&mut self, id: NodeId) {
        self.ids.push_back(id);
    }
    fn victim(&mut self) -> NodeId {
        self.ids.pop_front().unwrap()
    }
}

/// Entries (uses, time of the last use, id); the smallest is evicted.
#[derive(Default)]
struct PlainLfu {
    all: Vec<(u32, u64, NodeId)>,
    clock: u64,
}

impl Plain for PlainLfu {
    fn touch(&mut self, id: NodeId) {
        self.clock += 1;
        let entry = self.all.iter_mut().find(|entry| entry.2 == id).unwrap();
        (entry.0, entry.1) = (entry.0 + 1, self.clock);
    }
    fn enter(&mut self, id: NodeId) {
        self.clock += 1;
        self.all.push((1, self.clock, id));
    }
    fn victim(&mut self) -> NodeId {
        self.all.sort_unstable();
        self.all.remove(0).2
    }
}

/// The paper's algorithm 1, with its queue from the oldest; the hand is an index.
#[derive(Default)]
struct PlainSieve {
    queue: Vec<(NodeId, bool)>,
    hand: usize,
}

impl Plain for PlainSieve {
    fn touch(&mut self, id: NodeId) {
        self.queue.iter_mut().find(|entry| entry.0 == id).unwrap().1 = true;
    }
    fn enter(&mut self, id: NodeId) {
        self.queue.push((id, false));
    }
    fn victim(&mut self) -> NodeId {
        loop {
            // the oldest follows the youngest, even if ids enter in between
            self.hand %= self.queue.len();
            if !self.queue[self.hand].1 {
                let (id, _) = self.queue.remove(self.hand);
                self.hand %= self.queue.len().max(1);
                return id;
            }
            self.queue[self.hand].1 = false;
            self.hand += 1;
        }
    }
}

/// The paper's algorithm 1: (id, uses) in two queues, and the ids that left the small one lately.
#[derive(Default)]
struct PlainS3 {
    capacity: usize,
    small: VecDeque<(NodeId, u32)>,
    main: VecDeque<(NodeId, u32)>,
    ghost: VecDeque<Option<NodeId>>,
}

impl PlainS3 {
    fn trial(&self) -> usize {
        (self.capacity / 10).max(1)
    }
}

impl Plain for PlainS3 {
    fn touch(&mut self, id: NodeId) {
        let entry = self.small.iter_mut().chain(&mut self.main).find(|entry| entry.0 == id).unwrap();
        entry.1 = 3.min(entry.1 + 1);
    }
    fn enter(&mut self, id: NodeId) {
        if let Some(place) = self.ghost.iter_mut().find(|ghost| **ghost == Some(id)) {
            *place = None;
            self.main.push_back((id, 0));
        } else {
            self.small.push_back((id, 0));
        }
    }
    fn victim(&mut self) -> NodeId {
        loop {
            if self.small.len() >= self.trial() {
                let (id, uses) = self.small.pop_front().unwrap();
                if uses > 1 {
                    self.main.push_back((id, 0));
                    continue;
                }
                self.ghost.push_back(Some(id));
                if self.ghost.len() > self.capacity - self.trial() {
                    self.ghost.pop_front();
                }
                return id;
            }
            let (id, uses) = self.main.pop_front().unwrap();
            if uses == 0 {
                return id;
            }
            self.main.push_back((id, uses - 1));
        }
    }
}

fn plain(name: &str, capacity: usize) -> Box<dyn Plain> {
    match name {
        "fifo" | "lru" => Box::new(Queue { ids: VecDeque::new(), by_use: name == "lru" }),
        "lfu" => Box::<PlainLfu>::default(),
        "sieve" => Box::<PlainSieve>::default(),
        "s3-fifo" => Box::new(PlainS3 { capacity, ..PlainS3::default() }),
        other => panic!("{other} has no reference"),
    }
}

/// The whole reference cache: slots are assigned in ascending order, and then reused.
struct Reference {
    capacity: usize,
    /// Id in each slot.
    holders: Vec<NodeId>,
    plain: Box<dyn Plain>,
}

impl Reference {
    fn slot(&self, id: NodeId) -> u32 {
        self.holders.iter().position(|&holder| holder == id).map_or(MISS, |slot| slot as u32)
    }

    fn look_up(&mut self, id: NodeId) -> u32 {
        let slot = self.slot(id);
        if slot != MISS {
            self.plain.touch(id);
        }
        slot
    }

    fn admit(&mut self, id: NodeId) -> u32 {
        let slot = self.slot(id);
        if slot != MISS || self.capacity == 0 {
            return slot;
        }
        if self.holders.len() < self.capacity {
            self.holders.push(id);
        } else {
            let freed = {
                let victim = self.plain.victim();
                self.slot(victim)
            };
            self.holders[freed as usize] = id;
        }
        self.plain.enter(id);
        self.slot(id)
    }
}

const IDS: u32 = 40;

/// Batches in which some ids are far more frequent than others, and some batches are scans.
fn trace() -> impl Strategy<Value = Vec<Vec<NodeId>>> {
    let skewed = (0..IDS, 0..IDS, 0..IDS).prop_map(|(a, b, c)| a.min(b).min(c));
    let batch = prop_oneof![
        3 => prop::collection::vec(skewed, 0..30),
        1 => (0..IDS, 0..IDS).prop_map(|(from, to)| (from.min(to)..to.max(from)).collect()),
    ];
    prop::collection::vec(batch, 0..40)
}

#[test]
fn every_policy_conforms() {
    for entry in &TABLE {
        crate::testing::check_policy(entry);
    }
}

proptest! {
    /// Compares every slot with the reference, over any trace of look-ups and offers (of the
    /// misses, or of all ids, which includes present ids and duplicates).
    #[test]
    fn policies_match_their_references(trace in trace(), capacity in 0usize..=45, all in any::<bool>()) {
        for entry in &TABLE {
            let mut policy = (entry.make)(IDS as usize, capacity);
            let capacity = policy.capacity();
            let plain = plain(entry.name, capacity);
            let mut reference = Reference { capacity, holders: Vec::new(), plain };
            let mut slots = vec![7];
            for batch in &trace {
                policy.look_up(batch, &mut slots);
                let expected: Vec<u32> = batch.iter().map(|&id| reference.look_up(id)).collect();
                prop_assert_eq!(&slots, &expected, "{} looks up", entry.name);

                let pairs = batch.iter().zip(&slots);
                let offered: Vec<NodeId> =
                    pairs.filter(|(_, slot)| all || **slot == MISS).map(|(&id, _)| id).collect();
                policy.admit(&offered, &mut slots);
                let expected: Vec<u32> = offered.iter().map(|&id| reference.admit(id)).collect();
                prop_assert_eq!(&slots, &expected, "{} admits", entry.name);
            }
        }
    }

    /// A look-up finds exactly the ids that received a slot last.
    #[test]
    fn the_last_id_assigned_to_a_slot_holds_it(trace in trace(), capacity in 0usize..=45) {
        for entry in &TABLE {
            let mut policy = (entry.make)(IDS as usize, capacity);
            let mut holder = vec![None; policy.capacity()];
            let mut slots = Vec::new();
            for batch in &trace {
                policy.admit(batch, &mut slots);
                for (&id, &slot) in batch.iter().zip(&slots).filter(|(_, slot)| **slot != MISS) {
                    prop_assert!((slot as usize) < policy.capacity());
                    holder[slot as usize] = Some(id);
                }
                let all: Vec<NodeId> = (0..IDS).collect();
                policy.look_up(&all, &mut slots);
                for (id, &slot) in slots.iter().enumerate() {
                    let expected = holder.iter().position(|&holder| holder == Some(id as NodeId));
                    let found = (slot != MISS).then_some(slot as usize);
                    prop_assert_eq!(found, expected, "{} {}", entry.name, id);
                }
            }
        }
    }
}

#[test]
fn every_policy_handles_extreme_capacities() {
    let (mut slots, mut again) = (vec![1], Vec::new());
    for entry in &TABLE {
        // no slots
        let mut none = (entry.make)(5, 0);
        none.look_up(&[0, 4], &mut slots);
        assert_eq!((none.capacity(), slots.as_slice()), (0, &[MISS; 2][..]), "{}", entry.name);
        none.admit(&[0, 4, 4], &mut slots);
        assert_eq!(slots, [MISS; 3], "{}", entry.name);
        // no ids
        (entry.make)(0, 5).admit(&[], &mut slots);
        assert!(slots.is_empty());
        // as many slots as ids, or more
        for capacity in [5, 6, usize::MAX] {
            let mut all = (entry.make)(5, capacity);
            assert_eq!(all.capacity(), 5);
            all.admit(&[3, 1, 4, 0, 2], &mut slots);
            for _ in 0..3 {
                all.admit(&[2, 2, 3], &mut again);
                all.look_up(&[3, 1, 4, 0, 2], &mut again);
                assert_eq!(again, slots, "{}", entry.name);
            }
            slots.sort_unstable();
            assert_eq!(slots, [0, 1, 2, 3, 4]);
        }
        // with a single slot, the last id has it
        let mut one = (entry.make)(3, 1);
        one.admit(&[0, 1, 2, 2], &mut slots);
        assert_eq!(slots, [0; 4]);
        one.look_up(&[0, 1, 2], &mut slots);
        assert_eq!(slots, [MISS, MISS, 0], "{}", entry.name);
    }
}

/// Hit rate over a trace in batches.
fn hit_rate(name: &str, capacity: usize, trace: &[Vec<NodeId>], num_ids: usize) -> f64 {
    let mut policy = (TABLE.find(name).unwrap().make)(num_ids, capacity);
    let (mut hits, mut all, mut slots) = (0, 0, Vec::new());
    for batch in trace {
        policy.look_up(batch, &mut slots);
        let missed: Vec<NodeId> =
            batch.iter().zip(&slots).filter(|(_, slot)| **slot == MISS).map(|(&id, _)| id).collect();
        (hits, all) = (hits + batch.len() - missed.len(), all + batch.len());
        policy.admit(&missed, &mut slots);
    }
    hits as f64 / all as f64
}

/// If few ids are hot and the rest rare, the two modern policies beat the queues, in spite of
/// scans.
#[test]
fn modern_policies_beat_queues_on_skewed_traces() {
    let (ids, capacity) = (10_000, 1000);
    let mut stream = graphmill_core::keyed::Stream::new(1);
    let trace: Vec<Vec<NodeId>> = (0..200)
        .map(|batch| match batch % 10 {
            9 => (0..1000).map(|i| (batch * 1000 + i) % ids).collect(),
            _ => (0..1000).map(|_| (stream.uniform().powi(4) * f64::from(ids)) as NodeId).collect(),
        })
        .collect();
    let rate = |name| hit_rate(name, capacity, &trace, ids as usize);
    let old = rate("fifo").max(rate("lru"));
    assert!(
        rate("sieve") > old + 0.03 && rate("s3-fifo") > old + 0.03,
        "{} {} {old}",
        rate("sieve"),
        rate("s3-fifo")
    );
}
