//! Parsing of description files: TOML, or JSON by the file name's ending.

use std::{fs, path::Path};

use graphmill_engine::{Error, Result, options};
use serde::de::DeserializeOwned;

/// Parses the file.
///
/// # Errors
/// The file cannot be read or parsed; the error contains the line.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).map_err(|e| Error::io(path, "read", e))?;
    if path.extension().is_some_and(|extension| extension == "json") {
        return serde_json::from_str(&text)
            .map_err(|e| Error::format(path, format!("line {}", e.line()), e.to_string()));
    }
    toml::from_str(&text).map_err(|e| Error::format(path, options::place(&text, &e), e.message()))
}
