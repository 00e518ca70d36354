//! What a run records: a line per epoch, and a summary; [`RunDir`] is where.

mod memory;
mod reuse;
mod run_dir;
mod sound;
mod workers;

pub use memory::{MemorySample, Samples};
pub use reuse::ReuseRecord;
pub use run_dir::RunDir;
pub use workers::{WorkerRecord, WorkerStages, bottleneck, utilisation, workers};

use std::fmt;

use graphmill_cuda::replay::Counts;
use graphmill_graph::{Dataset, memory::peak};
use graphmill_loader::{Traffic, feature::Rows};
use serde::{Deserialize, Serialize};

use crate::{TrainConfig, distributed::RankRecord, timeline::Stage};

/// Seconds per stage, summed over an epoch's batches. Stages that run side by side add up to
/// more than the epoch took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stages {
    /// Choosing the order of the seeds.
    pub order: f64,
    /// Drawing blocks.
    pub sample: f64,
    /// Gathering feature rows.
    pub extract: f64,
    /// Forward, loss, backward, update.
    pub train: f64,
}

impl Stages {
    /// The stages with their names, in their order.
    pub fn parts(&self) -> [(&'static str, f64); 4] {
        [("order", self.order), ("sample", self.sample), ("extract", self.extract), ("train", self.train)]
    }
}

/// Rows and bytes read from one tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TierRecord {
    /// Rows.
    pub rows: u64,
    /// Bytes.
    pub bytes: u64,
    /// Seconds spent in this tier while batches waited for their rows; 0 where layers read rows in place.
    pub seconds: f64,
}

impl From<Rows> for TierRecord {
    fn from(Rows { rows, bytes, nanos }: Rows) -> Self {
        Self { rows, bytes, seconds: nanos as f64 * 1e-9 }
    }
}

impl std::ops::AddAssign for TierRecord {
    fn add_assign(&mut self, other: Self) {
        self.rows += other.rows;
        self.bytes += other.bytes;
        self.seconds += other.seconds;
    }
}

/// Rows and bytes read, by tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrafficRecord {
    /// Accelerator memory.
    pub device: TierRecord,
    /// The memory of accelerators beside it.
    pub peer: TierRecord,
    /// Host memory.
    pub host: TierRecord,
    /// Files.
    pub disk: TierRecord,
    /// Other machines.
    pub remote: TierRecord,
}

impl TrafficRecord {
    /// The tiers with their names, from the nearest to the farthest.
    pub fn tiers(&self) -> [(&'static str, TierRecord); 5] {
        let Self { device, peer, host, disk, remote } = *self;
        [("device", device), ("peer", peer), ("host", host), ("disk", disk), ("remote", remote)]
    }

    /// Rows read from any tier.
    pub fn rows(&self) -> u64 {
        self.tiers().iter().map(|(_, tier)| tier.rows).sum()
    }

    /// Rows served by the nearest tier (devices where the run has some, whichever of them, else `host`) out of all;
    /// `None` where none was read.
    pub fn hit_rate(&self, has_device: bool) -> Option<f64> {
        let nearest = if has_device { self.device.rows + self.peer.rows } else { self.host.rows };
        (self.rows() > 0).then(|| nearest as f64 / self.rows() as f64)
    }
}

impl From<Traffic> for TrafficRecord {
    fn from(traffic: Traffic) -> Self {
        let [device, peer, host, disk, remote] = traffic.tiers().map(TierRecord::from);
        Self { device, peer, host, disk, remote }
    }
}

impl std::ops::AddAssign for TrafficRecord {
    fn add_assign(&mut self, other: Self) {
        self.device += other.device;
        self.peer += other.peer;
        self.host += other.host;
        self.disk += other.disk;
        self.remote += other.remote;
    }
}

/// What a device did in an epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceRecord {
    /// Its name.
    pub device: String,
    /// What it is for: sampler, trainer, or both.
    pub role: String,
    /// Batches it trained on.
    pub batches: u64,
    /// Rows that its cache holds.
    pub cache_rows: usize,
    /// Rows served by its cache out of all rows it read.
    pub hit_rate: Option<f64>,
    /// Bytes that went over its link.
    pub link_bytes: u64,
    /// Seconds that its link was taken, where it is simulated.
    pub link_seconds: f64,
}

/// An epoch: a line of `metrics.jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EpochRecord {
    /// From 1.
    pub epoch: usize,
    /// Mean training loss over the seeds.
    pub loss: f64,
    /// Score on the training nodes, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train_score: Option<f64>,
    /// Score on the validation nodes, where they were scored.
    pub valid_score: Option<f64>,
    /// Mean loss on the validation nodes, where they were scored.
    pub valid_loss: Option<f64>,
    /// Learning rate at the end.
    pub lr: f64,
    /// From the order to the last update; evaluation is apart.
    pub seconds: f64,
    /// Evaluation.
    pub eval_seconds: f64,
    /// Seconds by stage.
    pub stages: Stages,
    /// Seeds trained on.
    pub seeds: u64,
    /// Edges in all blocks.
    pub sampled_edges: u64,
    /// Those of them in the bottom blocks, which the first layer aggregates over. Of reused rows none; what making them took is in
    /// [`ReuseRecord::made_edges`].
    pub bottom_edges: u64,
    /// Seeds per second of `seconds`.
    pub seeds_per_second: f64,
    /// Feature rows and bytes read.
    pub traffic: TrafficRecord,
    /// Rows served by the nearest tier out of all rows read.
    pub hit_rate: Option<f64>,
    /// Largest norm of the gradient before clipping, where clipping is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grad_norm: Option<f64>,
    /// What each device did, where they work for themselves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceRecord>,
    /// What each rank did, where there are several. What else is here is of all of them; times and workers are rank 0's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<RankRecord>,
    /// What reusing bottom-layer rows saved, where that is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reuse: Option<ReuseRecord>,
    /// What each worker did. Of an epoch that was resumed in its middle, the part behind it.
    pub workers: Vec<WorkerRecord>,
    /// The stage whose workers are busiest ([`bottleneck`]).
    pub bottleneck: Option<Stage>,
    /// Bytes resident at the epoch's end, scoring included, where the system tells it.
    pub memory_bytes: Option<u64>,
    /// The same in between, where the epoch is long enough.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<MemorySample>,
}

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

/// What was trained on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DatasetRecord {
    /// Its name.
    pub name: String,
    /// `V`.
    pub nodes: usize,
    /// `E`, as stored.
    pub edges: usize,
    /// `F`.
    pub feature_dim: usize,
    /// `C`.
    pub classes: usize,
    /// Whether a node may have several classes.
    pub multilabel: bool,
    /// Training nodes.
    pub train: usize,
    /// Validation nodes.
    pub valid: usize,
    /// Test nodes.
    pub test: usize,
    /// Of all its files, where it came from a dataset directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
}

impl DatasetRecord {
    /// Whether both are the same data: by their checksums, or where one has none by name and counts.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.checksum, &other.checksum) {
            (Some(one), Some(two)) => one == two,
            _ => Self { checksum: None, ..self.clone() } == Self { checksum: None, ..other.clone() },
        }
    }
}

impl fmt::Display for DatasetRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, nodes, edges, feature_dim, classes, .. } = self;
        write!(f, "{name} ({nodes} nodes, {edges} edges, {feature_dim} features, {classes} classes")?;
        match &self.checksum {
            Some(checksum) => write!(f, ", checksum {checksum})"),
            None => write!(f, ")"),
        }
    }
}

impl From<&Dataset> for DatasetRecord {
    fn from(data: &Dataset) -> Self {
        Self {
            name: data.name.clone(),
            nodes: data.graph.num_nodes(),
            edges: data.graph.num_edges(),
            feature_dim: data.features.dim,
            classes: data.labels.classes(),
            multilabel: data.labels.is_multi(),
            train: data.split.train.len(),
            valid: data.split.valid.len(),
            test: data.split.test.len(),
            checksum: data.checksum.clone(),
        }
    }
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

/// Steps of a device that came again, in parts: what is given to it between two moments at which the host waits for it.
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

impl GraphRecord {
    /// None where nothing was counted.
    pub(crate) fn new(counts: Counts) -> Option<Self> {
        let Counts { captured, replayed, launched, refused } = counts;
        (replayed + launched > 0).then_some(Self { captured, replayed, launched, refused })
    }
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

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    pub(super) fn epoch(epoch: usize) -> EpochRecord {
        EpochRecord {
            epoch,
            loss: 1.0 / epoch as f64,
            valid_score: Some(0.5 + 0.1 * (epoch % 3) as f64),
            stages: Stages { train: 0.25, ..Stages::default() },
            traffic: TrafficRecord {
                host: TierRecord { rows: 30, bytes: 120, seconds: 0.0 },
                disk: TierRecord { rows: 10, bytes: 40, seconds: 0.0 },
                ..TrafficRecord::default()
            },
            ..EpochRecord::default()
        }
    }

    #[test]
    fn a_summary_holds_the_promised_fields() {
        let summary = Summary { epochs: vec![epoch(1)], config: json!({"lr": 0.1}), ..Summary::default() };
        let json = serde_json::to_value(&summary).unwrap();
        let keys = |json: &serde_json::Value| json.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let top = [
            "graphmill",
            "dataset",
            "config",
            "epochs",
            "best",
            "test",
            "staleness",
            "peak_rss_bytes",
            "seconds",
        ];
        assert_eq!(keys(&json), top);
        for key in ["name", "nodes", "edges", "feature_dim", "classes", "multilabel"] {
            assert!(json["dataset"].get(key).is_some(), "{key}");
        }
        for key in ["epoch", "loss", "valid_score", "seconds", "seeds", "sampled_edges", "hit_rate"] {
            assert!(json["epochs"][0].get(key).is_some(), "{key}");
        }
        assert_eq!(keys(&json["epochs"][0]["stages"]), ["order", "sample", "extract", "train"]);
        assert_eq!(json["epochs"][0]["traffic"]["disk"], json!({"rows": 10, "bytes": 40, "seconds": 0.0}));
        assert_eq!(keys(&json["epochs"][0]["traffic"]), ["device", "peer", "host", "disk", "remote"]);
        assert_eq!(json["best"], json!({"epoch": 0, "valid_score": null}));
        assert_eq!(json["test"], json!({"metric": "", "score": null}));
        assert_eq!(json["staleness"], json!({"bound": 0, "max": 0}));
        assert_eq!(serde_json::from_value::<Summary>(json).unwrap(), summary);
    }

    #[test]
    fn what_workers_did_is_recorded_and_may_be_missing() {
        let worker = WorkerRecord {
            worker: "main".into(),
            stages: WorkerStages { sample: 0.5, ..WorkerStages::default() },
            utilisation: 0.5,
        };
        let memory = vec![MemorySample { seconds: 0.5, bytes: 7 }];
        let whole = EpochRecord {
            workers: vec![worker],
            bottleneck: Some(Stage::Sample),
            memory_bytes: Some(9),
            memory,
            ..epoch(1)
        };
        let mut json = serde_json::to_value(&whole).unwrap();
        assert_eq!(
            json["workers"],
            json!([{
                "worker": "main",
                "stages": {"sample": 0.5, "extract": 0.0, "train": 0.0, "update": 0.0},
                "utilisation": 0.5
            }])
        );
        assert_eq!((&json["bottleneck"], &json["memory_bytes"]), (&json!("sample"), &json!(9)));
        assert_eq!(serde_json::from_value::<EpochRecord>(json.clone()).unwrap(), whole);
        // as records were before there were workers
        for name in ["workers", "bottleneck", "memory_bytes", "memory"] {
            json.as_object_mut().unwrap().remove(name).unwrap();
        }
        assert_eq!(serde_json::from_value::<EpochRecord>(json).unwrap(), epoch(1));
    }

    #[test]
    fn hit_rates_are_of_the_nearest_tier() {
        let traffic = epoch(1).traffic;
        assert_eq!((traffic.hit_rate(false), traffic.hit_rate(true)), (Some(0.75), Some(0.0)));
        assert_eq!(TrafficRecord::default().hit_rate(false), None);
    }
    #[test]
    fn datasets_are_the_same_by_checksum_or_by_counts() {
        let named = |name: &str, nodes, checksum: Option<&str>| DatasetRecord {
            name: name.into(),
            nodes,
            checksum: checksum.map(str::to_string),
            ..DatasetRecord::default()
        };
        assert!(named("a", 3, Some("x")).is_same(&named("b", 3, Some("x"))), "moved");
        assert!(!named("a", 3, Some("x")).is_same(&named("a", 3, Some("y"))), "imported again");
        assert!(named("a", 3, None).is_same(&named("a", 3, Some("y"))));
        assert!(!named("a", 3, None).is_same(&named("a", 4, None)));
        let text = named("a", 3, Some("x")).to_string();
        assert_eq!(text, "a (3 nodes, 0 edges, 0 features, 0 classes, checksum x)");
    }
}
