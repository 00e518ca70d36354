//! Losses with their gradients. `run` returns the loss, which may be a placeholder until
//! [`crate::Backend::resolve_loss`].

use super::{Operation, shape};
use crate::{View, ViewMut};

/// Checks a gradient, and either a weight per row or no weights.
fn loss(logits: View, weight: &[f32], grad: View) {
    shape::same(logits, grad);
    assert!(weight.is_empty() || weight.len() == logits.num_rows(), "one loss weight per row");
}

/// `scale * sum over r of weight[r] * -log softmax(logits[r])[label[r]]`.
///
/// # Panics
/// A label is outside `-1..O`.
#[derive(Debug)]
pub struct SoftmaxCrossEntropy<'a> {
    /// Scores of classes, `R x O`.
    pub logits: View<'a>,
    /// Class of each row, `R`; rows of class -1 are ignored.
    pub label: &'a [i32],
    /// Weight of each row, `R`; if empty, all weights are 1.
    pub weight: &'a [f32],
    /// Factor of the loss.
    pub scale: f32,
    /// Gradient of the logits, `R x O`.
    pub grad: ViewMut<'a>,
}

impl Operation for SoftmaxCrossEntropy<'_> {
    fn check(&self) {
        loss(self.logits, self.weight, self.grad.as_view());
        assert_eq!(self.label.len(), self.logits.num_rows(), "one label per row");
        let classes = self.logits.num_cols() as i64;
        let is_class = |&label: &i32| i64::from(label) < classes && label >= -1;
        assert!(self.label.iter().all(is_class), "a label outside -1..{classes}");
    }
}

/// `scale * sum over r, o of weight[r] * (log(1 + e^x) - t x)`, with `x = logits[r, o]` and
/// `t = target[r O + o]`.
#[derive(Debug)]
pub struct SigmoidCrossEntropy<'a> {
    /// Scores of classes, `R x O`.
    pub logits: View<'a>,
    /// 1 for each class of a row, else 0, `R O` values.
    pub target: &'a [u8],
    /// Weight of each row, `R`; if empty, all weights are 1.
    pub weight: &'a [f32],
    /// Factor of the loss.
    pub scale: f32,
    /// Gradient of the logits, `R x O`.
    pub grad: ViewMut<'a>,
}

impl Operation for SigmoidCrossEntropy<'_> {
    fn check(&self) {
        loss(self.logits, self.weight, self.grad.as_view());
        let values = self.logits.num_rows() * self.logits.num_cols();
        assert_eq!(self.target.len(), values, "one target per logit");
    }
}
