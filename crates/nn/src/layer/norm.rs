//! Normalizations of rows, for use in layers and models.
//!
//! Shapes: rows are `R x O`.

use clap::ValueEnum;
use graphmill_core::by_name;
use serde::{Deserialize, Serialize};

use super::{Param, Pass};
use crate::{
    Matrix, View, ViewMut,
    backend::ops::{
        Add, BatchNormApply, BatchNormBackward, BatchNormForward, L2NormBackward, L2NormForward,
        LayerNormBackward, LayerNormForward,
    },
};

/// Normalization of a layer's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormKind {
    /// No normalization.
    #[default]
    None,
    /// [`BatchNorm`]: each column over the batch, by running statistics in evaluation.
    Batch,
    /// [`LayerNorm`]: each row to mean 0 and variance 1, then scale and shift.
    Layer,
    /// [`L2Norm`]: each row to unit length.
    L2,
}

by_name!(NormKind);

impl NormKind {
    /// Creates a normalization of rows of width `dim`, or `None` for [`NormKind::None`].
    pub fn make(self, dim: usize) -> Option<Box<dyn Norm>> {
        match self {
            Self::None => None,
            Self::Batch => Some(Box::new(BatchNorm::new(dim))),
            Self::Layer => Some(Box::new(LayerNorm::new(dim))),
            Self::L2 => Some(Box::new(L2Norm)),
        }
    }
}

/// A normalization of rows.
///
/// ```
/// use graphmill_nn::{Matrix, Pass, backend::Reference, layer::norm::{L2Norm, Norm}};
///
/// let pass = Pass { backend: &Reference, training: false, key: 0 };
/// let rows = Matrix::from_slice(1, 2, &[3.0, 4.0]);
/// let mut unit = Matrix::zeros(1, 2);
/// L2Norm.forward(&pass, rows.view(), &mut Default::default(), unit.view_mut());
/// assert_eq!(unit.view().host(), [0.6, 0.8]);
/// ```
pub trait Norm: Send + Sync {
    /// Visits every parameter, always in the same order.
    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param));

    /// Visits every parameter mutably, in the order of [`Norm::visit`].
    fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param));

    /// A boxed copy.
    fn boxed(&self) -> Box<dyn Norm>;

    /// Returns true if the backward pass needs the gradients of all rows, because parameters act on
    /// all of them or because rows depend on each other.
    fn needs_all_rows(&self) -> bool {
        true
    }

    /// Normalizes `x` (`R x O`) to `out` (`R x O`). This call fills the two matrices `saved`, which
    /// the backward pass reads.
    fn forward(&self, pass: &Pass, x: View, saved: &mut [Matrix; 2], out: ViewMut);

    /// Replaces `grad` by the gradient of the last training [`Norm::forward`] on `x`, and adds to
    /// every parameter's `grad`. If [`Norm::needs_all_rows`] returns false, `x` and `grad` may hold
    /// the first rows only. Running statistics are updated here, once per training step.
    fn backward(&mut self, pass: &Pass, x: View, saved: &mut [Matrix; 2], grad: ViewMut);
}

impl Clone for Box<dyn Norm> {
    fn clone(&self) -> Self {
        self.boxed()
    }
}

const EPS: f32 = 1e-5;

/// Batch normalization (Ioffe and Szegedy, *Batch Normalization*, ICML 2015):
/// `y = gamma (x - mean) / sqrt(var + 1e-5) + beta`. Training uses each column's mean and biased
/// variance over the batch, evaluation their running averages. As in PyTorch, the averages move by
/// a tenth per step and use the unbiased variance (0 for a batch of one row).
///
/// # Shapes
/// - `gamma`, `beta`: `1 x O`; `running`: `2 x O`, mean and variance, not trainable
#[derive(Clone, Debug)]
pub struct BatchNorm {
    gamma: Param,
    beta: Param,
    running: Param,
}

/// Share by which running statistics move per step.
const MOMENTUM: f32 = 0.1;

impl BatchNorm {
    /// Creates the identity on rows of mean 0 and variance 1.
    pub fn new(dim: usize) -> Self {
        Self::named(["gamma", "beta", "running"], dim)
    }

    /// Creates the same normalization with other parameter names.
    pub fn named(names: [&'static str; 3], dim: usize) -> Self {
        let mut running = Param::zeros(names[2], 2, dim).frozen();
        running.value.rows_mut(1..2).host().fill(1.0);
        Self { gamma: Param::constant(names[0], 1, dim, 1.0), beta: Param::zeros(names[1], 1, dim), running }
    }
}

impl Norm for BatchNorm {
    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        see(&self.gamma);
        see(&self.beta);
        see(&self.running);
    }

    fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        see(&mut self.gamma);
        see(&mut self.beta);
        see(&mut self.running);
    }

    fn boxed(&self) -> Box<dyn Norm> {
        Box::new(self.clone())
    }

    fn forward(&self, pass: &Pass, x: View, saved: &mut [Matrix; 2], out: ViewMut) {
        let (gamma, beta) = (self.gamma.value.view(), self.beta.value.view());
        if pass.training {
            let stats = &mut saved[0];
            stats.resize(2, x.num_cols());
            BatchNormForward { x, gamma, beta, eps: EPS, stats: stats.view_mut(), out }.run(pass.backend);
        } else {
            BatchNormApply { x, gamma, beta, eps: EPS, stats: self.running.value.view(), out }
                .run(pass.backend);
        }
    }

    fn backward(&mut self, pass: &Pass, x: View, saved: &mut [Matrix; 2], grad: ViewMut) {
        let Self { gamma, beta, running } = self;
        let (backend, stats) = (pass.backend, &saved[0]);
        let (gamma_grad, beta_grad) = (gamma.grad.view_mut(), beta.grad.view_mut());
        BatchNormBackward {
            x,
            gamma: gamma.value.view(),
            eps: EPS,
            stats: stats.view(),
            grad,
            gamma_grad,
            beta_grad,
        }
        .run(backend);
        let rows = x.num_rows() as f32;
        let unbiased = if rows > 1.0 { rows / (rows - 1.0) } else { 0.0 };
        backend.scale(1.0 - MOMENTUM, running.value.view_mut());
        Add { alpha: MOMENTUM, x: stats.rows(0..1), y: running.value.rows_mut(0..1) }.run(backend);
        Add { alpha: MOMENTUM * unbiased, x: stats.rows(1..2), y: running.value.rows_mut(1..2) }.run(backend);
    }
}

/// Layer normalization (Ba, Kiros and Hinton, *Layer Normalization*, 2016):
/// `y = gamma (x - mean) / sqrt(var + 1e-5) + beta` with each row's mean and biased variance.
///
/// # Shapes
/// - `gamma`, `beta`: `1 x O`
#[derive(Clone, Debug)]
pub struct LayerNorm {
    gamma: Param,
    beta: Param,
}

impl LayerNorm {
    /// Creates a normalization with scale 1 and shift 0.
    pub fn new(dim: usize) -> Self {
        Self::named(["gamma", "beta"], dim)
    }

    /// Creates the same normalization with other parameter names.
    pub fn named([gamma, beta]: [&'static str; 2], dim: usize) -> Self {
        Self { gamma: Param::constant(gamma, 1, dim, 1.0), beta: Param::zeros(beta, 1, dim) }
    }
}

impl Norm for LayerNorm {
    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        see(&self.gamma);
        see(&self.beta);
    }

    fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        see(&mut self.gamma);
        see(&mut self.beta);
    }

    fn boxed(&self) -> Box<dyn Norm> {
        Box::new(self.clone())
    }

    fn forward(&self, pass: &Pass, x: View, saved: &mut [Matrix; 2], out: ViewMut) {
        let (gamma, beta) = (self.gamma.value.view(), self.beta.value.view());
        saved[0].resize(x.num_rows(), 2);
        LayerNormForward { x, gamma, beta, eps: EPS, stats: saved[0].view_mut(), out }.run(pass.backend);
    }

    fn backward(&mut self, pass: &Pass, x: View, saved: &mut [Matrix; 2], grad: ViewMut) {
        let Self { gamma, beta } = self;
        let (gamma_grad, beta_grad) = (gamma.grad.view_mut(), beta.grad.view_mut());
        let stats = saved[0].view();
        LayerNormBackward { x, gamma: gamma.value.view(), eps: EPS, stats, grad, gamma_grad, beta_grad }
            .run(pass.backend);
    }
}

/// Division of each row by its length (GraphSAGE's algorithm 1, line 7); zero rows are unchanged.
#[derive(Clone, Copy, Debug)]
pub struct L2Norm;

impl Norm for L2Norm {
    fn visit<'a>(&'a self, _see: &mut dyn FnMut(&'a Param)) {}

    fn visit_mut(&mut self, _see: &mut dyn FnMut(&mut Param)) {}

    fn boxed(&self) -> Box<dyn Norm> {
        Box::new(*self)
    }

    fn needs_all_rows(&self) -> bool {
        false
    }

    fn forward(&self, pass: &Pass, x: View, saved: &mut [Matrix; 2], out: ViewMut) {
        saved[0].resize(x.num_rows(), 1);
        L2NormForward { x, norms: saved[0].view_mut(), out }.run(pass.backend);
    }

    fn backward(&mut self, pass: &Pass, x: View, saved: &mut [Matrix; 2], grad: ViewMut) {
        // activation and dropout overwrote the output in place, so it is recomputed
        let [norms, y] = saved;
        norms.truncate(x.num_rows());
        y.resize(x.num_rows(), x.num_cols());
        L2NormForward { x, norms: norms.view_mut(), out: y.view_mut() }.run(pass.backend);
        L2NormBackward { y: y.view(), norms: norms.view(), grad }.run(pass.backend);
    }
}
