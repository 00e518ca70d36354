//! Draws of the samplers of one hop among the edges that the times of the rows admit.
//!
//! # Algorithm
//!
//! The edges that a destination's time admits are a range of its ordered row ([`super::index`]).
//! At each hop and for each relation, these ranges are copied into a graph of lists, one for each
//! destination, with the weights of the edges. The sampler of the relation is made for that graph,
//! with its tables if it has some, and draws from the lists under the ids of the destinations. So
//! its draws are those that it makes without times from the graph as of a seed's time, whose rows
//! are in the order of their times: the same probabilities, variance, and random numbers.
//!
//! # Source
//!
//! That of each sampler: the table of [`crate::sampler`].
//!
//! # Cost
//!
//! O(D log d) for the ranges, and O(admitted edges) for the lists of all destinations of a hop,
//! besides the draws. Tables for a prefix of a row cannot be those of the whole row, so draws by
//! alias tables build them for the lists, and draws by prefix sums add up the weights: both are
//! O(admitted edges). Draws as ranges sort the lists, O(edges log d).
//!
//! # Memory
//!
//! 4 bytes for each admitted edge of a hop's destinations, and 4 with weights, in each batch that
//! is being drawn.

use graphmill_core::{Block, Error, Graph, NodeId, ObjectPool, Result, memory, typed::Schema};

use super::{
    Admitted, OwnTimeRows, TimeBatch, TimeDestinations, TimeDrawn, TimeHop, TimeRequest, TimeSampler,
    TimeSeeds, TimeSource, TimeWorkspace, TimedGraph,
    relation::admit,
    timed::{Made, TimedSampler, own_draws},
};
use crate::{
    edge_values::edge_values,
    sampler::{HopRequest, HopScratch},
    typed::{RelationKinds, TypedOptions, cannot_name_edges},
};

/// Makes a sampler that draws by the row `name` of the table of samplers on every relation.
pub(crate) fn make(name: &str, with: &TypedOptions, graph: &TimedGraph) -> Made {
    Ok(Box::new(HopsAtTimes::new(RelationKinds::new(name, with, graph.graph())?, with, graph)?))
}

/// As [`make`], for samplers whose destinations share random numbers.
pub(crate) fn make_sharing(name: &str, with: &TypedOptions, graph: &TimedGraph) -> Made {
    let kinds = RelationKinds::new(name, with, graph.graph())?.sharing_numbers();
    Ok(Box::new(HopsAtTimes::new(kinds, with, graph)?))
}

/// Draws by every relation among the admitted edges.
struct HopsAtTimes {
    rows: TimeSampler,
    kinds: RelationKinds,
    is_random: bool,
    is_per_node: bool,
    spare: ObjectPool<HopScratch>,
}

impl HopsAtTimes {
    /// Creates the sampler, whose options are checked on rows without edges.
    fn new(kinds: RelationKinds, with: &TypedOptions, graph: &TimedGraph) -> Result<Self, String> {
        let rows = TimeSampler::new(graph.schema(), &with.fanout, own_draws(with)?)?;
        let (mut is_random, mut is_per_node) = (false, true);
        for (r, relation) in graph.graph().relations().iter().enumerate() {
            let weights = relation.edge_weight().map(|_| Vec::new().into());
            let none = Graph::of_sound_edges(vec![0].into(), Vec::new().into(), weights);
            let made = kinds.make(r, &none.map_err(|e| e.to_string())?);
            let name = || graph.schema().relation_name(r);
            if let Some(sampler) = made.map_err(|e| format!("relation {}: {e}", name()))? {
                is_random |= sampler.properties().is_random;
                is_per_node &= sampler.properties().is_per_node;
            }
        }
        Ok(Self { rows, kinds, is_random, is_per_node, spare: ObjectPool::default() })
    }
}

impl TimedSampler for HopsAtTimes {
    fn num_hops(&self) -> usize {
        self.rows.num_hops()
    }

    fn is_random(&self) -> bool {
        self.is_random
    }

    fn is_per_node(&self) -> bool {
        self.is_per_node
    }

    fn follows(&self, _: &Schema, hop: usize, r: usize) -> bool {
        self.rows.draws(hop, r)
    }

    fn sample(
        &self,
        request: &TimeRequest,
        workspace: &mut TimeWorkspace,
        seeds: TimeSeeds,
    ) -> Result<TimeBatch> {
        if request.positions {
            return Err(cannot_name_edges());
        }
        let own = OwnTimeRows { graph: request.graph, options: self.rows.options(), parallel: true };
        self.rows.sample_from(&DrawnFromLists { of: self, request, own }, request, workspace, seeds)
    }
}

/// Rows from which the samplers of a batch draw.
struct DrawnFromLists<'a> {
    of: &'a HopsAtTimes,
    request: &'a TimeRequest<'a>,
    own: OwnTimeRows<'a>,
}

impl TimeSource for DrawnFromLists<'_> {
    fn draw(
        &self,
        hop: &TimeHop,
        of: TimeDestinations,
        admitted: &mut Vec<Admitted>,
        drawn: TimeDrawn,
    ) -> Result<()> {
        let (r, kinds, schema) = (hop.relation, &self.of.kinds, self.own.graph.schema());
        admit(&self.own, r, of.from(admitted.len()), admitted);
        let lists = lists(self.own.graph, r, of.nodes, &admitted[..of.nodes.len()])?;
        let made = kinds.make(r, &lists);
        let sampler = made.map_err(|e| {
            Error::invalid(format!("draws at times by relation {}: {e}", schema.relation_name(r)))
        })?;
        let TimeDrawn { indptr, sources, weights, positions, times } = drawn;
        positions.clear();
        let Some(sampler) = sampler else {
            return Err(Error::invalid("no hop follows a relation that draws; name it in the fanout"));
        };
        let dst = memory::demand_collect(0..of.nodes.len() as NodeId);
        let key = kinds.key(self.request.key, schema, r);
        let request = HopRequest {
            aggregation: self.request.aggregation,
            names: Some(of.nodes),
            ..HopRequest::new(&lists, hop.hop, &dst, key)
        };
        let mut block = Block {
            indptr: std::mem::take(indptr),
            indices: std::mem::take(sources),
            edge_weight: std::mem::take(weights),
            ..Block::default()
        };
        let done = self.of.spare.with(|scratch| sampler.sample_hop(&request, scratch, &mut block));
        (*indptr, *sources, *weights) = (block.indptr, block.indices, block.edge_weight);
        done?;
        if let Some(to) = times {
            fill_times(of.times, indptr, to);
        }
        Ok(())
    }

    fn last_admitted(
        &self,
        relations: &[usize],
        of: TimeDestinations,
        admitted: &mut [Vec<Admitted>],
        out: &mut Vec<i64>,
    ) -> Result<()> {
        self.own.last_admitted(relations, of, admitted, out)
    }
}

/// Overwrites `to` by the time of each edge's destination, which bounds the next hop.
pub(super) fn fill_times(of_rows: &[i64], indptr: &[u32], to: &mut Vec<i64>) {
    to.clear();
    memory::demand(to, indptr[indptr.len() - 1] as usize);
    for (&time, ends) in of_rows.iter().zip(indptr.windows(2)) {
        to.resize(to.len() + (ends[1] - ends[0]) as usize, time);
    }
}

/// Graph of the admitted edges of `nodes` by relation `r` alone, in the order of their times: node
/// `i` has the list of `nodes[i]`, and neighbours keep their ids. Weights are those of the edges.
///
/// # Errors
/// The lists are no graph.
pub(super) fn lists(graph: &TimedGraph, r: usize, nodes: &[NodeId], admitted: &[Admitted]) -> Result<Graph> {
    let (index, relation) = (graph.time_index(r), graph.graph().relation(r));
    let mut ends = Vec::new();
    memory::demand(&mut ends, nodes.len() + 1);
    ends.push(0u64);
    for &[start, end] in admitted {
        ends.push(ends[ends.len() - 1] + u64::from(end - start));
    }
    let row = |v: NodeId| relation.indptr()[v as usize];
    let edges = |i: usize| {
        let (first, [start, end]) = (row(nodes[i]) as usize, admitted[i]);
        first + start as usize..first + end as usize
    };
    let indices: Vec<NodeId> = match index.order() {
        Some(order) => edge_values(&ends, &|i, out: &mut [NodeId]| {
            out.iter_mut().zip(&order[edges(i)]).for_each(|(to, edge)| *to = edge[1]);
        }),
        None => edge_values(&ends, &|i, out: &mut [NodeId]| {
            out.copy_from_slice(&relation.indices()[edges(i)]);
        }),
    };
    let weights = relation.edge_weight().map(|weights| {
        let fill = |i: usize, out: &mut [f32]| {
            let position = |place| index.position(row(nodes[i]), place) as usize;
            out.iter_mut().zip(admitted[i][0]..).for_each(|(to, place)| *to = weights[position(place)]);
        };
        edge_values(&ends, &fill).into()
    });
    Graph::of_sound_edges(ends.into(), indices.into(), weights)
}
