//! Bayesian personalized ranking.
//!
//! # Algorithm
//!
//! `mean over k of softplus(s_k - s)`.
//!
//! # Source
//!
//! Rendle, Freudenthaler, Gantner and Schmidt-Thieme, *BPR: Bayesian personalized ranking from
//! implicit feedback*, UAI 2009, section 4.1.
//!
//! # Cost
//!
//! O(K) per positive.

use super::{LinkGrads, LinkLossOptions, LinkScores, sigmoid, softplus};

/// The loss.
pub(super) fn loss(scores: &LinkScores, _: &LinkLossOptions, grads: LinkGrads) -> f64 {
    let k = scores.num_negatives();
    (0..scores.positive.len())
        .map(|p| {
            let ((s, negatives), share) = (scores.of(p), scores.share(p) / k.max(1) as f64);
            let (mut loss, mut sum) = (0.0, 0.0);
            for (x, grad) in negatives.iter().zip(&mut grads.negative[p * k..]) {
                let slope = share * sigmoid(f64::from(*x) - s);
                loss += share * softplus(f64::from(*x) - s);
                sum += slope;
                *grad = slope as f32;
            }
            grads.positive[p] = -sum as f32;
            loss
        })
        .sum()
}
