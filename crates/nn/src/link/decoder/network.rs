//! Two dense layers over columns of a pair: the products of both rows, then those of a [`Columns`].
//!
//! # Algorithm
//!
//! `relu([h t | s] W + b) w + c`, with `h t` by elements and `s` the other columns.
//!
//! # Source
//!
//! The link predictors of Hu et al., *Open graph benchmark*, NeurIPS 2020, in its examples.
//!
//! # Cost
//!
//! O((F + K) H) per pair. The columns are computed once a batch, by the forward pass.
//!
//! # Memory
//!
//! `4 (F + K + H)` bytes per pair, twice in a backward pass.

#![forbid(unsafe_code)]

use graphmill_core::keyed;
use rayon::prelude::*;

use super::{Decoder, DecoderConfig, Pairs};
use crate::{
    Epilogue, Matrix, Param, Pass, Result, Saved, View,
    backend::{Activation, Dropout},
    layer::Linear,
};

/// Minimum number of pairs per task.
const MIN_TASK_LEN: usize = 16;

const HIDDEN: Epilogue = Epilogue { activation: Activation::Relu, dropout: Dropout::NONE };

/// Columns of a pair beside the products of both rows. They have no parameters.
pub(super) trait Columns: Clone + Send + Sync + 'static {
    /// Number of columns, `K`.
    fn width(&self) -> usize;

    /// Overwrites `out` (`K`) with the columns of pair `i`.
    fn write(&self, pairs: &Pairs, i: usize, out: &mut [f32]);
}

#[derive(Clone)]
struct Network<C> {
    /// Width of the embeddings, `F`.
    dim: usize,
    columns: C,
    hidden: Linear,
    out: Linear,
}

/// Makes a decoder of products and these columns.
pub(super) fn make(config: &DecoderConfig, columns: impl Columns) -> Result<Box<dyn Decoder>> {
    config.check()?;
    let &DecoderConfig { dim, hidden, key, .. } = config;
    let linear = |names, from, to, part| Linear::named(names, from, to, true, keyed::key(&[key, part]));
    let out = linear(["out.weight", "out.bias"], hidden, 1, 1);
    let hidden = linear(["hidden.weight", "hidden.bias"], dim + columns.width(), hidden, 0);
    Ok(Box::new(Network { dim, columns, hidden, out }))
}

/// Matrices of a pass.
#[derive(Clone, Debug, Default)]
struct State {
    /// Products and columns, `P x (F + K)`.
    input: Matrix,
    hidden: Matrix,
    scores: Matrix,
    grads: [Matrix; 3],
}

impl<C: Columns> Network<C> {
    /// Computes the products and columns of all pairs.
    fn fill(&self, pairs: &Pairs, input: &mut Matrix) {
        let (count, dim) = (pairs.source.num_rows(), self.dim);
        let ends = [pairs.source, pairs.destination];
        assert!(ends.iter().all(|rows| rows.num_cols() == dim && rows.num_rows() == count), "rows of pairs");
        input.resize(count, self.hidden.in_dim());
        let [h, t] = ends.map(|rows| rows.host());
        let rows = input.view_mut().host().par_chunks_mut(self.hidden.in_dim()).enumerate();
        rows.with_min_len(MIN_TASK_LEN).for_each(|(i, row)| {
            let (products, columns) = row.split_at_mut(dim);
            multiply(&h[i * dim..][..dim], &t[i * dim..][..dim], products);
            self.columns.write(pairs, i, columns);
        });
    }
}

/// Products by elements.
fn multiply(x: &[f32], y: &[f32], out: &mut [f32]) {
    out.iter_mut().zip(x.iter().zip(y)).for_each(|(out, (x, y))| *out = x * y);
}

impl<C: Columns> Decoder for Network<C> {
    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        self.hidden.visit(see);
        self.out.visit(see);
    }

    fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.hidden.visit_mut(see);
        self.out.visit_mut(see);
    }

    fn boxed(&self) -> Box<dyn Decoder> {
        Box::new(self.clone())
    }

    fn forward(&self, pass: &Pass, pairs: &Pairs, saved: &mut Saved, scores: &mut Matrix) {
        let State { input, hidden, scores: kept, .. } = saved.state();
        self.fill(pairs, input);
        hidden.resize(input.num_rows(), self.hidden.out_dim());
        self.hidden.forward(pass, input.view(), 0.0, HIDDEN, hidden.view_mut());
        scores.resize(input.num_rows(), 1);
        self.out.forward(pass, hidden.view(), 0.0, Epilogue::NONE, scores.view_mut());
        kept.resize(input.num_rows(), 1);
    }

    fn backward(
        &mut self,
        pass: &Pass,
        pairs: &Pairs,
        saved: &mut Saved,
        grad: View,
        ends: [&mut Matrix; 2],
    ) {
        let State { input, hidden, scores, grads: [out_grad, hidden_grad, input_grad] } = saved.state();
        out_grad.resize(grad.num_rows(), 1);
        pass.backend.copy(grad, out_grad.view_mut());
        let (x, y) = (hidden.view(), scores.view());
        self.out.backward(pass, x, y, Epilogue::NONE, out_grad, Some(hidden_grad));
        let (x, y) = (input.view(), hidden.view());
        self.hidden.backward(pass, x, y, HIDDEN, hidden_grad, Some(input_grad));
        let (dim, width) = (self.dim, self.hidden.in_dim());
        for (end, other) in ends.into_iter().zip([pairs.destination, pairs.source]) {
            end.resize(grad.num_rows(), dim);
            let rows = end.view_mut().host().par_chunks_mut(dim).zip(other.host().par_chunks(dim));
            rows.zip(input_grad.view().host().par_chunks(width))
                .with_min_len(MIN_TASK_LEN)
                .for_each(|((out, other), grad)| multiply(&grad[..dim], other, out));
        }
    }
}
