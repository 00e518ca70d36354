//! Rows of the bottom layer that are read instead of computed (NeutronOrch, section 4.1.2).
//!
//! ```text
//!   destinations of the bottom block:   own rows of block 1 │ computed │ reused
//!                                       ───── stay in the batch ───────┴─ only their slots do
//! ```
//!
//! The nodes that block 1 reads as its own are always computed: they come first, and whatever is reused stands behind.

use graphmill_core::NodeId;

use crate::{MiniBatch, Workspace, prefetch::prefetch};

/// Nodes whose reads are in flight together.
const AHEAD: usize = 16;
/// Stands for no slot.
const NONE: u32 = u32::MAX;

/// Where the rows of some nodes stand in a table: 4 bytes for each node of the graph.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    of: Vec<u32>,
    nodes: Vec<NodeId>,
}

impl Slots {
    /// The nodes that have a slot, by slot.
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// The slot of a node.
    pub fn get(&self, node: NodeId) -> Option<u32> {
        self.of.get(node as usize).copied().filter(|&slot| slot != NONE)
    }

    /// Slots for these nodes of a graph of `num_nodes`, in their order, instead of those before. O(nodes) but for the first time.
    ///
    /// # Panics
    /// A node is not of the graph.
    pub fn set(&mut self, num_nodes: usize, nodes: impl IntoIterator<Item = NodeId>) {
        self.of.resize(num_nodes, NONE);
        self.nodes.iter().for_each(|&v| self.of[v as usize] = NONE);
        self.nodes.clear();
        self.nodes.extend(nodes);
        for (&v, slot) in self.nodes.iter().zip(0..) {
            self.of[v as usize] = slot;
        }
    }
}

impl MiniBatch {
    /// Takes the nodes that have slots out of the destinations of the bottom block, behind
    /// [`BatchPart::Upper`](crate::sampler::BatchPart::Upper): `input_nodes` are then those that are computed, and the rows of the others,
    /// `reused`, stand behind theirs among the sources of block 1. Where `restrict` says so only the computed rows want a
    /// gradient. The order of both kinds stays. O(D + E) of block 1.
    pub fn reuse(&mut self, slots: &Slots, restrict: bool, workspace: &mut Workspace) {
        let Self { blocks, input_nodes: nodes, reused, .. } = self;
        let block = &mut blocks[1];
        let own = block.num_dst;
        let to = &mut workspace.renumbered;
        reused.clear();
        to.clear();
        let mut computed = own;
        if !slots.nodes.is_empty() {
            for i in own..nodes.len() {
                if let Some(&ahead) = nodes.get(i + AHEAD) {
                    prefetch(&slots.of, ahead as usize);
                }
                // a source that stays keeps below those that go: the two kinds of numbers cannot meet
                match slots.get(nodes[i]) {
                    None => {
                        nodes[computed] = nodes[i];
                        to.push(computed as u32);
                        computed += 1;
                    }
                    Some(slot) => {
                        to.push(NONE - reused.len() as u32);
                        reused.push(slot);
                    }
                }
            }
            nodes.truncate(computed);
        }
        if !reused.is_empty() {
            for source in &mut block.indices {
                if let Some(&to) = (*source as usize).checked_sub(own).and_then(|i| to.get(i)) {
                    *source = if (to as usize) < computed { to } else { computed as u32 + (NONE - to) };
                }
            }
        }
        block.grad_src = (restrict && !reused.is_empty()).then_some(nodes.len());
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::Block;

    use super::*;

    #[test]
    fn slots_are_set_anew() {
        let mut slots = Slots::default();
        assert_eq!(slots.get(3), None);
        slots.set(6, [4, 1]);
        assert_eq!([0, 1, 4].map(|v| slots.get(v)), [None, Some(1), Some(0)]);
        slots.set(6, [1, 5]);
        assert_eq!([1, 4, 5].map(|v| slots.get(v)), [Some(0), None, Some(1)]);
        assert_eq!(slots.nodes(), [1, 5]);
    }

    #[test]
    fn every_edge_leads_where_it_led() {
        // nodes 10.. are the sources of block 1; its own are the first two
        let nodes: Vec<NodeId> = (10..30).collect();
        let block = Block {
            num_dst: 2,
            num_src: 20,
            indptr: vec![0, 11, 20],
            indices: (0..20).map(|i| i * 7 % 20).collect(),
            ..Block::default()
        };
        for hot in [vec![], vec![29], vec![11, 10], vec![13, 29, 12, 20, 10], (10..30).rev().collect()] {
            let mut slots = Slots::default();
            slots.set(40, hot.iter().copied());
            let mut batch = MiniBatch {
                blocks: vec![Block::default(), block.clone()],
                input_nodes: nodes.clone(),
                ..MiniBatch::default()
            };
            batch.reuse(&slots, true, &mut Workspace::new(40));
            let all: Vec<NodeId> = batch
                .input_nodes
                .iter()
                .copied()
                .chain(batch.reused.iter().map(|&slot| slots.nodes()[slot as usize]))
                .collect();
            assert_eq!(all[..2], [10, 11], "own rows stay");
            let reached = |block: &Block, nodes: &[NodeId]| -> Vec<NodeId> {
                block.indices.iter().map(|&u| nodes[u as usize]).collect()
            };
            assert_eq!(reached(&batch.blocks[1], &all), reached(&block, &nodes));
            let reused = hot.iter().filter(|&&v| v > 11).count();
            assert_eq!((batch.reused.len(), batch.input_nodes.len()), (reused, 20 - reused));
            assert_eq!(batch.blocks[1].grad_src, (reused > 0).then_some(20 - reused));
            assert!(batch.input_nodes.is_sorted(), "the order stays");
        }
    }
}
