//! Export of several types as one `.npz` file, which NumPy reads: the arrays of a dataset directory
//! of format 2 (`book/src/reference/dataset-format.md`) under their paths without `.npy`, and the
//! types and tasks as the text `schema.json`.
//!
//! ```text
//! nodes/TYPE/features             and time, keys, ...
//! edges/SRC__NAME__DST/indptr     CSC by destination; indices, weights, time, features
//! tasks/NAME/targets              and train, valid, test, seeds, ...
//! schema.json                     bytes of JSON: names of types, tasks, columns and classes
//! ```

use std::{io, path::Path};

use graphmill_core::{Error, Result};

use super::{ExportOptions, npz::Archive};
use crate::{atomic, typed::TypedDataset};

/// Writes the file `dst`.
pub(super) fn write(data: &TypedDataset, dst: &Path, options: &ExportOptions) -> Result<Vec<String>> {
    atomic::write(dst, |file| {
        let mut archive = Archive::new(file, options.compress);
        let schema = data.each_array(&mut |path, dtype, shape, bytes| {
            archive
                .start(path, dtype, shape)
                .and_then(|()| archive.write(bytes))
                .map_err(|e| Error::io(dst, "write", e))
        });
        let text = serde_json::to_string_pretty(&schema.map_err(io::Error::other)?)?;
        archive.text("schema.json", text.as_bytes())?;
        archive.finish()
    })?;
    let preprocessing = data.preprocessing.as_ref().map(|_| "how columns were encoded, preprocessing.json");
    Ok(preprocessing.into_iter().map(String::from).collect())
}
