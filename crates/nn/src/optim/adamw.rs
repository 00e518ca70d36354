//! AdamW (Loshchilov and Hutter, *Decoupled weight decay regularization*, ICLR 2019, algorithm 2),
//! in PyTorch's scaling: [`super::adam`] with `g = gradient`, and before the step
//!
//! ```text
//! value -= lr * decay * value
//! ```

use graphmill_core::table::Entry;

use super::{
    Make,
    adam::{ADAMW, Adam, AdamOptions},
};

pub(super) const ENTRY: Entry<Make> = Entry {
    name: ADAMW,
    summary: "adam, with the decay on the weights themselves instead of in the gradient",
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
    fn adamw_follows_the_formula() {
        follows_the_formula(true);
    }

    #[test]
    fn decay_shrinks_by_the_learning_rate_times_itself() {
        // no gradient: nothing but the decay, 1 - 0.1 * 0.5 each time
        let mut adamw = Adam::new(&AdamOptions::default(), true).unwrap();
        let mut param = Param::constant("weight", 1, 1, 1.0);
        for _ in 0..2 {
            adamw.begin(0.1);
            adamw.update(&Reference, 0, &mut param, 0.5);
        }
        assert!((param.value.view().host()[0] - 0.9025).abs() < 1e-6);
    }
}
