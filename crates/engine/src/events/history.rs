//! Neighbours of every node by the events of a stream, in the order of their times.
//!
//! # Algorithm
//!
//! A counting sort by node: the events are counted for each node, and each event is then written to
//! the next place of both of its ends. A history in files is built for a range of nodes after the
//! other, as many as fit `--host-budget`, with a pass over all events for each, so that no place is
//! written at random beyond the budget.
//!
//! # Source
//!
//! Counting sort as in Knuth, *The art of computer programming*, vol. 3, section 5.2; the passes
//! are this project's.
//!
//! # Cost
//!
//! O(V + E), and in files O(E) for each range: about `(32 V + 32 E) / budget` ranges.
//!
//! # Memory
//!
//! 16 bytes per node, and 16 for each end of an event, in memory or in files.

use std::{ops::Range, path::Path};

use graphmill_core::{Buffer, FileArray, Graph, NodeId, maps};
use graphmill_loader::time::{Events, TimedGraph};

use super::{
    files::{PLACE, RowFiles},
    opening::RUN,
};
use crate::Result;

/// Times from which the quantiles of all are computed.
const SAMPLE: usize = 1 << 12;
/// Bytes of a node while its row is counted, and while it is filled.
const COUNTED: usize = 8;
const FILLED: usize = 24;

/// Graph of events: each is an edge into both of its ends.
pub(super) struct History {
    pub(super) graph: TimedGraph,
    /// Event of each edge.
    pub(super) event: Buffer<u32>,
}

impl History {
    /// Builds the graph of the events `of`, ascending, in `files` if there are any.
    ///
    /// # Errors
    /// The disk has too little space.
    pub(super) fn new(
        events: &Events,
        of: impl Iterator<Item = u32> + Clone,
        num_nodes: usize,
        files: Option<&RowFiles>,
    ) -> Result<Self> {
        match files {
            Some(files) => Build { events, of, files }.run(num_nodes),
            None => Self::in_memory(events, of, num_nodes),
        }
    }

    fn in_memory(events: &Events, of: impl Iterator<Item = u32> + Clone, num_nodes: usize) -> Result<Self> {
        let mut indptr = vec![0u64; num_nodes + 1];
        of.clone().flat_map(|e| ends(events, e)).for_each(|v| indptr[v as usize + 1] += 1);
        for v in 0..num_nodes {
            indptr[v + 1] += indptr[v];
        }
        let mut next = indptr.clone();
        let count = indptr[num_nodes] as usize;
        let (mut indices, mut event, mut time) = (vec![0 as NodeId; count], vec![0; count], vec![0; count]);
        for e in of {
            let [source, destination] = ends(events, e);
            for (own, other) in [(source, destination), (destination, source)] {
                let at = &mut next[own as usize];
                indices[*at as usize] = other;
                event[*at as usize] = e;
                time[*at as usize] = events.time()[e as usize];
                *at += 1;
            }
        }
        let graph = Graph::new(indptr.into(), indices.into())?;
        let graph = TimedGraph::of_one_type(graph, Some(time.into()), None)?;
        Ok(Self { graph, event: event.into() })
    }

    /// Takes a history in files out of the memory of the process, until it is used again.
    pub(super) fn release(&self) {
        self.graph.release();
        maps::release(&self.event);
    }
}

/// Ends of event `e`.
fn ends(events: &Events, e: u32) -> [NodeId; 2] {
    [events.source()[e as usize], events.destination()[e as usize]]
}

/// Calls `see` with every event of a list and its ends. Events in files leave memory meanwhile.
pub(super) fn each(events: &Events, of: impl Iterator<Item = u32>, mut see: impl FnMut(u32, [NodeId; 2])) {
    for (i, e) in of.enumerate() {
        if i % RUN == 0 {
            release(events);
            expect(events, e as usize);
        }
        see(e, ends(events, e));
    }
    release(events);
}

/// A history that is built in files.
struct Build<'a, I> {
    events: &'a Events,
    /// Numbers of its events.
    of: I,
    files: &'a RowFiles,
}

impl<I: Iterator<Item = u32> + Clone> Build<'_, I> {
    fn run(&self, num_nodes: usize) -> Result<History> {
        let dir: &Path = &self.files.dir;
        let indptr = self.count(num_nodes)?;
        let count = indptr[num_nodes] as usize;
        let (mut indices, mut event) = (FileArray::zeros(count, dir)?, FileArray::zeros(count, dir)?);
        let (mut time, mut last) = (FileArray::zeros(count, dir)?, FileArray::zeros(num_nodes, dir)?);
        let mut first = 0;
        while first < num_nodes {
            let nodes = self.range(&indptr, first);
            let [from, to] = [nodes.start, nodes.end].map(|v| indptr[v] as usize);
            let rows = Rows {
                first,
                from,
                next: indptr[nodes.clone()].to_vec(),
                indices: &mut indices[from..to],
                event: &mut event[from..to],
                time: &mut time[from..to],
            };
            self.fill(rows, &indptr, &mut last[nodes.clone()]);
            indptr.release();
            indices.release();
            event.release();
            time.release();
            last.release();
            first = nodes.end;
        }
        let graph = Graph::of_sound_edges(indptr.freeze()?, indices.freeze()?, None)?;
        let columns = [time.freeze()?, last.freeze()?];
        let graph = TimedGraph::of_ordered_rows(graph, columns, &self.sample(), dir)?;
        let history = History { graph, event: event.freeze()? };
        history.release();
        release(self.events);
        Ok(history)
    }

    /// Bounds of the rows of all nodes.
    fn count(&self, num_nodes: usize) -> Result<FileArray<u64>> {
        let mut indptr = FileArray::<u64>::zeros(num_nodes + 1, &self.files.dir)?;
        let (step, mut sum) = ((self.files.budget / COUNTED).max(1), 0);
        for first in (0..num_nodes).step_by(step) {
            let counts = &mut indptr[first + 1..=num_nodes.min(first + step)];
            each(self.events, self.of.clone(), |_, ends| {
                for v in ends {
                    if let Some(count) = (v as usize).checked_sub(first).and_then(|at| counts.get_mut(at)) {
                        *count += 1;
                    }
                }
            });
            for count in counts.iter_mut() {
                sum += *count;
                *count = sum;
            }
            maps::release(counts);
        }
        Ok(indptr)
    }

    /// Nodes from `first` on whose rows fit the budget, at least one. The places of a single row
    /// are written in their order, so a large one needs no more memory.
    fn range(&self, indptr: &[u64], first: usize) -> Range<usize> {
        let start = indptr[first];
        let bytes = |end: usize| {
            (end - first).saturating_mul(FILLED).saturating_add((indptr[end] - start) as usize * PLACE)
        };
        let (mut low, mut high) = (first + 1, indptr.len());
        while low + 1 < high {
            let middle = low.midpoint(high);
            if bytes(middle) <= self.files.budget {
                low = middle;
            } else {
                high = middle;
            }
        }
        first..low
    }

    /// Fills the rows of a range of nodes, and the time of the last edge of each.
    fn fill(&self, mut rows: Rows, indptr: &[u64], last: &mut [i64]) {
        let (times, is_single) = (self.events.time(), rows.next.len() == 1);
        each(self.events, self.of.clone(), |e, [source, destination]| {
            for (own, other) in [(source, destination), (destination, source)] {
                let at = (own as usize).checked_sub(rows.first).and_then(|at| rows.next.get_mut(at));
                if let Some(at) = at {
                    let to = *at as usize - rows.from;
                    rows.indices[to] = other;
                    rows.event[to] = e;
                    rows.time[to] = times[e as usize];
                    *at += 1;
                    if is_single && to % RUN == RUN - 1 {
                        rows.release();
                    }
                }
            }
        });
        for (v, (last, &end)) in (rows.first..).zip(last.iter_mut().zip(&rows.next)) {
            *last = if end > indptr[v] { rows.time[end as usize - 1 - rows.from] } else { i64::MIN };
        }
    }

    /// Times in equal distances, ascending as the events are.
    fn sample(&self) -> Vec<i64> {
        let times = self.events.time();
        times.iter().step_by(times.len().div_ceil(SAMPLE).max(1)).copied().collect()
    }
}

/// Rows of a range of nodes that begins at `first`, and edges that begin at `from`.
struct Rows<'a> {
    first: usize,
    from: usize,
    /// Next place of each node.
    next: Vec<u64>,
    indices: &'a mut [NodeId],
    event: &'a mut [u32],
    time: &'a mut [i64],
}

impl Rows<'_> {
    /// Takes the places out of the memory of the process, until they are used again.
    fn release(&self) {
        let Self { indices, event, time, .. } = self;
        maps::release(indices);
        maps::release(event);
        maps::release(time);
    }
}

/// Announces a run of events in files from `first` on, whose files are else read page by page.
fn expect(events: &Events, first: usize) {
    let run = first..events.len().min(first + RUN);
    maps::expect(&events.source()[run.clone()]);
    maps::expect(&events.destination()[run.clone()]);
    maps::expect(&events.time()[run]);
}

/// Takes events in files out of the memory of the process, until they are used again.
pub(super) fn release(events: &Events) {
    maps::release(events.source());
    maps::release(events.destination());
    maps::release(events.time());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histories_in_files_are_those_in_memory_for_any_budget() {
        let dir = tempfile::tempdir().unwrap();
        let node = |x: u32| x.wrapping_mul(2_654_435_761) >> 28;
        let (source, destination): (Vec<u32>, Vec<u32>) =
            (0..300u32).map(|e| (node(e), node(e + 77) % 11 + 5)).unzip();
        let time = (0..300).map(|e| -40 + e / 3).collect::<Vec<i64>>();
        let events = Events::new(source.into(), destination.into(), time.into()).unwrap();
        // some nodes have no events
        for nodes in [16, 40] {
            for step in [1, 3] {
                let of = (0..300).step_by(step);
                let plain = History::new(&events, of.clone(), nodes, None).unwrap();
                for budget in [1, 500, 1 << 20] {
                    let files = RowFiles { dir: dir.path().to_path_buf(), most: 1, budget };
                    let found = History::new(&events, of.clone(), nodes, Some(&files)).unwrap();
                    let [a, b] = [&plain, &found].map(|history| history.graph.graph().relation(0));
                    assert_eq!((a.indptr(), a.indices()), (b.indptr(), b.indices()), "{budget}");
                    assert_eq!(plain.event[..], found.event[..]);
                    let [x, y] = [&plain, &found].map(|history| history.graph.time_index(0));
                    assert_eq!(x.row(0, a.num_edges() as u64), y.row(0, a.num_edges() as u64));
                    for (v, time) in (0..nodes as u32).flat_map(|v| (-45..70).map(move |t| (v, t))) {
                        assert_eq!(
                            x.admitted(a, v, None, time),
                            y.admitted(b, v, None, time),
                            "{v} at {time}"
                        );
                    }
                }
            }
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "no file has a name");
    }
}
