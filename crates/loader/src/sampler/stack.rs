//! Minibatches of stacked hops: the nodes of all hops so far are the destinations of the next.

use std::{ops::Range, sync::Arc};

use graphmill_core::{Block, NodeId, Result, memory};

use super::{
    BatchRequest, BlockLayout, HopRequest, HopSampler, HopScratch, MinibatchSampler, SamplerProperties,
    SplitSampler, Workspace,
    parts::{PART, draw_and_number},
    sample_remaining,
};
use crate::{Sampled, Seeds, Upper, link::ExcludedEdges};

/// Minibatches of stacked hops (DGL's message-flow blocks).
///
/// One list of nodes in first-seen order serves every block, and the destinations of each block are
/// a prefix of its sources.
#[derive(Clone)]
pub struct HopStack(Arc<dyn HopSampler>);

impl HopStack {
    /// Stacks the hops of `sampler`.
    pub fn new(sampler: impl HopSampler + 'static) -> Self {
        Self(Arc::new(sampler))
    }

    /// Sampler of a hop.
    pub fn hops(&self) -> &dyn HopSampler {
        &*self.0
    }
}

impl From<Arc<dyn HopSampler>> for HopStack {
    fn from(sampler: Arc<dyn HopSampler>) -> Self {
        Self(sampler)
    }
}

impl MinibatchSampler for HopStack {
    fn properties(&self) -> SamplerProperties {
        let properties = self.0.properties();
        SamplerProperties {
            num_layers: self.0.num_layers(),
            is_random: properties.is_random,
            reads_edge_weights: properties.reads_edge_weights,
            subgraphs: None,
        }
    }

    fn sample(&self, request: &BatchRequest, workspace: &mut Workspace, seeds: Seeds) -> Result<Sampled> {
        let layers = self.0.num_layers();
        let mut batch = seeds.into_sampled(layers);
        let Sampled { seeds, blocks, input_nodes: nodes, .. } = &mut batch;
        memory::demand_append(nodes, &seeds.nodes);
        workspace.relabel.start(nodes);
        self.draw(request, seeds.excluded(), 0..layers, workspace, nodes, blocks)?;
        Ok(batch)
    }

    fn split(&self) -> Option<&dyn SplitSampler> {
        Some(self)
    }
}

impl SplitSampler for HopStack {
    fn sample_upper(&self, request: &BatchRequest, workspace: &mut Workspace, seeds: Seeds) -> Result<Upper> {
        let layers = self.0.num_layers();
        let mut upper = seeds.into_upper(layers);
        let Upper { seeds, blocks, destinations: nodes, .. } = &mut upper;
        memory::demand_append(nodes, &seeds.nodes);
        workspace.relabel.start(nodes);
        let layout = BlockLayout { transposed: request.layout.transposed & !2, ..request.layout };
        let request = request.with_layout(layout);
        self.draw(&request, seeds.excluded(), 0..layers - 1, workspace, nodes, blocks)?;
        Ok(upper)
    }

    fn sample_bottom(
        &self,
        request: &BatchRequest,
        workspace: &mut Workspace,
        upper: Upper,
    ) -> Result<Sampled> {
        let layers = self.0.num_layers();
        let mut batch = upper.into_sampled();
        let Sampled { seeds, blocks, input_nodes: nodes, .. } = &mut batch;
        if !request.layout.fused {
            workspace.relabel.start(nodes);
        }
        let hops = layers - 1..layers;
        self.draw(request, seeds.excluded(), hops, workspace, nodes, &mut blocks[..1])?;
        Ok(batch)
    }
}

impl HopStack {
    /// Draws the given hops of a batch into a block each, the last hop into the first block,
    /// without the excluded edges. `nodes` are the batch's nodes so far, in the order of their
    /// local ids.
    fn draw(
        &self,
        request: &BatchRequest,
        excluded: Option<&ExcludedEdges>,
        hops: Range<usize>,
        workspace: &mut Workspace,
        nodes: &mut Vec<NodeId>,
        blocks: &mut [Block],
    ) -> Result<()> {
        let (sampler, layers, properties) = (&*self.0, self.0.num_layers(), self.0.properties());
        let &BatchRequest { graph, key, layout } = request;
        let Workspace { relabel, hop: scratch, parts, .. } = workspace;
        for (hop, block) in hops.zip(blocks.iter_mut().rev()) {
            let bottom = hop + 1 == layers;
            let ids = block.dst_ids.take();
            block.clear();
            block.num_dst = nodes.len();
            let draw = |dst: &[NodeId], scratch: &mut HopScratch, block: &mut Block| {
                block.edge_weight.clear();
                let aggregation = layout.aggregation;
                let request = HopRequest { aggregation, excluded, ..HopRequest::new(graph, hop, dst, key) };
                sample_remaining(sampler, &request, scratch, block)?;
                if let Some(symmetric) = layout.symmetric {
                    symmetric.fill(graph, dst, excluded, block);
                }
                Ok(())
            };
            if bottom && layout.fused {
                draw(nodes, scratch, block)?;
                let mut ids = ids.unwrap_or_default();
                memory::demand_copy(&mut ids, nodes);
                block.dst_ids = Some(ids);
                block.num_src = graph.num_nodes();
                continue;
            }
            let several = scratch.parallel && rayon::current_num_threads() > 1;
            if several && nodes.len() > PART && properties.is_per_node {
                draw_and_number(draw, relabel, scratch, parts, nodes, block)?;
            } else {
                draw(nodes, scratch, block)?;
                let new = &mut parts.new;
                new.clear();
                relabel.relabel(&mut block.indices, nodes, new);
                memory::demand(nodes, new.len());
                nodes.extend_from_slice(new);
            }
            block.num_src = nodes.len();
            if layout.transposed >> (layers - 1 - hop) & 1 == 1 {
                if scratch.parallel { block.par_transpose() } else { block.transpose() }
            }
        }
        Ok(())
    }
}
