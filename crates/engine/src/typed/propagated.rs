//! Labels and errors that spread between the nodes of a task's type: the baseline of a run, and
//! predictions of a saved run after its model.
//!
//! [`graphmill_core::spread`] defines the paths by which they spread.

use graphmill_core::{NodeId, progress::Progress, spread::Paths};
use graphmill_data::typed::TypedDataset;
use graphmill_nn::{Matrix, backend::Cpu};

use super::{
    inference::TypedInference,
    saved::{Loaded, SavedTypedRun},
    task::TypedTask,
};
use crate::{Error, Result, inference::Output, propagation::Known, saved::ClassOutputs};

impl TypedTask {
    /// Targets that spread, and their paths.
    ///
    /// # Errors
    /// The reason why they cannot spread: rows of the task have times, or no path joins nodes of
    /// its type.
    pub(super) fn known<'k>(&'k self, watch: &'k dyn Progress) -> Result<Known<'k>, String> {
        if self.times.is_some() {
            return Err(format!(
                "the rows of task '{}' have times, and labels would spread to earlier rows",
                self.name
            ));
        }
        let paths = Paths::of_type(&self.graph, self.node_type).ok_or_else(|| {
            format!(
                "no edge joins nodes of type '{0}', and no two edges lead from '{0}' to another type and \
                 back",
                self.graph.schema().types()[self.node_type].name
            )
        })?;
        let (labels, train) = (&self.labels, &self.split.train);
        Ok(Known { paths, labels, outputs: labels.classes(), train, watch })
    }
}

impl SavedTypedRun<'_> {
    /// Outputs of all nodes of the task's type after the propagation of the run, if it has one:
    /// logits of classes, or values at the scale of the targets.
    ///
    /// # Errors
    /// Targets cannot spread, none trains, features cannot be read, or `watch` stops the work.
    pub(super) fn propagated(
        &self,
        data: &TypedDataset,
        Loaded { task, model }: &Loaded,
        inference: &mut TypedInference,
        watch: &dyn Progress,
    ) -> Result<Option<Matrix>> {
        let Some(propagation) = self.run.propagation() else { return Ok(None) };
        let refuse = |why| Error::usage(format!("--propagate {}: {why}; leave it out", propagation.name()));
        let known = task.known(watch).map_err(refuse)?;
        propagation.check_targets(known.train, known.labels, &data.name)?;
        let of_model = || {
            let (all, mut rows) = ((0..task.num_nodes() as NodeId).collect::<Vec<_>>(), Matrix::default());
            inference.run(model, &all, Output::Logits, &mut rows)?;
            match self.run.target_scale().is_some() {
                true => self.run.undo_scale(&mut rows),
                false => {
                    let outputs = ClassOutputs::new(task.labels.is_multi(), self.run.columns());
                    outputs.probabilities(&Cpu::default(), &mut rows);
                }
            }
            Ok(rows)
        };
        propagation.outputs(&known, of_model).map(Some)
    }
}
