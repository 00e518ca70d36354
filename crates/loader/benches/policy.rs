//! Cost of a cache policy per row: `cargo bench -p graphmill-loader --bench policy [-- NAME]`.
//!
//! A million ids, slots for a tenth, and batches of 50,000: distinct ids by a Zipf distribution of
//! exponent 1, and a cyclic scan of all ids (no hits, and all ids are admitted). Every batch is
//! looked up, and its misses are admitted, as in a cache. Nanoseconds are the best of several
//! passes over the trace, each with a new policy that an earlier pass has filled; an admission is
//! one miss.

use std::{hint::black_box, time::Instant};

use graphmill_core::{NodeId, keyed::Stream};
use graphmill_loader::policy::{MISS, TABLE};

const IDS: usize = 1_000_000;
const BATCH: usize = 50_000;
const BATCHES: usize = 40;
const PASSES: usize = 5;

/// Batches of distinct ids, with rank `r` of a probability of about `1 / r` and ranks in random
/// order over the ids.
fn zipf() -> Vec<Vec<NodeId>> {
    let mut stream = Stream::new(1);
    let mut id_of_rank: Vec<NodeId> = (0..IDS as NodeId).collect();
    stream.shuffle(&mut id_of_rank);
    let mut last = vec![usize::MAX; IDS];
    (0..BATCHES)
        .map(|batch| {
            let mut ids = Vec::with_capacity(BATCH);
            while ids.len() < BATCH {
                // the inverse of the distribution function, ln r / ln V
                let rank = (IDS as f64).powf(stream.uniform()) as usize - 1;
                if std::mem::replace(&mut last[rank], batch) != batch {
                    ids.push(id_of_rank[rank]);
                }
            }
            ids
        })
        .collect()
}

fn scan() -> Vec<Vec<NodeId>> {
    let at = |i: usize| (i % IDS) as NodeId;
    (0..BATCHES).map(|batch| (batch * BATCH..(batch + 1) * BATCH).map(at).collect()).collect()
}

fn main() {
    // cargo passes `--bench`
    let filter = std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_default();
    for (name, trace) in [("zipf", zipf()), ("scan", scan())] {
        println!("{name}: ns per row looked up, ns per row admitted, hit rate");
        for entry in TABLE.iter().filter(|entry| entry.name.contains(&filter)) {
            let (mut least, mut rate) = ([f64::INFINITY; 2], 0.0);
            for _ in 0..PASSES {
                let mut policy = (entry.make)(IDS, IDS / 10);
                let (mut slots, mut missed) = (Vec::new(), Vec::new());
                for measured in [false, true] {
                    let (mut seconds, mut rows) = ([0.0; 2], [0; 2]);
                    for batch in &trace {
                        let clock = Instant::now();
                        policy.look_up(black_box(batch), &mut slots);
                        seconds[0] += clock.elapsed().as_secs_f64();
                        missed.clear();
                        missed.extend(
                            batch.iter().zip(&slots).filter(|(_, slot)| **slot == MISS).map(|(&id, _)| id),
                        );
                        let clock = Instant::now();
                        policy.admit(black_box(&missed), &mut slots);
                        seconds[1] += clock.elapsed().as_secs_f64();
                        rows = [rows[0] + batch.len(), rows[1] + missed.len()];
                    }
                    if measured {
                        for i in 0..2 {
                            least[i] = least[i].min(seconds[i] / rows[i] as f64 * 1e9);
                        }
                        rate = 1.0 - rows[1] as f64 / rows[0] as f64;
                    }
                }
            }
            println!("    {:<8} {:6.2} {:6.2}   {rate:.3}", entry.name, least[0], least[1]);
        }
    }
}
