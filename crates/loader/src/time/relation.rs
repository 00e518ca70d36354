//! Draws of one relation at one hop, from the rows of a graph in memory.
//!
//! Memory latency dominates sampling, so the loop over destinations is software-pipelined over
//! groups, as that of [`crate::sampler::neighbor`]: it draws the places of one group and prefetches
//! their cache lines, and then replaces the places of the previous group by positions and sources.

use std::{ops::Range, sync::Arc};

use graphmill_core::{
    Graph, NodeId, Result,
    keyed::{Stream, key},
    memory,
};
use rayon::prelude::*;

use super::{
    TimeCarry, TimeDraw, TimeIndex, TimeOptions,
    decay::Decay,
    draw::{Marks, sort, uniform},
    recency::{Aged, Candidates, is_short},
    source::{Admitted, OwnTimeRows, TimeDestinations, TimeDrawn, TimeHop},
};
use crate::{prefetch::prefetch, sampler::too_many};

/// Number of destinations of a task.
const RUN: usize = 256;
/// Number of destinations between a prefetch and its use when bounds are searched.
const PREFETCH_DISTANCE: usize = 16;
/// Number of destinations whose reads are in flight together.
const GROUP: usize = 16;
/// Maximum fanout at which whole rows are written without testing their length.
const MAX_FIXED_WIDTH: usize = 32;
/// Number of places in a cache line.
const LINE: usize = 8;
/// Maximum number of cache lines of a whole row to prefetch.
const MAX_LINES: usize = 8;

/// Finds the edges of relation `r` that destinations admit, and appends them to `admitted`.
pub(super) fn admit(from: &OwnTimeRows, r: usize, of: TimeDestinations, admitted: &mut Vec<Admitted>) {
    let &OwnTimeRows { graph, options, parallel } = from;
    let (index, graph) = (graph.time_index(r), graph.graph().relation(r));
    let find = |(first, out): (usize, &mut [Admitted])| {
        for (i, to) in out.iter_mut().enumerate() {
            let at = first * RUN + i;
            if let Some(&ahead) = of.nodes.get(at + 2 * PREFETCH_DISTANCE) {
                prefetch(graph.indptr(), ahead as usize);
                index.prefetch_last(ahead);
            }
            if let Some(&ahead) = of.nodes.get(at + PREFETCH_DISTANCE) {
                let (oldest, latest) = options.admitted(of.times[at + PREFETCH_DISTANCE]);
                index.prefetch_search(graph, ahead, oldest.is_some(), latest);
            }
            let (oldest, latest) = options.admitted(of.times[at]);
            let range = index.admitted(graph, of.nodes[at], oldest, latest);
            *to = [range.start, range.end];
        }
    };
    let before = admitted.len();
    memory::demand_len(admitted, before + of.nodes.len(), [0; 2]);
    let out = &mut admitted[before..];
    if !is_split(parallel, of) {
        out.chunks_mut(RUN).enumerate().for_each(find);
    } else {
        out.par_chunks_mut(RUN).enumerate().for_each(find);
    }
}

/// Returns true if destinations are divided among threads.
fn is_split(parallel: bool, of: TimeDestinations) -> bool {
    parallel && of.nodes.len() >= 2 * RUN && rayon::current_num_threads() > 1
}

/// Draws of one relation at one hop.
pub(super) struct RelationDraws<'a> {
    graph: &'a Graph,
    index: &'a TimeIndex,
    /// Tables of the rows, for draws by recency.
    decay: Option<Arc<Decay>>,
    /// Number of neighbours of a node.
    fanout: usize,
    /// Key of the draws.
    key: u64,
    options: &'a TimeOptions,
    /// True to draw on all threads of the pool.
    parallel: bool,
}

/// Scratch of the draws of a run.
struct DrawScratch {
    marks: Marks,
    /// Candidates of each destination of a group; none unless draws are by recency.
    candidates: Vec<Candidates>,
}

/// A run of destinations with its edges.
struct Run<'a> {
    rows: Range<usize>,
    sources: &'a mut [NodeId],
    positions: &'a mut [u64],
    /// Empty if they are not requested.
    times: &'a mut [i64],
}

impl<'a> RelationDraws<'a> {
    /// Creates the draws of a hop from rows in memory or in mapped files.
    ///
    /// # Errors
    /// The disk has too little space for tables in files.
    pub(super) fn new(from: &OwnTimeRows<'a>, hop: &TimeHop) -> Result<Self> {
        let &TimeHop { relation: r, fanout, key, .. } = hop;
        let &OwnTimeRows { graph, options, parallel } = from;
        let (index, graph) = (graph.time_index(r), graph.graph().relation(r));
        let decay = match options.time_draw {
            TimeDraw::Recency => index.decay(graph, options.time_half_life)?,
            TimeDraw::Uniform | TimeDraw::Last => None,
        };
        Ok(Self { graph, index, decay, fanout, key, options, parallel })
    }

    /// Draws among the admitted edges of all destinations.
    ///
    /// # Errors
    /// There are more edges than 32-bit positions can number.
    pub(super) fn draw(
        &self,
        of: TimeDestinations,
        admitted: &[Admitted],
        TimeDrawn { indptr, sources, positions, times, .. }: TimeDrawn,
    ) -> Result<()> {
        memory::demand_len(indptr, of.nodes.len() + 1, 0);
        indptr[0] = 0;
        let mut edges = 0u64;
        for ([start, end], to) in admitted.iter().zip(&mut indptr[1..]) {
            edges += ((end - start) as usize).min(self.fanout) as u64;
            *to = edges as u32;
        }
        if edges > u64::from(u32::MAX) {
            return Err(too_many(edges));
        }
        let edges = edges as usize;
        memory::demand_len(sources, edges, 0);
        memory::demand_len(positions, edges, 0);
        let times = match times {
            Some(times) => {
                memory::demand_len(times, edges, 0);
                &mut times[..]
            }
            None => &mut [],
        };
        let whole = Run { rows: 0..of.nodes.len(), sources, positions, times };
        if !is_split(self.parallel, of) {
            self.draw_run(of, admitted, indptr, whole);
        } else {
            let runs = cut(whole, indptr);
            runs.into_par_iter().for_each(|run| self.draw_run(of, admitted, indptr, run));
        }
        Ok(())
    }

    /// Draws the edges of a run. Between the two stages `sources` holds places, and `positions` the
    /// positions of the places.
    fn draw_run(&self, of: TimeDestinations, admitted: &[Admitted], indptr: &[u32], mut run: Run) {
        let (rows, starts, base) = (run.rows.clone(), self.graph.indptr(), indptr[run.rows.start]);
        let at = |i: usize| (indptr[i] - base) as usize;
        let takes_last = self.options.time_draw == TimeDraw::Last;
        let group = if self.decay.is_some() { GROUP } else { 0 };
        let candidates = (0..group).map(|_| Candidates::new()).collect();
        let mut scratch = DrawScratch { marks: Marks::new(), candidates };
        let (mut whole, mut drawn) = ([0; GROUP], [0; GROUP]);
        for first in (rows.start..rows.end + GROUP).step_by(GROUP) {
            // Partition the rows into whole and drawn ones without a branch, which would be
            // unpredictable.
            let (mut wholes, mut draws) = (0, 0);
            let of_group = admitted.iter().enumerate().take((first + GROUP).min(rows.end)).skip(first);
            for (i, [start, end]) in of_group {
                if let Some(&ahead) = of.nodes.get(i + GROUP) {
                    prefetch(starts, ahead as usize);
                }
                let is_whole = takes_last | ((end - start) as usize <= self.fanout);
                whole[wholes] = i;
                wholes += usize::from(is_whole);
                drawn[draws] = i;
                draws += usize::from(!is_whole);
            }
            if let Some(decay) = &self.decay {
                self.prefetch_tables(decay, of, admitted, (first + GROUP)..rows.end);
            }
            for &i in &whole[..wholes] {
                self.take_last(starts[of.nodes[i] as usize], admitted[i][1], [at(i), at(i + 1)], &mut run);
            }
            self.draw_rows(&drawn[..draws], of, admitted, at, &mut scratch, &mut run);
            let done = first.saturating_sub(GROUP).max(rows.start)..first.min(rows.end);
            self.resolve(at(done.start)..at(done.end), &mut run);
            if !run.times.is_empty() && self.options.time_carry == TimeCarry::Seed {
                done.for_each(|i| run.times[at(i)..at(i + 1)].fill(of.times[i]));
            }
        }
    }

    /// Takes the last admitted edges of a row, which begins at `start` in the graph.
    #[inline]
    fn take_last(&self, start: u64, admitted_end: u32, [from, to]: [usize; 2], run: &mut Run) {
        let first = admitted_end - (to - from) as u32;
        // The same width for every row: following rows overwrite the excess.
        let width =
            if self.fanout <= MAX_FIXED_WIDTH { (from + self.fanout).min(run.sources.len()) } else { to };
        let edges = run.sources[from..width].iter_mut().zip(&mut run.positions[from..width]);
        for ((source, position), i) in edges.zip(0..) {
            (*source, *position) = (first.wrapping_add(i), start + u64::from(first) + u64::from(i));
        }
        for e in (0..to - from + LINE - 1).step_by(LINE).take(MAX_LINES) {
            self.prefetch_edge(start + u64::from(first) + e.min(to - from) as u64);
        }
    }

    /// Draws the edges of the destinations of a group that admit more than the fanout.
    #[inline]
    fn draw_rows(
        &self,
        drawn: &[usize],
        of: TimeDestinations,
        admitted: &[Admitted],
        at: impl Fn(usize) -> usize,
        DrawScratch { marks, candidates }: &mut DrawScratch,
        run: &mut Run,
    ) {
        let stream = |i: usize| {
            let [start, end] = admitted[i];
            Stream::new(key(&[self.key, of.nodes[i].into(), start.into(), end.into()]))
        };
        // the reads of all rows overlap in each step
        for (&i, candidates) in drawn.iter().zip(&mut *candidates) {
            candidates.start(&self.aged(of.nodes[i]), admitted[i], stream(i), self.fanout);
        }
        for (&i, candidates) in drawn.iter().zip(&mut *candidates) {
            candidates.look_up(&self.aged(of.nodes[i]));
        }
        for (n, &i) in drawn.iter().enumerate() {
            let places = &mut run.sources[at(i)..at(i + 1)];
            match candidates.get_mut(n) {
                Some(candidates) => {
                    candidates.finish(&self.aged(of.nodes[i]), admitted[i], marks, places);
                    sort(places);
                }
                None => uniform(admitted[i], &mut stream(i), marks, places),
            }
            let start = self.graph.indptr()[of.nodes[i] as usize];
            for (&place, position) in places.iter().zip(&mut run.positions[at(i)..at(i + 1)]) {
                *position = start + u64::from(place);
                self.prefetch_edge(*position);
            }
        }
    }

    /// Prefetches the tables of the first [`GROUP`] of `ahead` destinations, or their times if they
    /// admit few edges, and the bounds of the tables of the next ones.
    #[inline]
    fn prefetch_tables(
        &self,
        decay: &Decay,
        of: TimeDestinations,
        admitted: &[Admitted],
        ahead: Range<usize>,
    ) {
        for i in ahead.clone().take(GROUP) {
            let ([start, end], v) = (admitted[i], of.nodes[i] as usize);
            let edges = (end - start) as usize;
            if !is_short(edges, self.fanout) {
                decay.prefetch_row(v);
            } else if edges > self.fanout {
                let first = self.graph.indptr()[v] + u64::from(start);
                for e in (0..edges + LINE - 1).step_by(LINE).take(MAX_LINES) {
                    self.index.prefetch_time(first + e.min(edges - 1) as u64);
                }
            }
        }
        ahead.skip(GROUP).take(GROUP).for_each(|i| decay.prefetch_ends(of.nodes[i] as usize));
    }

    /// Times of row `v` with its table.
    #[inline]
    fn aged(&self, v: NodeId) -> Aged<'_> {
        let [start, end] = [self.graph.indptr()[v as usize], self.graph.indptr()[v as usize + 1]];
        let table = self.decay.as_ref().map_or(&[][..], |decay| decay.row(v as usize));
        Aged::new(self.options.time_half_life, self.index.row(start, end), table)
    }

    /// Prefetches what [`RelationDraws::resolve`] reads at a position.
    #[inline]
    fn prefetch_edge(&self, position: u64) {
        match self.index.order() {
            Some(order) => prefetch(order, position as usize),
            None => prefetch(self.graph.indices(), position as usize),
        }
    }

    /// Replaces the places of edges by positions in the graph and sources, and fills in the times
    /// of the rows that they lead to, if those are the edges' own.
    fn resolve(&self, edges: Range<usize>, run: &mut Run) {
        let positions = &mut run.positions[edges.clone()];
        if !run.times.is_empty() && self.options.time_carry == TimeCarry::Edge {
            let times = run.times[edges.clone()].iter_mut().zip(&*positions);
            times.for_each(|(to, &position)| *to = self.index.time_at(position));
        }
        let edges = run.sources[edges].iter_mut().zip(positions);
        let Some(order) = self.index.order() else {
            let indices = self.graph.indices();
            return edges.for_each(|(source, position)| *source = indices[*position as usize]);
        };
        for (source, position) in edges {
            let [offset, from] = order[*position as usize];
            *position = *position - u64::from(*source) + u64::from(offset);
            *source = from;
        }
    }
}

/// Cuts a run into tasks.
fn cut<'a>(whole: Run<'a>, indptr: &[u32]) -> Vec<Run<'a>> {
    let Run { rows, mut sources, mut positions, mut times } = whole;
    let has_times = !times.is_empty();
    let mut runs = Vec::new();
    memory::demand(&mut runs, rows.len().div_ceil(RUN));
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
