//! Layers over blocks: the trait of a layer ([`Layer`]), and the table of layers.
//!
//! To add a layer, copy `gcn.rs`, change its formula, and add a row to [`TABLE`]. The tests run
//! over the table: gradients against finite differences, both orders, local and global blocks.
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
    options::{OptionGroup, OwnOptions},
    table::{Entry, Table},
};

pub use config::LayerConfig;
pub use gat::{Gat, GatOptions};
pub use gcn::Gcn;
pub use gin::Gin;
pub use init::Init;
pub use interface::{
    CloneLayer, Layer, LayerGrads, LayerInput, LayerSpec, Products, ReusableLayer, needs_transposed,
};
pub use linear::Linear;
pub use mixhop::{MixHop, MixHopOptions};
pub use norm::{Norm, NormKind};
pub use param::Param;
pub use pass::{Epilogue, Pass, site};
pub use pinsage::PinSage;
pub use propagation::{LinearPropagation, Propagated};
pub use sage::{Aggregator, Sage, SageOptions};
pub use sage_pool::SagePool;
pub use saved::Saved;

use crate::{
    Backend, Matrix, Result, View,
    backend::{EdgeWeight, ops::Gather},
};

/// Makes a layer.
pub type Make = fn(&LayerConfig) -> Result<Box<dyn Layer>>;

/// Number of hops of a layer, by the options.
pub type Hops = fn(&OwnOptions) -> usize;

/// The capabilities of a kind of layer that are known before one is made; those of a layer are in
/// its [`LayerSpec`].
#[derive(Clone, Copy, Debug)]
pub struct LayerKind {
    /// Makes a layer, or one hop of it.
    pub make: Make,
    /// For a layer of several hops, each made by a call of `make` with a block of its own: their
    /// number.
    pub hops: Option<Hops>,
    /// Whether it normalises rows inside by [`LayerConfig::batch_norm`].
    pub has_inner_norm: bool,
    /// Whether it applies [`LayerConfig::activation`] inside.
    pub has_inner_activation: bool,
}

impl LayerKind {
    /// A layer of one hop.
    pub const fn new(make: Make) -> Self {
        Self { make, hops: None, has_inner_norm: false, has_inner_activation: false }
    }

    /// The same layer with as many hops as the options say.
    #[must_use]
    pub const fn multi_hop(self, hops: Hops) -> Self {
        Self { hops: Some(hops), ..self }
    }

    /// The same layer with a batch normalisation inside.
    #[must_use]
    pub const fn with_inner_norm(self) -> Self {
        Self { has_inner_norm: true, ..self }
    }

    /// The same layer with the activation inside.
    #[must_use]
    pub const fn with_inner_activation(self) -> Self {
        Self { has_inner_activation: true, ..self }
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
            options: &[OptionGroup::of::<SageOptions>()],
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
            options: &[OptionGroup::of::<GatOptions>()],
            make: LayerKind::new(Gat::make),
        },
        Entry {
            name: "gin",
            summary: "graph isomorphism network: an MLP on the sum of the neighbours and (1 + eps) own row",
            source: "Xu, Hu, Leskovec and Jegelka, ICLR 2019, arXiv:1810.00826",
            options: &[],
            make: LayerKind::new(Gin::make).with_inner_norm(),
        },
        Entry {
            name: "mixhop",
            summary: "MixHop: powers of GCN's adjacency matrix side by side, each with its weights; --hops a layer",
            source: "Abu-El-Haija et al., ICML 2019, arXiv:1905.00067",
            options: &[OptionGroup::of::<MixHopOptions>()],
            make: LayerKind::new(MixHop::make).multi_hop(mixhop::hops),
        },
        Entry {
            name: "pinsage",
            summary: "PinSAGE: own row and the neighbours' mean by importance after a dense layer, rows of length 1",
            source: "Ying et al., KDD 2018, arXiv:1806.01973",
            options: &[],
            make: LayerKind::new(PinSage::make).with_inner_activation(),
        },
    ],
);

/// The blocks that a layer reads, one after the other, each through a [`Layer`] of its own. 1 for a
/// name that no layer has.
pub fn hops(name: &str, own: &OwnOptions) -> usize {
    TABLE.get(name).and_then(|entry| entry.make.hops).map_or(1, |hops| hops(own))
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

/// The coefficients a sampler stored with the edges (an estimator's weights), or `otherwise` if it
/// stored none.
pub fn stored_or(block: &Block, otherwise: EdgeWeight) -> EdgeWeight {
    if block.is_weighted() { EdgeWeight::Stored } else { otherwise }
}
