//! Layers over blocks: the trait of a layer ([`Layer`]), and the table of layers.
//!
//! To add a layer, copy `gcn.rs`, change its formula, and add a row to [`TABLE`]. The tests run over the
//! table: gradients against finite differences, both orders, local and global blocks.
//!
//! Shapes: `D`, `S`, `E` are a block's destinations, sources and edges; `F` and `O` the widths of
//! input and output rows; `H` heads.

mod config;
mod gat;
mod gcn;
mod gin;
mod init;
mod interface;
mod linear;
mod mixhop;
pub mod norm;
mod param;
mod pass;
mod pinsage;
mod propagation;
mod sage;
mod sage_pool;
mod saved;

use graphmill_core::{
    Block, NodeId,
    table::{Entry, Table},
};

pub use config::LayerConfig;
pub use gat::Gat;
pub use gcn::Gcn;
pub use gin::Gin;
pub use init::{INITS, Init};
pub use interface::{
    CloneLayer, Layer, LayerGrads, LayerInput, LayerSpec, Products, ReusableLayer, needs_transposed,
};
pub use linear::Linear;
pub use mixhop::MixHop;
pub use norm::Norm;
pub use param::Param;
pub use pass::{Epilogue, Pass, site};
pub use pinsage::PinSage;
pub use propagation::{LinearPropagation, Propagated};
pub use sage::{AGGREGATORS, Sage};
pub use sage_pool::SagePool;
pub use saved::Saved;

use crate::{
    Backend, Matrix, Result, View,
    backend::{EdgeWeight, ops::Gather},
};

/// Makes a layer.
pub type Make = fn(&LayerConfig) -> Result<Box<dyn Layer>>;

/// The capabilities of a kind of layer that are known before one is made; those of a layer are in its
/// [`LayerSpec`].
#[derive(Clone, Copy, Debug)]
pub struct LayerKind {
    /// Makes a layer, or one hop of it.
    pub make: Make,
    /// Whether a layer has as many hops as the configuration says, each made by a call of `make`, with a
    /// block of its own.
    pub is_multi_hop: bool,
}

impl LayerKind {
    /// A layer of one hop.
    pub const fn new(make: Make) -> Self {
        Self { make, is_multi_hop: false }
    }

    /// A layer of several hops.
    pub const fn multi_hop(make: Make) -> Self {
        Self { make, is_multi_hop: true }
    }
}

/// The layers.
pub static TABLE: Table<LayerKind> = Table::new(
    "model",
    &[
        Entry {
            name: "sage",
            summary: "GraphSAGE: own row and the mean (or max-pool) of the neighbours, each with its weights",
            source: "Hamilton, Ying and Leskovec, NeurIPS 2017, arXiv:1706.02216",
            options: &["aggregator"],
            make: LayerKind::new(sage::make),
        },
        Entry {
            name: "gcn",
            summary: "graph convolution: symmetric-normalised sum with self-loops",
            source: "Kipf and Welling, ICLR 2017, arXiv:1609.02907",
            options: &[],
            make: LayerKind::new(Gcn::make),
        },
        Entry {
            name: "gat",
            summary: "graph attention: multi-head weighted sum, weights learned from both ends of an edge",
            source: "Velickovic et al., ICLR 2018, arXiv:1710.10903",
            options: &["heads", "out_heads", "attention_dropout"],
            make: LayerKind::new(Gat::make),
        },
        Entry {
            name: "gin",
            summary: "graph isomorphism network: an MLP on the sum of the neighbours and (1 + eps) own row",
            source: "Xu, Hu, Leskovec and Jegelka, ICLR 2019, arXiv:1810.00826",
            options: &["norm"],
            make: LayerKind::new(Gin::make),
        },
        Entry {
            name: "mixhop",
            summary: "MixHop: powers of GCN's adjacency matrix side by side, each with its weights; --hops a layer",
            source: "Abu-El-Haija et al., ICML 2019, arXiv:1905.00067",
            options: &["hops"],
            make: LayerKind::multi_hop(MixHop::make),
        },
        Entry {
            name: "pinsage",
            summary: "PinSAGE: own row and the neighbours' mean by importance after a dense layer, rows of length 1",
            source: "Ying et al., KDD 2018, arXiv:1806.01973",
            options: &["activation"],
            make: LayerKind::new(PinSage::make),
        },
    ],
);

/// The blocks that a layer reads, one after the other, each through a [`Layer`] of its own; `hops` is the
/// configuration's number, for a layer of several hops. 1 for a name that no layer has.
pub fn hops(name: &str, hops: usize) -> usize {
    if TABLE.get(name).is_some_and(|entry| entry.make.is_multi_hop) { hops } else { 1 }
}

/// Gathers the rows `ids` of a table into `room`, to be multiplied: sparse if the table is.
pub fn gather_rows(backend: &dyn Backend, table: View, ids: &[NodeId], room: &mut Matrix) {
    if table.is_sparse() {
        room.gather_sparse(table, ids);
    } else {
        room.resize(ids.len(), table.num_cols());
        Gather { src: table, ids, dst: room.view_mut() }.run(backend);
    }
}

/// The coefficients a sampler stored with the edges (an estimator's weights), or `otherwise` if it stored
/// none.
pub fn stored_or(block: &Block, otherwise: EdgeWeight) -> EdgeWeight {
    if block.is_weighted() { EdgeWeight::Stored } else { otherwise }
}
