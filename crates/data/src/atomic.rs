//! Atomic creation of files and directories: write to a temporary sibling, sync, rename.
//!
//! [`write()`] and [`write_dir`] create a path that the user named; their temporary sibling has a
//! unique name, and what a killed process left is removed by the next write of the same path; a
//! [`TemporaryFile`] has such a name alone.
//! [`replace`] and [`exchange`] serve the owner of a locked directory; their temporary names are
//! fixed, so that the next process of the same owner finds what a killed one left. Both use the
//! same steps of [`Disk`].
//!
//! Every change that a loss of power must not undo goes through this module: what [`Real`] does,
//! [`create_fresh`], [`sync`] and hard links are seen by tests ([`ForgettingDisk::record`]). Files
//! of a scratch whose loss only repeats work are written and removed in any way.
//!
//! Symbolic links are never followed: a link at a temporary name, or at a name to be removed, is
//! unlinked, and its target stays unchanged.

mod directories;
mod disk;
mod forgetting;
mod lock;
mod sibling;

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

pub(crate) use directories::Directories;
pub use directories::create_dirs;
pub use disk::{CrashingDisk, Disk, Real, WithoutExchange, create_fresh, sync};
pub(crate) use disk::{hard_link, parent};
pub use forgetting::ForgettingDisk;
pub use lock::lock;
#[cfg(test)]
pub(crate) use lock::tests::UNSUPPORTED;
pub(crate) use lock::{TryLock, lock_by};
pub use sibling::TemporaryFile;
use sibling::{sibling, sweep};

use graphmill_core::{Error, Result};

/// Suffix of the temporary sibling that [`replace`] writes.
pub(crate) const TEMPORARY_SUFFIX: &str = ".tmp";

/// Writes the file `path` through `fill`, to a temporary sibling first. An existing file is
/// replaced in one step and is unchanged after an error.
///
/// # Errors
/// Creating, writing, syncing or renaming fails (a full disk, a missing directory, no permission).
pub fn write(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    sweep(path);
    write_by_way_of(&mut Real, &sibling(path)?, path, fill)
}

/// Writes a file as [`write()`] does, through the fixed sibling `path.tmp`: for a file that only
/// one process writes.
///
/// # Errors
/// As for [`write()`].
pub fn replace(disk: &mut impl Disk, path: &Path, bytes: &[u8]) -> Result<()> {
    replace_by(disk, path, |file| file.write_all(bytes))
}

/// Writes a file as [`replace`] does, through `fill`.
///
/// # Errors
/// As for [`write()`].
pub fn replace_by(
    disk: &mut impl Disk,
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    write_by_way_of(disk, &suffixed(path, TEMPORARY_SUFFIX), path, fill)
}

/// Appends bytes to the file `path` as [`Disk::append`] does. A file that this creates is durable
/// as well.
///
/// # Errors
/// The file cannot be created, written or synced.
pub fn append(disk: &mut impl Disk, path: &Path, bytes: &[u8]) -> Result<()> {
    let is_new = !path.exists();
    disk.append(path, bytes).map_err(|e| Error::io(path, "write", e))?;
    if is_new { sync_dir(disk, parent(path)) } else { Ok(()) }
}

fn write_by_way_of(
    disk: &mut impl Disk,
    beside: &Path,
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let written = disk.write(beside, fill).map_err(|e| Error::io(path, "write", e)).and_then(|()| {
        disk.rename(beside, path).map_err(|e| Error::io(path, "rename the finished file to", e))
    });
    if written.is_err() {
        // A full disk should get its space back; if even that fails, the first error is returned.
        let _ = disk.remove_file(beside);
    }
    written?;
    sync_dir(disk, parent(path))
}

/// Writes the directory `path` through `fill`, which receives a fresh sibling directory; missing
/// parents are created. With `replace`, an existing directory is exchanged with the new one and
/// removed; otherwise `path` must be missing or empty. After an error `path` is unchanged.
///
/// # Errors
/// The error of `fill`, or creating, syncing or renaming fails.
pub fn write_dir(path: &Path, replace: bool, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    sweep(path);
    write_dir_by_way_of([&sibling(path)?, &sibling(path)?], path, replace, fill)
}

/// Writes a directory as [`write_dir`] does, through the path `fresh`; a replaced directory moves
/// to `old`. Both lie on the same file system and must not exist yet.
///
/// # Errors
/// As for [`write_dir`].
pub fn write_dir_by_way_of(
    [fresh, old]: [&Path; 2],
    path: &Path,
    replace: bool,
    fill: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    create_dirs(&mut Real, parent(path))?;
    Real.create_dir(fresh).map_err(|e| Error::io(path, "create the directory", e))?;
    // held until the directory has its name; a file system without locks has no protection to lose
    let held = fs::File::open(fresh).map_err(|e| Error::io(fresh, "open", e))?;
    let _ = held.try_lock();
    let written = fill(fresh).and_then(|()| sync_dir(&mut Real, fresh)).and_then(|()| {
        // Only an empty directory can be removed this way, so no data of the user is lost.
        match if replace { Ok(()) } else { Real.remove_dir(path) } {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io(path, "replace the directory", e)),
            _ => exchange(&mut Real, fresh, path, old),
        }
    });
    if written.is_err() {
        let _ = remove_all(&mut Real, fresh);
    }
    written
}

/// Replaces the directory `path` by the finished directory `fresh` in one step. The existing
/// directory moves to `old` and is removed at the end. After an error `path` is unchanged, or new
/// with `old` left beside it.
///
/// Two renames are needed where the platform or the file system cannot exchange two paths
/// ([`Disk::exchange`]), because a directory cannot be renamed onto another that holds files.
/// Between them only `old` exists.
///
/// # Errors
/// Renaming, syncing or removing fails.
pub fn exchange(disk: &mut impl Disk, fresh: &Path, path: &Path, old: &Path) -> Result<()> {
    swap(disk, fresh, path, old)?;
    remove_all(disk, old)
}

/// Performs the renames of [`exchange`]; the caller removes `old`, which may hold the content of
/// either directory after an error.
///
/// # Errors
/// Renaming or syncing fails.
pub fn swap(disk: &mut impl Disk, fresh: &Path, path: &Path, old: &Path) -> Result<()> {
    let moved = |e| Error::io(path, "move the finished directory to", e);
    if is_there(path)? {
        replace_dir(disk, fresh, path, old).map_err(moved)?;
    } else {
        disk.rename(fresh, path).map_err(moved)?;
    }
    // the replaced directory must not lose files while a loss of power could bring it back
    if parent(fresh) != parent(path) {
        sync_dir(disk, parent(fresh))?;
    }
    sync_dir(disk, parent(path))
}

/// Moves `path` to `old` and `fresh` to `path`. Undoes the first rename if the second fails, and
/// returns the first error.
fn replace_dir(disk: &mut impl Disk, fresh: &Path, path: &Path, old: &Path) -> io::Result<()> {
    // first to `old`, so that the replaced directory never has the name of an unfinished one
    disk.rename(fresh, old)?;
    let exchanged = disk.exchange(old, path);
    if exchanged.is_err() {
        let _ = disk.rename(old, fresh);
    }
    match exchanged {
        Err(e) if e.kind() == io::ErrorKind::Unsupported => {}
        exchanged => return exchanged,
    }
    disk.rename(path, old)?;
    let renamed = disk.rename(fresh, path);
    if renamed.is_err() {
        let _ = disk.rename(old, path);
    }
    renamed
}

/// Removes a file, a symbolic link or a directory tree, if it exists. Targets of links stay.
///
/// # Errors
/// An entry cannot be removed.
pub fn remove_all(disk: &mut impl Disk, path: &Path) -> Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return disk.remove_file(path).map_err(|e| Error::io(path, "remove", e)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Error::io(path, "examine", e)),
    }
    for entry in fs::read_dir(path).map_err(|e| Error::io(path, "read", e))? {
        remove_all(disk, &entry.map_err(|e| Error::io(path, "read", e))?.path())?;
    }
    disk.remove_dir(path).map_err(|e| Error::io(path, "remove", e))
}

/// Returns true if an entry named `path` exists, a dangling symbolic link included.
///
/// # Errors
/// The directory cannot be searched.
pub fn is_there(path: &Path) -> Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(Error::io(path, "look for", e)),
    }
}

/// Makes renames in `dir` durable.
///
/// # Errors
/// The directory cannot be opened or synced.
pub fn sync_dir(disk: &mut impl Disk, dir: &Path) -> Result<()> {
    disk.sync_dir(dir).map_err(|e| Error::io(dir, "sync the directory", e))
}

/// Sibling path: `path` with `suffix` appended to its name.
pub fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_keeps_the_old_file_and_removes_temporaries() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        write(&path, |w| w.write_all(b"old")).unwrap();
        let full = |w: &mut dyn Write| {
            w.write_all(b"half")?;
            Err(io::Error::new(io::ErrorKind::StorageFull, "disk full"))
        };
        let error = write(&path, full).unwrap_err().to_string();
        assert!(error.contains("disk full"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_crash_at_any_step_leaves_the_old_or_the_new_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for steps in 0.. {
            fs::write(&path, "old").unwrap();
            let done = replace(&mut CrashingDisk(steps), &path, b"new one").is_ok();
            let now = fs::read_to_string(&path).unwrap();
            assert!(now == "new one" || (!done && now == "old"), "{now} after {steps} steps");
            if done {
                break;
            }
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left behind");
    }

    /// Exchanges two directories on a disk that crashes after `steps`; returns success.
    fn crash(steps: usize, atomic: bool, [fresh, path, old]: [&Path; 3]) -> bool {
        let disk = &mut CrashingDisk(steps);
        if atomic {
            exchange(disk, fresh, path, old).is_ok()
        } else {
            exchange(&mut WithoutExchange(disk), fresh, path, old).is_ok()
        }
    }

    #[test]
    fn a_crash_during_an_exchange_leaves_one_complete_directory() {
        let is_supported = cfg!(any(target_os = "linux", target_os = "macos"));
        for (steps, atomic) in (0..).flat_map(|steps| [(steps, is_supported), (steps, false)]) {
            let dir = tempfile::tempdir().unwrap();
            let [fresh, path, old] = ["fresh", "path", "old"].map(|name| dir.path().join(name));
            for (dir, text) in [(&fresh, "new"), (&path, "before")] {
                fs::create_dir(dir).unwrap();
                fs::write(dir.join("f"), text).unwrap();
            }
            let done = crash(steps, atomic, [&fresh, &path, &old]);
            let read = |dir: &Path| fs::read_to_string(dir.join("f")).ok();
            match read(&path).as_deref() {
                Some("new") => {}
                // the new one may be at the name of the old one
                Some("before") => assert!(!done && read(&old).as_deref() != Some("before")),
                None => {
                    assert!(!atomic && !done, "after {steps} steps");
                    assert_eq!(read(&old).as_deref(), Some("before"), "after {steps} steps");
                }
                Some(other) => panic!("{other}"),
            }
            if done {
                assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left behind");
                if !atomic {
                    break;
                }
            }
        }
    }

    /// Plants a directory `victim` with a file and a nested file, and a link to it at each of
    /// `names`.
    #[cfg(unix)]
    fn plant(dir: &Path, names: &[&str]) {
        fs::create_dir_all(dir.join("victim/below")).unwrap();
        fs::write(dir.join("victim/thesis"), "mine").unwrap();
        fs::write(dir.join("victim/below/notes"), "mine").unwrap();
        for name in names {
            std::os::unix::fs::symlink(dir.join("victim"), dir.join(name)).unwrap();
        }
    }

    fn assert_whole(dir: &Path) {
        for name in ["victim/thesis", "victim/below/notes"] {
            assert_eq!(fs::read(dir.join(name)).unwrap(), b"mine", "{name}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn remove_all_unlinks_links_and_keeps_targets() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        fs::create_dir_all(dir.join("mine/deep")).unwrap();
        plant(dir, &["top", "mine/link", "mine/deep/link"]);
        std::os::unix::fs::symlink("nowhere", dir.join("mine/dangling")).unwrap();
        for name in ["top", "mine", "never"] {
            remove_all(&mut Real, &dir.join(name)).unwrap();
            assert!(!is_there(&dir.join(name)).unwrap(), "{name}");
            assert_whole(dir);
        }
    }

    #[cfg(unix)]
    #[test]
    fn exchange_replaces_links_and_keeps_targets() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let paths = ["fresh", "path", "old"].map(|name| dir.join(name));
        for target in ["victim", "nowhere"] {
            fs::create_dir(&paths[0]).unwrap();
            remove_all(&mut Real, &paths[1]).unwrap();
            plant(dir, &[]);
            std::os::unix::fs::symlink(target, &paths[1]).unwrap();
            exchange(&mut Real, &paths[0], &paths[1], &paths[2]).unwrap();
            assert!(fs::symlink_metadata(&paths[1]).unwrap().is_dir());
            assert!(!is_there(&paths[2]).unwrap());
            assert_whole(dir);
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_link_at_the_temporary_name_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let [path, beside, victim] = ["file", "file.tmp", "victim"].map(|name| dir.path().join(name));
        for exists in [true, false] {
            if exists {
                fs::write(&victim, "mine").unwrap();
            } else {
                fs::remove_file(&victim).unwrap();
            }
            std::os::unix::fs::symlink(&victim, &beside).unwrap();
            replace(&mut Real, &path, b"text").unwrap();
            assert!(fs::symlink_metadata(&path).unwrap().is_file());
            assert_eq!(fs::read(&path).unwrap(), b"text");
            assert_eq!(fs::read(&victim).ok(), exists.then(|| b"mine".to_vec()));
        }
    }

    #[test]
    fn errors_contain_the_path() {
        let message = replace(&mut Real, Path::new("no/such/dir/file"), b"").unwrap_err().to_string();
        assert!(message.starts_with("no/such/dir/file: cannot write: "), "{message}");
    }

    #[test]
    fn write_dir_replaces_only_with_the_flag() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d");
        let fill = |text: &'static str| {
            move |d: &Path| fs::write(d.join("f"), text).map_err(|e| Error::io(d, "write", e))
        };
        fs::create_dir(&path).unwrap();
        write_dir(&path, false, fill("one")).unwrap();
        assert!(write_dir(&path, false, fill("two")).is_err());
        assert_eq!(fs::read(path.join("f")).unwrap(), b"one");
        assert!(write_dir(&path, true, |_| Err(Error::invalid("no"))).is_err());
        assert_eq!(fs::read(path.join("f")).unwrap(), b"one");
        write_dir(&path, true, fill("three")).unwrap();
        assert_eq!(fs::read(path.join("f")).unwrap(), b"three");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
