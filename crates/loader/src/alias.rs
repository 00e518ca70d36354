//! Draws from discrete distributions in O(1): Walker's alias tables (Walker, *An efficient method for generating discrete random
//! variables with general distributions*, ACM TOMS 3(3), 1977), built in O(n) as in Vose, IEEE TSE 17(9), 1991.
//!
//! - [`Alias`] is one distribution over many outcomes. It is built in parallel: runs of outcomes have tables of their own, and one more
//!   table draws the run. The runs' length is fixed, so the tables are the same for any number of threads. The table of runs
//!   is small and stays cached, so a draw costs one read of the large one.
//! - [`RowAlias`] is one distribution per node over its in-neighbours, rows in parallel: 8 bytes an edge.
//!
//! Sums are in f64; a cell's threshold has 32 bits, so each probability is met to within 2^-32 / n per cell.

use graphmill_graph::{Error, Graph, NodeId, Result, keyed::Stream};
use rayon::prelude::*;

use crate::prefetch::prefetch;

/// Outcomes of a run.
const RUN: usize = 1 << 16;

/// Nodes whose rows are one task.
const ROWS: usize = 1 << 10;

/// Outcome `i` of its own cell below the threshold, `other` from there on. A cell that always gives `i` has `other == i`, so that the
/// threshold need not express 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cell {
    threshold: u32,
    other: u32,
}

/// A distribution over `0..n`: 8 bytes per outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    cells: Vec<Cell>,
    runs: Vec<Cell>,
}

impl Alias {
    /// The distribution proportional to `weights`, `n` up to 2^32. O(n), parallel.
    ///
    /// # Errors
    /// There are no weights, or too many; one is negative or not finite; all are 0, so that nothing could be drawn.
    pub fn new(weights: &[f64]) -> Result<Self> {
        if u32::try_from(weights.len()).is_err() {
            return Err(Error::invalid(format!(
                "{} weights: an alias table has at most 2^32 - 1 outcomes",
                weights.len()
            )));
        }
        // the first, whichever thread finds one
        if let Some(i) = weights.par_iter().position_first(|w| !(*w >= 0.0 && w.is_finite())) {
            return Err(Error::invalid(format!(
                "weight {i} is {}: weights are finite and at least 0",
                weights[i]
            )));
        }
        let totals: Vec<f64> = weights.par_chunks(RUN).map(|run| run.iter().sum()).collect();
        let sum: f64 = totals.iter().sum();
        if sum == 0.0 || !sum.is_finite() {
            let what = if sum == 0.0 { "sum to 0: nothing" } else { "sum to infinity: none" };
            return Err(Error::invalid(format!("{} weights {what} could be drawn", weights.len())));
        }
        let mut cells = vec![Cell::default(); weights.len()];
        cells.par_chunks_mut(RUN).zip(weights.par_chunks(RUN)).for_each_init(
            Room::default,
            |room, (cells, weights)| {
                let place = |i: usize, cell| cells[i] = cell;
                build(weights.len(), |i| weights[i], room, place);
            },
        );
        let mut runs = vec![Cell::default(); totals.len()];
        build(totals.len(), |i| totals[i], &mut Room::default(), |i, cell| runs[i] = cell);
        Ok(Self { cells, runs })
    }

    /// `n`.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Never: a distribution has outcomes.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// One outcome: from one draw of 64 bits where there is one run, and otherwise from two.
    #[inline(always)]
    pub fn draw(&self, stream: &mut Stream) -> u32 {
        let first = if self.runs.len() == 1 { 0 } else { pick(&self.runs, stream.next_u64()) as usize * RUN };
        let run = &self.cells[first..self.cells.len().min(first + RUN)];
        first as u32 + pick(run, stream.next_u64())
    }
}

/// An outcome of a table: the word's product with the length has the cell in the upper half and the place within the cell in the lower.
#[inline(always)]
fn pick(cells: &[Cell], word: u64) -> u32 {
    let product = u128::from(word) * cells.len() as u128;
    let own = (product >> 64) as u32;
    let cell = cells[own as usize];
    if ((product as u64) >> 32) < u64::from(cell.threshold) { own } else { cell.other }
}

/// What building a table needs.
#[derive(Debug, Default)]
struct Room {
    share: Vec<f64>,
    small: Vec<u32>,
    large: Vec<u32>,
}

/// Places the cells of the distribution proportional to `weight(0..n)`: finite and not negative. Whether they are not all 0, so that there
/// is one.
fn build(
    n: usize,
    weight: impl Fn(usize) -> f64,
    room: &mut Room,
    mut place: impl FnMut(usize, Cell),
) -> bool {
    let Room { share, small, large } = room;
    let total: f64 = (0..n).map(&weight).sum();
    if total == 0.0 {
        return false;
    }
    share.clear();
    // in this order, for a weight of little more than 0 over such a total still is a share
    share.extend((0..n).map(|i| weight(i) / total * n as f64));
    small.clear();
    large.clear();
    for (i, share) in share.iter().enumerate() {
        if *share < 1.0 { small.push(i as u32) } else { large.push(i as u32) }
    }
    while let Some(&giver) = large.last() {
        let Some(taker) = small.pop() else { break };
        let (taker, giver) = (taker as usize, giver as usize);
        place(taker, Cell { threshold: (share[taker] * 4_294_967_296.0) as u32, other: giver as u32 });
        share[giver] -= 1.0 - share[taker];
        if share[giver] < 1.0 {
            large.pop();
            small.push(giver as u32);
        }
    }
    // What is left holds 1 but for rounding; yet what weighs nothing must never come up.
    large.iter().for_each(|&i| place(i as usize, Cell { threshold: 0, other: i }));
    if small.iter().any(|&i| weight(i as usize) == 0.0) {
        let heaviest = (0..n).max_by(|&a, &b| weight(a).total_cmp(&weight(b))).unwrap_or(0);
        for &i in small.iter() {
            let other = if weight(i as usize) == 0.0 { heaviest as u32 } else { i };
            place(i as usize, Cell { threshold: 0, other });
        }
    } else {
        small.iter().for_each(|&i| place(i as usize, Cell { threshold: 0, other: i }));
    }
    true
}

/// For each node a distribution over its in-neighbours: a cell of 8 bytes an edge, in the order of the graph's edges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowAlias {
    /// Per edge (`E`), `other` counting within the row; [`NOTHING`] throughout rows whose weights are all 0.
    cells: Vec<Cell>,
}

/// Where a draw landed in a [`RowAlias`], before it was looked at.
#[derive(Clone, Copy, Debug)]
pub struct Aim {
    /// The cell, by its place among all.
    cell: u64,
    /// The cell's number within the row.
    own: u32,
    /// The place within the cell, of 2^32.
    place: u32,
}

/// The `other` of a row that has nothing to draw.
const NOTHING: u32 = u32::MAX;

impl RowAlias {
    /// Rows proportional to `weights` (`E`, in the order of `graph.indices()`). O(V + E), parallel.
    ///
    /// # Errors
    /// The lengths disagree; a weight is negative or not finite; a row has 2^32 - 1 edges or more.
    pub fn new(graph: &Graph, weights: &[f32]) -> Result<Self> {
        if weights.len() != graph.num_edges() {
            return Err(Error::invalid(format!("{} weights for {} edges", weights.len(), graph.num_edges())));
        }
        if let Some(e) = weights.par_iter().position_first(|w| !(*w >= 0.0 && w.is_finite())) {
            return Err(Error::invalid(format!(
                "edge weight {e} is {}: weights are finite and at least 0",
                weights[e]
            )));
        }
        if let Some(v) =
            graph.indptr().par_windows(2).position_first(|ends| ends[1] - ends[0] >= u64::from(NOTHING))
        {
            return Err(Error::invalid(format!(
                "node {v} has 2^32 - 1 in-neighbours or more: too many for an alias table"
            )));
        }
        let mut cells = vec![Cell { threshold: 0, other: NOTHING }; weights.len()];
        // the cells of each run of rows
        let mut parts = Vec::with_capacity(graph.num_nodes().div_ceil(ROWS));
        let mut all = &mut cells[..];
        for first in (0..graph.num_nodes()).step_by(ROWS) {
            let rows = &graph.indptr()[first..=(first + ROWS).min(graph.num_nodes())];
            let (part, rest) = all.split_at_mut((rows[rows.len() - 1] - rows[0]) as usize);
            all = rest;
            parts.push((rows, part));
        }
        parts.into_par_iter().for_each_init(Room::default, |room, (rows, cells)| {
            for ends in rows.windows(2) {
                let first = (ends[0] - rows[0]) as usize;
                let row = &weights[ends[0] as usize..ends[1] as usize];
                build(row.len(), |i| f64::from(row[i]), room, |i, cell| cells[first + i] = cell);
            }
        });
        Ok(Self { cells })
    }

    /// `E`.
    pub fn num_edges(&self) -> usize {
        self.cells.len()
    }

    /// One in-neighbour of `v`, as its number within the row; `None` where there is none, or all weigh 0. One draw of 64 bits, and one read.
    /// `graph` is the one that this was made for.
    #[inline(always)]
    pub fn draw(&self, graph: &Graph, v: NodeId, stream: &mut Stream) -> Option<u32> {
        let (start, end) = (graph.indptr()[v as usize], graph.indptr()[v as usize + 1]);
        if start == end || self.cells[start as usize].other == NOTHING {
            return None;
        }
        Some((self.settle(self.aim(start, end, stream.next_u64())) - start) as u32)
    }

    /// The first half of [`RowAlias::draw`], from a random word: asks for the cell, of a row of edges `start..end` that is not empty.
    #[inline(always)]
    pub fn aim(&self, start: u64, end: u64, word: u64) -> Aim {
        let product = u128::from(word) * u128::from(end - start);
        let own = (product >> 64) as u32;
        let cell = start + u64::from(own);
        prefetch(&self.cells, cell as usize);
        Aim { cell, own, place: ((product as u64) >> 32) as u32 }
    }

    /// The second half: the position of the edge, of a row in which something can be drawn.
    #[inline(always)]
    pub fn settle(&self, aim: Aim) -> u64 {
        let cell = self.cells[aim.cell as usize];
        let other = aim.cell - u64::from(aim.own) + u64::from(cell.other);
        if aim.place < cell.threshold { aim.cell } else { other }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subgraph::testing::fits;

    #[test]
    fn outcomes_come_up_as_often_as_their_weights_say() {
        let many: Vec<f64> =
            (0..3 * RUN + 5).map(|i| if i % 7 == 0 { 0.0 } else { (i / RUN * 10 + i % 3) as f64 }).collect();
        for weights in [
            &[1.0, 0.0, 3.0, 0.5, 0.0, 5.5][..],
            &[7.0],
            &[1.0; 10],
            &[0.0, 1e-9, 0.0],
            &[1e300, 0.0, 3e300],
            &many,
        ] {
            let table = Alias::new(weights).unwrap();
            let mut stream = Stream::new(weights.len() as u64);
            // the many outcomes in kinds
            let kind = |i: usize| i / RUN * 21 + i % 21;
            let (mut counts, mut expected) = (vec![0; 100], vec![0.0; 100]);
            for (i, weight) in weights.iter().enumerate() {
                expected[kind(i)] += weight;
            }
            for _ in 0..200_000 {
                counts[kind(table.draw(&mut stream) as usize)] += 1;
            }
            fits(&counts, &expected);
        }
    }

    #[test]
    fn rows_are_drawn_by_their_weights() {
        // degrees 0, 3, 1, 2 (all 0), 4, and many more of one
        let mut indptr = vec![0, 0, 3, 4, 6, 10];
        indptr.extend((0..2 * ROWS as u64).map(|i| 11 + i));
        let edges = indptr[indptr.len() - 1] as usize;
        let mut weights = vec![2.0f32; edges];
        weights[..10].copy_from_slice(&[1.0, 0.0, 2.5, 4.0, 0.0, 0.0, 0.1, 0.2, 0.3, 0.4]);
        let graph = Graph::new(indptr.into(), vec![0; edges].into()).unwrap();
        let table = RowAlias::new(&graph, &weights).unwrap();
        let mut stream = Stream::new(8);
        assert_eq!((table.num_edges(), table.draw(&graph, 0, &mut stream)), (edges, None));
        for v in [1, 2, 3, 4, 5, 2 * ROWS as u32 + 4] {
            let row = graph.indptr()[v as usize] as usize..graph.indptr()[v as usize + 1] as usize;
            let row: Vec<f64> = weights[row].iter().map(|&w| f64::from(w)).collect();
            let mut counts = vec![0; row.len()];
            for _ in 0..50_000 {
                let drawn = table.draw(&graph, v, &mut stream);
                assert_eq!(drawn.is_none(), v == 3);
                drawn.into_iter().for_each(|i| counts[i as usize] += 1);
            }
            if v != 3 {
                fits(&counts, &row);
            }
        }
    }

    #[test]
    fn any_number_of_threads_builds_the_same() {
        let weights: Vec<f64> = (0..2 * RUN + 100).map(|i| (i * i % 1000) as f64).collect();
        let indptr: Vec<u64> = (0..=5000).map(|v| v * 13).collect();
        let graph = Graph::new(indptr.into(), vec![0; 65_000].into()).unwrap();
        let edges: Vec<f32> = weights[..65_000].iter().map(|&w| w as f32).collect();
        let build = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| (Alias::new(&weights).unwrap(), RowAlias::new(&graph, &edges).unwrap()))
        };
        assert!(build(1) == build(3));
    }

    #[test]
    fn weights_that_are_none_are_refused() {
        let bad = |weights: &[f64]| Alias::new(weights).unwrap_err().to_string();
        assert!(bad(&[]).contains("sum to 0") && bad(&[0.0; 3]).contains("sum to 0"));
        assert!(bad(&[1.0, -0.5]).contains("weight 1 is -0.5"));
        assert!(
            bad(&[f64::NAN]).contains("NaN") && bad(&[1.0, 2.0, f64::INFINITY]).contains("weight 2 is inf")
        );
        assert!(bad(&[f64::MAX; 2]).contains("infinity"));
        let graph = Graph::new(vec![0, 2].into(), vec![0, 0].into()).unwrap();
        let bad = |weights: &[f32]| RowAlias::new(&graph, weights).unwrap_err().to_string();
        assert!(bad(&[1.0]).contains("1 weights for 2 edges"));
        assert!(bad(&[1.0, -1.0]).contains("edge weight 1 is -1"));
    }
}
