//! Files and directories that appear whole or not at all: written beside, synced, renamed.
//!
//! [`write()`] and [`write_dir`] make what a user names: they write beside it under a name that nothing else uses.
//! [`replace`] and [`exchange`] serve an owner of a directory who has locked it: their names beside are fixed, so that
//! the owner's next process finds what a killed one left. Both go the same way, step by step through [`Disk`].
//!
//! Symbolic links are never followed: a link at a name that is written beside or removed is unlinked,
//! and its target stays as it is.

mod disk;
mod lock;

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

pub(crate) use disk::parent;
pub use disk::{Disk, Mortal, Real, create_fresh};
pub use lock::lock;
#[cfg(test)]
pub(crate) use lock::tests::UNSUPPORTED;
pub(crate) use lock::{TryLock, lock_by};

use graphmill_core::{Error, Result};

/// What the file beside is called in [`replace`]: the file's name and this.
pub(crate) const BESIDE: &str = ".tmp";

/// Writes the file `path` through `fill`, beside it first. An existing file is replaced in one
/// step; after an error it is as it was.
///
/// # Errors
/// Creating, writing, syncing or renaming fails (a full disk, a missing directory, no permission).
pub fn write(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    write_by_way_of(&mut Real, &sibling(path)?, path, fill)
}

/// As [`write()`], by way of `path.tmp`: for a file that only one process writes.
///
/// # Errors
/// As for [`write()`].
pub fn replace(disk: &mut impl Disk, path: &Path, bytes: &[u8]) -> Result<()> {
    replace_by(disk, path, |file| file.write_all(bytes))
}

/// As [`replace`], through `fill`.
///
/// # Errors
/// As for [`write()`].
pub fn replace_by(
    disk: &mut impl Disk,
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    write_by_way_of(disk, &suffixed(path, BESIDE), path, fill)
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
        // a full disk should get its space back; if not even that works, the first error is the one to tell
        let _ = disk.remove_file(beside);
    }
    written?;
    sync_dir(disk, parent(path))
}

/// Writes the directory `path` through `fill`, which is handed a fresh sibling directory;
/// missing parents are made. With `replace`, an existing directory is moved aside, the new one moved in, and the old one removed;
/// otherwise `path` must be missing or empty. After an error `path` is as it was.
///
/// # Errors
/// What `fill` reports, or creating, syncing or renaming fails.
pub fn write_dir(path: &Path, replace: bool, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    write_dir_by_way_of([&sibling(path)?, &sibling(path)?], path, replace, fill)
}

/// As [`write_dir`], by way of `fresh` and, for what is replaced, `old`: on the same file system, and neither there.
///
/// # Errors
/// As for [`write_dir`].
pub fn write_dir_by_way_of(
    [fresh, old]: [&Path; 2],
    path: &Path,
    replace: bool,
    fill: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    fs::create_dir_all(parent(path))
        .and_then(|()| Real.create_dir(fresh))
        .map_err(|e| Error::io(path, "create the directory", e))?;
    let written = fill(fresh).and_then(|()| sync_dir(&mut Real, fresh)).and_then(|()| {
        // Only an empty directory can be removed this way, so nothing of the user's is lost.
        match if replace { Ok(()) } else { fs::remove_dir(path) } {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io(path, "replace the directory", e)),
            _ => exchange(&mut Real, fresh, path, old),
        }
    });
    if written.is_err() {
        let _ = remove_all(&mut Real, fresh);
    }
    written
}

/// Puts the finished directory `fresh` in the place of `path`. What is there is renamed to `old` and removed at the
/// end: a directory cannot be renamed onto another that holds files, hence two renames with a moment between them in
/// which there is only `old`. (The file system's one atomic exchange, `renameat2`, is Linux's alone and not supported
/// everywhere there.) After an error `path` is as it was, or new with `old` left beside it.
///
/// # Errors
/// Renaming, syncing or removing fails.
pub fn exchange(disk: &mut impl Disk, fresh: &Path, path: &Path, old: &Path) -> Result<()> {
    swap(disk, fresh, path, old)?;
    remove_all(disk, old)
}

/// The renames of [`exchange`]: the caller removes `old`.
///
/// # Errors
/// Renaming or syncing fails.
pub fn swap(disk: &mut impl Disk, fresh: &Path, path: &Path, old: &Path) -> Result<()> {
    let moved = |e| Error::io(path, "move the finished directory to", e);
    let there = is_there(path)?;
    if there {
        disk.rename(path, old).map_err(moved)?;
    }
    if let Err(e) = disk.rename(fresh, path) {
        if there {
            // back to how it was; the first error is the one to tell
            let _ = disk.rename(old, path);
        }
        return Err(moved(e));
    }
    sync_dir(disk, parent(path))
}

/// Removes a file, a symbolic link or a directory with all that is in it, if it is there. The
/// targets of links stay.
///
/// # Errors
/// Something cannot be removed.
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

/// Whether something has the name `path`, a dangling symbolic link included.
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

/// Makes renames in `dir` last.
///
/// # Errors
/// It cannot be opened or synced.
pub fn sync_dir(disk: &mut impl Disk, dir: &Path) -> Result<()> {
    disk.sync_dir(dir).map_err(|e| Error::io(dir, "sync the directory", e))
}

/// `path` with `suffix` behind its name: a sibling.
pub fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(suffix);
    name.into()
}

/// A name beside `path` that nothing else uses: hidden, and marked as temporary.
fn sibling(path: &Path) -> Result<PathBuf> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let Some(name) = path.file_name() else {
        return Err(Error::invalid(format!("{}: not a name that can be written", path.display())));
    };
    let count = COUNT.fetch_add(1, Relaxed);
    let name = format!(".{}.{}-{count}.tmp", name.to_string_lossy(), std::process::id());
    Ok(parent(path).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_no_litter() {
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
    fn after_any_step_a_file_is_the_old_one_or_the_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for steps in 0.. {
            fs::write(&path, "old").unwrap();
            let done = replace(&mut Mortal(steps), &path, b"new one").is_ok();
            let now = fs::read_to_string(&path).unwrap();
            assert!(now == "new one" || (!done && now == "old"), "{now} after {steps} steps");
            if done {
                break;
            }
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left behind");
    }

    #[test]
    fn after_any_step_of_an_exchange_one_of_the_two_is_whole() {
        for steps in 0.. {
            let dir = tempfile::tempdir().unwrap();
            let [fresh, path, old] = ["fresh", "path", "old"].map(|name| dir.path().join(name));
            for (dir, text) in [(&fresh, "new"), (&path, "before")] {
                fs::create_dir(dir).unwrap();
                fs::write(dir.join("f"), text).unwrap();
            }
            let done = exchange(&mut Mortal(steps), &fresh, &path, &old).is_ok();
            let read = |dir: &Path| fs::read_to_string(dir.join("f")).ok();
            match read(&path).as_deref() {
                Some("new") => {}
                Some("before") => assert!(!done && !old.exists()),
                None => assert!(!done && read(&old).as_deref() == Some("before"), "after {steps} steps"),
                Some(other) => panic!("{other}"),
            }
            if done {
                assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left behind");
                break;
            }
        }
    }

    /// A directory `victim` with a file in it and one below, and a link to it at each of `names`.
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
    fn removing_unlinks_links_and_keeps_their_targets() {
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
    fn an_exchange_replaces_links_and_keeps_their_targets() {
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
    fn a_link_at_the_name_beside_is_replaced() {
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
    fn errors_name_the_file() {
        let message = replace(&mut Real, Path::new("no/such/dir/file"), b"").unwrap_err().to_string();
        assert!(message.starts_with("no/such/dir/file: cannot write: "), "{message}");
    }

    #[test]
    fn a_directory_replaces_only_what_it_may() {
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
