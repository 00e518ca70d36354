//! Loss of sets of labels with a weight of each label, or focal.
//!
//! # Algorithm
//!
//! Each pair of a row and a label has the loss `-w (1 - p)^gamma log p`, with `p` the probability
//! of the truth: the logistic function of the logit if the row has the label, else of its negative.
//! The weight `w` of a label counts where rows have it, and is 1 elsewhere; `balanced` is the
//! number of training rows without the label divided by that of rows with it, so that both count
//! alike.
//!
//! # Source
//!
//! Lin et al., *Focal Loss for Dense Object Detection*, ICCV 2017, equations 1 to 5, for one label;
//! the weights are those of PyTorch's `BCEWithLogitsLoss(pos_weight=...)`.
//!
//! # Cost
//!
//! O(B C) for a batch of B rows, on one thread, so that the bits do not depend on threads.

use graphmill_core::NodeId;
use graphmill_nn::View;

/// The loss.
pub(super) struct SetLoss<'a> {
    /// Weight of each label where a row has it; empty for equal weights.
    pub(super) label_weight: &'a [f32],
    /// Exponent; 0 for cross-entropy.
    pub(super) focal: f64,
}

impl SetLoss<'_> {
    /// Sum of the losses of the rows times `scale` and their `weight` (empty for equal weights),
    /// and its gradient.
    pub(super) fn run(
        &self,
        logits: View,
        member: &[u8],
        weight: &[f32],
        scale: f64,
        grad: &mut [f32],
    ) -> f64 {
        let cols = logits.num_cols().max(1);
        let mut sum = 0.0;
        let rows = logits.host().chunks(cols).zip(member.chunks(cols)).zip(grad.chunks_mut(cols));
        for (r, ((logits, member), grad)) in rows.enumerate() {
            let of_row = scale * weight.get(r).map_or(1.0, |&w| f64::from(w));
            for (c, ((&logit, &is), grad)) in logits.iter().zip(member).zip(grad).enumerate() {
                let own = self.label_weight.get(c).filter(|_| is != 0).map_or(1.0, |&w| f64::from(w));
                let (factor, sign) = (of_row * own, if is != 0 { 1.0 } else { -1.0 });
                let (loss, slope) = self.of_pair(sign * f64::from(logit));
                sum += factor * loss;
                *grad = (factor * sign * slope) as f32;
            }
        }
        sum
    }

    /// Loss of a pair whose truth has the logit `z`, and its derivative.
    fn of_pair(&self, z: f64) -> (f64, f64) {
        let e = (-z.abs()).exp();
        // log p and 1 - p without overflow or lost digits
        let log_p = z.min(0.0) - e.ln_1p();
        let rest = if z >= 0.0 { e / (1.0 + e) } else { 1.0 / (1.0 + e) };
        let power = rest.powf(self.focal);
        (-power * log_p, power * (self.focal * (1.0 - rest) * log_p - rest))
    }
}

/// Weights by which the training rows with a label count as much as those without it; 1 for a label
/// that all of them have, or none.
pub(super) fn balanced(member: &[u8], classes: usize, train: &[NodeId]) -> Vec<f32> {
    let mut counts = vec![0usize; classes];
    for &v in train {
        let row = &member[v as usize * classes..][..classes];
        counts.iter_mut().zip(row).for_each(|(count, &is)| *count += usize::from(is != 0));
    }
    let weight = |&n: &usize| match (n, train.len() - n) {
        (0, _) | (_, 0) => 1.0,
        (with, without) => without as f32 / with as f32,
    };
    counts.iter().map(weight).collect()
}

#[cfg(test)]
mod tests {
    use graphmill_core::Labels;
    use graphmill_nn::{Matrix, backend::Cpu};
    use proptest::prelude::*;

    use super::{
        super::{Learned, SeedLabels, TargetLoss},
        *,
    };
    use crate::TrainConfig;

    /// Mean loss of rows of three labels under these options, and its gradient.
    fn of(weights: &str, focal: f64, logits: &[f32], member: &[u8]) -> (f64, Vec<f32>) {
        let config = TrainConfig { class_weights: weights.into(), focal, ..TrainConfig::default() };
        let labels = Labels::Multi { member: member.to_vec().into(), classes: 3 };
        let rows = member.len() / 3;
        let nodes: Vec<NodeId> = (0..rows as NodeId).collect();
        let data = Learned { name: "data", labels: &labels, train: &nodes };
        let loss = TargetLoss::of_targets(&config, &data).unwrap();
        let (mut of_rows, mut grad) = (SeedLabels::default(), Matrix::zeros(rows, 3));
        loss.gather(&labels, &nodes, &mut of_rows);
        let logits = Matrix::from_slice(rows, 3, logits);
        let value = loss.run(&Cpu::default(), &labels, &mut of_rows, logits.view(), &[], grad.view_mut());
        (value, grad.view().host().to_vec())
    }

    #[test]
    fn weights_match_the_definition_of_pytorch() {
        // binary_cross_entropy_with_logits(x, y, pos_weight=tensor([3., 1., 0.5]))
        let (x, y) = ([0.5, -1.0, 2.0, -0.3, 0.0, 1.5], [1, 0, 1, 0, 1, 1]);
        let sigmoid = |x: f32| 1.0 / (1.0 + (-f64::from(x)).exp());
        let pair = |i: usize, w: f64| {
            if y[i] == 1 { -w * sigmoid(x[i]).ln() } else { -(1.0 - sigmoid(x[i])).ln() }
        };
        let expected =
            [3.0, 1.0, 0.5, 3.0, 1.0, 0.5].iter().enumerate().map(|(i, &w)| pair(i, w)).sum::<f64>();
        let (loss, _) = of("3,1,0.5", 0.0, &x, &y);
        assert!((loss - expected / 6.0).abs() < 1e-6, "{loss} {expected}");
    }

    #[test]
    fn balanced_weights_are_the_rows_without_a_label_by_those_with_it() {
        let member = [1, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 1, 1, 1];
        assert_eq!(balanced(&member, 3, &[0, 1, 2, 3]), [3.0, 1.0, 1.0]);
        let logits = [0.0; 12];
        // all pairs of the first label count alike
        let (_, grad) = of("balanced", 0.0, &logits, &member[..12]);
        let sums: Vec<f32> = (0..3).map(|c| grad.iter().skip(c).step_by(3).sum()).collect();
        assert!(sums[0].abs() < 1e-7, "{sums:?}");
    }

    proptest! {
        #[test]
        fn gradients_of_sets_match_differences(
            logits in prop::collection::vec(-4.0f32..4.0, 6), member in prop::collection::vec(0u8..2, 6),
            focal in 0.5f64..4.0,
        ) {
            const STEP: f32 = 1e-2;
            for (weights, focal) in [("2,0.5,1", 0.0), ("none", focal), ("0.5,1,3", focal)] {
                let (_, grad) = of(weights, focal, &logits, &member);
                for i in 0..6 {
                    let at = |step: f32| {
                        let mut moved = logits.clone();
                        moved[i] += step;
                        of(weights, focal, &moved, &member).0
                    };
                    let difference = (at(STEP) - at(-STEP)) / f64::from(2.0 * STEP);
                    prop_assert!((f64::from(grad[i]) - difference).abs() < 2e-3, "{} {difference}", grad[i]);
                }
            }
        }

        #[test]
        fn equal_weights_and_an_exponent_near_zero_are_cross_entropy(
            logits in prop::collection::vec(-4.0f32..4.0, 6), member in prop::collection::vec(0u8..2, 6),
        ) {
            let (expected, of_pairs) = of("none", 0.0, &logits, &member);
            for (weights, focal) in [("1,1,1", 0.0), ("none", 1e-9)] {
                let (loss, grad) = of(weights, focal, &logits, &member);
                prop_assert!((loss - expected).abs() < 1e-5);
                prop_assert!(grad.iter().zip(&of_pairs).all(|(a, b)| (a - b).abs() < 1e-5));
            }
        }
    }
}
