//! Creation of directories that survive a loss of power.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

use graphmill_core::{Error, Result};

use super::{Disk, Real, disk::parent, sync_dir};

/// Creates the directory `path` and its missing ancestors, and makes their names durable.
///
/// # Errors
/// One cannot be created, or its parent cannot be synced.
pub fn create_dirs(disk: &mut impl Disk, path: &Path) -> Result<()> {
    missing(path).into_iter().try_for_each(|dir| create(disk, dir).and_then(|()| sync_dir(disk, parent(dir))))
}

/// Missing directories on the path, the uppermost first.
fn missing(path: &Path) -> Vec<&Path> {
    let named = |dir: &&Path| !dir.as_os_str().is_empty();
    let mut missing: Vec<_> = path.ancestors().take_while(named).take_while(|dir| !dir.is_dir()).collect();
    missing.reverse();
    missing
}

/// Creates a directory, unless another process was faster.
fn create(disk: &mut impl Disk, dir: &Path) -> Result<()> {
    match disk.create_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        created => created.map_err(|e| Error::io(dir, "create the directory", e)),
    }
}

/// Directories made below a fresh directory, whose entries become durable together before it is
/// moved into place.
#[derive(Debug, Default)]
pub(crate) struct Directories(BTreeSet<PathBuf>);

impl Directories {
    /// Creates the directory `path` with its missing ancestors.
    ///
    /// # Errors
    /// One cannot be created.
    pub(crate) fn create(&mut self, path: &Path) -> Result<()> {
        for dir in missing(path) {
            create(&mut Real, dir)?;
            self.0.insert(dir.to_path_buf());
        }
        Ok(())
    }

    /// Syncs the directories, the lowest first. All of their files must have been written.
    ///
    /// # Errors
    /// One cannot be synced.
    pub(crate) fn sync(&self) -> Result<()> {
        self.0.iter().rev().try_for_each(|dir| sync_dir(&mut Real, dir))
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{CrashingDisk, ForgettingDisk},
        *,
    };

    #[test]
    fn made_directories_survive_a_loss_of_power() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b/c");
        let make = || create_dirs(&mut Real, &path).unwrap();
        let disk = ForgettingDisk::record(root.path(), make).unwrap();
        assert!(disk.is_durable("a").unwrap());
        assert!(!disk.ignoring_syncs().is_durable("a").unwrap(), "the test notices a missing sync");
        // nothing is missing: no step is left to fail
        create_dirs(&mut CrashingDisk(0), &path).unwrap();
        assert!(path.is_dir());
    }

    #[test]
    fn a_file_in_the_way_is_named() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = create_dirs(&mut Real, &file.join("below/it")).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}: cannot create the directory: ", file.display())), "{error}");
    }

    #[test]
    fn entries_of_nested_directories_are_durable_after_a_sync() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("fresh")).unwrap();
        let write = |synced: bool| {
            let disk = ForgettingDisk::record(root.path(), || {
                let mut made = Directories::default();
                for name in ["a/b", "a/c"] {
                    let dir = root.path().join("fresh").join(name);
                    made.create(&dir).unwrap();
                    Real.write(&dir.join("file"), |file| file.write_all(b"bytes")).unwrap();
                }
                if synced {
                    made.sync().unwrap();
                }
                sync_dir(&mut Real, &root.path().join("fresh")).unwrap();
            });
            let is_durable = disk.unwrap().is_durable("fresh").unwrap();
            std::fs::remove_dir_all(root.path().join("fresh/a")).unwrap();
            is_durable
        };
        assert!(write(true));
        assert!(!write(false));
    }
}
