//! Intermediate matrices of a typed forward pass, and their gradients.

use super::ProjectionGrad;
use crate::{Matrix, Saved, View, ViewMut};

/// All intermediate matrices of a [`super::TypedModel`], reused for every batch. One value belongs
/// to one model and one pass at a time.
#[derive(Clone, Debug, Default)]
pub struct TypedActivations {
    /// Projected or learned rows of each type, `S_t x hidden`.
    pub(super) input: TypedRows,
    /// Gradients of the projections that the first layer reads, by type.
    pub(super) projections: Vec<ProjectionGrad>,
    /// Matrices of each layer, from the bottom up.
    pub(super) stages: Vec<StageActs>,
    /// Outputs of the head's layers and their gradients.
    pub(super) head: Vec<[Matrix; 2]>,
    /// Type that has scores, and their number.
    pub(super) target: (usize, usize),
}

/// Rows of each node type, and their gradients.
#[derive(Clone, Debug, Default)]
pub(super) struct TypedRows {
    pub(super) out: Vec<Matrix>,
    pub(super) grad: Vec<Matrix>,
}

impl TypedRows {
    pub(super) fn fit(&mut self, types: usize) {
        self.out.resize_with(types, Matrix::default);
        self.grad.resize_with(types, Matrix::default);
    }
}

/// Matrices that the forward pass of a stage saves.
#[derive(Clone, Debug, Default)]
pub(super) struct StageActs {
    pub(super) rows: TypedRows,
    /// Matrices of the layer.
    pub(super) saved: Saved,
    /// Inputs of the norms; only with norms.
    pub(super) before: Vec<Matrix>,
    /// Matrices of the norms.
    pub(super) norms: Vec<[Matrix; 2]>,
}

impl TypedActivations {
    fn top(&self) -> &TypedRows {
        &self.stages.last().expect("a forward pass has run").rows
    }

    /// Scores of the last forward pass, `B x C`.
    ///
    /// # Panics
    /// No forward pass has run.
    pub fn logits(&self) -> View<'_> {
        let (t, count) = self.target;
        match self.head.last() {
            Some([out, _]) => out.view(),
            None => self.top().out[t].rows(0..count),
        }
    }

    /// Scores, and the rows of the same shape to which a loss writes their gradient before
    /// [`super::TypedModel::backward`].
    ///
    /// # Panics
    /// No forward pass has run in training.
    pub fn logits_and_grad(&mut self) -> (View<'_>, ViewMut<'_>) {
        let (t, count) = self.target;
        match self.head.last_mut() {
            Some([out, grad]) => (out.view(), grad.view_mut()),
            None => {
                let TypedRows { out, grad } =
                    &mut self.stages.last_mut().expect("a forward pass has run").rows;
                (out[t].rows(0..count), grad[t].rows_mut(0..count))
            }
        }
    }

    /// Last hidden rows of the scored nodes: the input of the head, or without a head the rows that
    /// the last layer combines with those of the neighbours.
    ///
    /// # Panics
    /// No forward pass has run.
    pub fn hidden(&self) -> View<'_> {
        let (t, count) = self.target;
        let below = self.stages.len().checked_sub(if self.head.is_empty() { 2 } else { 1 });
        let rows = below.map_or(&self.input, |l| &self.stages[l].rows);
        rows.out[t].rows(0..count)
    }

    /// Output rows of the last layer for type `t`: the embeddings of its destinations.
    ///
    /// # Panics
    /// No forward pass has run.
    pub fn rows(&self, t: usize) -> View<'_> {
        self.top().out[t].view()
    }

    /// Gradient of [`TypedActivations::rows`], 0 after a forward pass in training. The loss of a
    /// model without a target adds to it.
    ///
    /// # Panics
    /// No forward pass has run in training.
    pub fn rows_grad(&mut self, t: usize) -> ViewMut<'_> {
        self.stages.last_mut().expect("a forward pass has run").rows.grad[t].view_mut()
    }

    /// Gradient of the learned rows of type `t` after a backward pass, `S_t x hidden`.
    pub fn input_grad(&self, t: usize) -> View<'_> {
        self.input.grad[t].view()
    }
}
