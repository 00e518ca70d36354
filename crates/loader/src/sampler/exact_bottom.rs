//! Minibatches whose bottom hop reads stored aggregates in the place of sampled neighbours.
//!
//! The bottom block is drawn separately ([`SplitSampler`]), so that batches can leave out the
//! destinations whose rows they reuse.
//!
//! # Algorithm
//!
//! The feature table has `2 V` rows: row `v` holds the features of node `v`, row `V + v` the
//! aggregate of all its in-neighbours. The bottom block gives each of its `D` destinations `v` one
//! edge, from row `V + v`. The mean and the sum over that edge are the stored aggregate; in a block
//! with symmetric weights the edge weighs 1 and the destination's own row 0, because the aggregate
//! includes it. Every layer that aggregates with fixed coefficients therefore computes its exact
//! bottom hop without a case of its own.
//!
//! ```text
//!   sources of the bottom block:   rows of the D destinations │ their D aggregates
//! ```
//!
//! # Source
//!
//! Chen, Zhu and Song, *Stochastic Training of Graph Convolutional Networks with Variance
//! Reduction*, ICML 2018, section 4.4 (preprocessing).
//!
//! # Cost
//!
//! O(D) for the bottom block, and `2 D` feature rows; a sampled hop draws `E` edges and reads up to
//! `D + E` rows.

use graphmill_core::{Block, Error, NodeId, Result, block::Aggregation, memory};

use super::{BatchRequest, MinibatchSampler, SamplerProperties, SplitSampler, Workspace};
use crate::{Sampled, Seeds, Upper};

/// Sampler that draws the upper hops of another one, and reads the bottom hop from aggregates.
pub struct ExactBottom {
    inner: Box<dyn MinibatchSampler>,
    nodes: NodeId,
}

impl ExactBottom {
    /// Wraps a sampler of a graph of `nodes` nodes.
    ///
    /// # Errors
    /// The sampler does not draw hop by hop, or 32-bit ids cannot number `2 V` rows.
    pub fn new(inner: Box<dyn MinibatchSampler>, nodes: usize) -> Result<Self> {
        if inner.split().is_none() {
            return Err(Error::invalid("the sampler does not draw the bottom hop separately"));
        }
        match NodeId::try_from(nodes) {
            Ok(id) if id <= NodeId::MAX / 2 => Ok(Self { inner, nodes: id }),
            _ => Err(Error::invalid(format!("{nodes} nodes have more rows than 32-bit ids can number"))),
        }
    }
}

/// Fills the bottom block of a graph of `count` nodes, with the weights of a `symmetric`
/// aggregation if it is one. `nodes` are its `D` destinations, and become its `2 D` sources.
pub fn exact_bottom_block(count: NodeId, symmetric: bool, nodes: &mut Vec<NodeId>, block: &mut Block) {
    let rows = nodes.len();
    block.clear();
    (block.num_dst, block.num_src, block.dst_ids) = (rows, 2 * rows, None);
    memory::demand(&mut block.indptr, rows + 1);
    memory::demand(&mut block.indices, rows);
    block.indptr.extend(0..=rows as u32);
    block.indices.extend(rows as u32..2 * rows as u32);
    if symmetric {
        memory::demand_len(&mut block.edge_weight, rows, 1.0);
        memory::demand_len(&mut block.self_weight, rows, 0.0);
    }
    memory::demand(nodes, rows);
    nodes.extend_from_within(..);
    nodes[rows..].iter_mut().for_each(|v| *v += count);
}

impl ExactBottom {
    fn upper(&self) -> Result<&dyn SplitSampler> {
        self.inner.split().ok_or_else(|| Error::invalid("the sampler no longer draws hop by hop"))
    }
}

impl MinibatchSampler for ExactBottom {
    fn properties(&self) -> SamplerProperties {
        let properties = self.inner.properties();
        SamplerProperties { is_random: properties.is_random && properties.num_layers > 1, ..properties }
    }

    fn sample(&self, request: &BatchRequest, workspace: &mut Workspace, seeds: Seeds) -> Result<Sampled> {
        let upper = self.sample_upper(request, workspace, seeds)?;
        let mut batch = self.sample_bottom(request, workspace, upper)?;
        // the upper blocks come without the transpose of the lowest
        if request.layout.transposed & 2 != 0
            && let Some(block) = batch.blocks.get_mut(1).filter(|block| !block.is_transposed())
        {
            workspace.transpose(block);
        }
        Ok(batch)
    }

    fn split(&self) -> Option<&dyn SplitSampler> {
        Some(self)
    }
}

impl SplitSampler for ExactBottom {
    fn sample_upper(&self, request: &BatchRequest, workspace: &mut Workspace, seeds: Seeds) -> Result<Upper> {
        self.upper()?.sample_upper(request, workspace, seeds)
    }

    fn sample_bottom(
        &self,
        request: &BatchRequest,
        workspace: &mut Workspace,
        upper: Upper,
    ) -> Result<Sampled> {
        let layout = request.layout;
        let mut batch = upper.into_sampled();
        let Sampled { input_nodes, blocks, .. } = &mut batch;
        let symmetric = layout.symmetric.is_some() || layout.aggregation == Aggregation::Symmetric;
        exact_bottom_block(self.nodes, symmetric, input_nodes, &mut blocks[0]);
        if layout.transposed & 1 != 0 {
            workspace.transpose(&mut blocks[0]);
        }
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::Graph;

    use super::*;
    use crate::{
        BatchKey, BlockLayout,
        sampler::{HopStack, neighbor::Neighbor},
        weights::SymmetricWeights,
    };

    /// Node `v` of 50 has the three nodes after it as in-neighbours.
    fn graph() -> Graph {
        let indices: Vec<u32> = (0..150).map(|e| (e / 3 + e % 3 + 1) % 50).collect();
        Graph::new((0..=50).map(|v| 3 * v).collect::<Vec<u64>>().into(), indices.into()).unwrap()
    }

    fn stack(fanout: &[i64]) -> Box<dyn MinibatchSampler> {
        Box::new(HopStack::new(Neighbor::new(fanout).unwrap()))
    }

    /// Sampler that draws all blocks at once.
    struct Whole;

    impl MinibatchSampler for Whole {
        fn properties(&self) -> SamplerProperties {
            stack(&[1]).properties()
        }

        fn sample(&self, _: &BatchRequest, _: &mut Workspace, seeds: Seeds) -> Result<Sampled> {
            Ok(seeds.into_sampled(1))
        }
    }

    #[test]
    fn upper_blocks_are_those_of_the_sampler_and_the_bottom_block_reads_aggregates() {
        let graph = graph();
        let weights = SymmetricWeights::new(&graph);
        let symmetric = BlockLayout { symmetric: Some(&weights), ..BlockLayout::default() };
        for layout in [BlockLayout::default(), symmetric] {
            let layout = BlockLayout { transposed: 0b11, ..layout };
            let key = BatchKey { seed: 3, epoch: 1, batch: 2 };
            let request = BatchRequest::new(&graph, key).with_layout(layout);
            let draw = |sampler: &dyn MinibatchSampler| {
                sampler.sample(&request, &mut Workspace::new(50), Seeds::new(2, &[7, 30, 2][..])).unwrap()
            };
            let sampled = draw(&*stack(&[2, 2]));
            let exact = draw(&ExactBottom::new(stack(&[2, 2]), 50).unwrap());
            let [bottom, top] = &exact.blocks[..] else { panic!("two blocks") };
            let other = &sampled.blocks[1];
            assert_eq!((&top.indptr, &top.indices), (&other.indptr, &other.indices));
            assert_eq!(top.edge_weight, other.edge_weight);
            assert_eq!(top.transposed.dst, other.transposed.dst);
            let count = top.num_src;
            assert_eq!((bottom.num_dst, bottom.num_src), (count, 2 * count));
            assert!(bottom.is_transposed());
            let (own, aggregates) = exact.input_nodes.split_at(count);
            assert_eq!(own, &sampled.input_nodes[..count]);
            for v in 0..count {
                assert_eq!(bottom.indices[bottom.edges(v)], [(count + v) as u32]);
                assert_eq!(aggregates[v], own[v] + 50);
            }
            let weighted = layout.symmetric.is_some();
            assert_eq!(bottom.edge_weight, vec![1.0; if weighted { count } else { 0 }]);
            assert_eq!(bottom.self_weight, vec![0.0; if weighted { count } else { 0 }]);
        }
    }

    #[test]
    fn a_single_layer_draws_nothing() {
        let graph = graph();
        let sampler = ExactBottom::new(stack(&[2]), 50).unwrap();
        assert!(!sampler.properties().is_random);
        let request = BatchRequest::new(&graph, BatchKey { seed: 3, epoch: 1, batch: 2 });
        let batch = sampler.sample(&request, &mut Workspace::new(50), Seeds::new(0, &[4, 9][..])).unwrap();
        assert_eq!(batch.input_nodes, [4, 9, 54, 59]);
    }

    #[test]
    fn destinations_that_are_left_out_have_no_row_and_no_aggregate() {
        let graph = graph();
        let sampler = ExactBottom::new(stack(&[2, 2]), 50).unwrap();
        let layout = BlockLayout { transposed: 0b01, ..BlockLayout::default() };
        let key = BatchKey { seed: 3, epoch: 1, batch: 2 };
        let request = BatchRequest::new(&graph, key).with_layout(layout);
        let (mut workspace, seeds) = (Workspace::new(50), Seeds::new(2, &[7, 30, 2][..]));
        let split = sampler.split().unwrap();
        let mut upper = split.sample_upper(&request, &mut workspace, seeds).unwrap();
        assert!(upper.destinations.len() > 4);
        upper.destinations.truncate(4);
        let kept = upper.destinations.clone();
        let batch = split.sample_bottom(&request, &mut workspace, upper).unwrap();
        let aggregates = kept.iter().map(|v| v + 50);
        assert!(batch.input_nodes.iter().copied().eq(kept.iter().copied().chain(aggregates)));
        assert_eq!((batch.blocks[0].num_dst, batch.blocks[0].num_edges()), (4, 4));
        assert!(batch.blocks[0].is_transposed() && !batch.blocks[1].is_transposed());
    }

    #[test]
    fn samplers_of_whole_batches_and_too_many_nodes_are_refused() {
        assert!(ExactBottom::new(stack(&[1]), 1 << 31).is_err());
        assert!(ExactBottom::new(stack(&[1]), (1 << 31) - 1).is_ok());
        assert!(ExactBottom::new(Box::new(Whole), 50).is_err());
    }
}
