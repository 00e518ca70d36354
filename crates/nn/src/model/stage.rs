//! One layer of a model: `dropout(activation(norm(conv(x) + residual(x))))`.

use graphmill_graph::Block;

use super::activations::Kept;
use crate::{
    Finish, Layer, Matrix, Order, Param, Pass, View, ViewMut,
    backend::Activation,
    layer::{self, Linear, Norm, site},
};

/// What is added to the convolution's rows.
#[derive(Clone)]
pub(super) enum Residual {
    /// The destinations' input rows.
    Identity,
    /// The destinations' input rows times a matrix.
    Linear(Box<Linear>),
}

/// A convolution and what follows it.
#[derive(Clone)]
pub(super) struct Stage {
    pub(super) conv: Box<dyn Layer>,
    pub(super) residual: Option<Residual>,
    pub(super) norm: Option<Box<dyn Norm>>,
    pub(super) activation: Activation,
    pub(super) dropout: f32,
}

impl Stage {
    /// Shows every parameter, with the part it belongs to.
    pub(super) fn visit<'a>(&'a self, see: &mut dyn FnMut(&'static str, &'a Param)) {
        self.conv.visit(&mut |p| see("conv", p));
        if let Some(Residual::Linear(linear)) = &self.residual {
            linear.visit(&mut |p| see("residual", p));
        }
        if let Some(norm) = &self.norm {
            norm.visit(&mut |p| see("norm", p));
        }
    }

    /// Shows every parameter for change, in the same order.
    pub(super) fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.conv.visit_mut(see);
        if let Some(Residual::Linear(linear)) = &mut self.residual {
            linear.visit_mut(see);
        }
        if let Some(norm) = &mut self.norm {
            norm.visit_mut(see);
        }
    }

    fn finish(&self, pass: &Pass) -> Finish {
        Finish { activation: self.activation, dropout: pass.dropout(self.dropout, site::OUTPUT) }
    }

    /// Whether nothing stands between the convolution and the activation, so that the convolution
    /// finishes its rows itself, in one pass with its bias.
    fn is_plain(&self) -> bool {
        self.residual.is_none() && self.norm.is_none()
    }

    /// Whether [`Stage::forward`] of rows that are transformed already reads the destinations' own rows of `x`.
    pub(super) fn combines_own_rows(&self) -> bool {
        self.residual.is_some() || self.conv.combines_own_rows()
    }

    /// `x` (`S x F`, or a whole table for a global block) to `out` (`D x O`). `t` are the transformed
    /// rows of all sources where they are there already.
    #[allow(clippy::too_many_arguments, reason = "one operation, its inputs and its outputs")]
    pub(super) fn forward(
        &self,
        pass: &Pass,
        order: Order,
        block: &Block,
        x: View,
        t: Option<&[Matrix]>,
        kept: &mut Kept,
        mut out: ViewMut,
    ) {
        let Kept { conv: saved, own, before_norm, norm: norm_kept } = kept;
        let finish = self.finish(pass);
        let conv_finish = if self.is_plain() { finish } else { Finish::NONE };
        let mut conv_out = if self.norm.is_some() {
            before_norm.resize(block.num_dst, self.conv.out_dim());
            before_norm.view_mut()
        } else {
            out.reborrow()
        };
        match t {
            Some(t) => self.conv.combine(pass, block, x, t, conv_finish, saved, conv_out.reborrow()),
            None => self.conv.forward(pass, order, block, x, conv_finish, saved, conv_out.reborrow()),
        }
        match &self.residual {
            None => {}
            Some(Residual::Identity) => {
                pass.backend.add(1.0, layer::own_rows(pass, block, x, own), conv_out);
            }
            Some(Residual::Linear(linear)) => {
                linear.forward_product(pass, layer::own_rows(pass, block, x, own), 1.0, conv_out);
            }
        }
        if let Some(norm) = &self.norm {
            norm.forward(pass, before_norm.view(), norm_kept, out.reborrow());
        }
        if !self.is_plain() {
            finish.apply(pass.backend, None, out);
        }
    }

    /// The gradients of the last training [`Stage::forward`], whose output was `y`. `grad` (`D x O`) is
    /// overwritten; `x_grad` (`S x F`) is resized.
    #[allow(clippy::too_many_arguments, reason = "one operation, its inputs and its outputs")]
    pub(super) fn backward(
        &mut self,
        pass: &Pass,
        order: Order,
        block: &Block,
        x: View,
        y: View,
        kept: &mut Kept,
        grad: &mut Matrix,
        mut x_grad: Option<&mut Matrix>,
    ) {
        let Kept { conv: saved, own, before_norm, norm: norm_kept } = kept;
        let finish = self.finish(pass);
        let mut conv_finish = finish;
        if !self.is_plain() {
            conv_finish = Finish::NONE;
            finish.backward(pass.backend, None, y, grad.view_mut());
            if let Some(norm) = &mut self.norm {
                norm.backward(pass, before_norm.view(), norm_kept, grad.view_mut());
            }
        }
        let wanted = x_grad.as_deref_mut();
        self.conv.backward(pass, order, block, x, y, conv_finish, saved, grad, wanted);
        let grad = grad.view();
        let own_grad = x_grad.map(|x_grad| x_grad.rows_mut(0..block.num_dst));
        match &mut self.residual {
            None => {}
            Some(Residual::Identity) => {
                if let Some(own_grad) = own_grad {
                    pass.backend.add(1.0, grad, own_grad);
                }
            }
            Some(Residual::Linear(linear)) => {
                linear.backward_product(pass, layer::own_rows_again(block, x, own), grad);
                if let Some(own_grad) = own_grad {
                    linear.input_grad(pass, grad, 1.0, own_grad);
                }
            }
        }
    }
}
