//! Graph convolution: the plainest layer, and the one to copy for a new one.

use graphmill_graph::{Block, block::Aggregation, keyed};

use super::{Finish, Layer, LayerConfig, Linear, Order, Param, Pass, Saved};
use crate::{Matrix, Result, View, ViewMut, backend::Weighting};

/// The graph convolutional operator from *Semi-Supervised Classification with Graph Convolutional
/// Networks* (Kipf and Welling, ICLR 2017, equations 2 and 8):
///
/// ```text
/// out = A_hat x W + b,   A_hat = (D+I)^(-1/2) (A+I) (D+I)^(-1/2)
/// out[v] = (sum over in-neighbours u of x[u] / sqrt((d_u+1)(d_v+1)) + x[v] / (d_v+1)) W + b
/// ```
///
/// The coefficients are the block's weights ([`Block::edge_weight`], [`Block::self_weight`]): what a
/// sampler that leaves edges out makes of the degrees is the loader's business.
///
/// Aggregate first costs `E F + D F O` multiplications, transform first `E O + S F O`.
///
/// # Shapes
/// - `weight`: `F x O`; `bias`: `1 x O`
/// - in `S x F`, out `D x O`
#[derive(Clone, Debug)]
pub struct Gcn {
    linear: Linear,
    out_dim: usize,
}

impl Gcn {
    /// A layer `F` to `O`.
    ///
    /// # Errors
    /// None; the signature is the table's.
    pub fn make(config: &LayerConfig) -> Result<Box<dyn Layer>> {
        let &LayerConfig { in_dim, out_dim, bias, key, .. } = config;
        Ok(Box::new(Self { linear: Linear::new(in_dim, out_dim, bias, keyed::key(&[key, 0])), out_dim }))
    }
}

// In `Saved::m`: the aggregated rows (D x F), the gradient on its way through the aggregation (D x F
// or S x O).
impl Layer for Gcn {
    fn in_dim(&self) -> usize {
        self.linear.in_dim()
    }

    fn out_dim(&self) -> usize {
        self.out_dim
    }

    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        self.linear.visit(see);
    }

    fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.linear.visit_mut(see);
    }

    fn boxed(&self) -> Box<dyn Layer> {
        Box::new(self.clone())
    }

    fn orders(&self) -> &'static [Order] {
        &[Order::AggregateFirst, Order::TransformFirst]
    }

    fn aggregation(&self) -> Aggregation {
        Aggregation::Symmetric
    }

    fn transformed_dims(&self) -> &[usize] {
        std::slice::from_ref(&self.out_dim)
    }

    fn transform(&self, pass: &Pass, x: View, at: usize, t: &mut [Matrix]) {
        self.linear.forward_product(pass, x, 0.0, t[0].rows_mut(at..at + x.num_rows()));
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
        _saved: &mut Saved,
        mut out: ViewMut,
    ) {
        pass.backend.aggregate(block, Weighting::STORED, t[0].view(), 0.0, out.reborrow());
        finish.apply(pass.backend, self.linear.bias(), out);
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
        let [sum, ..] = &mut saved.m;
        sum.resize(block.num_dst, x.num_cols());
        pass.backend.aggregate(block, Weighting::STORED, x, 0.0, sum.view_mut());
        self.linear.forward(pass, sum.view(), 0.0, finish, out);
    }

    fn kept_dims(&self) -> Vec<usize> {
        vec![self.in_dim()]
    }

    fn keep(&self, pass: &Pass, block: &Block, _x: View, saved: &Saved, at: usize, kept: &mut [Matrix]) {
        pass.backend.copy(saved.m[0].view(), kept[0].rows_mut(at..at + block.num_dst));
    }

    fn rows_of_kept(&self, pass: &Pass, kept: &[Matrix], _saved: &mut Saved, out: ViewMut) {
        self.linear.forward_product(pass, kept[0].view(), 0.0, out);
    }

    fn kept_bias(&self) -> Option<&Param> {
        self.linear.bias()
    }

    fn kept_bias_mut(&mut self) -> Option<&mut Param> {
        self.linear.bias_mut()
    }

    fn backward_kept(&mut self, pass: &Pass, kept: &[Matrix], _saved: &mut Saved, grad: View) {
        self.linear.backward_product(pass, kept[0].view(), grad);
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
        let [sum, through, ..] = &mut saved.m;
        match order {
            Order::AggregateFirst => {
                let wanted = x_grad.is_some().then_some(&mut *through);
                self.linear.backward(pass, sum.view(), y, finish, grad, wanted);
                if let Some(x_grad) = x_grad {
                    x_grad.resize(block.num_grad_src(), self.in_dim());
                    let to = x_grad.view_mut();
                    pass.backend.aggregate_transposed(block, Weighting::STORED, through.view(), 0.0, to);
                }
            }
            Order::TransformFirst => {
                super::assert_unrestricted(block);
                finish.backward(pass.backend, self.linear.bias_mut(), y, grad.view_mut());
                through.resize(block.num_src, self.out_dim);
                let to = through.view_mut();
                pass.backend.aggregate_transposed(block, Weighting::STORED, grad.view(), 0.0, to);
                self.linear.backward_product(pass, x, through.view());
                if let Some(x_grad) = x_grad {
                    x_grad.resize(block.num_src, self.in_dim());
                    self.linear.input_grad(pass, through.view(), 0.0, x_grad.view_mut());
                }
            }
        }
    }
}
