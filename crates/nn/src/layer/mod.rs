//! Layers over blocks: the [`Layer`] trait, and the table of layers.
//!
//! To add a layer, copy `gcn.rs`, change its formula, and add a row to [`TABLE`]. The tests cover
//! every row: gradients against finite differences, both orders, local and global blocks.
//!
//! Shapes: `D`, `S`, `E` are a block's destinations, sources and edges; `F` and `O` are the widths
//! of input and output rows; `H` is the number of heads.

#![forbid(unsafe_code)]

mod config;
pub mod edge;
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
pub use edge::{EdgeLayer, Gatv2};
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
pub use sage::{Aggregator, Combine, Sage, SageOptions};
pub use sage_pool::SagePool;
pub use saved::Saved;

use crate::{
    Backend, Matrix, Result, View,
    backend::{EdgeWeight, ops::Gather},
};

/// Constructor of a layer.
pub type Make = fn(&LayerConfig) -> Result<Box<dyn Layer>>;

/// Function from the options to the number of hops of a layer.
pub type Hops = fn(&OwnOptions) -> usize;

/// Capabilities of a kind of layer, known before a layer is created; those of a layer are in its
/// [`LayerSpec`].
#[derive(Clone, Copy, Debug)]
pub struct LayerKind {
    /// Constructor of a layer, or of one hop of it.
    pub make: Make,
    /// Number of hops, for a layer of several: `make` creates each hop, and each reads a separate
    /// block.
    pub hops: Option<Hops>,
    /// True if [`LayerConfig::batch_norm`] normalizes rows inside the layer.
    pub has_inner_norm: bool,
    /// True if the layer applies [`LayerConfig::activation`] internally.
    pub has_inner_activation: bool,
}

impl LayerKind {
    /// A kind of layer with one hop.
    pub const fn new(make: Make) -> Self {
        Self { make, hops: None, has_inner_norm: false, has_inner_activation: false }
    }

    /// The same kind with the number of hops that the options give.
    #[must_use]
    pub const fn multi_hop(self, hops: Hops) -> Self {
        Self { hops: Some(hops), ..self }
    }

    /// The same kind with batch normalization inside.
    #[must_use]
    pub const fn with_inner_norm(self) -> Self {
        Self { has_inner_norm: true, ..self }
    }

    /// The same kind with the activation inside.
    #[must_use]
    pub const fn with_inner_activation(self) -> Self {
        Self { has_inner_activation: true, ..self }
    }
}

/// Table of the layers.
pub static TABLE: Table<LayerKind> = Table::new(
    "model",
    &[
        Entry {
            name: "sage",
            summary: "GraphSAGE: own row and the neighbours' mean (or max-pool), each with its own weights",
            source: "Hamilton, Ying and Leskovec, NeurIPS 2017, arXiv:1706.02216",
            options: &[OptionGroup::of::<SageOptions>()],
            make: LayerKind::new(sage::make),
        },
        Entry {
            name: "gcn",
            summary: "graph convolution: symmetric-normalized sum with self-loops",
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
            name: "gatv2",
            summary: "graph attention whose scores depend jointly on both ends of an edge",
            source: "Brody, Alon and Yahav, ICLR 2022, arXiv:2105.14491",
            options: &[OptionGroup::of::<GatOptions>()],
            make: LayerKind::new(Gatv2::make),
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
            summary: "MixHop: concatenated powers of GCN's adjacency matrix, up to --hops, each with weights",
            source: "Abu-El-Haija et al., ICML 2019, arXiv:1905.00067",
            options: &[OptionGroup::of::<MixHopOptions>()],
            make: LayerKind::new(MixHop::make).multi_hop(mixhop::hops),
        },
        Entry {
            name: "pinsage",
            summary: "PinSAGE: own row and the neighbours' importance-weighted mean, rows of unit length",
            source: "Ying et al., KDD 2018, arXiv:1806.01973",
            options: &[],
            make: LayerKind::new(PinSage::make).with_inner_activation(),
        },
    ],
);

/// Number of blocks that the layer called `name` reads, each through a separate [`Layer`]. 1 if the
/// name is unknown.
pub fn hops(name: &str, own: &OwnOptions) -> usize {
    TABLE.get(name).and_then(|entry| entry.make.hops).map_or(1, |hops| hops(own))
}

/// Gathers the rows `ids` of a table into `gathered` for a product. The result is sparse if the
/// table is.
pub fn gather_rows(backend: &dyn Backend, table: View, ids: &[NodeId], gathered: &mut Matrix) {
    if table.is_sparse() {
        gathered.gather_sparse(table, ids);
    } else {
        gathered.resize(ids.len(), table.num_cols());
        Gather { src: table, ids, dst: gathered.view_mut() }.run(backend);
    }
}

/// Coefficients that a sampler stored with the edges (an estimator's weights), or `otherwise` if it
/// stored none.
pub fn stored_or(block: &Block, otherwise: EdgeWeight) -> EdgeWeight {
    if block.is_weighted() { EdgeWeight::Stored } else { otherwise }
}
