//! PinSAGE's convolution.

use graphmill_core::{Block, keyed};

use super::{
    Epilogue, Layer, LayerConfig, LayerGrads, LayerInput, LayerSpec, Linear, Param, Pass, Saved,
    propagation::NeighborsAndOwn,
};
use crate::{
    Matrix, Result, View, ViewMut,
    backend::{
        Activation, AggregationWeights, Dropout, EdgeWeight, OwnWeight,
        ops::{Aggregate, AggregateTransposed, L2NormBackward, L2NormForward},
    },
};

/// The convolution of PinSAGE (Ying, He, Chen, Eksombatchai, Hamilton and Leskovec, *Graph
/// Convolutional Neural Networks for Web-Scale Recommender Systems*, KDD 2018, algorithm 1):
///
/// ```text
/// n[v]   = (sum over edges (u, v) of w act(x[u] Q + q)) / max(sum over edges of w, 1)
/// z[v]   = act(n[v] W_neigh + x[v] W_self + b)
/// out[v] = z[v] / |z[v]|
/// ```
///
/// The weights `w` are the block's: the importance of a neighbour, counted by visits of random
/// walks from `v`. Without stored weights, all are 1 and `n` is the mean. The division is that of
/// DGL's example and of GNNLab's code, because the paper leaves the form of its weighted mean open.
/// A zero row is unchanged. `act` is the model's activation, and the model does not apply it again.
///
/// A layer that computes the scores ends with `n[v] W_neigh + x[v] W_self + b`, because activated
/// scores of length 1, which those two implementations have, cannot express high confidence. They
/// also apply dropout to the rows before `Q` and to `n` and `x` before `W`; here a model applies
/// dropout to each layer's output rows, as for every layer.
///
/// The rows under the weighted mean are not linear in `x`, so the layer always transforms first:
/// `S F P + E P + D (P + F) O` multiplications. `P` is the width of hidden rows: `O`, or `F` in a
/// layer that computes the scores.
///
/// # Shapes
/// - `pool.weight` (`Q`): `F x P`; `pool.bias`: `1 x P`; `neigh.weight`: `P x O`; `self.weight`:
///   `F x O`; `bias`: `1 x O`
/// - in `S x F`, out `D x O`
#[derive(Clone, Debug)]
pub struct PinSage {
    spec: LayerSpec,
    pool: Linear,
    rows: NeighborsAndOwn,
    activation: Activation,
}

impl PinSage {
    /// Creates a layer of widths `F` and `O`.
    ///
    /// # Errors
    /// Never; the table requires the signature.
    pub fn make(config: &LayerConfig) -> Result<Box<dyn Layer>> {
        let &LayerConfig { in_dim, out_dim, bias, key, activation, classifies, .. } = config;
        let key = |part| keyed::key(&[key, part]);
        let width = if classifies { in_dim } else { out_dim };
        let spec = LayerSpec::transform_first(in_dim, out_dim, vec![width]);
        Ok(Box::new(Self {
            spec: LayerSpec { is_activated: !classifies, ..spec },
            pool: Linear::named(["pool.weight", "pool.bias"], in_dim, width, bias, key(0)),
            rows: NeighborsAndOwn::new([width, in_dim], out_dim, bias, [key(1), key(2)]),
            activation,
        }))
    }

    /// Width of the hidden rows, `P`.
    fn width(&self) -> usize {
        self.pool.out_dim()
    }

    fn weights(block: &Block) -> AggregationWeights<'static> {
        let edge = if block.is_weighted() { EdgeWeight::Normalized } else { EdgeWeight::Mean };
        AggregationWeights { edge, own: OwnWeight::None }
    }

    /// Activation inside the layer.
    fn activate(&self) -> Epilogue {
        Epilogue { activation: self.activation, dropout: Dropout::NONE }
    }
}

/// Matrices of a pass.
#[derive(Clone, Debug, Default)]
struct State {
    /// `n`, `D x P`.
    mean: Matrix,
    /// Own rows, `D x F`; only for a global block.
    own: Matrix,
    /// Rows before their normalization, `D x O`, as the next three; only if rows are normalized.
    z: Matrix,
    /// `|z|`, `D x 1`.
    norms: Matrix,
    /// `z / |z|`.
    unit: Matrix,
    /// Gradient of the rows before their activation.
    inner_grad: Matrix,
    /// Gradient of `n`, `D x P`.
    mean_grad: Matrix,
    /// Gradient of the pooled rows, `S x P`.
    pool_grad: Matrix,
}

impl Layer for PinSage {
    fn spec(&self) -> &LayerSpec {
        &self.spec
    }

    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        self.pool.visit(see);
        self.rows.neigh.visit(see);
        self.rows.own.visit(see);
    }

    fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.pool.visit_mut(see);
        self.rows.neigh.visit_mut(see);
        self.rows.own.visit_mut(see);
    }

    fn transform(&self, pass: &Pass, x: View, at: usize, tables: &mut [Matrix]) {
        self.pool.forward(pass, x, 0.0, self.activate(), tables[0].rows_mut(at..at + x.num_rows()));
    }

    fn forward(
        &self,
        pass: &Pass,
        input: &LayerInput,
        epilogue: Epilogue,
        saved: &mut Saved,
        mut out: ViewMut,
    ) {
        let (backend, block) = (pass.backend, input.block);
        let State { mean, own, z, norms, .. } = saved.state();
        let own = input.own_rows(pass, own);
        mean.resize(block.num_dst, self.width());
        let pooled = input.transformed[0].view();
        Aggregate { block, weights: Self::weights(block), src: pooled, beta: 0.0, dst: mean.view_mut() }
            .run(backend);
        if !self.spec.is_activated {
            return self.rows.forward(pass, mean.view(), own, epilogue, out);
        }
        z.resize(block.num_dst, self.spec.out_dim);
        norms.resize(block.num_dst, 1);
        self.rows.forward(pass, mean.view(), own, self.activate(), z.view_mut());
        L2NormForward { x: z.view(), norms: norms.view_mut(), out: out.reborrow() }.run(backend);
        epilogue.apply(backend, None, out);
    }

    fn backward(
        &mut self,
        pass: &Pass,
        input: &LayerInput,
        epilogue: Epilogue,
        saved: &mut Saved,
        LayerGrads { y, grad, mut x_grad }: LayerGrads,
    ) {
        input.assert_unrestricted();
        let (backend, block, activate) = (pass.backend, input.block, self.activate());
        let State { mean, own, z, norms, unit, inner_grad, mean_grad, pool_grad } = saved.state();
        let inner_grad = if self.spec.is_activated {
            // the caller receives the gradient before the epilogue in `grad`, so the gradient
            // before the norm needs a separate matrix
            epilogue.backward(backend, None, y, grad.view_mut());
            for to in [&mut *unit, &mut *inner_grad] {
                to.resize(block.num_dst, self.spec.out_dim);
            }
            backend.copy(grad.view(), inner_grad.view_mut());
            L2NormForward { x: z.view(), norms: norms.view_mut(), out: unit.view_mut() }.run(backend);
            L2NormBackward { y: unit.view(), norms: norms.view(), grad: inner_grad.view_mut() }.run(backend);
            activate.backward(backend, self.rows.own.bias_mut(), z.view(), inner_grad.view_mut());
            inner_grad.view()
        } else {
            epilogue.backward(backend, self.rows.own.bias_mut(), y, grad.view_mut());
            grad.view()
        };
        self.rows.backward_weights(pass, mean.view(), input.saved_own_rows(own), inner_grad);
        mean_grad.resize(block.num_dst, self.width());
        self.rows.neigh.input_grad(pass, inner_grad, 0.0, mean_grad.view_mut());
        pool_grad.resize(block.num_src, self.width());
        let weights = Self::weights(block);
        AggregateTransposed {
            block,
            weights,
            dst_grad: mean_grad.view(),
            beta: 0.0,
            src_grad: pool_grad.view_mut(),
        }
        .run(backend);
        let pooled = input.transformed[0].view();
        self.pool.backward(pass, input.x, pooled, activate, pool_grad, x_grad.as_deref_mut());
        if let Some(x_grad) = x_grad {
            self.rows.own.input_grad(pass, inner_grad, 1.0, x_grad.rows_mut(0..block.num_dst));
        }
    }
}
