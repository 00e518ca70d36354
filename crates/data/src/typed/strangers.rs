//! Files in the directories of a typed dataset that do not belong to it.

use std::{ffi::OsString, fs, io, path::Path};

use super::names::{EDGES, NODES, PREPROCESSING, TASKS, is_known};
use crate::{
    alias_file::is_alias_file,
    verification::{leaves, verified},
};

/// Returns true if a typed dataset has an entry of that name in its directory, beside the manifest.
pub(crate) fn is_own_entry(name: &str) -> bool {
    [NODES, EDGES, TASKS, PREPROCESSING].contains(&name) || verified::is_own_file(name)
}

/// Relative path of a file within the directories of types and tasks in `dir` that no typed dataset
/// has; `None` if there is none.
///
/// # Errors
/// A directory cannot be read.
pub(crate) fn stranger(dir: &Path) -> io::Result<Option<String>> {
    for kind in [NODES, EDGES, TASKS] {
        for directory in entries(&dir.join(kind))? {
            let path = dir.join(kind).join(&directory);
            if !path.is_dir() {
                return Ok(Some(format!("{kind}/{}", directory.to_string_lossy())));
            }
            let is_own = |name: &OsString| {
                name.to_str().is_some_and(|name| {
                    is_known(kind, name)
                        || kind == EDGES && is_alias_file(name)
                        || kind != TASKS && leaves::is_own_file(name)
                })
            };
            // the arrays are files: a directory of that name holds something else
            let is_stranger = |name: &&OsString| !is_own(name) || path.join(name).is_dir();
            if let Some(name) = entries(&path)?.iter().find(is_stranger) {
                let (directory, name) = (directory.to_string_lossy(), name.to_string_lossy());
                return Ok(Some(format!("{kind}/{directory}/{name}")));
            }
        }
    }
    Ok(None)
}

/// Names in a directory; none if it does not exist.
fn entries(dir: &Path) -> io::Result<Vec<OsString>> {
    match fs::read_dir(dir) {
        Ok(entries) => entries.map(|entry| Ok(entry?.file_name())).collect(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}
