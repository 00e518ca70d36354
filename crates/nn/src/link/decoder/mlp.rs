//! Two dense layers over the products of both rows.
//!
//! # Algorithm
//!
//! `relu((h t) W + b) w + c`, with `h t` by elements.
//!
//! # Source
//!
//! The link predictors of Hu et al., *Open graph benchmark*, NeurIPS 2020, in its examples.
//!
//! # Cost
//!
//! O(F H) per pair.

use graphmill_core::keyed;

use super::{Decoder, DecoderConfig, Pairs};
use crate::{
    Epilogue, Matrix, Param, Pass, Result, Saved, View,
    backend::{Activation, Dropout},
    layer::Linear,
};

#[derive(Clone)]
struct Mlp {
    hidden: Linear,
    out: Linear,
}

/// Makes the decoder.
pub(super) fn make(config: &DecoderConfig) -> Result<Box<dyn Decoder>> {
    config.check()?;
    let &DecoderConfig { dim, hidden, key, .. } = config;
    let linear = |names, from, to, part| Linear::named(names, from, to, true, keyed::key(&[key, part]));
    let out = linear(["out.weight", "out.bias"], hidden, 1, 1);
    Ok(Box::new(Mlp { hidden: linear(["hidden.weight", "hidden.bias"], dim, hidden, 0), out }))
}

/// Matrices of a pass.
#[derive(Clone, Debug, Default)]
struct State {
    product: Matrix,
    hidden: Matrix,
    scores: Matrix,
    grads: [Matrix; 3],
}

const HIDDEN: Epilogue = Epilogue { activation: Activation::Relu, dropout: Dropout::NONE };

/// Products by elements, `R x F` each.
fn multiply(x: View, y: View, out: &mut Matrix) {
    out.resize(x.num_rows(), x.num_cols());
    let factors = x.host().iter().zip(y.host());
    out.view_mut().host().iter_mut().zip(factors).for_each(|(out, (x, y))| *out = x * y);
}

impl Decoder for Mlp {
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
        let State { product, hidden, scores: kept, .. } = saved.state();
        multiply(pairs.source, pairs.destination, product);
        hidden.resize(product.num_rows(), self.hidden.out_dim());
        self.hidden.forward(pass, product.view(), 0.0, HIDDEN, hidden.view_mut());
        scores.resize(product.num_rows(), 1);
        self.out.forward(pass, hidden.view(), 0.0, Epilogue::NONE, scores.view_mut());
        kept.resize(product.num_rows(), 1);
    }

    fn backward(
        &mut self,
        pass: &Pass,
        pairs: &Pairs,
        saved: &mut Saved,
        grad: View,
        ends: [&mut Matrix; 2],
    ) {
        let State { product, hidden, scores, grads: [out_grad, hidden_grad, product_grad] } = saved.state();
        out_grad.resize(grad.num_rows(), 1);
        pass.backend.copy(grad, out_grad.view_mut());
        let (x, y) = (hidden.view(), scores.view());
        self.out.backward(pass, x, y, Epilogue::NONE, out_grad, Some(hidden_grad));
        let (x, y) = (product.view(), hidden.view());
        self.hidden.backward(pass, x, y, HIDDEN, hidden_grad, Some(product_grad));
        for (end, other) in ends.into_iter().zip([pairs.destination, pairs.source]) {
            multiply(product_grad.view(), other, end);
        }
    }
}
