//! Subgraphs of a rank: those of the nodes of its parts, with the edges between them.
//!
//! # Algorithm
//!
//! The samplers of one process draw from the graph of the own nodes, which their places number, and
//! count there for the normalisation. A rank sends no requests for its batches, and trains on no
//! edge between parts of two ranks. All ranks draw as many subgraphs in an epoch as the rank that
//! needs most of them to hold its nodes once. The gradient of a batch is the mean over the ranks'
//! subgraphs, each weighted by its nodes of the task's type.
//!
//! # Source
//!
//! Zeng et al., *Accurate, efficient and scalable training of graph neural networks*, JPDC 2021,
//! section 8.
//!
//! # Cost
//!
//! That of one process on a part of the graph.
//!
//! # Memory
//!
//! The edges between own nodes, 4 bytes each and 4 more if blocks name them; 8 bytes for an own
//! node and each relation into its type, and 4 for its id; and those of the sampler.
//!
//! # Deviations
//!
//! Parts are not reassigned (`--shuffle-parts`).

use std::sync::Arc;

use graphmill_core::{
    Graph, NodeId, Result as CoreResult, Split, keyed,
    typed::{NodeType, Schema, TypedGraph},
};
use graphmill_distributed::NodeOwnership;
use graphmill_loader::{
    BatchKey,
    typed::{TypedRequest, TypedSampled, TypedSampler, TypedSeeds, TypedWorkspace},
};

use super::RankEdges;
use crate::{
    Error, Result, TrainConfig,
    distributed::Ranks,
    typed::{build, task::TypedTask},
};

/// Sampler of a rank's subgraphs.
pub(super) struct RankSubgraphs {
    /// Draws from `graph`.
    inner: Box<dyn TypedSampler>,
    /// Own nodes by their places, and the edges between them.
    graph: TypedGraph,
    /// Own nodes of each type, ascending.
    nodes: Vec<Vec<NodeId>>,
    /// Number over all ranks of each edge of each relation; no relations if blocks do not name
    /// their edges.
    numbers: Vec<Vec<u32>>,
    rank: usize,
    /// Number of subgraphs of an epoch.
    epoch: u64,
}

impl RankSubgraphs {
    /// Creates the sampler of the rank that owns the own nodes of `owners`, by type. The graph of
    /// `task` has the edges into these nodes, and `edges` their numbers.
    ///
    /// # Errors
    /// The rank has no training nodes, or an option is impossible.
    pub(super) fn new(
        config: &TrainConfig,
        task: &TypedTask,
        owners: &[Arc<NodeOwnership>],
        edges: &RankEdges,
    ) -> Result<Self> {
        let of_seeds = &owners[task.node_type];
        let (rank, is_own) = (of_seeds.rank(), |v: &NodeId| of_seeds.is_own(*v));
        let train = task.split.train.iter().copied().filter(is_own).map(|v| of_seeds.place(v));
        let train: Vec<NodeId> = train.collect();
        if train.is_empty() {
            return Err(Error::usage(format!(
                "rank {rank}: its parts have no training nodes, so its subgraphs would train nothing; start \
                 fewer ranks, or balance the parts (graphmill partition --method bgl)"
            )));
        }
        let (graph, numbers) = own_graph(&task.graph, owners, edges)?;
        let split = Split { train: train.into(), ..task.split.clone() };
        let own = TypedTask { graph: graph.clone(), split, ..task.clone() };
        let config = TrainConfig { seed: own_seed(config.seed, rank), ..config.clone() };
        let inner = build::sampler(&config, &own)?;
        let nodes = owners.iter().map(|owners| owners.own().collect()).collect();
        let epoch = inner.subgraphs().unwrap_or(1);
        Ok(Self { inner, graph, nodes, numbers, rank, epoch })
    }

    /// The same sampler with as many subgraphs as those of the other ranks. All ranks call this at
    /// the same time.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(super) fn agreed(self, ranks: &Ranks) -> Result<Self> {
        let counts = ranks.gather(&[self.epoch as u32])?;
        let most = counts.iter().flatten().copied().max();
        Ok(Self { epoch: most.map_or(self.epoch, u64::from), ..self })
    }
}

/// Seed of a rank's draws, which no other rank has. Rank 0 draws as one process does.
fn own_seed(seed: u64, rank: usize) -> u64 {
    match rank {
        0 => seed,
        _ => keyed::key(&[seed, rank as u64]),
    }
}

/// Graph of the own nodes of each type by their places, with the edges of `whole` between them, and
/// the numbers of these edges, if `edges` has numbers.
fn own_graph(
    whole: &TypedGraph,
    owners: &[Arc<NodeOwnership>],
    edges: &RankEdges,
) -> Result<(TypedGraph, Vec<Vec<u32>>)> {
    let schema = whole.schema();
    let (mut graphs, mut numbers) = (Vec::with_capacity(schema.num_relations()), Vec::new());
    for (r, relation) in schema.relations().iter().enumerate() {
        let (from, sources) = (whole.relation(r), &owners[relation.src]);
        let (mut indptr, mut indices, mut positions) = (vec![0u64], Vec::new(), Vec::new());
        for v in owners[relation.dst].own() {
            for (position, &u) in (from.indptr()[v as usize]..).zip(from.in_neighbors(v)) {
                if sources.is_own(u) {
                    indices.push(sources.place(u));
                    positions.push(position);
                }
            }
            indptr.push(indices.len() as u64);
        }
        graphs.push(Graph::of_sound_edges(indptr.into(), indices.into(), None)?);
        if let Some(first) = edges.first(r) {
            // 32 bits number the edges of all ranks, or the numbers are not read
            numbers.push(positions.into_iter().map(|position| first + position as u32).collect());
        }
    }
    let types = schema.types().iter().zip(owners);
    let types = types.map(|(node, owners)| NodeType::new(node.name.clone(), owners.num_own())).collect();
    let schema = Schema::new(types, schema.relations().to_vec())?;
    Ok((TypedGraph::new(schema, graphs)?, numbers))
}

impl TypedSampler for RankSubgraphs {
    fn num_hops(&self) -> usize {
        self.inner.num_hops()
    }

    fn num_blocks(&self) -> usize {
        self.inner.num_blocks()
    }

    fn is_random(&self) -> bool {
        self.inner.is_random()
    }

    fn subgraphs(&self) -> Option<u64> {
        Some(self.epoch)
    }

    fn bytes(&self) -> u64 {
        let of_graph = |graph: &Graph| 8 * graph.indptr().len() + 4 * graph.num_edges();
        let graphs: usize = self.graph.relations().iter().map(of_graph).sum();
        let ids: usize = self.nodes.iter().chain(&self.numbers).map(Vec::len).sum();
        (graphs + 4 * ids) as u64 + self.inner.bytes()
    }

    fn follows(&self, schema: &Schema, hop: usize, r: usize) -> bool {
        self.inner.follows(schema, hop, r)
    }

    fn sample(
        &self,
        request: &TypedRequest,
        workspace: &mut TypedWorkspace,
        seeds: TypedSeeds,
    ) -> CoreResult<TypedSampled> {
        let key = BatchKey { seed: own_seed(request.key.seed, self.rank), ..request.key };
        let request = TypedRequest { graph: &self.graph, key, ..*request };
        let mut batch = self.inner.sample(&request, workspace, seeds)?;
        let TypedSampled { seeds, input_nodes, blocks, .. } = &mut batch;
        for lists in [&mut seeds.nodes, input_nodes] {
            for (ids, own) in lists.iter_mut().zip(&self.nodes) {
                ids.iter_mut().for_each(|id| *id = own[*id as usize]);
            }
        }
        for block in blocks {
            for (positions, numbers) in block.positions.iter_mut().zip(&self.numbers) {
                positions.iter_mut().for_each(|edge| *edge = numbers[*edge as usize].into());
            }
        }
        Ok(batch)
    }
}
