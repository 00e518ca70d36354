//! Graph isomorphism network.

use graphmill_graph::{Block, block::Aggregation, keyed};

use super::{
    Finish, Layer, LayerConfig, Linear, Order, Param, Pass, Saved,
    norm::{BatchNorm, Norm},
};
use crate::{
    Matrix, Result, View, ViewMut,
    backend::{Activation, Dropout, EdgeWeight, OwnWeight, Weighting},
};

/// The graph isomorphism operator from *How Powerful are Graph Neural Networks?* (Xu, Hu, Leskovec and
/// Jegelka, ICLR 2019, equation 4.1):
///
/// ```text
/// out[v] = MLP((1 + eps) x[v] + sum over in-neighbours u of x[u])
/// MLP(h) = relu(norm(h W_1 + b_1)) W_2 + b_2
/// ```
///
/// `eps` is learned and starts at 0; `norm` is batch normalisation or nothing. Where the block stores
/// edge weights (an estimator's coefficients) they weigh the sum: samplers of subgraphs, `labor` and `weighted` store what makes it an
/// estimate of the sum over all neighbours, while `neighbor` stores none, and the sum is over those it drew.
///
/// The MLP is not linear, but its first product is, and may come before the sum. Aggregate first costs
/// `E F + D F O + D O^2` multiplications, transform first `S F O + E O + D O^2`.
///
/// # Shapes
/// - `eps`: `1 x 1`; `mlp.0.weight`: `F x O`; `mlp.1.weight`: `O x O`; biases: `1 x O`
/// - in `S x F`, out `D x O`
#[derive(Clone)]
pub struct Gin {
    eps: Param,
    first: Linear,
    norm: Option<BatchNorm>,
    second: Linear,
    /// `O`.
    dim: usize,
}

impl Gin {
    /// A layer `F` to `O`, the MLP's inner width being `O`.
    ///
    /// # Errors
    /// None; the signature is the table's.
    pub fn make(config: &LayerConfig) -> Result<Box<dyn Layer>> {
        let &LayerConfig { in_dim, out_dim, bias, batch_norm, key, .. } = config;
        let key = |part| keyed::key(&[key, part]);
        Ok(Box::new(Self {
            eps: Param::zeros("eps", 1, 1),
            first: Linear::named(["mlp.0.weight", "mlp.0.bias"], in_dim, out_dim, bias, key(0)),
            norm: batch_norm.then(|| BatchNorm::named(["mlp.gamma", "mlp.beta", "mlp.running"], out_dim)),
            second: Linear::named(["mlp.1.weight", "mlp.1.bias"], out_dim, out_dim, bias, key(1)),
            dim: out_dim,
        }))
    }
}

/// The sum that the MLP reads.
fn weighting<'a>(eps: &'a Param, block: &Block) -> Weighting<'a> {
    Weighting { edge: super::stored_or(block, EdgeWeight::One), own: OwnWeight::OnePlus(eps.value.view()) }
}

const RELU: Finish = Finish { activation: Activation::Relu, dropout: Dropout::NONE };

impl Gin {
    /// What the MLP does after its first product: `hidden` (`D x O`) are the hidden rows in the end. `inner` is `h W_1`
    /// where there is a norm; else `hidden` is.
    fn after_first(
        &self,
        pass: &Pass,
        inner: &mut Matrix,
        kept: &mut [Matrix],
        hidden: &mut Matrix,
        finish: Finish,
        out: ViewMut,
    ) {
        let bias = self.first.bias();
        match &self.norm {
            Some(norm) => {
                Finish::NONE.apply(pass.backend, bias, inner.view_mut());
                norm.forward(pass, inner.view(), kept, hidden.view_mut());
                RELU.apply(pass.backend, None, hidden.view_mut());
            }
            None => RELU.apply(pass.backend, bias, hidden.view_mut()),
        }
        self.second.forward(pass, hidden.view(), 0.0, finish, out);
    }
}

// In `Saved::m`: the sum h (D x F), h W_1 + b_1 (D x O, only with a norm), the hidden rows (D x O), own
// rows (D x F, only of a global block), the gradients of the hidden rows and of h (transform first: of x W_1, S x O), two for
// the norm. Transform first, in `Saved::t`: x W_1.
impl Layer for Gin {
    fn in_dim(&self) -> usize {
        self.first.in_dim()
    }

    fn out_dim(&self) -> usize {
        self.second.out_dim()
    }

    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        see(&self.eps);
        self.first.visit(see);
        if let Some(norm) = &self.norm {
            norm.visit(see);
        }
        self.second.visit(see);
    }

    fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        see(&mut self.eps);
        self.first.visit_mut(see);
        if let Some(norm) = &mut self.norm {
            norm.visit_mut(see);
        }
        self.second.visit_mut(see);
    }

    fn boxed(&self) -> Box<dyn Layer> {
        Box::new(self.clone())
    }

    fn aggregation(&self) -> Aggregation {
        Aggregation::Sum
    }

    fn orders(&self) -> &'static [Order] {
        &[Order::AggregateFirst, Order::TransformFirst]
    }

    fn transformed_dims(&self) -> &[usize] {
        std::slice::from_ref(&self.dim)
    }

    fn transform(&self, pass: &Pass, x: View, at: usize, t: &mut [Matrix]) {
        self.first.forward_product(pass, x, 0.0, t[0].rows_mut(at..at + x.num_rows()));
    }

    fn combines_own_rows(&self) -> bool {
        false
    }

    fn combine(
        &self,
        pass: &Pass,
        block: &Block,
        _x: View,
        t: &[Matrix],
        finish: Finish,
        saved: &mut Saved,
        out: ViewMut,
    ) {
        let [_, inner, hidden, _, _, _, kept @ ..] = &mut saved.m;
        hidden.resize(block.num_dst, self.dim);
        if self.norm.is_some() {
            inner.resize(block.num_dst, self.dim);
        }
        let sum = if self.norm.is_some() { &mut *inner } else { &mut *hidden };
        pass.backend.aggregate(block, weighting(&self.eps, block), t[0].view(), 0.0, sum.view_mut());
        self.after_first(pass, inner, kept, hidden, finish, out);
    }

    fn aggregate_first(
        &self,
        pass: &Pass,
        block: &Block,
        x: View,
        finish: Finish,
        saved: &mut Saved,
        out: ViewMut,
    ) {
        let [sum, inner, hidden, room, _, _, kept @ ..] = &mut saved.m;
        sum.resize(block.num_dst, x.num_cols());
        pass.backend.aggregate(block, weighting(&self.eps, block), x, 0.0, sum.view_mut());
        hidden.resize(block.num_dst, self.out_dim());
        match &self.norm {
            Some(norm) => {
                inner.resize(block.num_dst, self.out_dim());
                self.first.forward(pass, sum.view(), 0.0, Finish::NONE, inner.view_mut());
                norm.forward(pass, inner.view(), kept, hidden.view_mut());
                RELU.apply(pass.backend, None, hidden.view_mut());
            }
            None => self.first.forward(pass, sum.view(), 0.0, RELU, hidden.view_mut()),
        }
        self.second.forward(pass, hidden.view(), 0.0, finish, out);
        if pass.training {
            super::own_rows(pass, block, x, room); // for the gradient of eps
        }
    }

    fn backward(
        &mut self,
        pass: &Pass,
        order: Order,
        block: &Block,
        x: View,
        y: View,
        finish: Finish,
        saved: &mut Saved,
        grad: &mut Matrix,
        x_grad: Option<&mut Matrix>,
    ) {
        let weighting = weighting(&self.eps, block);
        let [sum, inner, hidden, room, hidden_grad, sum_grad, kept @ ..] = &mut saved.m;
        self.second.backward(pass, hidden.view(), y, finish, grad, Some(hidden_grad));
        let finish = match &mut self.norm {
            Some(norm) => {
                RELU.backward(pass.backend, None, hidden.view(), hidden_grad.view_mut());
                norm.backward(pass, inner.view(), kept, hidden_grad.view_mut());
                Finish::NONE
            }
            None => RELU,
        };
        match order {
            Order::AggregateFirst => {
                self.first.backward(pass, sum.view(), hidden.view(), finish, hidden_grad, Some(sum_grad));
                if let Some(x_grad) = x_grad {
                    x_grad.resize(block.num_grad_src(), self.in_dim());
                    let to = x_grad.view_mut();
                    pass.backend.aggregate_transposed(block, weighting, sum_grad.view(), 0.0, to);
                }
                let own_rows = super::own_rows_again(block, x, room);
                pass.backend.add_dot(own_rows, sum_grad.view(), self.eps.grad.view_mut());
            }
            Order::TransformFirst => {
                super::assert_unrestricted(block);
                let bias = self.first.bias_mut();
                finish.backward(pass.backend, bias, hidden.view(), hidden_grad.view_mut());
                sum_grad.resize(block.num_src, self.dim);
                let to = sum_grad.view_mut();
                pass.backend.aggregate_transposed(block, weighting, hidden_grad.view(), 0.0, to);
                self.first.backward_product(pass, x, sum_grad.view());
                if let Some(x_grad) = x_grad {
                    x_grad.resize(block.num_src, self.in_dim());
                    self.first.input_grad(pass, sum_grad.view(), 0.0, x_grad.view_mut());
                }
                let own_rows = saved.t[0].rows(0..block.num_dst);
                pass.backend.add_dot(own_rows, hidden_grad.view(), self.eps.grad.view_mut());
            }
        }
    }
}
