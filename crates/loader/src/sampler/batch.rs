//! The interface by which stages, devices and ranks draw minibatches.

use graphmill_core::{Graph, Result, block::Aggregation};

use super::Workspace;
use crate::{BatchKey, Sampled, Seeds, Upper, weights::SymmetricWeights};

/// Layout of the blocks that a model needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockLayout<'a> {
    /// Leaves the bottom block global: no relabelling, and no gathered copy of the features.
    pub fused: bool,
    /// Builds the transpose of `blocks[l]` if bit `l` is set.
    pub transposed: u64,
    /// Fills symmetric-normalisation weights.
    pub symmetric: Option<&'a SymmetricWeights>,
    /// The sum over neighbours that layers compute, for samplers that weight edges.
    pub aggregation: Aggregation,
}

/// A minibatch to draw.
#[derive(Clone, Copy, Debug)]
pub struct BatchRequest<'a> {
    /// The graph to sample (in-neighbours).
    pub graph: &'a Graph,
    /// Identity of the random draws.
    pub key: BatchKey,
    /// Layout of the blocks.
    pub layout: BlockLayout<'a>,
}

impl<'a> BatchRequest<'a> {
    /// Creates a request for blocks of the default layout.
    pub fn new(graph: &'a Graph, key: BatchKey) -> Self {
        Self { graph, key, layout: BlockLayout::default() }
    }

    /// Returns the same request for blocks of another layout.
    #[must_use]
    pub fn with_layout(self, layout: BlockLayout<'a>) -> Self {
        Self { layout, ..self }
    }
}

/// Properties of a [`MinibatchSampler`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplerProperties {
    /// Number of blocks of a minibatch (`L`).
    pub num_layers: usize,
    /// True if another key may give other blocks.
    pub is_random: bool,
    /// True if edges are drawn by the weights that the graph stores.
    pub reads_edge_weights: bool,
    /// Number of subgraphs in an epoch, if the sampler picks its own seeds: it then replaces the
    /// seeds, weights their losses, and makes one block for all layers.
    pub subgraphs: Option<u64>,
}

/// Makes minibatches.
///
/// Implemented by [`HopStack`](super::HopStack) for a [`HopSampler`](super::HopSampler), by
/// [`Subgraphs`](super::Subgraphs) for a [`SubgraphSampler`](crate::subgraph::SubgraphSampler), and
/// by wrappers that draw the same blocks on devices or over ranks. To add a sampler, implement one
/// of those two traits, not this one.
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
    /// Properties that decide how the sampler may be used.
    fn properties(&self) -> SamplerProperties;

    /// Draws the blocks around the seeds (distinct, below `V`). A pure function of the request and
    /// the seeds.
    ///
    /// # Errors
    /// A block would have more edges than 32-bit positions can number, or a device failed.
    fn sample(&self, request: &BatchRequest, workspace: &mut Workspace, seeds: Seeds) -> Result<Sampled>;

    /// Returns the sampler as one that draws the bottom block separately, if it draws hop by hop.
    fn split(&self) -> Option<&dyn SplitSampler> {
        None
    }
}

/// A sampler that draws a batch in two steps, so that some destinations of the bottom block can be
/// left out.
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
    /// Draws the blocks above the bottom one. The lowest of them has no transpose yet, because its
    /// sources may be renumbered.
    ///
    /// # Errors
    /// As [`MinibatchSampler::sample`].
    fn sample_upper(&self, request: &BatchRequest, workspace: &mut Workspace, seeds: Seeds) -> Result<Upper>;

    /// Draws the bottom block for the destinations of `upper`. With all destinations, it is the
    /// block that [`MinibatchSampler::sample`] draws last.
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
