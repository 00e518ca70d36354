//! JSON files: mapped rather than read, and faults with their line.

use std::path::Path;

use graphmill_core::{Buffer, Error, Result};

/// The text at `path`, which takes no memory of its own.
pub(super) fn map(path: &Path) -> Result<Buffer<u8>> {
    let file = std::fs::File::open(path).map_err(|e| Error::io(path, "open", e))?;
    let size = file.metadata().map_err(|e| Error::io(path, "read the size of", e))?.len();
    Buffer::map(&file, path, 0, size as usize)
}

/// A JSON error at its line and column.
pub(super) fn error(path: &Path, error: &serde_json::Error) -> Error {
    Error::format(path, format!("line {} column {}", error.line(), error.column()), error.to_string())
}
