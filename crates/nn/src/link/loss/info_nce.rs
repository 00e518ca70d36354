//! InfoNCE.
//!
//! # Algorithm
//!
//! Cross-entropy of the positive among itself and its negatives, with scores divided by a
//! temperature.
//!
//! # Source
//!
//! Van den Oord, Li and Vinyals, *Representation learning with contrastive predictive coding*,
//! 2018, equation 4.
//!
//! # Cost
//!
//! O(K) per positive.

use super::{LinkGrads, LinkLossOptions, LinkScores, sampled_softmax::divided};

/// The loss.
pub(super) fn loss(scores: &LinkScores, options: &LinkLossOptions, grads: LinkGrads) -> f64 {
    divided(scores, &[], options.temperature, grads)
}
