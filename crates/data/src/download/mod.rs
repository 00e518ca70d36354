//! Catalogue of public datasets and their downloader.
//!
//! - [`catalogue`]: sizes, files, licences and import options of the datasets, as data in
//!   `catalogue/*.toml`.
//! - [`download()`]: fetches a dataset's files into a directory: resumable, verified by SHA-256,
//!   unpacked.
//!
//! Both report to a [`Progress`](graphmill_core::progress::Progress), which may cancel them.
//!
//! This module contains the HTTP client and is therefore a feature (`download`). It reads no
//! graphs.

pub mod catalogue;
mod checksum;
mod error;
mod fetch;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod http;
mod options;
mod transfer;
mod unpack;

pub use catalogue::Entry;
pub use error::{Error, Result};
pub use fetch::{Check, Got, Origin, Report, download};
pub use options::Options;
