//! Structure of a graph around a pair of nodes, without the pair's own edge.
//!
//! # Algorithm
//!
//! The graph is read without directions, parallel edges and loops. `d(w)` is the degree of `w`; `a`
//! is the end with the smaller degree and `b` the other one, both degrees without the edge between
//! them; `w` and `x` are other nodes. The features of a pair are, in this order:
//!
//! | features | value |
//! | --- | --- |
//! | 2 | `ln(1 + d(a))`, `ln(1 + d(b))` |
//! | 4 | 1 if `d(a) = 0`, `d(a) = 1`, `d(b) = 0`, `d(b) = 1`, else 0 |
//! | 1 | common neighbours: `ln(1 + C)`, with `C` the number of `w` in `N(a)` and `N(b)` |
//! | 1 | Adamic-Adar: `ln(1 + sum 1 / ln max(2, d(w)))` over these `w` |
//! | 1 | resource allocation: `sum 1 / d(w)` |
//! | 1 | Jaccard: `C / (d(a) + d(b) - C)` |
//! | 2 | paths `a - w - x - b`: `ln(1 + number)`, `ln(1 + sum 1 / sqrt(d(w) d(x)))` |
//! | 3 | `(m + n) / 2`, `abs(m - n)`, `m n / 4`: `m` is `ln(1 + mean degree in N(a))`, `n` of `b` |
//! | 6 | 1 for the distance: 2, 3, 4, 5, 6, or more; all 0 for a node with itself |
//!
//! No feature depends on the pair's own edge: the features of a pair in a graph with the edge have
//! the bits of those in the graph without it, and those of both orders of the ends are the same.
//!
//! Three searches read rows of neighbours: one for common neighbours, one for paths of three edges,
//! and, if neither finds one, one for the distance, from both ends by levels. Each reads at most
//! [`MAX_READ`] entries of rows, in a fixed order, and ends there: counts are then those of the
//! entries that it has read, and the distance counts as more than 6.
//!
//! The nodes that two rows share are searched for: each node of the shorter row in the longer one.
//! Reading both rows gives the same nodes in the same order, and is faster unless one is much
//! longer: bits of the row of `b`, set once a pair, reject most entries of the other rows. The
//! entries that count are always those of the search.
//!
//! # Source
//!
//! Liben-Nowell and Kleinberg, *The link prediction problem for social networks*, CIKM 2003
//! (common neighbours, Jaccard, paths); Adamic and Adar, *Friends and neighbors on the Web*,
//! Social Networks 25, 2003; Zhou, Lü and Zhang, *Predicting missing links via local information*,
//! European Physical Journal B 71, 2009 (resource allocation); Zhang and Chen, *Link prediction
//! based on graph neural networks*, NeurIPS 2018 (the structure around a pair without its own
//! edge).
//!
//! # Cost
//!
//! O(d(a) + d(b)) for common neighbours, O(D) for paths with `D` the sum of the degrees of the
//! neighbours of `a`, of which one whose degree is above `8 d(b)` counts `d(b) log d` instead, and
//! O(1) for each entry that the search for the distance reads: at most `3 MAX_READ` entries a pair,
//! and eight times as many for paths where rows are read whole.
//!
//! # Memory
//!
//! 8 bytes for each edge of the graph without directions and 16 for each node; twice the bytes of
//! edges while it is made from a graph that stores both directions. 516 KiB for each thread that
//! searches.
//!
//! # Deviations
//!
//! SEAL learns from the subgraph around a pair; these are fixed functions of it.

#![forbid(unsafe_code)]

mod distance;
mod shared;

use std::{cell::RefCell, mem};

use graphmill_core::{Graph, NodeId, Result, memory};
use rayon::prelude::*;

use self::{
    distance::Search,
    shared::{Filtered, entries, filtered, shared},
};

/// Number of features of a pair, `K`.
pub const WIDTH: usize = 21;
/// Most entries of rows that a search of a pair reads.
pub const MAX_READ: usize = 1 << 14;
/// Largest distance that has a feature of its own.
const FARTHEST: usize = 6;
/// Number of entries that are read in the time of a search.
const SCANNED: usize = 8;
/// Entries of rows that a task sorts.
const MIN_SORTED: usize = 1 << 14;

/// Neighbours of all nodes, without directions, parallel edges and loops.
///
/// ```
/// use graphmill_core::Graph;
/// use graphmill_nn::link::structure::{PairStructure, WIDTH};
///
/// // a path 0 - 1 - 2 and an edge 0 - 2, each stored in one direction
/// let graph = Graph::new(vec![0, 0, 1, 3].into(), vec![0, 0, 1].into())?;
/// let structure = PairStructure::new(&graph)?;
/// let mut features = [0.0; WIDTH];
/// structure.write([0, 2], &mut features);
/// // without their edge, both ends have one neighbour, which they share
/// assert_eq!(features[0], 2f32.ln());
/// assert_eq!(features[6], 2f32.ln());
/// # Ok::<(), graphmill_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairStructure {
    /// Start of each node's row, `V + 1`.
    indptr: Vec<u64>,
    /// Neighbours, ascending and distinct in each row.
    neighbors: Vec<NodeId>,
    /// Sum of the degrees of each node's neighbours, `V`.
    around: Vec<u64>,
}

impl PairStructure {
    /// Reads the edges of a graph without their directions. O(E log d), the sort in parallel.
    ///
    /// # Errors
    /// Memory runs out.
    ///
    /// # Panics
    /// A neighbour is not a node of the graph, whose edges join two types: a bug in the caller.
    pub fn new(graph: &Graph) -> Result<Self> {
        let nodes = graph.num_nodes();
        let mut indptr: Vec<u64> = memory::zeroed(nodes + 1)?;
        let each = |see: &mut dyn FnMut(NodeId, NodeId)| {
            for v in 0..nodes as NodeId {
                graph.in_neighbors(v).iter().filter(|&&u| u != v).for_each(|&u| see(u, v));
            }
        };
        each(&mut |u, v| [u, v].iter().for_each(|&w| indptr[w as usize + 1] += 1));
        for v in 0..nodes {
            indptr[v + 1] += indptr[v];
        }
        let mut neighbors: Vec<NodeId> = memory::zeroed(indptr[nodes] as usize)?;
        let mut next: Vec<u64> = memory::reserve(nodes)?;
        next.extend_from_slice(&indptr[..nodes]);
        each(&mut |u, v| {
            for (of, other) in [(u, v), (v, u)] {
                let next = &mut next[of as usize];
                neighbors[*next as usize] = other;
                *next += 1;
            }
        });
        drop(next);
        sort_rows(&indptr, &mut neighbors);
        let (mut start, mut len) = (0, 0);
        for v in 0..nodes {
            let end = indptr[v + 1] as usize;
            let first = len;
            for i in start..end {
                let other = neighbors[i];
                if len == first || neighbors[len - 1] != other {
                    neighbors[len] = other;
                    len += 1;
                }
            }
            indptr[v + 1] = len as u64;
            start = end;
        }
        neighbors.truncate(len);
        neighbors.shrink_to_fit();
        let mut structure = Self { indptr, neighbors, around: memory::zeroed(nodes)? };
        let mut around = mem::take(&mut structure.around);
        around.par_iter_mut().enumerate().with_min_len(64).for_each(|(v, sum)| {
            *sum = structure.row(v as NodeId).iter().map(|&w| structure.row(w).len() as u64).sum();
        });
        structure.around = around;
        Ok(structure)
    }

    /// Structure of `nodes` nodes without edges. O(V).
    ///
    /// # Errors
    /// Memory runs out.
    pub fn without_edges(nodes: usize) -> Result<Self> {
        Ok(Self { indptr: memory::zeroed(nodes + 1)?, neighbors: Vec::new(), around: memory::zeroed(nodes)? })
    }

    /// Number of nodes, `V`.
    pub fn num_nodes(&self) -> usize {
        self.around.len()
    }

    /// Neighbours of a node, ascending.
    fn row(&self, v: NodeId) -> &[NodeId] {
        &self.neighbors[self.indptr[v as usize] as usize..self.indptr[v as usize + 1] as usize]
    }

    /// Overwrites `out` (`K`) with the features of a pair.
    ///
    /// # Panics
    /// A node is not below `V`, or `out` has another length than [`WIDTH`]: a bug in the caller.
    pub fn write(&self, [u, v]: [NodeId; 2], out: &mut [f32]) {
        let is_edge = self.row(u).binary_search(&v).is_ok();
        let degree = |of: NodeId| self.row(of).len() - usize::from(is_edge);
        let [a, b] = if (degree(u), u) <= (degree(v), v) { [u, v] } else { [v, u] };
        let [of_a, of_b] = [degree(a), degree(b)];
        let (common, paths) = filtered(self.row(b), |neighbors| {
            (self.common_neighbors([a, b], neighbors), self.paths([a, b], neighbors, of_b))
        });
        let mean = |end: NodeId, other: NodeId, degree: usize| {
            let of_other = if is_edge { self.row(other).len() as u64 } else { 0 };
            ((self.around[end as usize] - of_other) as f64 / degree.max(1) as f64).ln_1p()
        };
        let [m, n] = [mean(a, b, of_a), mean(b, a, of_b)];
        let is = |found: bool| f64::from(u8::from(found));
        let jaccard = common.count as f64 / (of_a + of_b - common.count).max(1) as f64;
        let values: [f64; WIDTH - FARTHEST] = [
            (of_a as f64).ln_1p(),
            (of_b as f64).ln_1p(),
            is(of_a == 0),
            is(of_a == 1),
            is(of_b == 0),
            is(of_b == 1),
            (common.count as f64).ln_1p(),
            common.adamic_adar.ln_1p(),
            common.allocated,
            jaccard,
            (paths.count as f64).ln_1p(),
            paths.weight.ln_1p(),
            (m + n) / 2.0,
            (m - n).abs(),
            m * n / 4.0,
        ];
        let (fixed, distances) = out.split_at_mut(values.len());
        fixed.iter_mut().zip(values).for_each(|(out, value)| *out = value as f32);
        distances.fill(0.0);
        if u != v {
            let distance = match (common.count, paths.count) {
                (1.., _) => Some(2),
                (_, 1..) => Some(3),
                _ => SEARCH.with_borrow_mut(|search| search.distance(self, [a, b])),
            };
            distances[distance.unwrap_or(FARTHEST + 1) - 2] = 1.0;
        }
        assert_eq!(distances.len(), FARTHEST, "features of a pair");
    }

    /// Neighbours of both ends. `of_b` has those of `b`.
    fn common_neighbors(&self, [a, b]: [NodeId; 2], of_b: &Filtered) -> Common {
        let mut found = Common::default();
        let see = |w: NodeId| {
            // below 2 only if both ends are one node
            let degree = self.row(w).len() as f64;
            found.count += 1;
            found.adamic_adar += degree.max(2.0).ln().recip();
            found.allocated += degree.recip();
        };
        let own = self.row(a);
        if own.len() <= MAX_READ {
            of_b.shared(own, b, see);
        } else {
            shared(own, of_b.row, b, &mut { MAX_READ }, see);
        }
        found
    }

    /// Paths of three edges from `a` to `b`. `of_b` has the neighbours of `b`, and `degree` is
    /// their number without `a`.
    fn paths(&self, [a, b]: [NodeId; 2], of_b: &Filtered, degree: usize) -> Paths {
        let (mut found, mut left) = (Paths::default(), MAX_READ);
        // a bound of the entries that are read, whichever rows they are in
        let most = (self.around[a as usize]).min(self.row(a).len() as u64 * of_b.row.len() as u64);
        let is_short = most <= MAX_READ as u64;
        for &w in self.row(a).iter().filter(|&&w| w != b) {
            if left == 0 {
                break;
            }
            let own = self.row(w);
            let see = |x: NodeId| {
                found.count += 1;
                found.weight += (own.len() as f64 * self.row(x).len() as f64).sqrt().recip();
            };
            let (read, other) = if own.len() <= degree { (own, of_b.row) } else { (of_b.row, own) };
            if own.len() > SCANNED * degree || left < read.len() {
                shared(read, other, a, &mut left, see);
                continue;
            }
            of_b.shared(own, a, see);
            if !is_short {
                left -= entries(read, other, a);
            }
        }
        found
    }
}

/// Neighbours of both ends: their number and sums over them.
#[derive(Default)]
struct Common {
    count: usize,
    adamic_adar: f64,
    allocated: f64,
}

/// Paths of three edges: their number, and the sum of their weights.
#[derive(Default)]
struct Paths {
    count: usize,
    weight: f64,
}

thread_local! {
    static SEARCH: RefCell<Search> = RefCell::default();
}

/// Sorts each row.
fn sort_rows(indptr: &[u64], rows: &mut [NodeId]) {
    let count = indptr.len() - 1;
    if count <= 1 || rows.len() <= MIN_SORTED {
        let mut left = rows;
        for ends in indptr.windows(2) {
            let row;
            (row, left) = left.split_at_mut((ends[1] - ends[0]) as usize);
            row.sort_unstable();
        }
        return;
    }
    let middle = count / 2;
    let (first, second) = rows.split_at_mut((indptr[middle] - indptr[0]) as usize);
    rayon::join(|| sort_rows(&indptr[..=middle], first), || sort_rows(&indptr[middle..], second));
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashSet};

    use graphmill_core::keyed::{Stream, key};

    use super::*;

    /// A graph with these edges, each stored in the given direction.
    fn graph(nodes: usize, edges: &[[NodeId; 2]]) -> Graph {
        let mut rows = vec![Vec::new(); nodes];
        edges.iter().for_each(|&[u, v]| rows[v as usize].push(u));
        let mut indptr = vec![0u64];
        rows.iter().for_each(|row: &Vec<NodeId>| indptr.push(indptr[indptr.len() - 1] + row.len() as u64));
        Graph::new(indptr.into(), rows.concat().into()).unwrap()
    }

    /// Random edges, with loops, parallel edges and both directions among them.
    fn edges(nodes: u64, count: usize, seed: u64) -> Vec<[NodeId; 2]> {
        let mut stream = Stream::new(key(&[seed]));
        let mut below = || stream.below(nodes) as NodeId;
        (0..count).map(|i| if i % 20 == 0 { [3, 3] } else { [below(), below()] }).collect()
    }

    fn features(of: &PairStructure, pair: [NodeId; 2]) -> [u32; WIDTH] {
        let mut out = [f32::NAN; WIDTH];
        of.write(pair, &mut out);
        out.map(f32::to_bits)
    }

    /// Neighbours of all nodes, without the edge of a pair.
    fn sets(nodes: usize, edges: &[[NodeId; 2]], [u, v]: [NodeId; 2]) -> Vec<BTreeSet<NodeId>> {
        let mut sets = vec![BTreeSet::new(); nodes];
        for &[x, y] in edges.iter().filter(|&&[x, y]| x != y && [x, y] != [u, v] && [x, y] != [v, u]) {
            sets[x as usize].insert(y);
            sets[y as usize].insert(x);
        }
        sets
    }

    /// The features by their definitions, from sets.
    fn reference(nodes: usize, edges: &[[NodeId; 2]], [u, v]: [NodeId; 2]) -> Vec<f64> {
        let sets = sets(nodes, edges, [u, v]);
        let degree = |w: NodeId| sets[w as usize].len() as f64;
        let [a, b] = if (degree(u), u) <= (degree(v), v) { [u, v] } else { [v, u] };
        let [of_a, of_b] = [&sets[a as usize], &sets[b as usize]];
        let is = |found: bool| f64::from(u8::from(found));
        let common: Vec<NodeId> = of_a.intersection(of_b).copied().collect();
        let mut paths = Vec::new();
        for &w in of_a {
            paths.extend(sets[w as usize].iter().filter(|&x| *x != a && of_b.contains(x)).map(|&x| (w, x)));
        }
        let mean = |of: &BTreeSet<NodeId>| {
            let sum: f64 = of.iter().map(|&w| degree(w)).sum();
            (sum / of.len().max(1) as f64).ln_1p()
        };
        let (m, n) = (mean(of_a), mean(of_b));
        let mut all = vec![degree(a).ln_1p(), degree(b).ln_1p()];
        all.extend([is(of_a.is_empty()), is(of_a.len() == 1), is(of_b.is_empty()), is(of_b.len() == 1)]);
        all.push((common.len() as f64).ln_1p());
        all.push(common.iter().map(|&w| 1.0 / degree(w).max(2.0).ln()).sum::<f64>().ln_1p());
        all.push(common.iter().map(|&w| 1.0 / degree(w)).sum());
        all.push(common.len() as f64 / of_a.union(of_b).count().max(1) as f64);
        all.push((paths.len() as f64).ln_1p());
        let weight = |&(w, x): &(NodeId, NodeId)| 1.0 / (degree(w) * degree(x)).sqrt();
        all.push(paths.iter().map(weight).sum::<f64>().ln_1p());
        all.extend([(m + n) / 2.0, (m - n).abs(), m * n / 4.0]);
        let (mut reached, mut distance) = (HashSet::from([a]), 0);
        while !reached.contains(&b) && distance <= 6 {
            let more: Vec<NodeId> = reached.iter().flat_map(|&w| sets[w as usize].iter().copied()).collect();
            reached.extend(more);
            distance += 1;
        }
        all.extend((2..=7).map(|of| is(of == distance)));
        all
    }

    /// All pairs of a graph whose components are dense, sparse and paths.
    fn all_pairs(nodes: NodeId) -> impl Iterator<Item = [NodeId; 2]> {
        (0..nodes).flat_map(move |u| (0..nodes).map(move |v| [u, v]))
    }

    fn mixed() -> (usize, Vec<[NodeId; 2]>) {
        let mut all = edges(20, 90, 1);
        all.extend(edges(25, 25, 2).into_iter().map(|[u, v]| [u + 15, v + 15]));
        // a path of nine edges, a cycle of ten, and nodes without edges
        all.extend((40..49).map(|v| [v, v + 1]));
        all.extend((50..60).map(|v| [v, if v == 59 { 50 } else { v + 1 }]));
        (63, all)
    }

    #[test]
    fn features_are_those_of_their_definitions() {
        let (nodes, edges) = mixed();
        let structure = PairStructure::new(&graph(nodes, &edges)).unwrap();
        let mut seen = [0; WIDTH];
        for pair in all_pairs(nodes as NodeId) {
            let found = features(&structure, pair).map(f32::from_bits);
            let expected = reference(nodes, &edges, pair);
            assert_eq!(expected.len(), WIDTH);
            for (i, (&found, expected)) in found.iter().zip(expected).enumerate() {
                let off = (f64::from(found) - expected).abs();
                assert!(off < 1e-5 * expected.abs().max(1.0), "{pair:?}, feature {i}: {found}, {expected}");
                seen[i] += usize::from(expected != 0.0);
            }
        }
        // every feature is different from 0 for some pairs
        assert!(seen.iter().all(|&count| count > 0), "{seen:?}");
    }

    #[test]
    fn the_own_edge_of_a_pair_is_never_read() {
        let (nodes, edges) = mixed();
        let whole = PairStructure::new(&graph(nodes, &edges)).unwrap();
        for &[u, v] in edges.iter().filter(|[u, v]| u != v) {
            let others: Vec<_> = edges.iter().copied().filter(|&e| e != [u, v] && e != [v, u]).collect();
            let without = PairStructure::new(&graph(nodes, &others)).unwrap();
            let mut both = others.clone();
            both.extend([[u, v], [v, u]]);
            let with_both = PairStructure::new(&graph(nodes, &both)).unwrap();
            let expected = features(&without, [u, v]);
            for of in [&whole, &with_both, &without] {
                assert_eq!(features(of, [u, v]), expected, "{u} - {v}");
                assert_eq!(features(of, [v, u]), expected, "{v} - {u}");
            }
        }
    }

    /// Hubs whose rows exceed the number of entries that a search reads.
    #[test]
    fn searches_end_after_a_fixed_number_of_entries() {
        let leaves = 4..(MAX_READ + 1000) as NodeId;
        let (nodes, [a, b, c, d]) = (leaves.end as usize, [0, 1, 2, 3]);
        // `a` and `b` share all leaves; `c` and `d` have one neighbour each
        let mut all: Vec<[NodeId; 2]> = leaves.flat_map(|w| [[w, a], [w, b]]).collect();
        all.extend([[c, a], [d, b]]);
        let structure = PairStructure::new(&graph(nodes, &all)).unwrap();
        // one of the entries is `c`
        let values = features(&structure, [a, b]).map(f32::from_bits);
        assert_eq!(values[6], ((MAX_READ - 1) as f64).ln_1p() as f32);
        // four edges apart, over a hub that is not read to its end
        let values = features(&structure, [c, d]).map(f32::from_bits);
        assert_eq!(values[WIDTH - FARTHEST..], [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
        // the own edge does not count as an entry
        let with = [&all[..], &[[a, b], [c, d]]].concat();
        let with = PairStructure::new(&graph(nodes, &with)).unwrap();
        for pair in [[a, b], [b, a], [c, d]] {
            let other = if pair == [c, d] { [a, b] } else { [c, d] };
            let without = PairStructure::new(&graph(nodes, &[&all[..], &[other]].concat())).unwrap();
            assert_eq!(features(&with, pair), features(&without, pair), "{pair:?}");
        }
    }

    /// Paths by searches alone, which count each entry that they read.
    fn searched(of: &PairStructure, [a, b]: [NodeId; 2], degree: usize) -> (usize, u64, usize) {
        let (mut count, mut weight, mut left) = (0, 0.0_f64, MAX_READ);
        for &w in of.row(a).iter().filter(|&&w| w != b) {
            let [shorter, longer] = match of.row(w).len() <= degree {
                true => [of.row(w), of.row(b)],
                false => [of.row(b), of.row(w)],
            };
            shared(shorter, longer, a, &mut left, |x| {
                count += 1;
                weight += (of.row(w).len() as f64 * of.row(x).len() as f64).sqrt().recip();
            });
        }
        (count, weight.to_bits(), left)
    }

    #[test]
    fn paths_have_the_bits_of_those_that_are_searched() {
        // degrees from 1 to hundreds: searches of some pairs end early
        let mut stream = Stream::new(key(&[8]));
        let mut skewed = || (stream.uniform().powi(3) * 700.0) as NodeId;
        let all: Vec<[NodeId; 2]> = (0..60_000).map(|_| [skewed(), skewed()]).collect();
        let of = PairStructure::new(&graph(700, &all)).unwrap();
        let mut ended = [0; 2];
        for [u, v] in (0..700).flat_map(|u| (0..700).step_by(61).map(move |v| [u, (v + u) % 700])) {
            let is_edge = of.row(u).contains(&v);
            let [a, b] = if of.row(u).len() <= of.row(v).len() { [u, v] } else { [v, u] };
            let degree = of.row(b).len() - usize::from(is_edge);
            let (count, weight, left) = searched(&of, [a, b], degree);
            let found = filtered(of.row(b), |neighbors| of.paths([a, b], neighbors, degree));
            assert_eq!((found.count, found.weight.to_bits()), (count, weight), "{u} - {v}");
            ended[usize::from(left == 0)] += 1;
        }
        assert!(ended.iter().all(|&count| count > 150), "{ended:?}");
    }

    #[test]
    fn a_graph_without_edges_is_that_of_its_nodes() {
        assert_eq!(PairStructure::without_edges(5).unwrap(), PairStructure::new(&graph(5, &[])).unwrap());
    }

    #[test]
    fn rows_are_distinct_and_ascend_for_any_number_of_threads() {
        let all = edges(400, 60_000, 4);
        let of = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| PairStructure::new(&graph(400, &all)).unwrap())
        };
        let one = of(1);
        assert_eq!(one, of(3));
        assert_eq!(one.num_nodes(), 400);
        for (v, set) in sets(400, &all, [0, 0]).iter().enumerate() {
            assert!(one.row(v as NodeId).iter().eq(set));
        }
    }
}
