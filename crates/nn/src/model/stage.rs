//! One layer of a model: `dropout(activation(norm(conv(x) + residual(x))))`.
//!
//! In the bottom one, rows that are reused may stand behind those that are computed: they join before the norm.

use graphmill_graph::Block;

use super::{Reused, activations::Kept};
use crate::{
    Finish, Layer, Matrix, Order, Param, Pass, Saved, View, ViewMut,
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
        self.visit_rows(see);
        if let Some(norm) = &self.norm {
            norm.visit(&mut |p| see("norm", p));
        }
    }

    /// Shows the parameters that rows before the norm depend on, which come first.
    pub(super) fn visit_rows<'a>(&'a self, see: &mut dyn FnMut(&'static str, &'a Param)) {
        self.conv.visit(&mut |p| see("conv", p));
        if let Some(Residual::Linear(linear)) = &self.residual {
            linear.visit(&mut |p| see("residual", p));
        }
    }

    /// Shows every parameter for change, in the same order.
    pub(super) fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.visit_rows_mut(see);
        if let Some(norm) = &mut self.norm {
            norm.visit_mut(see);
        }
    }

    /// Shows those of [`Stage::visit_rows`] for change.
    pub(super) fn visit_rows_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.conv.visit_mut(see);
        if let Some(Residual::Linear(linear)) = &mut self.residual {
            linear.visit_mut(see);
        }
    }

    /// What comes last, with the dropout of that site.
    pub(super) fn finish(&self, pass: &Pass, site: u64) -> Finish {
        Finish { activation: self.activation, dropout: pass.dropout(self.dropout, site) }
    }

    /// Whether nothing stands between the convolution and the activation, so that the convolution
    /// finishes its rows itself, in one pass with its bias.
    pub(super) fn is_plain(&self) -> bool {
        self.residual.is_none() && self.norm.is_none()
    }

    /// Whether [`Stage::forward`] of rows that are transformed already reads the destinations' own rows of `x`.
    pub(super) fn combines_own_rows(&self) -> bool {
        self.residual.is_some() || self.conv.combines_own_rows()
    }

    /// `x` (`S x F`, or a whole table for a global block) to `out` (`D x O`, and the reused rows). `t` are the transformed
    /// rows of all sources where they are there already.
    #[allow(clippy::too_many_arguments, reason = "one operation, its inputs and its outputs")]
    pub(super) fn forward(
        &self,
        pass: &Pass,
        order: Order,
        block: &Block,
        x: View,
        t: Option<&[Matrix]>,
        reused: Option<Reused>,
        kept: &mut Kept,
        mut out: ViewMut,
    ) {
        let finish = self.finish(pass, site::OUTPUT);
        let conv_finish = if self.is_plain() { finish } else { Finish::NONE };
        let computed = block.num_dst;
        let mut before_norm = std::mem::take(&mut kept.before_norm);
        let mut rows = if self.norm.is_some() {
            before_norm.resize(out.num_rows(), self.conv.out_dim());
            before_norm.view_mut()
        } else {
            out.reborrow()
        };
        let to = rows.reborrow().rows(0..computed);
        self.rows(pass, order, block, x, t, conv_finish, &mut kept.conv, &mut kept.own, to);
        if let Some(reused) = reused {
            self.put_behind(pass, reused, computed, kept, rows);
        }
        if let Some(norm) = &self.norm {
            norm.forward(pass, before_norm.view(), &mut kept.norm, out.reborrow());
        }
        kept.before_norm = before_norm;
        if !self.is_plain() {
            finish.apply(pass.backend, None, out);
        }
    }

    /// `conv(x) + residual(x)`, `D x O`: the rows before the norm, or finished already where the stage is plain. `own` is room.
    #[allow(clippy::too_many_arguments, reason = "one operation, its inputs and its outputs")]
    pub(super) fn rows(
        &self,
        pass: &Pass,
        order: Order,
        block: &Block,
        x: View,
        t: Option<&[Matrix]>,
        finish: Finish,
        saved: &mut Saved,
        own: &mut Matrix,
        mut out: ViewMut,
    ) {
        match t {
            Some(t) => self.conv.combine(pass, block, x, t, finish, saved, out.reborrow()),
            None => self.conv.forward(pass, order, block, x, finish, saved, out.reborrow()),
        }
        match &self.residual {
            None => {}
            Some(Residual::Identity) => {
                pass.backend.add(1.0, layer::own_rows(pass, block, x, own), out);
            }
            Some(Residual::Linear(linear)) => {
                linear.forward_product(pass, layer::own_rows(pass, block, x, own), 1.0, out);
            }
        }
    }

    /// The gradients of the last training [`Stage::forward`], whose output was `y`. `grad` (as many rows as `y` has; without
    /// those of the reused rows where nothing wants them) becomes that of the computed rows before the norm; `x_grad` is
    /// resized.
    #[allow(clippy::too_many_arguments, reason = "one operation, its inputs and its outputs")]
    pub(super) fn backward(
        &mut self,
        pass: &Pass,
        order: Order,
        block: &Block,
        x: View,
        y: View,
        reused: Option<Reused>,
        kept: &mut Kept,
        grad: &mut Matrix,
        mut x_grad: Option<&mut Matrix>,
    ) {
        let finish = self.finish(pass, site::OUTPUT);
        let mut conv_finish = finish;
        let rows = 0..grad.num_rows();
        if !self.is_plain() {
            conv_finish = Finish::NONE;
            finish.backward(pass.backend, None, y.rows(rows.clone()), grad.view_mut());
            if let Some(norm) = &mut self.norm {
                let all = rows.end == kept.before_norm.num_rows();
                assert!(all || !norm.needs_all_rows(), "the norm of layer 0 needs the gradients of all rows");
                norm.backward(pass, kept.before_norm.rows(rows), &mut kept.norm, grad.view_mut());
            }
        }
        if let Some(reused) = reused {
            self.backward_behind(pass, reused, block.num_dst, y, kept, grad);
        }
        let Kept { conv: saved, own, .. } = kept;
        let y = y.rows(0..block.num_dst);
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
