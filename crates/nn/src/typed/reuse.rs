//! Rows of the first layer that are read from a table instead of computed from a block, as
//! [`crate::model`] reads them on one type.
//!
//! [`TypedModel::bottom_rows`] computes rows of each type for a table, and [`TypedStep::reused`]
//! appends rows of the table to those that a batch computes. Which rows the table holds, and for
//! how long, is the caller's choice. A row is the output of the layer before the norm.
//!
//! # Gradients
//!
//! Reused rows are constants: the layer, the projections of features and the learned rows below it
//! learn from computed rows alone.
//!
//! # Source
//!
//! Ai et al., *NeutronOrch*, VLDB 2024, section 4.1.
//!
//! # Cost
//!
//! O(H O) for `H` reused rows of width `O`.

use graphmill_core::{Error, Result};

use super::{TypedActivations, TypedModel, TypedStep, activations::StageActs, input::TypeInput, model::part};
use crate::{Matrix, Param, Pass};

impl TypedStep<'_> {
    /// Checks that the sources of the block above the bottom one are its destinations and the
    /// reused rows.
    pub(super) fn check_reused(&self) -> Result<()> {
        if self.reused.is_empty() {
            return Ok(());
        }
        let [bottom, above, ..] = self.blocks else {
            return Err(Error::invalid(
                "typed batch: reused rows need a block for each layer, and at least two; sample by neighbor",
            ));
        };
        let fits =
            |(t, reused): (usize, &crate::Reused)| bottom.num_dst[t] + reused.slots.len() == above.num_src[t];
        if self.reused.len() == bottom.num_dst.len() && self.reused.iter().enumerate().all(fits) {
            return Ok(());
        }
        let slots: Vec<usize> = self.reused.iter().map(|reused| reused.slots.len()).collect();
        Err(Error::invalid(format!(
            "typed batch: {:?} computed rows and {slots:?} reused ones are not the {:?} sources of the \
             second layer; pass the slots of each type",
            bottom.num_dst, above.num_src
        )))
    }
}

impl TypedModel {
    /// Width of the rows of layer 0.
    pub fn bottom_dim(&self) -> usize {
        self.stages[0].conv.spec().out_dim
    }

    /// Computes the rows of the first layer before the norm for the destinations of the only block
    /// of `step`, `D_t x O` of each type. Dropout of the input rows and of attention depends on
    /// `pass`; that of the output rows is not applied.
    ///
    /// # Errors
    /// The batch does not fit the model, or a block is too large.
    pub fn bottom_rows<'a>(
        &self,
        pass: &Pass,
        step: &TypedStep,
        acts: &'a mut TypedActivations,
    ) -> Result<&'a [Matrix]> {
        self.check(step)?;
        acts.stages.resize_with(self.stages.len(), StageActs::default);
        let projected = self.inputs.projected(step.features, self.reads_projections());
        let of_input = pass.part(part::INPUT);
        let TypedActivations { input, stages, .. } = acts;
        self.inputs.forward(&of_input, &self.schema, step.features, step.nodes, &projected, input)?;
        let StageActs { rows, saved, .. } = &mut stages[0];
        rows.fit(self.schema.num_types());
        let input = step.input(&self.schema, 0, &input.out, &projected);
        self.stages[0].conv.forward(&pass.part(0), &input, saved, &mut rows.out)?;
        Ok(&rows.out)
    }

    /// Visits the dense parameters that a row of [`TypedModel::bottom_rows`] depends on: those of
    /// the projections and of the first layer, always in the same order.
    pub fn visit_bottom<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        for input in &self.inputs.types {
            if let TypeInput::Projected(linear) = input {
                linear.visit(see);
            }
        }
        self.stages[0].conv.visit(&mut |_, param| see(param));
    }
}
