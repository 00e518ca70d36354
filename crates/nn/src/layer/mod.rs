//! Layers over blocks: what a layer is, and the table of those there are.
//!
//! A layer turns source rows into destination rows, in one of two [`Order`]s. Transform first:
//! [`Layer::transform`] works row by row (nothing about the graph), then [`Layer::combine`]
//! aggregates the transformed rows over a block and adds what depends on the destination.
//! Full-neighbour inference uses the two apart (every row is transformed once, then chunks of
//! destinations combine). Aggregate first: [`Layer::aggregate_first`] aggregates the input rows and
//! transforms the destinations; it reads nothing but the rows that the block names, so the block may
//! be global.
//!
//! To add a layer, copy `gcn.rs`, change its formula, and add a line to [`TABLE`].
//!
//! Shapes: `D`, `S`, `E` are a block's destinations, sources and edges; `F` and `O` the widths of
//! input and output rows; `H` heads.

mod gat;
mod gcn;
mod gin;
mod init;
mod linear;
mod mixhop;
pub mod norm;
mod param;
mod pass;
mod pinsage;
mod sage;
mod sage_pool;

use graphmill_graph::{Block, NodeId, block::Aggregation, table::Entry};

pub use gat::Gat;
pub use gcn::Gcn;
pub use gin::Gin;
pub use init::{INITS, Init};
pub use linear::Linear;
pub use mixhop::MixHop;
pub use norm::Norm;
pub use param::Param;
pub use pass::{Finish, Pass, site};
pub use pinsage::PinSage;
pub use sage::{AGGREGATORS, Sage};
pub use sage_pool::SagePool;

use crate::{
    Backend, Matrix, Result, View, ViewMut,
    backend::{Activation, EdgeWeight, Winners},
    cost::{self, BlockShape, Purpose},
};

/// Makes a layer.
pub type Make = fn(&LayerConfig) -> Result<Box<dyn Layer>>;

/// The layers.
pub const TABLE: &[Entry<Make>] = &[
    Entry {
        name: "sage",
        summary: "GraphSAGE: own row and the mean (or max-pool) of the neighbours, each with its weights",
        source: "Hamilton, Ying and Leskovec, NeurIPS 2017, arXiv:1706.02216",
        make: sage::make,
    },
    Entry {
        name: "gcn",
        summary: "graph convolution: symmetric-normalised sum with self-loops",
        source: "Kipf and Welling, ICLR 2017, arXiv:1609.02907",
        make: Gcn::make,
    },
    Entry {
        name: "gat",
        summary: "graph attention: multi-head weighted sum, weights learned from both ends of an edge",
        source: "Velickovic et al., ICLR 2018, arXiv:1710.10903",
        make: Gat::make,
    },
    Entry {
        name: "gin",
        summary: "graph isomorphism network: an MLP on the sum of the neighbours and (1 + eps) own row",
        source: "Xu, Hu, Leskovec and Jegelka, ICLR 2019, arXiv:1810.00826",
        make: Gin::make,
    },
    Entry {
        name: "mixhop",
        summary: "MixHop: powers of GCN's adjacency matrix side by side, each with its weights; --hops a layer",
        source: "Abu-El-Haija et al., ICML 2019, arXiv:1905.00067",
        make: MixHop::make,
    },
    Entry {
        name: "pinsage",
        summary: "PinSAGE: own row and the neighbours' mean by importance after a dense layer, rows of length 1",
        source: "Ying et al., KDD 2018, arXiv:1806.01973",
        make: PinSage::make,
    },
];

/// The hops of a layer of the table: how many blocks it reads, one after the other, each through a [`Layer`] of its own.
/// `hops` is what the configuration says.
pub fn hops(name: &str, hops: usize) -> usize {
    if name == "mixhop" { hops } else { 1 }
}

/// What a layer is made from. A layer reads what concerns it.
#[derive(Clone, Debug)]
pub struct LayerConfig {
    /// `F`.
    pub in_dim: usize,
    /// `O`, the width of the output rows (all heads together where they are concatenated).
    pub out_dim: usize,
    /// `H`, attention heads.
    pub heads: usize,
    /// Whether the heads' outputs stand side by side (each `O / H` wide) or are averaged (each `O` wide).
    pub concat: bool,
    /// Probability that an attention weight is dropped.
    pub attention_dropout: f32,
    /// Name in [`AGGREGATORS`] (GraphSAGE).
    pub aggregator: String,
    /// Whether a bias is added.
    pub bias: bool,
    /// Whether batch normalisation stands inside the layer's own MLP (GIN).
    pub batch_norm: bool,
    /// What the model does to a layer's rows, where a layer has to do it inside (PinSAGE).
    pub activation: Activation,
    /// Whether the output rows are the classes' scores.
    pub classifies: bool,
    /// Hops of the whole layer ([`hops`]).
    pub hops: usize,
    /// Which of them this is, from 1.
    pub hop: usize,
    /// Root of the random streams of the initial weights.
    pub key: u64,
}

impl Default for LayerConfig {
    fn default() -> Self {
        Self {
            in_dim: 0,
            out_dim: 0,
            heads: 1,
            concat: true,
            attention_dropout: 0.0,
            aggregator: "mean".into(),
            bias: true,
            batch_norm: false,
            activation: Activation::Relu,
            classifies: false,
            hops: 1,
            hop: 1,
            key: 0,
        }
    }
}

/// Which factor of `A X W` is multiplied first (the order is chosen per layer by
/// its cost, see [`crate::cost`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// `(A X) W`: aggregate the input rows, then transform the few destinations.
    AggregateFirst,
    /// `A (X W)`: transform all source rows, then aggregate the narrower rows.
    TransformFirst,
}

/// What a forward pass keeps for its backward pass, and room for intermediate results; lent to a
/// layer and reused for every batch, so that nothing is allocated once it has seen the largest.
#[derive(Clone, Debug, Default)]
pub struct Saved {
    /// The transformed rows ([`Layer::transform`]).
    pub t: [Matrix; 3],
    /// Other matrices, in the layer's own numbering.
    pub m: [Matrix; 11],
    /// Positions (the winners of a maximum).
    pub arg: Winners,
}

/// A graph layer.
pub trait Layer: Send + Sync {
    /// `F`, the width of its input rows.
    fn in_dim(&self) -> usize;

    /// `O`, the width of its output rows.
    fn out_dim(&self) -> usize;

    /// Shows every parameter, always in the same order.
    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param));

    /// Shows every parameter for change, in the order of [`Layer::visit`].
    fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param));

    /// A copy.
    fn boxed(&self) -> Box<dyn Layer>;

    /// The orders this layer can work in. A layer whose transformation is not linear (pooling)
    /// knows only [`Order::TransformFirst`]. One that does not know that one cannot read sparse rows.
    fn orders(&self) -> &'static [Order];

    /// What it costs on a block of these sizes in one of [`Layer::orders`], in bytes moved.
    fn cost(&self, order: Order, shape: BlockShape, purpose: Purpose) -> f64 {
        cost::cost(order, shape, self.in_dim(), self.out_dim(), purpose)
    }

    /// What it makes of the neighbours' rows: with [`Aggregation::Symmetric`] the loader must fill the blocks'
    /// symmetric-normalisation weights, with the others it may store an estimator's.
    fn aggregation(&self) -> Aggregation {
        Aggregation::Other
    }

    /// Whether its rows are activated already: a model then does not.
    fn is_activated(&self) -> bool {
        false
    }

    /// The widths of the tables that [`Layer::transform`] fills, at most three; none for a layer that
    /// cannot transform first.
    fn transformed_dims(&self) -> &[usize] {
        &[]
    }

    /// Rows to rows, before any aggregation: `x` (`R x F`) to rows `at..at + R` of each table of
    /// `t`, which have at least so many rows and the widths [`Layer::transformed_dims`].
    fn transform(&self, _pass: &Pass, _x: View, _at: usize, _t: &mut [Matrix]) {
        unreachable!("this layer cannot transform first");
    }

    /// Whether [`Layer::combine`] reads `x`.
    fn combines_own_rows(&self) -> bool {
        true
    }

    /// `t` (the transformed rows of all sources) over the block, and what `x` (the input rows of all
    /// sources) contributes through the destinations' own rows: `D x O`. Local or global blocks.
    #[allow(clippy::too_many_arguments, reason = "one operation, its inputs and its outputs")]
    fn combine(
        &self,
        _pass: &Pass,
        _block: &Block,
        _x: View,
        _t: &[Matrix],
        _finish: Finish,
        _saved: &mut Saved,
        _out: ViewMut,
    ) {
        unreachable!("this layer cannot transform first");
    }

    /// Aggregates input rows, then transforms the destinations: `S x F` (or a whole table, for a
    /// global block) to `D x O`.
    fn aggregate_first(
        &self,
        _pass: &Pass,
        _block: &Block,
        _x: View,
        _finish: Finish,
        _saved: &mut Saved,
        _out: ViewMut,
    ) {
        unreachable!("this layer cannot aggregate first");
    }

    /// The widths of what rows of [`Order::AggregateFirst`] were made from and [`Layer::backward_kept`] reads: their
    /// aggregated input rows; none where the gradient of the weights needs more.
    fn kept_dims(&self) -> Vec<usize> {
        Vec::new()
    }

    /// Copies what the rows of the last [`Layer::aggregate_first`], whose inputs are given again, were made from to rows
    /// `at..at + D` of each table of `kept`, of widths [`Layer::kept_dims`].
    fn keep(&self, _pass: &Pass, _block: &Block, _x: View, _saved: &Saved, _at: usize, _kept: &mut [Matrix]) {
        unreachable!("this layer keeps nothing");
    }

    /// What the weights behind the aggregation make of rows as [`Layer::keep`] gives them, `H x dim` each: `H x O`, without the bias.
    fn rows_of_kept(&self, _pass: &Pass, _kept: &[Matrix], _saved: &mut Saved, _out: ViewMut) {
        unreachable!("this layer keeps nothing");
    }

    /// The bias, of a layer that keeps something.
    fn kept_bias(&self) -> Option<&Param> {
        None
    }

    /// The same, to be changed.
    fn kept_bias_mut(&mut self) -> Option<&mut Param> {
        None
    }

    /// Adds to the gradients of the weights behind the aggregation from that of rows made earlier, `grad`
    /// (`H x O`, before the finish): `kept` are those rows of what [`Layer::keep`] gave, `H x dim` each. What stands before the
    /// aggregation (attention's vectors) gets none.
    fn backward_kept(&mut self, _pass: &Pass, _kept: &[Matrix], _saved: &mut Saved, _grad: View) {
        unreachable!("this layer keeps nothing");
    }

    /// The layer in the given order: `S x F` to `D x O`. A global block is meant for
    /// [`Order::AggregateFirst`]; in the other order the whole table is transformed.
    #[allow(clippy::too_many_arguments, reason = "one operation, its inputs and its outputs")]
    fn forward(
        &self,
        pass: &Pass,
        order: Order,
        block: &Block,
        x: View,
        finish: Finish,
        saved: &mut Saved,
        out: ViewMut,
    ) {
        match order {
            Order::AggregateFirst => self.aggregate_first(pass, block, x, finish, saved, out),
            Order::TransformFirst => {
                let dims = self.transformed_dims();
                let mut t = std::mem::take(&mut saved.t);
                for (table, &dim) in t.iter_mut().zip(dims) {
                    table.resize(x.num_rows(), dim);
                }
                self.transform(pass, x, 0, &mut t[..dims.len()]);
                self.combine(pass, block, x, &t[..dims.len()], finish, saved, out);
                saved.t = t;
            }
        }
    }

    /// The gradients of [`Layer::forward`], whose inputs are given again, `y` (`D x O`) being its
    /// output: adds to every parameter's `grad`, and overwrites `x_grad` ([`Block::num_grad_src`] rows of `F`, resized) where
    /// one is wanted. In [`Order::TransformFirst`] the layer's own weights need the gradients of all sources, and the block
    /// leaves none out. `grad` (`D x O`) becomes the gradient before the finish, so with [`Finish::NONE`]
    /// it is unchanged. A local block must be transposed where [`needs_transposed`] says so;
    /// with a global one there is no `x_grad` and the order is [`Order::AggregateFirst`].
    #[allow(clippy::too_many_arguments, reason = "one operation, its inputs and its outputs")]
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
    );
}

impl Clone for Box<dyn Layer> {
    fn clone(&self) -> Self {
        self.boxed()
    }
}

/// Whether a backward pass in this order reads the block's transpose: always when the input's gradient is
/// wanted, and when transformed rows were aggregated.
pub fn needs_transposed(order: Order, wants_input_grad: bool) -> bool {
    wants_input_grad || order == Order::TransformFirst
}

/// A backward pass through transformed rows is about to read the gradients of all of them.
///
/// # Panics
/// The block leaves sources out.
pub(crate) fn assert_unrestricted(block: &Block) {
    assert!(
        block.num_grad_src() == block.num_src,
        "gradients of {} sources of {}: a layer that transforms first needs all (Model::may_restrict)",
        block.num_grad_src(),
        block.num_src
    );
}

/// Adds what the gradient of rows before their finish is for their bias.
pub(crate) fn add_bias_grad(pass: &Pass, bias: Option<&mut Param>, grad: View) {
    if let Some(bias) = bias {
        pass.backend.add_column_sums(grad, bias.grad.view_mut());
    }
}

/// The destinations' own rows, `D x F`: without a copy the prefix of a local block's rows, gathered
/// into `room` for a global block.
pub(crate) fn own_rows<'a>(pass: &Pass, block: &Block, x: View<'a>, room: &'a mut Matrix) -> View<'a> {
    if let Some(ids) = &block.dst_ids {
        gather_rows(pass.backend, x, ids, room);
    }
    own_rows_again(block, x, room)
}

/// The rows `ids` of a table in `room`, to be multiplied: sparse where the table is.
pub fn gather_rows(backend: &dyn Backend, table: View, ids: &[NodeId], room: &mut Matrix) {
    if table.is_sparse() {
        room.gather_sparse(table, ids);
    } else {
        room.resize(ids.len(), table.num_cols());
        backend.gather(table, ids, room.view_mut());
    }
}

/// What [`own_rows`] gave in the forward pass, `room` being kept since.
pub(crate) fn own_rows_again<'a>(block: &Block, x: View<'a>, room: &'a Matrix) -> View<'a> {
    match block.dst_ids {
        Some(_) => room.view(),
        None => x.rows(0..block.num_dst),
    }
}

/// The coefficients a sampler stored with the edges (an estimator's weights), or `otherwise` where
/// there are none.
pub(crate) fn stored_or(block: &Block, otherwise: EdgeWeight) -> EdgeWeight {
    if block.is_weighted() { EdgeWeight::Stored } else { otherwise }
}
