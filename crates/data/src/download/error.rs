//! Errors of downloads: each message states what failed, where, and how to fix it.

use std::path::{Path, PathBuf};

use graphmill_core::progress::Progress;

/// Reason why a dataset was not found or not fetched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The dataset name is unknown.
    #[error("unknown dataset '{name}'{}; known: \
        {known}", near.as_ref().map_or(String::new(), |near| format!(", did you mean '{near}'?")))]
    Unknown {
        /// Requested name.
        name: String,
        /// Closest known name, if one is similar.
        near: Option<String>,
        /// All known names, joined by ", ".
        known: String,
    },
    /// The host offers no address that a program could fetch.
    #[error("{name} cannot be fetched from here: {how}")]
    Manual {
        /// Name of the dataset.
        name: String,
        /// Manual instructions.
        how: String,
    },
    /// The server responded, but not with the file.
    #[error("{url}: {message}")]
    Refused {
        /// Requested address.
        url: String,
        /// Response and its likely cause.
        message: String,
    },
    /// The server did not respond, or the connection broke and retries failed.
    #[error("{url}: {message}; the received data is kept; run the same command again to resume")]
    Broken {
        /// Requested address.
        url: String,
        /// Description of the failure.
        message: String,
    },
    /// A file differs from the expected one.
    #[error("{path}: {message}")]
    Wrong {
        /// Path of the file.
        path: PathBuf,
        /// Actual and expected property, and the remedy.
        message: String,
    },
    /// The disk has too little free space.
    #[error(
        "{path}: {needed} bytes are needed, but {free} are free; free some space, or name a directory on \
         another disk"
    )]
    Space {
        /// Path of the directory.
        path: PathBuf,
        /// Bytes still to be written.
        needed: u64,
        /// Available bytes.
        free: u64,
    },
    /// The download was cancelled.
    #[error("interrupted; the received data is kept; run the same command again to resume")]
    Interrupted,
    /// An operation on files failed.
    #[error(transparent)]
    Graph(#[from] graphmill_core::Error),
}

/// Result type of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Creates an error of the operating system.
    pub(crate) fn io(path: impl AsRef<Path>, action: &'static str, source: std::io::Error) -> Self {
        graphmill_core::Error::io(path, action, source).into()
    }

    /// Creates an error about a file with unexpected contents.
    pub(crate) fn wrong(path: impl AsRef<Path>, message: impl Into<String>) -> Self {
        Self::Wrong { path: path.as_ref().to_path_buf(), message: message.into() }
    }

    /// Creates an error about an unexpected response.
    pub(crate) fn refused(url: &str, message: impl Into<String>) -> Self {
        Self::Refused { url: url.to_string(), message: message.into() }
    }

    /// Returns an error if the download was cancelled; unlike other work, a cancelled download
    /// keeps its files for the next run.
    pub(crate) fn check(progress: &dyn Progress) -> Result<()> {
        if progress.is_stopped() { Err(Self::Interrupted) } else { Ok(()) }
    }

    /// Returns true if the error is a usage error, rather than a failure.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Unknown { .. })
    }
}
