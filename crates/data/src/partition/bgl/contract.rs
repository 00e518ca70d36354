//! Contraction to the graph of blocks: the weight of an edge between two blocks is the number of
//! edges between their vertices.
//!
//! O(V + E), parallel over blocks. Memory: the result, and one table of the blocks per thread.

use graphmill_core::{Result, memory};
use rayon::prelude::*;

use super::{
    super::limits::Load,
    level::{Blocks, Level},
    tally::Tally,
};

/// Minimum number of blocks per task.
const MIN_TASK_LEN: usize = 64;
/// Maximum number of tasks.
const TASKS: usize = 32;

/// Contracts the vertices of a level to the `count` blocks given by `of`, with every edge in both
/// directions: if the level's edges are known at one end only, an edge stored in both directions
/// counts twice. Edges within a block are omitted.
pub(super) fn contract<L: Level>(level: &L, of: &[u32], count: usize) -> Result<Blocks> {
    let mut starts: Vec<usize> = memory::zeroed(count + 1)?;
    let mut loads: Vec<Load> = vec![Load::default(); count];
    for (v, &block) in of.iter().enumerate() {
        starts[block as usize + 1] += 1;
        loads[block as usize].add(level.load(v as u32));
    }
    for block in 0..count {
        starts[block + 1] += starts[block];
    }
    let mut next = starts.clone();
    let mut members: Vec<u32> = memory::zeroed(of.len())?;
    for (v, &block) in of.iter().enumerate() {
        members[next[block as usize]] = v as u32;
        next[block as usize] += 1;
    }
    let blocks = rows(loads, |tally, block| {
        for &v in &members[starts[block as usize]..starts[block as usize + 1]] {
            level.each(v, |u, weight| {
                let other = of[u as usize];
                if other != block {
                    tally.add(other, weight);
                }
            });
        }
    })?;
    if L::BOTH_WAYS { Ok(blocks) } else { both_ways(&blocks) }
}

/// Adds the reverse of every edge. O(V + E).
fn both_ways(blocks: &Blocks) -> Result<Blocks> {
    let (n, edges) = (blocks.len(), blocks.indices.len());
    // The transposed rows: their starts and fill positions.
    let mut starts: Vec<usize> = memory::zeroed(n + 1)?;
    blocks.indices.iter().for_each(|&u| starts[u as usize + 1] += 1);
    for u in 0..n {
        starts[u + 1] += starts[u];
    }
    let mut next = starts.clone();
    let mut turned: Vec<(u32, u64)> = memory::reserve(edges)?;
    turned.resize(edges, (0, 0));
    for b in 0..n as u32 {
        blocks.each(b, |u, weight| {
            turned[next[u as usize]] = (b, weight);
            next[u as usize] += 1;
        });
    }
    rows(blocks.loads.clone(), |tally, b| {
        blocks.each(b, |u, weight| tally.add(u, weight));
        let run = &turned[starts[b as usize]..starts[b as usize + 1]];
        run.iter().for_each(|&(u, weight)| tally.add(u, weight));
    })
}

/// Graph of blocks with these `loads`, whose rows `fill` accumulates.
fn rows(loads: Vec<Load>, fill: impl Fn(&mut Tally, u32) + Sync) -> Result<Blocks> {
    let count = loads.len();
    let size = MIN_TASK_LEN.max(count.div_ceil(TASKS));
    let one = |task: usize| {
        let mut tally = Tally::new(count);
        let mut piece = Piece::default();
        for block in task * size..count.min((task + 1) * size) {
            fill(&mut tally, block as u32);
            piece.lengths.push(tally.keys().len() as u64);
            piece.indices.extend_from_slice(tally.keys());
            piece.weights.extend(tally.keys().iter().map(|&other| tally.of(other)));
            tally.clear();
        }
        piece
    };
    let pieces: Vec<Piece> = (0..count.div_ceil(size)).into_par_iter().map(one).collect();
    let edges = pieces.iter().map(|piece| piece.indices.len()).sum();
    let mut indptr: Vec<u64> = memory::reserve(count + 1)?;
    let (mut indices, mut weights) = (memory::reserve(edges)?, memory::reserve(edges)?);
    indptr.push(0);
    for piece in pieces {
        for length in piece.lengths {
            indptr.push(indptr[indptr.len() - 1] + length);
        }
        indices.extend(piece.indices);
        weights.extend(piece.weights);
    }
    Ok(Blocks { indptr, indices, weights, loads })
}

/// Rows computed by one task.
#[derive(Default)]
struct Piece {
    lengths: Vec<u64>,
    indices: Vec<u32>,
    weights: Vec<u64>,
}
