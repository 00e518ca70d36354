//! Graph isomorphism network.

use graphmill_core::{Block, block::Aggregation, keyed};

use super::{
    Epilogue, Layer, LayerConfig, LayerGrads, LayerInput, LayerSpec, Linear, LinearPropagation, Param, Pass,
    Saved,
    norm::{BatchNorm, Norm},
    propagation::Propagated,
};
use crate::{
    Matrix, Result, View, ViewMut,
    backend::{Activation, AggregationWeights, Dropout, EdgeWeight, OwnWeight, ops::AddDot},
    cost::ProductOrder,
};

/// The graph isomorphism operator (Xu, Hu, Leskovec and Jegelka, *How Powerful are Graph Neural
/// Networks?*, ICLR 2019, equation 4.1):
///
/// ```text
/// out[v] = MLP((1 + eps) x[v] + sum over in-neighbours u of x[u])
/// MLP(h) = relu(norm(h W_1 + b_1)) W_2 + b_2
/// ```
///
/// `eps` is learned and starts at 0; `norm` is batch normalization or absent. If the block stores
/// edge weights (an estimator's coefficients), they weight the sum: subgraph samplers, `labor` and
/// `weighted` store weights that make it an estimate of the sum over all neighbours. `neighbor`
/// stores no weights, and the sum runs over the drawn neighbours.
///
/// The MLP is not linear, but its first product is and may precede the sum. Aggregate first costs
/// `E F + D F O + D O^2` multiplications, transform first `S F O + E O + D O^2`.
///
/// # Shapes
/// - `eps`: `1 x 1`; `mlp.0.weight`: `F x O`; `mlp.1.weight`: `O x O`; biases: `1 x O`
/// - in `S x F`, out `D x O`
#[derive(Clone)]
pub struct Gin {
    spec: LayerSpec,
    eps: Param,
    first: LinearPropagation,
    norm: Option<BatchNorm>,
    second: Linear,
}

const RELU: Epilogue = Epilogue { activation: Activation::Relu, dropout: Dropout::NONE };

impl Gin {
    /// Creates a layer of widths `F` and `O`, with an MLP of inner width `O`.
    ///
    /// # Errors
    /// Never; the table requires the signature.
    pub fn make(config: &LayerConfig) -> Result<Box<dyn Layer>> {
        let &LayerConfig { in_dim, out_dim, bias, batch_norm, key, .. } = config;
        let key = |part| keyed::key(&[key, part]);
        let first = Linear::named(["mlp.0.weight", "mlp.0.bias"], in_dim, out_dim, bias, key(0));
        Ok(Box::new(Self {
            spec: LayerSpec {
                aggregation: Aggregation::Sum,
                has_fixed_aggregation: true,
                combines_own_rows: false,
                ..LayerSpec::both_orders(in_dim, out_dim, vec![out_dim])
            },
            eps: Param::zeros("eps", 1, 1),
            first: LinearPropagation::new(first),
            norm: batch_norm.then(|| BatchNorm::named(["mlp.gamma", "mlp.beta", "mlp.running"], out_dim)),
            second: Linear::named(["mlp.1.weight", "mlp.1.bias"], out_dim, out_dim, bias, key(1)),
        }))
    }
}

/// Coefficients of the sum that the MLP reads.
fn weights<'a>(eps: &'a Param, block: &Block) -> AggregationWeights<'a> {
    AggregationWeights {
        edge: super::stored_or(block, EdgeWeight::One),
        own: OwnWeight::OnePlus(eps.value.view()),
    }
}

/// Matrices of a pass.
#[derive(Clone, Debug, Default)]
struct State {
    first: Propagated,
    /// `h W_1 + b_1`, `D x O`; only with a norm.
    inner: Matrix,
    /// Matrices that the norm saves for its backward pass.
    norm: [Matrix; 2],
    /// Hidden rows, `D x O`.
    hidden: Matrix,
    hidden_grad: Matrix,
    /// Own rows, `D x F`; only for a global block, in training.
    own: Matrix,
}

impl Layer for Gin {
    fn spec(&self) -> &LayerSpec {
        &self.spec
    }

    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        see(&self.eps);
        self.first.linear.visit(see);
        if let Some(norm) = &self.norm {
            norm.visit(see);
        }
        self.second.visit(see);
    }

    fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        see(&mut self.eps);
        self.first.linear.visit_mut(see);
        if let Some(norm) = &mut self.norm {
            norm.visit_mut(see);
        }
        self.second.visit_mut(see);
    }

    fn transform(&self, pass: &Pass, x: View, at: usize, tables: &mut [Matrix]) {
        self.first.transform(pass, x, at, &mut tables[0]);
    }

    fn forward(&self, pass: &Pass, input: &LayerInput, epilogue: Epilogue, saved: &mut Saved, out: ViewMut) {
        let State { first, inner, norm: of_norm, hidden, own, .. } = saved.state();
        let weights = weights(&self.eps, input.block);
        let (rows, width) = (input.block.num_dst, self.spec.out_dim);
        hidden.resize(rows, width);
        match &self.norm {
            Some(norm) => {
                inner.resize(rows, width);
                self.first.forward(pass, input, weights, Epilogue::NONE, first, inner.view_mut());
                norm.forward(pass, inner.view(), of_norm, hidden.view_mut());
                RELU.apply(pass.backend, None, hidden.view_mut());
            }
            None => self.first.forward(pass, input, weights, RELU, first, hidden.view_mut()),
        }
        self.second.forward(pass, hidden.view(), 0.0, epilogue, out);
        if pass.training && input.order == ProductOrder::AggregateFirst {
            input.own_rows(pass, own); // for the gradient of eps
        }
    }

    fn backward(
        &mut self,
        pass: &Pass,
        input: &LayerInput,
        epilogue: Epilogue,
        saved: &mut Saved,
        LayerGrads { y, grad, x_grad }: LayerGrads,
    ) {
        let backend = pass.backend;
        let State { first, inner, norm: of_norm, hidden, hidden_grad, own } = saved.state();
        self.second.backward(pass, hidden.view(), y, epilogue, grad, Some(hidden_grad));
        let after_first = match &mut self.norm {
            Some(norm) => {
                RELU.backward(backend, None, hidden.view(), hidden_grad.view_mut());
                norm.backward(pass, inner.view(), of_norm, hidden_grad.view_mut());
                Epilogue::NONE
            }
            None => RELU,
        };
        let bias = self.first.linear.bias_mut();
        after_first.backward(backend, bias, hidden.view(), hidden_grad.view_mut());
        let needs_input_grad = x_grad.is_some();
        let (hidden_grad, weights) = (hidden_grad.view(), weights(&self.eps, input.block));
        self.first.backward(pass, input, weights, hidden_grad, first, x_grad);
        let (own, grad) = match input.order {
            ProductOrder::AggregateFirst => {
                if !needs_input_grad {
                    self.first.aggregated_grad(pass, hidden_grad, &mut first.through);
                }
                (input.saved_own_rows(own), first.through.view())
            }
            ProductOrder::TransformFirst => (input.transformed[0].rows(0..input.block.num_dst), hidden_grad),
        };
        AddDot { x: own, y: grad, out: self.eps.grad.view_mut(), at: 0 }.run(backend);
    }
}
