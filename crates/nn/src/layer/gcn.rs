//! Graph convolution, the simplest layer and the template for new ones.

use graphmill_core::{block::Aggregation, keyed};

use super::{
    Epilogue, Layer, LayerConfig, LayerGrads, LayerInput, LayerSpec, Linear, LinearPropagation, Param, Pass,
    Products, ReusableLayer, Saved, propagation::Propagated,
};
use crate::{Matrix, Result, View, ViewMut, backend::AggregationWeights};

/// The graph convolutional operator (Kipf and Welling, *Semi-Supervised Classification with Graph
/// Convolutional Networks*, ICLR 2017, equations 2 and 8):
///
/// ```text
/// out = A_hat x W + b,   A_hat = (D+I)^(-1/2) (A+I) (D+I)^(-1/2)
/// out[v] = (sum over in-neighbours u of x[u] / sqrt((d_u+1)(d_v+1)) + x[v] / (d_v+1)) W + b
/// ```
///
/// The coefficients are the block's weights ([`graphmill_core::Block::edge_weight`] and
/// [`graphmill_core::Block::self_weight`]), which the loader corrects for edges that a sampler left
/// out.
///
/// Aggregate first costs `E F + D F O` multiplications, transform first `E O + S F O`.
///
/// # Shapes
/// - `weight`: `F x O`; `bias`: `1 x O`
/// - in `S x F`, out `D x O`
#[derive(Clone, Debug)]
pub struct Gcn {
    spec: LayerSpec,
    sum: LinearPropagation,
}

impl Gcn {
    /// Creates a layer of widths `F` and `O`.
    ///
    /// # Errors
    /// Never; the table requires the signature.
    pub fn make(config: &LayerConfig) -> Result<Box<dyn Layer>> {
        let &LayerConfig { in_dim, out_dim, bias, key, .. } = config;
        let spec = LayerSpec {
            aggregation: Aggregation::Symmetric,
            has_fixed_aggregation: true,
            combines_own_rows: false,
            products: Some(Products { neighbors: 1, own: 0 }),
            ..LayerSpec::both_orders(in_dim, out_dim, vec![out_dim])
        };
        let linear = Linear::new(in_dim, out_dim, bias, keyed::key(&[key, 0]));
        Ok(Box::new(Self { spec, sum: LinearPropagation::new(linear) }))
    }
}

impl Layer for Gcn {
    fn spec(&self) -> &LayerSpec {
        &self.spec
    }

    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        self.sum.linear.visit(see);
    }

    fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.sum.linear.visit_mut(see);
    }

    fn transform(&self, pass: &Pass, x: View, at: usize, tables: &mut [Matrix]) {
        self.sum.transform(pass, x, at, &mut tables[0]);
    }

    fn forward(&self, pass: &Pass, input: &LayerInput, epilogue: Epilogue, saved: &mut Saved, out: ViewMut) {
        self.sum.forward(pass, input, AggregationWeights::STORED, epilogue, saved.state(), out);
    }

    fn backward(
        &mut self,
        pass: &Pass,
        input: &LayerInput,
        epilogue: Epilogue,
        saved: &mut Saved,
        LayerGrads { y, grad, x_grad }: LayerGrads,
    ) {
        epilogue.backward(pass.backend, self.sum.linear.bias_mut(), y, grad.view_mut());
        self.sum.backward(pass, input, AggregationWeights::STORED, grad.view(), saved.state(), x_grad);
    }

    fn as_reusable(&self) -> Option<&dyn ReusableLayer> {
        Some(self)
    }

    fn as_reusable_mut(&mut self) -> Option<&mut dyn ReusableLayer> {
        Some(self)
    }
}

impl ReusableLayer for Gcn {
    fn aggregate_dims(&self) -> Vec<usize> {
        vec![self.spec.in_dim]
    }

    fn save_aggregates(
        &self,
        pass: &Pass,
        input: &LayerInput,
        saved: &mut Saved,
        at: usize,
        aggregates: &mut [Matrix],
    ) {
        let sum = saved.state::<Propagated>().aggregated.view();
        pass.backend.copy(sum, aggregates[0].rows_mut(at..at + input.block.num_dst));
    }

    fn apply_aggregates(&self, pass: &Pass, aggregates: &[Matrix], _saved: &mut Saved, out: ViewMut) {
        self.sum.linear.forward_product(pass, aggregates[0].view(), 0.0, out);
    }

    fn backward_aggregates(&mut self, pass: &Pass, aggregates: &[Matrix], _saved: &mut Saved, grad: View) {
        self.sum.linear.backward_product(pass, aggregates[0].view(), grad);
    }

    fn bias(&self) -> Option<&Param> {
        self.sum.linear.bias()
    }

    fn bias_mut(&mut self) -> Option<&mut Param> {
        self.sum.linear.bias_mut()
    }
}
