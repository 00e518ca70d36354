//! GraphSAGE with the max-pooling aggregator.

use graphmill_core::keyed;

use super::{
    Epilogue, Layer, LayerConfig, LayerGrads, LayerInput, LayerSpec, Linear, Param, Pass, Saved,
    propagation::NeighborsAndOwn,
};
use crate::{
    Matrix, Result, View, ViewMut,
    backend::{
        Activation, ArgMax, Dropout,
        ops::{AggregateMax, AggregateMaxTransposed},
    },
};

/// The GraphSAGE operator with the pooling aggregator (Hamilton, Ying and Leskovec, *Inductive
/// Representation Learning on Large Graphs*, NeurIPS 2017, section 3.3, equation 3):
///
/// ```text
/// out[v] = max over in-neighbours u of (relu(x[u] W_pool + b_pool)) W_neigh + x[v] W_self + b
/// ```
///
/// The maximum is elementwise. For a destination without neighbours it is 0, which is also its
/// lower bound. The pool is as wide as the input, as in DGL and PyG. The dense layer before the
/// maximum is not linear, so the layer always transforms first: `S F^2 + E F + 2 D F O`
/// multiplications.
///
/// # Shapes
/// - `pool.weight`: `F x F`; `pool.bias`: `1 x F`; `neigh.weight`, `self.weight`: `F x O`; `bias`:
///   `1 x O`
/// - in `S x F`, out `D x O`
#[derive(Clone, Debug)]
pub struct SagePool {
    spec: LayerSpec,
    pool: Linear,
    rows: NeighborsAndOwn,
}

impl SagePool {
    /// Creates a layer of widths `F` and `O`.
    ///
    /// # Errors
    /// Never; the table requires the signature.
    pub fn make(config: &LayerConfig) -> Result<Box<dyn Layer>> {
        let &LayerConfig { in_dim, out_dim, bias, key, .. } = config;
        let key = |part| keyed::key(&[key, part]);
        Ok(Box::new(Self {
            spec: LayerSpec::transform_first(in_dim, out_dim, vec![in_dim]),
            pool: Linear::named(["pool.weight", "pool.bias"], in_dim, in_dim, bias, key(0)),
            rows: NeighborsAndOwn::new([in_dim; 2], out_dim, bias, [key(1), key(2)]),
        }))
    }
}

const POOL: Epilogue = Epilogue { activation: Activation::Relu, dropout: Dropout::NONE };

/// Matrices of a pass.
#[derive(Clone, Debug, Default)]
struct State {
    /// Maxima, `D x F`, and the edges that attain them.
    max: Matrix,
    arg: ArgMax,
    /// Own rows, `D x F`; only for a global block.
    own: Matrix,
    /// Gradient of the maxima, `D x F`.
    max_grad: Matrix,
    /// Gradient of the pooled rows, `S x F`.
    pool_grad: Matrix,
}

impl Layer for SagePool {
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
        self.pool.forward(pass, x, 0.0, POOL, tables[0].rows_mut(at..at + x.num_rows()));
    }

    fn forward(&self, pass: &Pass, input: &LayerInput, epilogue: Epilogue, saved: &mut Saved, out: ViewMut) {
        let State { max, arg, own, .. } = saved.state();
        max.resize(input.block.num_dst, self.spec.in_dim);
        AggregateMax { block: input.block, src: input.transformed[0].view(), dst: max.view_mut(), arg }
            .run(pass.backend);
        self.rows.forward(pass, max.view(), input.own_rows(pass, own), epilogue, out);
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
        let block = input.block;
        let State { max, arg, own, max_grad, pool_grad } = saved.state();
        epilogue.backward(pass.backend, self.rows.own.bias_mut(), y, grad.view_mut());
        let grad = grad.view();
        self.rows.backward_weights(pass, max.view(), input.saved_own_rows(own), grad);
        max_grad.resize(block.num_dst, self.spec.in_dim);
        self.rows.neigh.input_grad(pass, grad, 0.0, max_grad.view_mut());
        pool_grad.resize(block.num_src, self.spec.in_dim);
        AggregateMaxTransposed { block, arg, dst_grad: max_grad.view(), src_grad: pool_grad.view_mut() }
            .run(pass.backend);
        let pooled = input.transformed[0].view();
        self.pool.backward(pass, input.x, pooled, POOL, pool_grad, x_grad.as_deref_mut());
        if let Some(x_grad) = x_grad {
            self.rows.own.input_grad(pass, grad, 1.0, x_grad.rows_mut(0..block.num_dst));
        }
    }
}
