//! Sampled softmax.
//!
//! # Algorithm
//!
//! Cross-entropy of the positive among itself and its negatives, whose scores are reduced by the
//! logarithm of their expected number of draws: an estimate of the softmax over all nodes.
//!
//! # Source
//!
//! Bengio and Senecal, *Quick training of probabilistic neural nets by importance sampling*,
//! AISTATS 2003; Jean, Cho, Memisevic and Bengio, *On using very large target vocabulary*, ACL
//! 2015.
//!
//! # Cost
//!
//! O(K) per positive.

use super::{LinkGrads, LinkLossOptions, LinkScores, cross_entropy};

/// The loss.
pub(super) fn loss(scores: &LinkScores, _: &LinkLossOptions, grads: LinkGrads) -> f64 {
    divided(scores, scores.log_expected, 1.0, grads)
}

/// Cross-entropy of the scores divided by `temperature`, less `correction` if there is one.
pub(super) fn divided(scores: &LinkScores, correction: &[f32], temperature: f64, grads: LinkGrads) -> f64 {
    let (k, mut all) = (scores.num_negatives(), Vec::new());
    let mut sum = 0.0;
    for p in 0..scores.positive.len() {
        let ((s, negatives), share) = (scores.of(p), scores.share(p));
        all.clear();
        all.push(s / temperature);
        all.extend(negatives.iter().enumerate().map(|(i, x)| {
            f64::from(*x) / temperature - correction.get(p * k + i).map_or(0.0, |c| f64::from(*c))
        }));
        sum += share * cross_entropy(&mut all);
        grads.positive[p] = (share * (all[0] - 1.0) / temperature) as f32;
        let to = grads.negative[p * k..].iter_mut().zip(&all[1..]);
        to.for_each(|(grad, x)| *grad = (share * x / temperature) as f32);
    }
    sum
}
