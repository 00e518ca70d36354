//! Matrices that a forward pass saves for its backward pass.

use std::{any::Any, fmt::Debug};

use crate::Matrix;

/// Matrices that a forward pass saves for its backward pass, and scratch for intermediate results.
/// They are reused for every batch, so nothing is allocated after the largest one. One value
/// belongs to one layer.
#[derive(Clone, Debug, Default)]
pub struct Saved {
    /// Transformed rows ([`super::Layer::transform`]).
    pub(super) transformed: Vec<Matrix>,
    state: Option<Box<dyn State>>,
}

impl Saved {
    /// The layer's struct of matrices: created by the first call, or if another type used the value
    /// before, and unchanged from then on.
    pub fn state<T: Any + Clone + Debug + Default + Send + Sync>(&mut self) -> &mut T {
        if !self.state.as_deref().is_some_and(|state| (state as &dyn Any).is::<T>()) {
            self.state = Some(Box::new(T::default()));
        }
        let state = self.state.as_deref_mut().and_then(|state| (state as &mut dyn Any).downcast_mut());
        state.expect("the state was made with this type")
    }
}

/// State of any type that can be copied.
trait State: Any + Debug + Send + Sync {
    fn clone_state(&self) -> Box<dyn State>;
}

impl<T: Any + Clone + Debug + Send + Sync> State for T {
    fn clone_state(&self) -> Box<dyn State> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn State> {
    fn clone(&self) -> Self {
        (**self).clone_state()
    }
}
