//! Limit of the gradient's norm on several types.
//!
//! # Algorithm
//!
//! The gradient is that of all dense parameters and of the learned rows that a batch, or a round of
//! batches, reads. Gradients of a row that occurs several times are added up first. If the norm of
//! the whole gradient exceeds the limit, all of it is scaled by one factor, as on one type by
//! [`graphmill_nn::optim::clip`].
//!
//! Each rank has the gradients of its own learned rows. The ranks exchange the sums of their
//! squares, and add them in rank order to the dense sum of rank 0, so that all have one factor.
//!
//! # Source
//!
//! Pascanu, Mikolov and Bengio, *On the difficulty of training recurrent neural networks*, ICML
//! 2013.
//!
//! # Cost
//!
//! A copy of the gradient of learned rows, a pass over all gradients for the norm and one if they
//! are scaled; over ranks, a message between each two.

use graphmill_core::NodeId;
use graphmill_nn::{
    Backend, Param,
    optim::{clip_factor, scale_gradients, squared_norm},
    typed::TypedModel,
};

use super::{
    computing::PROCESSOR,
    ranks::{RowGradients, RowOwners},
    rounds::RoundLearner,
};
use crate::{Result, record::BatchOutcome, versions::Parameters};

/// Ends the last batch, whose input nodes are `nodes` and whose mean loss over `seeds` seeds is
/// `loss`: limits its gradient and updates the model, if loss and norm are finite. `rows` are the
/// gradients of learned rows over all ranks; `None` in one process, which has them in the batch.
///
/// # Errors
/// A rank did not take part; the state of rows is in files, for which the disk has too little
/// space.
pub(super) fn end_batch(
    learner: &mut impl RoundLearner,
    (lr, nodes): (f64, &[Vec<NodeId>]),
    (loss, seeds): (f64, usize),
    mut rows: Option<Vec<RowGradients>>,
) -> Result<BatchOutcome> {
    let outcome = BatchOutcome { loss, grad_norm: None, seeds };
    if !loss.is_finite() {
        return Ok(outcome);
    }
    let is_alone = rows.is_none();
    if is_alone && learner.clips() {
        rows = rows_of_batch(learner, nodes);
    }
    let outcome = outcome.with_norm(learner.clip(rows.as_deref_mut().unwrap_or_default())?);
    if outcome.loss.is_finite() {
        learner.update(lr, nodes, rows.as_deref())?;
    } else if is_alone {
        skip_update(learner);
    }
    Ok(outcome)
}

/// Ends a batch, or a round of them, on one rank without an update, because the norm of its
/// gradient is not finite: the model is that of the last update, unless the backward passes have
/// changed running statistics.
pub(super) fn skip_update(learner: &mut impl RoundLearner) {
    let mut has_statistics = false;
    learner.dense().each(&mut |param| has_statistics |= !param.trainable);
    learner.set_whole(!has_statistics);
}

/// Gradients of the learned rows of the last batch, whose input nodes are `nodes`, in a process
/// that has no gradients of other ranks; `None` if the model has the rows of some nodes alone,
/// because it then only measures steps.
fn rows_of_batch(learner: &impl RoundLearner, nodes: &[Vec<NodeId>]) -> Option<Vec<RowGradients>> {
    let learned = || learner.encoder().learned_rows();
    let of_type =
        |t: usize| RowGradients { node_type: t, places: nodes[t].clone(), grad: learner.row_gradient(t) };
    let is_whole = !learned().any(|(_, rows)| rows.is_partial());
    is_whole.then(|| learned().map(|(t, _)| of_type(t)).collect())
}

/// Adds up the gradients in `rows` of each learned row of `model`.
pub(super) fn merge(model: &mut TypedModel, rows: &mut [RowGradients]) {
    for ((t, learned), of) in model.learned_rows_mut().zip(rows) {
        debug_assert_eq!(t, of.node_type);
        learned.merge(&mut of.places, &mut of.grad);
    }
}

/// Scales the gradients of `dense`, which are on `backend`, and those in `rows`, whose places are
/// distinct, to a norm of at most `limit` together. Returns the norm before; if it is not finite,
/// all gradients are unchanged, and the caller must stop. If several ranks train together, all call
/// this at the same time.
///
/// # Errors
/// A rank did not take part.
pub(super) fn clip(
    limit: f32,
    (dense, backend): (&mut dyn Parameters, &dyn Backend),
    rows: &mut [RowGradients],
    over: Option<&RowOwners>,
) -> Result<f64> {
    let host: &dyn Backend = &PROCESSOR;
    let of_dense = squared_norm(backend, |see| dense.each_mut(see));
    let of_rows: f64 = rows.iter().map(|of| host.dot(of.grad.view(), of.grad.view())).sum();
    let squares = match over {
        None => of_dense + of_rows,
        Some(RowOwners { ranks, .. }) => {
            let sums = ranks.gather_lists(&[vec![of_dense, of_rows]])?.concat();
            sums.first().unwrap_or(&of_dense) + sums.iter().skip(1).step_by(2).sum::<f64>()
        }
    };
    let norm = squares.sqrt();
    if let Some(factor) = clip_factor(norm, limit) {
        scale_gradients(backend, factor, |see: &mut dyn FnMut(&mut Param)| dense.each_mut(see));
        rows.iter_mut().for_each(|of| host.scale(factor, of.grad.view_mut()));
    }
    Ok(norm)
}

#[cfg(test)]
mod tests {
    use graphmill_nn::Matrix;

    use super::*;

    /// A parameter.
    struct One(Param);

    impl Parameters for One {
        fn each(&self, see: &mut dyn FnMut(&Param)) {
            see(&self.0);
        }

        fn each_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
            see(&mut self.0);
        }
    }

    /// A dense gradient of `[2, 3]`, and one of `[6]` of a learned row.
    fn gradients() -> (One, Vec<RowGradients>) {
        let mut dense = Param::zeros("weight", 1, 2);
        dense.grad.view_mut().host().copy_from_slice(&[2.0, 3.0]);
        let rows = RowGradients { node_type: 0, places: vec![4], grad: Matrix::from_slice(1, 1, &[6.0]) };
        (One(dense), vec![rows])
    }

    #[test]
    fn the_norm_has_dense_gradients_and_those_of_rows() {
        for (limit, expected) in [(7.5, [2.0f32, 3.0, 6.0]), (3.5, [1.0, 1.5, 3.0])] {
            let (mut dense, mut rows) = gradients();
            assert_eq!(clip(limit, (&mut dense, &PROCESSOR), &mut rows, None).unwrap(), 7.0);
            let found = [dense.0.grad.view().host(), rows[0].grad.view().host()].concat();
            for (found, expected) in found.iter().zip(expected) {
                assert!((found - expected).abs() < 1e-5, "{limit}: {found}, {expected}");
            }
        }
    }

    #[test]
    fn gradients_of_rows_that_are_not_finite_change_nothing() {
        let (mut dense, mut rows) = gradients();
        rows[0].grad.view_mut().host()[0] = f32::INFINITY;
        assert!(!clip(1.0, (&mut dense, &PROCESSOR), &mut rows, None).unwrap().is_finite());
        assert_eq!(dense.0.grad.view().host(), [2.0, 3.0]);
    }
}
