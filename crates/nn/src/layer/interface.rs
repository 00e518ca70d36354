//! The traits of layers, and the values that pass through them.
//!
//! A layer turns source rows into destination rows, in one of two [`ProductOrder`]s. Transform
//! first: [`Layer::transform`] works row by row, independently of the graph, then
//! [`Layer::forward`] aggregates the transformed rows over a block and adds the terms that depend
//! on the destination. Full-neighbour inference uses the two separately: every row is transformed
//! once, then chunks of destinations are aggregated. Aggregate first: [`Layer::forward`] aggregates
//! the input rows and transforms the destinations. It reads only the rows that the block names, so
//! the block may be global.
//! may be global.

use graphmill_core::{Block, block::Aggregation};

use super::{Epilogue, Param, Pass, Saved, gather_rows};
use crate::{
    Matrix, View, ViewMut,
    cost::{self, BlockShape, ProductOrder, Purpose},
};

/// Fixed properties of a layer.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerSpec {
    /// Width of the input rows, `F`.
    pub in_dim: usize,
    /// Width of the output rows, `O`.
    pub out_dim: usize,
    /// Supported orders. A layer whose transformation is not linear (pooling) supports only
    /// [`ProductOrder::TransformFirst`]; a layer without that order cannot read sparse rows.
    pub orders: &'static [ProductOrder],
    /// Widths of the tables that [`Layer::transform`] fills; empty for a layer that cannot
    /// transform first.
    pub transformed: Vec<usize>,
    /// Aggregation of the neighbours' rows. With [`Aggregation::Symmetric`] the loader must fill
    /// the blocks' symmetric-normalization weights; with the others it may store an estimator's
    /// weights.
    pub aggregation: Aggregation,
    /// True if [`Layer::forward`] reads [`LayerInput::x`] even if it is given transformed rows.
    pub combines_own_rows: bool,
    /// True if the own rows enter only by [`Layer::own_product`], so that [`Layer::forward`] reads
    /// that product instead of [`LayerInput::x`] if it is given one.
    pub has_own_product: bool,
    /// True if the output rows are already activated, so that a model does not activate them again.
    pub is_activated: bool,
    /// True if a neighbour's row enters the layer only through [`LayerSpec::aggregation`], whose
    /// coefficients do not depend on parameters, so that the aggregate of features may be stored.
    pub has_fixed_aggregation: bool,
    /// Products whose sum is the layer, if it is such a sum.
    pub products: Option<Products>,
}

/// Number of `F x O` products in a layer that is a sum of such products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Products {
    /// Products with neighbours' rows.
    pub neighbors: usize,
    /// Products with the destinations' own rows.
    pub own: usize,
}

impl LayerSpec {
    /// A layer of widths `F` and `O` that only aggregates first.
    pub fn aggregate_first(in_dim: usize, out_dim: usize) -> Self {
        Self {
            in_dim,
            out_dim,
            orders: &[ProductOrder::AggregateFirst],
            transformed: Vec::new(),
            aggregation: Aggregation::Other,
            combines_own_rows: true,
            has_own_product: false,
            is_activated: false,
            has_fixed_aggregation: false,
            products: None,
        }
    }

    /// A layer of widths `F` and `O` that only transforms first, to tables of these widths.
    pub fn transform_first(in_dim: usize, out_dim: usize, transformed: Vec<usize>) -> Self {
        let orders = &[ProductOrder::TransformFirst];
        Self { orders, transformed, ..Self::aggregate_first(in_dim, out_dim) }
    }

    /// A layer of widths `F` and `O` that supports both orders, with tables of these widths.
    pub fn both_orders(in_dim: usize, out_dim: usize, transformed: Vec<usize>) -> Self {
        let orders = &[ProductOrder::AggregateFirst, ProductOrder::TransformFirst];
        Self { orders, transformed, ..Self::aggregate_first(in_dim, out_dim) }
    }
}

/// Rows that a layer reads, and the block through which it reads them.
#[derive(Clone, Copy, Debug)]
pub struct LayerInput<'a> {
    /// Order of the products, one of [`LayerSpec::orders`].
    pub order: ProductOrder,
    /// Edges. Use a global block with [`ProductOrder::AggregateFirst`]: in the other order, the
    /// whole table is transformed.
    pub block: &'a Block,
    /// Input rows of all sources, `S x F`, or a whole table for a global block.
    pub x: View<'a>,
    /// Tables that [`Layer::transform`] filled from the rows of all sources, in
    /// [`ProductOrder::TransformFirst`]; empty in the other order. In inference, the
    /// [`Layer::own_product`] of the destinations (`D x O`) may follow.
    pub transformed: &'a [Matrix],
}

impl<'a> LayerInput<'a> {
    /// Own rows of the destinations, `D x F`: the prefix of a local block's rows, without a copy,
    /// or rows gathered into `scratch` for a global block.
    pub fn own_rows(&self, pass: &Pass, scratch: &'a mut Matrix) -> View<'a> {
        if let Some(ids) = &self.block.dst_ids {
            gather_rows(pass.backend, self.x, ids, scratch);
        }
        self.saved_own_rows(scratch)
    }

    /// The result of [`LayerInput::own_rows`] in the forward pass, if its `scratch` is unchanged.
    pub fn saved_own_rows(&self, scratch: &'a Matrix) -> View<'a> {
        match self.block.dst_ids {
            Some(_) => scratch.view(),
            None => self.x.rows(0..self.block.num_dst),
        }
    }

    /// Asserts that the block does not leave sources out of its gradients, because a backward pass
    /// through transformed rows reads the gradients of all sources.
    ///
    /// # Panics
    /// The block leaves out sources.
    pub fn assert_unrestricted(&self) {
        let block = self.block;
        assert!(
            block.num_grad_src() == block.num_src,
            "gradients of {} of {} sources: a layer that transforms first requires all (Model::may_restrict)",
            block.num_grad_src(),
            block.num_src
        );
    }
}

/// Gradients that a backward pass reads and writes.
#[derive(Debug)]
pub struct LayerGrads<'a> {
    /// Output of the forward pass, `D x O`.
    pub y: View<'a>,
    /// Gradient of the output, `D x O`; becomes the gradient before the epilogue, so
    /// [`Epilogue::NONE`] leaves it unchanged.
    pub grad: &'a mut Matrix,
    /// Gradient of the input rows, if requested: overwritten, and resized to
    /// [`Block::num_grad_src`] rows of `F`.
    pub x_grad: Option<&'a mut Matrix>,
}

/// A graph layer.
///
/// Six methods make a layer; the defaults of the others suit most layers. A layer derives `Clone`,
/// and a struct of its own holds the matrices that the backward pass reads ([`Saved::state`]).
///
/// ```
/// use graphmill_core::block::Aggregation;
/// use graphmill_nn::{
///     Epilogue, Layer, LayerConfig, Matrix, Param, Pass, Result, Saved, View, ViewMut,
///     backend::AggregationWeights,
///     layer::{LayerGrads, LayerInput, LayerSpec, Linear, LinearPropagation},
/// };
///
/// /// `out[v] = mean over in-neighbours u of (x[u]) W + b`.
/// #[derive(Clone)]
/// struct NeighborMean {
///     spec: LayerSpec,
///     mean: LinearPropagation,
/// }
///
/// impl NeighborMean {
///     fn make(config: &LayerConfig) -> Result<Box<dyn Layer>> {
///         let &LayerConfig { in_dim, out_dim, bias, key, .. } = config;
///         let mean = LinearPropagation::new(Linear::new(in_dim, out_dim, bias, key));
///         let spec = LayerSpec::both_orders(in_dim, out_dim, vec![out_dim]);
///         Ok(Box::new(Self { spec: LayerSpec { aggregation: Aggregation::Mean, ..spec }, mean }))
///     }
/// }
///
/// impl Layer for NeighborMean {
///     fn spec(&self) -> &LayerSpec {
///         &self.spec
///     }
///
///     fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
///         self.mean.linear.visit(see);
///     }
///
///     fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
///         self.mean.linear.visit_mut(see);
///     }
///
///     fn transform(&self, pass: &Pass, x: View, at: usize, tables: &mut [Matrix]) {
///         self.mean.transform(pass, x, at, &mut tables[0]);
///     }
///
///     fn forward(
///         &self,
///         pass: &Pass,
///         input: &LayerInput,
///         epilogue: Epilogue,
///         saved: &mut Saved,
///         out: ViewMut,
///     ) {
///         self.mean.forward(pass, input, AggregationWeights::MEAN, epilogue, saved.state(), out);
///     }
///
///     fn backward(
///         &mut self,
///         pass: &Pass,
///         input: &LayerInput,
///         epilogue: Epilogue,
///         saved: &mut Saved,
///         LayerGrads { y, grad, x_grad }: LayerGrads,
///     ) {
///         epilogue.backward(pass.backend, self.mean.linear.bias_mut(), y, grad.view_mut());
///         self.mean.backward(pass, input, AggregationWeights::MEAN, grad.view(), saved.state(), x_grad);
///     }
/// }
///
/// let config = LayerConfig { in_dim: 5, out_dim: 3, ..LayerConfig::default() };
/// assert_eq!(NeighborMean::make(&config)?.spec().out_dim, 3);
/// # Ok::<(), graphmill_nn::Error>(())
/// ```
pub trait Layer: CloneLayer + Send + Sync {
    /// Fixed properties of the layer.
    fn spec(&self) -> &LayerSpec;

    /// Visits every parameter, always in the same order.
    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param));

    /// Visits every parameter mutably, in the order of [`Layer::visit`].
    fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param));

    /// Transforms rows before any aggregation: `x` (`R x F`) to rows `at..at + R` of each table.
    /// The tables have at least that many rows and the widths [`LayerSpec::transformed`]. Does
    /// nothing in a layer that only aggregates first.
    fn transform(&self, _pass: &Pass, _x: View, _at: usize, _tables: &mut [Matrix]) {}

    /// Computes the product of own rows that [`Layer::forward`] adds to the aggregate of
    /// transformed rows: `x` (`R x F`) to `out` (`R x O`). Does nothing in a layer without
    /// [`LayerSpec::has_own_product`].
    fn own_product(&self, _pass: &Pass, _x: View, _out: ViewMut) {}

    /// Computes the layer's formula, then the epilogue: `S x F` to `D x O`. In
    /// [`ProductOrder::TransformFirst`] the rows are already transformed.
    fn forward(&self, pass: &Pass, input: &LayerInput, epilogue: Epilogue, saved: &mut Saved, out: ViewMut);

    /// Computes the gradients of the last [`Layer::forward`], which had the same arguments, and
    /// adds to every parameter's `grad`.
    ///
    /// In [`ProductOrder::TransformFirst`] the layer's weights need the gradients of all sources,
    /// so the block must not leave any out. A local block must be transposed if
    /// [`needs_transposed`] returns true. A global block requires [`ProductOrder::AggregateFirst`]
    /// and no `x_grad`.
    fn backward(
        &mut self,
        pass: &Pass,
        input: &LayerInput,
        epilogue: Epilogue,
        saved: &mut Saved,
        grads: LayerGrads,
    );

    /// Bytes moved on a block of these sizes in one of the layer's orders.
    fn cost(&self, order: ProductOrder, shape: BlockShape, purpose: Purpose) -> f64 {
        let spec = self.spec();
        cost::cost(order, shape, spec.in_dim, spec.out_dim, purpose)
    }

    /// The layer as a [`ReusableLayer`], if it is linear behind its aggregation.
    fn as_reusable(&self) -> Option<&dyn ReusableLayer> {
        None
    }

    /// The layer as a mutable [`ReusableLayer`].
    fn as_reusable_mut(&mut self) -> Option<&mut dyn ReusableLayer> {
        None
    }
}

/// A layer that is linear behind its aggregation, so that rows can be computed from saved
/// aggregates and pass their gradient to the weights through them. `H` is the number of rows; the
/// bias is not included.
///
/// ```
/// use graphmill_nn::layer::{LayerConfig, TABLE};
///
/// let gcn = TABLE.find("gcn").expect("a layer of the table").make.make;
/// let layer = gcn(&LayerConfig { in_dim: 5, out_dim: 3, ..LayerConfig::default() })?;
/// let reusable = layer.as_reusable().expect("GCN is linear behind its aggregation");
/// assert_eq!(reusable.aggregate_dims(), [5]);
/// # Ok::<(), graphmill_nn::Error>(())
/// ```
pub trait ReusableLayer {
    /// Widths of a row's aggregates, the factors that the weights multiply.
    fn aggregate_dims(&self) -> Vec<usize>;

    /// Copies the aggregates of the last [`Layer::forward`], which ran in
    /// [`ProductOrder::AggregateFirst`] with the same input, to rows `at..at + D` of each table of
    /// widths [`ReusableLayer::aggregate_dims`].
    fn save_aggregates(
        &self,
        pass: &Pass,
        input: &LayerInput,
        saved: &mut Saved,
        at: usize,
        aggregates: &mut [Matrix],
    );

    /// Multiplies aggregates by the weights, `H x dim` each to `H x O`, without the bias.
    fn apply_aggregates(&self, pass: &Pass, aggregates: &[Matrix], saved: &mut Saved, out: ViewMut);

    /// Adds the gradient of rows computed earlier to the gradients of the weights behind the
    /// aggregation. `grad` is `H x O`, before the epilogue; `aggregates` are `H x dim` each.
    /// Parameters before the aggregation (attention vectors) receive none.
    fn backward_aggregates(&mut self, pass: &Pass, aggregates: &[Matrix], saved: &mut Saved, grad: View);

    /// The bias.
    fn bias(&self) -> Option<&Param>;

    /// The bias, mutably.
    fn bias_mut(&mut self) -> Option<&mut Param>;
}

impl dyn Layer + '_ {
    /// Runs the layer on untransformed rows, `S x F` to `D x O`.
    pub fn run_forward(
        &self,
        pass: &Pass,
        input: &LayerInput,
        epilogue: Epilogue,
        saved: &mut Saved,
        out: ViewMut,
    ) {
        if input.order == ProductOrder::AggregateFirst {
            return self.forward(pass, input, epilogue, saved, out);
        }
        let mut tables = std::mem::take(&mut saved.transformed);
        let widths = &self.spec().transformed;
        tables.resize_with(widths.len(), Matrix::default);
        for (table, &width) in tables.iter_mut().zip(widths) {
            table.resize(input.x.num_rows(), width);
        }
        self.transform(pass, input.x, 0, &mut tables);
        self.forward(pass, &LayerInput { transformed: &tables, ..*input }, epilogue, saved, out);
        saved.transformed = tables;
    }

    /// Computes the gradients of the last [`Layer::run_forward`](#method.run_forward), which had
    /// the same arguments; otherwise as [`Layer::backward`].
    pub fn run_backward(
        &mut self,
        pass: &Pass,
        input: &LayerInput,
        epilogue: Epilogue,
        saved: &mut Saved,
        grads: LayerGrads,
    ) {
        let tables = std::mem::take(&mut saved.transformed);
        let transformed: &[Matrix] = match input.order {
            ProductOrder::AggregateFirst => &[],
            ProductOrder::TransformFirst => &tables,
        };
        self.backward(pass, &LayerInput { transformed, ..*input }, epilogue, saved, grads);
        saved.transformed = tables;
    }
}

/// Copies of boxed layers, implemented for every layer that is `Clone`.
///
/// ```
/// use graphmill_nn::layer::{LayerConfig, TABLE};
///
/// let gcn = TABLE.find("gcn").expect("a layer of the table").make.make;
/// let layer = gcn(&LayerConfig { in_dim: 5, out_dim: 3, ..LayerConfig::default() })?;
/// assert_eq!(layer.clone_layer().spec().out_dim, 3);
/// # Ok::<(), graphmill_nn::Error>(())
/// ```
pub trait CloneLayer {
    /// A boxed copy.
    fn clone_layer(&self) -> Box<dyn Layer>;
}

impl<T: Layer + Clone + 'static> CloneLayer for T {
    fn clone_layer(&self) -> Box<dyn Layer> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Layer> {
    fn clone(&self) -> Self {
        self.as_ref().clone_layer()
    }
}

/// Returns true if a backward pass in this order reads the block's transpose: whenever the input's
/// gradient is requested, and if transformed rows were aggregated.
pub fn needs_transposed(order: ProductOrder, needs_input_grad: bool) -> bool {
    needs_input_grad || order == ProductOrder::TransformFirst
}
