//! Pairs of nodes that occur together on random walks: the positives of node2vec and of
//! unsupervised GraphSAGE.
//!
//! # Algorithm
//!
//! A walk of `length` nodes starts at each node that has an edge, `walks` times in an epoch. The
//! first step is uniform. From `v`, reached from `t`, the next node `x` is drawn among the
//! neighbours of `v` in proportion to `1 / p` if it is `t`, to 1 if it is a neighbour of `t`, and
//! to `1 / q` otherwise, by rejection: a uniform neighbour is accepted with its weight divided by
//! the largest one. After some rejections the weights are summed instead. Nodes at most `window`
//! steps apart on a walk are a pair, in both directions, unless they are the same node.
//!
//! # Source
//!
//! Grover and Leskovec, *node2vec: scalable feature learning for networks*, KDD 2016, sections 3.1
//! and 3.2. With `p = q = 1` the walks are those of Perozzi et al., *DeepWalk*, KDD 2014, and of
//! the unsupervised loss of Hamilton, Ying and Leskovec, *Inductive representation learning on
//! large graphs*, NeurIPS 2017, section 3.2.
//!
//! # Cost
//!
//! O(log d) per step with neighbours of degree `d`, by expectation; O(d log d) after rejections.
//!
//! # Memory
//!
//! The graph with both directions of each edge, and the pairs of a batch: at most
//! `2 length window` of a walk.
//!
//! # Deviations
//!
//! Walks follow edges in both directions and do not read their weights. The authors precompute the
//! tables of all pairs of edges; rejection draws from the same distribution without them.

use graphmill_core::{
    EdgeOptions, Error, Graph, NodeId, Result, build,
    keyed::{Stream, key},
    memory,
};
use rayon::prelude::*;

/// Part of the key of walks.
const WALKS: u64 = 0x7761_6c6b_7320_3276;
/// Rejections before the weights of all neighbours are summed.
const MAX_TRIES: usize = 32;

/// Rule by which walks and their pairs are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WalkRule {
    /// Nodes of a walk, at least 2.
    pub length: usize,
    /// Walks of each node in an epoch, at least 1.
    pub walks: usize,
    /// Largest number of steps between the nodes of a pair, at least 1.
    pub window: usize,
    /// Reciprocal weight of a return to the last node, above 0.
    pub p: f64,
    /// Reciprocal weight of a step away from the last node, above 0.
    pub q: f64,
}

/// Random walks over the edges of a graph, as positives of link training.
///
/// ```
/// use graphmill_loader::link::{WalkRule, Walks};
///
/// // a path 0 - 1 - 2
/// let rule = WalkRule { length: 3, walks: 2, window: 1, p: 1.0, q: 1.0 };
/// let walks = Walks::new(4, &[0, 1], &[1, 2], rule)?;
/// assert_eq!(walks.len(), 6); // node 3 has no edge
/// assert!([[0, 1, 0], [0, 1, 2]].contains(&walks.walk(7, 0, 0).try_into().unwrap()));
/// # Ok::<(), graphmill_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Walks {
    /// The edges in both directions.
    graph: Graph,
    /// Nodes with an edge, ascending.
    starts: Vec<NodeId>,
    rule: WalkRule,
}

impl Walks {
    /// Prepares walks over the edges of `nodes` nodes from each source to its destination, in both
    /// directions; repeated edges count once.
    ///
    /// # Errors
    /// The lists have different lengths, a node is not below `nodes`, a number of the rule is out
    /// of range, or there are 2^32 walks or more.
    pub fn new(nodes: usize, source: &[NodeId], destination: &[NodeId], rule: WalkRule) -> Result<Self> {
        let WalkRule { length, walks, window, p, q } = rule;
        let is_weight = |x: f64| x.is_finite() && x > 0.0;
        if length < 2 || walks == 0 || window == 0 || !is_weight(p) || !is_weight(q) {
            return Err(Error::invalid(format!(
                "walks of {length} nodes, {walks} per node, with window {window}, p {p} and q {q}: a walk \
                 has at least 2 nodes, and the other numbers are above 0"
            )));
        }
        let (from, to): (Vec<NodeId>, Vec<NodeId>) = both_directions(source, destination).unzip();
        let graph = build(nodes, &from, &to, EdgeOptions::DIRECTED)?;
        let has_edge = |&v: &NodeId| graph.in_neighbors(v).iter().any(|&u| u != v);
        let starts: Vec<NodeId> = (0..nodes as NodeId).filter(has_edge).collect();
        if u32::try_from(starts.len() as u128 * walks as u128).is_err() {
            return Err(Error::invalid(format!(
                "{walks} walks of each of {} nodes: below 2^32 are supported; lower their number",
                starts.len()
            )));
        }
        Ok(Self { graph, starts, rule })
    }

    /// Number of walks of an epoch.
    pub fn len(&self) -> usize {
        self.starts.len() * self.rule.walks
    }

    /// Returns true if no node has an edge.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Nodes of the walk of this number, below [`Walks::len`]: a function of the seed, the epoch
    /// and the number alone.
    pub fn walk(&self, seed: u64, epoch: u64, number: NodeId) -> Vec<NodeId> {
        let (turn, start) = (number as usize / self.starts.len(), number as usize % self.starts.len());
        let start = self.starts[start];
        let mut stream = Stream::new(key(&[seed, epoch, WALKS, start.into(), turn as u64]));
        let mut nodes = Vec::with_capacity(self.rule.length);
        nodes.push(start);
        while nodes.len() < self.rule.length {
            let at = nodes[nodes.len() - 1];
            let before = nodes.len().checked_sub(2).map(|i| nodes[i]);
            nodes.push(self.step(before, at, &mut stream));
        }
        nodes
    }

    /// Weight of the step to `x`, if the last node was `before`.
    fn weight(&self, before: NodeId, x: NodeId) -> f64 {
        if x == before {
            1.0 / self.rule.p
        } else if self.graph.in_neighbors(before).binary_search(&x).is_ok() {
            1.0
        } else {
            1.0 / self.rule.q
        }
    }

    /// The next node of a walk at `at`, which has a neighbour.
    fn step(&self, before: Option<NodeId>, at: NodeId, stream: &mut Stream) -> NodeId {
        let neighbors = self.graph.in_neighbors(at);
        let draw = |stream: &mut Stream| neighbors[stream.below(neighbors.len() as u64) as usize];
        let WalkRule { p, q, .. } = self.rule;
        let Some(before) = before.filter(|_| (p, q) != (1.0, 1.0) && neighbors.len() > 1) else {
            return draw(stream);
        };
        let largest = (1.0 / p).max(1.0 / q).max(1.0);
        for _ in 0..MAX_TRIES {
            let x = draw(stream);
            if stream.uniform() * largest < self.weight(before, x) {
                return x;
            }
        }
        let weights = || neighbors.iter().map(|&x| self.weight(before, x));
        let mut left = stream.uniform() * weights().sum::<f64>();
        for (&x, weight) in neighbors.iter().zip(weights()) {
            left -= weight;
            if left < 0.0 {
                return x;
            }
        }
        neighbors[neighbors.len() - 1]
    }

    /// Pairs of the walks of these numbers, in their order. The same for any number of threads.
    ///
    /// # Errors
    /// A number is not below [`Walks::len`].
    pub fn pairs(&self, seed: u64, epoch: u64, numbers: &[NodeId]) -> Result<Vec<(NodeId, NodeId)>> {
        if let Some(number) = numbers.iter().find(|&&number| number as usize >= self.len()) {
            return Err(Error::invalid(format!("walk {number} of {} walks", self.len())));
        }
        let of_walk = |&number: &NodeId| {
            let nodes = self.walk(seed, epoch, number);
            let mut pairs = Vec::new();
            for (i, &u) in nodes.iter().enumerate() {
                let near = i.saturating_sub(self.rule.window)..nodes.len().min(i + self.rule.window + 1);
                let others = nodes[near].iter().filter(|&&v| v != u);
                memory::demand_extend(&mut pairs, others.map(|&v| (u, v)));
            }
            pairs
        };
        let of_walks = memory::demand_par_collect(numbers.par_iter().with_min_len(8).map(of_walk));
        let mut all = Vec::new();
        memory::demand(&mut all, of_walks.iter().map(Vec::len).sum());
        of_walks.iter().for_each(|pairs| all.extend_from_slice(pairs));
        Ok(all)
    }
}

/// Edges between different nodes, each in both directions.
fn both_directions<'e>(
    source: &'e [NodeId],
    destination: &'e [NodeId],
) -> impl Iterator<Item = (NodeId, NodeId)> + 'e {
    let edges = source.iter().zip(destination).filter(|(u, v)| u != v);
    edges.flat_map(|(&u, &v)| [(u, v), (v, u)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A graph with triangles, a tail and an isolated node.
    const EDGES: [(u32, u32); 8] = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 2), (4, 5), (1, 3)];

    fn walks(rule: WalkRule) -> Walks {
        let (from, to): (Vec<_>, Vec<_>) = EDGES.into_iter().unzip();
        Walks::new(7, &from, &to, rule).unwrap()
    }

    fn linked(u: u32, v: u32) -> bool {
        EDGES.contains(&(u, v)) || EDGES.contains(&(v, u))
    }

    #[test]
    fn steps_have_the_probabilities_of_the_paper() {
        for (p, q) in [(0.25, 4.0), (4.0, 0.25), (1.0, 1.0), (100.0, 100.0), (0.01, 1.0)] {
            let walks = walks(WalkRule { length: 3, walks: 1, window: 1, p, q });
            for (before, at) in (0..6).flat_map(|t| (0..6).map(move |v| (t, v))).filter(|e| linked(e.0, e.1))
            {
                // the paper's weights, by their definition
                let weight = |x: u32| match x {
                    x if !linked(at, x) => 0.0,
                    x if x == before => 1.0 / p,
                    x if linked(before, x) => 1.0,
                    _ => 1.0 / q,
                };
                let sum: f64 = (0..7).map(weight).sum();
                let (mut counts, draws) = ([0.0f64; 7], 20_000);
                for i in 0..draws {
                    let mut stream = Stream::new(key(&[3, i, before.into(), at.into()]));
                    counts[walks.step(Some(before), at, &mut stream) as usize] += 1.0;
                }
                for x in 0..7 {
                    let (found, expected) = (counts[x as usize] / draws as f64, weight(x) / sum);
                    // five standard deviations
                    let bound = 5.0 * (expected * (1.0 - expected) / draws as f64).sqrt() + 1e-9;
                    let close = (found - expected).abs() <= bound;
                    assert!(close, "p {p}, q {q}, {before} -> {at} -> {x}: {found}, not {expected}");
                }
            }
        }
    }

    #[test]
    fn pairs_are_those_of_the_window_for_any_number_of_threads() {
        let rule = WalkRule { length: 6, walks: 3, window: 2, p: 0.5, q: 2.0 };
        let walks = walks(rule);
        assert_eq!(walks.len(), 18);
        let numbers: Vec<u32> = (0..18).rev().collect();
        let pairs = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| walks.pairs(5, 2, &numbers)).unwrap()
        };
        let mut expected = Vec::new();
        for &number in &numbers {
            let nodes = walks.walk(5, 2, number);
            assert_eq!((nodes[0], nodes.len()), (number % 6, 6));
            assert!(nodes.windows(2).all(|step| linked(step[0], step[1])));
            for i in 0..6usize {
                let near = (0..6).filter(|&j| i.abs_diff(j) <= 2 && nodes[i] != nodes[j]);
                expected.extend(near.map(|j| (nodes[i], nodes[j])));
            }
        }
        assert_eq!((pairs(1), pairs(3)), (expected.clone(), expected));
        assert_ne!(walks.walk(5, 2, 0), walks.walk(5, 3, 0));
        assert!(walks.pairs(5, 2, &[18]).unwrap_err().to_string().contains("walk 18 of 18 walks"));
    }

    #[test]
    fn impossible_rules_are_refused() {
        let rule = WalkRule { length: 5, walks: 1, window: 2, p: 1.0, q: 1.0 };
        for wrong in [
            WalkRule { length: 1, ..rule },
            WalkRule { walks: 0, ..rule },
            WalkRule { window: 0, ..rule },
            WalkRule { p: 0.0, ..rule },
            WalkRule { q: f64::INFINITY, ..rule },
        ] {
            assert!(Walks::new(2, &[0], &[1], wrong).is_err(), "{wrong:?}");
        }
        assert!(Walks::new(3, &[1], &[1], rule).unwrap().is_empty());
    }
}
