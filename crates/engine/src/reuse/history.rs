//! Versions of the bottom layer's parameters that reused rows are made from.
//!
//! The training thread publishes them after every update. The thread that makes rows for the next
//! super-batch waits for the version of its slice. The version does not depend on timing: rows are
//! a function of the options alone. Therefore a checkpoint holds the versions of the rows in use
//! instead of the rows.

use std::{collections::BTreeMap, sync::Arc};

use graphmill_core::Matrix;
use graphmill_nn::{model::Model, typed::TypedModel};
use serde::{Deserialize, Serialize};

use super::{ReuseTotals, ReuseWork};
use crate::{
    checkpoint::tensors::Tensor,
    machine::monitor::{Guarded, Monitor},
};

/// Name of the basis among the tensors of a checkpoint.
const BASIS: &str = "basis";

/// Parameters that bottom-layer rows depend on, in the model's visiting order.
pub type Snapshot = Arc<Vec<Matrix>>;

/// A model whose rows of the bottom layer are reused.
pub trait BottomParameters {
    /// Copies of the dense parameters that these rows depend on, always in the same order.
    fn bottom_values(&self) -> Vec<Matrix>;
}

impl BottomParameters for Model {
    fn bottom_values(&self) -> Vec<Matrix> {
        let mut values = Vec::new();
        self.visit_bottom(&mut |_, param| values.push(param.value.clone()));
        values
    }
}

impl BottomParameters for TypedModel {
    fn bottom_values(&self) -> Vec<Matrix> {
        let mut values = Vec::new();
        self.visit_bottom(&mut |param| values.push(param.value.clone()));
        values
    }
}

/// Super-batch with the parameter versions of its rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuperBatchSpan {
    /// The epoch, from 0.
    pub epoch: u64,
    /// Batches of the super-batch.
    pub batches: std::ops::Range<u64>,
    /// Number of updates before it.
    pub start: u64,
    /// Parameter version of each slice of its rows.
    pub made: Vec<u64>,
}

/// Position of the reuse of rows. A checkpoint holds it besides the parameters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReusePosition {
    /// Current super-batch; `None` between epochs.
    pub span: Option<SuperBatchSpan>,
    /// Number of batches of the next super-batch; 0 before the first one.
    pub length: u64,
    /// Batches per update.
    pub round: u64,
    /// Largest number of hot nodes.
    #[serde(rename = "most")]
    pub max_hot: usize,
    /// Largest change of a weight by an update of the current super-batch.
    pub change: f32,
    /// Largest change of a weight by an update of the current epoch, times twice the updates of a
    /// super-batch: NeutronOrch's epsilon (section 4.3).
    pub variation: f64,
    /// Batch from which on the current super-batch no longer reuses its rows, because the
    /// parameters have changed too much.
    pub cut: Option<u64>,
    /// Share of the hot nodes whose rows are made, if it was planned.
    pub share: Option<f64>,
    /// Number of rows of a super-batch for which devices have reserved memory, if it has a limit.
    pub reserved: Option<usize>,
    /// Work that reuse saves and adds, if it was counted at the start of the run.
    pub work: Option<ReuseWork>,
    /// Totals of the current epoch.
    pub totals: ReuseTotals,
}

/// Shared state, whose changes threads wait for.
#[derive(Debug, Default)]
pub struct HistoryState {
    position: ReusePosition,
    versions: BTreeMap<u64, Snapshot>,
    basis: Arc<Vec<Matrix>>,
    closed: bool,
}

/// Versions of the bottom layer's parameters, shared by threads.
#[derive(Debug)]
pub struct History<M = Guarded<HistoryState>> {
    monitor: M,
}

impl Default for History {
    fn default() -> Self {
        Self { monitor: Guarded::default() }
    }
}

impl<M: Monitor<HistoryState>> History<M> {
    /// Begins a super-batch; the next one has `length` batches. Drops the versions before it,
    /// except those of its rows.
    pub fn begin(&self, span: SuperBatchSpan, length: u64) {
        self.monitor.now(|state| {
            state.versions.retain(|version, _| *version >= span.start || span.made.contains(version));
            state.position.span = Some(span);
            state.position.change = 0.0;
            state.position.cut = None;
            state.position.length = length;
            state.closed = false;
        });
    }

    /// Drops all versions at the end of an epoch: the next epoch begins with new rows.
    pub fn end_epoch(&self) {
        self.monitor.now(|state| {
            state.position.span = None;
            state.position.cut = None;
            state.versions.clear();
        });
    }

    /// Begins an epoch: resets its variation and totals.
    pub fn begin_epoch(&self) {
        self.monitor.now(|state| {
            state.position.variation = 0.0;
            state.position.totals = ReuseTotals::default();
        });
    }

    /// Largest change of an element between the `made` versions and that of `step`.
    pub fn change_since(&self, made: &[u64], step: u64) -> f32 {
        self.monitor.look(|state| {
            let Some(now) = state.versions.get(&step) else { return 0.0 };
            let made = made.iter().filter_map(|version| state.versions.get(version));
            let changes = made.flat_map(|before| now.iter().zip(before.iter()));
            changes.map(|(now, before)| largest_change(now, before)).fold(0.0, f32::max)
        })
    }

    /// Ends the reuse of the current super-batch's rows before batch `from`.
    pub fn cut(&self, from: u64) {
        self.monitor.now(|state| state.position.cut = Some(from));
    }

    /// Adds to the totals of the epoch.
    pub fn add(&self, totals: ReuseTotals) {
        self.monitor.now(|state| state.position.totals += totals);
    }

    /// Sets, before the first epoch, the share of the hot nodes whose rows are made, and the number
    /// of rows for which devices reserve memory.
    pub fn assign(&self, share: Option<f64>, reserved: Option<usize>) {
        self.monitor.now(|state| (state.position.share, state.position.reserved) = (share, reserved));
    }

    /// Sets, before the first epoch, the work that reuse saves and adds.
    pub fn set_work(&self, work: Option<ReuseWork>) {
        self.monitor.now(|state| state.position.work = work);
    }

    /// Publishes the model after `step` updates; a super-batch has `updates` updates.
    pub fn publish(&self, step: u64, model: &impl BottomParameters, updates: u64) {
        let now = model.bottom_values();
        self.monitor.now(|state| {
            if let Some((_, before)) = state.versions.range(..step).next_back() {
                let change = now.iter().zip(before.iter()).map(|(now, before)| largest_change(now, before));
                let change = change.fold(0.0, f32::max);
                state.position.change = state.position.change.max(change);
                state.position.variation =
                    state.position.variation.max(f64::from(change) * 2.0 * updates as f64);
            }
            state.versions.insert(step, Arc::new(now));
        });
    }

    /// Waits for the parameters after `step` updates; returns `None` if the history is closed
    /// before they are published.
    pub fn wait(&self, step: u64) -> Option<Snapshot> {
        self.monitor.until(|state| match state.versions.get(&step) {
            Some(snapshot) => Some(Some(snapshot.clone())),
            None => state.closed.then_some(None),
        })
    }

    /// Closes the history until the next super-batch begins: no version will be published, and no
    /// thread waits for one.
    pub fn close(&self) {
        self.monitor.now(|state| state.closed = true);
    }

    /// Returns the position.
    pub fn position(&self) -> ReusePosition {
        self.monitor.look(|state| state.position.clone())
    }

    /// Sets, before the first epoch, the batches of the first super-batch, the batches per update,
    /// and the largest number of hot nodes.
    pub fn set_start(&self, length: u64, round: u64, max_hot: usize) {
        self.monitor.now(|state| {
            let position = &mut state.position;
            (position.length, position.round, position.max_hot) = (length, round, max_hot);
        });
    }

    /// Directions in which rows follow the parameters, the same for the whole run.
    pub fn basis(&self) -> Arc<Vec<Matrix>> {
        self.monitor.look(|state| state.basis.clone())
    }

    /// Sets the directions in which rows follow the parameters.
    pub fn set_basis(&self, basis: Vec<Matrix>) {
        self.monitor.now(|state| state.basis = Arc::new(basis));
    }

    /// Versions and basis as tensors for a checkpoint: `3.0` is parameter 0 after 3 updates,
    /// `basis.0` the first part of the basis.
    pub fn tensors(&self) -> Vec<Tensor> {
        let mut all = Vec::new();
        let mut add = |of: &str, matrices: &[Matrix]| {
            all.extend(matrices.iter().enumerate().map(|(i, matrix)| Tensor {
                name: format!("{of}.{i}"),
                shape: [matrix.num_rows(), matrix.num_cols()],
                data: matrix.view().host().to_vec().into(),
            }));
        };
        self.monitor.look(|state| {
            add(BASIS, &state.basis);
            state.versions.iter().for_each(|(version, snapshot)| add(&version.to_string(), snapshot));
        });
        all
    }

    /// Restores the position and the tensors of a checkpoint.
    ///
    /// # Errors
    /// A tensor's name is not one of [`History::tensors`], or versions are missing.
    pub fn restore(&self, position: ReusePosition, tensors: Vec<Tensor>) -> Result<(), String> {
        let mut versions: BTreeMap<u64, BTreeMap<usize, Matrix>> = BTreeMap::new();
        let mut basis: BTreeMap<usize, Matrix> = BTreeMap::new();
        for Tensor { name, shape: [rows, cols], data } in tensors {
            let key = name.split_once('.').and_then(|(of, i)| Some((of, i.parse().ok()?)));
            let matrix = Matrix::from_slice(rows, cols, &data);
            match key.map(|(of, i)| (of, of.parse(), i)) {
                Some((BASIS, _, i)) => drop(basis.insert(i, matrix)),
                Some((_, Ok(version), i)) => drop(versions.entry(version).or_default().insert(i, matrix)),
                _ => {
                    return Err(format!(
                        "the name of tensor '{name}' is not VERSION.PARAMETER or basis.PART"
                    ));
                }
            }
        }
        // the versions of the current rows, and all later ones, which the next rows may use
        let last = versions.keys().next_back().copied().unwrap_or(0);
        let needed =
            |span: &SuperBatchSpan| span.made.iter().copied().chain(span.start..=last).collect::<Vec<_>>();
        let mut needed = position.span.iter().flat_map(needed);
        if let Some(missing) = needed.find(|version| !versions.contains_key(version)) {
            return Err(format!("version {missing} of the bottom layer's parameters is missing"));
        }
        self.monitor.now(|state| {
            state.versions = versions
                .into_iter()
                .map(|(version, matrices)| (version, Arc::new(matrices.into_values().collect())))
                .collect();
            state.basis = Arc::new(basis.into_values().collect());
            state.position = position;
        });
        Ok(())
    }
}

/// Largest absolute change of an element.
fn largest_change(now: &Matrix, before: &Matrix) -> f32 {
    let pairs = now.view().host().iter().zip(before.view().host());
    pairs.map(|(now, before)| (now - before).abs()).fold(0.0, f32::max)
}

#[cfg(test)]
mod tests;
