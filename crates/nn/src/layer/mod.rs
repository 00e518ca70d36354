//! Layers over blocks: what a layer is, and the table of those there are.
//!
//! A layer turns source rows into destination rows. It is the composition of two steps:
//! [`Layer::transform`] works row by row (nothing about the graph), [`Layer::combine`] aggregates
//! transformed rows over a block and adds what depends on the destination. Full-neighbour inference
//! uses the two apart (every row is transformed once, then chunks of destinations combine);
//! training uses [`Layer::forward`], which may also aggregate before it transforms.

use graphmill_graph::{Block, keyed};

use crate::{Backend, Matrix, View, ViewMut, backend::Dropout};

/// Which factor of `A X W` is multiplied first (paper 003, section 6.1: the order is chosen per layer by
/// its cost).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// `(A X) W`: aggregate the input rows, then transform the few destinations.
    AggregateFirst,
    /// `A (X W)`: transform all source rows, then aggregate the narrower rows.
    TransformFirst,
}

/// A learnable matrix with its gradient.
#[derive(Clone, Debug)]
pub struct Param {
    /// Name, unique within its layer: "weight", "bias", ...
    pub name: &'static str,
    /// The value.
    pub value: Matrix,
    /// The gradient, same shape; backward passes add to it.
    pub grad: Matrix,
    /// False for running statistics: saved with the model, never updated by an optimiser.
    pub trainable: bool,
}

impl Param {
    /// All zeros.
    pub fn zeros(name: &'static str, rows: usize, cols: usize) -> Self {
        Self { name, value: Matrix::zeros(rows, cols), grad: Matrix::zeros(rows, cols), trainable: true }
    }

    /// The same value everywhere.
    pub fn constant(name: &'static str, rows: usize, cols: usize, value: f32) -> Self {
        let mut param = Self::zeros(name, rows, cols);
        param.value.view_mut().host().fill(value);
        param
    }

    /// Uniform in `[-b, b]` with `b = sqrt(6 / (fan_in + fan_out))` (Glorot and Bengio, 2010).
    pub fn glorot(
        name: &'static str,
        rows: usize,
        cols: usize,
        fan_in: usize,
        fan_out: usize,
        key: u64,
    ) -> Self {
        let mut param = Self::zeros(name, rows, cols);
        let bound = (6.0 / (fan_in + fan_out).max(1) as f64).sqrt();
        let mut stream = keyed::Stream::new(key);
        for x in param.value.view_mut().host() {
            *x = (bound * (2.0 * stream.uniform() - 1.0)) as f32;
        }
        param
    }

    /// Keeps the value out of the optimiser's hands.
    pub fn frozen(mut self) -> Self {
        self.trainable = false;
        self
    }
}

/// What a forward or backward pass is part of.
#[derive(Clone, Copy)]
pub struct Pass<'a> {
    /// Where the arithmetic runs.
    pub backend: &'a dyn Backend,
    /// Whether dropout drops and batch norm uses the batch's statistics.
    pub training: bool,
    /// Identifies seed, step and layer: the root of every dropout mask of the pass.
    pub key: u64,
}

impl Pass<'_> {
    /// The dropout at place `site` of this pass, with probability `p` when training.
    pub fn dropout(&self, p: f32, site: u64) -> Dropout {
        if self.training && p > 0.0 {
            Dropout { p, key: keyed::key(&[self.key, site]) }
        } else {
            Dropout::NONE
        }
    }

    /// The same pass seen by its part number `part` (a layer, a head, ...).
    pub fn part(&self, part: u64) -> Self {
        Self { key: keyed::key(&[self.key, part]), ..*self }
    }
}

/// What a forward pass keeps for its backward pass, and room for intermediate results; lent to a
/// layer and reused for every batch. Which matrix means what is each layer's own business.
#[derive(Clone, Debug, Default)]
pub struct Saved {
    /// Matrices, in the layer's own numbering.
    pub m: [Matrix; 10],
    /// Positions (the winners of a maximum).
    pub arg: Vec<u32>,
}

/// A graph layer.
pub trait Layer: Send + Sync {
    /// `F`, the width of its input rows.
    fn in_dim(&self) -> usize;

    /// The width of its output rows.
    fn out_dim(&self) -> usize;

    /// Shows every parameter, always in the same order.
    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param));

    /// Shows every parameter for change, in the order of [`Layer::visit`].
    fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param));

    /// The orders this layer can work in. A layer whose transformation is not linear (pooling,
    /// attention) knows only [`Order::TransformFirst`]; GIN knows only [`Order::AggregateFirst`].
    fn orders(&self) -> &'static [Order];

    /// Whether its weights are [`crate::backend::Weighting::STORED`]: the loader must fill the
    /// blocks' symmetric-normalisation weights.
    fn wants_symmetric_weights(&self) -> bool {
        false
    }

    /// The width of what [`Layer::transform`] makes.
    fn transformed_dim(&self) -> usize;

    /// Rows to rows, before any aggregation: `R x F` to `R x transformed_dim`, written to `out`.
    /// Never called on a layer that knows only [`Order::AggregateFirst`].
    fn transform(&self, pass: &Pass, x: View, saved: &mut Saved, out: ViewMut);

    /// `t` (the transformed rows of all sources) over the block, and what `x` (the input rows of
    /// all sources) contributes through the destinations' own rows: `D x out_dim`. Local or global blocks.
    fn combine(&self, pass: &Pass, block: &Block, x: View, t: View, saved: &mut Saved, out: ViewMut);

    /// The layer: `S x F` (or a whole table, for a global block) to `D x out_dim`. `out` is resized by
    /// the layer. With [`Order::AggregateFirst`] the block may be global.
    fn forward(&self, pass: &Pass, order: Order, block: &Block, x: View, saved: &mut Saved, out: &mut Matrix);

    /// The gradients: adds to every parameter's `grad`, and overwrites `x_grad` (`S x F`, resized)
    /// where one is wanted. `grad` is `D x out_dim` and may be used as scratch. A local block must be transposed
    /// where [`needs_transposed`] says so.
    #[allow(clippy::too_many_arguments, reason = "one operation, its inputs and its outputs")]
    fn backward(
        &mut self,
        pass: &Pass,
        order: Order,
        block: &Block,
        x: View,
        saved: &mut Saved,
        grad: &mut Matrix,
        x_grad: Option<&mut Matrix>,
    );
}

/// Whether a backward pass in this order reads the block's transpose: always when the input's gradient is
/// wanted, and when transformed rows were aggregated.
pub fn needs_transposed(order: Order, wants_input_grad: bool) -> bool {
    wants_input_grad || order == Order::TransformFirst
}
