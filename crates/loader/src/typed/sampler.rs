//! The interface of typed samplers, and what they share.

use std::sync::Arc;

use graphmill_core::{
    Error, NodeId, Result,
    block::Aggregation,
    options::OwnOptions,
    typed::{Schema, TypedGraph},
};

use super::{TypedFanout, TypedSampled, TypedSeeds, union_buffers::UnionBuffers};
use crate::{
    BatchKey, Relabel,
    sampler::{HopSampler, HopScratch, PathSource},
};

/// Values from which typed samplers are made.
#[derive(Clone, Debug, Default)]
pub struct TypedOptions {
    /// Numbers drawn per hop.
    pub fanout: TypedFanout,
    /// The run's seed, on which precomputed tables may depend.
    pub seed: u64,
    /// Options of each sampler.
    pub own: OwnOptions,
    /// Node type of the seeds, and its training nodes, for samplers of subgraphs.
    pub train: (usize, Vec<NodeId>),
    /// Size of a subgraph ([`SubgraphContext::budget`](crate::subgraph::SubgraphContext::budget)).
    pub budget: usize,
}

/// A typed minibatch to draw.
#[derive(Clone, Copy, Debug)]
pub struct TypedRequest<'a> {
    /// The graph to sample (in-neighbours).
    pub graph: &'a TypedGraph,
    /// Identity of the random draws.
    pub key: BatchKey,
    /// True to transpose all blocks, for a backward pass.
    pub transposed: bool,
    /// The sum over neighbours that layers compute, for samplers that weight edges.
    pub aggregation: Aggregation,
    /// True to fill in [`TypedBlock::positions`](graphmill_core::typed::TypedBlock::positions),
    /// which samplers whose row [names edges](super::TypedKind::names_edges) can. The draws are the
    /// same.
    pub positions: bool,
}

impl<'a> TypedRequest<'a> {
    /// Creates a request for blocks without transposes and positions of edges.
    pub fn new(graph: &'a TypedGraph, key: BatchKey) -> Self {
        Self { graph, key, transposed: false, aggregation: Aggregation::Other, positions: false }
    }

    /// The same request for transposed blocks.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self { transposed: true, ..self }
    }
}

/// Replaces the sampler of a relation.
pub type WrapHops<'w> = dyn FnMut(usize, Arc<dyn HopSampler>) -> Result<Arc<dyn HopSampler>, String> + 'w;

/// Makes typed minibatches.
///
/// ```
/// use graphmill_core::typed::{NodeType, Relation, Schema, TypedGraph, bipartite};
/// use graphmill_loader::typed::{TABLE, TypedOptions};
///
/// let types = vec![NodeType::new("author", 2), NodeType::new("paper", 3)];
/// let schema = Schema::new(types, vec![Relation::new(0, "writes", 1)])?;
/// let graph = TypedGraph::new(schema, vec![bipartite(2, 3, &[0, 0, 1], &[0, 2, 2])?])?;
/// let options = TypedOptions { fanout: "5,5".parse().expect("two numbers"), ..TypedOptions::default() };
/// let sampler = (TABLE.find("neighbor")?.make.make)(&options, &graph).expect("a sampler of this graph");
/// assert_eq!((sampler.num_hops(), sampler.num_blocks(), sampler.subgraphs()), (2, 2, None));
/// assert!(sampler.follows(graph.schema(), 0, 0));
/// # Ok::<(), graphmill_core::Error>(())
/// ```
pub trait TypedSampler: Send + Sync {
    /// Number of hops from the seeds.
    fn num_hops(&self) -> usize;

    /// Number of blocks of a minibatch: one per hop, or a single one for all layers.
    fn num_blocks(&self) -> usize;

    /// True if another key may give other blocks.
    fn is_random(&self) -> bool;

    /// True if the draws of a node do not depend on the other nodes of its batch, so that the rows
    /// of a seed are the same in all batches of a key.
    fn is_per_node(&self) -> bool {
        false
    }

    /// Number of minibatches of an epoch, if they are subgraphs that choose their own seeds; given
    /// seeds are ignored then.
    fn subgraphs(&self) -> Option<u64> {
        None
    }

    /// Bytes that the sampler holds beside the graph: copies of edges, counts, and their order by
    /// time with the tables of draws by recency that were made.
    fn bytes(&self) -> u64 {
        0
    }

    /// Returns true if hop `hop` (0 next to the seeds) follows relation `r`.
    fn follows(&self, schema: &Schema, hop: usize, r: usize) -> bool;

    /// The same sampler whose draws by each relation go through `wrap`, which gets the number and
    /// the sampler of the relation; `None` if a draw reads the rows of several relations.
    ///
    /// # Errors
    /// Those of `wrap`.
    fn by_relation(&self, _wrap: &mut WrapHops) -> Option<Result<Box<dyn TypedSampler>, String>> {
        None
    }

    /// The same sampler whose draws read single neighbours from `source`, and no list of the graph;
    /// `None` if its draws read more.
    fn by_steps(&self, _source: &Arc<dyn PathSource>) -> Option<Box<dyn TypedSampler>> {
        None
    }

    /// The same sampler, which draws the bottom block of a batch separately from the others; `None`
    /// if it draws all blocks at once.
    fn in_parts(&self) -> Option<&dyn TypedSplitSampler> {
        None
    }

    /// Draws the blocks around the seeds, without the edges that the seeds exclude. A pure function
    /// of the request and the seeds.
    ///
    /// # Errors
    /// The seeds are invalid, a block would have more edges than 32-bit positions can number, or
    /// the request asks for positions that the sampler cannot name.
    fn sample(
        &self,
        request: &TypedRequest,
        workspace: &mut TypedWorkspace,
        seeds: TypedSeeds,
    ) -> Result<TypedSampled>;
}

/// A sampler whose bottom block can be drawn around fewer nodes than the other blocks read, if the
/// rows of the others are known. [`TypedSplitSampler::sample_bottom`] of
/// [`TypedSplitSampler::sample_upper`] is [`TypedSampler::sample`].
pub trait TypedSplitSampler: Send + Sync {
    /// Draws all blocks but the bottom one, which is empty. No block is transposed. The input nodes
    /// are the sources of the lowest drawn block.
    ///
    /// # Errors
    /// As for [`TypedSampler::sample`].
    fn sample_upper(
        &self,
        request: &TypedRequest,
        workspace: &mut TypedWorkspace,
        seeds: TypedSeeds,
    ) -> Result<TypedSampled>;

    /// Draws the bottom block around the input nodes of `batch`, which are then its sources, and
    /// transposes all blocks if the request says so.
    ///
    /// # Errors
    /// As for [`TypedSampler::sample`].
    fn sample_bottom(
        &self,
        request: &TypedRequest,
        workspace: &mut TypedWorkspace,
        batch: TypedSampled,
    ) -> Result<TypedSampled>;

    /// Draws the bottom block around the seeds, alone.
    ///
    /// # Errors
    /// As for [`TypedSampler::sample`].
    fn sample_rows(
        &self,
        request: &TypedRequest,
        workspace: &mut TypedWorkspace,
        seeds: TypedSeeds,
    ) -> Result<TypedSampled>;
}

/// Names of the node types that no batch with seeds of the types `seeds` can contain, because no
/// followed relation leads from them to the seeds.
pub fn unreached_types<'a>(sampler: &dyn TypedSampler, schema: &'a Schema, seeds: &[usize]) -> Vec<&'a str> {
    let reached = schema.reached(seeds, sampler.num_hops(), |hop, r| sampler.follows(schema, hop, r));
    let types = schema.types().iter().zip(reached);
    types.filter(|(_, reached)| !reached).map(|(node, _)| &node.name[..]).collect()
}

/// Error of a sampler that is asked for the positions of its edges and cannot name them.
pub(crate) fn cannot_name_edges() -> Error {
    Error::invalid("the sampler does not name the edges that it draws; use neighbor or full")
}

/// Scratch buffers that a worker uses for all its typed batches, one after the other.
#[derive(Debug)]
pub struct TypedWorkspace {
    /// Numbering of each type's nodes.
    pub(super) relabel: Vec<Relabel>,
    pub(super) hop: HopScratch,
    /// Nodes that a relation sees first.
    pub(super) new: Vec<NodeId>,
    pub(super) subgraphs: UnionBuffers,
}

impl TypedWorkspace {
    /// Creates a workspace for graphs of this schema (see [`Relabel::new`] for the memory).
    pub fn new(schema: &Schema) -> Self {
        let relabel = schema.types().iter().map(|node| Relabel::new(node.count)).collect();
        Self { relabel, hop: HopScratch::default(), new: Vec::new(), subgraphs: UnionBuffers::default() }
    }

    /// Sets whether a batch may use all threads of the pool, which is the default. Results do not
    /// depend on it.
    pub fn set_parallel(&mut self, parallel: bool) {
        self.hop.parallel = parallel;
    }
}
