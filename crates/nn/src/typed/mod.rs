//! Graph neural networks on typed (heterogeneous) graphs: layers over typed blocks, and models.
//!
//! A [`TypedLayer`] turns the source rows of every node type into the destination rows of every
//! node type, over a [`TypedBlock`](graphmill_core::typed::TypedBlock): a sum over relations of
//! the operations that layers of one type use. A [`TypedModel`] projects the features of each type
//! to one width (or learns rows for a type without features), stacks layers, and scores one type.
//!
//! Some layers read a row of features for each edge ([`TypedLayerKind::reads_edges`]).
//!
//! To add a layer, copy `relation_sum.rs`, change its formula, and add a row to [`TABLE`]. The
//! tests compare every row's gradients with finite differences, and its results with plain loops.
//!
//! ```
//! use graphmill_core::typed::{NodeType, Relation, Schema, TypedBlock};
//! use graphmill_nn::{
//!     Matrix, Pass,
//!     backend::Cpu,
//!     typed::{Target, TypedActivations, TypedModel, TypedModelConfig, TypedStep},
//! };
//!
//! let types = vec![NodeType::new("author", 5), NodeType::new("paper", 9)];
//! let schema = Schema::new(types, vec![Relation::new(0, "writes", 1)])?;
//! let config = TypedModelConfig { model: "rgcn".into(), layers: 1, ..TypedModelConfig::default() };
//! // authors have 4 features, papers none; papers have 3 classes
//! let target = Target { node_type: 1, outputs: 3 };
//! let model = TypedModel::new(&config, &schema, &[4, 0], target, 1)?;
//!
//! // one paper with two authors
//! let mut block = TypedBlock::default();
//! block.clear(&schema);
//! (block.num_dst, block.num_src) = (vec![0, 1], vec![2, 1]);
//! block.relations[0].indptr.extend([0, 2]);
//! block.relations[0].indices.extend([0, 1]);
//! block.fit(&schema);
//!
//! let (backend, mut acts) = (Cpu::default(), TypedActivations::default());
//! let pass = Pass { backend: &backend, training: false, key: 0 };
//! let features = [Matrix::zeros(2, 4), Matrix::zeros(1, 0)];
//! let (blocks, nodes) = ([block], [vec![3, 1], vec![8]]);
//! let (features, edges) = (&features[..], &[][..]);
//! let step =
//!     TypedStep { blocks: &blocks, features, edges, nodes: &nodes, num_targets: 1, reused: &[] };
//! model.forward(&pass, &step, &mut acts)?;
//! assert_eq!((acts.logits().num_rows(), acts.logits().num_cols()), (1, 3));
//! # Ok::<(), graphmill_nn::Error>(())
//! ```

#![forbid(unsafe_code)]

mod activations;
mod config;
mod edges;
mod feature_attention;
mod heads;
mod hgt;
mod input;
mod layer;
mod learned_rows;
mod model;
mod occupied;
mod projected;
mod relation_sum;
mod reuse;
mod rgat;
mod rgcn;
mod rsage;
mod simple_hgn;
mod stacked;
mod stage;
mod weights;

pub use activations::TypedActivations;
pub use config::{Target, TypedModelConfig};
pub use edges::RelationEdges;
pub use hgt::Hgt;
pub use layer::{
    CloneTypedLayer, RelationOptions, Scope, TypedGrads, TypedInput, TypedLayer, TypedLayerConfig,
    TypedLayerSpec,
};
pub use learned_rows::LearnedRows;
pub use model::{TypedModel, TypedStep};
pub use projected::{Projected, ProjectionGrad};
pub use relation_sum::RelationSum;
pub use rgat::RGat;
pub use rgcn::RgcnOptions;
pub use simple_hgn::{SimpleHgn, SimpleHgnOptions};
pub use weights::RelationWeights;

use graphmill_core::{
    options::OptionGroup,
    table::{Entry, Table},
};

use crate::{Result, layer::GatOptions};

/// Constructor of a typed layer.
pub type Make = fn(&TypedLayerConfig) -> Result<Box<dyn TypedLayer>>;

/// Capabilities of a kind of typed layer.
#[derive(Clone, Copy, Debug)]
pub struct TypedLayerKind {
    /// Constructor of a layer.
    pub make: Make,
    /// True if a layer can compute scores. The others keep the width of their rows, so the model
    /// needs a head.
    pub can_score: bool,
    /// True if it reads a row of features for each edge.
    pub reads_edges: bool,
}

impl TypedLayerKind {
    const fn new(make: Make) -> Self {
        Self { make, can_score: true, reads_edges: false }
    }

    /// A layer that reads edge features.
    const fn of_edges(make: Make) -> Self {
        Self { reads_edges: true, ..Self::new(make) }
    }
}

/// Options of layers that can leave out own rows.
const RELATION: OptionGroup = OptionGroup::of::<RelationOptions>();
/// Options of attention.
const ATTENTION: OptionGroup = OptionGroup::of::<GatOptions>();

/// Table of the typed layers.
pub static TABLE: Table<TypedLayerKind> = Table::new(
    "typed model",
    &[
        Entry {
            name: "rsage",
            summary: "relational GraphSAGE: the neighbours' mean by each relation with its weights, summed",
            source: "Hamilton, Ying and Leskovec, NeurIPS 2017; MLPerf's and IGB's R-SAGE",
            options: &[RELATION],
            make: TypedLayerKind::new(rsage::make),
        },
        Entry {
            name: "rgcn",
            summary: "R-GCN: relations' means with weights that share bases or are block-diagonal",
            source: "Schlichtkrull et al., ESWC 2018, arXiv:1703.06103",
            options: &[OptionGroup::of::<RgcnOptions>()],
            make: TypedLayerKind::new(rgcn::make),
        },
        Entry {
            name: "rgat",
            summary: "relational graph attention: a GAT for each relation, summed",
            source: "Velickovic et al., ICLR 2018; MLPerf's and IGB's R-GAT",
            options: &[RELATION, ATTENTION],
            make: TypedLayerKind::new(rgat::make),
        },
        Entry {
            name: "hgt",
            summary: "heterogeneous graph transformer: keys, queries and values by type",
            source: "Hu, Dong, Wang and Sun, WWW 2020, arXiv:2003.01332",
            options: &[ATTENTION],
            make: TypedLayerKind { can_score: false, ..TypedLayerKind::new(hgt::make) },
        },
        Entry {
            name: "simple-hgn",
            summary: "Simple-HGN: graph attention with a learned vector for each relation, and residuals",
            source: "Lv et al., KDD 2021, arXiv:2112.14936",
            options: &[ATTENTION, OptionGroup::of::<SimpleHgnOptions>()],
            make: TypedLayerKind::new(simple_hgn::make),
        },
        Entry {
            name: "gine",
            summary: "GINE: an MLP on own row and the sum of relu(neighbour + edge features)",
            source: "Hu et al., ICLR 2020, arXiv:1905.12265",
            options: &[],
            make: TypedLayerKind { can_score: false, ..TypedLayerKind::of_edges(edges::gine) },
        },
        Entry {
            name: "gatv2-edge",
            summary: "GATv2 with edge features: attention to both ends and the edge",
            source: "Brody, Alon and Yahav, ICLR 2022, arXiv:2105.14491",
            options: &[ATTENTION],
            make: TypedLayerKind::of_edges(edges::gatv2),
        },
        Entry {
            name: "sage-edge",
            summary: "GraphSAGE over neighbours' rows joined with the features of their edges",
            source: "Hamilton, Ying and Leskovec, NeurIPS 2017, arXiv:1706.02216",
            options: &[],
            make: TypedLayerKind::of_edges(edges::sage),
        },
        Entry {
            name: "edge-gated",
            summary: "residual gated convolution: neighbours' rows gated by both ends and the edge",
            source: "Bresson and Laurent, 2017, arXiv:1711.07553",
            options: &[],
            make: TypedLayerKind::of_edges(edges::gated),
        },
    ],
);
