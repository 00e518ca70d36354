//! Hop after hop: the nodes of all hops so far are the destinations of the next.

use std::ops::Range;

use graphmill_graph::{Block, Graph, NodeId, Result};

use super::{
    BatchKey, Form, Sampler, Scratch, Workspace,
    parts::{PART, draw_and_number},
};
use crate::MiniBatch;

/// Begins with the seeds.
pub(super) fn start(workspace: &mut Workspace, batch: &mut MiniBatch) {
    let MiniBatch { seeds, input_nodes: nodes, .. } = batch;
    nodes.clear();
    nodes.extend_from_slice(seeds);
    workspace.relabel.start(nodes);
}

/// Draws these hops of a batch whose nodes so far are in `batch.input_nodes`, numbered so.
pub(super) fn draw<S: Sampler + ?Sized>(
    sampler: &S,
    graph: &Graph,
    key: BatchKey,
    form: Form,
    hops: Range<usize>,
    workspace: &mut Workspace,
    batch: &mut MiniBatch,
) -> Result<()> {
    let layers = sampler.num_layers();
    let Workspace { relabel, scratch, parts, .. } = workspace;
    let MiniBatch { blocks, input_nodes: nodes, .. } = batch;
    blocks.resize_with(layers, Default::default);
    for hop in hops {
        let bottom = hop + 1 == layers;
        let block = &mut blocks[layers - 1 - hop];
        let ids = block.dst_ids.take();
        block.clear();
        block.num_dst = nodes.len();
        let draw = |dst: &[NodeId], scratch: &mut Scratch, block: &mut Block| {
            block.edge_weight.clear();
            sampler.sample_layer(graph, hop, dst, key, form.aggregation, scratch, block)?;
            if let Some(symmetric) = form.symmetric {
                symmetric.fill(graph, dst, block);
            }
            Ok(())
        };
        if bottom && form.fused {
            draw(nodes, scratch, block)?;
            let mut ids = ids.unwrap_or_default();
            ids.clear();
            ids.extend_from_slice(nodes);
            block.dst_ids = Some(ids);
            block.num_src = graph.num_nodes();
            continue;
        }
        let several = scratch.parallel && rayon::current_num_threads() > 1;
        if several && nodes.len() > PART && sampler.draws_by_node() {
            draw_and_number(draw, relabel, scratch, parts, nodes, block)?;
        } else {
            draw(nodes, scratch, block)?;
            let new = &mut parts.new;
            new.clear();
            relabel.relabel(&mut block.indices, nodes, new);
            nodes.extend_from_slice(new);
        }
        block.num_src = nodes.len();
        if form.transposed >> (layers - 1 - hop) & 1 == 1 {
            if scratch.parallel { block.par_transpose() } else { block.transpose() }
        }
    }
    Ok(())
}
