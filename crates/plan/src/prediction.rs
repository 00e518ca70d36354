//! Predicted epoch of a strategy on one machine.

use graphmill_engine::strategy::reuse::NONE;

/// Prediction of a strategy on a machine.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Prediction {
    /// Name of the strategy, set from its row of the table.
    pub name: &'static str,
    /// Value of `--reuse`: `none` or `layered`.
    pub reuse: &'static str,
    /// Seconds of an epoch, if it fits.
    pub epoch_seconds: Option<f64>,
    /// Number of executors that sample.
    pub samplers: usize,
    /// Number of executors that train from the beginning of an epoch.
    pub trainers: usize,
    /// Number of executors that train after sampling.
    pub standby: usize,
    /// Share of the feature rows cached by a training executor.
    pub cache_ratio: f64,
    /// Share of the requested rows that caches serve, with those of standby Trainers for their
    /// batches.
    pub hit_rate: f64,
    /// Stage with the largest share of its executors' time: `sample`, `extract` (by the host, the
    /// link or the device), `train`; `memory` if the strategy does not fit.
    pub bottleneck: &'static str,
    /// Share of the epoch that executors spend on each stage.
    pub busy: Busy,
    /// Number of batches trained by standby Trainers.
    pub switched: u64,
    /// True if the strategy fits the machine's memories.
    pub fits: bool,
    /// Oversized data, if the strategy does not fit.
    pub reason: Option<String>,
    /// Cached rows of each node type, if the run is on several types.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<TypeRows>,
}

/// Feature rows of a node type on a device that trains.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct TypeRows {
    /// Name of the type.
    pub name: String,
    /// Share of the requested rows that caches serve, those of other devices included.
    pub hit_rate: f64,
    /// Bytes of the other rows, which cross the link from the host, in a minibatch.
    pub link_bytes: f64,
}

impl Prediction {
    /// Name of the strategy, with its reuse if it reuses rows.
    pub(crate) fn label(&self) -> String {
        if self.reuse == NONE { self.name.into() } else { format!("{}, {}", self.name, self.reuse) }
    }

    /// Prediction of a strategy that does not fit, with the `reason`.
    pub(crate) fn does_not_fit(reason: String) -> Self {
        Self {
            name: "",
            reuse: NONE,
            epoch_seconds: None,
            samplers: 0,
            trainers: 0,
            standby: 0,
            cache_ratio: 0.0,
            hit_rate: 0.0,
            bottleneck: "memory",
            busy: Busy::default(),
            switched: 0,
            fits: false,
            reason: Some(reason),
            types: Vec::new(),
        }
    }
}

/// Share of the epoch, from 0 to 1, that the executors of a stage are busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Busy {
    /// Share of sampling on sampling executors.
    pub sample: f64,
    /// Share of extraction on training executors; concurrent with training if both overlap.
    pub extract: f64,
    /// Share of training on training executors.
    pub train: f64,
}

/// Formats seconds with about three digits.
pub(crate) fn digits(seconds: f64) -> String {
    let decimals = match seconds {
        x if x >= 100.0 => 0,
        x if x >= 10.0 => 1,
        x if x >= 1.0 => 2,
        x if x >= 0.1 => 3,
        _ => 4,
    };
    format!("{seconds:.decimals$}")
}
