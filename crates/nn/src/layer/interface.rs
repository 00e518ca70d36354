//! The traits that layers implement, and what passes through them.
//!
//! A layer turns source rows into destination rows, in one of two [`ProductOrder`]s. Transform
//! first: [`Layer::transform`] works row by row (nothing about the graph), then [`Layer::forward`]
//! aggregates the transformed rows over a block and adds what depends on the destination.
//! Full-neighbour inference uses the two apart (every row is transformed once, then chunks of
//! destinations are aggregated). Aggregate first: [`Layer::forward`] aggregates the input rows and
//! transforms the destinations; it reads nothing but the rows that the block names, so the block
//! may be global.

use graphmill_core::{Block, block::Aggregation};

use super::{Epilogue, Param, Pass, Saved, gather_rows};
use crate::{
    Matrix, View, ViewMut,
    cost::{self, BlockShape, ProductOrder, Purpose},
};

/// The fixed properties of a layer.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerSpec {
    /// `F`, the width of its input rows.
    pub in_dim: usize,
    /// `O`, the width of its output rows.
    pub out_dim: usize,
    /// The orders it can work in. A layer whose transformation is not linear (pooling) knows only
    /// [`ProductOrder::TransformFirst`]; one that does not know that order cannot read sparse rows.
    pub orders: &'static [ProductOrder],
    /// The widths of the tables that [`Layer::transform`] fills; empty for a layer that cannot
    /// transform first.
    pub transformed: Vec<usize>,
    /// Use of the neighbours' rows: with [`Aggregation::Symmetric`] the loader must fill the
    /// blocks' symmetric-normalisation weights, with the others it may store an estimator's.
    pub aggregation: Aggregation,
    /// Whether [`Layer::forward`] reads [`LayerInput::x`] when it is given transformed rows.
    pub combines_own_rows: bool,
    /// Whether its rows are activated already: a model then does not activate them again.
    pub is_activated: bool,
    /// The products it is the sum of, if it is nothing else.
    pub products: Option<Products>,
}

/// The `F x O` products of a layer that is a sum of such products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Products {
    /// Products with neighbours' rows.
    pub neighbors: usize,
    /// Products with the destinations' own rows.
    pub own: usize,
}

impl LayerSpec {
    /// A layer `F` to `O` that aggregates first.
    pub fn aggregate_first(in_dim: usize, out_dim: usize) -> Self {
        Self {
            in_dim,
            out_dim,
            orders: &[ProductOrder::AggregateFirst],
            transformed: Vec::new(),
            aggregation: Aggregation::Other,
            combines_own_rows: true,
            is_activated: false,
            products: None,
        }
    }

    /// A layer `F` to `O` that transforms first, to tables of these widths.
    pub fn transform_first(in_dim: usize, out_dim: usize, transformed: Vec<usize>) -> Self {
        let orders = &[ProductOrder::TransformFirst];
        Self { orders, transformed, ..Self::aggregate_first(in_dim, out_dim) }
    }

    /// A layer `F` to `O` that knows both orders, and transforms to tables of these widths.
    pub fn both_orders(in_dim: usize, out_dim: usize, transformed: Vec<usize>) -> Self {
        let orders = &[ProductOrder::AggregateFirst, ProductOrder::TransformFirst];
        Self { orders, transformed, ..Self::aggregate_first(in_dim, out_dim) }
    }
}

/// The rows that a layer reads, and the block it reads them through.
#[derive(Clone, Copy, Debug)]
pub struct LayerInput<'a> {
    /// The order of the products, one of [`LayerSpec::orders`].
    pub order: ProductOrder,
    /// The edges. A global block is meant for [`ProductOrder::AggregateFirst`]; in the other order
    /// the whole table is transformed.
    pub block: &'a Block,
    /// The input rows of all sources, `S x F`, or a whole table for a global block.
    pub x: View<'a>,
    /// The tables that [`Layer::transform`] filled from the rows of all sources, in
    /// [`ProductOrder::TransformFirst`]; empty in the other order.
    pub transformed: &'a [Matrix],
}

impl<'a> LayerInput<'a> {
    /// The destinations' own rows, `D x F`: without a copy the prefix of a local block's rows,
    /// gathered into `scratch` for a global block.
    pub fn own_rows(&self, pass: &Pass, scratch: &'a mut Matrix) -> View<'a> {
        if let Some(ids) = &self.block.dst_ids {
            gather_rows(pass.backend, self.x, ids, scratch);
        }
        self.saved_own_rows(scratch)
    }

    /// The rows that [`LayerInput::own_rows`] gave in the forward pass, with its `scratch`
    /// unchanged.
    pub fn saved_own_rows(&self, scratch: &'a Matrix) -> View<'a> {
        match self.block.dst_ids {
            Some(_) => scratch.view(),
            None => self.x.rows(0..self.block.num_dst),
        }
    }

    /// Asserts that the block leaves no source out of its gradients: a backward pass through
    /// transformed rows reads the gradients of all of them.
    ///
    /// # Panics
    /// The block leaves sources out.
    pub fn assert_unrestricted(&self) {
        let block = self.block;
        assert!(
            block.num_grad_src() == block.num_src,
            "gradients of {} sources of {}: a layer that transforms first needs all (Model::may_restrict)",
            block.num_grad_src(),
            block.num_src
        );
    }
}

/// The gradients that a backward pass reads and writes.
#[derive(Debug)]
pub struct LayerGrads<'a> {
    /// The output of the forward pass, `D x O`.
    pub y: View<'a>,
    /// Its gradient, `D x O`; becomes the gradient before the epilogue, so with [`Epilogue::NONE`]
    /// it is unchanged.
    pub grad: &'a mut Matrix,
    /// The gradient of the input rows, if it is wanted: overwritten, and resized to
    /// [`Block::num_grad_src`] rows of `F`.
    pub x_grad: Option<&'a mut Matrix>,
}

/// A graph layer.
///
/// Six methods make a layer; the others have defaults that suit most. A layer derives `Clone`, and
/// keeps matrices that the backward pass reads in a struct of its own ([`Saved::state`]).
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
    /// The properties that do not change once it is made.
    fn spec(&self) -> &LayerSpec;

    /// Shows every parameter, always in the same order.
    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param));

    /// Shows every parameter for change, in the order of [`Layer::visit`].
    fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param));

    /// Transforms rows before any aggregation: `x` (`R x F`) to rows `at..at + R` of each table,
    /// which have at least so many rows and the widths [`LayerSpec::transformed`]. A layer that
    /// only aggregates first has no tables, and nothing to do here.
    fn transform(&self, _pass: &Pass, _x: View, _at: usize, _tables: &mut [Matrix]) {}

    /// The layer's formula, then the epilogue: `S x F` to `D x O`. In
    /// [`ProductOrder::TransformFirst`] the rows are transformed already.
    fn forward(&self, pass: &Pass, input: &LayerInput, epilogue: Epilogue, saved: &mut Saved, out: ViewMut);

    /// The gradients of the last [`Layer::forward`], whose arguments are given again: adds to every
    /// parameter's `grad`.
    ///
    /// In [`ProductOrder::TransformFirst`] the layer's own weights need the gradients of all
    /// sources, and the block leaves none out. A local block must be transposed if
    /// [`needs_transposed`] says so; with a global one there is no `x_grad` and the order is
    /// [`ProductOrder::AggregateFirst`].
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

    /// The layer as one that works on saved aggregates, if it is linear behind its aggregation.
    fn as_reusable(&self) -> Option<&dyn ReusableLayer> {
        None
    }

    /// The same for change.
    fn as_reusable_mut(&mut self) -> Option<&mut dyn ReusableLayer> {
        None
    }
}

/// A layer that is linear behind its aggregation: rows can be made from saved aggregates, and hand
/// their gradient to the weights through them. `H` rows, without bias.
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
    /// The widths of a row's aggregates: what the weights are multiplied by.
    fn aggregate_dims(&self) -> Vec<usize>;

    /// Copies the aggregates of the last [`Layer::forward`] of [`ProductOrder::AggregateFirst`],
    /// whose inputs are given again, to rows `at..at + D` of each table, of widths
    /// [`ReusableLayer::aggregate_dims`].
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

    /// Adds to the gradients of the weights behind the aggregation from that of rows made earlier,
    /// `grad` (`H x O`, before the epilogue), with their aggregates, `H x dim` each. Parameters
    /// before the aggregation (attention's vectors) get none.
    fn backward_aggregates(&mut self, pass: &Pass, aggregates: &[Matrix], saved: &mut Saved, grad: View);

    /// The bias.
    fn bias(&self) -> Option<&Param>;

    /// The bias, for change.
    fn bias_mut(&mut self) -> Option<&mut Param>;
}

impl dyn Layer + '_ {
    /// Runs the layer on rows that are not transformed yet: `S x F` to `D x O`.
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

    /// The gradients of the last [`Layer::run_forward`](#method.run_forward), whose arguments are
    /// given again; as [`Layer::backward`].
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

/// Copies of boxed layers: implemented for every layer that is `Clone`.
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
    /// A copy.
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

/// Whether a backward pass in this order reads the block's transpose: always when the input's
/// gradient is wanted, and when transformed rows were aggregated.
pub fn needs_transposed(order: ProductOrder, wants_input_grad: bool) -> bool {
    wants_input_grad || order == ProductOrder::TransformFirst
}
