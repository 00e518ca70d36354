//! Models that are tables of embeddings, and their options.

use std::ops::Bound;

use clap::Args;
use graphmill_core::{
    options::{Fault, OptionGroup, OptionSet, range},
    table::{Entry, Table},
};
use graphmill_nn::{
    link::{loss::LinkLossOptions, table::regularizer},
    optim::rows,
};
use serde::{Deserialize, Serialize};

use super::{TrainConfig, link::LinkOptions, stored_tasks::manifest};

/// A kind of model whose parameters are a row for each node.
#[derive(Clone, Copy, Debug)]
pub struct TableModel {
    /// True if rows are propagated over the training edges.
    pub propagates: bool,
}

/// Option groups of these models.
pub const OPTIONS: &[OptionGroup] = &[
    OptionGroup::of::<LinkOptions>(),
    OptionGroup::of::<LinkLossOptions>(),
    OptionGroup::of::<EmbeddingOptions>(),
];

/// Table of these models.
pub static TABLE: Table<TableModel> = Table::new(
    "table model",
    &[
        Entry {
            name: "embedding",
            summary: "a row for each node: knowledge graphs, matrix factorization and, by walks, node2vec",
            source: "Bordes et al., NeurIPS 2013; Koren, Bell and Volinsky, Computer 2009; Grover and \
                     Leskovec, KDD 2016",
            options: OPTIONS,
            make: TableModel { propagates: false },
        },
        Entry {
            name: "lightgcn",
            summary: "LightGCN: a row for each user and item, propagated over the training edges",
            source: "He et al., SIGIR 2020, arXiv:2002.02126",
            options: OPTIONS,
            make: TableModel { propagates: true },
        },
    ],
);

/// Options of tables of embeddings, beside those of links.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EmbeddingOptions {
    /// Constant from which --decoder transe and rotate subtract distances.
    ///
    /// It also bounds their initial rows. Example: --gamma 9.
    #[arg(long, value_name = "X")]
    pub gamma: f64,
    /// Norm of the distance of --decoder transe: 1 or 2.
    #[arg(long, value_name = "N")]
    pub distance_norm: usize,
    /// Optimiser of rows: adam or adagrad.
    ///
    /// An update changes only the rows of its batch. Adagrad takes a larger --lr. Example:
    /// --row-optimizer adagrad --lr 0.1.
    #[arg(long, value_name = "NAME")]
    pub row_optimizer: String,
    /// Penalty of the rows of a batch: l2 or n3.
    ///
    /// L2 is that of BPR and LightGCN, n3 that of ComplEx. Needs --regularization.
    #[arg(long, value_name = "NAME")]
    pub regularizer: String,
    /// Factor of the penalty; 0 for none.
    ///
    /// The penalty is a mean over the edges of a batch. Example: --regularization 1e-4.
    #[arg(long, value_name = "X")]
    pub regularization: f64,
    /// Standard deviation of initial rows; 0 for that of the papers.
    ///
    /// The papers': 0.1 for dot and cosine, 0.001 for distmult and complex, and uniform values that
    /// depend on --gamma for transe and rotate.
    #[arg(long, value_name = "X")]
    pub init_scale: f64,
    /// Compare each edge with all candidates instead of negatives.
    ///
    /// The loss is the cross-entropy over all nodes, by dense products. For decoders that are
    /// products and for graphs of at most some hundred thousand nodes.
    #[arg(long)]
    pub one_vs_all: bool,
    /// Weigh edges of frequent ends less, as RotatE does.
    ///
    /// The weight is the root of the reciprocal number of edges with the same relation and end.
    #[arg(long)]
    pub subsampling: bool,
    /// Buckets of rows, of which an update uses those of two.
    ///
    /// Set it with --host-budget for rows that exceed the memory. Edges are then visited by pairs
    /// of buckets, and negatives are drawn from the bucket of the end that they replace. Range: 1
    /// to 1024.
    #[arg(long, value_name = "N")]
    pub buckets: usize,
}

impl Default for EmbeddingOptions {
    fn default() -> Self {
        Self {
            gamma: 12.0,
            distance_norm: 1,
            row_optimizer: "adam".into(),
            regularizer: "l2".into(),
            regularization: 0.0,
            init_scale: 0.0,
            one_vs_all: false,
            subsampling: false,
            buckets: 1,
        }
    }
}

impl OptionSet for EmbeddingOptions {
    fn check(&self) -> Result<(), Fault> {
        let named = |option: &str, found: graphmill_core::Result<()>| {
            found.map_err(|error| Fault { option: Some(option.into()), message: error.to_string() })
        };
        named("row_optimizer", rows::TABLE.find(&self.row_optimizer).map(drop))?;
        named("regularizer", regularizer::TABLE.find(&self.regularizer).map(drop))?;
        range("gamma", self.gamma, (Bound::Excluded(0.0), Bound::Included(1e6)))?;
        range("distance_norm", self.distance_norm, 1..=2)?;
        range("regularization", self.regularization, 0.0..=1e6)?;
        range("init_scale", self.init_scale, 0.0..=1e3)?;
        range("buckets", self.buckets, 1..=1024)
    }

    fn unused(&self, option: &str) -> Option<String> {
        (option == "regularizer" && self.regularization == 0.0)
            .then(|| "--regularization is 0; set --regularization, or leave it out".into())
    }
}

/// The kind of model, if it is a table.
pub fn kind(config: &TrainConfig) -> Option<TableModel> {
    TABLE.get(&config.model).map(|entry| entry.make)
}

/// Returns true if the dataset stores a link task.
pub(crate) fn has_link_task(config: &TrainConfig) -> bool {
    manifest(config).is_some_and(|manifest| {
        let mut tasks = manifest["tasks"].as_array().into_iter().flatten();
        tasks.any(|task| task["kind"] == "link-prediction")
    })
}

/// Returns true if the run trains a table of embeddings.
pub fn is_table(config: &TrainConfig) -> bool {
    kind(config).is_some()
}
