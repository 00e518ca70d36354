//! Everything a forward pass leaves behind, and the gradients of it.

use crate::{Matrix, Saved, View, ViewMut};

/// All intermediate matrices of a [`super::Model`], reused for every batch: once it has seen the
/// largest batch nothing is allocated. One value belongs to one model and one pass at a time.
#[derive(Clone, Debug, Default)]
pub struct Activations {
    /// The features after dropout, `S x F`, or the stored values of sparse ones.
    pub(super) dropped: Matrix,
    /// Of the input layer, `S x hidden`.
    pub(super) input: Rows,
    /// Of each layer, from the bottom up.
    pub(super) stages: Vec<StageActs>,
    /// Of each layer of the head.
    pub(super) head: Vec<Rows>,
}

/// The output rows of a part of the model and their gradient.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    pub(super) out: Matrix,
    pub(super) grad: Matrix,
}

/// The matrices that a stage ([`super::stage`]) leaves behind.
#[derive(Clone, Debug, Default)]
pub(super) struct StageActs {
    /// The output, `D x O`; reused rows stand behind the bottom layer's.
    pub(super) rows: Rows,
    pub(super) saved: SavedStage,
}

/// The matrices that a stage's backward pass reads besides inputs and output.
#[derive(Clone, Debug, Default)]
pub(super) struct SavedStage {
    /// The convolution's.
    pub(super) conv: Saved,
    /// The destinations' own rows for the residual, `D x F`; only of a global block.
    pub(super) own: Matrix,
    /// The input of the norm, as many rows as the output has; only with a norm.
    pub(super) before_norm: Matrix,
    /// The norm's.
    pub(super) norm: [Matrix; 2],
    /// The aggregates of reused rows, of the bottom layer ([`super::Reused::aggregates`]),
    /// `H x dim` each.
    pub(super) reused: Vec<Matrix>,
    /// Of reused rows that follow the parameters in some directions: the basis times the weights,
    /// the rows' coordinates, and the gradient of the former.
    pub(super) projected: [Matrix; 3],
}

impl Activations {
    /// Makes room for so many stages and head layers.
    pub(super) fn fit(&mut self, stages: usize, head: usize) {
        self.stages.resize_with(stages, StageActs::default);
        self.head.resize_with(head, Rows::default);
    }

    fn top(&mut self) -> &mut Rows {
        match self.head.last_mut() {
            Some(rows) => rows,
            None => &mut self.stages.last_mut().expect("a forward pass was made").rows,
        }
    }

    /// The scores of the last forward pass, `B x C`.
    ///
    /// # Panics
    /// There was none.
    pub fn logits(&self) -> View<'_> {
        match self.head.last() {
            Some(rows) => rows.out.view(),
            None => self.output(self.stages.len() - 1),
        }
    }

    /// The scores, and where a loss writes their gradient (of the same shape) before
    /// [`super::Model::backward`].
    ///
    /// # Panics
    /// There was no forward pass.
    pub fn logits_and_grad(&mut self) -> (View<'_>, ViewMut<'_>) {
        let Rows { out, grad } = self.top();
        grad.resize(out.num_rows(), out.num_cols());
        (out.view(), grad.view_mut())
    }

    /// The output rows of layer `l` of the last forward pass (0 is the bottom), `D x O`, and reused
    /// ones behind the bottom layer's.
    pub fn output(&self, l: usize) -> View<'_> {
        self.stages[l].rows.out.view()
    }

    /// The same, to be changed between [`super::Model::forward_layer`] calls: a strategy may put
    /// rows there that were computed elsewhere.
    pub fn output_mut(&mut self, l: usize) -> ViewMut<'_> {
        self.stages[l].rows.out.view_mut()
    }

    /// The gradient of the output rows of layer `l`, after [`super::Model::backward_layer`] of the
    /// one above.
    pub fn output_grad_mut(&mut self, l: usize) -> ViewMut<'_> {
        self.stages[l].rows.grad.view_mut()
    }
}
