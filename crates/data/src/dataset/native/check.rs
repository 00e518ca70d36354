//! Check that a target directory holds nothing but a dataset to replace.

use std::{fs, path::Path};

use graphmill_core::{Error, Result};

use super::names::is_known;
use crate::{
    alias_file::is_alias_file, atomic::suffixed, bottom_hop::is_bottom_file, dataset::manifest,
    external::remove_left, typed, verification::leaves,
};

/// Returns true if `dir` holds a dataset that may be replaced. Saving repeats this check; a check
/// before a long import avoids wasted work. If the dataset may not be replaced, the scratch
/// directory of a process that was killed just after it had written the dataset is removed.
///
/// # Errors
/// The directory holds a dataset and `replace` is not set, or anything else.
pub fn check_target(dir: &Path, replace: bool) -> Result<bool> {
    let names = match fs::read_dir(dir) {
        Ok(entries) => entries.map(|entry| entry.map(|e| e.file_name())).collect::<Result<Vec<_>, _>>(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(e) if e.kind() == std::io::ErrorKind::NotADirectory => {
            return Err(Error::format(
                dir,
                "directory",
                "this is a file; choose another name for the directory",
            ));
        }
        Err(e) => Err(e),
    };
    let names = names.map_err(|e| Error::io(dir, "look into", e))?;
    if names.is_empty() {
        return Ok(false);
    }
    let refuse = |message: String| Err(Error::format(dir, "directory", message));
    if !names.iter().any(|name| name == manifest::FILE_NAME) {
        return refuse(
            "it is not empty and does not hold a Graphmill dataset; choose another directory (nothing was \
             written)"
                .into(),
        );
    }
    let ours = |name: &str| {
        name == manifest::FILE_NAME
            || is_known(name)
            || is_alias_file(name)
            || is_bottom_file(name)
            || leaves::is_own_file(name)
            || typed::is_own_entry(name)
    };
    let name = names.iter().find(|name| !name.to_str().is_some_and(ours));
    let name = match name {
        Some(name) => Some(name.to_string_lossy().into_owned()),
        None => typed::stranger(dir).map_err(|e| Error::io(dir, "look into", e))?,
    };
    if let Some(name) = name {
        return refuse(format!(
            "besides a dataset it holds '{name}'; move that file away before replacing the dataset"
        ));
    }
    if !replace {
        for suffix in [".importing", ".generating", ".reordering"] {
            remove_left(&suffixed(dir, suffix), true);
        }
        remove_left(&suffixed(dir, ".exporting"), false);
        return refuse(
            "it already holds a dataset; replace it with --force, or choose another directory".into(),
        );
    }
    Ok(true)
}
