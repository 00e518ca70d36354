//! The one value that travels from stage to stage.

use std::sync::Arc;

use graphmill_core::{Block, Matrix, NodeId, accelerator::DeviceMemory};

use crate::{Traffic, feature::Marks};

/// A minibatch. Each field says which stage fills it. It is a workspace too: the engine recycles it, and
/// every stage clears and refills its fields without giving memory back.
///
/// Data moves forward only: `order` picks the seeds, `sample` draws the blocks, `extract` gathers
/// the rows, `train` consumes.
#[derive(Debug, Default)]
pub struct MiniBatch {
    /// Number of the batch within its epoch (filled by `order`).
    pub number: u64,
    /// Nodes whose labels are predicted, distinct (filled by `order`, or by samplers of subgraphs).
    pub seeds: Vec<NodeId>,
    /// Seeds of the whole batch where `seeds` are only this rank's share of it, and 0 where they are all (filled by `order`).
    pub whole: usize,
    /// One block per layer, `blocks[0]` the farthest from the seeds (filled by `sample`).
    pub blocks: Vec<Block>,
    /// Nodes whose feature rows `extract` gathers: the sources of `blocks[0]`, seeds first, in first-seen order
    /// (filled by `sample`). If `blocks[0]` is global nothing is gathered, and these are its destinations.
    pub input_nodes: Vec<NodeId>,
    /// The input nodes on the device that drew them, u32 each (filled by `sample`, where a device does).
    pub input_on_device: Option<Arc<dyn DeviceMemory>>,
    /// One row per input node (filled by `extract`), empty when `blocks[0]` is global. Sparse rows are transposed too.
    pub features: Matrix,
    /// Whether `features` and `traffic` are those of these blocks: `extract` says so, `sample` takes it back.
    pub extracted: bool,
    /// Whether these are the blocks of the draw before, kept: nothing was drawn at random, and the seeds are the same (filled by `sample`).
    pub kept: bool,
    /// What was read, tier by tier (filled by `extract`).
    pub traffic: Traffic,
    /// Where the rows of the input nodes are in the cache of who will read them (filled behind `sample`, where somebody knows).
    pub marks: Marks,
    /// Slots of the bottom layer's rows that are read from a table instead of computed: they stand behind the computed ones
    /// (filled behind `sample`, where somebody reuses rows: [`crate::reuse`]).
    pub reused: Vec<u32>,
    /// Weight of each seed in the loss, or empty: all equal (filled by samplers that need it).
    pub loss_weight: Vec<f32>,
}

impl MiniBatch {
    /// Seeds whose loss counts.
    pub fn num_seeds(&self) -> usize {
        match &self.loss_weight[..] {
            [] => self.seeds.len(),
            weights => weights.iter().filter(|&&w| w != 0.0).count(),
        }
    }

    /// Edges over all blocks.
    pub fn num_edges(&self) -> usize {
        self.blocks.iter().map(Block::num_edges).sum()
    }

    /// Bytes that a batch which is sampled and not extracted takes on its way: seeds, input nodes, marks and blocks.
    pub fn bytes(&self) -> u64 {
        let of_block = |block: &Block| {
            let Block { indptr, indices, dst_ids, edge_weight, self_weight, transposed, .. } = block;
            let ids = dst_ids.as_ref().map_or(0, Vec::len);
            let back = transposed.indptr.len() + transposed.dst.len() + transposed.edge.len();
            let host = indptr.len() + indices.len() + ids + edge_weight.len() + self_weight.len() + back;
            // what a device drew is there alone: positions, sources, and what the backward pass reads
            let drawn = block.drawn_on_device().map_or(0, |drawn| {
                let back =
                    if drawn.is_transposed() { block.num_grad_src() + 2 * drawn.num_edges() } else { 0 };
                let weights = if drawn.is_weighted() { drawn.num_edges() + block.num_dst } else { 0 };
                block.num_dst + 1 + drawn.num_edges() + weights + back
            });
            4 * (host + drawn) as u64
        };
        let ids = self.seeds.len() + self.input_nodes.len() + self.marks.len();
        let ids = ids + self.reused.len() + self.loss_weight.len();
        4 * ids as u64 + self.blocks.iter().map(of_block).sum::<u64>()
    }

    /// Whether the bottom layer reads the feature table in place.
    pub fn is_fused(&self) -> bool {
        self.blocks.first().is_some_and(|block| block.dst_ids.is_some())
    }
}
