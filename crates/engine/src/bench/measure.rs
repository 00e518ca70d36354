//! A bench at work: its options, the times of its cases, and the limits that they are compared
//! with.

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
    /// Fanout, batch size, model, widths, seed. Its dataset and number of epochs play no part.
    pub train: TrainConfig,
    /// `F`: width of the generated features, and of the rows that are gathered and aggregated.
    pub dim: Option<usize>,
    /// Runs of every case, at least 1; the median, the least and the largest are reported.
    pub repeat: usize,
    /// The generated graph has 2^scale nodes.
    pub scale: u32,
}

/// `F` of the generated features.
pub(super) const DIM: usize = 100;
/// `C` of the generated labels.
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
    pub(super) of: &'static str,
    pub(super) row: Option<f64>,
}

/// A bench at work: what it measures on, and where its results go.
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

    /// Times `work` inside the pool, to its end where it is only queued.
    pub(super) fn time(&self, work: impl FnMut() + Send) -> Times {
        time::time(self.options.repeat, work, &|| _ = self.computers.training().resolve_loss(0.0))
    }

    /// Records a rate: each call did `amount` of the unit's thing.
    pub(super) fn rate(
        &mut self,
        case: impl Into<String>,
        unit: &'static str,
        amount: f64,
        times: &Times,
        limit: impl Into<Option<Limit>>,
    ) {
        let limit = limit.into();
        let (least, median, most) = times.spread();
        let median_rate = amount / median;
        self.results.push(Measured {
            bench: self.name,
            case: case.into(),
            unit,
            median: median_rate,
            min: amount / most,
            max: amount / least,
            limit: limit.map(|limit| limit.value),
            of_limit: limit.map(|limit| median_rate / limit.value),
            limit_of: limit.map(|limit| limit.of),
            row_limit: limit.and_then(|limit| limit.row),
            seconds: median,
            runs: times.len(),
        });
    }

    /// Records a duration in seconds; `ms` is shown as such.
    pub(super) fn duration(
        &mut self,
        case: impl Into<String>,
        unit: &'static str,
        times: &Times,
        limit: Option<Limit>,
    ) {
        let (least, median, most) = times.spread();
        let scale = if unit == "ms" { 1e3 } else { 1.0 };
        self.results.push(Measured {
            bench: self.name,
            case: case.into(),
            unit,
            median: median * scale,
            min: least * scale,
            max: most * scale,
            limit: limit.map(|limit| limit.value * scale),
            of_limit: limit.filter(|_| median > 0.0).map(|limit| limit.value / median),
            limit_of: limit.map(|limit| limit.of),
            row_limit: None,
            seconds: median,
            runs: times.len(),
        });
    }

    /// What moving rows of `width` values is held against, in GB/s.
    pub(super) fn moving(&mut self, width: usize) -> Result<Limit> {
        let row = self.computers.gpus().is_empty().then(|| self.machine.random_rows(width));
        Ok(Limit { value: self.machine.copy()?, of: "copy", row })
    }
}

/// `rows x cols` of small random values.
pub(super) fn random(rows: usize, cols: usize) -> Matrix {
    let mut matrix = Matrix::zeros(rows, cols);
    let mut stream = Stream::new(key(&[rows as u64, cols as u64]));
    matrix.view_mut().host().fill_with(|| stream.uniform() as f32 - 0.5);
    matrix
}
