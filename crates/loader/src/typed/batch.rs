//! States of a typed minibatch: seeds, sampled blocks, extracted rows. As in
//! [`crate::minibatch`], each stage consumes one state and returns the next, and a recycled batch
//! passes its buffers to the next one.

use graphmill_core::{
    Block, Error, Matrix, NodeId, Result, memory,
    typed::{Schema, TypedBlock},
};

use crate::{
    Feature, Relabel, Traffic, gather_edges,
    link::{ExcludedEdges, LinkBatch},
    minibatch::block_bytes,
};

/// Nodes whose targets a typed minibatch predicts, before sampling.
#[derive(Debug, Default)]
pub struct TypedSeeds {
    /// Number of the batch within its epoch.
    pub number: u64,
    /// Distinct nodes of each type by local id, `T` lists.
    pub nodes: Vec<Vec<NodeId>>,
    /// Time of each seed, `T` lists, for samplers of graphs with times; empty if seeds have none. A
    /// node may then occur at several times.
    pub times: Vec<Vec<i64>>,
    /// Pairs to score, in a batch of links: their ends are numbers of seeds, those of one type
    /// after those of another. The edges to leave out are in `excluded`.
    pub links: Option<Box<LinkBatch>>,
    /// Edges of each relation that no hop may read, by local ids; empty if there are none.
    pub excluded: Vec<ExcludedEdges>,
    memory: SpareBuffers,
}

/// Buffers that are unused in a batch's present state.
#[derive(Debug, Default)]
struct SpareBuffers {
    blocks: Vec<TypedBlock>,
    input_nodes: Vec<Vec<NodeId>>,
    features: Vec<Matrix>,
    edges: Vec<Vec<Matrix>>,
    ids: Vec<NodeId>,
    loss_weight: Vec<f32>,
}

impl TypedSeeds {
    /// Creates the seeds of batch `number`, a list for each node type.
    pub fn new(number: u64, nodes: Vec<Vec<NodeId>>) -> Self {
        Self { number, nodes, ..Self::default() }
    }

    /// Creates seeds of a single type.
    pub fn of_type(schema: &Schema, number: u64, t: usize, nodes: impl Into<Vec<NodeId>>) -> Self {
        let mut all = vec![Vec::new(); schema.num_types()];
        all[t] = nodes.into();
        Self::new(number, all)
    }

    /// Replaces the seeds by those of batch `number`, a list for each type, without times and pairs
    /// of links, and keeps the buffers.
    #[must_use]
    pub fn refill(mut self, number: u64, nodes: &[&[NodeId]]) -> Self {
        self.number = number;
        if let Some(links) = &mut self.links {
            links.clear();
        }
        self.excluded.clear();
        self.times.clear();
        self.nodes.resize_with(nodes.len(), Vec::new);
        for (to, from) in self.nodes.iter_mut().zip(nodes) {
            memory::demand_copy(to, from);
        }
        self
    }

    /// Edges of relation `r` that no hop may read, if there are any.
    pub fn excluded(&self, r: usize) -> Option<&ExcludedEdges> {
        self.excluded.get(r).filter(|excluded| !excluded.is_empty())
    }

    /// Returns the next state for a sampler to fill: `blocks` cleared blocks, and the seeds as the
    /// nodes so far, which `relabel` (one for each type) numbers.
    ///
    /// # Errors
    /// The number of lists differs from that of the types, or a seed is not a node of its type or
    /// is listed twice.
    pub(super) fn into_sampled(
        mut self,
        schema: &Schema,
        blocks: usize,
        relabel: &mut [Relabel],
    ) -> Result<TypedSampled> {
        if self.nodes.len() != schema.num_types() {
            return Err(Error::invalid(format!(
                "typed batch {}: {} lists of seeds for {} node types; pass a list for each, empty ones too",
                self.number,
                self.nodes.len(),
                schema.num_types()
            )));
        }
        let mut typed = std::mem::take(&mut self.memory.blocks);
        typed.resize_with(blocks, TypedBlock::default);
        typed.iter_mut().for_each(|block| block.clear(schema));
        let mut input_nodes = std::mem::take(&mut self.memory.input_nodes);
        input_nodes.resize_with(schema.num_types(), Vec::new);
        let lists = self.nodes.iter().zip(&mut input_nodes).zip(relabel);
        for (t, ((seeds, nodes), relabel)) in lists.enumerate() {
            let fault = |v: NodeId, reason: String| {
                let name = &schema.types()[t].name;
                Error::invalid(format!("typed batch {}: seed {v} of type '{name}': {reason}", self.number))
            };
            let count = schema.types()[t].count;
            if let Some(&v) = seeds.iter().find(|&&v| v as usize >= count) {
                return Err(fault(v, format!("there are {count} nodes; use ids local to the type")));
            }
            nodes.clear();
            relabel.start(&[]);
            let mut ids = memory::demand_collect(seeds.iter().copied());
            relabel.relabel(&mut ids, &[], nodes);
            if nodes.len() != seeds.len() {
                let i = seeds.iter().zip(nodes.iter()).take_while(|(seed, node)| seed == node).count();
                return Err(fault(seeds[i], "it is listed twice; pass each seed once".into()));
            }
        }
        let mut loss_weight = std::mem::take(&mut self.memory.loss_weight);
        loss_weight.clear();
        Ok(TypedSampled { seeds: self, blocks: typed, input_nodes, loss_weight })
    }
}

/// A typed minibatch whose blocks are drawn.
#[derive(Debug)]
pub struct TypedSampled {
    /// Seeds of the batch.
    pub seeds: TypedSeeds,
    /// One block per hop, the farthest from the seeds first, or a single block for all layers.
    pub blocks: Vec<TypedBlock>,
    /// Nodes of each type whose rows are read: the sources of the bottom block, seeds first, in
    /// first-seen order.
    pub input_nodes: Vec<Vec<NodeId>>,
    /// Factor for the loss of each seed of a subgraph, 0 for one that does not train; empty for
    /// equal seeds.
    pub loss_weight: Vec<f32>,
}

impl TypedSampled {
    /// Number of seeds that train.
    pub fn num_seeds(&self) -> usize {
        match &self.loss_weight[..] {
            [] => self.seeds.nodes.iter().map(Vec::len).sum(),
            weights => weights.iter().filter(|&&weight| weight != 0.0).count(),
        }
    }

    /// Number of edges over all blocks.
    pub fn num_edges(&self) -> usize {
        self.blocks.iter().map(TypedBlock::num_edges).sum()
    }

    /// Bytes of the blocks, of the ids of the input nodes, and of the positions of named edges.
    pub fn bytes(&self) -> u64 {
        let ids: usize = self.input_nodes.iter().map(|nodes| size_of_val(&nodes[..])).sum();
        let slices = self.blocks.iter().flat_map(|block| &block.relations);
        let named: usize = self.blocks.iter().flat_map(|block| &block.positions).map(Vec::len).sum();
        ids as u64 + slices.map(block_bytes).sum::<u64>() + 8 * named as u64
    }

    /// Gathers the feature rows of the input nodes of each type; `T` tables, `None` for a type
    /// without features.
    ///
    /// # Errors
    /// The number of tables differs from that of the types, or a tier cannot be read.
    pub fn extract(mut self, tables: &[Option<&dyn Feature>]) -> Result<TypedExtracted> {
        if tables.len() != self.input_nodes.len() {
            return Err(Error::invalid(format!(
                "typed batch {}: {} feature tables for {} node types; pass one for each, or none",
                self.seeds.number,
                tables.len(),
                self.input_nodes.len()
            )));
        }
        let mut features = std::mem::take(&mut self.seeds.memory.features);
        features.resize_with(tables.len(), Matrix::default);
        let mut traffic = vec![Traffic::default(); tables.len()];
        for (t, table) in tables.iter().enumerate() {
            let nodes = &self.input_nodes[t];
            match table {
                Some(table) if !nodes.is_empty() => traffic[t] = table.gather(nodes, &mut features[t])?,
                Some(table) => features[t].resize(0, table.dim()),
                None => features[t].resize(nodes.len(), 0),
            }
            if features[t].is_sparse() {
                features[t].transpose_sparse();
            }
        }
        Ok(TypedExtracted { sampled: self, features, edges: Vec::new(), traffic })
    }

    /// Gathers the feature rows of the edges into `edges`, a matrix for each block and relation; of
    /// width 0 for a relation without features. `tables` has a table for each relation, `None` for
    /// one without features. The blocks name their edges
    /// ([`TypedRequest::positions`](super::TypedRequest::positions)).
    ///
    /// # Errors
    /// The number of tables differs from that of the relations, the blocks do not name their edges,
    /// an edge has no row, or a tier cannot be read.
    pub fn extract_edges(
        &mut self,
        tables: &[Option<&dyn Feature>],
        edges: &mut Vec<Vec<Matrix>>,
    ) -> Result<()> {
        let Self { seeds, blocks, .. } = self;
        edges.resize_with(blocks.len(), Vec::new);
        for (block, edges) in blocks.iter().zip(edges) {
            let fits = |(slice, named): (&Block, &Vec<u64>)| slice.num_edges() == named.len();
            let is_named = block.relations.iter().zip(&block.positions).all(fits);
            if tables.len() != block.relations.len() || !is_named {
                return Err(Error::invalid(format!(
                    "typed batch {}: features of edges need a table for each of {} relations, {} are given, \
                     and blocks that name their edges; request positions of the sampler",
                    seeds.number,
                    block.relations.len(),
                    tables.len()
                )));
            }
            edges.resize_with(tables.len(), Matrix::default);
            for ((table, positions), rows) in tables.iter().zip(&block.positions).zip(edges) {
                match table {
                    Some(table) if !positions.is_empty() => {
                        gather_edges(*table, positions, &mut seeds.memory.ids, rows)?;
                    }
                    Some(table) => rows.resize(0, table.dim()),
                    None => rows.resize(positions.len(), 0),
                }
            }
        }
        Ok(())
    }

    /// Returns the buffers for the next batch.
    pub fn recycle(self) -> TypedSeeds {
        let Self { mut seeds, blocks, input_nodes, loss_weight } = self;
        let memory = &mut seeds.memory;
        (memory.blocks, memory.input_nodes, memory.loss_weight) = (blocks, input_nodes, loss_weight);
        seeds
    }
}

/// A typed minibatch with its feature rows, ready to train on.
#[derive(Debug)]
pub struct TypedExtracted {
    /// Seeds, blocks and input nodes of the batch.
    pub sampled: TypedSampled,
    /// Rows of the input nodes of each type; of width 0 for a type without features. Sparse rows
    /// are transposed too.
    pub features: Vec<Matrix>,
    /// Rows of the edges of each block and relation, in the order of the slices' edges; empty
    /// unless [`TypedExtracted::with_edges`] gathered them.
    pub edges: Vec<Vec<Matrix>>,
    /// Rows and bytes read for each type, per tier; those of edges are not counted.
    pub traffic: Vec<Traffic>,
}

impl TypedExtracted {
    /// The same batch with the feature rows of its edges, unless `tables` is empty.
    ///
    /// # Errors
    /// As for [`TypedSampled::extract_edges`].
    pub fn with_edges(mut self, tables: &[Option<&dyn Feature>]) -> Result<Self> {
        if !tables.is_empty() {
            let mut edges = std::mem::take(&mut self.sampled.seeds.memory.edges);
            self.sampled.extract_edges(tables, &mut edges)?;
            self.edges = edges;
        }
        Ok(self)
    }

    /// Returns the buffers for the next batch.
    pub fn recycle(self) -> TypedSeeds {
        let Self { sampled, features, edges, .. } = self;
        let mut seeds = sampled.recycle();
        (seeds.memory.features, seeds.memory.edges) = (features, edges);
        seeds
    }
}

impl From<TypedSampled> for TypedSeeds {
    fn from(batch: TypedSampled) -> Self {
        batch.recycle()
    }
}

impl From<TypedExtracted> for TypedSeeds {
    fn from(batch: TypedExtracted) -> Self {
        batch.recycle()
    }
}
