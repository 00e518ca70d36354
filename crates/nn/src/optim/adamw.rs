//! The AdamW optimiser: Adam with decoupled weight decay.
//!
//! # Algorithm
//!
//! PyTorch's scaling: [`super::adam`] with `g = gradient`, and before the step
//!
//! ```text
//! value -= lr * decay * value
//! ```
//!
//! # Source
//!
//! Loshchilov and Hutter, *Decoupled weight decay regularization*, ICLR 2019, algorithm 2.
//!
//! # Cost
//!
//! That of [`super::adam`].

use graphmill_core::table::Entry;

use super::{
    Make,
    adam::{ADAMW, Adam, AdamOptions},
};

pub(super) const ENTRY: Entry<Make> = Entry {
    name: ADAMW,
    summary: "adam with weight decay applied to the weights, not the gradient",
    source: "Loshchilov and Hutter, ICLR 2019",
    options: &[],
    make: |_| Ok(Box::new(Adam::new(&AdamOptions::default(), true)?)),
};

#[cfg(test)]
mod tests {
    use super::super::Optimizer;
    use super::super::adam::tests::follows_the_formula;
    use super::*;
    use crate::{Param, backend::Reference};

    #[test]
    fn adamw_matches_the_formula() {
        follows_the_formula(true);
    }

    #[test]
    fn decay_scales_weights_by_one_minus_rate_times_decay() {
        // without a gradient, each update multiplies by 1 - 0.1 * 0.5
        let mut adamw = Adam::new(&AdamOptions::default(), true).unwrap();
        let mut param = Param::constant("weight", 1, 1, 1.0);
        for _ in 0..2 {
            adamw.begin(0.1);
            adamw.update(&Reference, 0, &mut param, 0.5);
        }
        assert!((param.value.view().host()[0] - 0.9025).abs() < 1e-6);
    }
}
