//! Gradient clipping by the global norm.
//!
//! # Algorithm
//!
//! All gradients are scaled by `max_norm / (norm + 1e-6)` if that factor is below 1, as in
//! PyTorch's `clip_grad_norm_`.
//!
//! # Source
//!
//! Pascanu, Mikolov and Bengio, *On the difficulty of training recurrent neural networks*, ICML
//! 2013.
//!
//! # Cost
//!
//! One pass over the gradients for the norm, and a second one if they are scaled.

use crate::{Backend, Param};

/// Sum of the squares of all trainable gradients, in f64.
///
/// `visit` visits the parameters: `|see| model.visit_mut(see)`.
pub fn squared_norm(backend: &dyn Backend, mut visit: impl FnMut(&mut dyn FnMut(&mut Param))) -> f64 {
    backend.squares(&mut |see| {
        visit(&mut |param| {
            if param.trainable {
                see(param.grad.view());
            }
        });
    })
}

/// Euclidean norm of all trainable gradients as one vector, summed in f64.
///
/// `visit` visits the parameters: `|see| model.visit_mut(see)`.
pub fn global_norm(backend: &dyn Backend, visit: impl FnMut(&mut dyn FnMut(&mut Param))) -> f64 {
    squared_norm(backend, visit).sqrt()
}

/// Factor by which gradients of the norm `norm` are scaled to a norm of at most `max_norm`; `None`
/// if they are not, because the norm is smaller or not finite.
pub fn clip_factor(norm: f64, max_norm: f32) -> Option<f32> {
    let factor = f64::from(max_norm) / (norm + 1e-6);
    (norm.is_finite() && factor < 1.0).then_some(factor as f32)
}

/// Multiplies the trainable gradients by `factor`.
///
/// `visit` visits the parameters: `|see| model.visit_mut(see)`.
pub fn scale_gradients(
    backend: &dyn Backend,
    factor: f32,
    mut visit: impl FnMut(&mut dyn FnMut(&mut Param)),
) {
    visit(&mut |param| {
        if param.trainable {
            backend.scale(factor, param.grad.view_mut());
        }
    });
}

/// Scales the trainable gradients to a [`global_norm`] of at most `max_norm` and returns the
/// previous norm. If that norm is not finite, the gradients are unchanged, and the caller must
/// stop.
///
/// ```
/// # use graphmill_nn::{Param, backend::Reference, optim::clip};
/// # let mut params = vec![Param::zeros("weight", 1, 2)];
/// # params[0].grad.view_mut().host().copy_from_slice(&[3.0, 4.0]);
/// let norm = clip(&Reference, 1.0, |see| params.iter_mut().for_each(see));
/// assert_eq!(norm, 5.0);
/// ```
pub fn clip(backend: &dyn Backend, max_norm: f32, mut visit: impl FnMut(&mut dyn FnMut(&mut Param))) -> f64 {
    let norm = global_norm(backend, &mut visit);
    if let Some(factor) = clip_factor(norm, max_norm) {
        scale_gradients(backend, factor, visit);
    }
    norm
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Reference;

    fn params() -> Vec<Param> {
        let mut params =
            vec![Param::zeros("a", 1, 2), Param::zeros("b", 1, 1), Param::zeros("mean", 1, 1).frozen()];
        for (param, grad) in params.iter_mut().zip([&[2.0f32, 3.0][..], &[6.0], &[100.0]]) {
            param.grad.view_mut().host().copy_from_slice(grad);
        }
        params
    }

    fn grads(params: &[Param]) -> Vec<f32> {
        params.iter().flat_map(|p| p.grad.view().host().to_vec()).collect()
    }

    #[test]
    fn long_gradients_are_scaled_by_one_factor() {
        let mut at = params();
        assert_eq!(clip(&Reference, 3.5, |see| at.iter_mut().for_each(see)), 7.0);
        for (got, expected) in grads(&at).iter().zip([1.0, 1.5, 3.0, 100.0]) {
            assert!((got - expected).abs() < 1e-5, "{:?}", grads(&at));
        }
        assert!((global_norm(&Reference, |see| at.iter_mut().for_each(see)) - 3.5).abs() < 1e-5);
    }

    #[test]
    fn short_and_non_finite_gradients_are_unchanged() {
        let mut at = params();
        assert_eq!(clip(&Reference, 7.5, |see| at.iter_mut().for_each(see)), 7.0);
        assert_eq!(grads(&at), [2.0, 3.0, 6.0, 100.0]);
        at[0].grad.view_mut().host()[0] = f32::NAN;
        assert!(clip(&Reference, 1.0, |see| at.iter_mut().for_each(see)).is_nan());
        assert_eq!(grads(&at)[1..], [3.0, 6.0, 100.0]);
    }
}
