//! Check that a target directory holds nothing but a dataset to replace.

use std::{fs, path::Path};

use graphmill_core::{Error, Result};

use super::names::is_known;
use crate::{
    alias_file::is_alias_file,
    atomic::suffixed,
    bottom_hop::file::is_bottom_file,
    dataset::manifest::{self, Manifest},
    external::remove_left,
    signed::version_in,
    typed,
    verification::leaves,
};

/// Returns true if `dir` holds a dataset that may be replaced: its manifest is one of a dataset, of
/// any version, and its other entries are the files of one. Saving repeats this check; a check
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
    let mut names = names.map_err(|e| Error::io(dir, "look into", e))?;
    names.sort_unstable();
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
    if version_in::<Manifest>(dir).is_none() {
        return refuse(format!(
            "its {} is not the manifest of a Graphmill dataset; choose another directory, or remove this one \
             yourself (nothing was written)",
            manifest::FILE_NAME
        ));
    }
    let is_ours = |name: &str| {
        name == manifest::FILE_NAME
            || is_known(name)
            || is_alias_file(name)
            || is_bottom_file(name)
            || leaves::is_own_file(name)
            || typed::is_own_entry(name)
    };
    // the arrays are files: a directory of that name holds something else
    let is_entry = |name: &str| typed::is_own_entry(name) || !dir.join(name).is_dir();
    let name = names.iter().find(|name| !name.to_str().is_some_and(|name| is_ours(name) && is_entry(name)));
    let name = match name {
        Some(name) => Some(name.to_string_lossy().into_owned()),
        None => typed::stranger(dir).map_err(|e| Error::io(dir, "look into", e))?,
    };
    if let Some(name) = name {
        return refuse(format!(
            "besides a dataset it holds '{name}'; move that away before replacing the dataset"
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dataset, generate};

    /// A dataset in a new directory.
    fn saved() -> (tempfile::TempDir, std::path::PathBuf) {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("data");
        let options = generate::GenerateOptions { nodes: 50, dim: 2, ..Default::default() };
        let data: Dataset = generate::generate("sbm", &options).unwrap();
        data.save(&dir).unwrap();
        (parent, dir)
    }

    #[test]
    fn directories_that_are_no_dataset_are_never_replaced() {
        let (_parent, dir) = saved();
        assert!(check_target(&dir, true).unwrap());
        let manifest = fs::read_to_string(dir.join(manifest::FILE_NAME)).unwrap();
        for text in ["{}", "[]", "not JSON", &manifest.replace(manifest::FORMAT, "something-else")] {
            fs::write(dir.join(manifest::FILE_NAME), text).unwrap();
            let error = check_target(&dir, true).unwrap_err().to_string();
            assert!(error.contains("is not the manifest of a Graphmill dataset"), "{text}: {error}");
        }
        // a dataset of a later version may be replaced
        fs::write(dir.join(manifest::FILE_NAME), manifest.replace("\"version\": 1", "\"version\": 7"))
            .unwrap();
        assert!(check_target(&dir, true).unwrap());
    }

    #[test]
    fn directories_with_the_name_of_an_array_are_never_replaced() {
        let (_parent, dir) = saved();
        fs::remove_file(dir.join("test.npy")).unwrap();
        fs::create_dir(dir.join("test.npy")).unwrap();
        fs::write(dir.join("test.npy").join("diary.txt"), "mine").unwrap();
        let error = check_target(&dir, true).unwrap_err().to_string();
        assert!(error.contains("besides a dataset it holds 'test.npy'"), "{error}");
    }
}
