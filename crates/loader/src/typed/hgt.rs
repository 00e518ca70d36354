//! HGSampling: a subgraph with about as many nodes of each type, drawn by their connections to the
//! nodes sampled so far.
//!
//! # Algorithm
//!
//! Each node outside the sample has a budget: a sampled node of degree `d` by a relation adds `1 /
//! d` to the budget of each source (of a random `max-degree` of them if `d` is larger, then `1 /
//! max-degree`). At each hop and for each type, `n` nodes are drawn without replacement with
//! probabilities in proportion to the square of their budgets. When all types are drawn, the new
//! nodes add to the budgets. At the end, the edges between the sampled nodes make one block for all
//! layers.
//!
//! A draw without replacement is a race: node `u` arrives at time `-ln(x) / budget^2`, with `x`
//! uniform and keyed by the node, and the first `n` arrivals are drawn.
//!
//! # Source
//!
//! Hu, Dong, Wang and Sun, *Heterogeneous graph transformer*, WWW 2020, section 3.4, algorithm 1;
//! Efraimidis and Spirakis, *Weighted random sampling with a reservoir*, IPL 2006.
//!
//! # Cost
//!
//! O(max-degree) per sampled node and relation, and a sort of the budgets per hop and type.
//!
//! # Deviations
//!
//! As in PyTorch Geometric's `HGTLoader`, the budgets are updated after all types of a hop, so that
//! the result does not depend on the order of the types, and the block has at most `max-degree`
//! in-neighbours per node and relation; but its edges are those drawn (pyg issue 10103). Degrees of
//! sources are not read.
//!
//! Over ranks, the owner of a node draws its neighbours, and each rank has the budgets of its share
//! of a batch: the blocks are those of a batch with the share's seeds alone.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use clap::Args;
use graphmill_core::{
    Block, NodeId, Result, keyed, memory,
    options::{Fault, OptionSet, range},
    typed::{Relation, Schema, TypedGraph},
};
use serde::{Deserialize, Serialize};

use super::{
    TypedOptions, TypedRequest, TypedSampled, TypedSampler, TypedSeeds, TypedWorkspace, WrapHops,
    sampler::cannot_name_edges,
};
use crate::{
    BatchKey,
    sampler::{
        HopProperties, HopRequest, HopSampler, HopScratch, NeighborAccess,
        neighbor::{NeighborRows, draw_offsets},
        sample_remaining,
    },
};

/// Options of [`Hgt`].
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HgtOptions {
    /// Neighbours that a node adds to the budget, per relation.
    ///
    /// Of a node with more in-neighbours, this many are drawn. Applies to --sampler hgt.
    #[arg(long, value_name = "N")]
    pub max_degree: usize,
}

impl Default for HgtOptions {
    fn default() -> Self {
        Self { max_degree: 50 }
    }
}

impl OptionSet for HgtOptions {
    fn check(&self) -> Result<(), Fault> {
        range("max_degree", self.max_degree, 1..=1_000_000)
    }
}

/// Parts of the keys of draws.
mod part {
    pub(super) const BUDGET: u64 = 3;
    pub(super) const RACE: u64 = 4;
    pub(super) const EDGES: u64 = 5;
}

/// Makes the sampler of a run.
pub(super) fn make(with: &TypedOptions, graph: &TypedGraph) -> Result<Box<dyn TypedSampler>, String> {
    Ok(Box::new(Hgt::new(with, graph.schema())?))
}

/// Samples nodes of each type by their budgets.
#[derive(Clone)]
pub struct Hgt {
    /// Number of nodes of each type at each hop, `T x L`.
    pub(crate) nodes: Vec<Vec<usize>>,
    pub(crate) num_hops: usize,
    /// Draws from the rows of each relation.
    pub(crate) draws: Vec<Arc<dyn HopSampler>>,
}

/// Draws from the rows of a relation: for the budgets of each hop, then for the edges of the block.
#[derive(Clone, Copy, Debug)]
struct RelationDraws {
    relation: u64,
    num_hops: usize,
    max_degree: usize,
}

impl HopSampler for RelationDraws {
    /// The hops, and the edges of the block.
    fn num_layers(&self) -> usize {
        self.num_hops + 1
    }

    fn properties(&self) -> HopProperties {
        HopProperties {
            is_per_node: true,
            access: NeighborAccess::OwnList,
            leaves_out: true,
            ..HopProperties::default()
        }
    }

    fn sample_hop(&self, request: &HopRequest, scratch: &mut HopScratch, block: &mut Block) -> Result<()> {
        let &HopRequest { graph, hop, dst, names, excluded, .. } = request;
        let part = if hop < self.num_hops { part::BUDGET } else { part::EDGES };
        let key = keyed::key(&[request.hop_key(), part, self.relation]);
        let parallel = scratch.parallel;
        let Block { indptr, indices, .. } = block;
        let rows = NeighborRows { graph, names, excluded };
        let drawn = draw_offsets(rows, self.max_degree, key, dst, scratch, (indptr, indices));
        scratch.parallel = parallel;
        drawn?;
        for (ends, &v) in indptr.windows(2).zip(dst) {
            let row = graph.in_neighbors(v);
            let drawn = &mut indices[ends[0] as usize..ends[1] as usize];
            drawn.iter_mut().for_each(|offset| *offset = row[*offset as usize]);
        }
        Ok(())
    }
}

/// Budget of each node outside the sample, for each type.
type Budgets = Vec<BTreeMap<NodeId, f64>>;

impl Hgt {
    /// Creates a sampler that draws `fanout` nodes of each type per hop; -1 takes all nodes with a
    /// budget.
    ///
    /// # Errors
    /// The fanout or an option is invalid, or a name in the fanout is not a node type.
    pub fn new(with: &TypedOptions, schema: &Schema) -> Result<Self, String> {
        let options = with.own.get::<HgtOptions>();
        options.check().map_err(|fault| fault.to_string())?;
        let (nodes, num_hops) = (with.fanout.of_types(schema)?, with.fanout.all.len());
        let of_relation = |r: usize| {
            let draws = RelationDraws { relation: r as u64, num_hops, max_degree: options.max_degree };
            Arc::new(draws) as Arc<dyn HopSampler>
        };
        let draws = (0..schema.num_relations()).map(of_relation).collect();
        Ok(Self { nodes, num_hops, draws })
    }

    /// Draws up to `max_degree` in-neighbours of `dst` by relation `r`, without the excluded edges
    /// of the seeds: row ends and sources. `hop` is that of the budgets, or the number of hops for
    /// the edges of the block.
    fn draw(
        &self,
        (graph, r, seeds): (&TypedGraph, usize, &TypedSeeds),
        (key, hop): (BatchKey, usize),
        dst: &[NodeId],
        scratch: &mut HopScratch,
        out: &mut Block,
    ) -> Result<()> {
        let graph = graph.relation(r);
        if dst.is_empty() {
            out.indptr.clear();
            out.indptr.push(0);
            out.indices.clear();
            return Ok(());
        }
        let request = HopRequest { excluded: seeds.excluded(r), ..HopRequest::new(graph, hop, dst, key) };
        sample_remaining(&*self.draws[r], &request, scratch, out)
    }

    /// Adds to the budgets of the sources of `nodes[t][from[t]..]` for all types.
    fn add_budgets(
        &self,
        (graph, seeds): (&TypedGraph, &TypedSeeds),
        at: (BatchKey, usize),
        (nodes, from): (&[Vec<NodeId>], &[usize]),
        inside: &[HashSet<NodeId>],
        scratch: &mut HopScratch,
        budgets: &mut Budgets,
    ) -> Result<()> {
        let mut drawn = Block::default();
        for (r, &Relation { src, dst, .. }) in graph.schema().relations().iter().enumerate() {
            self.draw((graph, r, seeds), at, &nodes[dst][from[dst]..], scratch, &mut drawn)?;
            for ends in drawn.indptr.windows(2) {
                let row = &drawn.indices[ends[0] as usize..ends[1] as usize];
                for u in row.iter().filter(|u| !inside[src].contains(u)) {
                    *budgets[src].entry(*u).or_default() += 1.0 / row.len() as f64;
                }
            }
        }
        Ok(())
    }
}

/// Key of the race of type `t` in the hop of key `key`.
pub(crate) fn race_key(key: u64, t: usize) -> u64 {
    keyed::key(&[key, part::RACE, t as u64])
}

/// The `n` first arrivals of a race with rates `budget^2`, in the order of arrival. Rows of the
/// same node, of number `node`, have the same random number.
pub(crate) fn race<R: Copy + Ord>(
    budget: &BTreeMap<R, f64>,
    n: usize,
    key: u64,
    node: impl Fn(R) -> NodeId,
) -> Vec<R> {
    let arrival = |(&u, &budget): (&R, &f64)| {
        let x = 1.0 - keyed::Stream::new(keyed::key(&[key, node(u).into()])).uniform();
        (-x.ln() / (budget * budget), u)
    };
    let mut arrivals: Vec<(f64, R)> = memory::demand_collect(budget.iter().map(arrival));
    arrivals.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    arrivals.truncate(n);
    memory::demand_collect(arrivals.iter().map(|arrival| arrival.1))
}

impl TypedSampler for Hgt {
    fn num_hops(&self) -> usize {
        self.num_hops
    }

    fn num_blocks(&self) -> usize {
        1
    }

    fn is_random(&self) -> bool {
        true
    }

    fn follows(&self, schema: &Schema, hop: usize, r: usize) -> bool {
        self.nodes[schema.relations()[r].src][hop] > 0
    }

    fn by_relation(&self, wrap: &mut WrapHops) -> Option<Result<Box<dyn TypedSampler>, String>> {
        let draws = self.draws.iter().enumerate().map(|(r, draws)| wrap(r, draws.clone()));
        let draws: Result<Vec<_>, String> = draws.collect();
        Some(draws.map(|draws| Box::new(Self { draws, ..self.clone() }) as Box<dyn TypedSampler>))
    }

    fn sample(
        &self,
        request: &TypedRequest,
        workspace: &mut TypedWorkspace,
        seeds: TypedSeeds,
    ) -> Result<TypedSampled> {
        let &TypedRequest { graph, key, positions, .. } = request;
        if positions {
            return Err(cannot_name_edges());
        }
        let schema = graph.schema();
        let TypedWorkspace { relabel, hop: scratch, .. } = workspace;
        let mut batch = seeds.into_sampled(schema, 1, relabel)?;
        let TypedSampled { seeds, input_nodes: nodes, .. } = &mut batch;
        let set = |ids: &Vec<NodeId>| {
            let mut set = HashSet::new();
            memory::demand_in_set(&mut set, ids.len());
            set.extend(ids);
            set
        };
        let mut inside: Vec<HashSet<NodeId>> = nodes.iter().map(set).collect();
        let mut budgets: Budgets = vec![BTreeMap::new(); schema.num_types()];
        let mut from = vec![0; schema.num_types()];
        for hop in 0..self.num_hops {
            self.add_budgets((graph, seeds), (key, hop), (nodes, &from), &inside, scratch, &mut budgets)?;
            let key = key.hop(hop);
            from = nodes.iter().map(Vec::len).collect();
            for (t, budget) in budgets.iter_mut().enumerate() {
                for u in race(budget, self.nodes[t][hop], race_key(key, t), |u| u) {
                    budget.remove(&u);
                    memory::demand_in_set(&mut inside[t], 1);
                    inside[t].insert(u);
                    memory::demand_push(&mut nodes[t], u);
                }
            }
        }
        self.connect(request, scratch, relabel, &mut batch)?;
        Ok(batch)
    }
}

impl Hgt {
    /// Fills the block with the edges between the sampled nodes.
    fn connect(
        &self,
        request: &TypedRequest,
        scratch: &mut HopScratch,
        relabel: &mut [crate::Relabel],
        batch: &mut TypedSampled,
    ) -> Result<()> {
        let &TypedRequest { graph, key, transposed, .. } = request;
        let TypedSampled { seeds, input_nodes: nodes, blocks, .. } = batch;
        let (schema, nodes, block) = (graph.schema(), &*nodes, &mut blocks[0]);
        let (at, mut outside) = ((key, self.num_hops), Vec::new());
        for count in [&mut block.num_dst, &mut block.num_src] {
            count.iter_mut().zip(nodes).for_each(|(count, nodes)| *count = nodes.len());
        }
        for (r, &Relation { src, dst, .. }) in schema.relations().iter().enumerate() {
            let slice = &mut block.relations[r];
            self.draw((graph, r, seeds), at, &nodes[dst], scratch, slice)?;
            // nodes outside of the sample get larger numbers
            outside.clear();
            relabel[src].start(&nodes[src]);
            relabel[src].relabel(&mut slice.indices, &nodes[src], &mut outside);
            let mut kept = 0;
            let mut start = 0;
            for i in 1..slice.indptr.len() {
                let end = slice.indptr[i] as usize;
                for e in start..end {
                    if (slice.indices[e] as usize) < nodes[src].len() {
                        slice.indices[kept] = slice.indices[e];
                        kept += 1;
                    }
                }
                start = end;
                slice.indptr[i] = kept as u32;
            }
            slice.indices.truncate(kept);
        }
        block.fit(schema);
        if transposed {
            block.transpose(scratch.parallel);
        }
        Ok(())
    }
}
