//! Rules that every cache policy follows.

use std::sync::Arc;

use graphmill_core::{
    Features, NodeId,
    keyed::{self, Stream},
    matrix::TableType,
    table::Entry,
};

use crate::{
    Feature,
    feature::{
        Host,
        cached::{Dynamic, Level},
    },
    policy::{CachePolicy, MISS, Make},
};

/// Checks that a policy follows the rules of [`CachePolicy`] on random traces: a slot holds one id,
/// no slot is beyond the capacity, a look-up finds exactly the ids that were admitted and not
/// replaced since, and a trace has the same result every time. A cache with the policy returns the
/// bytes of a plain read.
///
/// # Panics
/// The policy breaks a rule; the message names it, with the numbers of ids and slots.
///
/// ```
/// use graphmill_loader::{policy, testing::check_policy};
///
/// check_policy(policy::TABLE.find("sieve")?);
/// # Ok::<(), graphmill_core::Error>(())
/// ```
pub fn check_policy(entry: &Entry<Make>) {
    let make = entry.make;
    for (ids, capacity) in [(1, 0), (1, 1), (7, 3), (40, 9), (40, 40), (64, 100), (300, 17)] {
        for seed in 0..8 {
            let case = format!("{}: {ids} ids, {capacity} slots, trace {seed}", entry.name);
            assert_eq!(
                trace(make, ids, capacity, seed, &case),
                trace(make, ids, capacity, seed, &case),
                "{case}: the same trace has another result the second time"
            );
        }
    }
    check_rows(make);
}

/// Slots that a policy returns over a random trace, each compared with a plain table.
fn trace(make: Make, ids: usize, capacity: usize, seed: u64, case: &str) -> Vec<u32> {
    let mut policy = make(ids, capacity);
    let slots = policy.capacity();
    assert!(slots <= capacity.min(ids), "{case}: a capacity of {slots}");
    let mut table = Table { id: vec![None; slots], slot: vec![MISS; ids] };
    let mut stream = Stream::new(keyed::key(&[seed, ids as u64, capacity as u64]));
    let (mut found, mut all) = (vec![9, 9], Vec::new());
    for _ in 0..60 {
        let batch: Vec<NodeId> = (0..stream.below(12)).map(|_| skewed(&mut stream, ids)).collect();
        table.look_up(&mut *policy, &batch, &mut found, case);
        all.extend_from_slice(&found);
        let missing: Vec<NodeId> =
            batch.into_iter().zip(&found).filter(|(_, slot)| **slot == MISS).map(|(id, _)| id).collect();
        table.admit(&mut *policy, &missing, &mut found, case);
        all.extend_from_slice(&found);
    }
    let everything: Vec<NodeId> = (0..ids as NodeId).collect();
    table.look_up(&mut *policy, &everything, &mut found, case);
    all.extend_from_slice(&found);
    all
}

/// Draws an id below `ids`, small ones more often.
fn skewed(stream: &mut Stream, ids: usize) -> NodeId {
    let bound = stream.below(ids as u64) + 1;
    stream.below(bound) as NodeId
}

/// Id of each slot, and slot of each id.
struct Table {
    id: Vec<Option<NodeId>>,
    slot: Vec<u32>,
}

impl Table {
    fn look_up(&self, policy: &mut dyn CachePolicy, ids: &[NodeId], found: &mut Vec<u32>, case: &str) {
        policy.look_up(ids, found);
        let expected: Vec<u32> = ids.iter().map(|&id| self.slot[id as usize]).collect();
        assert_eq!(*found, expected, "{case}: look_up of {ids:?} returns the slot of each admitted id");
    }

    fn admit(&mut self, policy: &mut dyn CachePolicy, ids: &[NodeId], found: &mut Vec<u32>, case: &str) {
        policy.admit(ids, found);
        assert_eq!(found.len(), ids.len(), "{case}: admit of {ids:?} returns a slot for each id");
        for (&id, &slot) in ids.iter().zip(&*found) {
            let present = self.slot[id as usize];
            if present != MISS {
                assert_eq!(slot, present, "{case}: admit: id {id} keeps its slot");
            } else if slot != MISS {
                let count = self.id.len();
                assert!((slot as usize) < count, "{case}: admit: slot {slot} of {count} for id {id}");
                if let Some(former) = self.id[slot as usize].replace(id) {
                    self.slot[former as usize] = MISS;
                }
                self.slot[id as usize] = slot;
            }
        }
    }
}

/// Checks that a cache in front of a table returns the table's rows.
fn check_rows(make: Make) {
    let (rows, dim) = (2000, 3);
    let plain: Arc<dyn Feature> =
        Arc::new(Host::new(&Features::f32(dim, (0..rows * dim).map(|x| x as f32).collect::<Vec<_>>())));
    let cache =
        Dynamic::new(make, 600, TableType::F32, plain.clone(), Level::Host).expect("600 rows fit in memory");
    let mut stream = Stream::new(keyed::key(&[7]));
    for _ in 0..30 {
        let ids: Vec<NodeId> = (0..200).map(|_| skewed(&mut stream, rows)).collect();
        let [mut expected, mut found] = [vec![0.0; ids.len() * dim], vec![0.0; ids.len() * dim]];
        plain.read(&ids, &mut expected).expect("memory can be read");
        cache.read(&ids, &mut found).expect("memory can be read");
        assert_eq!(found, expected, "a cache returns the rows of the next tier");
    }
}
