//! A Trainer's copy of the model.
//!
//! On a simulated device, parameters and gradients cross the link to the host: the parameters of a
//! version once, the gradient of every batch.

use std::{sync::Arc, time::Instant};

use graphmill_core::{Matrix, ObjectPool};
use graphmill_loader::{Extracted, feature::Link};
use graphmill_nn::model::Model;

use crate::{
    Result,
    learner::{StepContext, StepScratch},
    strategy::batch_states::Gradient,
    versions::{Parameters, PublishedParameters},
};

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

    /// Computes the gradient of a batch from a version of the parameters, in matrices of `spare` if
    /// it has some. `number` is that of the batch in the whole run.
    ///
    /// # Errors
    /// A device failed.
    pub(super) fn train(
        &mut self,
        context: &mut StepContext,
        (published, version): (&PublishedParameters, u64),
        spare: &ObjectPool<Vec<Matrix>>,
        batch: &Extracted,
        number: u64,
    ) -> Result<Gradient> {
        let updates = published.copy_to(version, &mut self.model, context.backend);
        self.link.cross_once(updates);
        // rows that are too old are not read
        let reused = context.reuse.as_ref().map_or(0, |reuse| reuse.rows.staleness(updates));
        let loss = context.gradient(&mut self.model, batch, number);
        context.backend.check()?;
        let mut values = spare.take_or_default();
        self.link.take_gradients(&mut self.model, &mut values);
        Ok(Gradient { values, loss, version, reused })
    }
}
