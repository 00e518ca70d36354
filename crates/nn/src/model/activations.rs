//! Intermediate matrices of a forward pass, and their gradients.

use crate::{Matrix, Saved, View, ViewMut};

/// All intermediate matrices of a [`super::Model`], reused for every batch: nothing is allocated
/// after the largest batch. One value belongs to one model and one pass at a time.
#[derive(Clone, Debug, Default)]
pub struct Activations {
    /// Features after dropout, `S x F`, or the stored values of sparse features after dropout.
    pub(super) dropped: Matrix,
    /// Output of the input layer, `S x hidden`.
    pub(super) input: Rows,
    /// Matrices of each layer, from the bottom up.
    pub(super) stages: Vec<StageActs>,
    /// Outputs of the head's layers.
    pub(super) head: Vec<Rows>,
}

/// Output rows of a part of the model, and their gradient.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    pub(super) out: Matrix,
    pub(super) grad: Matrix,
}

/// Matrices that the forward pass of a stage ([`super::stage`]) saves.
#[derive(Clone, Debug, Default)]
pub(super) struct StageActs {
    /// Output, `D x O`; in the bottom layer, reused rows follow the computed ones.
    pub(super) rows: Rows,
    pub(super) saved: SavedStage,
}

/// Matrices that the backward pass of a stage reads besides inputs and output.
#[derive(Clone, Debug, Default)]
pub(super) struct SavedStage {
    /// Matrices of the convolution.
    pub(super) conv: Saved,
    /// Own rows of the destinations for the residual, `D x F`; only for a global block.
    pub(super) own: Matrix,
    /// Input of the norm, with as many rows as the output; only with a norm.
    pub(super) before_norm: Matrix,
    /// Matrices of the norm.
    pub(super) norm: [Matrix; 2],
    /// Aggregates of reused rows in the bottom layer ([`super::Reused::aggregates`]), `H x dim`
    /// each.
    pub(super) reused: Vec<Matrix>,
    /// Computed rows before norm, activation and dropout, `D x O`, if they are kept.
    pub(super) kept: Option<Matrix>,
    /// For projected reused rows: the basis times the weights, the rows' coordinates, and the
    /// gradient of the former.
    pub(super) projected: [Matrix; 3],
}

impl Activations {
    /// Allocates entries for these numbers of stages and head layers.
    pub(super) fn fit(&mut self, stages: usize, head: usize) {
        self.stages.resize_with(stages, StageActs::default);
        self.head.resize_with(head, Rows::default);
    }

    fn top(&mut self) -> &mut Rows {
        match self.head.last_mut() {
            Some(rows) => rows,
            None => &mut self.stages.last_mut().expect("a forward pass has run").rows,
        }
    }

    /// Scores of the last forward pass, `B x C`.
    ///
    /// # Panics
    /// No forward pass has run.
    pub fn logits(&self) -> View<'_> {
        match self.head.last() {
            Some(rows) => rows.out.view(),
            None => self.output(self.stages.len() - 1),
        }
    }

    /// Scores, and the matrix of the same shape to which a loss writes their gradient before
    /// [`super::Model::backward`].
    ///
    /// # Panics
    /// No forward pass has run.
    pub fn logits_and_grad(&mut self) -> (View<'_>, ViewMut<'_>) {
        let Rows { out, grad } = self.top();
        grad.resize(out.num_rows(), out.num_cols());
        (out.view(), grad.view_mut())
    }

    /// Output rows of layer `l` (0 is the bottom) of the last forward pass, `D x O`, followed by
    /// reused rows in the bottom layer.
    pub fn output(&self, l: usize) -> View<'_> {
        self.stages[l].rows.out.view()
    }

    /// Keeps a copy of the rows that the bottom layer computes, in every forward pass from now on.
    pub fn keep_bottom_rows(&mut self) {
        if self.stages.is_empty() {
            self.stages.push(StageActs::default());
        }
        self.stages[0].saved.kept.get_or_insert_with(Matrix::default);
    }

    /// Rows that the bottom layer computed in the last forward pass, before norm, activation and
    /// dropout, as [`super::Model::bottom_rows`] computes them; `None` if they are not kept.
    pub fn kept_rows(&self) -> Option<View<'_>> {
        self.stages.first()?.saved.kept.as_ref().map(Matrix::view)
    }

    /// Mutable output rows of layer `l`. Between [`super::Model::forward_layer`] calls, a strategy
    /// may write rows there that were computed elsewhere.
    pub fn output_mut(&mut self, l: usize) -> ViewMut<'_> {
        self.stages[l].rows.out.view_mut()
    }

    /// Gradient of the output rows of layer `l`, available after [`super::Model::backward_layer`]
    /// of the layer above.
    pub fn output_grad_mut(&mut self, l: usize) -> ViewMut<'_> {
        self.stages[l].rows.grad.view_mut()
    }
}
