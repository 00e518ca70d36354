//! Totals of an epoch, accumulated per batch and stored in checkpoints.

use graphmill_core::Block;
use graphmill_loader::Sampled;
use graphmill_nn::link::decoder::Decoder;
use serde::{Deserialize, Serialize};

use super::{EpochRecord, Stages, Traffic};
use crate::config::Work;

/// Result of training on one batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchOutcome {
    /// Mean loss over the seeds. Not finite if the loss or the clipped gradient's norm is not.
    pub loss: f64,
    /// Norm of the gradient before clipping, if clipping is on.
    pub grad_norm: Option<f64>,
    /// Number of seeds of the mean loss, over all ranks.
    pub seeds: usize,
}

impl BatchOutcome {
    /// The same outcome with the norm of the gradient before clipping, if clipping is on. A norm
    /// that is not finite makes the loss so.
    pub(crate) fn with_norm(self, norm: Option<f64>) -> Self {
        match norm {
            Some(norm) if !norm.is_finite() => Self { loss: f64::NAN, ..self },
            grad_norm => Self { grad_norm, ..self },
        }
    }
}

/// Sums over the batches of an epoch.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct EpochTotals {
    /// Sum of loss times seeds.
    pub loss: f64,
    /// Number of seeds.
    pub seeds: u64,
    /// Number of edges in all blocks.
    pub edges: u64,
    /// Number of edges in the bottom blocks.
    #[serde(default)]
    pub bottom_edges: u64,
    /// Number of rows that the layers computed, one for each destination of a block.
    #[serde(default)]
    pub rows: u64,
    /// Number of pairs that the decoder of links scored.
    #[serde(default)]
    pub pairs: u64,
    /// Seconds from the order to the last update, including checkpoints.
    pub seconds: f64,
    /// Seconds by stage.
    pub stages: Stages,
    /// Rows and bytes read.
    pub traffic: Traffic,
    /// Largest gradient norm, if measured.
    pub grad_norm: Option<f64>,
}

/// Score and loss of a model on the validation nodes.
#[derive(Clone, Copy, Debug)]
pub struct ValidationScore {
    /// Score by the run's metric.
    pub score: f64,
    /// Mean loss.
    pub loss: f64,
}

impl EpochTotals {
    /// Adds a batch.
    pub fn add(&mut self, batch: &Sampled, traffic: Traffic, outcome: BatchOutcome, spent: &Stages) {
        self.add_counts(outcome, traffic, spent);
        self.edges += batch.num_edges() as u64;
        self.rows += batch.blocks.iter().map(|block| block.num_dst as u64).sum::<u64>();
        self.pairs += batch.seeds.links.as_ref().map_or(0, |links| links.source.len() as u64);
        self.bottom_edges += batch.blocks.first().map_or(0, Block::num_edges) as u64;
    }

    /// Adds a batch except for its edges.
    pub(crate) fn add_counts(&mut self, outcome: BatchOutcome, traffic: Traffic, spent: &Stages) {
        let seeds = outcome.seeds;
        self.loss += outcome.loss * seeds as f64;
        self.seeds += seeds as u64;
        self.stages.sample += spent.sample;
        self.stages.extract += spent.extract;
        self.stages.train += spent.train;
        self.traffic += traffic;
        if let Some(norm) = outcome.grad_norm {
            self.grad_norm = Some(self.grad_norm.map_or(norm, |largest: f64| largest.max(norm)));
        }
    }

    /// Work of training, with this decoder if the run learns links.
    pub(crate) fn work(&self, decoder: Option<&dyn Decoder>) -> Work {
        let Self { rows, edges, pairs, .. } = *self;
        let pairs = decoder.map_or(Work::default(), |decoder| Work::of_pairs(decoder, pairs));
        [Work { rows, edges, pairs: 0 }, pairs].into_iter().sum()
    }

    /// Mean loss over the seeds.
    pub fn mean_loss(&self) -> f64 {
        self.loss / self.seeds.max(1) as f64
    }

    /// Record of the epoch. `has_device` selects the tier that `hit_rate` refers to.
    pub fn record(
        &self,
        epoch: usize,
        valid: Option<ValidationScore>,
        lr: f64,
        eval_seconds: f64,
        has_device: bool,
    ) -> EpochRecord {
        EpochRecord {
            epoch,
            loss: self.mean_loss(),
            train_score: None,
            valid_score: valid.map(|valid| valid.score),
            valid_loss: valid.map(|valid| valid.loss).filter(|loss| loss.is_finite()),
            lr,
            seconds: self.seconds,
            eval_seconds,
            stages: self.stages,
            seeds: self.seeds,
            sampled_edges: self.edges,
            bottom_edges: self.bottom_edges,
            seeds_per_second: if self.seconds > 0.0 { self.seeds as f64 / self.seconds } else { 0.0 },
            traffic: self.traffic,
            hit_rate: self.traffic.hit_rate(has_device),
            grad_norm: self.grad_norm,
            ..EpochRecord::default()
        }
    }
}
