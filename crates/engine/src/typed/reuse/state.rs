//! Reused rows as the learner reads them, and as a checkpoint holds them.
//!
//! A row depends on learned rows of its neighbours, which later updates change. Therefore a
//! checkpoint holds the rows of the current super-batch themselves, and not the parameters that
//! they were made from, as that of one type does.

use std::sync::Arc;

use graphmill_nn::Reused;

use super::TypedLookahead;
use crate::{
    checkpoint::tensors::Tensor,
    reuse::{Embeddings, History, ReuseTotals, SuperBatchSpan},
};

/// Beginning of the names of all tensors of the reuse in a checkpoint.
const PREFIX: &str = "reuse.";
/// Name of the rows of a type, before its number.
const ROWS: &str = "rows.";
/// Name of the number of edges drawn to make the rows.
const EDGES: &str = "edges";

/// Super-batch that is ready for training.
pub(in crate::typed) struct TypedSuperBatch {
    pub(in crate::typed) span: SuperBatchSpan,
    pub(in crate::typed) ahead: TypedLookahead,
    /// Rows of each type, by slot.
    pub(in crate::typed) rows: Vec<Embeddings>,
    /// Edges drawn to make the rows.
    pub(in crate::typed) edges: u64,
}

impl TypedSuperBatch {
    /// Rows of each type that batch `number` reuses.
    pub(in crate::typed) fn reused(&self, number: u64) -> Vec<Reused<'_>> {
        let slots = self.ahead.reused(number).iter();
        self.rows.iter().zip(slots).map(|(rows, slots)| rows.reused(slots)).collect()
    }

    /// Age of the oldest row, in updates, for a model after `step` updates.
    ///
    /// # Panics
    /// The age exceeds the bound, which is an error in the strategy.
    pub(in crate::typed) fn staleness(&self, step: u64) -> u64 {
        self.rows.iter().map(|rows| rows.staleness(step)).max().unwrap_or(0)
    }

    /// Totals of its batches before `end`.
    pub(super) fn totals(&self, end: u64) -> ReuseTotals {
        let batches = self.span.batches.start..end;
        let (requested, reused) = self.ahead.counts(batches.clone());
        let made = self.ahead.slots.iter().map(|slots| slots.nodes().len() as u64).sum();
        let (count, edges) = (batches.end - batches.start, self.edges);
        ReuseTotals { super_batches: 1, batches: count, requested, reused, made, edges, waited: 0.0 }
    }
}

/// Reuse of rows by a learner.
#[derive(Default)]
pub(in crate::typed) struct ReuseState {
    pub(in crate::typed) history: Arc<History>,
    /// Super-batch in training.
    pub(in crate::typed) now: Option<Arc<TypedSuperBatch>>,
    /// Age of the oldest row of the last batch.
    pub(in crate::typed) staleness: u64,
    /// Tensors of a checkpoint, until the run continues from them.
    pub(super) saved: Vec<Tensor>,
}

impl ReuseState {
    /// Tensors for a checkpoint: versions of the parameters, and the rows of each type.
    pub(in crate::typed) fn tensors(&self) -> Vec<Tensor> {
        let mut all = self.history.tensors();
        if let Some(now) = &self.now {
            let rows = now.rows.iter().enumerate();
            all.extend(rows.map(|(t, of)| Tensor::copy(&format!("{ROWS}{t}"), &of.rows)));
            all.push(Tensor::of_words(EDGES, &[now.edges as u32, (now.edges >> 32) as u32]));
        }
        all.iter_mut().for_each(|tensor| tensor.name.insert_str(0, PREFIX));
        all
    }

    /// Takes the tensors of the reuse from those of a checkpoint; the others are left.
    pub(in crate::typed) fn restore(&mut self, tensors: &[Tensor]) {
        let own = |tensor: &Tensor| {
            let name = tensor.name.strip_prefix(PREFIX)?.to_string();
            Some(Tensor { name, ..tensor.clone() })
        };
        self.saved = tensors.iter().filter_map(own).collect();
    }
}

/// Rows of each type of an interrupted super-batch, and the number of edges that made them.
#[derive(Default)]
pub(super) struct SavedRows {
    tensors: Vec<Tensor>,
}

impl SavedRows {
    /// Divides the tensors of a checkpoint into these rows, and the versions of parameters.
    pub(super) fn divide(tensors: Vec<Tensor>) -> (Self, Vec<Tensor>) {
        let is_of_rows = |tensor: &Tensor| tensor.name.starts_with(ROWS) || tensor.name == EDGES;
        let (tensors, versions) = tensors.into_iter().partition(is_of_rows);
        (Self { tensors }, versions)
    }

    /// Copies the rows of all types to `to`, whose shapes they have, and returns the number of
    /// edges.
    ///
    /// # Errors
    /// A message: rows are missing, or have another shape.
    pub(super) fn copy_to(&self, to: &mut [Embeddings]) -> Result<u64, String> {
        let find = |name: &str| {
            let found = self.tensors.iter().find(|tensor| tensor.name == name);
            found.ok_or_else(|| format!("the checkpoint has no {PREFIX}{name}"))
        };
        for (t, to) in to.iter_mut().enumerate() {
            let (name, shape) = (format!("{ROWS}{t}"), [to.rows.num_rows(), to.rows.num_cols()]);
            let saved = find(&name)?;
            if saved.shape != shape {
                return Err(format!("{PREFIX}{name} has the shape {:?}, not {shape:?}", saved.shape));
            }
            to.rows.view_mut().host().copy_from_slice(&saved.data);
        }
        match find(EDGES)?.words()[..] {
            [low, high] => Ok(u64::from(high) << 32 | u64::from(low)),
            _ => Err(format!("{PREFIX}{EDGES} is not a number")),
        }
    }
}
