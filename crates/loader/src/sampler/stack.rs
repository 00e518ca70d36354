//! Hop after hop: the nodes of all hops so far are the destinations of the next.

use std::{ops::Range, sync::Arc};

use graphmill_core::{Block, NodeId, Result};

use super::{
    BatchPart, BatchRequest, HopRequest, HopSampler, HopScratch, MinibatchSampler, SamplerProperties,
    Workspace,
    parts::{PART, draw_and_number},
};
use crate::MiniBatch;

/// Minibatches of stacked hops (DGL's message-flow blocks).
///
/// One list of nodes in first-seen order serves every block, and destinations are a prefix of sources everywhere.
#[derive(Clone)]
pub struct HopStack(Arc<dyn HopSampler>);

impl HopStack {
    /// Stacks the hops of `sampler`.
    pub fn new(sampler: impl HopSampler + 'static) -> Self {
        Self(Arc::new(sampler))
    }

    /// The sampler of a hop.
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
        let facts = self.0.properties();
        SamplerProperties {
            num_layers: self.0.num_layers(),
            is_random: facts.is_random,
            reads_edge_weights: facts.reads_edge_weights,
            subgraphs: None,
        }
    }

    fn sample(&self, request: &BatchRequest, workspace: &mut Workspace, batch: &mut MiniBatch) -> Result<()> {
        let layers = self.0.num_layers();
        let hops = match request.part {
            BatchPart::Whole => 0..layers,
            BatchPart::Upper => 0..layers - 1,
            BatchPart::Bottom => layers - 1..layers,
        };
        if request.part != BatchPart::Bottom {
            let MiniBatch { seeds, input_nodes: nodes, .. } = batch;
            nodes.clear();
            nodes.extend_from_slice(seeds);
            workspace.relabel.start(nodes);
        } else if !request.layout.fused {
            workspace.relabel.start(&batch.input_nodes);
        }
        self.draw(request, hops, workspace, batch)
    }
}

impl HopStack {
    /// Draws these hops of a batch whose nodes so far are in `batch.input_nodes`, numbered so.
    fn draw(
        &self,
        request: &BatchRequest,
        hops: Range<usize>,
        workspace: &mut Workspace,
        batch: &mut MiniBatch,
    ) -> Result<()> {
        let (sampler, layers, per_node) = (&*self.0, self.0.num_layers(), self.0.properties().is_per_node);
        let &BatchRequest { graph, key, layout, part } = request;
        // an upper part leaves block 1 without its transpose
        let transposed = if part == BatchPart::Upper { layout.transposed & !2 } else { layout.transposed };
        let Workspace { relabel, hop: scratch, parts, .. } = workspace;
        let MiniBatch { blocks, input_nodes: nodes, .. } = batch;
        blocks.resize_with(layers, Default::default);
        for hop in hops {
            let bottom = hop + 1 == layers;
            let block = &mut blocks[layers - 1 - hop];
            let ids = block.dst_ids.take();
            block.clear();
            block.num_dst = nodes.len();
            let draw = |dst: &[NodeId], scratch: &mut HopScratch, block: &mut Block| {
                block.edge_weight.clear();
                let request = HopRequest { graph, hop, dst, key, aggregation: layout.aggregation };
                sampler.sample_hop(&request, scratch, block)?;
                if let Some(symmetric) = layout.symmetric {
                    symmetric.fill(graph, dst, block);
                }
                Ok(())
            };
            if bottom && layout.fused {
                draw(nodes, scratch, block)?;
                let mut ids = ids.unwrap_or_default();
                ids.clear();
                ids.extend_from_slice(nodes);
                block.dst_ids = Some(ids);
                block.num_src = graph.num_nodes();
                continue;
            }
            let several = scratch.parallel && rayon::current_num_threads() > 1;
            if several && nodes.len() > PART && per_node {
                draw_and_number(draw, relabel, scratch, parts, nodes, block)?;
            } else {
                draw(nodes, scratch, block)?;
                let new = &mut parts.new;
                new.clear();
                relabel.relabel(&mut block.indices, nodes, new);
                nodes.extend_from_slice(new);
            }
            block.num_src = nodes.len();
            if transposed >> (layers - 1 - hop) & 1 == 1 {
                if scratch.parallel { block.par_transpose() } else { block.transpose() }
            }
        }
        Ok(())
    }
}
