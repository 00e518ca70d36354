//! Subgraphs whose nodes read all their neighbours, also those outside of the subgraph.
//!
//! # Algorithm
//!
//! The nodes of a subgraph become the seeds of a batch of full hops, with the subgraph's loss
//! weights:
//!
//! ```text
//!   block 1 (upper):    nodes of the subgraph                ◄── all their neighbours
//!   block 0 (bottom):   nodes of the subgraph, and outside   ◄── all their neighbours
//! ```
//!
//! Every layer aggregates all neighbours, so no sum is estimated from the part of the neighbours
//! that a subgraph happens to hold. The hops may read another graph than the one that subgraphs are
//! drawn from: a rank draws subgraphs among its own parts, and reads neighbours in all parts
//! ([`Surrounded::with_hops`]). The bottom block is drawn separately ([`SplitSampler`]),
//! without the nodes whose rows are reused: if all nodes outside have rows, its destinations are
//! the nodes of the subgraph alone.
//!
//! # Source
//!
//! Fey, Lenssen, Weichert and Leskovec, *GNNAutoScale: Scalable and Expressive Graph Neural
//! Networks via Historical Embeddings*, ICML 2021, section 2, equation 2.
//!
//! # Cost
//!
//! The edges into the nodes of the subgraph, once for each layer, and those into the nodes outside
//! whose rows are not reused.
//!
//! # Deviations
//!
//! Rows outside are reused for the bottom layer alone. With more than two layers the upper hops
//! take all neighbours, too, whose rows are computed in the batch.

use std::sync::Arc;

use graphmill_core::{Graph, Result};

use super::{
    BatchRequest, HopStack, MinibatchSampler, NodeSets, SamplerProperties, SplitSampler, Subgraphs,
    Workspace, full::Full,
};
use crate::{Sampled, Seeds, Upper};

/// Minibatches of subgraphs and all neighbours of their nodes.
pub struct Surrounded {
    subgraphs: Arc<dyn NodeSets>,
    hops: HopStack,
    /// Graph that subgraphs are drawn from, if it is not the graph of the requests.
    source: Option<Graph>,
    /// Graph that the hops read, if it is not the graph of the requests.
    read: Option<Graph>,
}

impl Surrounded {
    /// Surrounds `subgraphs` for a model of `layers` layers.
    ///
    /// # Errors
    /// `layers` is 0 or more than 64.
    pub fn new(subgraphs: Subgraphs, layers: usize) -> Result<Self, String> {
        let (read, hops) = (subgraphs.training().cloned(), HopStack::new(Full::new(layers)?));
        Ok(Self { subgraphs: Arc::new(subgraphs), hops, source: None, read })
    }

    /// Surrounds `subgraphs` by `hops` over the graph of the requests. The subgraphs are drawn from
    /// the graph `source` for which they were made, or from that of the requests. Both graphs have
    /// the same nodes. If the subgraphs are inductive, the graph of the requests must have the
    /// edges between training nodes alone.
    pub fn with_hops(subgraphs: Arc<dyn NodeSets>, source: Option<Graph>, hops: HopStack) -> Self {
        Self { subgraphs, hops, source, read: None }
    }

    /// The request for the hops, over the graph that is trained on.
    fn inner<'r>(&'r self, request: &BatchRequest<'r>) -> BatchRequest<'r> {
        BatchRequest { graph: self.read.as_ref().unwrap_or(request.graph), ..*request }
    }

    /// Replaces the seeds by the nodes of the subgraph of this request; returns them with their
    /// loss weights.
    fn draw(
        &self,
        request: &BatchRequest,
        workspace: &mut Workspace,
        mut seeds: Seeds,
    ) -> Result<(Seeds, Vec<f32>)> {
        seeds.refuse_links()?;
        let mut loss_weight = seeds.take_loss_weight();
        let graph = self.source.as_ref().unwrap_or(request.graph);
        let request = BatchRequest { graph, ..*request };
        self.subgraphs.draw_nodes(&request, workspace, &mut seeds.nodes, &mut loss_weight)?;
        Ok((seeds, loss_weight))
    }
}

impl MinibatchSampler for Surrounded {
    fn properties(&self) -> SamplerProperties {
        let subgraphs = Some(self.subgraphs.epoch());
        SamplerProperties { is_random: true, subgraphs, ..self.hops.properties() }
    }

    fn sample(&self, request: &BatchRequest, workspace: &mut Workspace, seeds: Seeds) -> Result<Sampled> {
        let (seeds, loss_weight) = self.draw(request, workspace, seeds)?;
        Ok(Sampled { loss_weight, ..self.hops.sample(&self.inner(request), workspace, seeds)? })
    }

    fn split(&self) -> Option<&dyn SplitSampler> {
        Some(self)
    }
}

impl SplitSampler for Surrounded {
    fn sample_upper(&self, request: &BatchRequest, workspace: &mut Workspace, seeds: Seeds) -> Result<Upper> {
        let (seeds, loss_weight) = self.draw(request, workspace, seeds)?;
        let mut upper = self.hops.sample_upper(&self.inner(request), workspace, seeds)?;
        upper.loss_weight = loss_weight;
        Ok(upper)
    }

    fn sample_bottom(
        &self,
        request: &BatchRequest,
        workspace: &mut Workspace,
        upper: Upper,
    ) -> Result<Sampled> {
        self.hops.sample_bottom(&self.inner(request), workspace, upper)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use graphmill_core::{Block, EdgeOptions, Graph, NodeId, build, induced::induced_graph, keyed};

    use super::*;
    use crate::{
        BatchKey,
        sampler::{SamplerOptions, Source, TABLE, subgraphs::SubgraphTraining},
        subgraph::{cluster::ClusterOptions, frontier::FrontierOptions},
    };

    fn graph() -> Graph {
        let mut stream = keyed::Stream::new(keyed::key(&[7]));
        let mut draw = || stream.below(300) as u32;
        let (src, dst): (Vec<u32>, Vec<u32>) = (0..1500).map(|_| (draw(), draw())).unzip();
        build(300, &src, &dst, EdgeOptions { undirected: true, ..EdgeOptions::DIRECTED }).unwrap()
    }

    /// Neighbours of each destination, as ids of the graph.
    fn drawn(block: &Block, nodes: &[NodeId]) -> Vec<BTreeSet<NodeId>> {
        let of = |v: usize| block.indices[block.edges(v)].iter().map(|&u| nodes[u as usize]).collect();
        (0..block.num_dst).map(of).collect()
    }

    #[test]
    fn every_layer_reads_all_neighbours_of_the_same_subgraph() {
        let (graph, train): (Graph, Vec<NodeId>) = (graph(), (0..150).collect());
        let source = Source::new(&graph, &train);
        for entry in TABLE.iter().filter(|entry| entry.make.draws_subgraphs()) {
            for inductive in [false, true] {
                let mut options =
                    SamplerOptions { fanout: [5, 5].into(), budget: 40, ..SamplerOptions::default() };
                options.own.get_mut::<FrontierOptions>().frontier_size = 20;
                let clusters = options.own.get_mut::<ClusterOptions>();
                (clusters.parts, clusters.parts_per_batch) = (8, 2);
                let training = options.own.get_mut::<SubgraphTraining>();
                (training.inductive, training.sample_coverage) = (inductive, 5.0);
                let plain = entry.make.make(&options, &source).unwrap();
                let around = entry.make.in_parts(&options, &source).unwrap();
                assert_eq!(around.properties().subgraphs, plain.properties().subgraphs);
                assert_eq!((plain.properties().num_layers, around.properties().num_layers), (1, 2));
                let (mut first, mut second) = (Workspace::new(300), Workspace::new(300));
                for batch in 0..3 {
                    let request = BatchRequest::new(&graph, BatchKey { seed: 5, epoch: 1, batch });
                    let expected = plain.sample(&request, &mut first, Seeds::new(batch, [])).unwrap();
                    let whole = around.sample(&request, &mut second, Seeds::new(batch, [])).unwrap();
                    assert_eq!(whole.seeds.nodes, expected.seeds.nodes, "{}", entry.name);
                    assert_eq!(whole.loss_weight, expected.loss_weight, "{}", entry.name);
                    let neighbours = |&v: &NodeId| -> BTreeSet<NodeId> {
                        let all = graph.in_neighbors(v).iter().copied();
                        all.filter(|&u| !inductive || u < 150 && v < 150).collect()
                    };
                    for block in &whole.blocks {
                        let destinations = &whole.input_nodes[..block.num_dst];
                        let all: Vec<_> = destinations.iter().map(neighbours).collect();
                        assert_eq!(drawn(block, &whole.input_nodes), all, "{}", entry.name);
                    }
                    // in two steps, with the memory of another batch
                    let parts = around.split().unwrap();
                    let upper = parts.sample_upper(&request, &mut first, expected.recycle()).unwrap();
                    assert_eq!(upper.destinations, whole.input_nodes[..whole.blocks[0].num_dst]);
                    let again = parts.sample_bottom(&request, &mut first, upper).unwrap();
                    assert_eq!(again.input_nodes, whole.input_nodes);
                    assert_eq!(again.loss_weight, whole.loss_weight);
                    for (block, same) in again.blocks.iter().zip(&whole.blocks) {
                        assert_eq!((&block.indptr, &block.indices), (&same.indptr, &same.indices));
                    }
                }
            }
        }
    }

    #[test]
    fn hops_read_other_edges_than_those_that_subgraphs_are_drawn_from() {
        let (graph, train): (Graph, Vec<NodeId>) = (graph(), (0..100).collect());
        let part = induced_graph(&graph, &(0..200).collect::<Vec<_>>()).unwrap();
        let entry = TABLE.find("saint-rw").unwrap();
        let options = SamplerOptions { fanout: [5, 5].into(), budget: 40, ..SamplerOptions::default() };
        let source = Source::new(&part, &train);
        let plain = entry.make.make(&options, &source).unwrap();
        let subgraphs = entry.make.make_subgraphs(&options, &source).unwrap();
        let hops = HopStack::new(Full::new(2).unwrap());
        let around = Surrounded::with_hops(Arc::new(subgraphs), Some(part.clone()), hops);
        let mut workspace = Workspace::new(300);
        let key = BatchKey { seed: 5, epoch: 0, batch: 3 };
        let expected =
            plain.sample(&BatchRequest::new(&part, key), &mut workspace, Seeds::new(3, [])).unwrap();
        let request = BatchRequest::new(&graph, key);
        let batch = around.sample(&request, &mut workspace, Seeds::new(3, [])).unwrap();
        assert_eq!(batch.seeds.nodes, expected.seeds.nodes);
        assert_eq!(batch.loss_weight, expected.loss_weight);
        assert!(batch.seeds.nodes.iter().all(|&v| v < 200) && batch.input_nodes.iter().any(|&v| v >= 200));
        for block in &batch.blocks {
            let all = batch.input_nodes[..block.num_dst].iter();
            let all: Vec<BTreeSet<NodeId>> =
                all.map(|&v| graph.in_neighbors(v).iter().copied().collect()).collect();
            assert_eq!(drawn(block, &batch.input_nodes), all);
        }
        let upper = around.sample_upper(&request, &mut workspace, Seeds::new(3, [])).unwrap();
        let again = around.sample_bottom(&request, &mut workspace, upper).unwrap();
        assert_eq!(again.input_nodes, batch.input_nodes);
    }
}
