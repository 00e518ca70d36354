//! Creation of directories that survive a loss of power.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

use graphmill_core::{Error, Result};

use super::{Disk, Real, disk::parent, sync_dir};

/// Creates the directory `path` and its missing ancestors, and makes their names durable: also that
/// of the lowest directory that exists, because a process that was killed before it synced the
/// name, or that runs at this moment, may have made it. Its ancestors were durable before it was
/// made.
///
/// Costs one sync more than directories are missing.
///
/// # Errors
/// One cannot be created, or its parent cannot be synced.
pub fn create_dirs(disk: &mut impl Disk, path: &Path) -> Result<()> {
    let missing = missing(path);
    sync_name(disk, missing.first().map_or(path, |first| parent(first)))?;
    missing.into_iter().try_for_each(|dir| create(disk, dir).and_then(|()| sync_dir(disk, parent(dir))))
}

/// Makes the name of an existing directory durable. A parent that this process may not read, or on
/// a file system that cannot be written or syncs no directories, as above a mount point, is left
/// out: processes like this one make no durable names there.
fn sync_name(disk: &mut impl Disk, dir: &Path) -> Result<()> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported};

    // the working directory, its ancestors and the root have names that no run makes
    if dir.file_name().is_none() {
        return Ok(());
    }
    match disk.sync_dir(parent(dir)) {
        Err(e) if matches!(e.kind(), InvalidInput | PermissionDenied | ReadOnlyFilesystem | Unsupported) => {
            Ok(())
        }
        synced => synced.map_err(|e| Error::io(parent(dir), "sync the directory", e)),
    }
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
        // nothing is missing: one step is left, which syncs the last name
        let error = create_dirs(&mut CrashingDisk(0), &path).unwrap_err().to_string();
        assert!(error.contains("cannot sync the directory"), "{error}");
        create_dirs(&mut CrashingDisk(1), &path).unwrap();
        assert!(path.is_dir());
    }

    #[test]
    fn directories_of_a_killed_process_become_durable() {
        for made in 1..=3 {
            let root = tempfile::tempdir().unwrap();
            let dirs = ["a", "a/b", "a/b/c"].map(|name| root.path().join(name));
            // a process that is killed before it syncs the last name
            let killed = || {
                for (i, dir) in dirs[..made].iter().enumerate() {
                    Real.create_dir(dir).unwrap();
                    if i + 1 < made {
                        sync_dir(&mut Real, parent(dir)).unwrap();
                    }
                }
            };
            let work = || {
                killed();
                create_dirs(&mut Real, &dirs[2]).unwrap();
            };
            let disk = ForgettingDisk::record(root.path(), work).unwrap();
            assert!(disk.is_durable("a").unwrap(), "{made} directories");
            std::fs::remove_dir_all(&dirs[0]).unwrap();
            let disk = ForgettingDisk::record(root.path(), killed).unwrap();
            assert!(!disk.is_durable("a").unwrap(), "the test notices a missing sync");
        }
    }

    /// Disk that refuses to sync any directory.
    struct Refusing(io::ErrorKind);

    impl Disk for Refusing {
        fn create_dir(&mut self, path: &Path) -> io::Result<()> {
            Real.create_dir(path)
        }

        fn write(
            &mut self,
            path: &Path,
            fill: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
        ) -> io::Result<()> {
            Real.write(path, fill)
        }

        fn append(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
            Real.append(path, bytes)
        }

        fn sync_dir(&mut self, _: &Path) -> io::Result<()> {
            Err(self.0.into())
        }

        fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
            Real.rename(from, to)
        }

        fn remove_file(&mut self, path: &Path) -> io::Result<()> {
            Real.remove_file(path)
        }

        fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
            Real.remove_dir(path)
        }
    }

    #[test]
    fn a_directory_whose_parent_is_foreign_is_taken_as_it_is() {
        use io::ErrorKind::{Other, PermissionDenied, ReadOnlyFilesystem};

        let root = tempfile::tempdir().unwrap();
        for kind in [PermissionDenied, ReadOnlyFilesystem] {
            create_dirs(&mut Refusing(kind), root.path()).unwrap();
            // the name of a new directory must be durable
            let new = root.path().join("new");
            create_dirs(&mut Refusing(kind), &new).unwrap_err();
            std::fs::remove_dir(&new).unwrap();
        }
        create_dirs(&mut Refusing(Other), root.path()).unwrap_err();
        for named_by_no_run in [".", "/", ".."] {
            create_dirs(&mut Refusing(Other), Path::new(named_by_no_run)).unwrap();
        }
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
