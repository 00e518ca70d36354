//! Temporary directory, removed with its contents when it is dropped.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use graphmill_core::Error;

use crate::Result;

/// Number of directories that this process created.
static CREATED: AtomicU64 = AtomicU64::new(0);

/// A new directory in the system's directory of temporary files.
pub(super) struct ScratchDir(PathBuf);

impl ScratchDir {
    /// Creates the directory.
    ///
    /// # Errors
    /// It cannot be created.
    pub(super) fn create() -> Result<Self> {
        loop {
            let number = CREATED.fetch_add(1, Relaxed);
            let path = std::env::temp_dir().join(format!("graphmill-new-{}-{number}", process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self(path)),
                // A killed process of the same id left it: in a container, ids repeat.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(Error::io(&path, "create", e).into()),
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // A remainder in the directory of temporary files does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}
