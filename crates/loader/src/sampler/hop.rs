//! The interface of samplers that draw one hop at a time.

use std::sync::Arc;

use graphmill_core::{Block, Graph, NodeId, Result, block::Aggregation};

use super::HopScratch;
use crate::{BatchKey, link::ExcludedEdges};

/// Neighbours to draw: the graph, the nodes and the key.
#[derive(Clone, Copy, Debug)]
pub struct HopRequest<'a> {
    /// The graph to sample (in-neighbours).
    pub graph: &'a Graph,
    /// Number of the hop, 0 next to the seeds and below [`HopSampler::num_layers`].
    pub hop: usize,
    /// Distinct nodes whose in-neighbours are drawn.
    pub dst: &'a [NodeId],
    /// Key of the batch.
    pub key: BatchKey,
    /// The sum over neighbours that the layer at this hop computes, for samplers that weight edges.
    pub aggregation: Aggregation,
    /// Edges that the batch must not read. A sampler that
    /// [leaves them out](HopProperties::leaves_out) draws as from the graph without them;
    /// [`sample_remaining`](super::sample_remaining) calls others with a graph without them.
    pub excluded: Option<&'a ExcludedEdges>,
    /// Ids by which draws are keyed and excluded edges found, of each node of `graph` that is a
    /// destination, if its nodes have other numbers than in the whole graph; else their own.
    pub names: Option<&'a [NodeId]>,
}

impl<'a> HopRequest<'a> {
    /// Creates a request for neighbours in `graph`, for any layer and without excluded edges.
    pub fn new(graph: &'a Graph, hop: usize, dst: &'a [NodeId], key: BatchKey) -> Self {
        Self { graph, hop, dst, key, aggregation: Aggregation::Other, excluded: None, names: None }
    }

    /// Id of destination `v` by which its draws are keyed and its excluded edges found.
    #[inline(always)]
    pub fn name(&self, v: NodeId) -> NodeId {
        self.names.map_or(v, |names| names[v as usize])
    }

    /// Key of this hop's draws, a function of seed, epoch, batch and hop. Mix it with the node id.
    pub fn hop_key(&self) -> u64 {
        self.key.hop(self.hop)
    }
}

/// Lists of in-neighbours that a hop reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighborAccess {
    /// The list of each destination alone, under the [name](HopRequest::name) of the destination.
    /// The owner of a list can draw from it.
    OwnList,
    /// The lists of all destinations together. The draws depend on the lists and on the ids in
    /// them, but not on the ids of the destinations, so a rank can draw from fetched lists.
    Lists,
    /// Any list. Ranks draw such a hop only if the sampler can step ([`HopSampler::by_steps`]).
    Graph,
}

/// Properties of a [`HopSampler`] that decide how it may be used.
///
/// The default is valid for every sampler, but the slowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopProperties {
    /// True if another key may give other neighbours.
    pub is_random: bool,
    /// True if the draws of a node are independent of other destinations, so that a hop may be
    /// drawn in parts.
    pub is_per_node: bool,
    /// Lists of in-neighbours that a hop reads, which decides how ranks draw it.
    pub access: NeighborAccess,
    /// True if edges are drawn by the weights that the graph stores.
    pub reads_edge_weights: bool,
    /// True if [`HopSampler::sample_hop`] leaves out the request's excluded edges itself: its draws
    /// are those of the graph without them. Needed to name edges, and faster: other samplers draw
    /// from copies of lists without these edges ([`sample_remaining`](super::sample_remaining)).
    pub leaves_out: bool,
}

impl Default for HopProperties {
    fn default() -> Self {
        Self {
            is_random: true,
            is_per_node: false,
            access: NeighborAccess::Graph,
            reads_edge_weights: false,
            leaves_out: false,
        }
    }
}

/// Draws the in-neighbours of nodes, one hop at a time.
///
/// [`HopStack`](super::HopStack) makes minibatches from it: the nodes of all hops so far are the
/// destinations of the next. A sampler knows no threads, devices or caches.
///
/// ```
/// use graphmill_core::{Block, EdgeOptions, Result, build, keyed};
/// use graphmill_loader::{
///     BatchKey, MinibatchSampler, Seeds, Workspace,
///     sampler::{
///         BatchRequest, HopProperties, HopRequest, HopSampler, HopScratch, HopStack, NeighborAccess,
///     },
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
///         HopProperties { is_per_node: true, access: NeighborAccess::OwnList, ..HopProperties::default() }
///     }
///
///     fn sample_hop(&self, hop: &HopRequest, _: &mut HopScratch, block: &mut Block) -> Result<()> {
///         block.indptr.clear();
///         block.indptr.push(0);
///         block.indices.clear();
///         for &v in hop.dst {
///             let row = hop.graph.in_neighbors(v);
///             if !row.is_empty() {
///                 let draw = keyed::key(&[hop.hop_key(), hop.name(v).into()]);
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
    /// Number of hops of a minibatch, one block each (`L`).
    fn num_layers(&self) -> usize;

    /// Properties that decide how the sampler may be used.
    fn properties(&self) -> HopProperties {
        HopProperties::default()
    }

    /// Overwrites `block.indptr` (`D + 1`, from 0) and `block.indices` (global ids) with the
    /// neighbours drawn for the destinations. A pure function of the request.
    ///
    /// A sampler that weights edges also fills `block.edge_weight` (`E`, empty before the call) for
    /// a layer that computes the request's aggregation. With [`Aggregation::Symmetric`], a weight
    /// is the number of the node's neighbours that the edge represents, and
    /// [`SymmetricWeights::fill`](crate::weights::SymmetricWeights::fill) multiplies it.
    ///
    /// # Errors
    /// The block would have more edges than 32-bit positions can number.
    fn sample_hop(&self, request: &HopRequest, scratch: &mut HopScratch, block: &mut Block) -> Result<()>;

    /// Returns the sampler with tables of `graph`, if it has tables of the graph that it was made
    /// for; `None` if it draws from any graph. The rows of `graph` are rows of that graph, some
    /// without excluded edges, and its nodes may have other numbers ([`HopRequest::names`]).
    ///
    /// # Errors
    /// The tables cannot be made.
    fn with_tables_of(&self, _graph: &Graph) -> Result<Option<Arc<dyn HopSampler>>> {
        Ok(None)
    }

    /// Returns the sampler as one that reads single neighbours, if it can.
    fn by_steps(&self) -> Option<&dyn StepSampler> {
        None
    }

    /// Returns the sampler as one that names the edges it draws, if it can.
    fn by_edges(&self) -> Option<&dyn EdgeSampler> {
        None
    }
}

/// Draws hops with the positions of their edges, for layers that read a row of each edge.
///
/// ```
/// use graphmill_core::{Block, Graph};
/// use graphmill_loader::{
///     BatchKey,
///     sampler::{HopRequest, HopSampler, HopScratch, neighbor::Neighbor},
/// };
///
/// // node 0 has the in-neighbours 1 and 2
/// let graph = Graph::new(vec![0, 2, 2, 2].into(), vec![1, 2].into())?;
/// let sampler = Neighbor::new(&[2]).expect("a number of neighbours");
/// let key = BatchKey { seed: 1, epoch: 0, batch: 0 };
/// let request = HopRequest::new(&graph, 0, &[0], key);
/// let (mut block, mut positions) = (Block::default(), Vec::new());
/// let by_edges = sampler.by_edges().expect("this sampler names its edges");
/// by_edges.sample_hop_edges(&request, &mut HopScratch::default(), &mut block, &mut positions)?;
/// assert_eq!((&block.indices[..], &positions[..]), (&[1, 2][..], &[0, 1][..]));
/// # Ok::<(), graphmill_core::Error>(())
/// ```
pub trait EdgeSampler {
    /// Draws as [`HopSampler::sample_hop`], and overwrites `positions` by the position in the graph
    /// of each edge, in the order of the block. A sampler that [leaves out
    /// edges](HopProperties::leaves_out) does so here, too.
    ///
    /// # Errors
    /// As [`HopSampler::sample_hop`].
    fn sample_hop_edges(
        &self,
        request: &HopRequest,
        scratch: &mut HopScratch,
        block: &mut Block,
        positions: &mut Vec<u64>,
    ) -> Result<()>;
}

/// Degrees and single in-neighbours of all nodes, wherever their lists are.
///
/// ```
/// use graphmill_core::{Graph, NodeId, Result};
/// use graphmill_loader::sampler::StepSource;
///
/// /// A ring of nodes, each with its predecessor as the only in-neighbour.
/// struct Ring {
///     nodes: NodeId,
/// }
///
/// impl StepSource for Ring {
///     fn degree(&self, _: NodeId) -> u64 {
///         1
///     }
///
///     fn step(&self, at: &mut [(NodeId, u32)]) -> Result<()> {
///         at.iter_mut().for_each(|(node, number)| *number = (*node + self.nodes - 1) % self.nodes);
///         Ok(())
///     }
///
///     fn lists(&self, nodes: &[NodeId]) -> Result<Graph> {
///         let mut at: Vec<(NodeId, u32)> = nodes.iter().map(|&v| (v, 0)).collect();
///         self.step(&mut at)?;
///         let before: Vec<NodeId> = at.iter().map(|pair| pair.1).collect();
///         Graph::of_sound_edges((0..=nodes.len() as u64).collect::<Vec<_>>().into(), before.into(), None)
///     }
/// }
///
/// let mut at = [(0, 0), (3, 0)];
/// Ring { nodes: 5 }.step(&mut at)?;
/// assert_eq!(at, [(0, 4), (3, 2)]);
/// # Ok::<(), graphmill_core::Error>(())
/// ```
pub trait StepSource {
    /// In-degree of `v`.
    fn degree(&self, v: NodeId) -> u64;

    /// Replaces the number (below the degree) in each pair of a node and a number by the neighbour
    /// of that number in the node's list.
    ///
    /// # Errors
    /// A list cannot be read.
    fn step(&self, at: &mut [(NodeId, u32)]) -> Result<()>;

    /// Graph of the lists of `nodes` alone, in their order: node `i` has the list of `nodes[i]`,
    /// and neighbours keep their ids.
    ///
    /// # Errors
    /// A list cannot be read.
    fn lists(&self, nodes: &[NodeId]) -> Result<Graph>;
}

/// Draws hops from single neighbours, many at a time, so that lists may be on other ranks.
///
/// ```
/// use graphmill_core::{Block, Graph, NodeId, Result};
/// use graphmill_loader::{
///     BatchKey,
///     sampler::{HopRequest, HopSampler, HopScratch, StepSource, WalkOptions, random_walk::RandomWalk},
/// };
///
/// /// A graph whose lists are elsewhere.
/// struct Elsewhere(Graph);
///
/// impl StepSource for Elsewhere {
///     fn degree(&self, v: NodeId) -> u64 {
///         self.0.in_neighbors(v).len() as u64
///     }
///
///     fn step(&self, at: &mut [(NodeId, u32)]) -> Result<()> {
///         at.iter_mut().for_each(|(v, i)| *i = self.0.in_neighbors(*v)[*i as usize]);
///         Ok(())
///     }
///
///     fn lists(&self, nodes: &[NodeId]) -> Result<Graph> {
///         let (mut ends, mut lists) = (vec![0], Vec::new());
///         for &v in nodes {
///             lists.extend_from_slice(self.0.in_neighbors(v));
///             ends.push(lists.len() as u64);
///         }
///         Graph::of_sound_edges(ends.into(), lists.into(), None)
///     }
/// }
///
/// let graph = Graph::new(vec![0, 1, 2, 3].into(), vec![2, 0, 1].into())?;
/// let sampler = RandomWalk::new(&[2], &WalkOptions::default(), 3).expect("valid options");
/// let nothing = Graph::new(vec![0].into(), vec![].into())?;
/// let key = BatchKey { seed: 1, epoch: 0, batch: 0 };
/// let request = HopRequest::new(&nothing, 0, &[0], key);
/// let mut block = Block::default();
/// let by_steps = sampler.by_steps().expect("walks take single steps");
/// by_steps.sample_hop_by_steps(&request, &Elsewhere(graph), &mut HopScratch::default(), &mut block)?;
/// // the nodes that walks along the ring from node 0 visit
/// assert!(!block.indices.is_empty() && block.indices.iter().all(|&u| u != 0));
/// # Ok::<(), graphmill_core::Error>(())
/// ```
pub trait StepSampler {
    /// Draws as [`HopSampler::sample_hop`], from neighbours that `source` returns. The graph of the
    /// request is not read.
    ///
    /// # Errors
    /// As [`HopSampler::sample_hop`] and [`StepSource::step`].
    fn sample_hop_by_steps(
        &self,
        request: &HopRequest,
        source: &dyn StepSource,
        scratch: &mut HopScratch,
        block: &mut Block,
    ) -> Result<()>;
}
