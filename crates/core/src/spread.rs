//! Rows of values that spread over the edges of a graph: steps of label propagation.
//!
//! # Algorithm
//!
//! A step is `Z <- a S Z + (1 - a) Y`, where `S = D^-1/2 A D^-1/2` is the normalized adjacency
//! without self-loops.
//!
//! # Source
//!
//! Zhou, Bousquet, Lal, Weston and Schoelkopf, *Learning with Local and Global Consistency*, NIPS
//! 2003, section 2.
//!
//! # Cost
//!
//! `E C` multiplications a step for rows of `C` values, on all threads.

use std::ops::RangeInclusive;

use rayon::prelude::*;

use crate::{Graph, NodeId, rank::out_degrees};

/// The normalized adjacency `S = D^-1/2 A D^-1/2` of a graph, without self-loops, `[V, V]`.
#[derive(Clone, Debug)]
pub struct Spread<'g> {
    graph: &'g Graph,
    /// Inverse square root of each node's number of out-neighbours; 0 without any.
    source: Vec<f32>,
}

impl<'g> Spread<'g> {
    /// Computes the scales of the rows, 4 bytes a node.
    pub fn new(graph: &'g Graph) -> Self {
        let source = out_degrees(graph).into_par_iter().map(inverse_root).collect();
        Self { graph, source }
    }

    /// Sets `to = alpha S from + (1 - alpha) start` and clamps each value to `range`. All three
    /// have `V` rows of `width` values.
    ///
    /// Costs `E * width` multiplications on all threads of the pool. Each sum has the order of its
    /// row in the graph, so that results do not depend on the number of threads.
    ///
    /// # Panics
    /// `width` is 0 or the number of values is not `V * width`.
    pub fn step(
        &self,
        [from, start]: [&[f32]; 2],
        to: &mut [f32],
        width: usize,
        alpha: f32,
        range: RangeInclusive<f32>,
    ) {
        let values = self.source.len() * width;
        assert!([from.len(), start.len(), to.len()] == [values; 3], "V rows of `width` values");
        to.par_chunks_exact_mut(width).zip(start.par_chunks_exact(width)).enumerate().for_each(
            |(v, (to, start))| {
                let near = self.graph.in_neighbors(v as NodeId);
                let own = alpha * inverse_root(near.len() as u32);
                to.fill(0.0);
                for &u in near {
                    let (u, scale) = (u as usize, self.source[u as usize]);
                    let row = &from[u * width..(u + 1) * width];
                    to.iter_mut().zip(row).for_each(|(to, x)| *to += scale * x);
                }
                for (to, start) in to.iter_mut().zip(start) {
                    *to = (own * *to + (1.0 - alpha) * start).clamp(*range.start(), *range.end());
                }
            },
        );
    }
}

fn inverse_root(degree: u32) -> f32 {
    if degree == 0 { 0.0 } else { 1.0 / (degree as f32).sqrt() }
}
