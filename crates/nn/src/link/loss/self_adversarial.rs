//! Self-adversarial negative sampling.
//!
//! # Algorithm
//!
//! `(softplus(-s) + sum over k of p_k softplus(s_k)) / 2` with `p = softmax(adversarial s_k)`,
//! which receives no gradient. The constant `gamma` is a part of the scores.
//!
//! # Source
//!
//! Sun, Deng, Nie and Tang, *RotatE: knowledge graph embedding by relational rotation in complex
//! space*, ICLR 2019, equations 4 and 5.
//!
//! # Cost
//!
//! O(K) per positive.

use super::{LinkGrads, LinkLossOptions, LinkScores, cross_entropy, sigmoid, softplus};

/// The loss.
pub(super) fn loss(scores: &LinkScores, options: &LinkLossOptions, grads: LinkGrads) -> f64 {
    let (k, mut p_k) = (scores.num_negatives(), Vec::new());
    let mut sum = 0.0;
    for p in 0..scores.positive.len() {
        let ((s, negatives), share) = (scores.of(p), 0.5 * scores.share(p));
        p_k.clear();
        p_k.extend(negatives.iter().map(|x| options.adversarial * f64::from(*x)));
        if !p_k.is_empty() {
            cross_entropy(&mut p_k);
        }
        sum += share * softplus(-s);
        grads.positive[p] = (-share * sigmoid(-s)) as f32;
        for ((x, p_k), grad) in negatives.iter().zip(&p_k).zip(&mut grads.negative[p * k..]) {
            sum += share * p_k * softplus(f64::from(*x));
            *grad = (share * p_k * sigmoid(f64::from(*x))) as f32;
        }
    }
    sum
}
