//! Tests of the engine's public parts, one module each. They are one program, because to link a
//! program takes longer than most of them run. Those that count allocations or measure the memory
//! of the process are programs of their own. `cargo test -p graphmill-engine --test main
//! strategies::` runs one module.

mod as_of;
mod class_columns;
mod combinations;
mod common;
mod distributed;
mod edge_features;
mod edge_targets;
mod embedding;
mod event_files;
mod event_targets;
mod events;
mod exact_bottom;
mod exact_bottom_ranks;
mod faults;
mod given_negatives;
mod label_inputs;
mod label_kinds;
mod layered;
mod learned_files;
mod link_positives;
mod link_prediction;
mod link_ranks;
mod link_structure;
mod links;
mod new_events;
mod one_type_rows;
mod options;
mod predictor;
mod preparation;
mod propagation;
#[path = "common/ranks.rs"]
mod ranks;
mod reuse_auto;
mod reuse_memory;
mod reuse_ranks;
#[path = "common/run.rs"]
mod run;
mod saved;
mod scoring_interval;
#[path = "common/set.rs"]
mod set;
mod sparse_ranks;
mod stores;
mod strategies;
mod tiers_over_ranks;
mod timed_links;
mod times;
mod typed;
mod typed_label_inputs;
mod typed_links;
mod typed_precision;
mod typed_predictor;
mod typed_rank_devices;
mod typed_ranks;
mod typed_reuse;
mod typed_rounds;
mod typed_tiers;
mod typed_training;
mod verification;
