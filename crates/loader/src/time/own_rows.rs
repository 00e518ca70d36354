//! The rows of a graph with times in memory.

use graphmill_core::{NodeId, Result};
use rayon::prelude::*;

use super::{
    TimeOptions, TimedGraph,
    relation::RelationDraws,
    source::{TimeDestinations, TimeDrawn, TimeHop, TimeScratch, TimeSource},
};

/// Least number of rows of a task.
const MIN_TASK_LEN: usize = 1024;

/// Rows of a graph in memory.
#[derive(Clone, Copy, Debug)]
pub struct OwnTimeRows<'a> {
    /// The graph.
    pub graph: &'a TimedGraph,
    /// Options of the draws.
    pub options: &'a TimeOptions,
    /// True to draw on all threads of the pool. Results do not depend on it.
    pub parallel: bool,
}

impl TimeSource for OwnTimeRows<'_> {
    fn draw(
        &self,
        hop: &TimeHop,
        of: TimeDestinations,
        scratch: &mut TimeScratch,
        drawn: TimeDrawn,
    ) -> Result<()> {
        let &TimeHop { relation, fanout, key, .. } = hop;
        let &Self { graph, options, parallel } = self;
        let draws = RelationDraws { graph, relation, fanout, key, options, parallel };
        draws.draw(of, &mut scratch.admitted, drawn)
    }

    fn last_admitted(&self, relations: &[usize], of: TimeDestinations, out: &mut Vec<i64>) -> Result<()> {
        let last = |(&v, &time): (&NodeId, &i64)| {
            let latest = self.options.time_bound.latest(time);
            let of_relation = |&r: &usize| {
                let (relation, index) = (self.graph.graph().relation(r), self.graph.time_index(r));
                let admitted = index.admitted(relation, v, None, latest);
                let place = admitted.end.checked_sub(1)?;
                Some(index.time(relation.indptr()[v as usize], place))
            };
            relations.iter().filter_map(of_relation).max().unwrap_or(i64::MIN)
        };
        if self.parallel {
            let rows = of.nodes.par_iter().zip(of.times).with_min_len(MIN_TASK_LEN);
            rows.map(last).collect_into_vec(out);
        } else {
            out.clear();
            out.extend(of.nodes.iter().zip(of.times).map(last));
        }
        Ok(())
    }
}
