//! Record of a whole run: `summary.json`.

use std::fmt;

use graphmill_core::memory::peak;
use graphmill_data::Dataset;
use graphmill_nn::metric::{classes::ClassReport, diagnostics::Diagnostics};
use serde::{Deserialize, Serialize};

use super::{
    dataset::DatasetRecord, epoch::EpochRecord, machine::MachineRecord, presampling::PresamplingRecord,
    verification::VerificationRecord,
};
use crate::{TrainConfig, config::link_task::seeds_are};

/// Best epoch of a run, whose parameters are saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// Number of the epoch, from 1; 0 if the run has no epochs.
    pub epoch: usize,
    /// Validation score, if the dataset has validation rows.
    pub valid_score: Option<f64>,
}

/// Rows that a run is scored on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScoredRows {
    /// Nodes with targets.
    #[default]
    Nodes,
    /// Edges that are predicted, or that have targets.
    Edges,
    /// Events of a stream.
    Events,
}

impl ScoredRows {
    /// Rows of a run with this configuration.
    pub fn of(config: &TrainConfig) -> Self {
        match seeds_are(config) {
            "nodes" => Self::Nodes,
            "events" => Self::Events,
            // pairs of walks are learned in the place of edges
            _ => Self::Edges,
        }
    }

    fn is_nodes(&self) -> bool {
        *self == Self::Nodes
    }
}

impl fmt::Display for ScoredRows {
    /// Name in the plural.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Nodes => "nodes",
            Self::Edges => "edges",
            Self::Events => "events",
        })
    }
}

/// Score of the best model on the test rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TestScore {
    /// Name of the metric.
    pub metric: String,
    /// Score, if the dataset has test rows.
    pub score: Option<f64>,
}

/// Age of reused embeddings, in updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Staleness {
    /// Bound that the strategy guarantees.
    pub bound: u64,
    /// Maximum that was observed.
    pub max: u64,
}

/// A whole run: `summary.json`, and the output of `train --json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// Version of Graphmill.
    pub graphmill: String,
    /// Dataset of the run.
    pub dataset: DatasetRecord,
    /// All options.
    pub config: serde_json::Value,
    /// Rows that are scored, if they are not nodes.
    #[serde(skip_serializing_if = "ScoredRows::is_nodes")]
    pub scored_rows: ScoredRows,
    /// Verification of the features, if the dataset is a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verification: Option<VerificationRecord>,
    /// Records of all epochs.
    pub epochs: Vec<EpochRecord>,
    /// Best epoch, whose parameters are saved.
    pub best: Best,
    /// Test score of the best epoch.
    pub test: TestScore,
    /// Scores of the best epoch on the test nodes of each class, of a run that learned classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_class: Option<ClassReport>,
    /// Calibration, thresholds or residuals of the best epoch: of the test nodes, and of the other
    /// parts that they are compared with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub diagnostics: Vec<Diagnostics>,
    /// Scores of label propagation alone, of a run that learned targets of nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Baseline>,
    /// Age of reused embeddings.
    pub staleness: Staleness,
    /// Cost of the minibatches that were counted for caches, since the start or the last resume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presampling: Option<PresamplingRecord>,
    /// Peak memory of the process in bytes; 0 if the system does not report it.
    pub peak_rss_bytes: u64,
    /// Machine on which the run ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineRecord>,
    /// NVIDIA devices of the run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nvidia: Vec<NvidiaRecord>,
    /// Method by which several NVIDIA devices sum gradients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_reduce: Option<String>,
    /// Seconds from start to end, summed over resumed parts.
    pub seconds: f64,
}

/// Scores of a method without a model, by the metric of the run and on the same nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Baseline {
    /// Name of the method.
    pub method: String,
    /// Score of the validation nodes.
    pub valid: Option<f64>,
    /// Score of the test nodes.
    pub test: Option<f64>,
}

/// An NVIDIA device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NvidiaRecord {
    /// Name in the options, such as `cuda:0`.
    pub device: String,
    /// Model name of the device.
    pub name: String,
    /// Memory budget in bytes.
    pub budget_bytes: u64,
    /// Peak memory in bytes.
    pub peak_bytes: u64,
    /// Bytes of the graph in its memory; 0 if it does not sample.
    pub topology_bytes: u64,
    /// Bytes of cached feature rows in its memory.
    pub cache_bytes: u64,
    /// Replay of repeated steps; `None` if no step repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graphs: Option<GraphRecord>,
}

/// Replay of a device's repeated steps. A segment is the work that the host submits between two
/// synchronisations with the device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GraphRecord {
    /// Number of captured graphs.
    pub captured: u64,
    /// Number of segments that ran as a captured graph.
    pub replayed: u64,
    /// Number of segments that were launched command by command.
    pub launched: u64,
    /// Reason why capturing was abandoned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl Summary {
    /// Summary of a run that ends now in this process, without stale embeddings.
    pub fn new(
        config: &TrainConfig,
        data: &Dataset,
        epochs: Vec<EpochRecord>,
        best: Best,
        test: TestScore,
        seconds: f64,
    ) -> Self {
        Self {
            graphmill: env!("CARGO_PKG_VERSION").to_string(),
            dataset: data.into(),
            config: config.to_json(),
            scored_rows: ScoredRows::of(config),
            verification: None,
            epochs,
            best,
            test,
            by_class: None,
            baseline: None,
            diagnostics: Vec::new(),
            staleness: Staleness::default(),
            presampling: None,
            peak_rss_bytes: peak().unwrap_or(0),
            machine: Some(MachineRecord::here()),
            nvidia: Vec::new(),
            all_reduce: None,
            seconds,
        }
    }
}
