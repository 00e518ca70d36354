//! What an epoch adds up, batch by batch; a checkpoint in its middle keeps it.

use graphmill_core::Block;
use graphmill_loader::Sampled;
use serde::{Deserialize, Serialize};

use super::{EpochRecord, Stages, Traffic};

/// What one batch did.
#[derive(Clone, Copy, Debug)]
pub struct BatchOutcome {
    /// Mean loss over the seeds; not finite where the loss or the clipped gradient's norm is not.
    pub loss: f64,
    /// Norm of the gradient before clipping, where clipping is on.
    pub grad_norm: Option<f64>,
    /// Seeds that the loss is the mean over: those of all ranks.
    pub seeds: usize,
}

/// Sums over the batches of an epoch.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct EpochTotals {
    /// Of loss times seeds.
    pub loss: f64,
    /// Of seeds.
    pub seeds: u64,
    /// Of edges in all blocks.
    pub edges: u64,
    /// Of edges in the bottom blocks.
    #[serde(default)]
    pub bottom_edges: u64,
    /// Of seconds, from the order to the last update, checkpoints in between included.
    pub seconds: f64,
    /// Of seconds, stage by stage.
    pub stages: Stages,
    /// Of rows and bytes read.
    pub traffic: Traffic,
    /// The largest gradient norm, where it was measured.
    pub grad_norm: Option<f64>,
}

/// What the validation nodes say of a model.
#[derive(Clone, Copy, Debug)]
pub struct ValidationScore {
    /// The score.
    pub score: f64,
    /// The mean loss.
    pub loss: f64,
}

impl EpochTotals {
    /// Adds a batch.
    pub fn add(&mut self, batch: &Sampled, traffic: Traffic, outcome: BatchOutcome, spent: &Stages) {
        let seeds = outcome.seeds;
        self.loss += outcome.loss * seeds as f64;
        self.seeds += seeds as u64;
        self.edges += batch.num_edges() as u64;
        self.bottom_edges += batch.blocks.first().map_or(0, Block::num_edges) as u64;
        self.stages.sample += spent.sample;
        self.stages.extract += spent.extract;
        self.stages.train += spent.train;
        self.traffic += traffic;
        if let Some(norm) = outcome.grad_norm {
            self.grad_norm = Some(self.grad_norm.map_or(norm, |largest: f64| largest.max(norm)));
        }
    }

    /// Mean loss over the seeds.
    pub fn mean_loss(&self) -> f64 {
        self.loss / self.seeds.max(1) as f64
    }

    /// The record of an epoch of a run with a device, or without.
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
