//! Draws of one relation at one hop, from the rows of a graph in memory.

use std::ops::Range;

use graphmill_core::{
    NodeId, Result,
    keyed::{Stream, key},
};
use rayon::prelude::*;

use super::{
    TimeCarry, TimeOptions, TimedGraph,
    draw::draw,
    source::{TimeDestinations, TimeDrawn},
};
use crate::{prefetch::prefetch, sampler::too_many};

/// Number of destinations of a task.
const RUN: usize = 256;
/// Number of destinations between a prefetch and its use.
const PREFETCH_DISTANCE: usize = 8;

/// Draws of one relation at one hop.
pub(super) struct RelationDraws<'a> {
    pub(super) graph: &'a TimedGraph,
    /// Number of the relation.
    pub(super) relation: usize,
    /// Number of neighbours of a node.
    pub(super) fanout: usize,
    /// Key of the draws.
    pub(super) key: u64,
    pub(super) options: &'a TimeOptions,
    /// True to draw on all threads of the pool.
    pub(super) parallel: bool,
}

/// A run of destinations with its edges.
struct Run<'a> {
    rows: Range<usize>,
    sources: &'a mut [NodeId],
    positions: &'a mut [u64],
    /// Empty if they are not requested.
    times: &'a mut [i64],
}

impl RelationDraws<'_> {
    /// Draws the edges of all destinations. `admitted` is scratch.
    ///
    /// # Errors
    /// There are more edges than 32-bit positions can number.
    pub(super) fn draw(
        &self,
        of: TimeDestinations,
        admitted: &mut Vec<Range<u32>>,
        TimeDrawn { indptr, sources, positions, times }: TimeDrawn,
    ) -> Result<()> {
        self.admit(of, admitted);
        indptr.clear();
        indptr.push(0);
        let mut edges = 0u64;
        for range in admitted.iter() {
            edges += (range.len().min(self.fanout)) as u64;
            indptr.push(edges as u32);
        }
        if edges > u64::from(u32::MAX) {
            return Err(too_many(edges));
        }
        let edges = edges as usize;
        sources.resize(edges, 0);
        positions.resize(edges, 0);
        let times = match times {
            Some(times) => {
                times.resize(edges, 0);
                &mut times[..]
            }
            None => &mut [],
        };
        let whole = Run { rows: 0..of.nodes.len(), sources, positions, times };
        if !self.is_split(of) {
            self.draw_run(of, admitted, indptr, whole);
        } else {
            let runs = cut(whole, indptr);
            runs.into_par_iter().for_each(|run| self.draw_run(of, admitted, indptr, run));
        }
        Ok(())
    }

    /// Returns true if the destinations are drawn in several tasks.
    fn is_split(&self, of: TimeDestinations) -> bool {
        self.parallel && of.nodes.len() >= 2 * RUN && rayon::current_num_threads() > 1
    }

    /// Finds the admitted edges of all destinations.
    fn admit(&self, of: TimeDestinations, admitted: &mut Vec<Range<u32>>) {
        let (graph, index) =
            (self.graph.graph().relation(self.relation), self.graph.time_index(self.relation));
        let indptr = graph.indptr();
        admitted.resize(of.nodes.len(), 0..0);
        let find = |(first, out): (usize, &mut [Range<u32>])| {
            for (i, to) in out.iter_mut().enumerate() {
                let at = first * RUN + i;
                if let Some(&ahead) = of.nodes.get(at + 2 * PREFETCH_DISTANCE) {
                    prefetch(indptr, ahead as usize);
                }
                if let Some(&ahead) = of.nodes.get(at + PREFETCH_DISTANCE) {
                    index.prefetch_row(indptr[ahead as usize], indptr[ahead as usize + 1]);
                }
                let (oldest, latest) = self.options.admitted(of.times[at]);
                *to = index.admitted(graph, of.nodes[at], oldest, latest);
            }
        };
        if !self.is_split(of) {
            admitted.chunks_mut(RUN).enumerate().for_each(find);
        } else {
            admitted.par_chunks_mut(RUN).enumerate().for_each(find);
        }
    }

    /// Draws the edges of a run.
    fn draw_run(&self, of: TimeDestinations, admitted: &[Range<u32>], indptr: &[u32], run: Run) {
        let (graph, index) =
            (self.graph.graph().relation(self.relation), self.graph.time_index(self.relation));
        let Run { rows, sources, positions, times } = run;
        let (base, starts) = (indptr[rows.start], graph.indptr());
        let edges_of = |i: usize| (indptr[i] - base) as usize..(indptr[i + 1] - base) as usize;
        for i in rows.clone() {
            let edges = edges_of(i);
            if edges.is_empty() {
                continue;
            }
            let (v, range) = (of.nodes[i], &admitted[i]);
            let [start, end] = [starts[v as usize], starts[v as usize + 1]];
            let parts = [self.key, v.into(), range.start.into(), range.end.into()];
            let out = &mut sources[edges.clone()];
            draw(self.options, index.row(start, end), range.clone(), &mut Stream::new(key(&parts)), out);
            if !times.is_empty() {
                let times = &mut times[edges.clone()];
                match self.options.time_carry {
                    TimeCarry::Seed => times.fill(of.times[i]),
                    TimeCarry::Edge => {
                        times.iter_mut().zip(&*out).for_each(|(to, &place)| *to = index.time(start, place));
                    }
                }
            }
            for (place, position) in out.iter().zip(&mut positions[edges]) {
                *position = start + u64::from(*place);
            }
        }
        self.resolve(of, rows, edges_of, (sources, positions));
    }

    /// Replaces the places in `positions` by positions in the graph, and fills in the sources. The
    /// reads are at random addresses, so a pass over all edges prefetches them.
    fn resolve(
        &self,
        of: TimeDestinations,
        rows: Range<usize>,
        edges_of: impl Fn(usize) -> Range<usize>,
        (sources, positions): (&mut [NodeId], &mut [u64]),
    ) {
        let (graph, index) =
            (self.graph.graph().relation(self.relation), self.graph.time_index(self.relation));
        let (starts, indices) = (graph.indptr(), graph.indices());
        let Some(order) = index.order() else {
            for (e, source) in sources.iter_mut().enumerate() {
                if let Some(&ahead) = positions.get(e + 2 * PREFETCH_DISTANCE) {
                    prefetch(indices, ahead as usize);
                }
                *source = indices[positions[e] as usize];
            }
            return;
        };
        for i in rows {
            let start = starts[of.nodes[i] as usize];
            for e in edges_of(i) {
                if let Some(&ahead) = positions.get(e + 2 * PREFETCH_DISTANCE) {
                    prefetch(order, ahead as usize);
                }
                let [offset, source] = order[positions[e] as usize];
                (positions[e], sources[e]) = (start + u64::from(offset), source);
            }
        }
    }
}

/// Cuts a run into tasks.
fn cut<'a>(whole: Run<'a>, indptr: &[u32]) -> Vec<Run<'a>> {
    let Run { rows, mut sources, mut positions, mut times } = whole;
    let has_times = !times.is_empty();
    let mut runs = Vec::with_capacity(rows.len().div_ceil(RUN));
    for first in rows.clone().step_by(RUN) {
        let end = (first + RUN).min(rows.end);
        let edges = (indptr[end] - indptr[first]) as usize;
        let (of_run, rest) = sources.split_at_mut(edges);
        sources = rest;
        let (of_run_positions, rest) = positions.split_at_mut(edges);
        positions = rest;
        let (of_run_times, rest) = times.split_at_mut(if has_times { edges } else { 0 });
        times = rest;
        runs.push(Run {
            rows: first..end,
            sources: of_run,
            positions: of_run_positions,
            times: of_run_times,
        });
    }
    runs
}
