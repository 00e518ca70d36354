//! Walks along metapaths over the edges that the time of a walk's start admits.
//!
//! # Algorithm
//!
//! Each step of a walk is to a uniform one of the edges that the time of the row where the walk
//! began admits: a range of the ordered row, found by binary search. The walks and their random
//! numbers are those of [`MetapathWalk`] on the graph as of that time, whose rows are in the order
//! of their times. Rows of a node are one row only if their times are equal, because walks read
//! rows of other nodes.
//!
//! # Source
//!
//! That of [`MetapathWalk`]; times as in [`super::sampler`].
//!
//! # Cost
//!
//! As [`MetapathWalk`], with O(log d) for each step.

use graphmill_core::{Block, Graph, NodeId, ObjectPool, Result, keyed, memory, typed::Schema};

use super::{
    Admitted, TimeBatch, TimeDestinations, TimeDrawn, TimeHop, TimeIndex, TimeOptions, TimeRequest,
    TimeSampler, TimeSeeds, TimeSource, TimeWorkspace, TimedGraph,
    hops::fill_times,
    timed::{Made, TimedSampler, own_draws},
};
use crate::{
    prefetch::prefetch,
    sampler::{HopRequest, HopScratch, PathStep},
    typed::{MetapathWalk, TypedFanout, TypedOptions, cannot_name_edges},
};

/// Makes the sampler of a run on a graph with the relations of its neighbours.
pub(crate) fn make(with: &TypedOptions, graph: &TimedGraph) -> Made {
    let (schema, options) = (graph.schema(), own_draws(with)?);
    let walks = MetapathWalk::new(with, schema)?;
    let none = vec![0; with.fanout.all.len()];
    let of_relation = |fanout: TypedFanout, r: usize| {
        let numbers = if walks.path(r).is_some() { with.fanout.all.clone() } else { none.clone() };
        fanout.with(schema.relation_name(r), numbers)
    };
    let fanout = (0..schema.num_relations()).fold(TypedFanout::new(none.clone()), of_relation);
    let rows = TimeSampler::new(schema, &fanout, options)?.without_sharing();
    Ok(Box::new(WalksAtTimes { rows, walks, spare: ObjectPool::default() }))
}

/// Draws the nodes that walks visit most as of the times of the rows.
struct WalksAtTimes {
    rows: TimeSampler,
    walks: MetapathWalk,
    spare: ObjectPool<HopScratch>,
}

impl TimedSampler for WalksAtTimes {
    fn num_hops(&self) -> usize {
        self.rows.num_hops()
    }

    fn is_random(&self) -> bool {
        true
    }

    fn is_per_node(&self) -> bool {
        true
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
        self.rows.sample_from(&Walked { of: self, request }, request, workspace, seeds)
    }
}

/// Visits of a batch.
struct Walked<'a> {
    of: &'a WalksAtTimes,
    request: &'a TimeRequest<'a>,
}

/// Step over the edges of a relation that the times of the walks admit.
struct StepAtTime<'a> {
    graph: &'a Graph,
    index: &'a TimeIndex,
    options: &'a TimeOptions,
    /// Time of each destination.
    times: &'a [i64],
}

impl PathStep for StepAtTime<'_> {
    fn neighbor(&self, from: NodeId, v: NodeId, word: u64) -> Option<NodeId> {
        let (oldest, latest) = self.options.admitted(self.times[from as usize]);
        let admitted = self.index.admitted(self.graph, v, oldest, latest);
        if admitted.is_empty() {
            return None;
        }
        let place = admitted.start + keyed::scaled(word, u64::from(admitted.end - admitted.start)) as u32;
        let start = self.graph.indptr()[v as usize];
        Some(self.graph.indices()[self.index.position(start, place) as usize])
    }

    fn prefetch(&self, v: NodeId) {
        prefetch(self.graph.indptr(), v as usize);
        self.index.prefetch_last(v);
    }
}

impl TimeSource for Walked<'_> {
    fn draw(
        &self,
        hop: &TimeHop,
        of: TimeDestinations,
        _: &mut Vec<Admitted>,
        drawn: TimeDrawn,
    ) -> Result<()> {
        let (graph, options) = (self.request.graph, self.of.rows.options());
        let TimeDrawn { indptr, sources, weights, positions, times } = drawn;
        positions.clear();
        let dst = memory::demand_collect(0..of.nodes.len() as NodeId);
        let (node_type, path) = self.of.walks.path(hop.relation).unwrap_or_default();
        let step = |&r: &usize| StepAtTime {
            graph: graph.graph().relation(r),
            index: graph.time_index(r),
            options,
            times: of.times,
        };
        let path: Vec<StepAtTime> = path.iter().map(step).collect();
        let key = MetapathWalk::key(self.request.key, node_type);
        let request = HopRequest {
            aggregation: self.request.aggregation,
            names: Some(of.nodes),
            ..HopRequest::new(graph.graph().relation(hop.relation), hop.hop, &dst, key)
        };
        let mut block = Block {
            indptr: std::mem::take(indptr),
            indices: std::mem::take(sources),
            edge_weight: std::mem::take(weights),
            ..Block::default()
        };
        let walk = self.of.walks.walk();
        let done = self.of.spare.with(|scratch| walk.sample_paths(&request, &path, scratch, &mut block));
        (*indptr, *sources, *weights) = (block.indptr, block.indices, block.edge_weight);
        done?;
        if let Some(to) = times {
            fill_times(of.times, indptr, to);
        }
        Ok(())
    }

    /// Rows of different times admit different edges, as far as it is known.
    fn last_admitted(
        &self,
        _: &[usize],
        of: TimeDestinations,
        _: &mut [Vec<Admitted>],
        out: &mut Vec<i64>,
    ) -> Result<()> {
        memory::demand_copy(out, of.times);
        Ok(())
    }
}
