//! Negatives by weights: each node replaces an end in proportion to its weight, among those without
//! a known edge.
//!
//! # Algorithm
//!
//! An alias table proposes nodes, and a known edge is drawn again. After 64 such draws the weights
//! of the candidates without a known edge are summed, and one of them is drawn by a search in the
//! sums. A node of weight 0 is never drawn.
//!
//! # Source
//!
//! The tables are those of [`Alias`]. PyTorch Geometric's `NegativeSampling` has weights of nodes,
//! too, and does not leave out edges.
//!
//! # Cost
//!
//! O(C) to build for `C` candidates, 16 bytes each. O(1) per draw, or O(C) if most of the weight
//! has edges.

use graphmill_core::{Error, NodeId, Result, alias::Alias, keyed::Stream};

use super::negatives::{MAX_TRIES, NegativeRequest, NegativeSampler};

/// Sampler of negatives by weights of the candidates.
///
/// ```
/// use graphmill_core::End;
/// use graphmill_loader::link::{KnownEdges, NegativeRequest, NegativeSampler, WeightedNegatives};
///
/// // 0 is linked to 1; of the others 3 alone has a weight
/// let known = KnownEdges::new(4, &[0], &[1])?;
/// let sampler = WeightedNegatives::new(vec![1.0, 5.0, 0.0, 2.0], 0)?;
/// let request = NegativeRequest {
///     known: &known,
///     relation: 0,
///     end: End::Destination,
///     candidates: &(0..4),
///     positives: &[(0, 1)],
///     latest: &[],
///     key: 7,
/// };
/// let mut drawn = [0; 2];
/// sampler.draw(&request, &mut drawn)?;
/// assert_eq!(drawn, [3, 3]);
/// # Ok::<(), graphmill_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct WeightedNegatives {
    table: Alias,
    weights: Vec<f64>,
    /// First candidate.
    first: NodeId,
}

impl WeightedNegatives {
    /// Creates the sampler of the candidates from `first` on, with these weights.
    ///
    /// # Errors
    /// A weight is negative or not finite, or all weights are 0.
    pub fn new(weights: Vec<f64>, first: NodeId) -> Result<Self> {
        Ok(Self { table: Alias::new(&weights)?, weights, first })
    }

    /// Draws among the candidates that `fits` by the sums of their weights.
    fn among(&self, fits: impl Fn(NodeId) -> bool, stream: &mut Stream) -> Option<NodeId> {
        let mut sum = 0.0;
        let left = (self.first..).zip(&self.weights).filter(|&(u, &weight)| weight > 0.0 && fits(u));
        let sums: Vec<(NodeId, f64)> = left
            .map(|(u, weight)| {
                sum += weight;
                (u, sum)
            })
            .collect();
        let aim = stream.uniform() * sum;
        let at = sums.partition_point(|(_, sum)| *sum <= aim).min(sums.len().saturating_sub(1));
        sums.get(at).map(|(u, _)| *u)
    }
}

impl NegativeSampler for WeightedNegatives {
    fn draw(&self, request: &NegativeRequest, out: &mut [NodeId]) -> Result<()> {
        request.choose(out, |_, edge, stream| {
            let fits = |u: NodeId| request.known.is_negative(request.end, edge, u);
            let found = (0..MAX_TRIES).map(|_| self.first + self.table.draw(stream)).find(|&u| fits(u));
            found.or_else(|| self.among(fits, stream)).ok_or_else(|| {
                Error::invalid(format!(
                    "no negative edge for {} -> {}: it has edges with all candidates whose weight is above \
                     0; give other nodes a weight, or leave the edge out",
                    edge.0, edge.1
                ))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::End;
    use proptest::prelude::*;

    use super::*;
    use crate::link::KnownEdges;

    fn drawn(
        weights: &[f64],
        known: &KnownEdges,
        positives: &[(u32, u32)],
        (each, threads): (usize, usize),
    ) -> Result<Vec<u32>> {
        let sampler = WeightedNegatives::new(weights.to_vec(), 0)?;
        let candidates = 0..weights.len() as NodeId;
        let end = End::Destination;
        let request = NegativeRequest {
            known,
            relation: 0,
            end,
            candidates: &candidates,
            positives,
            latest: &[],
            key: 5,
        };
        let mut out = vec![0; positives.len() * each];
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| sampler.draw(&request, &mut out)).map(|()| out)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn weighted_negatives_are_no_edges_and_have_a_weight(
            edges in prop::collection::vec((0u32..6, 0u32..9), 1..40),
            weights in prop::collection::vec(prop::sample::select(vec![0.0, 1e-9, 1.0, 1e9]), 9),
        ) {
            let (source, destination): (Vec<_>, Vec<_>) = edges.iter().copied().unzip();
            let known = KnownEdges::new(9, &source, &destination).unwrap();
            for edge in edges.iter().copied() {
                let fits = |v: u32| weights[v as usize] > 0.0 && v != edge.0 && !edges.contains(&(edge.0, v));
                match drawn(&weights, &known, &[edge], (3, 1)) {
                    Ok(found) => {
                        prop_assert!(found.iter().all(|&v| fits(v)), "{found:?}");
                        prop_assert_eq!(&found, &drawn(&weights, &known, &[edge], (3, 3)).unwrap());
                    }
                    Err(error) => {
                        prop_assert!(!(0..9).any(fits), "{error}");
                        prop_assert!(error.to_string().contains("weight"), "{error}");
                    }
                }
            }
        }
    }

    #[test]
    fn negatives_are_drawn_in_proportion_to_weights() {
        // 0 is linked to the node of nearly all the weight, so that most draws search the sums
        let known = KnownEdges::new(6, &[0], &[1]).unwrap();
        for heavy in [1.0, 1e6] {
            let found = drawn(&[3.0, heavy, 1.0, 2.0, 0.0, 1.0], &known, &[(0, 1); 1000], (4, 2)).unwrap();
            let share = |v: u32| found.iter().filter(|&&u| u == v).count() as f64 / found.len() as f64;
            for (v, expected) in [(0, 0.0), (1, 0.0), (2, 0.25), (3, 0.5), (4, 0.0), (5, 0.25)] {
                assert!((share(v) - expected).abs() < 0.05, "{v}: {}", share(v));
            }
        }
    }
}
