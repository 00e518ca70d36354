//! Errors of downloads: each message says what failed, where, and how to fix it.

use std::path::{Path, PathBuf};

use graphmill_core::progress::Progress;

/// Why a dataset was not found or not fetched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No dataset of that name.
    #[error("unknown dataset '{name}'{}; known: {known}", near.as_ref().map_or(String::new(), |near| format!(", did you mean '{near}'?")))]
    Unknown {
        /// What was asked for.
        name: String,
        /// The known name that is closest, where one is close.
        near: Option<String>,
        /// All known names, joined by ", ".
        known: String,
    },
    /// Its host gives no address that a program could fetch.
    #[error("{name} cannot be fetched from here: {how}")]
    Manual {
        /// The dataset.
        name: String,
        /// What a person has to do.
        how: String,
    },
    /// The server answered, but not with the file.
    #[error("{url}: {message}")]
    Refused {
        /// What was asked for.
        url: String,
        /// The answer and what it may mean.
        message: String,
    },
    /// No answer, or it broke off and trying again did not help.
    #[error("{url}: {message}; what came so far is kept, the same command goes on from there")]
    Broken {
        /// What was asked for.
        url: String,
        /// What happened.
        message: String,
    },
    /// A file is not what it should be.
    #[error("{path}: {message}")]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What was found, what was expected and what to do.
        message: String,
    },
    /// The disk has no room for it.
    #[error(
        "{path}: {needed} bytes are needed and {free} are free: make room, or name a directory on another disk"
    )]
    Space {
        /// The directory.
        path: PathBuf,
        /// Bytes that are still to be written.
        needed: u64,
        /// Bytes that may be written.
        free: u64,
    },
    /// Someone asked to stop.
    #[error("interrupted; what came so far is kept, the same command goes on from there")]
    Interrupted,
    /// The operating system refused something.
    #[error(transparent)]
    Graph(#[from] graphmill_core::Error),
}

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The operating system refused something.
    pub(crate) fn io(path: impl AsRef<Path>, action: &'static str, source: std::io::Error) -> Self {
        graphmill_core::Error::io(path, action, source).into()
    }

    /// A file is not what it should be.
    pub(crate) fn wrong(path: impl AsRef<Path>, message: impl Into<String>) -> Self {
        Self::Wrong { path: path.as_ref().to_path_buf(), message: message.into() }
    }

    /// The server answered, but not with the file.
    pub(crate) fn refused(url: &str, message: impl Into<String>) -> Self {
        Self::Refused { url: url.to_string(), message: message.into() }
    }

    /// Ends a download early if that was asked for; unlike other work it leaves its files for the next run.
    pub(crate) fn check(progress: &dyn Progress) -> Result<()> {
        if progress.is_stopped() { Err(Self::Interrupted) } else { Ok(()) }
    }

    /// Whether the user wrote something wrong, as opposed to something having failed.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Unknown { .. })
    }
}
