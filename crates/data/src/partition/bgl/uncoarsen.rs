//! Uncoarsening: from the parts of the largest blocks to those of the nodes, level by level. At each one vertices may move; the nodes
//! at last until every part is within its limits.

use super::{
    super::limits::{Limits, Load},
    climb::climb,
    level::{Blocks, Nodes},
    refine::refine,
    repair::repair,
};

/// Rounds of refinement at most.
pub(super) const ROUNDS: usize = 4;
/// Passes of hill climbing at most.
const PASSES: usize = 2;

/// The part of every node, given that of every block of the last of `levels` (the block of every vertex, and their graph) and what
/// the parts hold. O(V + E).
pub(super) fn uncoarsen(
    nodes: &Nodes,
    mut levels: Vec<(Vec<u32>, Blocks)>,
    mut of: Vec<u16>,
    mut held: Vec<Load>,
    limits: Limits,
) -> Vec<u16> {
    while let Some((block_of, blocks)) = levels.pop() {
        refine(&blocks, &mut of, &mut held, limits, ROUNDS);
        climb(&blocks, &mut of, &mut held, limits, PASSES);
        of = block_of.iter().map(|&block| of[block as usize]).collect();
    }
    refine(nodes, &mut of, &mut held, limits, ROUNDS);
    repair(nodes, &mut of, &mut held, limits);
    of
}
