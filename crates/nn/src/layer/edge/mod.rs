//! Layers that read a row of features for each edge: the [`EdgeLayer`] trait, and their table.
//!
//! A loader gathers the edges' rows (`E x K`) in the order of a block's edges; the layers do not
//! depend on where the rows come from. [`Gatv2`] is also a [`Layer`](super::Layer) without rows of
//! edges.
//!
//! To add a layer, copy `sage.rs`, change its formula, and add a row to [`TABLE`]. The tests
//! compare every row's gradients with finite differences.
//!
//! ```
//! use graphmill_core::Block;
//! use graphmill_nn::{
//!     Epilogue, LayerConfig, Matrix, Pass, Saved,
//!     backend::Cpu,
//!     layer::edge::{EdgeInput, EdgeLayerConfig, TABLE},
//! };
//!
//! let nodes = LayerConfig { in_dim: 4, out_dim: 8, ..LayerConfig::default() };
//! let config = EdgeLayerConfig { nodes, edge_dim: 3, ..EdgeLayerConfig::default() };
//! let layer = (TABLE.find("gine")?.make)(&config)?;
//! // one destination with two edges from source 1
//! let block = Block { num_dst: 1, num_src: 2, indptr: vec![0, 2], indices: vec![1, 1], ..Block::default() };
//! let (x, edges, mut out) = (Matrix::zeros(2, 4), Matrix::zeros(2, 3), Matrix::zeros(1, 8));
//! let input = EdgeInput { block: &block, x: x.view(), edges: edges.view() };
//! let (backend, mut saved) = (Cpu::default(), Saved::default());
//! let pass = Pass { backend: &backend, training: false, key: 0 };
//! layer.forward(&pass, &input, Epilogue::NONE, &mut saved, out.view_mut());
//! # Ok::<(), graphmill_nn::Error>(())
//! ```

mod gated;
mod gatv2;
mod gine;
mod mixer;
mod mixer_block;
mod rows;
mod sage;

use graphmill_core::{
    Block,
    options::OptionGroup,
    table::{Entry, Table},
};

pub use gated::EdgeGated;
pub use gatv2::Gatv2;
pub use gine::Gine;
pub use mixer::EdgeMixer;
pub use rows::EdgeRows;
pub use sage::EdgeSage;

use super::{Epilogue, GatOptions, LayerConfig, Param, Pass, Saved};
use crate::{Matrix, Result, View, ViewMut};

/// Configuration of a layer with rows of edges.
#[derive(Clone, Debug, Default)]
pub struct EdgeLayerConfig {
    /// Configuration of the rows of nodes.
    pub nodes: LayerConfig,
    /// Width of the edges' rows, `K`.
    pub edge_dim: usize,
    /// Largest number of edges of a destination; 0 if it has no limit.
    pub slots: usize,
    /// Dropout within the layer, for layers of several dense layers.
    pub dropout: f32,
}

/// Fixed properties of a layer with rows of edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeLayerSpec {
    /// Width of the input rows, `F`.
    pub in_dim: usize,
    /// Width of the edges' rows, `K`.
    pub edge_dim: usize,
    /// Width of the output rows, `O`.
    pub out_dim: usize,
}

/// Rows that a layer reads, and the block through which it reads them.
#[derive(Clone, Copy, Debug)]
pub struct EdgeInput<'a> {
    /// Edges: a local block, transposed for a backward pass.
    pub block: &'a Block,
    /// Input rows of all sources, `S x F`.
    pub x: View<'a>,
    /// Rows of the edges in the order of the block, `E x K`.
    pub edges: View<'a>,
}

impl<'a> EdgeInput<'a> {
    /// Own rows of the destinations, `D x F`.
    pub fn own_rows(&self) -> View<'a> {
        self.x.rows(0..self.block.num_dst)
    }

    /// Asserts that the block suits these layers and has a row for each edge.
    ///
    /// # Panics
    /// The block is global or leaves sources out of its gradients, or rows are missing: a bug in
    /// the caller.
    pub fn check(&self, spec: EdgeLayerSpec) {
        let block = self.block;
        assert!(block.dst_ids.is_none(), "a layer with rows of edges reads local blocks");
        assert_eq!(block.num_grad_src(), block.num_src, "gradients of all sources");
        let found = [self.x, self.edges].map(|x| (x.num_rows(), x.num_cols()));
        let expected = [(block.num_src, spec.in_dim), (block.num_edges(), spec.edge_dim)];
        assert_eq!(found, expected, "rows of sources and of edges");
    }
}

/// Gradients that a backward pass reads and writes.
#[derive(Debug)]
pub struct EdgeGrads<'a> {
    /// Output of the forward pass, `D x O`.
    pub y: View<'a>,
    /// Gradient of the output, `D x O`; becomes the gradient before the epilogue.
    pub grad: &'a mut Matrix,
    /// Gradient of the input rows, if requested: resized to `S x F` and overwritten.
    pub x_grad: Option<&'a mut Matrix>,
    /// Gradient of the edges' rows, if requested: resized to `E x K` and overwritten.
    pub edge_grad: Option<&'a mut Matrix>,
}

/// A layer that reads a row for each edge.
///
/// ```
/// use graphmill_nn::{LayerConfig, layer::edge::{EdgeLayerConfig, TABLE}};
///
/// let nodes = LayerConfig { in_dim: 4, out_dim: 8, ..LayerConfig::default() };
/// let layer = (TABLE.find("gine")?.make)(&EdgeLayerConfig { nodes, edge_dim: 3, ..Default::default() })?;
/// assert_eq!((layer.spec().in_dim, layer.spec().edge_dim, layer.spec().out_dim), (4, 3, 8));
/// # Ok::<(), graphmill_nn::Error>(())
/// ```
pub trait EdgeLayer: CloneEdgeLayer + Send + Sync {
    /// Fixed properties of the layer.
    fn spec(&self) -> EdgeLayerSpec;

    /// Visits every parameter, always in the same order.
    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param));

    /// Visits every parameter mutably, in the order of [`EdgeLayer::visit`].
    fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param));

    /// Computes the layer's formula, then the epilogue: `S x F` and `E x K` to `D x O`.
    fn forward(&self, pass: &Pass, input: &EdgeInput, epilogue: Epilogue, saved: &mut Saved, out: ViewMut);

    /// Computes the gradients of the last [`EdgeLayer::forward`], which had the same arguments, and
    /// adds to every parameter's `grad`.
    fn backward(
        &mut self,
        pass: &Pass,
        input: &EdgeInput,
        epilogue: Epilogue,
        saved: &mut Saved,
        grads: EdgeGrads,
    );
}

/// Copies of boxed layers, implemented for every layer that is `Clone`.
pub trait CloneEdgeLayer {
    /// A boxed copy.
    fn clone_layer(&self) -> Box<dyn EdgeLayer>;
}

impl<T: EdgeLayer + Clone + 'static> CloneEdgeLayer for T {
    fn clone_layer(&self) -> Box<dyn EdgeLayer> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn EdgeLayer> {
    fn clone(&self) -> Self {
        self.as_ref().clone_layer()
    }
}

/// Constructor of a layer with rows of edges.
pub type Make = fn(&EdgeLayerConfig) -> Result<Box<dyn EdgeLayer>>;

/// Table of the layers with rows of edges.
pub static TABLE: Table<Make> = Table::new(
    "model with edge features",
    &[
        Entry {
            name: "gine",
            summary: "GIN with edge features: an MLP on own row and the sum of relu(neighbour + edge)",
            source: "Hu et al., ICLR 2020, arXiv:1905.12265",
            options: &[],
            make: Gine::make,
        },
        Entry {
            name: "gatv2",
            summary: "graph attention whose scores depend jointly on both ends and the edge",
            source: "Brody, Alon and Yahav, ICLR 2022, arXiv:2105.14491",
            options: &[OptionGroup::of::<GatOptions>()],
            make: gatv2::make_with_edges,
        },
        Entry {
            name: "sage",
            summary: "GraphSAGE over neighbours' rows joined with the rows of their edges",
            source: "Hamilton, Ying and Leskovec, NeurIPS 2017, arXiv:1706.02216",
            options: &[],
            make: EdgeSage::make,
        },
        Entry {
            name: "edge-gated",
            summary: "residual gated convolution: neighbours' rows gated by both ends and the edge",
            source: "Bresson and Laurent, 2017, arXiv:1711.07553",
            options: &[],
            make: EdgeGated::make,
        },
        Entry {
            name: "mixer",
            summary: "an MLP-mixer over the rows of the last edges, and a mean over neighbours",
            source: "Cong et al., ICLR 2023, arXiv:2302.11636",
            options: &[],
            make: EdgeMixer::make,
        },
    ],
);
