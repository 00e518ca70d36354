//! The one error type of this crate: each message names the thing, the place and the mend.

use std::path::{Path, PathBuf};

/// What went wrong with a graph, a dataset or a file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused something.
    #[error("{path}: cannot {action}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was tried: "open", "read", "write", ...
        action: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{path}: {place}: {message}")]
    Format {
        /// The file.
        path: PathBuf,
        /// Where in it: a line, a member, a field, a byte offset.
        place: String,
        /// What was found and what was expected.
        message: String,
    },
    /// Two things that must agree do not, or a value is outside its range.
    #[error("{0}")]
    Invalid(String),
    /// Another process of the same run did not do its part.
    #[error("rank {rank}: {message}")]
    Peer {
        /// Which one.
        rank: usize,
        /// What it did or did not do, and what to look at.
        message: String,
    },
    /// A device failed, or its memory is full.
    #[error("{0}")]
    Device(String),
    /// Whoever watched the work asked it to end.
    #[error("stopped before the end; what was made so far is removed")]
    Stopped,
    /// A name that no table holds.
    #[error("unknown {axis} '{name}'; known: {known}")]
    Unknown {
        /// What kind of name: "format", "generator", ...
        axis: &'static str,
        /// What was asked for.
        name: String,
        /// The known names, joined by ", ".
        known: String,
    },
}

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Wraps an I/O error with the file and what was tried.
    pub fn io(path: impl AsRef<Path>, action: &'static str, source: std::io::Error) -> Self {
        Self::Io { path: path.as_ref().to_path_buf(), action, source }
    }

    /// A damaged or unexpected file.
    pub fn format(path: impl AsRef<Path>, place: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Format { path: path.as_ref().to_path_buf(), place: place.into(), message: message.into() }
    }

    /// A value out of range or two values that disagree.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(message.into())
    }
}
