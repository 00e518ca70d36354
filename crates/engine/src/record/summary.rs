//! The record of a whole run: `summary.json`.

use graphmill_core::memory::peak;
use graphmill_data::Dataset;
use serde::{Deserialize, Serialize};

use super::{dataset::DatasetRecord, epoch::EpochRecord};
use crate::TrainConfig;

/// The epoch whose parameters are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// From 1; 0 where none was trained.
    pub epoch: usize,
    /// Its score, where there are validation nodes.
    pub valid_score: Option<f64>,
}

/// How good the best model is on the test nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TestScore {
    /// Name of the score.
    pub metric: String,
    /// The score, where there are test nodes.
    pub score: Option<f64>,
}

/// How old reused embeddings were, in updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Staleness {
    /// What the strategy promises.
    pub bound: u64,
    /// What was seen.
    pub max: u64,
}

/// A whole run: `summary.json`, and the output of `train --json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// Version of this program.
    pub graphmill: String,
    /// What was trained on.
    pub dataset: DatasetRecord,
    /// Every option.
    pub config: serde_json::Value,
    /// Every epoch.
    pub epochs: Vec<EpochRecord>,
    /// The epoch whose parameters are kept.
    pub best: Best,
    /// Its score.
    pub test: TestScore,
    /// How old reused embeddings were.
    pub staleness: Staleness,
    /// The most memory the process ever held; 0 where the system does not say.
    pub peak_rss_bytes: u64,
    /// The NVIDIA devices that it ran on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nvidia: Vec<NvidiaRecord>,
    /// What several of them summed gradients by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_reduce: Option<String>,
    /// From start to end, resumed parts added up.
    pub seconds: f64,
}

/// An NVIDIA device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NvidiaRecord {
    /// As it was named: `cuda:0`.
    pub device: String,
    /// What it is.
    pub name: String,
    /// Bytes that might be used.
    pub budget_bytes: u64,
    /// The most that ever were.
    pub peak_bytes: u64,
    /// What became of steps that came again; none where no step did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graphs: Option<GraphRecord>,
}

/// Steps of a device that came again, in parts: what is given to it between two moments at which
/// the host waits for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GraphRecord {
    /// Graphs that were captured.
    pub captured: u64,
    /// Times that one ran in the place of its launches.
    pub replayed: u64,
    /// Parts that were launched command by command.
    pub launched: u64,
    /// Why none is captured any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl Summary {
    /// The summary of a run that ends here, in this process, without stale embeddings.
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
            epochs,
            best,
            test,
            staleness: Staleness::default(),
            peak_rss_bytes: peak().unwrap_or(0),
            nvidia: Vec::new(),
            all_reduce: None,
            seconds,
        }
    }
}
