//! k-hop uniform neighbour sampling without replacement.
//!
//! # Algorithm
//!
//! A node whose degree `d` is at most the fanout `k` takes all its neighbours, in order. Otherwise
//! `k` distinct positions of `0..d` are drawn by Floyd's algorithm: for `j` from `d - k` to `d -
//! 1`, draw `t` of `0..=j` and take `t`, or `j` if `t` is taken already. Every `k`-subset is
//! equally likely. The draws of a node are a function of (seed, epoch, batch, hop, node) alone.
//!
//! Memory latency dominates sampling, so the loop is software-pipelined over groups of nodes: it
//! draws the offsets of one group into the output and prefetches their cache lines, and then
//! replaces the offsets of the previous group by neighbours.
//!
//! A small table of marks, one per offset up to 4096, records which offsets are taken. Larger rows
//! share marks: two draws with the same mark may or may not be equal, which is rare, and then
//! Floyd's choice is repeated exactly on the row.
//!
//! Of a row with edges that the batch excludes, the numbers of the remaining ones are drawn in the
//! same way and mapped to their places (`neighbor/redraw.rs`), so that the draws are those from the
//! graph without the excluded edges.
//!
//! # Source
//!
//! Hamilton, Ying and Leskovec, *Inductive representation learning on large graphs* (GraphSAGE),
//! NeurIPS 2017; Bentley and Floyd, *Programming pearls: a sample of brilliance*, CACM 30(9), 1987.
//!
//! # Cost
//!
//! O(k) draws per node for any degree. A node with excluded edges takes a search for each in its
//! row besides, and is drawn twice.
//!
//! # Deviations
//!
//! GNNLab's Fisher-Yates variant permutes the adjacency in place, which is hidden sampler state;
//! this one only reads the graph.

mod offsets;
mod redraw;

use std::sync::Mutex;

use graphmill_core::{Block, Graph, NodeId, Result, keyed, memory};
use rayon::prelude::*;

pub use self::offsets::{NeighborRows, draw_offsets};
use super::{
    EdgeSampler, HopProperties, HopRequest, HopSampler, HopScratch, NeighborAccess, parts::too_many,
};
use crate::{Fanout, prefetch::prefetch};

/// Number of nodes whose reads are in flight together.
const GROUP: usize = 16;
/// Number of destinations or edges of about one task; a call with fewer than two stays on one
/// thread.
const MIN_TASK_LEN: usize = 4096;
/// Number of destinations whose edges one task counts.
const COUNT: usize = 1 << 14;
/// Maximum fanout at which whole rows are written without testing their length.
const MAX_FIXED_WIDTH: usize = 32;
/// Number of offsets with an exclusive mark.
pub(crate) const MARKED: usize = 4096;
/// Maximum fanout at which equal draws are found by a scan of the row instead of a hash table.
const MAX_SCAN: usize = 256;

/// Uniform neighbour sampling.
#[derive(Clone, Debug)]
pub struct Neighbor {
    /// Number of neighbours per hop, from the seeds outward; `usize::MAX` takes all.
    fanout: Vec<usize>,
}

impl Neighbor {
    /// Draws `fanout[h]` neighbours per node at hop `h` from the seeds; -1 takes all.
    ///
    /// # Errors
    /// There are no hops or more than 64, or a fanout is neither -1 nor positive.
    pub fn new(fanout: impl Into<Fanout>) -> Result<Self, String> {
        Ok(Self { fanout: fanout.into().bounds()? })
    }
}

impl HopSampler for Neighbor {
    fn num_layers(&self) -> usize {
        self.fanout.len()
    }

    fn properties(&self) -> HopProperties {
        HopProperties {
            is_random: self.fanout.iter().any(|&k| k != usize::MAX),
            is_per_node: true,
            access: NeighborAccess::OwnList,
            reads_edge_weights: false,
            leaves_out: true,
        }
    }

    fn sample_hop(&self, request: &HopRequest, scratch: &mut HopScratch, block: &mut Block) -> Result<()> {
        let &HopRequest { graph, hop, dst, .. } = request;
        let Block { indptr, indices, .. } = block;
        let fanout = self.fanout[hop];
        let key = request.hop_key();
        scratch.fit(rayon::current_num_threads());
        let edges = count(graph, fanout, dst, scratch, indptr)?;
        memory::demand_len(indices, edges, 0);
        let draws = Draws { rows: NeighborRows::of(request), fanout, key };
        if scratch.parallel && dst.len().max(edges) >= 2 * MIN_TASK_LEN && rayon::current_num_threads() > 1 {
            draws.spread(dst, indptr, indices, &scratch.tables);
        } else {
            draws.draw(dst, indptr, indices, &scratch.tables);
        }
        if let Some(excluded) = request.excluded.filter(|excluded| !excluded.is_empty()) {
            draws.redraw::<true>(excluded, dst, (indptr, indices), &scratch.tables);
        }
        Ok(())
    }

    fn by_edges(&self) -> Option<&dyn EdgeSampler> {
        Some(self)
    }
}

/// Writes the position of each destination's first edge to `indptr` and returns the number of
/// edges.
fn count(
    graph: &Graph,
    fanout: usize,
    dst: &[NodeId],
    scratch: &mut HopScratch,
    indptr: &mut Vec<u32>,
) -> Result<usize> {
    let rows = graph.indptr();
    // The ends of a run of destinations are relative to the run's start. If they overflow, the sum
    // does so too and is rejected.
    let run = |dst: &[NodeId], ends: &mut [u32]| {
        let (mut edges, mut longest) = (0u64, 0);
        for (i, (&v, end)) in dst.iter().zip(ends).enumerate() {
            if let Some(&ahead) = dst.get(i + 2 * GROUP) {
                prefetch(rows, ahead as usize);
            }
            let degree = rows[v as usize + 1] - rows[v as usize];
            longest = degree.max(longest);
            edges += degree.min(fanout as u64);
            *end = edges as u32;
        }
        // a row's offsets have 32 bits as well
        if longest > u64::from(u32::MAX) { longest } else { edges }
    };
    memory::demand_len(indptr, dst.len() + 1, 0);
    indptr[0] = 0;
    let ends = &mut indptr[1..];
    let edges = if scratch.parallel && dst.len() >= 2 * COUNT {
        let before = &mut scratch.counts;
        before.clear();
        memory::demand_len(before, dst.len().div_ceil(COUNT), 0);
        let runs = dst.par_chunks(COUNT).zip(ends.par_chunks_mut(COUNT)).zip(before.par_iter_mut());
        runs.for_each(|((dst, ends), edges)| *edges = run(dst, ends));
        let mut sum = 0;
        for edges in before.iter_mut() {
            sum += std::mem::replace(edges, sum);
        }
        let runs = ends.par_chunks_mut(COUNT).zip(&scratch.counts).skip(1);
        runs.for_each(|(ends, &before)| {
            ends.iter_mut().for_each(|end| *end = end.wrapping_add(before as u32))
        });
        sum
    } else {
        run(dst, ends)
    };
    if edges > u64::from(u32::MAX) {
        return Err(too_many(edges));
    }
    Ok(edges as usize)
}

/// Draws of one hop.
struct Draws<'a> {
    rows: NeighborRows<'a>,
    fanout: usize,
    key: u64,
}

impl Draws<'_> {
    /// Id of node `v` by which its draws are keyed.
    #[inline(always)]
    fn name(&self, v: NodeId) -> NodeId {
        self.rows.names.map_or(v, |names| names[v as usize])
    }

    /// Random numbers of node `v`.
    #[inline(always)]
    fn stream(&self, v: NodeId) -> keyed::Stream {
        let node = u64::from(self.name(v)).wrapping_mul(keyed::GOLDEN);
        keyed::Stream::new(keyed::mix(self.key ^ node))
    }

    /// As [`Draws::draw`], split into tasks of about the same number of edges.
    fn spread(&self, dst: &[NodeId], indptr: &[u32], out: &mut [NodeId], tables: &[Mutex<Vec<u32>>]) {
        // a destination costs about as much as two edges
        let cost = |i: usize| (indptr[i] - indptr[0]) as usize + 2 * i;
        let all = cost(dst.len());
        if all <= 4 * MIN_TASK_LEN || dst.len() == 1 {
            return self.draw(dst, indptr, out, tables);
        }
        let (mut low, mut high) = (1, dst.len() - 1);
        while low < high {
            let middle = low.midpoint(high);
            if cost(middle) < all / 2 { low = middle + 1 } else { high = middle }
        }
        let (dst, out) = (dst.split_at(low), out.split_at_mut((indptr[low] - indptr[0]) as usize));
        rayon::join(
            || self.spread(dst.0, &indptr[..=low], out.0, tables),
            || self.spread(dst.1, &indptr[low..], out.1, tables),
        );
    }

    /// Writes the drawn neighbours of `dst` to `out`; those of `dst[i]` are at `indptr[i] -
    /// indptr[0] .. indptr[i + 1] - indptr[0]`.
    fn draw(&self, dst: &[NodeId], indptr: &[u32], out: &mut [NodeId], tables: &[Mutex<Vec<u32>>]) {
        if self.fanout == usize::MAX {
            self.copy(dst, indptr, out);
        } else if self.rows.graph.num_edges() as u64 <= 1 << 32 {
            self.pipeline::<true, true>(dst, indptr, out, tables);
        } else {
            self.pipeline::<false, true>(dst, indptr, out, tables);
        }
    }

    /// As [`Draws::draw`], but writes the position of each drawn neighbour in its destination's
    /// row.
    fn offsets(&self, dst: &[NodeId], indptr: &[u32], out: &mut [u32], tables: &[Mutex<Vec<u32>>]) {
        if self.fanout != usize::MAX {
            return self.pipeline::<false, false>(dst, indptr, out, tables);
        }
        for ends in indptr.windows(2) {
            (0..).zip(&mut out[ends[0] as usize..ends[1] as usize]).for_each(|(offset, slot)| *slot = offset);
        }
    }

    /// As [`Draws::draw`], for whole rows.
    fn copy(&self, dst: &[NodeId], indptr: &[u32], out: &mut [NodeId]) {
        let (rows, neighbors) = (self.rows.graph.indptr(), self.rows.graph.indices());
        let row = |v: NodeId| rows[v as usize] as usize..rows[v as usize + 1] as usize;
        for (i, &v) in dst.iter().enumerate() {
            if let Some(&ahead) = dst.get(i + 2 * GROUP) {
                prefetch(rows, ahead as usize);
            }
            if let Some(&ahead) = dst.get(i + GROUP) {
                // the hardware prefetches the rest of long rows
                row(ahead).step_by(16).take(4).for_each(|e| prefetch(neighbors, e));
            }
            let run = (indptr[i] - indptr[0]) as usize..(indptr[i + 1] - indptr[0]) as usize;
            out[run].copy_from_slice(&neighbors[row(v)]);
        }
    }

    /// As [`Draws::draw`], for at most `fanout` neighbours. Between the two stages `out` holds
    /// positions among the graph's edges if 32 bits number them (`NEAR`), and otherwise within the
    /// row. Without the second stage (`FIND`) it keeps them.
    fn pipeline<const NEAR: bool, const FIND: bool>(
        &self,
        dst: &[NodeId],
        indptr: &[u32],
        out: &mut [NodeId],
        tables: &[Mutex<Vec<u32>>],
    ) {
        let (rows, neighbors) = (self.rows.graph.indptr(), self.rows.graph.indices());
        let at = |i: usize| (indptr[i] - indptr[0]) as usize;
        let start = |i: usize| rows[dst[i] as usize];
        let base = |i: usize| if NEAR { start(i) as u32 } else { 0 };
        let mut marks = Marks::new();
        let (mut whole, mut drawn) = ([0; GROUP], [0; GROUP]);
        for first in (0..dst.len() + GROUP).step_by(GROUP) {
            // Partition the rows into whole and drawn ones without a branch, which would be
            // unpredictable.
            let (mut wholes, mut draws) = (0, 0);
            for i in first..(first + GROUP).min(dst.len()) {
                if let Some(&ahead) = dst.get(i + GROUP) {
                    prefetch(rows, ahead as usize);
                }
                let is_whole = rows[dst[i] as usize + 1] - start(i) <= self.fanout as u64;
                whole[wholes] = i;
                wholes += usize::from(is_whole);
                drawn[draws] = i;
                draws += usize::from(!is_whole);
            }
            for &i in &whole[..wholes] {
                let (from, to, base) = (at(i), at(i + 1), base(i));
                // The same width for every row: following rows overwrite the excess.
                let width =
                    if self.fanout <= MAX_FIXED_WIDTH { (from + self.fanout).min(out.len()) } else { to };
                (base..).zip(&mut out[from..width]).for_each(|(position, slot)| *slot = position);
                for e in (0..to - from).step_by(16).take(4) {
                    prefetch(neighbors, start(i) as usize + e);
                }
            }
            for &i in &drawn[..draws] {
                let mut stream = self.stream(dst[i]);
                let (start, degree) = (start(i), rows[dst[i] as usize + 1] - start(i));
                let (base, out) = (base(i), &mut out[at(i)..at(i + 1)]);
                floyd(&mut stream, degree, out, &mut marks, tables, |offset| {
                    prefetch(neighbors, start as usize + offset as usize);
                    base + offset
                });
            }
            let done = first.saturating_sub(GROUP)..first.min(dst.len());
            if !FIND {
                continue;
            }
            if NEAR {
                let run = at(done.start)..at(done.end);
                out[run].iter_mut().for_each(|slot| *slot = neighbors[*slot as usize]);
            } else {
                for i in done {
                    let row = &neighbors[start(i) as usize..rows[dst[i] as usize + 1] as usize];
                    out[at(i)..at(i + 1)].iter_mut().for_each(|slot| *slot = row[*slot as usize]);
                }
            }
        }
    }
}

/// Offsets drawn for a row: those whose mark is `now`.
pub(crate) struct Marks {
    of: [u16; MARKED],
    now: u16,
}

impl Marks {
    /// Creates marks of which none is set.
    pub(crate) fn new() -> Self {
        Self { of: [0; MARKED], now: 0 }
    }

    /// Forgets all marks.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.now = self.now.wrapping_add(1);
        if self.now == 0 {
            self.of.fill(0);
            self.now = 1;
        }
    }

    /// Returns true if the mark of an offset is set, by this offset or another.
    #[inline(always)]
    pub(crate) fn is_set(&self, offset: u32) -> bool {
        self.of[offset as usize % MARKED] == self.now
    }

    /// Sets the mark of an offset if `condition` is true.
    #[inline(always)]
    pub(crate) fn set_if(&mut self, offset: u32, condition: bool) {
        let mark = &mut self.of[offset as usize % MARKED];
        *mark = if condition { self.now } else { *mark };
    }
}

/// Fills `out` with `map` of distinct numbers of `0..d`, `out.len() < d <= 2^32`. `map` must keep
/// differences.
#[inline(always)]
pub(crate) fn floyd(
    stream: &mut keyed::Stream,
    d: u64,
    out: &mut [u32],
    marks: &mut Marks,
    tables: &[Mutex<Vec<u32>>],
    map: impl Fn(u32) -> u32,
) {
    let first = d - out.len() as u64;
    let exact = d <= MARKED as u64;
    let mut met = false;
    marks.clear();
    for (j, slot) in (first..).zip(out.iter_mut()) {
        let t = stream.below(j + 1);
        let taken = marks.of[t as usize % MARKED] == marks.now;
        met |= taken;
        let t = if taken & exact { j } else { t };
        marks.of[t as usize % MARKED] = marks.now;
        *slot = map(t as u32);
    }
    if met && !exact {
        repeat(map(first as u32), out, tables);
    }
}

/// Repeats Floyd's choice over the draws in `out`: a draw that is taken already is replaced by the
/// number of its turn, which cannot be taken yet.
#[cold]
fn repeat(first: u32, out: &mut [u32], tables: &[Mutex<Vec<u32>>]) {
    if out.len() <= MAX_SCAN {
        for i in 1..out.len() {
            let (before, t) = (&out[..i], out[i]);
            if before.iter().fold(false, |taken, &p| taken | (p == t)) {
                out[i] = first + i as u32;
            }
        }
        return;
    }
    // Open addressing over the positions of earlier draws. No thread holds a table across a call to
    // the pool, so the lock is never contended.
    let own = rayon::current_thread_index().unwrap_or(0) % tables.len();
    let mut table = tables[own].lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    table.clear();
    memory::demand_len(&mut table, (2 * out.len()).next_power_of_two(), u32::MAX);
    let mask = table.len() - 1;
    for i in 0..out.len() {
        let mut slot = keyed::mix(u64::from(out[i])) as usize & mask;
        while table[slot] != u32::MAX {
            if out[table[slot] as usize] == out[i] {
                out[i] = first + i as u32;
                // find a free slot
                slot = keyed::mix(u64::from(out[i])) as usize & mask;
                while table[slot] != u32::MAX {
                    slot = (slot + 1) & mask;
                }
                break;
            }
            slot = (slot + 1) & mask;
        }
        table[slot] = i as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Node `v` has `degrees[v]` in-neighbours.
    fn graph(degrees: &[u64]) -> Graph {
        let mut indptr = vec![0];
        for degree in degrees {
            indptr.push(indptr[indptr.len() - 1] + degree);
        }
        let edges = indptr[degrees.len()];
        let indices: Vec<u32> = (0..edges).map(|e| (e * 7 % degrees.len() as u64) as u32).collect();
        Graph::new(indptr.into(), indices.into()).unwrap()
    }

    /// Reference: Floyd's algorithm as published, node after node.
    fn plain(graph: &Graph, fanout: usize, key: u64, dst: &[NodeId]) -> Vec<NodeId> {
        let mut out = Vec::new();
        for &v in dst {
            let row = graph.in_neighbors(v);
            let (d, k) = (row.len() as u64, fanout as u64);
            if d <= k {
                out.extend(row);
                continue;
            }
            let mut stream = keyed::Stream::new(keyed::mix(key ^ u64::from(v).wrapping_mul(keyed::GOLDEN)));
            let mut taken = Vec::new();
            for j in d - k..d {
                let t = stream.below(j + 1);
                taken.push(if taken.contains(&t) { j } else { t });
            }
            out.extend(taken.iter().map(|&t| row[t as usize]));
        }
        out
    }

    #[test]
    fn the_pipeline_matches_the_plain_loop() {
        // short rows, rows with exclusive marks, and longer ones
        let graph =
            graph(&(0..400u64).map(|v| if v % 50 == 3 { 9000 + v } else { v % 77 }).collect::<Vec<_>>());
        let dst: Vec<NodeId> = (0..400).map(|i| i * 151 % 400).collect();
        for fanout in [1, 5, 25, MAX_FIXED_WIDTH, MAX_FIXED_WIDTH + 1, 70, MAX_SCAN, MAX_SCAN + 1, 2000] {
            let draws = Draws { rows: NeighborRows::new(&graph), fanout, key: 12 + fanout as u64 };
            let expected = plain(&graph, fanout, draws.key, &dst);
            let mut scratch = HopScratch::default();
            scratch.fit(3);
            let mut indptr = Vec::new();
            let edges = count(&graph, fanout, &dst, &mut scratch, &mut indptr).unwrap();
            let mut out = vec![0; edges];
            draws.pipeline::<true, true>(&dst, &indptr, &mut out, &scratch.tables);
            assert_eq!(out, expected, "fanout {fanout}");
            out.fill(0);
            draws.pipeline::<false, true>(&dst, &indptr, &mut out, &scratch.tables);
            assert_eq!(out, expected, "fanout {fanout}, as in graphs of more than 2^32 edges");
            out.fill(0);
            let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
            pool.install(|| draws.spread(&dst, &indptr, &mut out, &scratch.tables));
            assert_eq!(out, expected, "fanout {fanout}, spread");
            for fanout in [fanout, usize::MAX] {
                let (mut ends, mut offsets) = (Vec::new(), Vec::new());
                let out = (&mut ends, &mut offsets);
                draw_offsets(draws.rows, fanout, draws.key, &dst, &mut HopScratch::default(), out).unwrap();
                let found = dst.iter().zip(ends.windows(2)).flat_map(|(&v, ends)| {
                    let row = graph.in_neighbors(v);
                    offsets[ends[0] as usize..ends[1] as usize]
                        .iter()
                        .map(move |&offset| row[offset as usize])
                });
                assert_eq!(
                    found.collect::<Vec<_>>(),
                    plain(&graph, fanout, draws.key, &dst),
                    "{fanout}, offsets"
                );
            }
        }
    }

    #[test]
    fn marks_of_earlier_rows_are_never_set_again() {
        let mut marks = Marks::new();
        marks.clear();
        marks.set_if(5, true);
        marks.set_if(6, false);
        let offsets = [5, 6, 5 + MARKED as u32];
        assert_eq!(offsets.map(|offset| marks.is_set(offset)), [true, false, true]);
        // more rows than there are numbers of rows
        for row in 0..=u32::from(u16::MAX) + 2 {
            marks.clear();
            assert!(!marks.is_set(5) && !marks.is_set(0), "row {row}");
        }
    }

    #[test]
    fn counts_do_not_depend_on_parallelism() {
        let graph = graph(&[3, 0, 9]);
        let dst: Vec<NodeId> = (0..3 * COUNT as u32 + 5).map(|i| i % 3).collect();
        let run = |parallel| {
            let (mut indptr, mut scratch) = (vec![7; 3], HopScratch { parallel, ..HopScratch::default() });
            count(&graph, 5, &dst, &mut scratch, &mut indptr).map(|edges| (edges, indptr)).unwrap()
        };
        assert_eq!(run(true), run(false));
        assert_eq!(run(true).0 as u32, run(true).1[dst.len()]);
    }

    #[test]
    fn blocks_with_too_many_edges_are_rejected() {
        let graph = graph(&[1 << 20]);
        for (times, parallel) in [(4096, false), (COUNT * 2 + 4096, true)] {
            let mut scratch = HopScratch { parallel, ..HopScratch::default() };
            let dst = vec![0; times];
            let error =
                count(&graph, usize::MAX, &dst, &mut scratch, &mut Vec::new()).unwrap_err().to_string();
            assert!(error.contains(&(times << 20).to_string()), "{error}");
        }
        assert!(count(&graph, usize::MAX, &[0; 4095], &mut HopScratch::default(), &mut Vec::new()).is_ok());
    }
}
