//! Tests of dataset files, importers and downloads, one module each. They are one program, because
//! to link a program takes longer than most of them run. `cargo test -p graphmill-data --test main
//! native::` runs one module.

#[cfg(feature = "download")]
mod download;
mod durability;
mod export;
mod native;
#[cfg(feature = "object-storage")]
mod object_storage;
mod real_datasets;
mod real_edges;
#[cfg(any(feature = "download", feature = "object-storage"))]
mod server;
mod typed;
mod typed_import;
