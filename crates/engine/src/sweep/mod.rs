//! A sweep: runs with different values of some options, of which the better ones are trained
//! longer.
//!
//! # Algorithm
//!
//! Successive halving. All trials are trained for the epochs of the first rung. After each rung the
//! best 1 / eta of them go on to the next, which has eta times the epochs, until the last rung has
//! all epochs. Trials are compared by the best validation score so far, as a run chooses its best
//! epoch. A trial is a run that is stopped after the last batch of a rung and resumed later, so its
//! result has the bits of the same run trained in one go, learning-rate schedule included. The test
//! nodes are scored only for trials that are trained to the end, and choose nothing.
//!
//! # Source
//!
//! Jamieson and Talwalkar, *Non-stochastic Best Arm Identification and Hyperparameter
//! Optimization*, AISTATS 2016, Figure 3. The epochs of the rungs are those of the first bracket of
//! Li et al., *Hyperband*, JMLR 18, 2018, section 3.
//!
//! # Cost
//!
//! With `n` trials of `E` epochs and `r` rungs, at most `r E n / eta^(r - 1)` epochs plus `r E`,
//! instead of `n E`.
//! One trial is in memory at a time; each has a checkpoint on disk.
//!
//! # Deviations
//!
//! Trials whose loss is not finite are dropped. A trial that early stopping (`--patience`) ends is
//! compared by its best score at later rungs, too.
//!
//! ```
//! use graphmill_engine::{TrainConfig, observer::Quiet, sweep::{Axis, Plan, SweepOptions, sweep}};
//!
//! let config = TrainConfig { epochs: 4, hidden: 8, ..TrainConfig::default() };
//! let axes = vec![Axis::parse("lr=0.001,0.01")?, Axis::parse("dropout=0,0.5")?];
//! let plan = Plan::new(&config, &["epochs", "hidden"], axes, SweepOptions::default())?;
//! # let temporary = tempfile::tempdir().unwrap();
//! # let dir = &temporary.path().join("sweep");
//! let record = sweep(&plan, dir, &mut |_, _| Box::new(Quiet), &mut |_| {}, &|| false)?;
//! println!("{}", record.command.unwrap_or_default());
//! # Ok::<(), graphmill_engine::Error>(())
//! ```

#![forbid(unsafe_code)]

mod plan;
mod record;
mod run;
mod rungs;
mod space;
mod trial;

use serde::{Deserialize, Serialize};

pub use plan::Plan;
pub use record::{RungScore, SweepRecord, TrialRecord};
pub use run::{Step, sweep};
pub use space::{Axis, MAX_TRIALS};

use crate::{RunDir, TrainConfig, observer::Observer};

/// Makes the observer of a run: the progress of a trial, and the writer of its report.
pub type MakeObserver<'o> = dyn FnMut(&TrainConfig, &RunDir) -> Box<dyn Observer + 'o> + 'o;

/// Options of a sweep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SweepOptions {
    /// Number of trials; 0 for every combination of the lists.
    pub trials: usize,
    /// Share of the trials that go on after a rung, as its inverse, from 2.
    pub eta: usize,
    /// Epochs of the first rung; 0 derives them from the trials.
    pub min_epochs: usize,
    /// Seed of the trials that are drawn.
    pub seed: u64,
    /// Number of seeds with which the best trial is trained in the end, at least 1.
    pub repeat: usize,
}

impl Default for SweepOptions {
    fn default() -> Self {
        Self { trials: 0, eta: 3, min_epochs: 0, seed: 0, repeat: 1 }
    }
}
