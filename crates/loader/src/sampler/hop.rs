//! One hop: the interface that every sampler of neighbourhoods implements.

use graphmill_core::{Block, Graph, NodeId, Result, block::Aggregation};

use super::HopScratch;
use crate::BatchKey;

/// The neighbours to draw: from which graph, for which nodes, under which key.
#[derive(Clone, Copy, Debug)]
pub struct HopRequest<'a> {
    /// The graph to sample (in-neighbours).
    pub graph: &'a Graph,
    /// The hop, 0 next to the seeds; below [`HopSampler::num_layers`].
    pub hop: usize,
    /// The nodes whose in-neighbours are drawn, distinct.
    pub dst: &'a [NodeId],
    /// The batch's key.
    pub key: BatchKey,
    /// The sum that the layer at this hop takes of neighbours' rows, for samplers that weigh edges.
    pub aggregation: Aggregation,
}

impl HopRequest<'_> {
    /// The key of this hop's draws: a function of seed, epoch, batch and hop. Mix it with the
    /// node's number.
    pub fn hop_key(&self) -> u64 {
        self.key.hop(self.hop)
    }
}

/// Facts about a [`HopSampler`] that decide how it may be used.
///
/// The default promises nothing: it suits every sampler, at the price of speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopProperties {
    /// Another key may give other neighbours.
    pub is_random: bool,
    /// The draws of a node depend on no other destination, so that a hop may be drawn in parts.
    pub is_per_node: bool,
    /// A hop reads only the destinations' own lists of in-neighbours, so that the owner of a list
    /// can draw from it.
    pub is_neighbor_local: bool,
    /// Edges are drawn by the weights that the graph stores.
    pub reads_edge_weights: bool,
}

impl Default for HopProperties {
    fn default() -> Self {
        Self { is_random: true, is_per_node: false, is_neighbor_local: false, reads_edge_weights: false }
    }
}

/// Draws the in-neighbours of nodes, one hop at a time.
///
/// [`HopStack`](super::HopStack) makes minibatches of it: the nodes of all hops so far are the
/// destinations of the next. A sampler knows no thread, device or cache.
///
/// ```
/// use graphmill_core::{Block, EdgeOptions, Result, build, keyed};
/// use graphmill_loader::{
///     BatchKey, MinibatchSampler, Seeds, Workspace,
///     sampler::{BatchRequest, HopProperties, HopRequest, HopSampler, HopScratch, HopStack},
/// };
///
/// /// One random in-neighbour of each node, over two hops.
/// struct One;
///
/// impl HopSampler for One {
///     fn num_layers(&self) -> usize {
///         2
///     }
///
///     fn properties(&self) -> HopProperties {
///         HopProperties { is_per_node: true, is_neighbor_local: true, ..HopProperties::default() }
///     }
///
///     fn sample_hop(&self, hop: &HopRequest, _: &mut HopScratch, block: &mut Block) -> Result<()> {
///         block.indptr.clear();
///         block.indptr.push(0);
///         block.indices.clear();
///         for &v in hop.dst {
///             let row = hop.graph.in_neighbors(v);
///             if !row.is_empty() {
///                 let draw = keyed::key(&[hop.hop_key(), v.into()]);
///                 block.indices.push(row[draw as usize % row.len()]);
///             }
///             block.indptr.push(block.indices.len() as u32);
///         }
///         Ok(())
///     }
/// }
///
/// // 3 → 2 → 1 → 0: one way only
/// let graph = build(4, &[1, 2, 3], &[0, 1, 2], EdgeOptions::DIRECTED)?;
/// let sampler = HopStack::new(One);
/// let request = BatchRequest::new(&graph, BatchKey { seed: 1, epoch: 0, batch: 0 });
/// let batch = sampler.sample(&request, &mut Workspace::new(4), Seeds::new(0, [0]))?;
/// assert_eq!(batch.input_nodes, [0, 1, 2]);
/// # Ok::<(), graphmill_core::Error>(())
/// ```
pub trait HopSampler: Send + Sync {
    /// Hops of a minibatch, one block each (`L`).
    fn num_layers(&self) -> usize;

    /// Facts that decide how the sampler may be used.
    fn properties(&self) -> HopProperties {
        HopProperties::default()
    }

    /// Overwrites `block.indptr` (`D + 1`, from 0) and `block.indices` (global ids) by the
    /// neighbours drawn for the destinations. A pure function of the request.
    ///
    /// A sampler that weighs edges also fills `block.edge_weight` (`E`, empty before) for a layer
    /// that takes the request's aggregation; with [`Aggregation::Symmetric`] by how many of the
    /// node's neighbours an edge stands for, which
    /// [`SymmetricWeights::fill`](crate::weights::SymmetricWeights::fill) then multiplies.
    ///
    /// # Errors
    /// The block would have more edges than its 32-bit positions can number.
    fn sample_hop(&self, request: &HopRequest, scratch: &mut HopScratch, block: &mut Block) -> Result<()>;
}
