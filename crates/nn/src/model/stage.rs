//! One layer of a model: `dropout(activation(norm(conv(x) + residual(x))))`.
//!
//! In the bottom layer, reused rows may follow the computed ones; they join before the norm.

use super::{activations::SavedStage, reused::Reused};
use crate::{
    Epilogue, Layer, Matrix, Param, Pass, Saved, ViewMut,
    backend::{Activation, ops::Add},
    layer::{LayerGrads, LayerInput, Linear, Norm, site},
};

/// Residual added to the convolution's rows.
#[derive(Clone)]
pub(super) enum Residual {
    /// The destinations' input rows.
    Identity,
    /// The destinations' input rows times a matrix.
    Linear(Box<Linear>),
}

/// A convolution with its residual, norm, activation and dropout.
#[derive(Clone)]
pub(super) struct Stage {
    pub(super) conv: Box<dyn Layer>,
    pub(super) residual: Option<Residual>,
    pub(super) norm: Option<Box<dyn Norm>>,
    pub(super) activation: Activation,
    pub(super) dropout: f32,
}

impl Stage {
    /// Visits every parameter with the name of its part.
    pub(super) fn visit<'a>(&'a self, see: &mut dyn FnMut(&'static str, &'a Param)) {
        self.visit_rows(see);
        if let Some(norm) = &self.norm {
            norm.visit(&mut |p| see("norm", p));
        }
    }

    /// Visits the parameters that rows before the norm depend on, which come first.
    pub(super) fn visit_rows<'a>(&'a self, see: &mut dyn FnMut(&'static str, &'a Param)) {
        self.conv.visit(&mut |p| see("conv", p));
        if let Some(Residual::Linear(linear)) = &self.residual {
            linear.visit(&mut |p| see("residual", p));
        }
    }

    /// Visits every parameter mutably, in the same order.
    pub(super) fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.visit_rows_mut(see);
        if let Some(norm) = &mut self.norm {
            norm.visit_mut(see);
        }
    }

    /// Visits the parameters of [`Stage::visit_rows`] mutably.
    pub(super) fn visit_rows_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.conv.visit_mut(see);
        if let Some(Residual::Linear(linear)) = &mut self.residual {
            linear.visit_mut(see);
        }
    }

    /// Activation and dropout after the norm, with the dropout of that site.
    pub(super) fn epilogue(&self, pass: &Pass, site: u64) -> Epilogue {
        Epilogue { activation: self.activation, dropout: pass.dropout(self.dropout, site) }
    }

    /// Returns true if nothing separates the convolution from the activation, so the convolution
    /// applies it itself, in one pass with its bias.
    pub(super) fn is_plain(&self) -> bool {
        self.residual.is_none() && self.norm.is_none()
    }

    /// Returns true if [`Stage::forward`] reads the destinations' own rows of `x` even if rows are
    /// already transformed.
    pub(super) fn combines_own_rows(&self) -> bool {
        self.residual.is_some() || self.conv.spec().combines_own_rows
    }

    /// Computes `out` (`D x O`, then the reused rows) from `input`, whose rows may already be
    /// transformed.
    pub(super) fn forward(
        &self,
        pass: &Pass,
        input: &LayerInput,
        reused: Option<Reused>,
        saved: &mut SavedStage,
        mut out: ViewMut,
    ) {
        let epilogue = self.epilogue(pass, site::OUTPUT);
        let finishes = self.is_plain() && saved.kept.is_none();
        let conv_epilogue = if finishes { epilogue } else { Epilogue::NONE };
        let computed = input.block.num_dst;
        let mut before_norm = std::mem::take(&mut saved.before_norm);
        let mut rows = if self.norm.is_some() {
            before_norm.resize(out.num_rows(), self.conv.spec().out_dim);
            before_norm.view_mut()
        } else {
            out.reborrow()
        };
        let to = rows.reborrow().rows(0..computed);
        self.rows(pass, input, conv_epilogue, (&mut saved.conv, &mut saved.own), to);
        if let Some(kept) = &mut saved.kept {
            let to = rows.reborrow().rows(0..computed);
            kept.resize(to.num_rows(), to.num_cols());
            pass.backend.copy(to.as_view(), kept.view_mut());
            if self.is_plain() {
                epilogue.apply(pass.backend, None, to);
            }
        }
        if let Some(reused) = reused {
            self.append_reused(pass, reused, computed, saved, rows);
        }
        if let Some(norm) = &self.norm {
            norm.forward(pass, before_norm.view(), &mut saved.norm, out.reborrow());
        }
        saved.before_norm = before_norm;
        if !self.is_plain() {
            epilogue.apply(pass.backend, None, out);
        }
    }

    /// Computes `conv(x) + residual(x)`, `D x O`: the rows before the norm, or the finished rows if
    /// the stage is plain. `own` is scratch for own rows.
    pub(super) fn rows(
        &self,
        pass: &Pass,
        input: &LayerInput,
        epilogue: Epilogue,
        (saved, own): (&mut Saved, &mut Matrix),
        mut out: ViewMut,
    ) {
        if input.transformed.is_empty() {
            self.conv.run_forward(pass, input, epilogue, saved, out.reborrow());
        } else {
            self.conv.forward(pass, input, epilogue, saved, out.reborrow());
        }
        match &self.residual {
            None => {}
            Some(Residual::Identity) => {
                Add { alpha: 1.0, x: input.own_rows(pass, own), y: out }.run(pass.backend)
            }
            Some(Residual::Linear(linear)) => {
                linear.forward_product(pass, input.own_rows(pass, own), 1.0, out);
            }
        }
    }

    /// Computes the gradients of the last training [`Stage::forward`], whose output was `y`. `grad`
    /// has as many rows as `y`, without the reused rows if their gradient is not needed; it becomes
    /// the gradient of the computed rows before the norm. `x_grad` is resized.
    pub(super) fn backward(
        &mut self,
        pass: &Pass,
        input: &LayerInput,
        reused: Option<Reused>,
        saved: &mut SavedStage,
        LayerGrads { y, grad, mut x_grad }: LayerGrads,
    ) {
        let computed = input.block.num_dst;
        let epilogue = self.epilogue(pass, site::OUTPUT);
        let mut conv_epilogue = epilogue;
        let rows = 0..grad.num_rows();
        if !self.is_plain() {
            conv_epilogue = Epilogue::NONE;
            epilogue.backward(pass.backend, None, y.rows(rows.clone()), grad.view_mut());
            if let Some(norm) = &mut self.norm {
                let all = rows.end == saved.before_norm.num_rows();
                assert!(
                    all || !norm.needs_all_rows(),
                    "the norm of layer 0 requires the gradients of all rows"
                );
                norm.backward(pass, saved.before_norm.rows(rows), &mut saved.norm, grad.view_mut());
            }
        }
        if let Some(reused) = reused {
            self.backward_reused(pass, reused, computed, y, saved, grad);
        }
        let SavedStage { conv: saved, own, .. } = saved;
        let grads = LayerGrads { y: y.rows(0..computed), grad, x_grad: x_grad.as_deref_mut() };
        self.conv.run_backward(pass, input, conv_epilogue, saved, grads);
        let grad = grad.view();
        let own_grad = x_grad.map(|x_grad| x_grad.rows_mut(0..computed));
        match &mut self.residual {
            None => {}
            Some(Residual::Identity) => {
                if let Some(own_grad) = own_grad {
                    Add { alpha: 1.0, x: grad, y: own_grad }.run(pass.backend);
                }
            }
            Some(Residual::Linear(linear)) => {
                linear.backward_product(pass, input.saved_own_rows(own), grad);
                if let Some(own_grad) = own_grad {
                    linear.input_grad(pass, grad, 1.0, own_grad);
                }
            }
        }
    }
}
