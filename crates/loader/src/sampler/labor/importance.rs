//! LABOR-i: importance of the sources that a layer's destinations share, and edges with weights.
//!
//! # Algorithm
//!
//! A destination `s` takes its neighbour `t` if `r_t <= c_s pi_t`. For given `pi`, the factor `c_s`
//! is the one at which `s` estimates its mean with the variance of `k` uniform neighbours: `sum_t
//! a_ts^2 / min(1, c_s pi_t) = (sum_t a_ts)^2 / k`, with edge weights `a` (1 if there are no
//! weights). LABOR-0 has `pi = 1` (or `pi = a`, which then belongs to the edge), so `c_s = k /
//! d_s`. The layer reads about `sum_t min(1, pi_t max_s c_s)` nodes, and an iteration lowers that:
//! `pi_t` becomes `pi_t max_s c_s`, and the `c_s` are solved for again. By the Cauchy-Schwarz
//! inequality, a destination takes at least `k` neighbours on average.
//!
//! The result depends on the set of destinations, not on the number of threads, because it consists
//! of maxima and of sums within a row.
//!
//! # Source
//!
//! Balin and Catalyurek, *Layer-neighbor sampling: defusing neighborhood explosion in GNNs*,
//! NeurIPS 2023, section 3.2.
//!
//! # Cost
//!
//! O(edges of all destinations, times the logarithm of their sources) per iteration, parallel.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use graphmill_core::{Graph, NodeId, memory};
use rayon::prelude::*;

use crate::edge_values::edge_values;

/// Minimum share of the nodes that an iteration saves; a smaller one ends the iterations.
const MIN_SAVING: f64 = 1e-4;
/// Maximum number of iterations.
const MAX_ITERATIONS: usize = 100;

/// Probabilities with which destinations take their neighbours.
#[derive(Debug)]
pub(super) struct Importance {
    /// Position of each destination's first edge (`D + 1`).
    starts: Vec<u64>,
    /// Weights of the edges; empty if all are 1.
    weight: Vec<f64>,
    /// Number of each edge's source, after an iteration.
    source: Vec<u32>,
    pi: Vec<f64>,
    /// Factor `c_s` of each destination.
    factor: Vec<f64>,
}

impl Importance {
    /// Computes the probabilities for destinations `dst` with the variance of `k` neighbours, after
    /// `iterations` ([`usize::MAX`]: until convergence). `weight(u, e)` is the weight of the edge
    /// at position `e` from `u`, if edges have weights.
    pub(super) fn new(
        graph: &Graph,
        dst: &[NodeId],
        k: usize,
        iterations: usize,
        weight: Option<&(dyn Fn(NodeId, u64) -> f32 + Sync)>,
    ) -> Self {
        let mut starts = Vec::new();
        memory::demand(&mut starts, dst.len() + 1);
        starts.push(0);
        for &v in dst {
            starts.push(starts[starts.len() - 1] + graph.in_degree(v) as u64);
        }
        let weight = match weight {
            Some(weight) => edge_values(&starts, &|s, row: &mut [f64]| {
                let edges = (graph.indptr()[dst[s] as usize]..).zip(graph.in_neighbors(dst[s]));
                row.iter_mut().zip(edges).for_each(|(to, (e, &u))| *to = weight(u, e).into());
            }),
            None => Vec::new(),
        };
        let mut this = Self { starts, weight, source: Vec::new(), pi: Vec::new(), factor: Vec::new() };
        this.solve(k);
        if iterations == 0 {
            return this;
        }
        let row = |s: usize, row: &mut [NodeId]| row.copy_from_slice(graph.in_neighbors(dst[s]));
        let ids = edge_values(&this.starts, &row);
        let mut sources = Vec::new();
        memory::demand_copy(&mut sources, &ids);
        sources.par_sort_unstable();
        sources.dedup();
        let number = |u: &NodeId| sources.partition_point(|other| other < u) as u32;
        let source = memory::demand_par_collect(ids.par_iter().map(number));
        let mut before = f64::INFINITY;
        for _ in 0..iterations.min(MAX_ITERATIONS) {
            // in the first iteration the importance is the edge's weight
            let most = memory::demand_par_collect(sources.par_iter().map(|_| AtomicU64::new(0)));
            (0..dst.len()).into_par_iter().for_each(|s| {
                for e in this.edges(s) {
                    // The bits of nonnegative floats are ordered as the floats are; maxima do not
                    // depend on the order of updates.
                    most[source[e] as usize].fetch_max(this.threshold(s, e).to_bits(), Relaxed);
                }
            });
            let reach = most.into_par_iter().map(|bits| f64::from_bits(bits.into_inner()));
            let reach = memory::demand_par_collect(reach);
            let nodes: f64 = reach.iter().map(|p| p.min(1.0)).sum();
            if nodes > before * (1.0 - MIN_SAVING) {
                break;
            }
            before = nodes;
            this.pi = reach;
            if this.source.is_empty() {
                memory::demand_copy(&mut this.source, &source);
            }
            this.solve(k);
        }
        this
    }

    /// Importance `pi` of the edge `e`.
    #[inline]
    fn pi(&self, e: usize) -> f64 {
        match self.source.get(e) {
            Some(&t) => self.pi[t as usize],
            None => self.weight(e),
        }
    }

    /// Weight of the edge `e`.
    #[inline]
    pub(super) fn weight(&self, e: usize) -> f64 {
        self.weight.get(e).copied().unwrap_or(1.0)
    }

    /// Edges of destination `s`.
    pub(super) fn edges(&self, s: usize) -> std::ops::Range<usize> {
        self.starts[s] as usize..self.starts[s + 1] as usize
    }

    /// Threshold `c_s pi_t`, which may exceed 1: destination `s` takes its edge `e` if the source's
    /// number in `0..1` is below it. Edges of weight 0 are never taken.
    #[inline]
    pub(super) fn threshold(&self, s: usize, e: usize) -> f64 {
        if self.weight(e) == 0.0 { 0.0 } else { self.factor[s] * self.pi(e) }
    }

    /// Solves for the factors.
    fn solve(&mut self, k: usize) {
        let factors = (0..self.starts.len() - 1).into_par_iter().map(|s| self.factor_of(s, k as f64));
        self.factor = memory::demand_par_collect(factors);
    }

    /// Factor `c_s`. Without the edges of probability 1, of which there are more in each step, the
    /// equation is linear in `1 / c_s`.
    fn factor_of(&self, s: usize, k: f64) -> f64 {
        let edges = || self.edges(s).filter(|&e| self.weight(e) > 0.0);
        let sum: f64 = edges().map(|e| self.weight(e)).sum();
        let squares: f64 = edges().map(|e| self.weight(e) * self.weight(e)).sum();
        let target = sum * sum / k;
        if squares >= target {
            // all edges together are no better than k uniform ones: all are taken
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

    /// Expected number of nodes that the layer reads.
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

    /// Expected number of neighbours of destination `s`.
    #[cfg(test)]
    pub(super) fn expected_degree(&self, s: usize) -> f64 {
        self.edges(s).map(|e| self.threshold(s, e).min(1.0)).sum()
    }
}
