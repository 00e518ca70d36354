//! Optimisers: the [`Optimizer`] trait, and the table of optimisers.
//!
//! An update of the whole model is one [`Optimizer::begin`] followed by one [`Optimizer::update`]
//! per parameter, in the model's visiting order:
//!
//! ```
//! # use graphmill_core::options::OwnOptions;
//! # use graphmill_nn::{Param, backend::Reference, optim};
//! # let backend = Reference;
//! # let mut params = vec![Param::constant("weight", 1, 2, 1.0)];
//! let mut optimizer = optim::by_name("adam", &OwnOptions::default()).unwrap();
//! optimizer.begin(0.003);
//! for (index, param) in params.iter_mut().enumerate() {
//!     optimizer.update(&backend, index, param, 5e-4);
//! }
//! assert_eq!(optimizer.steps(), 1);
//! ```
//!
//! Parameters are identified by their index, so a resumed run assigns saved state correctly. Weight
//! decay is an argument of each update, because a model may decay its weights but not its biases,
//! or its first layer only.

#![forbid(unsafe_code)]

mod adam;
mod adamw;
mod clip;
pub mod rows;
mod sgd;
mod sparse_adam;

pub use adam::{Adam, AdamOptions};
pub use clip::{clip, clip_factor, global_norm, scale_gradients, squared_norm};
pub use sgd::{Sgd, SgdOptions};
pub use sparse_adam::SparseAdam;

use graphmill_core::{options::OwnOptions, table::Table};

use crate::{Backend, Error, Matrix, Param, Result};

/// Rule that turns gradients into updates.
///
/// ```
/// use graphmill_nn::{Matrix, Param, backend::Reference, optim::{self, Optimizer}};
///
/// let mut weight = Param::constant("weight", 1, 2, 1.0);
/// weight.grad = Matrix::from_slice(1, 2, &[2.0, -4.0]);
/// let mut sgd = optim::Sgd::new(&optim::SgdOptions { momentum: 0.0, nesterov: false })?;
/// sgd.begin(0.25);
/// sgd.update(&Reference, 0, &mut weight, 0.0);
/// assert_eq!(weight.value.view().host(), [0.5, 2.0]);
/// # Ok::<(), graphmill_nn::Error>(())
/// ```
pub trait Optimizer: Send {
    /// Name in the [`TABLE`].
    fn name(&self) -> &'static str;

    /// Starts an update with learning rate `lr` and increments the step count.
    fn begin(&mut self, lr: f32);

    /// Updates the parameter at `index` of the visiting order from its gradient, which is
    /// unchanged. `decay` is the weight decay (an L2 penalty, or AdamW's). Frozen parameters are
    /// skipped. State is allocated in a parameter's first update and never afterwards.
    ///
    /// # Panics
    /// The parameter had another shape before: a bug in the caller.
    fn update(&mut self, backend: &dyn Backend, index: usize, param: &mut Param, decay: f32);

    /// Allocates the initial state of the parameter at `index`, so that a checkpoint can be read
    /// into it. Existing state is unchanged.
    fn prepare(&mut self, index: usize, param: &Param);

    /// Number of updates begun.
    fn steps(&self) -> u64;

    /// Restores the count of a checkpoint.
    fn set_steps(&mut self, steps: u64);

    /// Visits the state under names such as `3.m`: index, dot, kind. The order is always the same.
    fn visit_state(&self, see: &mut dyn FnMut(&str, &Matrix));

    /// Visits the state mutably, in the order of [`Optimizer::visit_state`].
    fn visit_state_mut(&mut self, see: &mut dyn FnMut(&str, &mut Matrix));
}

/// Rejects a fraction outside `[0, 1)`.
fn check_fraction(name: &'static str, value: f32) -> Result<()> {
    if (0.0..1.0).contains(&value) {
        Ok(())
    } else {
        Err(Error::config(name, value, "must be at least 0 and below 1"))
    }
}

/// Constructor of an optimiser from the options of a run.
pub type Make = fn(&OwnOptions) -> Result<Box<dyn Optimizer>>;

/// Table of the optimisers.
pub static TABLE: Table<Make> = Table::new("optimizer", &[sgd::ENTRY, adam::ENTRY, adamw::ENTRY]);

/// Creates the optimiser called `name`.
///
/// # Errors
/// The name is unknown, or an option is out of range, even one that this optimiser ignores, so that
/// no run records an invalid value.
pub fn by_name(name: &str, own: &OwnOptions) -> Result<Box<dyn Optimizer>> {
    let entry = TABLE.find(name)?;
    for group in TABLE.iter().flat_map(|entry| entry.options) {
        own.check(*group).map_err(|fault| Error::option(&own.write(*group), fault))?;
    }
    (entry.make)(own)
}

/// State of one parameter: `N` matrices of the parameter's shape.
#[derive(Clone, Debug)]
struct Slot<const N: usize> {
    matrices: [Matrix; N],
}

/// States of a model's parameters; frozen and not yet updated parameters have none.
#[derive(Clone, Debug, Default)]
struct Slots<const N: usize>(Vec<Option<Slot<N>>>);

impl<const N: usize> Slots<N> {
    /// State at `index`, zeros at first.
    fn at(&mut self, index: usize, param: &Param) -> &mut [Matrix; N] {
        if self.0.len() <= index {
            self.0.resize(index + 1, None);
        }
        let shape = (param.value.num_rows(), param.value.num_cols());
        let slot = self.0[index].get_or_insert_with(|| Slot {
            matrices: std::array::from_fn(|_| Matrix::zeros(shape.0, shape.1)),
        });
        let allocated = (slot.matrices[0].num_rows(), slot.matrices[0].num_cols());
        assert_eq!(allocated, shape, "parameter {index} '{}' changed its shape", param.name);
        &mut slot.matrices
    }

    /// Visits every matrix as `index.kind`.
    fn visit(&self, kinds: [&str; N], see: &mut dyn FnMut(&str, &Matrix)) {
        for (index, slot) in self.0.iter().enumerate() {
            for (kind, matrix) in kinds.iter().zip(slot.iter().flat_map(|slot| &slot.matrices)) {
                see(&format!("{index}.{kind}"), matrix);
            }
        }
    }

    /// Visits every matrix mutably.
    fn visit_mut(&mut self, kinds: [&str; N], see: &mut dyn FnMut(&str, &mut Matrix)) {
        for (index, slot) in self.0.iter_mut().enumerate() {
            for (kind, matrix) in kinds.iter().zip(slot.iter_mut().flat_map(|slot| &mut slot.matrices)) {
                see(&format!("{index}.{kind}"), matrix);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Reference;

    /// Runs one update of two parameters with gradients `grad(step, index, element)`.
    fn step(optimizer: &mut dyn Optimizer, params: &mut [Param], step: usize) {
        optimizer.begin(0.1);
        for (index, param) in params.iter_mut().enumerate() {
            for (i, g) in param.grad.view_mut().host().iter_mut().enumerate() {
                *g = ((step * 7 + index * 3 + i) % 5) as f32 - 2.0;
            }
            optimizer.update(&Reference, index, param, 0.01);
        }
    }

    fn sgd(momentum: f64, nesterov: bool) -> OwnOptions {
        OwnOptions::default().with(SgdOptions { momentum, nesterov })
    }

    fn params() -> Vec<Param> {
        vec![
            Param::constant("weight", 2, 3, 1.0),
            Param::constant("running_mean", 1, 3, 5.0).frozen(),
            Param::constant("bias", 1, 3, -1.0),
        ]
    }

    fn values(params: &[Param]) -> Vec<f32> {
        params.iter().flat_map(|p| p.value.view().host().to_vec()).collect()
    }

    #[test]
    fn resumed_optimizers_are_bit_identical() {
        for entry in &TABLE {
            let options = sgd(0.9, true);
            let mut whole = by_name(entry.name, &options).unwrap();
            assert_eq!(whole.name(), entry.name);
            let mut at = params();
            for i in 0..3 {
                step(&mut *whole, &mut at, i);
            }

            // the checkpoint: parameters, state, step counter
            let mut resumed = by_name(entry.name, &options).unwrap();
            let mut resumed_at = at.clone();
            for (index, param) in resumed_at.iter().enumerate() {
                resumed.prepare(index, param);
            }
            let mut state = Vec::new();
            whole.visit_state(&mut |name, matrix| state.push((name.to_string(), matrix.clone())));
            assert!(!state.is_empty() && state.iter().all(|(name, _)| !name.starts_with("1.")), "{state:?}");
            let mut state = state.into_iter();
            resumed.visit_state_mut(&mut |name, matrix| {
                let (saved, value) = state.next().unwrap();
                assert_eq!(saved, name);
                *matrix = value;
            });
            resumed.set_steps(whole.steps());

            for i in 3..6 {
                step(&mut *whole, &mut at, i);
                step(&mut *resumed, &mut resumed_at, i);
            }
            assert_eq!(values(&at), values(&resumed_at), "{}", entry.name);
            assert_eq!(whole.steps(), 6);
            assert_eq!(values(&at[1..2]), [5.0; 3], "frozen");
        }
    }

    #[test]
    fn state_is_allocated_once() {
        for entry in &TABLE {
            let mut optimizer = by_name(entry.name, &sgd(0.5, false)).unwrap();
            let mut at = params();
            let addresses = |optimizer: &dyn Optimizer| {
                let mut all = Vec::new();
                optimizer.visit_state(&mut |_, matrix| all.push(matrix.view().host().as_ptr() as usize));
                all
            };
            step(&mut *optimizer, &mut at, 0);
            let first = addresses(&*optimizer);
            step(&mut *optimizer, &mut at, 1);
            assert_eq!(first, addresses(&*optimizer));
        }
    }

    #[test]
    fn errors_name_the_option_and_its_range() {
        let message = |name, own: OwnOptions| by_name(name, &own).err().unwrap().to_string();
        for entry in &TABLE {
            for momentum in [-0.5, 1.0, 1.5] {
                assert_eq!(
                    message(entry.name, sgd(momentum, false)),
                    format!("momentum = {momentum:?}: at least 0 and below 1")
                );
            }
            assert!(message(entry.name, sgd(f64::NAN, false)).ends_with(": at least 0 and below 1"));
        }
        assert!(message("sgd", sgd(0.0, true)).contains("momentum"));
        let of = |options: AdamOptions| Adam::new(&options, false).unwrap_err().to_string();
        assert!(of(AdamOptions { beta2: 1.0, ..AdamOptions::default() }).contains("beta2"));
        assert!(of(AdamOptions { eps: 0.0, ..AdamOptions::default() }).contains("eps"));
        assert_eq!(
            message("lion", OwnOptions::default()),
            "unknown optimizer 'lion'; known: sgd, adam, adamw"
        );
    }
}
