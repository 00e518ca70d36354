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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use graphmill_data::{
        generate::{GenerateOptions, generate_typed},
        partition::PartitionBook,
    };
    use graphmill_loader::sampler::SubgraphTraining;

    use super::*;

    const RANKS: usize = 3;

    /// Owners of the nodes of each type, of rank `rank`.
    fn owners(schema: &Schema, rank: usize) -> Vec<Arc<NodeOwnership>> {
        let of_type = |(t, node): (usize, &NodeType)| {
            let part = |v: u64| (keyed::key(&[t as u64, v]) % RANKS as u64) as u16;
            let parts: Vec<u16> = (0..node.count as u64).map(part).collect();
            let book = PartitionBook::new(RANKS as u16, parts).unwrap();
            Arc::new(NodeOwnership::new(book, rank, RANKS).unwrap())
        };
        schema.types().iter().enumerate().map(of_type).collect()
    }

    /// The graph with the edges into own nodes alone, as a rank has it.
    fn into_own(whole: &TypedGraph, owners: &[Arc<NodeOwnership>]) -> TypedGraph {
        let of_relation = |(r, graph): (usize, &Graph)| {
            let owners = &owners[whole.schema().relations()[r].dst];
            let (mut indptr, mut indices) = (vec![0u64], Vec::new());
            for v in 0..graph.num_nodes() as NodeId {
                if owners.is_own(v) {
                    indices.extend_from_slice(graph.in_neighbors(v));
                }
                indptr.push(indices.len() as u64);
            }
            Graph::of_sound_edges(indptr.into(), indices.into(), None).unwrap()
        };
        let graphs = whole.relations().iter().enumerate().map(of_relation).collect();
        TypedGraph::new(whole.schema().clone(), graphs).unwrap()
    }

    /// Asserts that a subgraph has own nodes alone, and all edges between them by their numbers,
    /// which begin with `first`.
    fn check(batch: &TypedSampled, task: &TypedTask, owners: &[Arc<NodeOwnership>], first: u32) {
        for (ids, owners) in batch.input_nodes.iter().zip(owners) {
            assert!(ids.iter().all(|&v| owners.is_own(v)) && ids.is_sorted());
        }
        assert_eq!(batch.seeds.nodes[task.node_type], batch.input_nodes[task.node_type]);
        let nodes: Vec<BTreeSet<NodeId>> =
            batch.input_nodes.iter().map(|ids| ids.iter().copied().collect()).collect();
        let block = &batch.blocks[0];
        for (r, relation) in task.graph.schema().relations().iter().enumerate() {
            let (graph, slice) = (task.graph.relation(r), &block.relations[r]);
            for (i, &v) in batch.input_nodes[relation.dst].iter().enumerate() {
                let row = graph.in_neighbors(v).iter().copied();
                let expected: Vec<NodeId> = row.filter(|u| nodes[relation.src].contains(u)).collect();
                let sources = slice.indices[slice.edges(i)].iter();
                let found: Vec<NodeId> =
                    sources.map(|&u| batch.input_nodes[relation.src][u as usize]).collect();
                assert_eq!(found, expected);
                let numbers = block.positions[r][slice.edges(i)].iter();
                let named = numbers.map(|&number| graph.indices()[number as usize - first as usize]);
                assert!(named.eq(expected.iter().copied()));
            }
        }
    }

    #[test]
    fn subgraphs_have_own_nodes_with_all_edges_between_them_and_every_training_node() {
        const FIRST: u32 = 1000;
        let options = GenerateOptions { nodes: 300, classes: 3, dim: 4, ..GenerateOptions::default() };
        let whole = TypedTask::new(&generate_typed("typed", &options).unwrap(), "").unwrap();
        let schema = whole.graph.schema();
        for (rank, sampler) in ["saint-node", "saint-edge", "saint-rw"].into_iter().enumerate() {
            let owners = owners(schema, rank);
            let task = TypedTask { graph: into_own(&whole.graph, &owners), ..whole.clone() };
            let edges = RankEdges { first: vec![FIRST; schema.num_relations()], ..RankEdges::default() };
            let config = TrainConfig { sampler: sampler.into(), batch_size: 40, ..TrainConfig::default() };
            let config = config.with(|training: &mut SubgraphTraining| training.sample_coverage = 2.0);
            let subgraphs = RankSubgraphs::new(&config, &task, &owners, &edges).unwrap();
            let own: usize = owners.iter().map(|owners| owners.num_own()).sum();
            assert_eq!(subgraphs.subgraphs(), Some(own.div_ceil(40) as u64), "{sampler}");
            let (mut workspace, mut memory) = (TypedWorkspace::new(schema), TypedSeeds::default());
            let mut seen = BTreeSet::new();
            for number in 0..200 {
                let key = BatchKey { seed: 7, epoch: 0, batch: number };
                let request = TypedRequest { positions: true, ..TypedRequest::new(&task.graph, key) };
                let seeds = memory.refill(number, &vec![&[][..]; schema.num_types()]);
                let batch = subgraphs.sample(&request, &mut workspace, seeds).unwrap();
                check(&batch, &task, &owners, FIRST);
                seen.extend(batch.seeds.nodes[task.node_type].iter().copied());
                memory = batch.recycle();
            }
            let of_seeds = &owners[task.node_type];
            let mut train = task.split.train.iter().filter(|&&v| of_seeds.is_own(v));
            assert!(train.all(|v| seen.contains(v)), "{sampler}");
        }
    }

    #[test]
    fn rank_0_draws_as_one_process_and_no_two_ranks_draw_alike() {
        let seeds: BTreeSet<u64> = (0..8).map(|rank| own_seed(5, rank)).collect();
        assert_eq!((own_seed(5, 0), seeds.len()), (5, 8));
    }
}
