//! Known public datasets, and how to get them.
//!
//! - [`catalogue`]: what there is: sizes, files, licences, how each is imported. It is data, `catalogue/*.toml`.
//! - [`download()`]: fetches a dataset's files into a directory: resumed where they broke off, checked against their
//!   SHA-256, unpacked.
//!
//! Both report to a [`Progress`](graphmill_core::progress::Progress), which may cancel them.
//!
//! This module carries the HTTP client, which is why it is a feature (`download`). It reads no graph.

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
