//! The trait of typed layers, and the values that pass through them.
//!
//! Shapes: type `t` has `S_t` sources and `D_t` destinations in a block; `F` and `O` are the widths
//! of input and output rows, equal for all types. Relation `r` has `E_r` edges of `K_r` features.

use clap::Args;
use graphmill_core::{
    block::Aggregation,
    options::{OptionSet, OwnOptions},
    typed::{Schema, TypedBlock},
};
use serde::{Deserialize, Serialize};

use super::{Projected, ProjectionGrad};
use crate::{Matrix, Param, Pass, Saved, View};

/// Configuration of a typed layer.
#[derive(Clone, Copy, Debug)]
pub struct TypedLayerConfig<'a> {
    /// Node types and relations.
    pub schema: &'a Schema,
    /// Width of the rows of each relation's edges, `K_r`, for layers that read them.
    pub edge_dims: &'a [usize],
    /// Width of the input rows, `F`.
    pub in_dim: usize,
    /// Width of the output rows, `O` (over all heads together if they are concatenated).
    pub out_dim: usize,
    /// Number of the layer in its model, from the bottom.
    pub number: usize,
    /// True if the output rows are scores: heads are averaged, and there is no activation.
    pub scores: bool,
    /// Root of the random streams for the initial weights.
    pub key: u64,
    /// Options of the layers.
    pub own: &'a OwnOptions,
}

/// Options of layers that add a node's own row, transformed by a matrix of its type.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RelationOptions {
    /// Leave out a node's own row, as MLPerf's R-SAGE and R-GAT do.
    ///
    /// A type that no relation enters then has rows of zeros above the first layer.
    #[arg(long)]
    pub no_own_rows: bool,
}

impl OptionSet for RelationOptions {}

/// Fixed properties of a typed layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypedLayerSpec {
    /// Width of the input rows, `F`.
    pub in_dim: usize,
    /// Width of the output rows, `O`.
    pub out_dim: usize,
    /// Aggregation of the neighbours' rows, for samplers that store an estimator's weights with
    /// the edges.
    pub aggregation: Aggregation,
}

/// Owner of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All types and relations.
    Shared,
    /// A node type.
    Type(usize),
    /// A relation.
    Relation(usize),
}

impl Scope {
    /// Name of a parameter: `weight`, `paper.weight` or `author:writes:paper.weight`.
    pub fn name(self, schema: &Schema, param: &str) -> String {
        match self {
            Self::Shared => param.to_string(),
            Self::Type(t) => format!("{}.{param}", schema.types()[t].name),
            Self::Relation(r) => format!("{}.{param}", schema.relation_name(r)),
        }
    }
}

/// Rows that a typed layer reads, and the block through which it reads them.
#[derive(Clone, Copy, Debug)]
pub struct TypedInput<'a> {
    /// Node types and relations.
    pub schema: &'a Schema,
    /// Edges; transposed for a backward pass.
    pub block: &'a TypedBlock,
    /// Input rows of the sources of each type, `S_t x F`.
    pub x: &'a [Matrix],
    /// Rows of the edges of each relation in the order of its slice, `E_r x K_r`; empty if the
    /// layer does not read them.
    pub edges: &'a [Matrix],
    /// For each type, its input rows as a projection of features, in the place of `x`, which then
    /// has no rows. Empty unless the layer reads them ([`TypedLayer::reads_projections`]).
    pub projected: &'a [Option<Projected<'a>>],
}

impl<'a> TypedInput<'a> {
    /// Rows of the destinations of type `t`, `D_t x F`.
    pub fn own_rows(&self, t: usize) -> View<'a> {
        self.x[t].rows(0..self.block.num_dst[t])
    }

    /// Input rows of type `t` as a projection, if the layer is to read them so.
    pub fn projection(&self, t: usize) -> Option<Projected<'a>> {
        self.projected.get(t).copied().flatten()
    }

    /// Source and destination type of relation `r`.
    pub fn ends(&self, r: usize) -> [usize; 2] {
        let relation = &self.schema.relations()[r];
        [relation.src, relation.dst]
    }

    /// Returns true if relation `r` has edges.
    pub fn has_edges(&self, r: usize) -> bool {
        self.block.relations[r].num_edges() > 0
    }
}

/// A layer of a typed model.
///
/// ```
/// use graphmill_core::{options::OwnOptions, typed::{NodeType, Relation, Schema}};
/// use graphmill_nn::typed::{TABLE, TypedLayerConfig};
///
/// let types = vec![NodeType::new("author", 2), NodeType::new("paper", 3)];
/// let schema = Schema::new(types, vec![Relation::new(0, "writes", 1)])?;
/// let (in_dim, out_dim, own) = (4, 8, &OwnOptions::default());
/// let config = TypedLayerConfig {
///     schema: &schema, edge_dims: &[0], in_dim, out_dim, number: 0, scores: false, key: 1, own,
/// };
/// let layer = (TABLE.find("rsage")?.make.make)(&config).expect("a valid configuration");
/// let mut names = Vec::new();
/// layer.visit(&mut |scope, param| names.push(scope.name(&schema, param.name)));
/// assert!(names.contains(&"author:writes:paper.weight".to_string()), "{names:?}");
/// # Ok::<(), graphmill_core::Error>(())
/// ```
pub trait TypedLayer: CloneTypedLayer + Send + Sync {
    /// Fixed properties of the layer.
    fn spec(&self) -> TypedLayerSpec;

    /// Returns true if the layer can read input rows as projections of features
    /// ([`TypedInput::projected`]).
    fn reads_projections(&self) -> bool {
        false
    }

    /// Visits every parameter, always in the same order.
    fn visit<'a>(&'a self, see: &mut dyn FnMut(Scope, &'a Param));

    /// Visits every parameter mutably, in the order of [`TypedLayer::visit`].
    fn visit_mut(&mut self, see: &mut dyn FnMut(Scope, &mut Param));

    /// Computes the layer's formula. `out[t]` is resized to `D_t x O`.
    ///
    /// # Errors
    /// A block is too large.
    fn forward(
        &self,
        pass: &Pass,
        input: &TypedInput,
        saved: &mut Saved,
        out: &mut [Matrix],
    ) -> graphmill_core::Result<()>;

    /// Computes the gradients of the last [`TypedLayer::forward`], which had the same arguments:
    /// adds to every parameter's `grad`, and resizes and overwrites `x_grad[t]` (`S_t x F`).
    /// `y[t]` is the output, and `grad[t]` its gradient, which may be changed.
    fn backward(&mut self, pass: &Pass, input: &TypedInput, saved: &mut Saved, grads: TypedGrads);
}

/// Gradients that a backward pass of a typed layer reads and writes.
#[derive(Debug)]
pub struct TypedGrads<'a> {
    /// Output of the forward pass, `D_t x O`.
    pub y: &'a [Matrix],
    /// Gradient of the output, `D_t x O`; may be changed.
    pub grad: &'a mut [Matrix],
    /// Gradient of the input, `S_t x F`, overwritten; without rows for a projected type.
    pub x_grad: &'a mut [Matrix],
    /// Gradients of the projections of [`TypedInput::projected`], added to.
    pub projections: &'a mut [ProjectionGrad],
}

impl TypedGrads<'_> {
    /// Resizes the gradient of the input and fills it with zeros, for layers that add to it.
    pub fn clear_input(&mut self, pass: &Pass, input: &TypedInput) {
        for (x_grad, x) in self.x_grad.iter_mut().zip(input.x) {
            x_grad.resize(x.num_rows(), x.num_cols());
            pass.backend.fill(0.0, x_grad.view_mut());
        }
    }
}

/// Copies of boxed typed layers, implemented for every layer that is `Clone`.
pub trait CloneTypedLayer {
    /// A boxed copy.
    fn clone_layer(&self) -> Box<dyn TypedLayer>;
}

impl<T: TypedLayer + Clone + 'static> CloneTypedLayer for T {
    fn clone_layer(&self) -> Box<dyn TypedLayer> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn TypedLayer> {
    fn clone(&self) -> Self {
        self.as_ref().clone_layer()
    }
}

/// Sets the output of each type to zeros, or only resizes it, to `D_t x O`.
pub(super) fn resize_outputs(pass: &Pass, input: &TypedInput, width: usize, clear: bool, out: &mut [Matrix]) {
    for (out, &rows) in out.iter_mut().zip(&input.block.num_dst) {
        out.resize(rows, width);
        if clear {
            pass.backend.fill(0.0, out.view_mut());
        }
    }
}
