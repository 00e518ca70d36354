//! Training engine: configuration, stages, strategies, the trainer, full-neighbour inference,
//! checkpoints and records. Read [`trainer`] first.
//!
//! ```
//! use graphmill_data::generate::{GenerateOptions, generate};
//! use graphmill_engine::{TrainConfig, fit};
//!
//! let data = generate("sbm", &GenerateOptions { nodes: 300, dim: 8, ..GenerateOptions::default() })?;
//! let trained = fit(&TrainConfig { epochs: 2, hidden: 16, ..TrainConfig::default() }, &data)?;
//! assert_eq!(trained.summary().epochs.len(), 2);
//! # Ok::<(), graphmill_engine::Error>(())
//! ```
//!
//! Modules, the basic ones first:
//!
//! | module | contents |
//! | --- | --- |
//! | [`error`], [`machine`], `accelerator` | the error type; cores, devices and their memory; NVIDIA devices |
//! | [`doctor`] | examination of the machine: what runs can use |
//! | [`config`], [`build`], [`memory`] | options, the components that they name, and memory estimates |
//! | `cache_kind`, `bottom` | the two kinds of cache that a name means; stored aggregates in the last hop |
//! | [`label_inputs`], `edge_rows` | labels of training nodes as columns of input rows; edges as rows of a task |
//! | [`record`], [`checkpoint`] | files of a run |
//! | `verification` | checksums of features: when they are checked, and what of them was |
//! | [`inference`], [`propagation`] | scores from all neighbours, layer by layer; labels and errors that spread over edges |
//! | [`link`] | edges to learn, their loss, and the evaluation of rankings |
//! | `versions` | versions of the parameters that devices read which train together |
//! | [`stages`], [`reuse`] | order, sample, extract and train of a minibatch; rows shared between minibatches |
//! | [`hotness`], [`node_order`], [`tiers`] | frequently read feature rows, orders of nodes, and the memory tiers that hold rows |
//! | [`distributed`] | training over ranks, each with a part of the graph |
//! | [`strategy`] | assignment of stages to workers and devices, and their lookahead |
//! | [`options`] | options by name: reading, writing, checks, and refusal of unused ones |
//! | [`run`], [`trainer`] | a run from its first epoch to its summary |
//! | `batchwise`, `relational` | what [`typed`], [`events`] and [`embedding`] share: the loop of a run of one batch after the other; links by relation |
//! | [`typed`] | training on several node and edge types |
//! | [`embedding`] | training of tables of embeddings |
//! | [`events`] | training on streams of events |
//! | [`AnyDataset`], [`sweep`] | training on datasets of any kind; many runs, of which the better ones go on |
//! | [`saved`], `any_run` | commands on saved runs, and on those of any kind |
//! | [`trained`] | training in one call, and the trained model in memory |
//! | [`partition`], [`mod@bench`] | commands on partitions and machines |

mod accelerator;
mod any_dataset;
mod any_run;
mod batchwise;
pub mod bench;
mod bottom;
pub mod build;
mod cache_kind;
pub mod checkpoint;
pub mod config;
pub mod distributed;
pub mod doctor;
mod edge_rows;
pub mod embedding;
pub mod error;
pub mod events;
#[cfg(feature = "fuzz")]
pub mod fuzz;
pub mod hotness;
pub mod inference;
pub mod label_inputs;
pub mod link;
pub mod machine;
pub mod memory;
pub mod node_order;
pub mod options;
pub mod partition;
pub mod propagation;
pub mod record;
mod relational;
pub mod reuse;
pub mod run;
pub mod saved;
pub mod stages;
pub mod strategy;
pub mod sweep;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tiers;
pub mod trained;
pub mod trainer;
pub mod typed;
mod verification;
mod versions;

pub use any_dataset::AnyDataset;
pub use any_run::CandidateOptions;
pub use build::open_dataset;
pub use config::TrainConfig;
pub use error::{Error, Result};
pub use graphmill_data::Dataset;
pub use machine::{cores, device};
pub use record::{RunDir, timeline};
pub use run::{loss_alarm::LossAlarm, observer};
pub use saved::{EmbedOptions, predictions, predictor};
pub use stages::{learner, loader as stage};
pub use strategy::allocate;
pub use trained::{TrainedModel, fit, fit_with};
pub use trainer::{RunContext, train};
