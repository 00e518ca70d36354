//! The states of a minibatch. Each stage consumes one state and returns the next, so no stage can
//! be skipped.
//!
//! ```text
//!            MinibatchSampler::sample            Sampled::extract
//!   Seeds ───────────────────────────► Sampled ──────────────────► Extracted ──► training
//!     │                                   ▲                            │
//!     └── SplitSampler ──► Upper ─────────┘                            │
//!     ▲                                                                │
//!     └──────────────────────────── recycle ───────────────────────────┘
//! ```
//!
//! ```compile_fail,E0599
//! use graphmill_loader::{Extracted, Feature, Seeds};
//!
//! fn skip_sampling(seeds: Seeds, rows: &dyn Feature) -> graphmill_core::Result<Extracted> {
//!     seeds.extract(rows) // only `Sampled` has feature rows to extract
//! }
//! ```
//!
//! A batch owns its buffers, and a recycled batch passes them to the next one: after the largest
//! batch, none allocates. A [`MiniBatch`] is a batch in any of these states, for callers that store
//! batches between epochs.

#![forbid(unsafe_code)]

use graphmill_core::{Block, Error, Matrix, NodeId, Result, block::OnDevice, memory};
use rayon::prelude::*;

use crate::{
    Feature, Traffic,
    feature::{DeviceIds, MarkedFeature, Marks, TierTraffic},
    link::{ExcludedEdges, LinkBatch},
};

/// Minimum number of edges that one task renumbers.
const MIN_TASK_LEN: usize = 1 << 14;

/// Buffers that are unused in a batch's present state.
#[derive(Debug, Default)]
struct SpareBuffers {
    blocks: Vec<Block>,
    input_nodes: Vec<NodeId>,
    loss_weight: Vec<f32>,
    marks: Marks,
    features: Matrix,
    slots: Vec<u32>,
    /// True if the bottom block's sources are slots, so that its destinations' are `slots`.
    is_by_slot: bool,
}

/// Nodes whose labels a minibatch predicts, before sampling.
///
/// The default has no nodes and no buffers.
#[derive(Debug, Default)]
pub struct Seeds {
    /// Number of the batch within its epoch.
    pub number: u64,
    /// Number of the epoch, if the rows of the batch depend on it.
    pub epoch: u64,
    /// Distinct nodes. A subgraph sampler ignores them and sets its own.
    pub nodes: Vec<NodeId>,
    /// Number of seeds over all ranks, if `nodes` are this rank's share of a batch; of positives,
    /// in a batch of links.
    pub global_size: Option<usize>,
    /// Pairs of the nodes to score, in a batch of links; their excluded edges are left out.
    pub links: Option<Box<LinkBatch>>,
    memory: SpareBuffers,
}

impl Seeds {
    /// Creates the seeds of batch `number`, all on this rank, with empty buffers.
    pub fn new(number: u64, nodes: impl Into<Vec<NodeId>>) -> Self {
        Self { number, nodes: nodes.into(), ..Self::default() }
    }

    /// Replaces the seeds by those of batch `number`, all on this rank, without pairs of links, and
    /// keeps the buffers.
    #[must_use]
    pub fn refill(mut self, number: u64, nodes: impl IntoIterator<Item = NodeId>) -> Self {
        self.number = number;
        self.nodes.clear();
        memory::demand_extend(&mut self.nodes, nodes);
        self.global_size = None;
        if let Some(links) = &mut self.links {
            links.clear();
        }
        self
    }

    /// Edges that no hop of the batch may read, if there are any.
    pub fn excluded(&self) -> Option<&ExcludedEdges> {
        self.links.as_ref().map(|links| &links.excluded).filter(|excluded| !excluded.is_empty())
    }

    /// Refuses a batch of links, for samplers that choose seeds of their own.
    ///
    /// # Errors
    /// The batch has pairs.
    pub fn refuse_links(&self) -> Result<()> {
        if self.links.as_ref().is_some_and(|links| !links.source.is_empty()) {
            return Err(Error::invalid(
                "a sampler of subgraphs chooses its own seeds, so it cannot draw the pairs of a batch of \
                 links; use one that goes from seeds, such as neighbor",
            ));
        }
        Ok(())
    }

    /// Returns the next state for a sampler to fill: `layers` blocks with undefined contents, no
    /// input nodes and equal loss weights.
    pub fn into_sampled(mut self, layers: usize) -> Sampled {
        let mut blocks = std::mem::take(&mut self.memory.blocks);
        blocks.resize_with(layers, Block::default);
        let mut input_nodes = std::mem::take(&mut self.memory.input_nodes);
        input_nodes.clear();
        let loss_weight = self.take_loss_weight();
        Sampled { seeds: self, blocks, input_nodes, device_input: None, loss_weight, cache_marks: None }
    }

    /// Returns the state between [`Seeds`] and [`Sampled`] for a sampler to fill: the upper ones of
    /// `layers` blocks, with undefined contents, and no destinations of the bottom block.
    pub fn into_upper(mut self, layers: usize) -> Upper {
        let mut blocks = std::mem::take(&mut self.memory.blocks);
        blocks.resize_with(layers, Block::default);
        let bottom = blocks.remove(0);
        let mut destinations = std::mem::take(&mut self.memory.input_nodes);
        destinations.clear();
        let loss_weight = self.take_loss_weight();
        Upper { seeds: self, blocks, destinations, loss_weight, bottom }
    }

    /// Takes the buffer of the loss weights, empty.
    pub(crate) fn take_loss_weight(&mut self) -> Vec<f32> {
        let mut loss_weight = std::mem::take(&mut self.memory.loss_weight);
        loss_weight.clear();
        loss_weight
    }

    /// Replaces the buffer of the feature rows.
    pub fn set_row_memory(&mut self, rows: Matrix) {
        self.memory.features = rows;
    }
}

/// A minibatch whose bottom block is not drawn yet
/// ([`SplitSampler`](crate::sampler::SplitSampler)).
#[derive(Debug)]
pub struct Upper {
    /// Seeds of the batch.
    pub seeds: Seeds,
    /// Blocks above the bottom one, the farthest from the seeds first.
    pub blocks: Vec<Block>,
    /// Destinations of the bottom block: the sources of `blocks[0]`, in their order, unless the
    /// caller removed some.
    pub destinations: Vec<NodeId>,
    /// Weight of each seed in the loss; empty if all weights are equal.
    pub loss_weight: Vec<f32>,
    /// Buffer of the bottom block.
    bottom: Block,
}

impl Upper {
    /// Returns the next state for a sampler to fill: all blocks, with the bottom one undefined, and
    /// its destinations as the input nodes so far.
    pub fn into_sampled(self) -> Sampled {
        let Self { mut seeds, mut blocks, destinations, loss_weight, bottom } = self;
        blocks.insert(0, bottom);
        let layers = blocks.len();
        seeds.memory.blocks = blocks;
        Sampled { input_nodes: destinations, loss_weight, ..seeds.into_sampled(layers) }
    }

    /// Returns the buffers for the next batch.
    pub fn recycle(self) -> Seeds {
        self.into_sampled().recycle()
    }
}

/// A minibatch whose message-flow blocks are drawn.
#[derive(Debug)]
pub struct Sampled {
    /// Seeds of the batch.
    pub seeds: Seeds,
    /// One block per layer, the farthest from the seeds first (`blocks[0]` is the bottom one).
    pub blocks: Vec<Block>,
    /// Nodes whose feature rows are read: the sources of the bottom block, seeds first, in
    /// first-seen order. If that block is global, nothing is gathered, and these are its
    /// destinations.
    pub input_nodes: Vec<NodeId>,
    /// Input nodes in the memory of the device that drew them.
    pub device_input: Option<DeviceIds>,
    /// Weight of each seed in the loss; empty if all weights are equal.
    pub loss_weight: Vec<f32>,
    /// Cache slots of the input nodes, if already looked up ([`Sampled::mark`]).
    pub cache_marks: Option<Marks>,
}

impl Sampled {
    /// Number of seeds with a positive loss weight.
    pub fn num_seeds(&self) -> usize {
        match &self.loss_weight[..] {
            [] => self.seeds.nodes.len(),
            weights => weights.iter().filter(|&&w| w != 0.0).count(),
        }
    }

    /// Number of edges over all blocks.
    pub fn num_edges(&self) -> usize {
        self.blocks.iter().map(Block::num_edges).sum()
    }

    /// Size in bytes of the batch when it is sent to a trainer: seeds, input nodes, marks, weights
    /// and blocks.
    pub fn bytes(&self) -> u64 {
        let marks = self.cache_marks.as_ref().map_or(0, Marks::len);
        let ids = self.seeds.nodes.len() + self.input_nodes.len() + marks + self.loss_weight.len();
        4 * ids as u64 + self.blocks.iter().map(block_bytes).sum::<u64>()
    }

    /// Returns true if the bottom layer reads the feature table in place.
    pub fn is_fused(&self) -> bool {
        self.blocks.first().is_some_and(|block| block.dst_ids.is_some())
    }

    /// Looks up the cache slots of the input nodes before their rows are read.
    pub fn mark(&mut self, cache: &dyn MarkedFeature) {
        let memory = &mut self.seeds.memory.marks;
        let marks = self.cache_marks.get_or_insert_with(|| std::mem::take(memory));
        cache.mark(&self.input_nodes, marks);
    }

    /// Gathers the feature rows of the input nodes. If the bottom layer reads the table in place,
    /// nothing is gathered, and the rows that it will read are counted.
    ///
    /// # Errors
    /// A tier cannot be read, or a device runs out of memory.
    pub fn extract(mut self, feature: &dyn Feature) -> Result<Extracted> {
        let mut features = std::mem::take(&mut self.seeds.memory.features);
        let traffic = self.gather(feature, &mut features)?;
        Ok(Extracted { sampled: self, features, traffic })
    }

    /// [`Sampled::extract`] for a bottom layer that reads rows in place, and a local bottom block
    /// without a transpose: copies only the rows that a static cache in `feature` lacks, and makes
    /// the block global over both. Gathers all rows if `feature` has no such cache.
    ///
    /// # Errors
    /// As [`Sampled::extract`].
    pub fn extract_by_slot(mut self, feature: &dyn Feature) -> Result<Extracted> {
        let Some(cache) = feature.capabilities().slotted else { return self.extract(feature) };
        let memory = &mut self.seeds.memory;
        let (mut features, mut slots) =
            (std::mem::take(&mut memory.features), std::mem::take(&mut memory.slots));
        let traffic = cache.read_slots(&self.input_nodes, &mut slots, &mut features)?;
        let bottom = &mut self.blocks[0];
        bottom.indices.par_iter_mut().with_min_len(MIN_TASK_LEN).for_each(|u| *u = slots[*u as usize]);
        slots.truncate(bottom.num_dst);
        (bottom.dst_ids, bottom.num_src) = (Some(slots), features.num_rows());
        memory.is_by_slot = true;
        Ok(Extracted { sampled: self, features, traffic })
    }

    /// Returns true if the rows that the bottom block reads are numbered by slot
    /// ([`Sampled::extract_by_slot`]).
    pub fn is_by_slot(&self) -> bool {
        self.seeds.memory.is_by_slot
    }

    fn gather(&self, feature: &dyn Feature, features: &mut Matrix) -> Result<Traffic> {
        if self.is_fused() {
            let bottom = &self.blocks[0];
            let rows = (bottom.num_edges() + bottom.num_dst) as u64;
            features.resize(0, feature.dim());
            let host = TierTraffic { rows, bytes: rows * feature.row_bytes(), nanos: 0 };
            return Ok(Traffic { host, ..Traffic::default() });
        }
        let (ids, has) = (&self.input_nodes[..], feature.capabilities());
        let traffic =
            match (has.device.zip(self.device_input.as_ref()), has.marked.zip(self.cache_marks.as_ref())) {
                (Some((device, on_device)), _) => device.gather_on_device(ids, on_device, features)?,
                (None, Some((cache, marks))) => cache.gather_marked(ids, marks, features)?,
                (None, None) => feature.gather(ids, features)?,
            };
        if let Some(device) = has.device {
            device.place_blocks(&self.blocks)?;
        }
        if features.is_sparse() {
            // for the gradient of the layer that multiplies the rows
            features.transpose_sparse();
        }
        Ok(traffic)
    }

    /// Returns the buffers for the next batch. A device's copies of the blocks are freed.
    pub fn recycle(self) -> Seeds {
        let Self { mut seeds, mut blocks, input_nodes, loss_weight, cache_marks, device_input: _ } = self;
        blocks.iter_mut().for_each(|block| block.device = OnDevice::default());
        let memory = &mut seeds.memory;
        if std::mem::take(&mut memory.is_by_slot) {
            memory.slots = blocks[0].dst_ids.take().unwrap_or_default();
        }
        (memory.blocks, memory.input_nodes, memory.loss_weight) = (blocks, input_nodes, loss_weight);
        if let Some(marks) = cache_marks {
            memory.marks = marks;
        }
        seeds.refill(0, [])
    }
}

/// A minibatch with its feature rows, ready to train on.
#[derive(Debug)]
pub struct Extracted {
    /// Seeds, blocks and input nodes of the batch.
    pub sampled: Sampled,
    /// One row per input node; empty if the bottom block is global. Sparse rows are transposed too.
    pub features: Matrix,
    /// Rows and bytes read, per tier.
    pub traffic: Traffic,
}

impl Extracted {
    /// Returns the buffers for the next batch.
    pub fn recycle(self) -> Seeds {
        let Self { mut sampled, features, .. } = self;
        sampled.seeds.memory.features = features;
        sampled.recycle()
    }
}

/// A minibatch in any of its states, as a strategy's slot holds it between two uses.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a box would be allocated for every batch")]
pub enum MiniBatch {
    /// Seeds, or buffers alone.
    Seeds(Seeds),
    /// Seeds with blocks.
    Sampled(Sampled),
    /// Seeds with blocks and feature rows.
    Extracted(Extracted),
}

impl MiniBatch {
    /// Returns the buffers for the next batch.
    pub fn recycle(self) -> Seeds {
        match self {
            Self::Seeds(seeds) => seeds.refill(0, []),
            Self::Sampled(batch) => batch.recycle(),
            Self::Extracted(batch) => batch.recycle(),
        }
    }
}

impl Default for MiniBatch {
    fn default() -> Self {
        Self::Seeds(Seeds::default())
    }
}

impl From<Seeds> for MiniBatch {
    fn from(seeds: Seeds) -> Self {
        Self::Seeds(seeds)
    }
}

impl From<Sampled> for MiniBatch {
    fn from(batch: Sampled) -> Self {
        Self::Sampled(batch)
    }
}

impl From<Extracted> for MiniBatch {
    fn from(batch: Extracted) -> Self {
        Self::Extracted(batch)
    }
}

/// Size in bytes of a block when it is sent to a trainer.
pub(crate) fn block_bytes(block: &Block) -> u64 {
    let Block { indptr, indices, dst_ids, edge_weight, self_weight, transposed, .. } = block;
    let ids = dst_ids.as_ref().map_or(0, Vec::len);
    let back = transposed.indptr.len() + transposed.dst.len() + transposed.edge.len();
    let host = indptr.len() + indices.len() + ids + edge_weight.len() + self_weight.len() + back;
    // Blocks drawn on a device exist only there: positions, sources, and the transpose.
    let drawn = block.drawn_on_device().map_or(0, |drawn| {
        let back = if drawn.is_transposed() { block.num_grad_src() + 2 * drawn.num_edges() } else { 0 };
        let weights = if drawn.is_weighted() { drawn.num_edges() + block.num_dst } else { 0 };
        block.num_dst + 1 + drawn.num_edges() + weights + back
    });
    4 * (host + drawn) as u64
}

#[cfg(test)]
mod tests {
    use graphmill_core::Features;

    use super::*;
    use crate::feature::Host;

    /// A batch of one local block with `sources` sources.
    fn sampled(seeds: Seeds, sources: u32) -> Sampled {
        let mut batch = seeds.into_sampled(1);
        let block = &mut batch.blocks[0];
        block.clear();
        (block.num_dst, block.num_src) = (1, sources as usize);
        block.indptr.extend([0, sources]);
        block.indices.extend(0..sources);
        batch.input_nodes.extend(0..sources);
        batch
    }

    #[test]
    fn recycled_memory_serves_the_next_batch() {
        let rows = Host::new(&Features::f32(2, (0..80).map(|x| x as f32).collect::<Vec<_>>()));
        let mut batch = sampled(Seeds::new(7, [3, 1]), 40);
        batch.loss_weight.extend([0.0, 2.0]);
        batch.seeds.global_size = Some(9);
        assert_eq!((batch.num_seeds(), batch.num_edges(), batch.is_fused()), (1, 40, false));
        let batch = batch.extract(&rows).unwrap();
        assert_eq!((batch.features.num_rows(), batch.traffic.host.rows), (40, 40));
        let addresses = |batch: &Sampled| {
            (batch.input_nodes.as_ptr(), batch.blocks[0].indices.as_ptr(), batch.loss_weight.as_ptr())
        };
        let (before, features) = (addresses(&batch.sampled), batch.features.view().host().as_ptr());

        let seeds = MiniBatch::from(batch).recycle();
        assert_eq!((seeds.number, &seeds.nodes[..], seeds.global_size), (0, &[][..], None));
        let batch = sampled(seeds.refill(8, [2]), 30);
        assert_eq!((batch.num_seeds(), batch.loss_weight.len()), (1, 0));
        assert_eq!(addresses(&batch), before);
        let batch = batch.extract(&rows).unwrap();
        assert_eq!((batch.features.num_rows(), batch.features.view().host().as_ptr()), (30, features));
    }

    #[test]
    fn an_upper_part_becomes_a_batch_with_the_memory_of_its_bottom_block() {
        let batch = sampled(Seeds::new(0, [0]), 20);
        let bottom = batch.blocks[0].indices.as_ptr();
        let mut upper = batch.recycle().refill(1, [4, 2]).into_upper(3);
        assert_eq!((upper.blocks.len(), &upper.destinations[..]), (2, &[][..]));
        upper.destinations.extend([4, 2, 9]);
        upper.blocks[0].num_dst = 2;
        let batch = upper.into_sampled();
        assert_eq!((&batch.seeds.nodes[..], &batch.input_nodes[..]), (&[4, 2][..], &[4, 2, 9][..]));
        assert_eq!((batch.blocks.len(), batch.blocks[1].num_dst), (3, 2));
        assert_eq!(batch.blocks[0].indices.as_ptr(), bottom);
    }
}
