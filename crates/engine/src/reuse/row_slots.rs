//! Removal of the destinations of bottom blocks whose rows are reused (NeutronOrch, Ai et al., VLDB
//! 2024, section 4.1.2).
//!
//! ```text
//!   destinations of the bottom block:   own rows of block 1 │ computed │ reused
//!                                       ───── stay in the batch ───────┴─ only their slots stay
//! ```
//!
//! The rows of block 1's own destinations come first and are always computed; reused rows come
//! last.

use graphmill_core::{NodeId, prefetch::prefetch};
use graphmill_loader::Upper;

/// Number of nodes ahead of the current one whose slot is prefetched.
const PREFETCH_DISTANCE: usize = 16;
/// Slot of a node without a slot.
const NONE: u32 = u32::MAX;

/// Slots of nodes in a table of rows: 4 bytes per node of the graph.
#[derive(Clone, Debug, Default)]
pub struct RowSlots {
    of: Vec<u32>,
    nodes: Vec<NodeId>,
}

impl RowSlots {
    /// Nodes with a slot, in the order of their slots.
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// Slot of a node, if it has one.
    pub fn get(&self, node: NodeId) -> Option<u32> {
        self.of.get(node as usize).copied().filter(|&slot| slot != NONE)
    }

    /// Gives these nodes of a graph of `num_nodes` nodes slots in their order, and removes all
    /// other slots. O(old and new nodes); the first call O(num_nodes).
    ///
    /// # Panics
    /// A node is `num_nodes` or more.
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

/// Removes the nodes with slots from the destinations of the bottom block.
///
/// The remaining destinations are computed. Among the sources of block 1, the reused rows follow
/// the computed ones; `reused` receives their slots. Both keep their order. With `restrict` only
/// the computed rows get a gradient. O(D + E) of block 1.
pub(super) fn remove_reused(
    upper: &mut Upper,
    slots: &RowSlots,
    restrict: bool,
    renumbered: &mut Vec<u32>,
    reused: &mut Vec<u32>,
) {
    let Upper { blocks, destinations: nodes, .. } = upper;
    let block = &mut blocks[0];
    let own = block.num_dst;
    take_reused(nodes, own, slots, renumbered, reused);
    if !reused.is_empty() {
        renumber(&mut block.indices, own, nodes.len(), renumbered);
    }
    block.grad_src = (restrict && !reused.is_empty()).then_some(nodes.len());
}

/// Removes the nodes with slots from `nodes`, of which the first `own` stay. `reused` receives
/// their slots, and `renumbered` what [`renumber`] reads.
pub(crate) fn take_reused(
    nodes: &mut Vec<NodeId>,
    own: usize,
    slots: &RowSlots,
    renumbered: &mut Vec<u32>,
    reused: &mut Vec<u32>,
) {
    reused.clear();
    renumbered.clear();
    let mut computed = own;
    if !slots.nodes.is_empty() {
        for i in own..nodes.len() {
            if let Some(&ahead) = nodes.get(i + PREFETCH_DISTANCE) {
                prefetch(&slots.of, ahead as usize);
            }
            // computed sources are numbered from 0 up and reused ones from `NONE` down, so their
            // numbers are distinct
            match slots.get(nodes[i]) {
                None => {
                    nodes[computed] = nodes[i];
                    renumbered.push(computed as u32);
                    computed += 1;
                }
                Some(slot) => {
                    renumbered.push(NONE - reused.len() as u32);
                    reused.push(slot);
                }
            }
        }
        nodes.truncate(computed);
    }
}

/// Renumbers sources after [`take_reused`], which has left `computed` nodes: the reused ones follow
/// these. O(sources).
pub(crate) fn renumber(sources: &mut [u32], own: usize, computed: usize, renumbered: &[u32]) {
    for source in sources {
        if let Some(&to) = (*source as usize).checked_sub(own).and_then(|i| renumbered.get(i)) {
            *source = if (to as usize) < computed { to } else { computed as u32 + (NONE - to) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use graphmill_core::{Block, EdgeOptions, Graph, build, keyed};
    use graphmill_loader::{
        BatchKey, BlockLayout, MinibatchSampler, Sampled, Seeds, Workspace,
        sampler::{self, BatchRequest, HopStack, Make, SamplerOptions, Source, SplitSampler},
    };
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn set_replaces_all_slots() {
        let mut slots = RowSlots::default();
        assert_eq!(slots.get(3), None);
        slots.set(6, [4, 1]);
        assert_eq!([0, 1, 4].map(|v| slots.get(v)), [None, Some(1), Some(0)]);
        slots.set(6, [1, 5]);
        assert_eq!([1, 4, 5].map(|v| slots.get(v)), [Some(0), None, Some(1)]);
        assert_eq!(slots.nodes(), [1, 5]);
    }

    #[test]
    fn edges_reach_the_same_nodes_after_removal() {
        // nodes 10.. are the sources of block 1; its own destinations are the first two
        let nodes: Vec<NodeId> = (10..30).collect();
        let block = Block {
            num_dst: 2,
            num_src: 20,
            indptr: vec![0, 11, 20],
            indices: (0..20).map(|i| i * 7 % 20).collect(),
            ..Block::default()
        };
        for hot in [vec![], vec![29], vec![11, 10], vec![13, 29, 12, 20, 10], (10..30).rev().collect()] {
            let mut slots = RowSlots::default();
            slots.set(40, hot.iter().copied());
            let mut upper = Seeds::default().into_upper(2);
            upper.blocks[0] = block.clone();
            upper.destinations.extend_from_slice(&nodes);
            let mut reused = Vec::new();
            remove_reused(&mut upper, &slots, true, &mut Vec::new(), &mut reused);
            let Upper { blocks, destinations: computed, .. } = &upper;
            let behind = reused.iter().map(|&slot| slots.nodes()[slot as usize]);
            let all: Vec<NodeId> = computed.iter().copied().chain(behind).collect();
            assert_eq!(all[..2], [10, 11], "own rows stay");
            let reached = |block: &Block, nodes: &[NodeId]| -> Vec<NodeId> {
                block.indices.iter().map(|&u| nodes[u as usize]).collect()
            };
            assert_eq!(reached(&blocks[0], &all), reached(&block, &nodes));
            let count = hot.iter().filter(|&&v| v > 11).count();
            assert_eq!((reused.len(), computed.len()), (count, 20 - count));
            assert_eq!(blocks[0].grad_src, (count > 0).then_some(20 - count));
            assert!(computed.is_sorted(), "the order stays");
        }
    }

    fn random_graph(nodes: u32, edges: usize, seed: u64) -> Graph {
        let mut stream = keyed::Stream::new(keyed::key(&[seed]));
        let mut draw = || stream.below(u64::from(nodes)) as u32;
        let (src, dst): (Vec<u32>, Vec<u32>) = (0..edges).map(|_| (draw(), draw())).unzip();
        let graph = build(nodes as usize, &src, &dst, EdgeOptions::DIRECTED).unwrap();
        let weights: Vec<f32> = (0..graph.num_edges()).map(|e| (e * 7 % 5) as f32).collect();
        graph.with_edge_weight(weights.into()).unwrap()
    }

    /// Drawn neighbours of each destination, as global ids.
    fn drawn(block: &Block, nodes: &[NodeId]) -> Vec<Vec<NodeId>> {
        let id = |&i: &u32| if block.dst_ids.is_some() { i } else { nodes[i as usize] };
        (0..block.num_dst).map(|v| block.indices[block.edges(v)].iter().map(id).collect()).collect()
    }

    proptest! {
        /// With rows that are reused, the bottom block holds the same edges of the other
        /// destinations, and block 1 reads the same nodes.
        #[test]
        fn batches_reach_the_same_nodes_with_reused_rows(
            edges in 0usize..3000, nodes in 1u32..200, batch in 0u64..50, fused: bool, part in 0u32..5,
        ) {
            let graph = random_graph(nodes, edges, batch);
            let seeds: Vec<u32> = (0..nodes).filter(|v| v % 7 == 0).collect();
            let layout = BlockLayout { fused, ..BlockLayout::default() };
            let request =
                BatchRequest::new(&graph, BatchKey { seed: 5, epoch: 2, batch }).with_layout(layout);
            let mut slots = RowSlots::default();
            slots.set(nodes as usize, (0..nodes).filter(|v| v % 5 < part));
            for entry in &sampler::TABLE {
                let Make::Hops(make, _) = entry.make.make else { continue };
                let options = SamplerOptions { fanout: [3, 4, 2].into(), ..SamplerOptions::default() };
                let sampler = HopStack::from(make(&options, &Source::new(&graph, &[])).unwrap());
                let mut workspace = Workspace::new(nodes as usize);
                let whole = sampler.sample(&request, &mut workspace, Seeds::new(batch, &seeds[..])).unwrap();
                let mut upper =
                    sampler.sample_upper(&request, &mut workspace, Seeds::new(batch, &seeds[..])).unwrap();
                let mut reused = Vec::new();
                remove_reused(&mut upper, &slots, true, &mut Vec::new(), &mut reused);
                let fewer = sampler.sample_bottom(&request, &mut workspace, upper).unwrap();

                let computed = fewer.blocks[0].num_dst;
                let behind = reused.iter().map(|&slot| slots.nodes()[slot as usize]);
                let of_fewer: Vec<NodeId> =
                    fewer.input_nodes[..computed].iter().copied().chain(behind).collect();
                let of_whole = &whole.input_nodes[..whole.blocks[0].num_dst];
                prop_assert_eq!(of_fewer.len(), of_whole.len());
                prop_assert_eq!(drawn(&fewer.blocks[1], &of_fewer), drawn(&whole.blocks[1], of_whole));
                let own = whole.blocks[1].num_dst;
                let hot = |v: &NodeId| slots.get(*v).is_some();
                prop_assert!(!of_fewer[own..computed].iter().any(hot));
                prop_assert!(of_fewer[computed..].iter().all(hot));
                if !sampler.hops().properties().is_per_node {
                    continue; // its draws depend on the other destinations
                }
                let rows = |batch: &Sampled| -> BTreeMap<NodeId, Vec<NodeId>> {
                    let drawn = drawn(&batch.blocks[0], &batch.input_nodes);
                    batch.input_nodes.iter().copied().zip(drawn).collect()
                };
                let (all, some) = (rows(&whole), rows(&fewer));
                prop_assert!(some.iter().all(|(v, row)| all[v] == *row), "{}", entry.name);
            }
        }
    }
}
