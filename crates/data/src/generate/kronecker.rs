//! Stochastic Kronecker graphs.
//!
//! # Algorithm
//!
//! The graph has 2^scale nodes, and the probability of an edge is a product of one initiator entry
//! per bit of its ends. An edge descends `scale` levels, and at each into the quadrant `(i, j)` of
//! the adjacency matrix with probability `initiator[i][j] / sum`; `i` is the next bit of its source
//! and `j` of its destination. Four levels at once are one draw from an alias table of 4^4
//! outcomes.
//!
//! Reads the options `scale`, `initiator`, `edges`, `degree`, `directed`, `shuffle_ids`, `classes`,
//! `dim`, the split and `seed`; features and labels are pure noise.
//!
//! # Source
//!
//! Leskovec, Chakrabarti, Kleinberg, Faloutsos and Ghahramani, *Kronecker graphs: an approach to
//! modeling networks*, JMLR 11 (2010), section 3.6 ("fast generation"), which generalizes R-MAT
//! (Chakrabarti, Zhan and Faloutsos, SDM 2004).
//!
//! # Cost
//!
//! O(E scale / 4) draws, then [`graphmill_core::build`].
//!
//! # Deviations
//!
//! As in the paper, duplicate edges are stored once. The paper draws replacements for them; here
//! they are lost, because only then are all edges independent.

use graphmill_core::{
    Error, Labels, NodeId, Result,
    alias::Alias,
    keyed::{Stream, key},
};

use super::{
    GenerateOptions,
    attributes::{Purpose, domain, gaussian_features, random_classes, random_split},
    draw,
};
use crate::{Dataset, external::Scratch};

/// Number of levels that one draw decides.
const STEP: u32 = 4;

/// Generates the Kronecker graph of `options`.
///
/// # Errors
/// The graph has more than 2^31 nodes, the initiator is negative, not finite or all zero, or
/// [`GenerateOptions`] are invalid.
pub(super) fn generate(options: &GenerateOptions, scratch: &Scratch) -> Result<Dataset> {
    if options.scale > 31 {
        return Err(Error::invalid(format!(
            "scale {}: 2^{} nodes are too many, at most 2^31 fit 32-bit node ids",
            options.scale, options.scale
        )));
    }
    let nodes = 1usize << options.scale;
    let entries = options.initiator.as_flattened();
    if let Some(bad) = entries.iter().find(|x| !(**x >= 0.0 && x.is_finite())) {
        return Err(Error::invalid(format!(
            "initiator {:?} holds {bad}: its entries are finite and not negative",
            options.initiator
        )));
    }
    let sum: f64 = entries.iter().sum();
    if sum <= 0.0 || !sum.is_finite() {
        return Err(Error::invalid(format!(
            "initiator {:?} adds up to {sum}: no edge can be drawn from it",
            options.initiator
        )));
    }
    let draws = options.edges_to_draw(nodes, sum.powi(options.scale as i32), scratch)?;

    let fall = EdgeSampler::new(options)?;
    let relabel = Relabel::new(options.scale, options.seed);
    let graph = draw::graph(options, scratch, nodes, draws, |e| {
        let (u, v) = fall.edge(e);
        if options.shuffle_ids { (relabel.apply(u), relabel.apply(v)) } else { (u, v) }
    })?;

    let class = random_classes(nodes, options.classes, options.seed);
    Ok(Dataset {
        name: "kronecker".into(),
        graph,
        features: gaussian_features(nodes, options, (scratch, "features"), None)?,
        labels: Labels::Single { class: class.into(), classes: options.classes },
        split: random_split(nodes, options, |_| true)?,
        graphs: Vec::new(),
        metric: Some("accuracy".into()),
        checksum: None,
        normalization: None,
        directory: None,
        original_ids: None,
        keys: None,
    })
}

/// Descent of one edge through the levels.
struct EdgeSampler {
    /// Key of all edges' streams.
    domain: u64,
    /// Number of draws of [`STEP`] levels.
    steps: u32,
    /// Outcomes of [`STEP`] levels.
    whole: Alias,
    /// Number of remaining levels, and their outcomes.
    rest: Option<(u32, Alias)>,
}

impl EdgeSampler {
    fn new(options: &GenerateOptions) -> Result<Self> {
        let rest = options.scale % STEP;
        let outcomes = |levels| Alias::in_one(&power(options.initiator, levels));
        Ok(Self {
            domain: domain(options.seed, Purpose::Edge),
            steps: options.scale / STEP,
            whole: outcomes(STEP)?,
            rest: if rest > 0 { Some((rest, outcomes(rest)?)) } else { None },
        })
    }

    /// Source and destination of draw `e`, before renumbering.
    #[inline]
    fn edge(&self, e: u64) -> (NodeId, NodeId) {
        let mut stream = Stream::new(key(&[self.domain, e]));
        let (mut u, mut v) = (0, 0);
        let mut push = |outcome: u32, levels: u32| {
            u = u << levels | outcome >> levels;
            v = v << levels | outcome & ((1 << levels) - 1);
        };
        for _ in 0..self.steps {
            push(self.whole.draw(&mut stream), STEP);
        }
        if let Some((levels, outcomes)) = &self.rest {
            push(outcomes.draw(&mut stream), *levels);
        }
        (u, v)
    }
}

/// Kronecker power of the initiator, row-major: entry `(i, j)` of `2^levels` squared, scaled so
/// that the largest factor is 1 and no product overflows.
fn power(initiator: [[f64; 2]; 2], levels: u32) -> Vec<f64> {
    let largest = initiator.as_flattened().iter().copied().fold(0.0, f64::max);
    let size = 1usize << levels;
    let entry = |i: usize, j: usize| {
        (0..levels).map(|bit| initiator[i >> bit & 1][j >> bit & 1] / largest).product::<f64>()
    };
    (0..size * size).map(|cell| entry(cell / size, cell % size)).collect()
}

/// Pseudorandom permutation of `0..2^scale` without a table: each round adds a constant, multiplies
/// by an odd number and folds the upper half of the bits into the lower, all of which are
/// invertible.
struct Relabel {
    mask: u32,
    fold: u32,
    rounds: [(u32, u32); 4],
}

impl Relabel {
    fn new(scale: u32, seed: u64) -> Self {
        let mut stream = Stream::new(domain(seed, Purpose::Shuffle));
        let rounds = [(); 4].map(|()| (stream.next_u64() as u32, stream.next_u64() as u32 | 1));
        Self { mask: ((1u64 << scale) - 1) as u32, fold: scale.div_ceil(2).max(1), rounds }
    }

    #[inline]
    fn apply(&self, mut v: NodeId) -> NodeId {
        for (add, multiply) in self.rounds {
            v = v.wrapping_add(add).wrapping_mul(multiply) & self.mask;
            v ^= v >> self.fold;
        }
        v
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generate(options: &GenerateOptions) -> Result<Dataset> {
        super::generate(options, &Scratch::in_memory())
    }

    #[test]
    fn renumbering_is_a_permutation_without_visible_order() {
        for scale in 0..14 {
            let relabel = Relabel::new(scale, 5);
            let mut all: Vec<u32> = (0..1 << scale).map(|v| relabel.apply(v)).collect();
            all.sort_unstable();
            assert_eq!(all, (0..1 << scale).collect::<Vec<_>>(), "scale {scale}");
        }
        // Mean new id of the first 1024 of 2^16: uniform has sigma 2^16 / sqrt(12 * 1024).
        let relabel = Relabel::new(16, 5);
        let mean = (0..1024).map(|v| f64::from(relabel.apply(v))).sum::<f64>() / 1024.0;
        assert!((mean - 32_767.5).abs() < 5.0 * 591.0, "{mean}");
    }

    /// At every level, whichever alias table decided it, quadrants occur in proportion to the
    /// initiator, and two levels are independent.
    #[test]
    fn edges_follow_the_initiator_at_every_level() {
        let initiator = [[0.57, 0.19], [0.14, 0.1]];
        let options = GenerateOptions { scale: 7, initiator, ..Default::default() };
        let fall = EdgeSampler::new(&options).unwrap();
        let draws = 200_000;
        let edges: Vec<(u32, u32)> = (0..draws).map(|e| fall.edge(e)).collect();
        let quadrant = |(u, v): (u32, u32), level: u32| ((u >> level & 1) * 2 + (v >> level & 1)) as usize;
        let check = |count: u32, p: f64, what: &str| {
            let sigma = (draws as f64 * p * (1.0 - p)).sqrt();
            assert!((f64::from(count) - draws as f64 * p).abs() < 5.0 * sigma, "{what}: {count} for p = {p}");
        };
        for level in 0..7 {
            let next = (level + 1) % 7;
            let mut alone = [0; 4];
            let mut both = [[0; 4]; 4];
            for &edge in &edges {
                alone[quadrant(edge, level)] += 1;
                both[quadrant(edge, level)][quadrant(edge, next)] += 1;
            }
            for q in 0..4 {
                let p = initiator.as_flattened();
                check(alone[q], p[q], &format!("level {level} quadrant {q}"));
                for r in 0..4 {
                    check(both[q][r], p[q] * p[r], &format!("levels {level}, {next} quadrants {q}, {r}"));
                }
            }
        }
    }

    /// The probability of a node pair is the product over its bits.
    #[test]
    fn pairs_occur_with_the_probabilities_of_the_kronecker_power() {
        let initiator = [[0.9, 0.5], [0.3, 0.1]];
        let options = GenerateOptions { scale: 2, initiator, ..Default::default() };
        let fall = EdgeSampler::new(&options).unwrap();
        let mut counts = [[0u32; 4]; 4];
        for e in 0..100_000 {
            let (u, v) = fall.edge(e);
            counts[u as usize][v as usize] += 1;
        }
        for u in 0..4 {
            for v in 0..4 {
                let p = initiator[u >> 1][v >> 1] * initiator[u & 1][v & 1] / (1.8 * 1.8);
                let sigma = (1e5 * p * (1.0 - p)).sqrt();
                assert!(
                    (f64::from(counts[u][v]) - 1e5 * p).abs() < 5.0 * sigma,
                    "({u}, {v}): {}",
                    counts[u][v]
                );
            }
        }
    }

    #[test]
    fn the_initiator_determines_the_default_number_of_edges() {
        let options = GenerateOptions {
            scale: 12,
            initiator: [[1.0, 0.8], [0.8, 0.6]],
            directed: true,
            dim: 0,
            ..Default::default()
        };
        let drawn = 3.2f64.powi(12);
        let stored = generate(&options).unwrap().graph.num_edges() as f64;
        assert!(stored < drawn && stored > 0.9 * drawn, "{stored} of {drawn}: only repeated edges are lost");
        let undirected = generate(&GenerateOptions { directed: false, ..options }).unwrap().graph;
        assert!((undirected.num_edges() as f64) < drawn && undirected.num_edges() as f64 > 0.85 * drawn);
        for v in 0..undirected.num_nodes() as u32 {
            for &u in undirected.in_neighbors(v) {
                assert!(u != v && undirected.in_neighbors(u).binary_search(&v).is_ok());
            }
        }
    }

    #[test]
    fn extreme_initiators_and_scales_work_or_are_rejected() {
        let with = |initiator, scale| {
            generate(&GenerateOptions {
                initiator,
                scale,
                edges: Some(1),
                directed: true,
                dim: 0,
                ..Default::default()
            })
        };
        assert_eq!(with([[1.0, 0.0], [0.0, 0.0]], 6).unwrap().graph.num_edges(), 1);
        assert_eq!(with([[1e300, 1e300], [0.0, 1e-300]], 9).unwrap().num_nodes(), 512);
        assert_eq!(with([[1.0; 2]; 2], 0).unwrap().num_nodes(), 1);
        let says = |initiator, scale, word: &str| {
            let message = with(initiator, scale).unwrap_err().to_string();
            assert!(message.contains(word), "{message}");
        };
        says([[1.0, -0.1], [0.0, 0.0]], 4, "holds -0.1");
        says([[1.0, f64::NAN], [0.0, 0.0]], 4, "NaN");
        says([[0.0; 2]; 2], 4, "adds up to 0");
        says([[1.0; 2]; 2], 32, "at most 2^31");
        says([[1.0; 2]; 2], u32::MAX, "at most 2^31");
    }
}
