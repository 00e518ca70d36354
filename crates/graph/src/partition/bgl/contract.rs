//! The graph of blocks: an edge between two wherever vertices of theirs have one, weighing as much as all of those.
//!
//! O(V + E), parallel over blocks; memory is what the result takes, and a table of the blocks a thread.

use rayon::prelude::*;

use super::{
    super::limits::Load,
    level::{Blocks, Level},
    tally::Tally,
};
use crate::{Result, memory};

/// Blocks that one task contracts are at least so many.
const TASK: usize = 64;
/// Tasks at most.
const TASKS: usize = 32;

/// The graph of the `count` blocks that `of` deals the vertices to. Edges within a block are left out.
pub(super) fn contract<L: Level>(level: &L, of: &[u32], count: usize) -> Result<Blocks> {
    let mut starts: Vec<u64> = memory::zeroed(count + 1)?;
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
        members[next[block as usize] as usize] = v as u32;
        next[block as usize] += 1;
    }
    let size = TASK.max(count.div_ceil(TASKS));
    let pieces: Vec<Piece> = (0..count.div_ceil(size))
        .into_par_iter()
        .map(|task| {
            let mut tally = Tally::new(count);
            let mut piece = Piece::default();
            for block in task * size..count.min((task + 1) * size) {
                for &v in &members[starts[block] as usize..starts[block + 1] as usize] {
                    level.each(v, |u, weight| {
                        let other = of[u as usize];
                        if other as usize != block {
                            tally.add(other, weight);
                        }
                    });
                }
                piece.lengths.push(tally.keys().len() as u64);
                piece.indices.extend_from_slice(tally.keys());
                piece.weights.extend(tally.keys().iter().map(|&other| tally.of(other)));
                tally.clear();
            }
            piece
        })
        .collect();
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

/// The rows that one task made.
#[derive(Default)]
struct Piece {
    lengths: Vec<u64>,
    indices: Vec<u32>,
    weights: Vec<u64>,
}
