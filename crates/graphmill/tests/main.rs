//! Tests of the command and of the library, one module each. They are one program, because to link
//! a program takes longer than most of them run. Those over MPI are a program of their own. `cargo
//! test -p graphmill --test main resume::` runs one module.

#[cfg(feature = "tables")]
mod append;
mod bench;
#[cfg(feature = "tables")]
mod class_columns;
#[cfg(feature = "serve")]
mod client;
mod commands;
mod common;
mod cuda;
mod cuda_types;
mod datasets;
mod determinism;
mod embedding;
mod errors;
mod events;
mod examples;
#[cfg(target_os = "linux")]
mod fatal;
#[cfg(target_os = "linux")]
mod first_day;
mod import;
mod learned_rows;
mod links;
#[cfg(feature = "tables")]
mod new_candidates;
#[cfg(feature = "tables")]
mod new_nodes;
#[cfg(feature = "object-storage")]
mod object_storage;
mod partition;
mod plan;
#[cfg(feature = "tables")]
mod relbench;
mod reorder;
#[cfg(unix)]
mod resume;
mod serve;
#[cfg(feature = "serve")]
mod serve_columns;
#[cfg(feature = "serve")]
mod serve_events;
#[cfg(feature = "serve")]
mod serve_limits;
#[cfg(feature = "serve")]
mod serve_links;
#[cfg(feature = "serve")]
mod serve_new_nodes;
#[cfg(feature = "serve")]
mod serve_types;
#[path = "../../data/tests/server/mod.rs"]
mod server;
#[cfg(unix)]
mod stops;
#[cfg(unix)]
mod sweep;
#[cfg(feature = "tables")]
mod tables;
#[cfg(feature = "tables")]
mod target_transforms;
#[cfg(feature = "tables")]
mod targets;
mod terminal;
mod tiers;
mod typed;
mod typed_import;
mod view;
