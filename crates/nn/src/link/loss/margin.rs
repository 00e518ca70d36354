//! Hinge loss.
//!
//! # Algorithm
//!
//! `mean over k of max(0, margin - s + s_k)`.
//!
//! # Source
//!
//! Bordes, Usunier, Garcia-Duran, Weston and Yakhnenko, *Translating embeddings for modeling
//! multi-relational data*, NeurIPS 2013, equation 1.
//!
//! # Cost
//!
//! O(K) per positive.

use super::{LinkGrads, LinkLossOptions, LinkScores};

/// The loss.
pub(super) fn loss(scores: &LinkScores, options: &LinkLossOptions, grads: LinkGrads) -> f64 {
    let k = scores.num_negatives();
    (0..scores.positive.len())
        .map(|p| {
            let ((s, negatives), share) = (scores.of(p), scores.share(p) / k.max(1) as f64);
            let (mut loss, mut sum) = (0.0, 0.0);
            for (x, grad) in negatives.iter().zip(&mut grads.negative[p * k..]) {
                let excess = options.margin - s + f64::from(*x);
                let slope = if excess > 0.0 { share } else { 0.0 };
                loss += share * excess.max(0.0);
                sum += slope;
                *grad = slope as f32;
            }
            grads.positive[p] = -sum as f32;
            loss
        })
        .sum()
}
