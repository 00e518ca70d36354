//! Mapping of JSON files, and errors with their line.

use std::path::Path;

use graphmill_core::{Buffer, Error, Result};

/// Maps the text at `path` without copying it.
pub(crate) fn map(path: &Path) -> Result<Buffer<u8>> {
    let file = std::fs::File::open(path).map_err(|e| Error::io(path, "open", e))?;
    let size = file.metadata().map_err(|e| Error::io(path, "read the size of", e))?.len();
    Buffer::map(&file, path, 0, size as usize)
}

/// Converts a JSON error to one with line and column.
pub(crate) fn error(path: &Path, error: &serde_json::Error) -> Error {
    Error::format(path, format!("line {} column {}", error.line(), error.column()), error.to_string())
}
