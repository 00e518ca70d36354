//! Rows of several relations stacked under one block, for attention over their edges together.

use std::ops::Range;

use graphmill_core::{Block, Result};

use super::TypedInput;
use crate::{
    Epilogue, Matrix, Pass, View,
    backend::{Activation, Dropout, ops::Attend},
    layer::site,
};

/// Score of a destination's own entry if it does not attend to itself: so low that its attention is
/// 0, but finite, so that a destination without edges attends to its own row, which is 0.
pub(super) const NEVER: f32 = -1e30;

/// Edges of some relations into a node type, over stacked rows: the destinations', then the
/// sources' of each relation ([`graphmill_core::typed::TypedBlock::join`]).
#[derive(Clone, Debug, Default)]
pub(super) struct Stacked {
    pub(super) block: Block,
    /// Relations with edges into the type.
    pub(super) relations: Vec<usize>,
    /// First row of each relation, and the end of the last.
    starts: Vec<usize>,
}

impl Stacked {
    /// Joins the edges of `relations` into type `t`, leaving out relations without edges.
    pub(super) fn join(
        &mut self,
        pass: &Pass,
        input: &TypedInput,
        t: usize,
        relations: impl Iterator<Item = usize>,
    ) -> Result<()> {
        self.relations.clear();
        self.relations.extend(relations.filter(|&r| input.has_edges(r)));
        input.block.join(input.schema, t, &self.relations, &mut self.block)?;
        self.starts.clear();
        self.starts.push(self.block.num_dst);
        for &r in &self.relations {
            let rows = input.block.num_src[input.ends(r)[0]];
            self.starts.push(self.starts[self.starts.len() - 1] + rows);
        }
        if pass.training {
            self.block.par_transpose();
        }
        Ok(())
    }

    /// Number of stacked rows.
    pub(super) fn num_rows(&self) -> usize {
        self.block.num_src
    }

    /// Number of entries of an attention matrix.
    pub(super) fn num_entries(&self) -> usize {
        self.block.num_edges() + self.block.num_dst
    }

    /// Rows of the destinations themselves.
    pub(super) fn own(&self) -> Range<usize> {
        0..self.block.num_dst
    }

    /// Rows of the sources of the `i`-th relation.
    pub(super) fn rows(&self, i: usize) -> Range<usize> {
        self.starts[i]..self.starts[i + 1]
    }
}

/// Attention weights with dropout, and the sums that they weight.
#[derive(Clone, Debug, Default)]
pub(super) struct Attention {
    /// Attention, `(E + D) x H`.
    pub(super) alpha: Matrix,
    /// Attention after dropout; unused without dropout.
    dropped: Matrix,
    /// Gradients of the attention, and scratch.
    pub(super) alpha_grad: Matrix,
    pub(super) scratch: Matrix,
    /// Weighted sum of the heads' rows, `D x H C`, and its gradient.
    pub(super) sum: Matrix,
    pub(super) sum_grad: Matrix,
}

/// Dropout of attention weights in a part of a pass.
pub(super) fn attention_epilogue(pass: &Pass, p: f32, part: usize) -> Epilogue {
    let dropout = pass.part(part as u64).dropout(p, site::ATTENTION);
    Epilogue { activation: Activation::Identity, dropout }
}

impl Attention {
    /// Drops attention weights, and sums the rows `z` by the rest into [`Attention::sum`].
    pub(super) fn attend(&mut self, pass: &Pass, dropout: Epilogue, block: &Block, z: View) {
        if dropout.dropout != Dropout::NONE {
            self.dropped.resize(self.alpha.num_rows(), self.alpha.num_cols());
            pass.backend.copy(self.alpha.view(), self.dropped.view_mut());
            dropout.apply(pass.backend, None, self.dropped.view_mut());
        }
        let Self { alpha, dropped, sum, .. } = self;
        let alpha = if dropout.dropout == Dropout::NONE { alpha.view() } else { dropped.view() };
        sum.resize(block.num_dst, z.num_cols());
        Attend { block, alpha, z, out: sum.view_mut() }.run(pass.backend);
    }

    /// Gradients of [`Attention::attend`] from [`Attention::sum_grad`]: of the attention before
    /// dropout, in [`Attention::alpha_grad`], and of the rows.
    pub(super) fn backward(
        &mut self,
        pass: &Pass,
        dropout: Epilogue,
        block: &Block,
        z: View,
        z_grad: &mut Matrix,
    ) {
        let Self { alpha, dropped, alpha_grad, sum_grad, scratch, .. } = self;
        let used = if dropout.dropout == Dropout::NONE { alpha.view() } else { dropped.view() };
        alpha_grad.resize(alpha.num_rows(), alpha.num_cols());
        scratch.resize(alpha.num_rows(), alpha.num_cols());
        z_grad.resize(z.num_rows(), z.num_cols());
        crate::backend::ops::AttendBackward {
            block,
            alpha: used,
            z,
            grad: sum_grad.view(),
            alpha_grad: alpha_grad.view_mut(),
            z_grad: z_grad.view_mut(),
        }
        .run(pass.backend);
        dropout.backward(pass.backend, None, used, alpha_grad.view_mut());
    }
}
