//! LABOR's draws as ranges of rows that are kept in hash order.
//!
//! # Algorithm
//!
//! A hash `h` that the seed of the run chooses maps node ids to numbers of 32 bits. Each row keeps
//! the hashes of its in-neighbours in ascending order. The random number of a source `u` in a hop
//! is `r_u = h(u) - s` modulo 2^32, where the shift `s` is a random number of the hop. So the
//! neighbours that LABOR-0 takes, those with `r_u` below a threshold, are one cyclic range of the
//! row. Interpolation finds its ends, because hashes are uniform: the first guess is off by about
//! `sqrt(d) / 2` places, and a second by the root of that. `h` has an inverse, which turns the
//! hashes of the range back into ids.
//!
//! # Variance
//!
//! For a random `h`, the numbers `r_u` of a hop are independent and uniform, as those of the plain
//! form, so a hop has the same distribution: the same marginals, the same sharing between
//! destinations, the same variance. Hops and batches of a run share `h`. For every fixed `h` a
//! source is taken with exactly its probability, so the estimate of a sum is unbiased given `h`,
//! and the estimates of two batches are uncorrelated: averages over batches converge as before.
//! Neighbours with close hashes are drawn together all through a run, which the plain form does not
//! do, and the variance of one destination's estimate depends on `h`. It averages to that of the
//! plain form over destinations and seeds.
//!
//! # Source
//!
//! The independent form is section 3 of the paper ([`super`]); rows in hash order are ours. A
//! random shift of fixed numbers is systematic sampling: Madow and Madow, *On the theory of
//! systematic sampling*, Annals of Mathematical Statistics 15, 1944.
//!
//! # Cost
//!
//! O(E log d) once, parallel, and O(k + d^(1/4)) expected per destination.
//!
//! N.B. Counting 32 hashes around the guess without a branch per hash, in the place of the walk of
//! a search, was slower: 2.1 to 2.8 times as many edges a second as the independent form, against
//! 3.1 to 5.1 (`cargo bench -p graphmill-loader --bench sampling -- "samplers labor"`, three
//! invocations of each in turn).
//!
//! # Memory
//!
//! 4 bytes per edge.

#![allow(unsafe_code, reason = "vector instructions")]

use graphmill_core::{Block, Error, Graph, NodeId, Result, keyed, memory};
use rayon::prelude::*;

use super::{HopDraws, Numbers, PREFETCH_DISTANCE};
use crate::prefetch::prefetch;

/// Part of the key of the hash, so that it is no key of a draw.
const KEY: u64 = 0x6c61_626f_722d_6f72;
/// Number of nodes whose rows one task sorts.
const NODES: usize = 1024;
/// Places that a search walks from its guess before it bisects. Longer walks need equal hashes,
/// from parallel edges.
const MAX_WALK: usize = 64;
/// Numbers in a cache line.
const LINE: usize = 16;

/// Rows of a graph in the order of a hash.
#[derive(Debug)]
pub(super) struct HashOrder {
    /// Hashes of the in-neighbours, ascending within a row (`E`).
    hashes: Vec<u32>,
    hash: Numbers,
    ids: Inverse,
}

impl HashOrder {
    /// Sorts the rows of `graph` by a hash that `seed` chooses. Parallel.
    pub(super) fn new(graph: &Graph, seed: u64) -> Self {
        Self::by(Numbers::new(keyed::key(&[seed, KEY])), graph)
    }

    /// The rows of `graph`, another one, in the order of the same hash. Parallel.
    pub(super) fn of_rows(&self, graph: &Graph) -> Self {
        Self::by(self.hash, graph)
    }

    /// Sorts the rows of `graph` by a hash.
    fn by(hash: Numbers, graph: &Graph) -> Self {
        let mut hashes = memory::demand_par_collect(graph.indices().par_iter().map(|&u| hash.of(u)));
        let (mut tasks, mut rest) = (Vec::new(), &mut hashes[..]);
        let nodes = 0..graph.num_nodes();
        for first in nodes.clone().step_by(NODES) {
            let ends = &graph.indptr()[first..=(first + NODES).min(nodes.end)];
            let (rows, after) = rest.split_at_mut((ends[ends.len() - 1] - ends[0]) as usize);
            rest = after;
            tasks.push((ends, rows));
        }
        tasks.into_par_iter().for_each(|(ends, rows)| {
            for row in ends.windows(2) {
                rows[(row[0] - ends[0]) as usize..(row[1] - ends[0]) as usize].sort_unstable();
            }
        });
        Self { hashes, hash, ids: Inverse::of_numbers(hash) }
    }

    /// Checks that `graph` has as many edges as the graph that was sorted.
    pub(super) fn check(&self, graph: &Graph) -> Result<()> {
        let (sorted, edges) = (self.hashes.len(), graph.num_edges());
        if sorted == edges {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "LABOR's draws as ranges: the graph has {edges} edges, but the sampler was made for one of \
             {sorted}; make the sampler for the graph that it draws from"
        )))
    }

    /// Appends the neighbours of `dst` in `hop`, whose graph must be the one that was sorted.
    pub(super) fn draw(&self, hop: &HopDraws, dst: &[NodeId], block: &mut Block) {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has the feature that the function requires, as just checked.
            return unsafe { self.draw_avx2(hop, dst, block) };
        }
        self.draw_any(hop, dst, block);
    }

    /// As [`HashOrder::draw_any`], compiled for eight ids at a time.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn draw_avx2(&self, hop: &HopDraws, dst: &[NodeId], block: &mut Block) {
        self.draw_any(hop, dst, block);
    }

    #[inline(always)]
    fn draw_any(&self, hop: &HopDraws, dst: &[NodeId], block: &mut Block) {
        let &HopDraws { graph, fanout, .. } = hop;
        let (rows, neighbors, shift) = (graph.indptr(), graph.indices(), shift(hop.key));
        for (i, &v) in dst.iter().enumerate() {
            if let Some(&ahead) = dst.get(i + 2 * PREFETCH_DISTANCE) {
                prefetch(rows, ahead as usize);
            }
            if let Some(&ahead) = dst.get(i + PREFETCH_DISTANCE) {
                let (first, end) = (rows[ahead as usize] as usize, rows[ahead as usize + 1] as usize);
                if end - first <= fanout {
                    prefetch(neighbors, first);
                } else {
                    let at = first + guess(end - first, shift);
                    prefetch(&self.hashes, at);
                    prefetch(&self.hashes, at + LINE);
                }
            }
            let row = rows[v as usize] as usize..rows[v as usize + 1] as usize;
            if row.len() <= fanout {
                memory::demand_append(&mut block.indices, &neighbors[row]);
            } else {
                self.take(&self.hashes[row], fanout, shift, &mut block.indices);
            }
            hop.finish(v, block);
        }
    }

    /// Appends the neighbours of `row`, longer than `fanout`, whose hashes are at most a threshold
    /// after `shift`.
    #[inline(always)]
    fn take(&self, row: &[u32], fanout: usize, shift: u32, out: &mut Vec<NodeId>) {
        let end = shift.wrapping_add(super::threshold(fanout, row.len()));
        let first = position(row, shift, guess(row.len(), shift));
        if shift <= end {
            let last = position(row, end, first + fanout);
            self.append(&row[first..last], out);
        } else {
            self.append(&row[first..], out);
            let last = position(row, end, guess(row.len(), end));
            self.append(&row[..last], out);
        }
    }

    /// Appends the ids of `hashes`.
    #[inline(always)]
    fn append(&self, hashes: &[u32], out: &mut Vec<NodeId>) {
        memory::demand_extend(out, hashes.iter().map(|&hash| self.ids.of(hash)));
    }
}

/// Shift of the hashes in the hop of a key.
fn shift(key: u64) -> u32 {
    (keyed::mix(key) >> 32) as u32
}

/// Expected number of hashes below `target` in a row of `len`.
#[inline(always)]
fn guess(len: usize, target: u32) -> usize {
    ((len as u64 * u64::from(target)) >> 32) as usize
}

/// Number of hashes below `target` in `row`, not empty, which is about `guess`.
#[inline(always)]
fn position(row: &[u32], target: u32, guess: usize) -> usize {
    let last = row.len() - 1;
    let guess = guess.min(last);
    let distance = i128::from(target) - i128::from(row[guess]);
    let step = ((distance * row.len() as i128) >> 32) as isize;
    let mut at = guess.saturating_add_signed(step).min(last);
    for _ in 0..MAX_WALK {
        if at < row.len() && row[at] < target {
            at += 1;
        } else if at > 0 && row[at - 1] >= target {
            at -= 1;
        } else {
            return at;
        }
    }
    row.partition_point(|&hash| hash < target)
}

/// The inverse of [`Numbers::of`].
#[derive(Clone, Copy, Debug)]
struct Inverse {
    factor: u32,
    term: u32,
}

impl Inverse {
    fn of_numbers(numbers: Numbers) -> Self {
        Self { factor: reciprocal(numbers.factor), term: numbers.term }
    }

    /// The node whose number is `z`.
    #[inline(always)]
    fn of(self, mut z: u32) -> NodeId {
        const SECOND: u32 = reciprocal(Numbers::SECOND);
        const FIRST: u32 = reciprocal(Numbers::FIRST);
        z = (z ^ (z >> 16)).wrapping_mul(SECOND);
        z = (z ^ (z >> 15) ^ (z >> 30)).wrapping_mul(FIRST);
        (z ^ (z >> 16)).wrapping_sub(self.term).wrapping_mul(self.factor)
    }
}

/// Reciprocal of an odd number modulo 2^32, by Newton's method: each step doubles the number of
/// correct bits, of which the number itself has three.
const fn reciprocal(odd: u32) -> u32 {
    let (mut inverse, mut step) = (odd, 0);
    while step < 4 {
        inverse = inverse.wrapping_mul(2u32.wrapping_sub(odd.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        BatchKey, BlockLayout, MinibatchSampler, Seeds, Workspace,
        sampler::{
            BatchRequest, HopStack,
            labor::{Iterations, Labor, LaborDraws, LaborOptions},
            weighted::EdgeWeights,
        },
        subgraph::testing::graph_of,
    };

    const RANGES: LaborOptions =
        LaborOptions { labor_iterations: Iterations(0), labor_draws: LaborDraws::Ranges };

    /// The draws by definition: every neighbour whose number in the hop is below the threshold.
    fn reference(graph: &Graph, fanout: usize, seed: u64, key: u64, v: NodeId) -> Vec<NodeId> {
        let (hash, row) = (Numbers::new(keyed::key(&[seed, KEY])), graph.in_neighbors(v));
        let takes = |u: NodeId| {
            let number = hash.of(u).wrapping_sub(shift(key));
            row.len() <= fanout || u64::from(number) < ((fanout as u64) << 32) / row.len() as u64
        };
        row.iter().copied().filter(|&u| takes(u)).collect()
    }

    /// The draws of `dst`, one row each.
    fn drawn(graph: &Graph, fanout: usize, seed: u64, key: u64, dst: &[NodeId]) -> Vec<Vec<NodeId>> {
        let mut block = Block { indptr: vec![0], ..Block::default() };
        let hop = HopDraws { graph, fanout, key, is_weighted: false };
        HashOrder::new(graph, seed).draw(&hop, dst, &mut block);
        let rows = block.indptr.windows(2);
        rows.map(|ends| block.indices[ends[0] as usize..ends[1] as usize].to_vec()).collect()
    }

    proptest! {
        /// A search finds the ends, whatever the row: dense, sparse, or full of parallel edges.
        #[test]
        fn draws_are_the_neighbours_below_the_threshold(
            rows in prop::collection::vec((0usize..2000, 1u32..5000), 1..12),
            fanout in 1usize..40, seed: u64, key: u64,
        ) {
            let mut stream = keyed::Stream::new(seed);
            let rows: Vec<Vec<NodeId>> = rows
                .iter()
                .map(|&(len, ids)| (0..len).map(|_| stream.below(ids.into()) as NodeId).collect())
                .collect();
            let dst: Vec<NodeId> = (0..rows.len() as NodeId).rev().collect();
            let mut all: Vec<&[NodeId]> = rows.iter().map(|row| &row[..]).collect();
            all.resize(5000, &[]);
            let graph = graph_of(&all);
            for (&v, mut found) in dst.iter().zip(drawn(&graph, fanout, seed, key, &dst)) {
                let mut expected = reference(&graph, fanout, seed, key, v);
                found.sort_unstable();
                expected.sort_unstable();
                prop_assert_eq!(found, expected);
            }
        }

        #[test]
        fn positions_are_found_from_any_guess(
            mut row in prop::collection::vec(any::<u32>(), 1..300), target: u32, guess in 0usize..400,
        ) {
            row.sort_unstable();
            prop_assert_eq!(position(&row, target, guess), row.partition_point(|&hash| hash < target));
        }

        #[test]
        fn hashes_have_an_inverse(key: u64, id: NodeId) {
            let numbers = Numbers::new(key);
            prop_assert_eq!(Inverse::of_numbers(numbers).of(numbers.of(id)), id);
        }
    }

    /// In-neighbours: 3 to 42 of node 0, 3 to 14 of node 1, 3 to 6 of node 2.
    fn nested() -> Graph {
        let rows: Vec<Vec<NodeId>> = vec![(3..43).collect(), (3..15).collect(), (3..7).collect()];
        let mut rows: Vec<&[NodeId]> = rows.iter().map(|row| &row[..]).collect();
        rows.resize(43, &[]);
        graph_of(&rows)
    }

    #[test]
    fn neighbours_are_drawn_with_their_probability_and_shared() {
        let (graph, orders, shifts) = (nested(), 20_000u64, 2u64);
        let (mut counts, mut pairs) = ([[0u32; 43]; 3], [0u32; 43]);
        for number in 0..orders * shifts {
            let rows = drawn(&graph, 5, number / shifts, keyed::key(&[number]), &[0, 1, 2]);
            // a source that the higher degree takes is taken by the lower degree too
            assert!(rows[0].iter().filter(|&&u| u < 15).all(|u| rows[1].contains(u)));
            (0..3).for_each(|v| rows[v].iter().for_each(|&u| counts[v][u as usize] += 1));
            if rows[0].contains(&3) {
                rows[0].iter().for_each(|&u| pairs[u as usize] += 1);
            }
        }
        let chi = |counts: &[u32], n: f64, p: f64| -> f64 {
            counts.iter().map(|&c| (f64::from(c) - n * p).powi(2) / (n * p * (1.0 - p))).sum()
        };
        let runs = (orders * shifts) as f64;
        // chi-square with 40, 12 and 39 degrees of freedom: exceeded with probability 1e-5
        assert!(chi(&counts[0][3..], runs, 5.0 / 40.0) < 89.0);
        assert!(chi(&counts[1][3..15], runs, 5.0 / 12.0) < 46.0);
        assert!(counts[2][3..7].iter().all(|&c| f64::from(c) == runs));
        // over all orders, neighbours are independent of one another
        assert!(chi(&pairs[4..], pairs[3].into(), 5.0 / 40.0) < 87.0);
    }

    #[test]
    fn sums_have_the_variance_of_independent_draws() {
        let (graph, orders, shifts) = (nested(), 2000u64, 50u64);
        let x = |u: NodeId| f64::from(u * u % 23) + 1.0;
        let p = 5.0 / 40.0;
        let row = graph.in_neighbors(0);
        let exact: f64 = row.iter().map(|&u| x(u)).sum();
        let independent: f64 = row.iter().map(|&u| x(u) * x(u) * (1.0 / p - 1.0)).sum();
        let (mut single, mut of_means) = (0.0, 0.0);
        for order in 0..orders {
            let sorted = HashOrder::new(&graph, order);
            let mut mean = 0.0;
            for number in 0..shifts {
                let mut block = Block { indptr: vec![0], ..Block::default() };
                let key = keyed::key(&[order, number]);
                let hop = HopDraws { graph: &graph, fanout: 5, key, is_weighted: false };
                sorted.draw(&hop, &[0], &mut block);
                let error = block.indices.iter().map(|&u| x(u) / p).sum::<f64>() - exact;
                single += error * error / (orders * shifts) as f64;
                mean += error / shifts as f64;
            }
            of_means += mean * mean / orders as f64;
        }
        assert!((single / independent - 1.0).abs() < 0.03, "{single}, not {independent}");
        // batches of one order are uncorrelated: a mean of 50 has a fiftieth of the variance
        let found = of_means * shifts as f64 / independent;
        assert!((found - 1.0).abs() < 0.15, "{found}");
    }

    #[test]
    fn any_number_of_threads_draws_the_same() {
        let mut stream = keyed::Stream::new(3);
        let indptr: Vec<u64> = (0..=3000).map(|v| v * 60).collect();
        let indices: Vec<NodeId> = (0..180_000).map(|_| stream.below(3000) as NodeId).collect();
        let graph = Graph::new(indptr.into(), indices.into()).unwrap();
        let draw = |threads: usize, parallel| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let labor = Labor::with_options(&graph, [9, 4], &RANGES, EdgeWeights::Stored, 7).unwrap();
                let mut workspace = Workspace::new(3000);
                workspace.set_parallel(parallel);
                let request = BatchRequest::new(&graph, BatchKey { seed: 7, epoch: 1, batch: 2 })
                    .with_layout(BlockLayout::default());
                let seeds = Seeds::new(2, (0..900).collect::<Vec<NodeId>>());
                let batch = HopStack::new(labor).sample(&request, &mut workspace, seeds).unwrap();
                let blocks: Vec<_> =
                    batch.blocks.iter().map(|b| (b.indptr.clone(), b.indices.clone())).collect();
                (batch.input_nodes.clone(), blocks)
            })
        };
        let one = draw(1, false);
        assert!(one == draw(2, true) && one == draw(5, true));
    }

    #[test]
    fn ranges_refuse_what_changes_probabilities() {
        let graph = nested();
        let weighted = graph.clone().with_edge_weight(vec![1.0; 56].into()).unwrap();
        let refusal = |graph: &Graph, fanout: i64, options: &LaborOptions, weights| {
            Labor::with_options(graph, [fanout], options, weights, 0).unwrap_err()
        };
        let iterated = LaborOptions { labor_iterations: Iterations(1), ..RANGES };
        for (message, reason) in [
            (refusal(&weighted, 5, &RANGES, EdgeWeights::Stored), "edges have weights"),
            (refusal(&graph, 5, &RANGES, EdgeWeights::InDegree), "edges have weights"),
            (refusal(&graph, 5, &iterated, EdgeWeights::Stored), "--labor-iterations 1"),
            (refusal(&graph, -1, &RANGES, EdgeWeights::Stored), "takes all neighbours"),
        ] {
            assert!(message.contains(reason) && message.contains("--labor-draws independent"), "{message}");
        }
    }
}
