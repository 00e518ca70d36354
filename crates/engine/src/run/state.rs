//! The position of a run.

use std::path::Path;

use graphmill_core::options::Values;
use graphmill_nn::{
    backend::cpu::Level,
    schedule::{self, Patience},
};
use serde::{Deserialize, Serialize};

use super::CheckpointWriter;
use crate::{
    Error, Result, RunDir, TrainConfig, checkpoint,
    learner::Learner,
    link::lists,
    record::{Best, DatasetRecord, EpochTotals},
    reuse,
    tiers::OnlineCounts,
};

/// Position of a run. A checkpoint holds it, the model, the best model, the optimiser's state,
/// older parameters that reused rows are made from, pushed rows, and counts that fill caches.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RunState {
    /// Dataset that is trained on.
    pub dataset: DatasetRecord,
    /// Options that the results depend on, by name; empty in checkpoints of older versions.
    #[serde(default)]
    pub options: Values,
    /// Checksum of the partition, if the dataset is partitioned: other partitions draw other
    /// batches.
    #[serde(default)]
    pub partition: Option<String>,
    /// Vector instructions that computed it, on which the order of sums depends; empty in
    /// checkpoints of older versions.
    #[serde(default)]
    pub instructions: String,
    /// Current epoch, from 0.
    pub epoch: usize,
    /// Number of completed batches of the epoch.
    pub batch: u64,
    /// Number of updates of the run.
    pub step: u64,
    /// Totals of the current epoch so far.
    pub sums: EpochTotals,
    /// The best epoch so far.
    pub best: Option<Best>,
    /// State of early stopping.
    pub patience: Patience,
    /// State of the learning-rate schedule.
    pub schedule: schedule::State,
    /// Epochs between two that are scored, once `--eval-every auto` has chosen them.
    #[serde(default)]
    pub eval_interval: Option<usize>,
    /// Seconds that the run has taken.
    pub seconds: f64,
    /// Largest staleness of a gradient, or of a reused row.
    pub staleness: u64,
    /// Position of the reuse of bottom-layer rows.
    #[serde(default)]
    pub reuse: reuse::ReusePosition,
}

impl RunState {
    /// Position before the first epoch of a run with this configuration on `dataset`.
    pub(crate) fn new(config: &TrainConfig, dataset: DatasetRecord) -> Self {
        let instructions = instructions(Level::best()).into();
        Self { dataset, options: config.bound_values(), instructions, ..Self::default() }
    }

    /// Remark on this position, which another processor computed than that of `now`.
    pub(crate) fn note_of_processor(&self, now: &Self) -> Option<String> {
        let (then, now) = (&self.instructions, &now.instructions);
        (!then.is_empty() && then != now).then(|| {
            format!(
                "the checkpoint was computed with {then}, and this processor computes with {now}: the run \
                 goes on, but sums have other last bits than those of an uninterrupted run"
            )
        })
    }

    /// Continues in the place of `now`, the position before the first epoch of the run in `run`.
    ///
    /// # Errors
    /// The run was trained on another dataset, or with other options.
    pub(crate) fn check(&self, now: &Self, run: &Path) -> Result<()> {
        if !self.dataset.is_same(&now.dataset) {
            let (then, now) = (&self.dataset, &now.dataset);
            let message = format!(
                "this run was trained on {then} and cannot continue with {now}; resume it with its own \
                 dataset, or train again"
            );
            return Err(Error::run(run, message));
        }
        check_options(&self.options, &now.options, run)
    }

    /// Advances to the next epoch.
    pub(crate) fn next_epoch(&mut self) {
        self.epoch += 1;
        self.batch = 0;
        self.sums = EpochTotals::default();
    }

    /// Writes a checkpoint of this position, the learner's model, and the counts that fill caches.
    /// If the ranks collect these counts, all of them call this at the same time.
    ///
    /// # Errors
    /// The disk is full or cannot be written, or a rank did not take part.
    pub(crate) fn save(
        &mut self,
        checkpoints: &mut CheckpointWriter,
        learner: &Learner,
        online: Option<&OnlineCounts>,
    ) -> Result<()> {
        self.seconds = checkpoints.seconds();
        let counts = match online {
            // also on the ranks that write no checkpoint
            Some(OnlineCounts { reads, .. }) if checkpoints.run().is_some() || reads.is_collected() => {
                reads.tensors()?
            }
            _ => Vec::new(),
        };
        if checkpoints.run().is_none() {
            return Ok(());
        }
        self.reuse = learner.history.position();
        let mut history = learner.history.tensors();
        history.extend(learner.hard.iter().flat_map(|hard| lists::tensors(hard)));
        history.extend(learner.pushed.tensors());
        history.extend(learner.past.tensors());
        history.extend(counts);
        checkpoints.save((self.epoch, self.batch), &learner.model, &*learner.optimizer, &history, self)
    }
}

/// Name of a set of vector instructions.
fn instructions(level: Level) -> &'static str {
    match level {
        Level::Portable => "portable instructions",
        Level::Avx2 => "AVX2",
        Level::Avx512 => "AVX-512",
    }
}

/// Refuses the options `now` of the run in `run` where they differ from those of its checkpoint.
/// Options that only one of the two versions of Graphmill has are not compared.
///
/// # Errors
/// The first option that differs, with both values.
pub(crate) fn check_options(saved: &Values, now: &Values, run: &Path) -> Result<()> {
    let differs =
        |(name, then): &(&String, &serde_json::Value)| now.get(*name).is_some_and(|now| now != *then);
    match saved.iter().find(differs) {
        None => Ok(()),
        Some((name, then)) => Err(Error::run(
            run,
            format!(
                "its checkpoint was trained with {name} = {then}, but its configuration now says {name} = \
                 {}; restore this value in config.toml, or train again",
                now[name]
            ),
        )),
    }
}

/// Refuses a configuration of the run in `dir` that is not the one of its checkpoint: its file was
/// changed. A checkpoint that is missing or damaged binds nothing here; reading its model reports
/// the damage.
///
/// # Errors
/// The first option that differs, with both values.
pub(crate) fn check_recorded(dir: &Path, config: &TrainConfig) -> Result<()> {
    #[derive(Deserialize)]
    struct Recorded {
        #[serde(default)]
        options: Values,
    }
    match checkpoint::state::<Recorded>(&RunDir::open(dir)?.checkpoint()) {
        Ok(Some(saved)) => check_options(&saved.options, &config.bound_values(), dir),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_processor_is_named() {
        let state =
            |instructions: &str| RunState { instructions: instructions.into(), ..RunState::default() };
        let now = RunState::new(&TrainConfig::default(), DatasetRecord::default());
        assert!(!now.instructions.is_empty() && now.note_of_processor(&now).is_none());
        assert!(state("").note_of_processor(&now).is_none(), "older checkpoints do not say");
        let note = state("AVX-512").note_of_processor(&state("AVX2")).unwrap();
        assert!(note.contains("computed with AVX-512, and this processor computes with AVX2"), "{note}");
    }
}
