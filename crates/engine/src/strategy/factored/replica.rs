//! A Trainer's copy of the model.
//!
//! On a simulated device, parameters and gradients cross the link to the host: the parameters of a
//! version once, the gradient of every batch.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Instant,
};

use graphmill_core::{Matrix, ObjectPool, ViewMut};
use graphmill_loader::{Extracted, feature::Link};
use graphmill_nn::{Backend, Param, model::Model, typed::TypedModel};

use crate::{
    Result,
    accelerator::Gpu,
    learner::{StepContext, StepScratch},
    strategy::batch_states::Gradient,
};

/// A model whose dense parameters have copies.
pub(crate) trait Parameters {
    /// Visits every parameter, always in the same order.
    fn each(&self, see: &mut dyn FnMut(&Param));

    /// Visits every parameter mutably, in the order of [`Parameters::each`].
    fn each_mut(&mut self, see: &mut dyn FnMut(&mut Param));
}

impl Parameters for Model {
    fn each(&self, see: &mut dyn FnMut(&Param)) {
        self.visit(&mut |_, param| see(param));
    }

    fn each_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.visit_mut(&mut |_, param| see(param));
    }
}

impl Parameters for TypedModel {
    fn each(&self, see: &mut dyn FnMut(&Param)) {
        self.visit(&mut |_, param| see(param));
    }

    fn each_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.visit_mut(&mut |_, param| see(param));
    }
}

/// Parameters that Trainers copy. Parameters that are updated on a device stay on devices: each
/// device has a copy before its Trainer reads it.
pub(crate) struct PublishedParameters {
    newest: RwLock<(u64, Vec<Matrix>)>,
    /// Updates made before version 0.
    step: u64,
}

impl PublishedParameters {
    /// The model's parameters after `step` updates, as version 0.
    pub(crate) fn new(model: &dyn Parameters, step: u64) -> Self {
        let mut values = Vec::new();
        model.each(&mut |param| values.push(param.value.clone()));
        Self { newest: RwLock::new((0, values)), step }
    }

    /// Publishes the model's parameters, which `backend` has updated. `gpus` are the training
    /// devices.
    pub(crate) fn publish(&self, model: &dyn Parameters, backend: &dyn Backend, gpus: &[Gpu]) {
        let mut published = self.newest.write().unwrap_or_else(PoisonError::into_inner);
        let (version, values) = &mut *published;
        let mut index = 0;
        model.each(&mut |param| {
            copy(&param.value, backend, values[index].view_mut());
            index += 1;
        });
        // after the update, and before a Trainer queues more work on the first device
        for value in values.iter().filter(|value| value.is_on_device()) {
            for gpu in gpus {
                gpu.copy_here(value.view());
            }
        }
        *version += 1;
    }

    /// Copies the parameters to `model`, at the other end of `link`, for passes by `backend`.
    /// Returns their version, and the number of updates of the run that made them.
    pub(crate) fn copy_to(
        &self,
        model: &mut dyn Parameters,
        backend: &dyn Backend,
        link: &mut ModelLink,
    ) -> [u64; 2] {
        let [version, updates] = self.copy_values(model, backend);
        link.cross_once(updates);
        [version, updates]
    }

    /// [`PublishedParameters::copy_to`] before [`ModelLink::cross_once`].
    pub(crate) fn copy_values(&self, model: &mut dyn Parameters, backend: &dyn Backend) -> [u64; 2] {
        let published = self.newest.read().unwrap_or_else(PoisonError::into_inner);
        let (version, values) = &*published;
        set_values(values, model, &mut |from, to| copy(from, backend, to));
        [*version, self.step + *version]
    }

    /// Number of updates since version 0.
    pub(crate) fn version(&self) -> u64 {
        self.newest.read().unwrap_or_else(PoisonError::into_inner).0
    }

    /// Copies `values`, the parameters before the last `age` updates, which are in host memory, as
    /// [`PublishedParameters::copy_values`] copies the newest.
    pub(crate) fn copy_past(&self, values: &[Matrix], age: u64, model: &mut dyn Parameters) -> [u64; 2] {
        set_values(values, model, &mut |from, to| to.host().copy_from_slice(from.view().host()));
        let version = self.version();
        [version, self.step + version].map(|number| number.saturating_sub(age))
    }
}

/// Calls `copy` for each of `values` and the parameter of `model` that takes it.
fn set_values(values: &[Matrix], model: &mut dyn Parameters, copy: &mut dyn FnMut(&Matrix, ViewMut)) {
    let mut index = 0;
    model.each_mut(&mut |param| {
        copy(&values[index], param.value.view_mut());
        index += 1;
    });
}

/// Copies values: by the backend if they are on its device, otherwise in host memory.
fn copy(from: &Matrix, backend: &dyn Backend, to: ViewMut) {
    if from.is_on_device() {
        backend.copy(from.view(), to);
    } else {
        to.host().copy_from_slice(from.view().host());
    }
}

/// Link between the parameters and a copy of the model, if it is simulated.
pub(crate) struct ModelLink {
    link: Option<Arc<Link>>,
    /// Bytes of the parameters, and of the gradients: all in `f32`.
    bytes: u64,
    /// Updates of the run that made the parameters that last crossed the link.
    newest: Option<u64>,
}

impl ModelLink {
    /// Link to a copy of `model`.
    pub(crate) fn new(model: &dyn Parameters, link: Option<Arc<Link>>) -> Self {
        let mut numbers = 0;
        model.each(&mut |param| numbers += param.value.num_rows() * param.value.num_cols());
        Self { link, bytes: (numbers * size_of::<f32>()) as u64, newest: None }
    }

    /// Charges one copy of the parameters or the gradients to the link.
    fn cross(&self) {
        self.transfer(self.bytes);
    }

    /// Charges one copy of the parameters that `updates` of the run made, unless they were the last
    /// to cross.
    pub(crate) fn cross_once(&mut self, updates: u64) {
        if self.newest.replace(updates) != Some(updates) {
            self.cross();
        }
    }

    /// Charges `bytes` to the link.
    pub(crate) fn transfer(&self, bytes: u64) {
        if let Some(link) = &self.link {
            link.transfer(bytes, Instant::now());
        }
    }

    /// Takes the gradients of `model` to `values`, and the values of running statistics, over the
    /// link. Gives it the matrices that were there.
    pub(crate) fn take_gradients(&self, model: &mut dyn Parameters, values: &mut Vec<Matrix>) {
        let mut index = 0;
        model.each_mut(&mut |param| {
            if index == values.len() {
                values.push(Matrix::zeros(param.grad.num_rows(), param.grad.num_cols()));
            }
            if param.trainable {
                std::mem::swap(&mut values[index], &mut param.grad);
            } else {
                values[index].view_mut().host().copy_from_slice(param.value.view().host());
            }
            index += 1;
        });
        self.cross();
    }
}

/// A Trainer's model, and scratch for its passes.
pub(super) struct Replica {
    model: Model,
    pub(super) scratch: StepScratch,
    link: ModelLink,
}

impl Replica {
    /// Copy of `model` at the other end of `link`, if there is one.
    pub(super) fn new(model: &Model, link: Option<Arc<Link>>) -> Self {
        let link = ModelLink::new(model, link);
        Self { model: model.clone(), scratch: StepScratch::default(), link }
    }

    /// Computes the gradient of a batch from the newest parameters, in matrices of `spare` if it
    /// has some. `number` is that of the batch in the whole run.
    ///
    /// # Errors
    /// A device failed.
    pub(super) fn train(
        &mut self,
        context: &mut StepContext,
        published: &PublishedParameters,
        spare: &ObjectPool<Vec<Matrix>>,
        batch: &Extracted,
        number: u64,
    ) -> Result<Gradient> {
        let [version, updates] = published.copy_to(&mut self.model, context.backend, &mut self.link);
        // rows that are too old are not read
        let reused = context.reuse.as_ref().map_or(0, |reuse| reuse.rows.staleness(updates));
        let loss = context.gradient(&mut self.model, batch, number);
        context.backend.check()?;
        let mut values = spare.take_or_default();
        self.link.take_gradients(&mut self.model, &mut values);
        Ok(Gradient { values, loss, version, reused })
    }
}
