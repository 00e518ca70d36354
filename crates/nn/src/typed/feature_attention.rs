//! Attention of a relation to the features of its sources, for sources that are projections.
//!
//! # Algorithm
//!
//! With `x = f P + b` and `z = x W`, a head's score `a . z[u]` is `f[u] . (P W a) + b W a`, and its
//! sum of rows `z` is `(sum of alpha f) P W + (sum of alpha) b W`. No source is projected, and a
//! product has a row for each destination.
//!
//! # Source
//!
//! Velickovic et al., *Graph attention networks*, ICLR 2018, whose sums are linear in their rows;
//! the order of their products follows from that.
//!
//! # Cost
//!
//! `O(E H F)` for scores and sums, and `O(D F H C)` for the product, in the place of `O(S F H C)`.

use super::{
    TypedInput,
    heads::Heads,
    projected::{FoldedWeight, Projected, ProjectionGrad},
};
use crate::{
    Matrix, Param, Pass, View,
    backend::{
        Dropout,
        Side::{Plain, Transposed},
        ops::{
            EpilogueForward, HeadDot, HeadDotBackward, HeadGemm, RelationAttention, RelationAttentionBackward,
        },
    },
    layer::Linear,
};

/// Matrices of a pass.
#[derive(Clone, Debug, Default)]
pub(super) struct FeatureAttention {
    pub(super) folded: FoldedWeight,
    /// `P W a`, `F x H`, and `b W a`, `1 x H`.
    source: Matrix,
    constant: Matrix,
    score: Matrix,
    alpha: Matrix,
    used: Matrix,
    /// Sums of the weights, `D x H`, and of the features, `D x (H F)`.
    total: Matrix,
    rows: Matrix,
    source_grad: Matrix,
    score_grad: Matrix,
    total_grad: Matrix,
    rows_grad: Matrix,
}

/// Layer of a relation and the heads' vectors of its sources.
pub(super) struct OfSource<'a> {
    pub(super) linear: &'a Linear,
    pub(super) vector: &'a Param,
    pub(super) heads: Heads,
    pub(super) slope: f32,
}

/// Returns true in training if sums of features need no more memory than the features of all
/// sources. Inference projects the sources, so that a row has the same bits in all blocks.
pub(super) fn fits(pass: &Pass, input: &TypedInput, r: usize, heads: Heads) -> bool {
    let block = &input.block.relations[r];
    pass.training && pass.backend.attends_to_features() && block.num_dst * heads.count <= block.num_src
}

impl FeatureAttention {
    /// Computes the heads' rows, `D x (H C)`, from the destinations' part of the scores, `D x H`,
    /// to which it adds the sources' constant.
    pub(super) fn forward(
        &mut self,
        pass: &Pass,
        (input, r, x): (&TypedInput, usize, Projected),
        of: &OfSource,
        dropout: Dropout,
        [target, sum]: [&mut Matrix; 2],
    ) {
        let (block, heads, backend) = (&input.block.relations[r], of.heads, pass.backend);
        let (a, entries) = (of.vector.value.view(), block.num_edges() + block.num_dst);
        let Self { folded, source, constant, score, alpha, used, total, rows, .. } = self;
        folded.fill(x, heads.width(), |x, to| of.linear.forward_product(pass, x, 0.0, to));
        for (z, out) in [(&folded.weight, &mut *source), (&folded.bias, constant)] {
            out.resize(z.num_rows(), heads.count);
            HeadDot { z: z.view(), a, heads: heads.count, out: out.view_mut() }.run(backend);
        }
        let activation = crate::backend::Activation::Identity;
        let bias = Some(constant.view());
        EpilogueForward { bias, activation, dropout: Dropout::NONE, x: target.view_mut() }.run(backend);
        [&mut *score, alpha].into_iter().for_each(|x| x.resize(entries, heads.count));
        used.resize(if dropout == Dropout::NONE { 0 } else { entries }, heads.count);
        total.resize(block.num_dst, heads.count);
        rows.resize(block.num_dst, heads.count * x.features.num_cols());
        RelationAttention {
            block,
            x: x.features,
            source: source.view(),
            target: target.view(),
            slope: of.slope,
            dropout,
            score: score.view_mut(),
            alpha: alpha.view_mut(),
            used: used.view_mut(),
            total: total.view_mut(),
            out: rows.view_mut(),
        }
        .run(backend);
        sum.resize(block.num_dst, heads.width());
        for (a, b, beta) in [(rows, &folded.weight, 0.0), (total, &folded.bias, 1.0)] {
            let (a, b, c) = ((a.view(), Plain), (b.view(), Plain), sum.view_mut());
            HeadGemm { heads: heads.count, a, b, beta, c }.run(backend);
        }
    }

    /// Gradients from that of the heads' rows: adds to those of the layer, of the vectors and of
    /// the projection, and computes that of the destinations' part of the scores, `D x H`, and of
    /// the sources' constant, `1 x H`.
    pub(super) fn backward(
        &mut self,
        pass: &Pass,
        (input, r, x): (&TypedInput, usize, Projected),
        (linear, vector, of): (&mut Linear, &mut Param, (Heads, f32)),
        dropout: Dropout,
        (grad, target_grad, to): (View, &mut Matrix, &mut ProjectionGrad),
    ) {
        let ((heads, slope), block, backend) = (of, &input.block.relations[r], pass.backend);
        let Self { folded, source, constant, score, alpha, used, total, rows, .. } = self;
        let Self { source_grad, score_grad, total_grad, rows_grad, .. } = self;
        for (value, grad) in
            [(&*total, &mut *total_grad), (&*rows, rows_grad), (&*alpha, score_grad), (&*source, source_grad)]
        {
            grad.resize(value.num_rows(), value.num_cols());
        }
        target_grad.resize(block.num_dst, heads.count);
        for (b, c) in [(&folded.weight, &mut *rows_grad), (&folded.bias, total_grad)] {
            let (a, b, c) = ((grad, Plain), (b.view(), Transposed), c.view_mut());
            HeadGemm { heads: heads.count, a, b, beta: 0.0, c }.run(backend);
        }
        RelationAttentionBackward {
            block,
            x: x.features,
            slope,
            dropout,
            score: score.view(),
            alpha: alpha.view(),
            used: if dropout == Dropout::NONE { alpha.view() } else { used.view() },
            total_grad: total_grad.view(),
            grad: rows_grad.view(),
            score_grad: score_grad.view_mut(),
            source_grad: source_grad.view_mut(),
            target_grad: target_grad.view_mut(),
        }
        .run(backend);
        folded.fit_grads();
        for (a, c) in [(rows, &mut folded.weight_grad), (total, &mut folded.bias_grad)] {
            let (a, b, c) = ((a.view(), Transposed), (grad, Plain), c.view_mut());
            HeadGemm { heads: heads.count, a, b, beta: 0.0, c }.run(backend);
        }
        backend.fill(0.0, constant.view_mut());
        backend.add_column_sums(target_grad.view(), constant.view_mut());
        let FoldedWeight { weight, bias, weight_grad, bias_grad } = folded;
        for (z, z_grad, grad) in [(weight, weight_grad, source_grad), (bias, bias_grad, constant)] {
            HeadDotBackward {
                z: z.view(),
                a: vector.value.view(),
                heads: heads.count,
                grad: grad.view(),
                z_grad: z_grad.view_mut(),
                a_grad: vector.grad.view_mut(),
            }
            .run(backend);
        }
        self.folded.pass_on(pass, linear, x, to);
    }
}
