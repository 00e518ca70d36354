//! Predictions of a saved run after labels or errors have spread over the graph.

use graphmill_core::{Labels, NodeId, options::OptionSet, progress::Progress, spread::Paths, table::Entry};
use graphmill_data::Dataset;
use graphmill_nn::Matrix;
use serde::Serialize;

use super::{
    Kind, SavedRun,
    infer::{ClassOutputs, LoadedModel},
};
use crate::{
    Error, Result,
    config::{embedding::is_table, events::is_of_events},
    inference::Output,
    propagation::{Known, Method, PropagationOptions, TABLE, outputs},
    record::Origin,
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

    /// Refuses embeddings.
    ///
    /// # Errors
    /// `kind` is embeddings.
    pub(crate) fn check_kind(&self, kind: Kind) -> Result<()> {
        match kind {
            Kind::Embeddings => {
                let message = format!("--propagate {}: embeddings are not propagated", self.name());
                Err(Error::usage(message))
            }
            Kind::Classes | Kind::Probabilities => Ok(()),
        }
    }

    /// Refuses a dataset without targets of training nodes.
    ///
    /// # Errors
    /// The dataset called `name` has none.
    pub(crate) fn check_targets(&self, train: &[NodeId], labels: &Labels, name: &str) -> Result<()> {
        if train.is_empty() || labels.classes() == 0 {
            let message = format!("--propagate {} needs targets of training nodes", self.name());
            return Err(Error::dataset(name, message));
        }
        Ok(())
    }

    /// Outputs of all nodes: logits of classes, or values at the scale of the targets. `of_model`
    /// computes the probabilities or values of the model for all nodes.
    ///
    /// # Errors
    /// Those of `of_model`, or the work is asked to end.
    pub(crate) fn outputs(&self, known: &Known, of_model: impl FnOnce() -> Result<Matrix>) -> Result<Matrix> {
        let Method { reads_model, run } = self.method.make;
        let start = if reads_model { of_model()? } else { Matrix::default() };
        Ok(outputs(known.labels, run(known, &self.options, start)?))
    }
}

impl SavedRun {
    /// The run with a propagation after its model, in [`SavedRun::scores`] and
    /// [`SavedRun::predict_selection`].
    ///
    /// # Errors
    /// The run did not learn targets of nodes, or the method reads errors of a model that reads
    /// labels.
    pub fn with_propagation(mut self, propagation: Propagation) -> Result<Self> {
        let why = match &self.origin {
            _ if self.learns_links() => Some("the run learned links, which are no labels of nodes"),
            _ if is_of_events(&self.config) => {
                Some("the run learned targets of events, and labels spread over the edges of nodes")
            }
            None => Some("the run has no record of its targets (dataset.json)"),
            Some(Origin { typed: Some(typed), .. }) if !typed.is_on_nodes || is_table(&self.config) => Some(
                "the run did not learn targets of nodes, or an older version wrote it, and labels spread \
                 between nodes",
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

    /// The propagation after the model, if there is one.
    pub(crate) fn propagation(&self) -> Option<&Propagation> {
        self.propagation.as_ref()
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
        propagation.check_targets(train, labels, &data.name)?;
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
        let of_model = || {
            let all: Vec<NodeId> = (0..data.num_nodes() as NodeId).collect();
            let graph = (&data.graph, features);
            let rows = loaded.rows(graph, &loaded.exact, &all, Output::Logits, watch);
            let mut rows = self.blame_config(rows)?;
            if !loaded.predicts_values() {
                ClassOutputs::new(loaded.multi, &loaded.columns).probabilities(loaded.backend(), &mut rows);
            }
            Ok(rows)
        };
        let paths = Paths::of_graph(&data.graph);
        propagation.outputs(&Known { paths, labels, outputs: classes, train, watch }, of_model)
    }
}
