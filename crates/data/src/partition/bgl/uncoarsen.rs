//! Uncoarsening: projects the parts of the largest blocks to the nodes, level by level, with
//! refinement at each level and repair at the end.

use super::{
    super::limits::{Limits, Load},
    climb::climb,
    level::{Blocks, Nodes},
    refine::refine,
    repair::repair,
};

/// Maximum number of refinement rounds.
pub(super) const ROUNDS: usize = 4;
/// Maximum number of hill-climbing passes.
const PASSES: usize = 2;

/// Part of every node, given that of every block of the last of `levels`, without moves. O(V).
pub(super) fn project(levels: Vec<(Vec<u32>, Blocks)>, of: Vec<u16>) -> Vec<u16> {
    levels
        .iter()
        .rev()
        .fold(of, |of, (block_of, _)| block_of.iter().map(|&block| of[block as usize]).collect())
}

/// Part of every node, given that of every block of the last of `levels` (the block of every
/// vertex, and their graph) and the load of each part. O(V + E).
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
