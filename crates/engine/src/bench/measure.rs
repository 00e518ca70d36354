//! Context of a running bench: its options, the times of its cases, and their limits.

use std::sync::Arc;

use graphmill_core::{
    Matrix,
    keyed::{Stream, key},
};
use graphmill_data::Dataset;

use super::{
    machine::Machine,
    result::Measured,
    time::{self, Times},
};
use crate::{Result, TrainConfig, accelerator::ComputeDevices};

/// Cases to measure, and the graph to measure them on.
#[derive(Clone, Debug)]
pub struct Options {
    /// Fanout, batch size, model, widths, seed. The dataset and the number of epochs are ignored.
    pub train: TrainConfig,
    /// Width `F` of the generated features, and of the gathered and aggregated rows.
    pub dim: Option<usize>,
    /// Number of runs of every case, at least 1. The report has the median, minimum and maximum.
    pub repeat: usize,
    /// Logarithm of the number of nodes of the generated graph, which has 2^scale nodes.
    pub scale: u32,
}

/// Width `F` of the generated features.
pub(super) const DIM: usize = 100;
/// Number `C` of the generated classes.
pub(super) const CLASSES: usize = 47;

impl Default for Options {
    fn default() -> Self {
        Self { train: TrainConfig::default(), dim: None, repeat: 5, scale: 18 }
    }
}

/// A limit and its source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    pub(super) value: f64,
    /// Name of the measurement that gave the limit.
    pub(super) of: &'static str,
    /// Rate of reading random rows, if it applies.
    pub(super) row: Option<f64>,
}

/// A running bench: its dataset and devices, and its results.
pub(super) struct Bench<'b> {
    pub(super) name: &'static str,
    pub(super) options: &'b Options,
    pub(super) data: &'b Dataset,
    pub(super) computers: Arc<ComputeDevices>,
    pub(super) machine: Machine,
    pub(super) results: Vec<Measured>,
}

impl Bench<'_> {
    /// Seeds per batch.
    pub(super) fn seeds(&self) -> usize {
        let (wanted, all) = (self.options.train.batch_size, self.data.split.train.len());
        if wanted == 0 { all } else { wanted.min(all) }
    }

    /// Times `work` in the current pool, including queued work of devices.
    pub(super) fn time(&self, work: impl FnMut() + Send) -> Times {
        time::time(self.options.repeat, work, &|| _ = self.computers.training().resolve_loss(0.0))
    }

    /// Records a rate of calls that each did `amount` of `unit`.
    pub(super) fn rate(
        &mut self,
        case: impl Into<String>,
        unit: &'static str,
        amount: f64,
        times: &Times,
        limit: impl Into<Option<Limit>>,
    ) {
        let limit = limit.into();
        let (min, median, max) = times.spread();
        let median_rate = amount / median;
        self.results.push(Measured {
            bench: self.name,
            case: case.into(),
            unit,
            median: median_rate,
            min: amount / max,
            max: amount / min,
            limit: limit.map(|limit| limit.value),
            of_limit: limit.map(|limit| median_rate / limit.value),
            limit_of: limit.map(|limit| limit.of),
            row_limit: limit.and_then(|limit| limit.row),
            seconds: median,
            runs: times.len(),
        });
    }

    /// Records a duration, in seconds or, with unit `ms`, in milliseconds.
    pub(super) fn duration(
        &mut self,
        case: impl Into<String>,
        unit: &'static str,
        times: &Times,
        limit: Option<Limit>,
    ) {
        let (min, median, max) = times.spread();
        let scale = if unit == "ms" { 1e3 } else { 1.0 };
        self.results.push(Measured {
            bench: self.name,
            case: case.into(),
            unit,
            median: median * scale,
            min: min * scale,
            max: max * scale,
            limit: limit.map(|limit| limit.value * scale),
            of_limit: limit.filter(|_| median > 0.0).map(|limit| limit.value / median),
            limit_of: limit.map(|limit| limit.of),
            row_limit: None,
            seconds: median,
            runs: times.len(),
        });
    }

    /// Limit of moving rows of `width` values, in GB/s.
    pub(super) fn moving(&mut self, width: usize) -> Result<Limit> {
        let row = self.computers.gpus().is_empty().then(|| self.machine.random_rows(width));
        Ok(Limit { value: self.machine.copy()?, of: "copy", row })
    }
}

/// A `rows x cols` matrix of random values from -0.5 to 0.5.
pub(super) fn random(rows: usize, cols: usize) -> Matrix {
    let mut matrix = Matrix::zeros(rows, cols);
    let mut stream = Stream::new(key(&[rows as u64, cols as u64]));
    matrix.view_mut().host().fill_with(|| stream.uniform() as f32 - 0.5);
    matrix
}
