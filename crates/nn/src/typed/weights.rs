//! The weights of relations: a matrix each, combinations of shared bases, or block-diagonal ones.

use graphmill_core::keyed;

use super::Scope;
use crate::{
    Matrix, Param, Pass, View, ViewMut,
    backend::{
        Side::{Plain, Transposed},
        ops::{AddDot, AddTimes, Gemm, HeadGemm},
    },
};

/// A matrix `F x O` for each relation.
#[derive(Clone, Debug)]
pub enum RelationWeights {
    /// A matrix for each relation.
    Full(Vec<Param>),
    /// `W_r = sum over b of a[r, b] V_b` (Schlichtkrull et al., equation 3).
    Bases {
        /// Bases `V_b`, `F x O` each.
        bases: Vec<Param>,
        /// Coefficients `a[r]` of each relation, `1 x B`.
        coefficients: Vec<Param>,
    },
    /// `W_r = diag(Q[r, 1], ..., Q[r, B])` (equation 4).
    Blocks {
        /// Blocks of each relation side by side, `F / B x O`.
        blocks: Vec<Param>,
        /// Number of blocks, `B`.
        count: usize,
    },
}

/// Combined weights of a pass, and their gradients.
#[derive(Clone, Debug, Default)]
pub(super) struct CombinedWeights {
    values: Vec<Matrix>,
    grads: Vec<Matrix>,
}

impl RelationWeights {
    /// Creates a Glorot-uniform matrix for each relation.
    pub fn full(relations: usize, [rows, cols]: [usize; 2], key: u64) -> Self {
        let weight = |r| Param::glorot("weight", rows, cols, rows, cols, keyed::key(&[key, 0, r as u64]));
        Self::Full((0..relations).map(weight).collect())
    }

    /// Creates `count` Glorot-uniform bases, and coefficients of the same distribution.
    pub fn bases(relations: usize, count: usize, [rows, cols]: [usize; 2], key: u64) -> Self {
        let basis = |b| Param::glorot("basis", rows, cols, rows, cols, keyed::key(&[key, 1, b as u64]));
        let coefficient =
            |r| Param::glorot("coefficients", 1, count, relations, count, keyed::key(&[key, 2, r as u64]));
        Self::Bases {
            bases: (0..count).map(basis).collect(),
            coefficients: (0..relations).map(coefficient).collect(),
        }
    }

    /// Creates `count` Glorot-uniform blocks for each relation; `count` divides both widths.
    pub fn blocks(relations: usize, count: usize, [rows, cols]: [usize; 2], key: u64) -> Self {
        let (height, width) = (rows / count, cols / count);
        let block = |r| Param::glorot("blocks", height, cols, height, width, keyed::key(&[key, 3, r as u64]));
        Self::Blocks { blocks: (0..relations).map(block).collect(), count }
    }

    /// Visits every parameter.
    pub fn visit<'a>(&'a self, see: &mut dyn FnMut(Scope, &'a Param)) {
        let (shared, of_relations): (&[Param], &[Param]) = match self {
            Self::Full(weights) => (&[], weights),
            Self::Bases { bases, coefficients } => (bases, coefficients),
            Self::Blocks { blocks, .. } => (&[], blocks),
        };
        shared.iter().for_each(|p| see(Scope::Shared, p));
        of_relations.iter().enumerate().for_each(|(r, p)| see(Scope::Relation(r), p));
    }

    /// Visits every parameter mutably.
    pub fn visit_mut(&mut self, see: &mut dyn FnMut(Scope, &mut Param)) {
        let (shared, of_relations): (&mut [Param], &mut [Param]) = match self {
            Self::Full(weights) => (&mut [], weights),
            Self::Bases { bases, coefficients } => (bases, coefficients),
            Self::Blocks { blocks, .. } => (&mut [], blocks),
        };
        shared.iter_mut().for_each(|p| see(Scope::Shared, p));
        of_relations.iter_mut().enumerate().for_each(|(r, p)| see(Scope::Relation(r), p));
    }

    /// Combines the bases of the relations that `is_used` selects.
    pub(super) fn combine(&self, pass: &Pass, is_used: impl Fn(usize) -> bool, to: &mut CombinedWeights) {
        let Self::Bases { bases, coefficients } = self else { return };
        to.values.resize_with(coefficients.len(), Matrix::default);
        for (r, coefficients) in coefficients.iter().enumerate().filter(|(r, _)| is_used(*r)) {
            let value = &mut to.values[r];
            value.resize(bases[0].value.num_rows(), bases[0].value.num_cols());
            pass.backend.fill(0.0, value.view_mut());
            for (at, basis) in bases.iter().enumerate() {
                let (factors, x, y) = (coefficients.value.view(), basis.value.view(), value.view_mut());
                AddTimes { factors, at, plus: 0.0, x, y }.run(pass.backend);
            }
        }
    }

    /// Sets the gradients of combined weights to zero, before a backward pass.
    pub(super) fn clear_grads(&self, pass: &Pass, of: &mut CombinedWeights) {
        of.grads.resize_with(of.values.len(), Matrix::default);
        for (grad, value) in of.grads.iter_mut().zip(&of.values) {
            grad.resize(value.num_rows(), value.num_cols());
            pass.backend.fill(0.0, grad.view_mut());
        }
    }

    /// Passes the gradients of combined weights on to the bases and coefficients.
    pub(super) fn backward_combined(
        &mut self,
        pass: &Pass,
        is_used: impl Fn(usize) -> bool,
        of: &CombinedWeights,
    ) {
        let Self::Bases { bases, coefficients } = self else { return };
        for (r, coefficients) in coefficients.iter_mut().enumerate().filter(|(r, _)| is_used(*r)) {
            let grad = of.grads[r].view();
            for (at, basis) in bases.iter_mut().enumerate() {
                let (factors, y) = (coefficients.value.view(), basis.grad.view_mut());
                AddTimes { factors, at, plus: 0.0, x: grad, y }.run(pass.backend);
                let (y, out) = (basis.value.view(), coefficients.grad.view_mut());
                AddDot { x: grad, y, out, at }.run(pass.backend);
            }
        }
    }

    /// Computes `out = beta out + x W_r`, `R x F` to `R x O`.
    pub(super) fn product(
        &self,
        pass: &Pass,
        r: usize,
        combined: &CombinedWeights,
        x: View,
        beta: f32,
        out: ViewMut,
    ) {
        let weight = match self {
            Self::Full(weights) => weights[r].value.view(),
            Self::Bases { .. } => combined.values[r].view(),
            Self::Blocks { blocks, count } => {
                let b = (blocks[r].value.view(), Plain);
                return HeadGemm { heads: *count, a: (x, Plain), b, beta, c: out }.run(pass.backend);
            }
        };
        Gemm { a: (x, Plain), b: (weight, Plain), beta, c: out }.run(pass.backend);
    }

    /// Adds to the gradient of the weight, `x^T grad`.
    pub(super) fn backward_product(
        &mut self,
        pass: &Pass,
        r: usize,
        combined: &mut CombinedWeights,
        x: View,
        grad: View,
    ) {
        let weight_grad = match self {
            Self::Full(weights) => weights[r].grad.view_mut(),
            Self::Bases { .. } => combined.grads[r].view_mut(),
            Self::Blocks { blocks, count } => {
                let (b, c) = ((grad, Plain), blocks[r].grad.view_mut());
                return HeadGemm { heads: *count, a: (x, Transposed), b, beta: 1.0, c }.run(pass.backend);
            }
        };
        Gemm { a: (x, Transposed), b: (grad, Plain), beta: 1.0, c: weight_grad }.run(pass.backend);
    }

    /// Computes `x_grad = beta x_grad + grad W_r^T`.
    pub(super) fn input_grad(
        &self,
        pass: &Pass,
        r: usize,
        combined: &CombinedWeights,
        grad: View,
        beta: f32,
        x_grad: ViewMut,
    ) {
        let weight = match self {
            Self::Full(weights) => weights[r].value.view(),
            Self::Bases { .. } => combined.values[r].view(),
            Self::Blocks { blocks, count } => {
                let b = (blocks[r].value.view(), Transposed);
                return HeadGemm { heads: *count, a: (grad, Plain), b, beta, c: x_grad }.run(pass.backend);
            }
        };
        Gemm { a: (grad, Plain), b: (weight, Transposed), beta, c: x_grad }.run(pass.backend);
    }
}
