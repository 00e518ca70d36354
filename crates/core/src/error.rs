//! Error type of this crate: each message states what failed, where, and how to fix it.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

/// Failure concerning a graph, a dataset or a file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused an operation.
    #[error("{path}: cannot {action}: {source}")]
    Io {
        /// Path of the file or directory.
        path: PathBuf,
        /// Attempted operation: "open", "read", "write", ...
        action: &'static str,
        /// Error of the system.
        source: std::io::Error,
    },
    /// A file has unexpected contents.
    #[error("{path}: {place}: {message}")]
    Format {
        /// Path of the file.
        path: PathBuf,
        /// Position in the file: a line, a member, a field, a byte offset.
        place: String,
        /// Actual and expected contents.
        message: String,
    },
    /// Two values are inconsistent, or a value is out of range.
    #[error("{0}")]
    Invalid(String),
    /// The system refused memory.
    #[error("{0}")]
    Memory(String),
    /// Another process of the same run failed.
    #[error("rank {rank}: {message}")]
    Peer {
        /// Number of the rank.
        rank: usize,
        /// Description of the failure, and its likely cause.
        message: String,
    },
    /// A device failed, or its memory is exhausted.
    #[error("{0}")]
    Device(String),
    /// The work was cancelled.
    #[error("stopped before the end; partial results are removed")]
    Stopped,
    /// A name is not in its table.
    #[error("unknown {axis} '{name}'{}; known: {known}", suggestion(name, known))]
    Unknown {
        /// Kind of name: "format", "generator", ...
        axis: &'static str,
        /// Requested name.
        name: String,
        /// Known names, joined by ", ".
        known: String,
    },
}

/// The name among `known` that `name` most likely misspells.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let score = |known: &'a str| (strsim::jaro_winkler(name, known), known);
    let best = known.into_iter().map(score).max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 > 0.75).then_some(best.1)
}

/// Question for the nearest name of `known`, which are joined by ", "; empty if none is near.
pub fn suggestion(name: &str, known: &str) -> String {
    let near = nearest(name, known.split(", "));
    near.map_or_else(String::new, |near| format!(", did you mean '{near}'?"))
}

/// Result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Wraps an I/O error with the path and the attempted operation.
    pub fn io(path: impl AsRef<Path>, action: &'static str, source: std::io::Error) -> Self {
        Self::Io { path: path.as_ref().to_path_buf(), action, source }
    }

    /// Creates an error about a damaged or unexpected file.
    pub fn format(path: impl AsRef<Path>, place: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Format { path: path.as_ref().to_path_buf(), place: place.into(), message: message.into() }
    }

    /// Creates an error about a value out of range or inconsistent values.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(message.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_suggest_the_nearest_one() {
        let message = |name: &str, known: &str| {
            Error::Unknown { axis: "sampler", name: name.into(), known: known.into() }.to_string()
        };
        assert_eq!(
            message("neighbour", "neighbor, full"),
            "unknown sampler 'neighbour', did you mean 'neighbor'?; known: neighbor, full"
        );
        assert_eq!(message("zzz", "neighbor, full"), "unknown sampler 'zzz'; known: neighbor, full");
        assert_eq!(message("zzz", ""), "unknown sampler 'zzz'; known: ");
    }
}
