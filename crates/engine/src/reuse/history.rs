//! The bottom layer's parameters by version, as far back as reused rows are made from them.
//!
//! Whoever trains publishes them after every update; whoever makes rows for the next super-batch
//! waits for the version that its slice is to be made from. Which version that is does not depend
//! on who is fast: rows are a function of the options alone. For the same reason a checkpoint holds
//! the versions that the rows in use were made from, and not the rows.

use std::{collections::BTreeMap, sync::Arc};

use graphmill_core::Matrix;
use graphmill_nn::model::Model;
use serde::{Deserialize, Serialize};

use crate::{
    checkpoint::tensors::Tensor,
    machine::monitor::{Guarded, Monitor},
};

/// What the basis is called among versions.
const BASIS: &str = "basis";

/// Parameters that bottom-layer rows depend on, in the order in which the model shows them.
pub type Snapshot = Arc<Vec<Matrix>>;

/// A super-batch, and what its rows were made from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The epoch, from 0.
    pub epoch: u64,
    /// Its batches.
    pub batches: std::ops::Range<u64>,
    /// Updates made when it began.
    pub start: u64,
    /// The version that each slice of its rows was made from.
    pub made: Vec<u64>,
}

/// What of it is in a checkpoint, besides the parameters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Place {
    /// The super-batch in hand; none between epochs.
    pub span: Option<Span>,
    /// Batches of the super-batch to come; 0 before there is any.
    pub length: u64,
    /// Batches of an update.
    pub round: u64,
    /// Hot nodes at most.
    pub most: usize,
    /// The largest change of a weight by an update, since the super-batch in hand began.
    pub change: f32,
    /// The same in the epoch in hand, times twice the updates of a super-batch: NeutronOrch's
    /// epsilon (section 4.3).
    pub variation: f64,
}

/// What threads wait for changes of.
#[derive(Debug, Default)]
pub struct State {
    place: Place,
    versions: BTreeMap<u64, Snapshot>,
    basis: Arc<Vec<Matrix>>,
    closed: bool,
}

/// See the module's text.
#[derive(Debug)]
pub struct History<M = Guarded<State>> {
    monitor: M,
}

impl Default for History {
    fn default() -> Self {
        Self { monitor: Guarded::default() }
    }
}

impl<M: Monitor<State>> History<M> {
    /// A super-batch begins, and the one after it is to have `length` batches: of the versions
    /// before it those are kept that its rows were made from.
    pub fn begin(&self, span: Span, length: u64) {
        self.monitor.now(|state| {
            state.versions.retain(|version, _| *version >= span.start || span.made.contains(version));
            state.place.span = Some(span);
            state.place.change = 0.0;
            state.place.length = length;
            state.closed = false;
        });
    }

    /// The epoch is recorded: the next begins with rows of its own.
    pub fn end_epoch(&self) {
        self.monitor.now(|state| {
            state.place.span = None;
            state.versions.clear();
        });
    }

    /// An epoch begins.
    pub fn begin_epoch(&self) {
        self.monitor.now(|state| state.place.variation = 0.0);
    }

    /// The model after `step` updates. `updates` is how many a super-batch has.
    pub fn publish(&self, step: u64, model: &Model, updates: u64) {
        let mut now = Vec::new();
        model.visit_bottom(&mut |_, param| now.push(param.value.clone()));
        self.monitor.now(|state| {
            if let Some((_, before)) = state.versions.range(..step).next_back() {
                let change = now.iter().zip(before.iter()).map(|(now, before)| largest_change(now, before));
                let change = change.fold(0.0, f32::max);
                state.place.change = state.place.change.max(change);
                state.place.variation = state.place.variation.max(f64::from(change) * 2.0 * updates as f64);
            }
            state.versions.insert(step, Arc::new(now));
        });
    }

    /// The parameters after `step` updates, as soon as there are any; none if there will not be.
    pub fn wait(&self, step: u64) -> Option<Snapshot> {
        self.monitor.until(|state| match state.versions.get(&step) {
            Some(snapshot) => Some(Some(snapshot.clone())),
            None => state.closed.then_some(None),
        })
    }

    /// Nothing more will be published until the next super-batch begins: nobody waits for it.
    pub fn close(&self) {
        self.monitor.now(|state| state.closed = true);
    }

    /// Where it stands.
    pub fn place(&self) -> Place {
        self.monitor.look(|state| state.place.clone())
    }

    /// Before the first epoch: batches of the first super-batch, batches of an update, hot nodes at
    /// most.
    pub fn settle(&self, length: u64, round: u64, most: usize) {
        self.monitor.now(|state| {
            let place = &mut state.place;
            (place.length, place.round, place.most) = (length, round, most);
        });
    }

    /// The directions in which rows follow the parameters: the same for the whole run.
    pub fn basis(&self) -> Arc<Vec<Matrix>> {
        self.monitor.look(|state| state.basis.clone())
    }

    /// Settles them.
    pub fn set_basis(&self, basis: Vec<Matrix>) {
        self.monitor.now(|state| state.basis = Arc::new(basis));
    }

    /// All that is kept, for a checkpoint: `3.0` is parameter 0 after 3 updates, `basis.0` the
    /// first part of the basis.
    pub fn tensors(&self) -> Vec<Tensor> {
        let mut all = Vec::new();
        let mut keep = |of: &str, matrices: &[Matrix]| {
            all.extend(matrices.iter().enumerate().map(|(i, matrix)| Tensor {
                name: format!("{of}.{i}"),
                shape: [matrix.num_rows(), matrix.num_cols()],
                data: matrix.view().host().to_vec(),
            }));
        };
        self.monitor.look(|state| {
            keep(BASIS, &state.basis);
            state.versions.iter().for_each(|(version, snapshot)| keep(&version.to_string(), snapshot));
        });
        all
    }

    /// Takes up what a checkpoint holds. Says what is wrong with it.
    ///
    /// # Errors
    /// A tensor's name is none of [`History::tensors`], or versions are missing.
    pub fn restore(&self, place: Place, tensors: Vec<Tensor>) -> Result<(), String> {
        let mut versions: BTreeMap<u64, BTreeMap<usize, Matrix>> = BTreeMap::new();
        let mut basis: BTreeMap<usize, Matrix> = BTreeMap::new();
        for Tensor { name, shape: [rows, cols], data } in tensors {
            let key = name.split_once('.').and_then(|(of, i)| Some((of, i.parse().ok()?)));
            let matrix = Matrix::from_slice(rows, cols, &data);
            match key.map(|(of, i)| (of, of.parse(), i)) {
                Some((BASIS, _, i)) => drop(basis.insert(i, matrix)),
                Some((_, Ok(version), i)) => drop(versions.entry(version).or_default().insert(i, matrix)),
                _ => return Err(format!("tensor '{name}' is not a version and a parameter")),
            }
        }
        // those that the rows in hand were made from, and all since: the next ones may be
        let last = versions.keys().next_back().copied().unwrap_or(0);
        let needed = |span: &Span| span.made.iter().copied().chain(span.start..=last).collect::<Vec<_>>();
        let mut needed = place.span.iter().flat_map(needed);
        if let Some(missing) = needed.find(|version| !versions.contains_key(version)) {
            return Err(format!("version {missing} of the bottom layer's parameters is missing"));
        }
        self.monitor.now(|state| {
            state.versions = versions
                .into_iter()
                .map(|(version, matrices)| (version, Arc::new(matrices.into_values().collect())))
                .collect();
            state.basis = Arc::new(basis.into_values().collect());
            state.place = place;
        });
        Ok(())
    }
}

/// The largest change of an element.
fn largest_change(now: &Matrix, before: &Matrix) -> f32 {
    let pairs = now.view().host().iter().zip(before.view().host());
    pairs.map(|(now, before)| (now - before).abs()).fold(0.0, f32::max)
}

#[cfg(test)]
mod tests;
