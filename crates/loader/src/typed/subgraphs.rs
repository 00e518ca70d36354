//! Minibatches of subgraphs over all node types (GraphSAINT): one block for all layers, with every
//! node of the task's type a seed.
//!
//! # Algorithm
//!
//! The samplers of one type draw nodes from the union of all relations, whose nodes have global
//! ids. The edges among them are divided by relation, and make one block. `saint-node` draws among
//! the nodes of all types, walks of `saint-rw` begin at training nodes.
//!
//! The counts `C_v` of nodes and `C_uv` of edges over subgraphs are those of the union. An edge of
//! relation `r` has weight `C_v / C_uv` in a sum over the neighbours by `r`; for a mean it is
//! divided by their number in the whole graph, or with the estimator `ratio` by the sum of the
//! weights in the subgraph. So each relation has its own normalisation, as its layers have their
//! own sums. The loss of a training node is divided by the probability `C_v / N`. Nodes of the
//! task's type that do not train carry messages, and have loss weight 0.
//!
//! # Source
//!
//! Zeng et al., *GraphSAINT: graph sampling based inductive learning method*, ICLR 2020, section
//! 3.2 and algorithm 1.
//!
//! # Cost
//!
//! That of the sampler of one type, and a search in the rows of a node for each relation.
//!
//! # Memory
//!
//! The union: 4 bytes per edge and 8 per node; with counts 4 more of each.
//!
//! # Deviations
//!
//! The paper has one node type. Layers with attention compute their own weights, so that only their
//! losses are normalised. Subgraphs are not inductive: the samplers draw nodes that do not train.

use graphmill_core::{
    Error, Graph, NodeId, Result, memory,
    progress::Quiet,
    typed::{Relation, Schema, TypedGraph},
};

use super::{
    TypedOptions, TypedRequest, TypedSampled, TypedSampler, TypedSeeds, TypedWorkspace,
    union_buffers::UnionBuffers,
};
use crate::{
    sampler::{NodeSets, Source, SubgraphTraining, Subgraphs, find_subgraphs},
    subgraph::SubgraphContext,
};

/// Nodes from which a sampler of one type may start.
#[derive(Clone, Copy)]
enum Roots {
    /// Those of all types.
    All,
    /// The training nodes.
    Training,
}

/// Makes the node sampler of a run.
pub(super) fn node(with: &TypedOptions, graph: &TypedGraph) -> Result<Box<dyn TypedSampler>, String> {
    Ok(Box::new(TypedSubgraphs::new(("saint-node", Roots::All), with, graph)?))
}

/// Makes the edge sampler of a run.
pub(super) fn edge(with: &TypedOptions, graph: &TypedGraph) -> Result<Box<dyn TypedSampler>, String> {
    Ok(Box::new(TypedSubgraphs::new(("saint-edge", Roots::All), with, graph)?))
}

/// Makes the walk sampler of a run.
pub(super) fn walk(with: &TypedOptions, graph: &TypedGraph) -> Result<Box<dyn TypedSampler>, String> {
    Ok(Box::new(TypedSubgraphs::new(("saint-rw", Roots::Training), with, graph)?))
}

/// Draws subgraphs over all node types.
pub struct TypedSubgraphs {
    subgraphs: Subgraphs,
    /// All relations over global ids.
    union: Graph,
    /// Node type of the seeds.
    node_type: usize,
    num_hops: usize,
}

impl TypedSubgraphs {
    /// Creates a sampler of subgraphs of `graph`, by the sampler `name` of one type. Counts for the
    /// normalisation as [`Subgraphs::new`] does.
    fn new((name, roots): (&str, Roots), with: &TypedOptions, graph: &TypedGraph) -> Result<Self, String> {
        if let Some((name, _)) = with.fanout.by_name.first() {
            return Err(format!(
                "fanout of '{name}': subgraphs have all edges among their nodes; use --layers for the number \
                 of layers"
            ));
        }
        let (schema, (node_type, train)) = (graph.schema(), &with.train);
        let global: Vec<NodeId> = train.iter().map(|&v| schema.global(*node_type, v)).collect();
        let union = graph.union().map_err(|e| e.to_string())?;
        let make = find_subgraphs(name).map_err(|e| e.to_string())?;
        let roots: Vec<NodeId> = match roots {
            Roots::All => (0..union.num_nodes() as NodeId).collect(),
            Roots::Training => global.clone(),
        };
        let training = SubgraphTraining { inductive: false, ..with.own.get() };
        let context =
            SubgraphContext { budget: with.budget, own: &with.own, partition: None, progress: &Quiet };
        let subgraphs = Subgraphs::new(&Source::new(&union, &global), &training, with.seed, |union, _| {
            make(union, &roots, &context)
        })?;
        Ok(Self { subgraphs, union, node_type: *node_type, num_hops: with.fanout.all.len() })
    }

    /// Divides the edges of the buffers by relation, and weights them. `first` has the first node
    /// of each type among those of the buffers, and their number.
    fn divide(
        &self,
        request: &TypedRequest,
        first: &[usize],
        buffers: &mut UnionBuffers,
        known: &[f32],
        batch: &mut TypedSampled,
    ) {
        let UnionBuffers { nodes, block: whole, positions, rows, stands_for, .. } = buffers;
        let TypedSampled { blocks, input_nodes, .. } = batch;
        let block = &mut blocks[0];
        rows.clear();
        let starts = whole.indptr.iter().zip(nodes.iter());
        let starts = starts.map(|(&e, &v)| (e as usize, self.union.indptr()[v as usize]));
        memory::demand_extend(rows, starts);
        for (r, &Relation { src, dst, .. }) in request.graph.schema().relations().iter().enumerate() {
            let (relation, slice) = (request.graph.relation(r), &mut block.relations[r]);
            stands_for.clear();
            memory::demand(&mut slice.indptr, input_nodes[dst].len() + 1);
            slice.indptr.push(0);
            for (i, &v) in (first[dst]..).zip(&input_nodes[dst]) {
                let (next, start) = rows[i];
                let end = start + relation.in_degree(v) as u64;
                // the relations of a row follow one another
                let row = &positions[next..whole.indptr[i + 1] as usize];
                let row = &row[..row.partition_point(|&e| e < end)];
                let edges = next..next + row.len();
                let sources = whole.indices[edges.clone()].iter();
                memory::demand_extend(&mut slice.indices, sources.map(|&u| u - first[src] as NodeId));
                slice.indptr.push(slice.indices.len() as u32);
                if request.positions {
                    let of_relation = relation.indptr()[v as usize];
                    let places = row.iter().map(|e| of_relation + (e - start));
                    memory::demand_extend(&mut block.positions[r], places);
                }
                if !known.is_empty() {
                    memory::demand_append(stands_for, &known[edges.clone()]);
                }
                rows[i] = (edges.end, end);
            }
            let nodes = &input_nodes[dst];
            self.subgraphs.weigh_edges(relation, nodes, request.aggregation, stands_for, slice);
        }
    }
}

impl TypedSampler for TypedSubgraphs {
    fn num_hops(&self) -> usize {
        self.num_hops
    }

    fn num_blocks(&self) -> usize {
        1
    }

    fn is_random(&self) -> bool {
        true
    }

    fn bytes(&self) -> u64 {
        let union = 8 * self.union.indptr().len() + 4 * self.union.num_edges();
        union as u64 + self.subgraphs.bytes()
    }

    fn subgraphs(&self) -> Option<u64> {
        Some(self.subgraphs.epoch())
    }

    fn follows(&self, _: &Schema, _: usize, _: usize) -> bool {
        true
    }

    fn sample(
        &self,
        request: &TypedRequest,
        workspace: &mut TypedWorkspace,
        seeds: TypedSeeds,
    ) -> Result<TypedSampled> {
        if seeds.links.is_some() || !seeds.excluded.is_empty() {
            let message = "subgraphs choose their own seeds, so they cannot start from the ends of edges; \
                           use --sampler neighbor";
            return Err(Error::invalid(message));
        }
        let &TypedRequest { graph, key, transposed, .. } = request;
        let (schema, TypedWorkspace { relabel, hop, subgraphs: buffers, .. }) = (graph.schema(), workspace);
        let mut batch = seeds.into_sampled(schema, 1, relabel)?;
        let mut of_union = std::mem::take(&mut buffers.of_union);
        let UnionBuffers { nodes, block: whole, positions, .. } = buffers;
        positions.clear();
        let see = |e| memory::demand_push(positions, e);
        let known = self.subgraphs.induced(&self.union, key, &mut of_union, (&mut *nodes, whole), see)?;
        // the nodes of a type are consecutive
        let first = |t: usize| nodes.partition_point(|&v| v < schema.range(t).start);
        let mut first: Vec<usize> = (0..schema.num_types()).map(first).collect();
        first.push(nodes.len());
        for (t, ids) in batch.input_nodes.iter_mut().enumerate() {
            ids.clear();
            let of_type = nodes[first[t]..first[t + 1]].iter();
            memory::demand_extend(ids, of_type.map(|v| v - schema.range(t).start));
            (batch.blocks[0].num_dst[t], batch.blocks[0].num_src[t]) = (ids.len(), ids.len());
        }
        self.divide(request, &first, buffers, known, &mut batch);
        batch.blocks[0].fit(schema);
        if transposed {
            batch.blocks[0].transpose(hop.parallel);
        }
        batch.seeds.nodes.iter_mut().for_each(Vec::clear);
        let of_type = &batch.input_nodes[self.node_type];
        memory::demand_append(&mut batch.seeds.nodes[self.node_type], of_type);
        let seeds = &buffers.nodes[first[self.node_type]..first[self.node_type + 1]];
        self.subgraphs.weigh_losses(seeds, &mut batch.loss_weight);
        buffers.of_union = of_union;
        Ok(batch)
    }
}

#[cfg(test)]
mod tests;
