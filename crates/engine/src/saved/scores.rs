//! Scores of a saved run on the parts of a split.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use graphmill_core::progress::Progress;
use graphmill_data::{Dataset, dataset::Rescaling};
use graphmill_nn::{
    Matrix,
    backend::Cpu,
    metric::{self, classes::ClassReport, diagnostics::Diagnostics},
    model::Model,
};
use serde::Serialize;

use super::{Propagation, PropagationRecord, SavedRun};
use crate::{
    Result, build,
    inference::{Inference, Output, class_report, diagnostics, fixed_sample, score, select},
};

/// Source of the outputs that are scored.
enum Outputs {
    /// The model computes them.
    By(Box<Model>),
    /// Outputs of all nodes after a propagation.
    Of(Box<Matrix>),
}

/// Scores of a model.
#[derive(Clone, Debug, Serialize)]
pub struct Scores {
    /// Run directory.
    pub run: PathBuf,
    /// Name of the dataset.
    pub dataset: String,
    /// True if the dataset is the run's training dataset; `None` if the run did not record it.
    pub same_dataset: Option<bool>,
    /// Description of the conversion of another dataset's features to the scale of the run, if any.
    pub rescaled: Option<String>,
    /// Propagation after the model, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub propagation: Option<PropagationRecord>,
    /// Metric of the run.
    pub metric: String,
    /// Value of this metric on the test nodes.
    pub test: Option<f64>,
    /// Scores of each part of the split.
    pub parts: Vec<PartScores>,
}

/// Scores of one part of the split.
#[derive(Clone, Debug, Serialize)]
pub struct PartScores {
    /// "train", "valid" or "test".
    pub part: &'static str,
    /// Number of scored nodes, or edges of a run on links: all of the part, or at most the run's
    /// --eval-nodes.
    pub nodes: usize,
    /// All metrics by name; `None` if a metric is undefined.
    pub scores: BTreeMap<String, Option<f64>>,
    /// Scores of each class and the confusion matrix, of a run that learned classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_class: Option<ClassReport>,
    /// Calibration and thresholds of classes, or residuals of values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diagnostics: Option<Diagnostics>,
}

impl SavedRun {
    /// Computes all metrics on each part of the split. Costs one full-neighbour inference per part.
    /// A model that reads labels sees those of the training nodes, but none if these are scored.
    ///
    /// # Errors
    /// The model cannot be read or does not fit the dataset, or `watch` stops the work.
    pub fn scores(&self, data: &Dataset, watch: &dyn Progress) -> Result<Scores> {
        if self.learns_links() {
            return self.link_scores(data, watch);
        }
        self.check_fit(data, true)?;
        let chosen = self.blame_config(build::metric(&self.config, data))?;
        let backend = Cpu { precision: build::precision(&self.config) };
        let rescaling = self.rescaling(data)?;
        let (rows, labels) = (self.feature_rows(data, rescaling.as_ref())?, self.label_columns(data)?);
        // no scored node has its own label as input
        let without_labels = labels.as_ref().map(|labels| rows.clone().with_labels(Some(labels.hidden())));
        let features = rows.with_labels(labels);
        let outputs = match &self.propagation {
            Some(propagation) => {
                let loaded = self.load(data)?;
                Outputs::Of(Box::new(self.propagated(propagation, (&loaded, data), &features, watch)?))
            }
            None => Outputs::By(Box::new(self.model(data)?)),
        };
        let symmetric = match &outputs {
            Outputs::By(model) => build::symmetric(model, data),
            Outputs::Of(_) => None,
        };
        let names = build::class_names(self.trained_on(data)?.as_deref())?;
        let neighbors = Arc::new(self.blame_config(build::inference_neighbors(&self.config, data))?);
        let from = |rows| {
            Inference::new(&data.graph, rows, symmetric.as_deref(), &backend, self.config.eval_chunk)
                .with_neighbors(neighbors.clone())
                .watched(watch)
        };
        let mut inference = from(&features);
        let mut logits = Matrix::default();
        let mut parts = Vec::new();
        let mut test = None;
        for (part, nodes) in data.split.parts() {
            let nodes = &fixed_sample(nodes, self.config.eval_nodes)[..];
            match &outputs {
                Outputs::Of(all) => logits = select(all, nodes),
                Outputs::By(model) => {
                    let mut of_train = without_labels.as_ref().filter(|_| part == "train").map(from);
                    let inference = of_train.as_mut().unwrap_or(&mut inference);
                    self.blame_config(inference.run(model, nodes, Output::Logits, &mut logits))?;
                    self.undo_scale(&mut logits);
                }
            }
            let scores: BTreeMap<String, Option<f64>> = metric::table(data.labels.is_values())
                .iter()
                .map(|entry| (entry.name.to_string(), score(entry.make, &logits, data, nodes)))
                .collect();
            if part == "test" {
                test = scores[chosen.name];
            }
            let by_class = class_report(&logits, &data.labels, nodes, &names);
            // propagated scores of classes have no calibrated probabilities
            let has_diagnostics = self.propagation.is_none() || data.labels.is_values();
            let diagnostics = diagnostics(part, &logits, &data.labels, nodes, &names);
            let diagnostics = diagnostics.filter(|_| has_diagnostics);
            parts.push(PartScores { part, nodes: nodes.len(), scores, by_class, diagnostics });
        }
        Ok(Scores {
            run: self.dir.clone(),
            dataset: data.name.clone(),
            same_dataset: self.is_own(data)?,
            rescaled: rescaling.as_ref().map(Rescaling::description),
            propagation: self.propagation.as_ref().map(Propagation::record),
            metric: chosen.name.to_string(),
            test,
            parts,
        })
    }
}
