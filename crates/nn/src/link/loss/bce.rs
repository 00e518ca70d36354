//! Binary cross-entropy, the mean over positives and negatives:
//! `(softplus(-s) + sum over k of softplus(s_k)) / (K + 1)`.

use super::{LinkGrads, LinkLossOptions, LinkScores, sigmoid, softplus};

/// The loss.
pub(super) fn loss(scores: &LinkScores, _: &LinkLossOptions, grads: LinkGrads) -> f64 {
    let k = scores.num_negatives();
    (0..scores.positive.len())
        .map(|p| {
            let ((s, negatives), share) = (scores.of(p), scores.share(p) / (k + 1) as f64);
            grads.positive[p] = (-share * sigmoid(-s)) as f32;
            let mut loss = softplus(-s);
            for (x, grad) in negatives.iter().zip(&mut grads.negative[p * k..]) {
                loss += softplus(f64::from(*x));
                *grad = (share * sigmoid(f64::from(*x))) as f32;
            }
            share * loss
        })
        .sum()
}
