//! Edges of every row in the order of their times.
//!
//! # Algorithm
//!
//! An edge is visible from the later of its own time and that of its source. For each row, the
//! offsets of its edges are sorted by that time, edges of equal times by their position. The edges
//! that a bound admits are then a range of the row.
//!
//! The order is an index beside the graph and not an order of the graph itself: weights, features
//! and known edges refer to the positions of the graph. Datasets keep the order of their input
//! within a row, so a stream imported in the order of its times is sorted already.
//!
//! # Source
//!
//! PyTorch Geometric sorts the edges of a row by time too (temporal sampling in `pyg-lib`), in a
//! copy of the graph; an index beside it keeps the positions.
//!
//! # Cost
//!
//! O(E log d) once, parallel; O(log d) for each range, and O(1) if the whole row is admitted.
//!
//! # Memory
//!
//! 8 bytes per node for the time of its row's last edge, so that the bounds of late seeds read no
//! other time. 16 bytes per edge: the time, and beside each offset its source, so that a draw reads
//! one cache line. They lie in huge pages, because draws read them at random. If the rows are in
//! the order of their times already, nothing is allocated for edges where times are those of the
//! edges, and 8 bytes where they are those of nodes.

use std::{
    ops::Range,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use graphmill_core::{Buffer, Error, Graph, NodeId, Result};
use rayon::prelude::*;

use super::decay::{self, Decay};
use crate::prefetch::prefetch;

/// Number of edges of a task.
const TASK_LEN: u64 = 1 << 15;
/// Number of half lives whose tables are kept.
const MAX_DECAYS: usize = 2;

/// Number of quantiles of the times of a relation.
const QUANTILES: usize = 256;
/// Maximum number of times whose quantiles are computed.
const MAX_SAMPLE: usize = 1 << 16;
/// Distance of the first comparison from the start of a search, a cache line.
const FIRST_STEP: usize = 8;

/// Order by time of the edges of a relation.
#[derive(Clone, Debug, Default)]
pub struct TimeIndex {
    /// Visible times, ascending in each row (`E`); `None` if all edges always existed.
    time: Option<Buffer<i64>>,
    /// Offset within its row and source of each edge in that order; `None` if the rows are in
    /// order.
    order: Option<Buffer<[u32; 2]>>,
    /// Visible time of the last edge of each row (`N`); [`i64::MIN`] for an empty row, and for all
    /// rows without times.
    last: Option<Buffer<i64>>,
    /// Quantiles of the visible times, ascending.
    quantiles: Arc<[i64]>,
    /// Tables of the rows for the half lives in use, the latest last.
    decays: Arc<Mutex<Vec<Arc<Decay>>>>,
    /// Directory of the files of these tables; `None` if they are in memory.
    dir: Option<Arc<Path>>,
}

impl TimeIndex {
    /// Sorts the edges of `graph` by the later of their own times (`E`) and the times of their
    /// sources.
    ///
    /// # Errors
    /// There are fewer or more times than edges, a source has no time, a row has more edges than 32
    /// bits can number, or the memory cannot be allocated.
    pub fn new(graph: &Graph, of_edges: Option<&Buffer<i64>>, of_sources: Option<&[i64]>) -> Result<Self> {
        if let Some(time) = of_edges.filter(|time| time.len() != graph.num_edges()) {
            return Err(Error::invalid(format!(
                "{} times for {} edges; pass a time for each edge",
                time.len(),
                graph.num_edges()
            )));
        }
        if let Some(&u) =
            of_sources.and_then(|time| graph.indices().par_iter().find_any(|&&u| u as usize >= time.len()))
        {
            let times = of_sources.map_or(0, <[i64]>::len);
            return Err(Error::invalid(format!(
                "{times} times of source nodes, but an edge comes from node {u}; pass a time for each node"
            )));
        }
        let longest = graph.indptr().par_windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0);
        if longest > u64::from(u32::MAX) {
            return Err(Error::invalid(format!(
                "a node has {longest} edges, and at most {} can be ordered by time; split the node",
                u32::MAX
            )));
        }
        let visible = |e: usize| {
            let own = of_edges.map_or(i64::MIN, |time| time[e]);
            own.max(of_sources.map_or(i64::MIN, |time| time[graph.indices()[e] as usize]))
        };
        if of_edges.is_none() && of_sources.is_none() {
            return Ok(Self::default());
        }
        let is_sorted = graph
            .indptr()
            .par_windows(2)
            .all(|ends| (ends[0] as usize + 1..ends[1] as usize).all(|e| visible(e - 1) <= visible(e)));
        if is_sorted {
            let time = match (of_edges, of_sources) {
                (Some(time), None) => time.clone(),
                _ => (0..graph.num_edges()).into_par_iter().map(visible).collect::<Vec<_>>().into(),
            };
            return Self::with_order(graph, time, None);
        }
        let sort = |(rows, time, order): Task| {
            let first = graph.indptr()[rows.start];
            for v in rows {
                let [start, end] = [graph.indptr()[v], graph.indptr()[v + 1]];
                let at = (start - first) as usize..(end - first) as usize;
                let row = &mut order[at.clone()];
                let sources = &graph.indices()[start as usize..end as usize];
                row.iter_mut().zip((0..).zip(sources)).for_each(|(to, (offset, &u))| *to = [offset, u]);
                row.sort_by_key(|&[offset, _]| visible(start as usize + offset as usize));
                let sorted = time[at].iter_mut().zip(row);
                sorted.for_each(|(to, [offset, _])| *to = visible(start as usize + *offset as usize));
            }
        };
        let mut time = Buffer::from(Vec::new());
        let order = Buffer::filled_huge_pages(graph.num_edges(), |order| {
            time = Buffer::filled_huge_pages(graph.num_edges(), |time| {
                tasks(graph.indptr(), time, order).into_par_iter().for_each(sort);
                Ok(())
            })?;
            Ok(())
        })?;
        Self::with_order(graph, time, Some(order))
    }

    /// Creates the index of rows that are in the order of their times, without reading them:
    /// `time` has the visible time of each edge (`E`), `last` that of the last edge of each row
    /// (`N`, [`i64::MIN`] for an empty row), and `sample` times that are distributed as all are,
    /// ascending. Tables for draws by recency are in files without names in the directory `dir`.
    pub(super) fn of_ordered_rows(time: Buffer<i64>, last: Buffer<i64>, sample: &[i64], dir: &Path) -> Self {
        let (quantiles, dir) = (quantiles(sample), Some(dir.into()));
        Self { time: Some(time), order: None, last: Some(last), quantiles, decays: Arc::default(), dir }
    }

    /// Takes columns and tables in mapped files out of the memory of the process, until they are
    /// used again.
    pub(super) fn release(&self) {
        [&self.time, &self.last].into_iter().flatten().for_each(|times| times.release(0..times.len()));
        let decays = self.decays.lock().unwrap_or_else(PoisonError::into_inner);
        decays.iter().for_each(|decay| decay.release());
    }

    /// Creates the index from the ordered times.
    fn with_order(graph: &Graph, time: Buffer<i64>, order: Option<Buffer<[u32; 2]>>) -> Result<Self> {
        let last = Buffer::filled_huge_pages(graph.num_nodes(), |last| {
            let ends = graph.indptr().par_windows(2);
            ends.zip(last.par_iter_mut()).for_each(|(ends, last)| {
                *last = if ends[0] < ends[1] { time[ends[1] as usize - 1] } else { i64::MIN };
            });
            Ok(())
        })?;
        let quantiles = quantiles(&time);
        Ok(Self { time: Some(time), order, last: Some(last), quantiles, ..Self::default() })
    }

    /// Visible times of the row from position `start` to `end` in the graph, ascending; empty if
    /// all edges always existed.
    #[inline]
    pub fn row(&self, start: u64, end: u64) -> &[i64] {
        self.time.as_ref().map_or(&[], |time| &time[start as usize..end as usize])
    }

    /// Places in the order of the row of `v` whose times are above `oldest` and at most `latest`.
    #[inline]
    pub fn admitted(&self, graph: &Graph, v: NodeId, oldest: Option<i64>, latest: i64) -> Range<u32> {
        let [start, end] = [graph.indptr()[v as usize], graph.indptr()[v as usize + 1]];
        let Some(last) = self.last.as_deref() else {
            // these edges are older than any window
            return if oldest.is_some() { 0..0 } else { 0..(end - start) as u32 };
        };
        let row = self.row(start, end);
        let high = if last[v as usize] <= latest {
            // the case of most rows of a late seed reads no times
            row.len()
        } else {
            self.count_until(row, latest)
        };
        let low = oldest.map_or(0, |oldest| self.count_until(&row[..high], oldest));
        low as u32..high as u32
    }

    /// Number of the first edges of a row whose times are at most `latest`. The search begins where
    /// the edge would be if the row's times were distributed as all times are.
    fn count_until(&self, row: &[i64], latest: i64) -> usize {
        let (mut low, mut high, mut step) = (0, row.len(), FIRST_STEP);
        let guess = self.guess(row.len(), latest);
        if guess < row.len() && row[guess] <= latest {
            low = guess + 1;
            while low + step < row.len() {
                if row[low + step] > latest {
                    high = low + step;
                    break;
                }
                low += step + 1;
                step *= 4;
            }
        } else {
            high = guess;
            while high > step {
                if row[high - step] <= latest {
                    low = high - step + 1;
                    break;
                }
                high -= step;
                step *= 4;
            }
        }
        low + row[low..high].partition_point(|&time| time <= latest)
    }

    /// Number of edges up to time `latest` of a row of `len` edges that is like all rows together.
    #[inline]
    fn guess(&self, len: usize, latest: i64) -> usize {
        len * self.quantiles.partition_point(|&time| time <= latest) / self.quantiles.len().max(1)
    }

    /// Prefetches the time of the last edge of row `v`.
    #[inline]
    pub(super) fn prefetch_last(&self, v: NodeId) {
        if let Some(last) = &self.last {
            prefetch(last, v as usize);
        }
    }

    /// Prefetches the time that [`TimeIndex::admitted`] reads first of row `v`, if it searches
    /// there.
    #[inline]
    pub(super) fn prefetch_search(&self, graph: &Graph, v: NodeId, searches_oldest: bool, latest: i64) {
        let (Some(time), Some(last)) = (self.time.as_deref(), self.last.as_deref()) else { return };
        if searches_oldest || last[v as usize] > latest {
            let [start, end] = [graph.indptr()[v as usize], graph.indptr()[v as usize + 1]];
            prefetch(time, start as usize + self.guess((end - start) as usize, latest));
        }
    }

    /// Prefetches the time of an edge at a position of the ordered edges.
    #[inline]
    pub(super) fn prefetch_time(&self, position: u64) {
        if let Some(time) = &self.time {
            prefetch(time, position as usize);
        }
    }

    /// Visible time of the last of the first `end` edges of row `v`, of which there is at least
    /// one.
    #[inline]
    pub(super) fn last_time(&self, graph: &Graph, v: NodeId, end: u32) -> i64 {
        let [start, row_end] = [graph.indptr()[v as usize], graph.indptr()[v as usize + 1]];
        match self.last.as_deref() {
            Some(last) if start + u64::from(end) == row_end => last[v as usize],
            _ => self.time(start, end - 1),
        }
    }

    /// Tables of the rows for draws by recency with this half life; `None` if all edges always
    /// existed. Computed at the first call and kept for the last [`MAX_DECAYS`] half lives.
    ///
    /// # Errors
    /// The disk has too little space for tables in files.
    pub(super) fn decay(&self, graph: &Graph, half_life: f64) -> Result<Option<Arc<Decay>>> {
        let Some(time) = self.time.as_deref() else { return Ok(None) };
        // The computation is serial: a thread of a pool that waits for its tasks may take up
        // another batch, which would wait for this lock.
        let mut decays = self.decays.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = decays.iter().find(|decay| decay.is_of(half_life)) {
            return Ok(Some(known.clone()));
        }
        let decay = Arc::new(match &self.dir {
            Some(dir) => Decay::in_files(graph.indptr(), time, half_life, dir)?,
            None => Decay::new(graph.indptr(), time, half_life),
        });
        if decays.len() == MAX_DECAYS {
            decays.remove(0);
        }
        decays.push(decay.clone());
        Ok(Some(decay))
    }

    /// Bytes of the tables for draws by recency with one half life from `edges` edges of `rows`
    /// rows, at most.
    pub const fn most_bytes_of_recency(rows: usize, edges: usize) -> usize {
        decay::most_bytes(rows, edges)
    }

    /// Offset within its row and source of each edge in the order of the times; `None` if rows are
    /// in order.
    pub(super) fn order(&self) -> Option<&[[u32; 2]]> {
        self.order.as_deref()
    }

    /// Position in the graph of the edge at `place` of the row that starts at `start`.
    #[inline]
    pub fn position(&self, start: u64, place: u32) -> u64 {
        match &self.order {
            Some(order) => start + u64::from(order[start as usize + place as usize][0]),
            None => start + u64::from(place),
        }
    }

    /// Visible time of the edge at `place` of the row that starts at `start`.
    #[inline]
    pub fn time(&self, start: u64, place: u32) -> i64 {
        self.time.as_ref().map_or(i64::MIN, |time| time[start as usize + place as usize])
    }

    /// Visible time of the edge at a position of the ordered edges.
    #[inline]
    pub(super) fn time_at(&self, position: u64) -> i64 {
        self.time.as_ref().map_or(i64::MIN, |time| time[position as usize])
    }

    /// Bytes that the index allocated beyond the columns of the dataset, with the tables for draws
    /// by recency that it has.
    pub fn bytes(&self) -> usize {
        let decays = self.decays.lock().unwrap_or_else(PoisonError::into_inner);
        let decays: usize = decays.iter().map(|decay| decay.bytes()).sum();
        let order = self.order.as_ref().map_or(0, |order| size_of_val(&order[..]));
        let last = self.last.as_ref().map_or(0, |last| size_of_val(&last[..]));
        let time = self.time.as_ref().filter(|_| self.order.is_some()).map_or(0, |t| size_of_val(&t[..]));
        order + time + last + decays
    }
}

/// Quantiles of times, of a sample in equal distances.
fn quantiles(time: &[i64]) -> Arc<[i64]> {
    let mut sample: Vec<i64> = time.iter().step_by(time.len().div_ceil(MAX_SAMPLE).max(1)).copied().collect();
    sample.sort_unstable();
    let count = QUANTILES.min(sample.len());
    (0..count).map(|i| sample[(2 * i + 1) * sample.len() / (2 * count)]).collect()
}

/// Rows of a task with their times, and offsets with sources.
type Task<'a> = (Range<usize>, &'a mut [i64], &'a mut [[u32; 2]]);

/// Cuts the rows into tasks of about [`TASK_LEN`] edges.
fn tasks<'a>(indptr: &[u64], mut time: &'a mut [i64], mut order: &'a mut [[u32; 2]]) -> Vec<Task<'a>> {
    let (mut all, mut first) = (Vec::new(), 0);
    let rows = indptr.len() - 1;
    while first < rows {
        let most = indptr[first] + TASK_LEN;
        let end = (indptr.partition_point(|&start| start <= most) - 1).clamp(first + 1, rows);
        let edges = (indptr[end] - indptr[first]) as usize;
        let (a, rest) = time.split_at_mut(edges);
        time = rest;
        let (b, rest) = order.split_at_mut(edges);
        order = rest;
        all.push((first..end, a, b));
        first = end;
    }
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn admitted_edges_are_those_of_a_plain_scan(
            rows in prop::collection::vec(prop::collection::vec((0u32..6, -3i64..4), 0..9), 1..7),
            nodes in prop::option::of(prop::collection::vec(-3i64..4, 6)),
            oldest in prop::option::of(-4i64..4),
            latest in -4i64..5,
        ) {
            let mut indptr = vec![0u64];
            let (mut indices, mut times) = (Vec::new(), Vec::new());
            for row in &rows {
                indices.extend(row.iter().map(|edge| edge.0 % rows.len() as u32));
                times.extend(row.iter().map(|edge| edge.1));
                indptr.push(indices.len() as u64);
            }
            let graph = Graph::new(indptr.into(), indices.clone().into()).unwrap();
            let of_edges: Buffer<i64> = times.clone().into();
            let index = TimeIndex::new(&graph, Some(&of_edges), nodes.as_deref()).unwrap();
            for v in 0..rows.len() {
                let (start, end) = (graph.indptr()[v], graph.indptr()[v + 1]);
                let visible = |e: u64| {
                    let source = nodes.as_ref().map_or(i64::MIN, |t| t[indices[e as usize] as usize]);
                    times[e as usize].max(source)
                };
                let mut expected: Vec<u64> = (start..end)
                    .filter(|&e| visible(e) <= latest && oldest.is_none_or(|oldest| visible(e) > oldest))
                    .collect();
                expected.sort_by_key(|&e| (visible(e), e));
                let found = index.admitted(&graph, v as u32, oldest, latest);
                let same = |i| index.time(start, i) == visible(index.position(start, i));
                prop_assert!(found.clone().all(same));
                let found: Vec<u64> = found.map(|i| index.position(start, i)).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn rows_of_several_tasks_are_sorted_by_time_and_position() {
        // short rows, empty ones, and one longer than a task
        let lens: Vec<usize> =
            (0..9000).map(|v| if v == 4000 { 2 * TASK_LEN as usize + 3 } else { v % 9 }).collect();
        let mut indptr = vec![0u64];
        lens.iter().for_each(|&len| indptr.push(indptr[indptr.len() - 1] + len as u64));
        let edges = indptr[lens.len()];
        let indices: Vec<NodeId> = (0..edges).map(|e| (e * 7919 % lens.len() as u64) as NodeId).collect();
        let times: Vec<i64> = (0..edges).map(|e| (e * 31 % 101) as i64 - 50).collect();
        let graph = Graph::new(indptr.into(), indices.into()).unwrap();
        let index = TimeIndex::new(&graph, Some(&times.clone().into()), None).unwrap();
        for v in 0..lens.len() {
            let [start, end] = [graph.indptr()[v], graph.indptr()[v + 1]];
            let mut expected: Vec<u64> = (start..end).collect();
            expected.sort_by_key(|&e| (times[e as usize], e));
            for (place, &e) in (0..).zip(&expected) {
                assert_eq!((index.position(start, place), index.time(start, place)), (e, times[e as usize]));
                let order = index.order().unwrap()[start as usize + place as usize];
                assert_eq!(order, [(e - start) as u32, graph.indices()[e as usize]]);
                assert_eq!(index.last_time(&graph, v as NodeId, place + 1), times[e as usize]);
            }
            let last = expected.last().map(|&e| times[e as usize]);
            assert_eq!(index.row(start, end).last().copied(), last);
        }
    }

    #[test]
    fn wrong_times_are_rejected_with_the_reason() {
        let graph = Graph::new(vec![0, 2, 2].into(), vec![1, 0].into()).unwrap();
        let fault = |edges: Option<Vec<i64>>, nodes: Option<&[i64]>| {
            TimeIndex::new(&graph, edges.map(Buffer::from).as_ref(), nodes).unwrap_err().to_string()
        };
        assert!(fault(Some(vec![1]), None).contains("1 times for 2 edges"));
        assert!(fault(Some(vec![1; 3]), None).contains("3 times for 2 edges"));
        assert!(fault(None, Some(&[4])).contains("1 times of source nodes, but an edge comes from node 1"));
    }

    #[test]
    fn bounds_of_long_rows_are_those_of_a_plain_search() {
        // the rows are unlike each other, so guesses from all times are wrong
        let times: Vec<i64> = (0..700).map(|i| i / 7).chain((0..1300).map(|i| i * i)).collect();
        let graph = Graph::new(vec![0, 700, 2000].into(), vec![0; 2000].into()).unwrap();
        let index = TimeIndex::new(&graph, Some(&times.clone().into()), None).unwrap();
        for latest in (-1..110).chain((110..1_700_000).step_by(997)) {
            for (v, row) in [&times[..700], &times[700..]].into_iter().enumerate() {
                let count = |until: i64| row.partition_point(|&time| time <= until) as u32;
                let end = count(latest);
                assert_eq!(index.admitted(&graph, v as u32, None, latest), 0..end);
                let window = index.admitted(&graph, v as u32, Some(latest / 2), latest);
                assert_eq!(window, count(latest / 2).min(end)..end, "row {v} until {latest}");
            }
        }
    }

    #[test]
    fn sorted_rows_need_no_memory_for_edges() {
        let graph = Graph::new(vec![0, 2, 4].into(), vec![1, 0, 1, 0].into()).unwrap();
        let sorted = TimeIndex::new(&graph, Some(&vec![1, 2, 0, 0].into()), None).unwrap();
        let of_nodes = 2 * 8;
        assert_eq!(sorted.bytes(), of_nodes);
        let other = TimeIndex::new(&graph, Some(&vec![2, 1, 0, 0].into()), None).unwrap();
        assert_eq!(other.bytes(), of_nodes + 4 * 16);
        assert_eq!(TimeIndex::new(&graph, None, None).unwrap().admitted(&graph, 0, None, i64::MIN), 0..2);
    }

    #[test]
    fn tables_of_draws_by_recency_are_counted_once_they_are_made() {
        let times: Vec<i64> = (0..100).collect();
        let graph = Graph::new(vec![0, 90, 100].into(), vec![0; 100].into()).unwrap();
        let index = TimeIndex::new(&graph, Some(&times.into()), None).unwrap();
        let without = index.bytes();
        index.decay(&graph, 20.0).unwrap();
        let one = index.bytes() - without;
        // the bounds of the rows, and a sum for each edge of the long one
        assert!(one > 3 * 8 + 90 * 4 && one <= TimeIndex::most_bytes_of_recency(2, 100), "{one}");
        index.decay(&graph, 40.0).unwrap();
        assert!(index.bytes() > without + one, "two half lives");
    }
}
