//! The linear part of a layer, `A x W` over a block in either order of the products, with its
//! gradients.

use super::{Epilogue, LayerInput, Linear, Pass};
use crate::{
    Matrix, View, ViewMut,
    backend::{
        AggregationWeights,
        ops::{Aggregate, AggregateTransposed},
    },
    cost::ProductOrder,
};

/// The linear map `epilogue(A x W + b)`, with `A` given by [`AggregationWeights`].
///
/// Aggregate first costs `E F + D F O` multiplications, transform first `E O + S F O`.
#[derive(Clone, Debug)]
pub struct LinearPropagation {
    /// `W` and `b`.
    pub linear: Linear,
}

/// Matrices that [`LinearPropagation`] saves for its backward pass.
#[derive(Clone, Debug, Default)]
pub struct Propagated {
    /// `A x`, `D x F`, in [`ProductOrder::AggregateFirst`].
    pub aggregated: Matrix,
    /// Gradient between the two products: of `A x` (`D x F`), or of `x W` (`S x O`).
    pub through: Matrix,
}

impl Propagated {
    /// Computes `A x`, for [`ProductOrder::AggregateFirst`].
    pub fn aggregate(&mut self, pass: &Pass, input: &LayerInput, weights: AggregationWeights) -> View<'_> {
        let block = input.block;
        self.aggregated.resize(block.num_dst, input.x.num_cols());
        Aggregate { block, weights, src: input.x, beta: 0.0, dst: self.aggregated.view_mut() }
            .run(pass.backend);
        self.aggregated.view()
    }
}

impl LinearPropagation {
    /// Creates the map with this weight and bias.
    pub fn new(linear: Linear) -> Self {
        Self { linear }
    }

    /// Computes `x W`: `R x F` to rows `at..at + R` of `table`.
    pub fn transform(&self, pass: &Pass, x: View, at: usize, table: &mut Matrix) {
        self.linear.forward_product(pass, x, 0.0, table.rows_mut(at..at + x.num_rows()));
    }

    /// Computes `out = epilogue(A x W + b)`, `S x F` to `D x O`.
    pub fn forward(
        &self,
        pass: &Pass,
        input: &LayerInput,
        weights: AggregationWeights,
        epilogue: Epilogue,
        saved: &mut Propagated,
        mut out: ViewMut,
    ) {
        let (backend, block) = (pass.backend, input.block);
        match input.order {
            ProductOrder::AggregateFirst => {
                let aggregated = saved.aggregate(pass, input, weights);
                self.linear.forward(pass, aggregated, 0.0, epilogue, out);
            }
            ProductOrder::TransformFirst => {
                Aggregate {
                    block,
                    weights,
                    src: input.transformed[0].view(),
                    beta: 0.0,
                    dst: out.reborrow(),
                }
                .run(backend);
                epilogue.apply(backend, self.linear.bias(), out);
            }
        }
    }

    /// Adds to the gradient of `W` from that of `A x W`, `grad` (`D x O`), and resizes and
    /// overwrites `x_grad` if requested. The caller applies the epilogue's gradient, with the bias,
    /// first.
    pub fn backward(
        &mut self,
        pass: &Pass,
        input: &LayerInput,
        weights: AggregationWeights,
        grad: View,
        saved: &mut Propagated,
        x_grad: Option<&mut Matrix>,
    ) {
        if input.order == ProductOrder::AggregateFirst {
            self.linear.backward_product(pass, saved.aggregated.view(), grad);
        }
        self.backward_input(pass, input, weights, grad, saved, x_grad);
    }

    /// [`LinearPropagation::backward`], but without the weight's gradient in
    /// [`ProductOrder::AggregateFirst`], where a layer may compute it together with those of other
    /// weights.
    pub fn backward_input(
        &mut self,
        pass: &Pass,
        input: &LayerInput,
        weights: AggregationWeights,
        grad: View,
        saved: &mut Propagated,
        x_grad: Option<&mut Matrix>,
    ) {
        let (backend, block) = (pass.backend, input.block);
        let Propagated { through, .. } = saved;
        match (input.order, x_grad) {
            (ProductOrder::AggregateFirst, None) => {}
            (ProductOrder::AggregateFirst, Some(x_grad)) => {
                self.aggregated_grad(pass, grad, through);
                x_grad.resize(block.num_grad_src(), self.linear.in_dim());
                AggregateTransposed {
                    block,
                    weights,
                    dst_grad: through.view(),
                    beta: 0.0,
                    src_grad: x_grad.view_mut(),
                }
                .run(backend);
            }
            (ProductOrder::TransformFirst, x_grad) => {
                input.assert_unrestricted();
                through.resize(block.num_src, self.linear.out_dim());
                AggregateTransposed {
                    block,
                    weights,
                    dst_grad: grad,
                    beta: 0.0,
                    src_grad: through.view_mut(),
                }
                .run(backend);
                self.linear.backward_product(pass, input.x, through.view());
                if let Some(x_grad) = x_grad {
                    x_grad.resize(block.num_src, self.linear.in_dim());
                    self.linear.input_grad(pass, through.view(), 0.0, x_grad.view_mut());
                }
            }
        }
    }

    /// Computes the gradient of `A x` from that of `A x W`; resizes `to`.
    pub fn aggregated_grad(&self, pass: &Pass, grad: View, to: &mut Matrix) {
        to.resize(grad.num_rows(), self.linear.in_dim());
        self.linear.input_grad(pass, grad, 0.0, to.view_mut());
    }
}

/// `epilogue(n W_neigh + x W_self + b)`: rows computed from the aggregated neighbours, `n`, and the
/// destinations' own rows.
#[derive(Clone, Debug)]
pub(super) struct NeighborsAndOwn {
    pub(super) neigh: Linear,
    pub(super) own: Linear,
}

impl NeighborsAndOwn {
    /// Creates the layer with `W_neigh`: `widths[0] x O`, and `W_self`: `widths[1] x O`.
    pub(super) fn new(widths: [usize; 2], out_dim: usize, bias: bool, keys: [u64; 2]) -> Self {
        Self {
            neigh: Linear::named(["neigh.weight", ""], widths[0], out_dim, false, keys[0]),
            own: Linear::named(["self.weight", "bias"], widths[1], out_dim, bias, keys[1]),
        }
    }

    pub(super) fn forward(&self, pass: &Pass, neighbors: View, own: View, epilogue: Epilogue, out: ViewMut) {
        Linear::forward_sum(pass, [&self.neigh, &self.own], [neighbors, own], epilogue, out);
    }

    /// Adds to the gradients of both weights, from that of the sum.
    pub(super) fn backward_weights(&mut self, pass: &Pass, neighbors: View, own: View, grad: View) {
        Linear::backward_products(pass, [&mut self.neigh, &mut self.own], [neighbors, own], grad);
    }
}
