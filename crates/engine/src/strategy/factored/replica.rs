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
use graphmill_nn::{Backend, model::Model};

use crate::{
    Result,
    accelerator::Gpu,
    learner::{StepContext, StepScratch},
    strategy::batch_states::Gradient,
};

/// Parameters that Trainers copy. Parameters that are updated on a device stay on devices: each
/// device has a copy before its Trainer reads it.
pub(super) struct PublishedParameters {
    newest: RwLock<(u64, Vec<Matrix>)>,
    /// Updates made before version 0.
    step: u64,
}

impl PublishedParameters {
    /// The model's parameters after `step` updates, as version 0.
    pub(super) fn new(model: &Model, step: u64) -> Self {
        let mut values = Vec::new();
        model.visit(&mut |_, param| values.push(param.value.clone()));
        Self { newest: RwLock::new((0, values)), step }
    }

    /// Publishes the model's parameters, which `backend` has updated. `gpus` are the training
    /// devices.
    pub(super) fn publish(&self, model: &Model, backend: &dyn Backend, gpus: &[Gpu]) {
        let mut published = self.newest.write().unwrap_or_else(PoisonError::into_inner);
        let (version, values) = &mut *published;
        let mut index = 0;
        model.visit(&mut |_, param| {
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

    /// Copies the parameters to `model`, for passes by `backend`; returns their version.
    fn copy_to(&self, model: &mut Model, backend: &dyn Backend) -> u64 {
        let published = self.newest.read().unwrap_or_else(PoisonError::into_inner);
        let (version, values) = &*published;
        let mut index = 0;
        model.visit_mut(&mut |_, param| {
            copy(&values[index], backend, param.value.view_mut());
            index += 1;
        });
        *version
    }
}

/// Copies values: by the backend if they are on its device, otherwise in host memory.
fn copy(from: &Matrix, backend: &dyn Backend, to: ViewMut) {
    if from.is_on_device() {
        backend.copy(from.view(), to);
    } else {
        to.host().copy_from_slice(from.view().host());
    }
}

/// A Trainer's model, and scratch for its passes.
pub(super) struct Replica {
    model: Model,
    pub(super) scratch: StepScratch,
    /// Link between the parameters and the Trainer, if it is simulated.
    link: Option<Arc<Link>>,
    /// Bytes of the parameters, and of the gradients: all in `f32`.
    bytes: u64,
    /// Updates of the run that made the parameters that last crossed the link.
    newest: Option<u64>,
}

impl Replica {
    /// Copy of `model` at the other end of `link`, if there is one.
    pub(super) fn new(model: &Model, link: Option<Arc<Link>>) -> Self {
        let mut numbers = 0;
        model.visit(&mut |_, param| numbers += param.value.num_rows() * param.value.num_cols());
        let bytes = (numbers * size_of::<f32>()) as u64;
        Self { model: model.clone(), scratch: StepScratch::default(), link, bytes, newest: None }
    }

    /// Charges one copy of the parameters or the gradients to the link.
    fn cross(&self) {
        if let Some(link) = &self.link {
            link.transfer(self.bytes, Instant::now());
        }
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
        let version = published.copy_to(&mut self.model, context.backend);
        if self.newest.replace(published.step + version) != Some(published.step + version) {
            self.cross();
        }
        // rows that are too old are not read
        let reused = context.reuse.as_ref().map_or(0, |reuse| reuse.rows.staleness(published.step + version));
        let loss = context.gradient(&mut self.model, batch, number);
        context.backend.check()?;
        let mut index = 0;
        let mut values = spare.take_or_default();
        self.model.visit_mut(&mut |_, param| {
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
        Ok(Gradient { values, loss, version, reused })
    }
}
