//! Known public datasets, and how to get them.
//!
//! - [`catalogue`]: what there is: sizes, files, licences, how each is imported. It is data, `catalogue/*.toml`.
//! - [`download()`]: fetches a dataset's files into a directory: resumed where they broke off, checked against their
//!   SHA-256, unpacked.
//!
//! This crate carries the HTTP client, which nothing else should pay for. It reads no graph.

pub mod catalogue;
mod checksum;
mod download;
mod error;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod http;
mod transfer;
mod unpack;
mod watch;

pub use catalogue::Entry;
pub use download::{Check, Got, Options, Origin, Report, download};
pub use error::{Error, Result};
pub use watch::{Quiet, Watch};
