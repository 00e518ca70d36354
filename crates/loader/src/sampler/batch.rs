//! Seeds to blocks: the interface that stages, devices and ranks draw minibatches by.

use graphmill_core::{Graph, Result, block::Aggregation};

use super::Workspace;
use crate::{BatchKey, Sampled, Seeds, Upper, weights::SymmetricWeights};

/// The form that the model wants its blocks in.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockLayout<'a> {
    /// Leave the bottom block global: no relabelling, no gathered copy (ARCHITECTURE, fast path).
    pub fused: bool,
    /// Build the transposes of `blocks[l]` where bit `l` is set.
    pub transposed: u64,
    /// Fill the symmetric-normalisation weights.
    pub symmetric: Option<&'a SymmetricWeights>,
    /// The sum that layers take of neighbours' rows, for samplers that weigh edges.
    pub aggregation: Aggregation,
}

/// A minibatch to draw.
#[derive(Clone, Copy, Debug)]
pub struct BatchRequest<'a> {
    /// The graph to sample (in-neighbours).
    pub graph: &'a Graph,
    /// The identity of the draws.
    pub key: BatchKey,
    /// The form of the blocks.
    pub layout: BlockLayout<'a>,
}

impl<'a> BatchRequest<'a> {
    /// Blocks in the plainest layout.
    pub fn new(graph: &'a Graph, key: BatchKey) -> Self {
        Self { graph, key, layout: BlockLayout::default() }
    }

    /// The same request for blocks of this layout.
    #[must_use]
    pub fn with_layout(self, layout: BlockLayout<'a>) -> Self {
        Self { layout, ..self }
    }
}

/// Facts about a [`MinibatchSampler`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplerProperties {
    /// Blocks of a minibatch (`L`).
    pub num_layers: usize,
    /// The same seeds may get other blocks under another key.
    pub is_random: bool,
    /// Edges are drawn by the weights that the graph stores.
    pub reads_edge_weights: bool,
    /// Subgraphs of an epoch, if the sampler picks its seeds by itself: it then replaces the seeds,
    /// weighs their losses, and makes one block for all layers.
    pub subgraphs: Option<u64>,
}

/// Makes minibatches: [`HopStack`](super::HopStack) of a [`HopSampler`](super::HopSampler),
/// [`Subgraphs`](super::Subgraphs) of a [`SubgraphSampler`](crate::subgraph::SubgraphSampler), and
/// wrappers that draw the same on devices or over ranks. A sampler of one's own implements one of
/// those two traits, not this one.
///
/// ```
/// use graphmill_loader::{MinibatchSampler, sampler::{HopStack, neighbor::Neighbor}};
///
/// let hops = Neighbor::new(&[10, 5]).expect("two numbers of neighbours");
/// let sampler: Box<dyn MinibatchSampler> = Box::new(HopStack::new(hops));
/// assert_eq!(sampler.properties().num_layers, 2);
/// assert!(sampler.properties().is_random);
/// ```
pub trait MinibatchSampler: Send + Sync {
    /// Facts that decide how the sampler may be used.
    fn properties(&self) -> SamplerProperties;

    /// Draws the blocks around the seeds (distinct, below `V`). A pure function of the request and
    /// the seeds.
    ///
    /// # Errors
    /// A block would have more edges than its 32-bit positions can number, or a device failed.
    fn sample(&self, request: &BatchRequest, workspace: &mut Workspace, seeds: Seeds) -> Result<Sampled>;

    /// The sampler as one that draws the bottom block apart from the others, if it draws hop by
    /// hop.
    fn split(&self) -> Option<&dyn SplitSampler> {
        None
    }
}

/// A sampler that draws a batch in two steps, so that destinations of the bottom block can be left
/// out.
///
/// ```
/// use graphmill_core::Graph;
/// use graphmill_loader::{
///     BatchKey, MinibatchSampler, Seeds, Workspace,
///     sampler::{BatchRequest, HopStack, neighbor::Neighbor},
/// };
///
/// // a ring: each node has its predecessor as in-neighbour
/// let graph = Graph::new(vec![0, 1, 2, 3, 4].into(), vec![3, 0, 1, 2].into())?;
/// let sampler = HopStack::new(Neighbor::new(&[1, 1]).expect("two numbers of neighbours"));
/// let request = BatchRequest::new(&graph, BatchKey { seed: 7, epoch: 0, batch: 0 });
/// let split = sampler.split().expect("it draws hop by hop");
/// let mut workspace = Workspace::new(4);
/// let upper = split.sample_upper(&request, &mut workspace, Seeds::new(0, &[2][..]))?;
/// assert_eq!(upper.destinations, [2, 1]);
/// let batch = split.sample_bottom(&request, &mut workspace, upper)?;
/// assert_eq!(batch.input_nodes, [2, 1, 0]);
/// # Ok::<(), graphmill_core::Error>(())
/// ```
pub trait SplitSampler: Send + Sync {
    /// Draws the blocks above the bottom one. The lowest of them is left without its transpose,
    /// because its sources may be renumbered.
    ///
    /// # Errors
    /// As [`MinibatchSampler::sample`].
    fn sample_upper(&self, request: &BatchRequest, workspace: &mut Workspace, seeds: Seeds) -> Result<Upper>;

    /// Draws the bottom block for the destinations that `upper` has: with all of them, the block
    /// that [`MinibatchSampler::sample`] draws last.
    ///
    /// # Errors
    /// As [`MinibatchSampler::sample`].
    fn sample_bottom(
        &self,
        request: &BatchRequest,
        workspace: &mut Workspace,
        upper: Upper,
    ) -> Result<Sampled>;
}
