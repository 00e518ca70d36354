//! Greedy assignment of blocks to parts.
//!
//! # Algorithm
//!
//! Blocks are assigned one after the other, each to the part with the highest score
//!
//! ```text
//! (Σ over hops j = 1, 2 of |P(i) ∩ Γ^j(B)|) (1 - |T(i)| / C_T) (1 - |P(i)| / C)
//! ```
//!
//! where `P(i)` are the nodes of part `i`, `T(i)` its training nodes, and `C` and `C_T` its limits.
//! If no part has a neighbour of the block, the product of the two penalties decides.
//!
//! `|P(i) ∩ Γ(B)|` counts edges rather than distinct nodes, because a request crosses an edge. The
//! second hop is a step of a walk: through each neighbouring block to its neighbours, in proportion
//! to the edges between them, and only through the [`THROUGH`] heaviest neighbours. Both hops
//! therefore have the scale of the block's edges.
//!
//! The next block is the largest (as in the released code), or the one with the largest share of
//! its edges to assigned blocks, so that one part grows until it is nearly full. Several of the
//! latter orders are tried, each with other random ties.
//!
//! # Source
//!
//! Liu et al., *BGL: GPU-efficient GNN training by optimizing graph data I/O and preprocessing*,
//! NSDI 2023, Graph Partition Module.
//!
//! # Cost
//!
//! Linear in the edges of the block graph, per order.

use std::{cmp::Reverse, collections::BinaryHeap};

use graphmill_core::keyed;
use rayon::prelude::*;

use super::{
    super::{
        Options,
        limits::{Limits, Load},
    },
    level::{Blocks, Level},
    refine::refine,
    uncoarsen::ROUNDS,
};

/// Separates these draws from others with the same seed.
const DOMAIN: u64 = 0x7061_7274_2062_676c;
/// Number of orders tried.
const TRIES: u64 = 4;

/// Order of the blocks.
#[derive(Clone, Copy)]
enum Order {
    /// Largest block first.
    Largest,
    /// Block with the largest share of edges to assigned blocks first; ties are random under this
    /// key.
    Grown(u64),
}

/// Blocks without a part.
struct Queue {
    heap: BinaryHeap<(u64, u64, Reverse<u32>)>,
    /// Share of each block's edges that lead to assigned blocks, in units of 2^-32; `DONE` for
    /// assigned blocks.
    share: Vec<u64>,
    draws: Vec<u64>,
}

const DONE: u64 = u64::MAX;

impl Queue {
    fn new(blocks: &Blocks, order: Order) -> Self {
        let draw = |b: u32| match order {
            Order::Largest => blocks.loads[b as usize].nodes,
            Order::Grown(key) => keyed::key(&[key, b.into()]),
        };
        let draws: Vec<u64> = (0..blocks.len() as u32).map(draw).collect();
        let heap = (0..).zip(&draws).map(|(b, &draw)| (0, draw, Reverse(b))).collect();
        Self { heap, share: vec![0; blocks.len()], draws }
    }

    fn next(&mut self) -> Option<u32> {
        loop {
            let (share, _, Reverse(b)) = self.heap.pop()?;
            if self.share[b as usize] == share {
                self.share[b as usize] = DONE;
                return Some(b);
            }
        }
    }

    fn touch(&mut self, b: u32, more: f64) {
        let share = &mut self.share[b as usize];
        if *share != DONE {
            *share += (more * (1u64 << 32) as f64) as u64 + 1;
            self.heap.push((*share, self.draws[b as usize], Reverse(b)));
        }
    }
}

/// Number of neighbouring blocks whose neighbours are visited.
const THROUGH: usize = 4;
/// Marks a block without a part.
const NONE: u16 = u16::MAX;

/// Weight of the edges cut between blocks, both directions.
fn cut(blocks: &Blocks, of: &[u16]) -> u64 {
    let mut sum = 0;
    for b in 0..blocks.len() as u32 {
        blocks.each(b, |u, weight| sum += if of[u as usize] != of[b as usize] { weight } else { 0 });
    }
    sum
}

/// Best of [`TRIES`] assignments after refinement: the part of every block, and the load of each
/// part. The best exceeds the limits the least, then cuts the fewest edges.
pub(super) fn best_of_several(
    blocks: Option<&Blocks>,
    options: &Options,
    limits: Limits,
) -> (Vec<u16>, Vec<Load>) {
    let Some(blocks) = blocks else { return (Vec::new(), vec![Load::default(); options.parts.into()]) };
    let tried = (0..TRIES).into_par_iter().map(|attempt| {
        let order = match attempt {
            0 => Order::Largest,
            _ => Order::Grown(keyed::key(&[DOMAIN, options.seed, attempt])),
        };
        let (mut of, mut held) = assign(blocks, order, options.parts, limits);
        refine(blocks, &mut of, &mut held, limits, ROUNDS);
        let over =
            |part: &Load| part.nodes.saturating_sub(limits.nodes) + part.train.saturating_sub(limits.train);
        ((held.iter().map(over).sum::<u64>(), cut(blocks, &of), attempt), of, held)
    });
    let best = tried.min_by_key(|(key, ..)| *key);
    best.map_or_else(Default::default, |(_, of, held)| (of, held))
}

/// Part of every block by the paper's single order, the largest block first.
pub(super) fn largest_first(blocks: Option<&Blocks>, parts: u16, limits: Limits) -> Vec<u16> {
    blocks.map_or_else(Vec::new, |blocks| assign(blocks, Order::Largest, parts, limits).0)
}

/// Part of every block, and the load of each part; a block that fits nowhere goes to the part with
/// the most free capacity.
fn assign(blocks: &Blocks, order: Order, parts: u16, limits: Limits) -> (Vec<u16>, Vec<Load>) {
    let n = blocks.len();
    let mut queue = Queue::new(blocks, order);
    let totals: Vec<u64> = (0..n).map(|b| blocks.weights[row(blocks, b)].iter().sum()).collect();
    let mut of = vec![NONE; n];
    let mut held = vec![Load::default(); parts.into()];
    let mut hops = vec![0.0f64; parts.into()];
    let mut heaviest: Vec<(u64, u32)> = Vec::new();
    while let Some(b) = queue.next() {
        hops.fill(0.0);
        heaviest.clear();
        blocks.each(b, |u, weight| {
            if of[u as usize] != NONE {
                hops[usize::from(of[u as usize])] += weight as f64;
            }
            heaviest.push((weight, u));
        });
        if heaviest.len() > THROUGH {
            heaviest.select_nth_unstable_by_key(THROUGH - 1, |&(weight, u)| (Reverse(weight), u));
            heaviest.truncate(THROUGH);
        }
        for &(weight, u) in &heaviest {
            let share = weight as f64 / totals[u as usize] as f64;
            blocks.each(u, |w, weight| {
                if w != b && of[w as usize] != NONE {
                    hops[usize::from(of[w as usize])] += share * weight as f64;
                }
            });
        }
        let load = blocks.load(b);
        let part = best(&hops, &held, load, limits);
        of[b as usize] = part as u16;
        held[part].add(load);
        if let Order::Grown(_) = order {
            blocks.each(b, |u, weight| queue.touch(u, weight as f64 / totals[u as usize] as f64));
        }
    }
    (of, held)
}

fn row(blocks: &Blocks, b: usize) -> std::ops::Range<usize> {
    blocks.indptr[b] as usize..blocks.indptr[b + 1] as usize
}

/// Part with the highest score that has capacity, or else the emptiest.
fn best(hops: &[f64], held: &[Load], load: Load, limits: Limits) -> usize {
    let free = |held: &Load| {
        let train = if limits.train == 0 { 1.0 } else { 1.0 - held.train as f64 / limits.train as f64 };
        train * (1.0 - held.nodes as f64 / limits.nodes as f64)
    };
    let open = (0..held.len()).filter(|&part| held[part].has_capacity(load, limits));
    let scored = open.map(|part| (hops[part] * free(&held[part]), free(&held[part]), part));
    let higher = |a: (f64, f64, usize), b: (f64, f64, usize)| {
        if a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)).is_lt() { b } else { a }
    };
    match scored.reduce(higher) {
        Some((.., part)) => part,
        None => (0..held.len()).min_by_key(|&part| (held[part].nodes, part)).unwrap_or(0),
    }
}
