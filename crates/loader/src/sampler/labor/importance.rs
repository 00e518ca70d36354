//! LABOR-i: which sources a layer's destinations should share (section 3.2 of the paper), and edges
//! that weigh differently.
//!
//! A destination `s` takes its neighbour `t` where `r_t <= c_s pi_t`. For given `pi` the factor
//! `c_s` is the one at which `s` estimates its mean as well as with `k` uniform neighbours:
//! `sum_t a_ts^2 / min(1, c_s pi_t) = (sum_t a_ts)^2 / k`, where `a` are the edges' weights (1
//! where there are none). LABOR-0 has `pi = 1` (or `pi = a`, which then belongs to the edge), so
//! that `c_s = k / d_s`. What the layer reads is about `sum_t min(1, pi_t max_s c_s)` nodes, and an
//! iteration makes that smaller: `pi_t` becomes `pi_t max_s c_s`, and the `c_s` are solved for
//! again. By Cauchy and Schwarz a destination takes `k` neighbours on average or more.
//!
//! O(edges of all destinations, log of their sources) an iteration, in parallel; a function of the
//! destinations as a set, not of how many threads there are: maxima and each row's own sums are all
//! there is.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use graphmill_core::{Graph, NodeId};
use rayon::prelude::*;

/// An iteration that spares fewer nodes than this share is the last.
const LEAST: f64 = 1e-4;
/// However many are asked for.
const MOST: usize = 100;

/// With which probabilities destinations take their neighbours.
#[derive(Debug)]
pub(super) struct Importance {
    /// Where each destination's edges begin, `D + 1`.
    starts: Vec<usize>,
    /// Weights of their edges; empty where all are 1.
    weight: Vec<f64>,
    /// By the edge the number of its source, once there were iterations.
    source: Vec<u32>,
    pi: Vec<f64>,
    /// By destination.
    factor: Vec<f64>,
}

impl Importance {
    /// For destinations `dst` that want the variance of `k` neighbours, after `iterations`
    /// ([`usize::MAX`]: as long as they spare nodes). `weight(u, e)` is that of the edge at
    /// position `e` from `u`, where edges weigh differently.
    pub(super) fn new(
        graph: &Graph,
        dst: &[NodeId],
        k: usize,
        iterations: usize,
        weight: Option<&(dyn Fn(NodeId, u64) -> f32 + Sync)>,
    ) -> Self {
        let mut starts = Vec::with_capacity(dst.len() + 1);
        starts.push(0);
        for &v in dst {
            starts.push(starts[starts.len() - 1] + graph.in_degree(v));
        }
        let row_weights = |&v: &NodeId| {
            let first = graph.indptr()[v as usize];
            let edges = (first..).zip(graph.in_neighbors(v));
            edges.map(|(e, &u)| weight.map_or(1.0, |weight| f64::from(weight(u, e)))).collect::<Vec<_>>()
        };
        let weight = match weight {
            Some(_) => dst.par_iter().flat_map_iter(row_weights).collect(),
            None => Vec::new(),
        };
        let mut this = Self { starts, weight, source: Vec::new(), pi: Vec::new(), factor: Vec::new() };
        this.solve(k);
        if iterations == 0 {
            return this;
        }
        let ids: Vec<NodeId> =
            dst.par_iter().flat_map_iter(|&v| graph.in_neighbors(v).iter().copied()).collect();
        let mut sources = ids.clone();
        sources.par_sort_unstable();
        sources.dedup();
        let number = |u: &NodeId| sources.partition_point(|other| other < u) as u32;
        let source: Vec<u32> = ids.par_iter().map(number).collect();
        let mut before = f64::INFINITY;
        for _ in 0..iterations.min(MOST) {
            // the first time weights are the edges' own
            let most: Vec<AtomicU64> = sources.par_iter().map(|_| AtomicU64::new(0)).collect();
            (0..dst.len()).into_par_iter().for_each(|s| {
                for e in this.starts[s]..this.starts[s + 1] {
                    // the bits of floats that are not negative are in their order; maxima need no
                    // other order
                    most[source[e] as usize].fetch_max(this.threshold(s, e).to_bits(), Relaxed);
                }
            });
            let reach: Vec<f64> =
                most.into_par_iter().map(|bits| f64::from_bits(bits.into_inner())).collect();
            let nodes: f64 = reach.iter().map(|p| p.min(1.0)).sum();
            if nodes > before * (1.0 - LEAST) {
                break;
            }
            before = nodes;
            this.pi = reach;
            if this.source.is_empty() {
                this.source.clone_from(&source);
            }
            this.solve(k);
        }
        this
    }

    /// `pi` of the edge `e`.
    #[inline]
    fn pi(&self, e: usize) -> f64 {
        match self.source.get(e) {
            Some(&t) => self.pi[t as usize],
            None => self.weight(e),
        }
    }

    /// What the edge `e` weighs.
    #[inline]
    pub(super) fn weight(&self, e: usize) -> f64 {
        self.weight.get(e).copied().unwrap_or(1.0)
    }

    /// The edges of destination `s`.
    pub(super) fn edges(&self, s: usize) -> std::ops::Range<usize> {
        self.starts[s]..self.starts[s + 1]
    }

    /// Destination `s` takes its edge `e` where the source's number in `0..1` is below that:
    /// `c_s pi_t`, which may be above 1. Edges that weigh nothing are not taken.
    #[inline]
    pub(super) fn threshold(&self, s: usize, e: usize) -> f64 {
        if self.weight(e) == 0.0 { 0.0 } else { self.factor[s] * self.pi(e) }
    }

    /// Finds the factors.
    fn solve(&mut self, k: usize) {
        self.factor =
            (0..self.starts.len() - 1).into_par_iter().map(|s| self.factor_of(s, k as f64)).collect();
    }

    /// `c_s`: with those edges set aside that are certain, of which there are more each time, the
    /// equation is linear in `1 / c_s`.
    fn factor_of(&self, s: usize, k: f64) -> f64 {
        let edges = || self.edges(s).filter(|&e| self.weight(e) > 0.0);
        let sum: f64 = edges().map(|e| self.weight(e)).sum();
        let squares: f64 = edges().map(|e| self.weight(e) * self.weight(e)).sum();
        let target = sum * sum / k;
        if squares >= target {
            // all together are no better than k uniform ones: all are taken
            return edges().map(|e| 1.0 / self.pi(e)).fold(0.0, f64::max);
        }
        let mut factor = 0.0;
        loop {
            let (mut certain, mut rest) = (0.0, 0.0);
            for e in edges() {
                let (square, pi) = (self.weight(e) * self.weight(e), self.pi(e));
                if factor * pi >= 1.0 { certain += square } else { rest += square / pi }
            }
            let next = rest / (target - certain);
            if next.is_finite() && next > factor * (1.0 + 1e-12) {
                factor = next;
            } else {
                return factor;
            }
        }
    }

    /// About how many nodes the layer reads.
    #[cfg(test)]
    pub(super) fn expected_nodes(&self, sources: &[NodeId]) -> f64 {
        let mut most = std::collections::BTreeMap::<NodeId, f64>::new();
        for s in 0..self.starts.len() - 1 {
            for e in self.edges(s) {
                let reach = most.entry(sources[e]).or_default();
                *reach = reach.max(self.threshold(s, e).min(1.0));
            }
        }
        most.values().sum()
    }

    /// How many neighbours destination `s` takes on average.
    #[cfg(test)]
    pub(super) fn expected_degree(&self, s: usize) -> f64 {
        self.edges(s).map(|e| self.threshold(s, e).min(1.0)).sum()
    }
}
