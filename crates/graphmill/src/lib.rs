//! Trains graph neural networks on graphs that do not fit the memory of a GPU, or of the machine.
//!
//! From arrays to a trained model and its predictions:
//!
//! ```
//! use graphmill::prelude::*;
//!
//! # fn main() -> graphmill::Result<()> {
//! // two rings of 50 nodes; a node's class is its ring, its features are a constant and a noisy ring
//! let edges = (0..100).map(|v| (v, v / 50 * 50 + (v + 1) % 50));
//! let rows = (0..100).flat_map(|v| [1.0, (v / 50) as f32 + (v * 37 % 11) as f32 / 5.0 - 1.0]);
//! let data = DatasetBuilder::new(100)
//!     .undirected_edges(edges)
//!     .features(2, rows.collect())
//!     .classes((0..100).map(|v| v / 50).collect())
//!     .random_split(0.5, 0.2, 1)
//!     .build()?;
//! let trained = graphmill::train(&TrainConfig { epochs: 20, hidden: 16, ..Default::default() }, &data)?;
//! println!("test accuracy {:.2}", trained.summary().test.score.unwrap_or(0.0));
//! println!("classes {:?}", trained.classes(&data, &[0, 99])?);
//! # assert!(trained.summary().test.score > Some(0.8));
//! # Ok(())
//! # }
//! ```
//!
//! # Map
//!
//! | module | holds | crate |
//! | --- | --- | --- |
//! | [`prelude`] | the names that most programs use | |
//! | [`dataset`] | datasets: arrays, directories, importers, generators, reordering, partitions | `graphmill-data` |
//! | [`loader`] | minibatches: seed orders, samplers, hotness, cache policies, feature tiers | `graphmill-loader` |
//! | [`nn`] | networks: layers, models, losses, optimizers, metrics | `graphmill-nn` |
//! | [`engine`] | training: configuration, strategies, checkpoints, records, inference | `graphmill-engine` |
//! | [`report`] | pages and event files of a run | `graphmill-report` |
//! | [`distributed`] | parts of a graph on several machines | `graphmill-distributed` |
//! | [`graph`] | graphs, blocks, matrices, keyed randomness | `graphmill-core` |
//!
//! Each crate can be used alone: a loader under another framework needs neither models nor
//! training. The examples in the repository, `examples/01-train.rs` to
//! `06-features-beyond-memory.rs`, each add one idea to the program above.
//!
//! # Features
//!
//! | feature | default | adds |
//! | --- | --- | --- |
//! | `cli` | yes | the `graphmill` command; without it a library has fewer dependencies |
//! | `parquet` | yes | Parquet tables, for imports and predictions |
//! | `tables` | yes | `graphmill import tables`: CSV, JSON lines, Parquet, Arrow |
//! | `object-storage` | no | tables in S3, Google Cloud Storage, Azure and on web servers |
//! | `cuda` | yes | NVIDIA devices; their libraries are loaded at run time |
//! | `metis` | with `cli` | the partitioner METIS (compiles its C sources) |
//! | `download` | with `cli` | downloads of public datasets (an HTTP client) |
//! | `mpi` | no | training on several machines over MPI |
//! | `serve` | no | `graphmill serve`: predictions over HTTP |
//! | `testing` | no | conformance tests for samplers, layers, cache policies and strategies of other crates |
//!
//! With the sources in `graphmill/`, `cargo add graphmill --path graphmill/crates/graphmill
//! --no-default-features` adds the library to a program, and `cargo install --path
//! graphmill/crates/graphmill` installs the command.

#![forbid(unsafe_code)]

pub use graphmill_core as graph;
pub use graphmill_data as dataset;
pub use graphmill_distributed as distributed;
pub use graphmill_engine as engine;
pub use graphmill_loader as loader;
pub use graphmill_nn as nn;
pub use graphmill_report as report;

pub use graphmill_engine::{Error, Result, TrainConfig, TrainedModel, fit as train, fit_with as train_with};

/// The names that most programs use: `use graphmill::prelude::*;`.
pub mod prelude {
    pub use graphmill_core::{Block, Features, Graph, Labels, NodeId, Split};
    pub use graphmill_data::{Dataset, DatasetBuilder};
    pub use graphmill_engine::{
        RunContext, RunDir, TrainConfig, TrainedModel,
        observer::Observer,
        predictor::{Answers, LinkPredictor, Neighborhood, Predictor, TopOptions},
        saved::SavedRun,
    };
    pub use graphmill_loader::{
        Extracted, Feature, HopSampler, MiniBatch, MinibatchSampler, Sampled, Seeds, Workspace,
        order::SeedOrder,
    };
    pub use graphmill_nn::{Backend, Layer, Matrix, Model, ModelConfig, Pass};
}

/// Conformance tests for samplers, layers, cache policies and strategies of other crates (feature
/// `testing`). Each takes the row that a crate registers, or the options that name a strategy, and
/// panics with the broken rule.
#[cfg(feature = "testing")]
pub mod testing {
    pub use graphmill_engine::testing::check_strategy;
    pub use graphmill_loader::testing::{check_policy, check_sampler};
    pub use graphmill_nn::testing::conformance::assert_layer as check_layer;
}

/// The program of the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The programs of the tutorials, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../book/src/tutorials/own-arrays.md")]
struct Tutorials;
