//! Operations as structs: named fields for the inputs and outputs of each, with its formula, its
//! shapes and the check of both.
//!
//! A layer builds one and runs it:
//! `Aggregate { block, weights, src, beta: 0.0, dst }.run(backend)`. `run` checks the shapes, once
//! for all backends, and calls the backend's method of the same name, which takes the struct.
//! Operations of at most two plain arguments, whose order is unambiguous, remain methods of their
//! trait: [`fill`](super::ElementOps::fill), [`scale`](super::ElementOps::scale),
//! [`copy`](super::ElementOps::copy), [`dot`](super::ElementOps::dot),
//! [`squares`](super::ElementOps::squares),
//! [`add_column_sums`](super::ElementOps::add_column_sums), [`softmax`](super::LossOps::softmax)
//! and [`sigmoid`](super::LossOps::sigmoid).
//!
//! # Shapes
//! All operations share one alphabet:
//!
//! | letter | |
//! | --- | --- |
//! | `S`, `D` | sources and destinations of a block |
//! | `S'` | sources that receive a gradient, a prefix of all ([`Block::num_grad_src`]; `S` by default) |
//! | `E` | edges of a block |
//! | `V` | rows of a whole table, such as the nodes of a graph |
//! | `R` | rows of any other matrix |
//! | `F`, `O` | widths of input and output rows |
//! | `H` | heads |
//!
//! A block is local or global unless a field requires one of them. With a factor `beta` of 0 the
//! old result is not read. Gradients are overwritten unless a field is documented as added to.
//!
//! # Panics
//! Incompatible shapes are a bug in a layer, not an input error, and a kernel with `unsafe` code
//! must never receive them: backends require a [`Checked`] operation as proof.
//!
//! [`Block::num_grad_src`]: graphmill_core::Block::num_grad_src

mod aggregation;
mod attend_input;
mod attention;
mod dot_attention;
mod edge_attention;
mod edge_sum;
mod element;
pub mod factor;
pub mod gelu;
mod loss;
mod norm;
mod pair_attention;
mod product;
mod relation_attention;
pub mod shape;
mod update;

pub use aggregation::{
    Aggregate, AggregateMax, AggregateMaxTransposed, AggregateTransposed, Hop, HopTransposed,
};
pub use attend_input::{AttendInput, AttendInputBackward, AttendInputTransposed};
pub use attention::{
    Attend, AttendBackward, EdgeSoftmax, EdgeSoftmaxBackward, HeadDot, HeadDotBackward, HeadMean,
    HeadMeanBackward,
};
pub use dot_attention::{DotSoftmax, DotSoftmaxBackward};
pub use edge_attention::{EdgeAttention, EdgeAttentionBackward};
pub use edge_sum::{Gated, GatedSum, GatedSumBackward, ReluSum, ReluSumBackward};
pub use element::{Add, AddDot, DropStored, EpilogueBackward, EpilogueForward, Gather};
pub use factor::{AddTimes, ScaleHeads, ScaleHeadsBackward, Skip, SkipBackward};
pub use gelu::{GeluBackward, GeluForward};
pub use loss::{SigmoidCrossEntropy, SoftmaxCrossEntropy};
pub use norm::{
    BatchNormApply, BatchNormBackward, BatchNormForward, L2NormBackward, L2NormForward, LayerNormBackward,
    LayerNormForward,
};
pub use pair_attention::{PairSoftmax, PairSoftmaxBackward};
pub use product::{Dense, Gemm, HeadGemm, WeightGradients};
pub use relation_attention::{RelationAttention, RelationAttentionBackward};
pub use update::{AdamUpdate, SgdUpdate};

/// An operation of this module. Each also has `run` (`backend/run.rs`).
///
/// ```should_panic
/// use graphmill_nn::{Matrix, backend::{Side::Plain, ops::{Gemm, Operation}}};
///
/// let (a, b, mut c) = (Matrix::zeros(2, 3), Matrix::zeros(4, 5), Matrix::zeros(2, 5));
/// // 3 columns times 4 rows
/// Gemm { a: (a.view(), Plain), b: (b.view(), Plain), beta: 0.0, c: c.view_mut() }.check();
/// ```
pub trait Operation {
    /// Asserts that the shapes of the fields are compatible.
    ///
    /// # Panics
    /// The shapes are incompatible: a bug in a layer.
    fn check(&self);
}

/// An operation with checked shapes.
#[derive(Debug)]
pub struct Checked<T>(T);

impl<T: Operation> Checked<T> {
    /// Checks the operation.
    ///
    /// # Panics
    /// The shapes are incompatible.
    pub fn new(op: T) -> Self {
        op.check();
        Self(op)
    }

    /// Unwraps the operation.
    pub fn into_inner(self) -> T {
        self.0
    }
}
