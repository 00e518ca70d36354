//! Predictions of a saved run after labels or errors have spread over the graph.

use graphmill_core::{Labels, NodeId, options::OptionSet, progress::Progress, table::Entry};
use graphmill_data::Dataset;
use graphmill_nn::{Matrix, backend::LossOps};
use rayon::prelude::*;
use serde::Serialize;

use super::{SavedRun, infer::LoadedModel};
use crate::{
    Error, Result,
    config::events::is_of_events,
    inference::Output,
    propagation::{Known, MIN, Method, PropagationOptions, TABLE},
    record::DatasetRecord,
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
    /// The run did not learn one class for each node of a graph of one type, or the method reads
    /// errors of a model that reads labels.
    pub fn with_propagation(mut self, propagation: Propagation) -> Result<Self> {
        let is_of_classes = !self.learns_links()
            && !is_of_events(&self.config)
            && self.origin.as_ref().is_some_and(|origin| {
                let DatasetRecord { multilabel, values, columns, .. } = &origin.dataset;
                origin.typed.is_none() && !multilabel && !values && columns.is_empty()
            });
        if !is_of_classes {
            return Err(Error::usage(format!(
                "--propagate {}: the run did not learn one class for each node of a graph of one type; leave \
                 it out",
                propagation.name()
            )));
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

    /// Logits of all nodes after the propagation, from the rows `features` of all nodes.
    ///
    /// # Errors
    /// The dataset has no training nodes with classes, features cannot be read, or `watch` stops
    /// the work.
    pub(super) fn propagated(
        &self,
        propagation: &Propagation,
        (loaded, data): (&LoadedModel, &Dataset),
        features: &AllRows,
        watch: &dyn Progress,
    ) -> Result<Matrix> {
        let missing = || {
            let message = format!("--propagate {} needs classes of training nodes", propagation.name());
            Error::dataset(&data.name, message)
        };
        let Labels::Single { class, .. } = &data.labels else { return Err(missing()) };
        let train = &data.split.train[..];
        if train.is_empty() {
            return Err(missing());
        }
        let (found, classes) = (data.labels.classes(), loaded.num_outputs());
        if found > classes {
            let message = format!("it has {found} classes, but the run has {classes}; leave out --propagate");
            return Err(Error::dataset(&data.name, message));
        }
        let mut start = Matrix::default();
        if propagation.method.make.reads_model {
            let all: Vec<NodeId> = (0..data.num_nodes() as NodeId).collect();
            let graph = (&data.graph, features);
            start = self.blame_config(loaded.rows(graph, &loaded.exact, &all, Output::Logits, watch))?;
            loaded.backend().softmax(start.view_mut());
        }
        let known = Known { graph: &data.graph, class, classes, train, watch };
        let mut rows = (propagation.method.make.run)(&known, &propagation.options, start)?;
        rows.view_mut().host().par_iter_mut().for_each(|x| *x = x.max(MIN).ln());
        Ok(rows)
    }
}
