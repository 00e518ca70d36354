//! A Trainer's copy of the model.

use std::sync::{PoisonError, RwLock};

use graphmill_graph::Matrix;
use graphmill_nn::model::Model;

use super::Spare;
use crate::{
    Result,
    learner::{Passes, Room},
    strategy::line::Slot,
};

/// The parameters that Trainers copy.
pub(super) struct Published {
    newest: RwLock<(u64, Vec<Matrix>)>,
    /// Updates made before version 0.
    step: u64,
}

impl Published {
    /// The model's parameters after `step` updates, as version 0.
    pub(super) fn new(model: &Model, step: u64) -> Self {
        let mut values = Vec::new();
        model.visit(&mut |_, param| values.push(param.value.clone()));
        Self { newest: RwLock::new((0, values)), step }
    }

    /// The model's parameters from now on.
    pub(super) fn publish(&self, model: &Model) {
        let mut published = self.newest.write().unwrap_or_else(PoisonError::into_inner);
        let (version, values) = &mut *published;
        let mut index = 0;
        model.visit(&mut |_, param| {
            values[index].view_mut().host().copy_from_slice(param.value.view().host());
            index += 1;
        });
        *version += 1;
    }

    /// Copies the parameters to `model`; returns their version.
    fn copy_to(&self, model: &mut Model) -> u64 {
        let published = self.newest.read().unwrap_or_else(PoisonError::into_inner);
        let (version, values) = &*published;
        let mut index = 0;
        model.visit_mut(&mut |_, param| {
            param.value.view_mut().host().copy_from_slice(values[index].view().host());
            index += 1;
        });
        *version
    }
}

/// A Trainer's model, and room for its passes.
pub(super) struct Replica {
    model: Model,
    pub(super) room: Room,
}

impl Replica {
    pub(super) fn new(model: &Model) -> Self {
        Self { model: model.clone(), room: Room::default() }
    }

    /// Computes the gradient of a batch from the newest parameters, and leaves it in the slot. `number` is that of the batch in
    /// the whole run.
    ///
    /// # Errors
    /// A device failed.
    pub(super) fn train(
        &mut self,
        passes: &mut Passes,
        published: &Published,
        spare: &Spare<Vec<Matrix>>,
        slot: &mut Slot,
        number: u64,
    ) -> Result<()> {
        let Slot { batch, gradient, .. } = slot;
        gradient.version = published.copy_to(&mut self.model);
        // rows that are too old are not read
        gradient.reused =
            passes.reuse.as_ref().map_or(0, |reuse| reuse.staleness(published.step + gradient.version));
        gradient.loss = passes.gradient(&mut self.model, batch, number);
        passes.backend.check()?;
        let mut index = 0;
        if gradient.values.is_empty() {
            gradient.values = spare.take();
        }
        let values = &mut gradient.values;
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
        Ok(())
    }
}
