//! Predictions of a saved run after labels or errors have spread over the graph.

use graphmill_core::{NodeId, options::OptionSet, progress::Progress, table::Entry};
use graphmill_data::Dataset;
use graphmill_nn::Matrix;
use serde::Serialize;

use super::{
    SavedRun,
    infer::{ClassOutputs, LoadedModel},
};
use crate::{
    Error, Result,
    config::events::is_of_events,
    inference::Output,
    propagation::{Known, Method, PropagationOptions, TABLE, outputs},
    tiers::AllRows,
};

/// Propagation that follows a model.
#[derive(Clone, Debug)]
pub struct Propagation {
    method: &'static Entry<Method>,
    options: PropagationOptions,
}

/// Propagation that scores were computed with.
#[derive(Clone, Debug, Serialize)]
pub struct PropagationRecord {
    /// Name of the method.
    pub method: &'static str,
    /// Its options.
    #[serde(flatten)]
    pub options: PropagationOptions,
}

impl Propagation {
    /// The method called `name` with its options.
    ///
    /// # Errors
    /// There is no such method, or an option is out of range.
    pub fn new(name: &str, options: PropagationOptions) -> Result<Self> {
        let refused = |fault: graphmill_core::options::Fault| {
            let option = fault.option.unwrap_or_default().replace('_', "-");
            Error::usage(format!("--{option}: {}", fault.message))
        };
        options.check().map_err(refused)?;
        Ok(Self { method: TABLE.find(name)?, options })
    }

    /// Method and options, for documents.
    pub fn record(&self) -> PropagationRecord {
        PropagationRecord { method: self.method.name, options: self.options.clone() }
    }

    /// Name of the method.
    pub fn name(&self) -> &'static str {
        self.method.name
    }
}

impl SavedRun {
    /// The run with a propagation after its model, in [`SavedRun::scores`] and
    /// [`SavedRun::predict_selection`].
    ///
    /// # Errors
    /// The run did not learn targets of the nodes of a graph of one type, or the method reads
    /// errors of a model that reads labels.
    pub fn with_propagation(mut self, propagation: Propagation) -> Result<Self> {
        let why = match &self.origin {
            _ if self.learns_links() => Some("the run learned links, which are no labels of nodes"),
            _ if is_of_events(&self.config) => {
                Some("the run learned targets of events, and labels spread over the edges of nodes")
            }
            None => Some("the run has no record of its targets (dataset.json)"),
            Some(origin) if origin.typed.is_some() => Some(
                "the run learned a task of a graph of several types or tasks, and labels spread over the \
                 edges of one node type",
            ),
            Some(_) => None,
        };
        if let Some(why) = why {
            return Err(Error::usage(format!("--propagate {}: {why}; leave it out", propagation.name())));
        }
        if self.config.label_inputs > 0.0 && propagation.method.make.reads_model {
            return Err(Error::usage(format!(
                "--propagate {}: the model reads the labels of the training nodes (--label-inputs {}), so \
                 its errors on them are not those on other nodes; leave it out",
                propagation.name(),
                self.config.label_inputs
            )));
        }
        self.propagation = Some(propagation);
        Ok(self)
    }

    /// Outputs of all nodes after the propagation, from the rows `features` of all nodes: logits of
    /// classes, or values at the scale of the targets.
    ///
    /// # Errors
    /// The dataset has no training nodes with targets like those of the run, features cannot be
    /// read, or `watch` stops the work.
    pub(super) fn propagated(
        &self,
        propagation: &Propagation,
        (loaded, data): (&LoadedModel, &Dataset),
        features: &AllRows,
        watch: &dyn Progress,
    ) -> Result<Matrix> {
        let refuse = |message: String| Err(Error::dataset(&data.name, message));
        let (train, labels) = (&data.split.train[..], &data.labels);
        if train.is_empty() || labels.classes() == 0 {
            return refuse(format!("--propagate {} needs targets of training nodes", propagation.name()));
        }
        let (found, classes) = (labels.classes(), loaded.num_outputs());
        if found > classes {
            let kind = if labels.is_values() { "targets" } else { "classes" };
            return refuse(format!(
                "it has {found} {kind}, but the run has {classes}; leave out --propagate"
            ));
        }
        if self.origin.as_ref().is_some_and(|origin| !origin.dataset.has_targets_like(labels)) {
            return refuse(
                "its targets are not of the kind that the run learned; leave out --propagate".into(),
            );
        }
        let mut start = Matrix::default();
        if propagation.method.make.reads_model {
            let all: Vec<NodeId> = (0..data.num_nodes() as NodeId).collect();
            let graph = (&data.graph, features);
            start = self.blame_config(loaded.rows(graph, &loaded.exact, &all, Output::Logits, watch))?;
            if !loaded.predicts_values() {
                ClassOutputs::new(loaded.multi, &loaded.columns).probabilities(loaded.backend(), &mut start);
            }
        }
        let known = Known { graph: &data.graph, labels, outputs: classes, train, watch };
        Ok(outputs(labels, (propagation.method.make.run)(&known, &propagation.options, start)?))
    }
}
