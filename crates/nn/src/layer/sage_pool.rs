//! GraphSAGE with the max-pooling aggregator.

use graphmill_graph::{Block, keyed};

use super::{Finish, Layer, LayerConfig, Linear, Order, Param, Pass, Saved};
use crate::{
    Matrix, Result, View, ViewMut,
    backend::{Activation, Dropout},
};

/// The GraphSAGE operator with the pooling aggregator, from *Inductive Representation Learning on
/// Large Graphs* (Hamilton, Ying and Leskovec, NeurIPS 2017, section 3.3, equation 3):
///
/// ```text
/// out[v] = max over in-neighbours u of (relu(x[u] W_pool + b_pool)) W_neigh + x[v] W_self + b
/// ```
///
/// The maximum is taken element by element; it is 0 for a destination without neighbours, which is
/// also its least value. The pool is as wide as the input, as in DGL and PyG. The dense layer in front of
/// the maximum is not linear, so it always transforms first: `S F^2 + E F + 2 D F O` multiplications.
///
/// # Shapes
/// - `pool.weight`: `F x F`; `pool.bias`: `1 x F`; `neigh.weight`, `self.weight`: `F x O`; `bias`: `1 x O`
/// - in `S x F`, out `D x O`
#[derive(Clone, Debug)]
pub struct SagePool {
    pool: Linear,
    neigh: Linear,
    own: Linear,
    in_dim: usize,
}

impl SagePool {
    /// A layer `F` to `O`.
    ///
    /// # Errors
    /// None; the signature is the table's.
    pub fn make(config: &LayerConfig) -> Result<Box<dyn Layer>> {
        let &LayerConfig { in_dim, out_dim, bias, key, .. } = config;
        let key = |part| keyed::key(&[key, part]);
        Ok(Box::new(Self {
            pool: Linear::named(["pool.weight", "pool.bias"], in_dim, in_dim, bias, key(0)),
            neigh: Linear::named(["neigh.weight", ""], in_dim, out_dim, false, key(1)),
            own: Linear::named(["self.weight", "bias"], in_dim, out_dim, bias, key(2)),
            in_dim,
        }))
    }
}

const POOL: Finish = Finish { activation: Activation::Relu, dropout: Dropout::NONE };

// In `Saved::m`: the maximum (D x F), own rows (D x F, only of a global block), the gradient of the
// maximum (D x F), the gradient of the pooled rows (S x F).
impl Layer for SagePool {
    fn in_dim(&self) -> usize {
        self.in_dim
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

    fn transformed_dims(&self) -> &[usize] {
        std::slice::from_ref(&self.in_dim)
    }

    fn transform(&self, pass: &Pass, x: View, at: usize, t: &mut [Matrix]) {
        self.pool.forward(pass, x, 0.0, POOL, t[0].rows_mut(at..at + x.num_rows()));
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
        let [max, room, ..] = &mut saved.m;
        max.resize(block.num_dst, self.in_dim);
        pass.backend.aggregate_max(block, t[0].view(), max.view_mut(), &mut saved.arg);
        self.neigh.forward(pass, max.view(), 0.0, Finish::NONE, out.reborrow());
        self.own.forward(pass, super::own_rows(pass, block, x, room), 1.0, finish, out);
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
        let [max, room, max_grad, pool_grad, ..] = &mut saved.m;
        self.own.backward(pass, super::own_rows_again(block, x, room), y, finish, grad, None);
        self.neigh.backward(pass, max.view(), y, Finish::NONE, grad, Some(max_grad));
        pool_grad.resize(block.num_src, self.in_dim);
        let to = pool_grad.view_mut();
        pass.backend.aggregate_max_transposed(block, &saved.arg, max_grad.view(), to);
        self.pool.backward(pass, x, saved.t[0].view(), POOL, pool_grad, x_grad.as_deref_mut());
        if let Some(x_grad) = x_grad {
            self.own.input_grad(pass, grad.view(), 1.0, x_grad.rows_mut(0..block.num_dst));
        }
    }
}
