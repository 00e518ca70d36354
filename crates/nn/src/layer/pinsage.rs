//! PinSAGE's convolution.

use graphmill_graph::{Block, keyed};

use super::{Finish, Layer, LayerConfig, Linear, Order, Param, Pass, Saved};
use crate::{
    Matrix, Result, View, ViewMut,
    backend::{Activation, Dropout, EdgeWeight, OwnWeight, Weighting},
};

/// The convolution of PinSAGE, from *Graph Convolutional Neural Networks for Web-Scale Recommender Systems* (Ying, He, Chen,
/// Eksombatchai, Hamilton and Leskovec, KDD 2018, algorithm 1):
///
/// ```text
/// n[v]   = (sum over edges (u, v) of w act(x[u] Q + q)) / max(sum over edges of w, 1)
/// z[v]   = act(n[v] W_neigh + x[v] W_self + b)
/// out[v] = z[v] / |z[v]|
/// ```
///
/// The weights `w` are the block's, the importance of a neighbour: how often random walks from `v` visited it. Where there
/// are none, all are 1 and `n` is the mean. The division is that of DGL's example and of GNNLab's code; the paper leaves
/// the form of its weighted mean open. A row of zeros stays. `act` is the model's activation, and none comes after.
///
/// A layer that gives the classes ends with `n[v] W_neigh + x[v] W_self + b`: activated scores of length 1, as those two
/// examples have there, cannot become sure of a class. They also drop from the rows before `Q` and from `n` and `x` before
/// `W`; here a model drops from each layer's output rows, as for every layer.
///
/// The rows under the weighted mean are not linear in `x`, so it always transforms first: `S F P + E P + D (P + F) O`
/// multiplications. `P` is the width of hidden rows: `O`, or `F` in a layer that gives the classes.
///
/// # Shapes
/// - `pool.weight` (`Q`): `F x P`; `pool.bias`: `1 x P`; `neigh.weight`: `P x O`; `self.weight`: `F x O`; `bias`: `1 x O`
/// - in `S x F`, out `D x O`
#[derive(Clone, Debug)]
pub struct PinSage {
    pool: Linear,
    neigh: Linear,
    own: Linear,
    activation: Activation,
    /// Whether rows are activated and brought to length 1.
    normalises: bool,
    /// `P`.
    width: usize,
}

impl PinSage {
    /// A layer `F` to `O`.
    ///
    /// # Errors
    /// None; the signature is the table's.
    pub fn make(config: &LayerConfig) -> Result<Box<dyn Layer>> {
        let &LayerConfig { in_dim, out_dim, bias, key, activation, classifies, .. } = config;
        let key = |part| keyed::key(&[key, part]);
        let width = if classifies { in_dim } else { out_dim };
        Ok(Box::new(Self {
            pool: Linear::named(["pool.weight", "pool.bias"], in_dim, width, bias, key(0)),
            neigh: Linear::named(["neigh.weight", ""], width, out_dim, false, key(1)),
            own: Linear::named(["self.weight", "bias"], in_dim, out_dim, bias, key(2)),
            activation,
            normalises: !classifies,
            width,
        }))
    }

    fn weighting(block: &Block) -> Weighting<'static> {
        let edge = if block.is_weighted() { EdgeWeight::Normalised } else { EdgeWeight::Mean };
        Weighting { edge, own: OwnWeight::None }
    }

    /// The activation inside the layer.
    fn activate(&self) -> Finish {
        Finish { activation: self.activation, dropout: Dropout::NONE }
    }
}

// In `Saved::m`: n (D x P), own rows (D x F, only of a global block), z (D x O), its norms (D x 1), and of the backward pass
// z / |z|, the gradient of what is activated (both D x O), of n (D x P), of the pooled rows (S x P).
impl Layer for PinSage {
    fn in_dim(&self) -> usize {
        self.own.in_dim()
    }

    fn out_dim(&self) -> usize {
        self.own.out_dim()
    }

    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        self.pool.visit(see);
        self.neigh.visit(see);
        self.own.visit(see);
    }

    fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.pool.visit_mut(see);
        self.neigh.visit_mut(see);
        self.own.visit_mut(see);
    }

    fn boxed(&self) -> Box<dyn Layer> {
        Box::new(self.clone())
    }

    fn orders(&self) -> &'static [Order] {
        &[Order::TransformFirst]
    }

    fn is_activated(&self) -> bool {
        self.normalises
    }

    fn transformed_dims(&self) -> &[usize] {
        std::slice::from_ref(&self.width)
    }

    fn transform(&self, pass: &Pass, x: View, at: usize, t: &mut [Matrix]) {
        self.pool.forward(pass, x, 0.0, self.activate(), t[0].rows_mut(at..at + x.num_rows()));
    }

    fn combine(
        &self,
        pass: &Pass,
        block: &Block,
        x: View,
        t: &[Matrix],
        finish: Finish,
        saved: &mut Saved,
        mut out: ViewMut,
    ) {
        let [mean, room, z, norms, ..] = &mut saved.m;
        let own = super::own_rows(pass, block, x, room);
        mean.resize(block.num_dst, self.width);
        pass.backend.aggregate(block, Self::weighting(block), t[0].view(), 0.0, mean.view_mut());
        if !self.normalises {
            self.neigh.forward(pass, mean.view(), 0.0, Finish::NONE, out.reborrow());
            return self.own.forward(pass, own, 1.0, finish, out);
        }
        z.resize(block.num_dst, self.out_dim());
        norms.resize(block.num_dst, 1);
        self.neigh.forward(pass, mean.view(), 0.0, Finish::NONE, z.view_mut());
        self.own.forward(pass, own, 1.0, self.activate(), z.view_mut());
        pass.backend.l2_norm(z.view(), norms.view_mut(), out.reborrow());
        finish.apply(pass.backend, None, out);
    }

    fn backward(
        &mut self,
        pass: &Pass,
        _order: Order,
        block: &Block,
        x: View,
        y: View,
        finish: Finish,
        saved: &mut Saved,
        grad: &mut Matrix,
        mut x_grad: Option<&mut Matrix>,
    ) {
        super::assert_unrestricted(block);
        let activate = self.activate();
        let [mean, room, z, norms, unit, inner, mean_grad, pool_grad, ..] = &mut saved.m;
        let inner = if self.normalises {
            // the gradient before the finish is the caller's: what is before the norm goes elsewhere
            finish.backward(pass.backend, None, y, grad.view_mut());
            for room in [&mut *unit, &mut *inner] {
                room.resize(block.num_dst, self.own.out_dim());
            }
            pass.backend.copy(grad.view(), inner.view_mut());
            pass.backend.l2_norm(z.view(), norms.view_mut(), unit.view_mut());
            pass.backend.l2_norm_backward(unit.view(), norms.view(), inner.view_mut());
            activate.backward(pass.backend, self.own.bias_mut(), z.view(), inner.view_mut());
            inner.view()
        } else {
            finish.backward(pass.backend, self.own.bias_mut(), y, grad.view_mut());
            grad.view()
        };
        let own = super::own_rows_again(block, x, room);
        Linear::backward_products(pass, [&mut self.neigh, &mut self.own], [mean.view(), own], inner);
        mean_grad.resize(block.num_dst, self.width);
        self.neigh.input_grad(pass, inner, 0.0, mean_grad.view_mut());
        pool_grad.resize(block.num_src, self.width);
        let to = pool_grad.view_mut();
        pass.backend.aggregate_transposed(block, Self::weighting(block), mean_grad.view(), 0.0, to);
        self.pool.backward(pass, x, saved.t[0].view(), activate, pool_grad, x_grad.as_deref_mut());
        if let Some(x_grad) = x_grad {
            self.own.input_grad(pass, inner, 1.0, x_grad.rows_mut(0..block.num_dst));
        }
    }
}
