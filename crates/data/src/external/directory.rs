//! Directory of a scratch: its lock, the work it belongs to, and its file names. A directory with
//! other contents is rejected.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use graphmill_core::{Error, Result, location::Location};
use serde::{Deserialize, Serialize};

use crate::atomic::{self, Disk, Real, TEMPORARY_SUFFIX, TryLock};

/// Work to which the directory belongs.
#[derive(Serialize, Deserialize)]
struct Purpose {
    format: String,
    work: String,
}

pub(super) const PURPOSE: &str = "work.json";
pub(super) const LOCK: &str = "lock";
/// Prefix of the names of a scratch's other files.
const PREFIX: &str = "scratch-";
const FORMAT: &str = "graphmill-scratch-1";
/// Note that the result is finished and about to be moved into place.
pub(super) const PUBLISHED: &str = "published.json";
/// Name of the directory under construction.
pub(super) const FRESH: &str = "finished";
/// Temporary location of a replaced directory until its removal.
pub(super) const REPLACED: &str = "replaced";
/// Record of the replaced directory.
const NOTE: &str = "replaced.json";

/// Creates the directory `path` of a scratch, if it is missing, and locks it. Returns the lock, and
/// whether this call created the directory.
pub(super) fn lock_directory(path: &Path, try_lock: &TryLock) -> Result<(File, bool)> {
    let at = Location::new(path, "directory");
    let mut made = false;
    loop {
        made |= make(path)?;
        // Checked before the lock file exists, so that nothing is written into a foreign directory.
        if let Some(name) = stranger(path)? {
            return Err(at.error(format!(
                "it holds '{name}', which no import wrote; move the directory away or choose another"
            )));
        }
        let lock_path = path.join(LOCK);
        let error = match atomic::lock_by(&lock_path, try_lock) {
            Ok(Some(lock)) => return Ok((lock, made)),
            Ok(None) => at.error("another process is working here; wait for it, or choose another directory"),
            // The process that was working here has just finished and removed the directory.
            Err(e) if e.kind() == io::ErrorKind::NotFound && !path.exists() => continue,
            Err(e) => Error::io(&lock_path, "create", e),
        };
        if made {
            // Only if it is empty: it may belong to another process by now.
            let _ = fs::remove_dir(path);
        }
        return Err(error);
    }
}

/// Creates the directory `path` with its parents; returns whether it was missing.
fn make(path: &Path) -> Result<bool> {
    let in_the_way = |what: &str| {
        Err(Location::new(path, "directory").error(format!("a {what} of this name exists; move it away")))
    };
    let parent = atomic::parent(path);
    atomic::create_dirs(&mut Real, parent)?;
    match Real.create_dir(path) {
        Ok(()) => atomic::sync_dir(&mut Real, parent).map(|()| true),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => match fs::symlink_metadata(path) {
            Ok(found) if found.is_symlink() => in_the_way("symbolic link"),
            Ok(found) if !found.is_dir() => in_the_way("file"),
            // A directory, or a path that was removed in the meantime.
            _ => Ok(false),
        },
        Err(e) => Err(Error::io(path, "create the directory", e)),
    }
}

/// Name in the directory `path` that no scratch uses. The temporary sibling of [`PURPOSE`] is ours:
/// a process killed during its first write leaves it.
fn stranger(path: &Path) -> Result<Option<String>> {
    let entries = match fs::read_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries.map_err(|e| Error::io(path, "look into", e))?,
    };
    let beside = format!("{PURPOSE}{TEMPORARY_SUFFIX}");
    let is_own = |name: &str| name.starts_with(PREFIX) || [PURPOSE, &beside, LOCK].contains(&name);
    for entry in entries {
        let name = entry.map_err(|e| Error::io(path, "look into", e))?.file_name();
        if !name.to_str().is_some_and(is_own) {
            return Ok(Some(name.to_string_lossy().into_owned()));
        }
    }
    Ok(None)
}

/// Prepares the locked directory `path` for `work`; returns whether it holds the beginnings of the
/// same work. Other files of a scratch are removed.
pub(super) fn take_up(path: &Path, work: &str) -> Result<bool> {
    restore(path)?;
    // No scratch creates links.
    remove_entries(path, |entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()))?;
    let purpose: Option<Purpose> =
        fs::read(path.join(PURPOSE)).ok().and_then(|text| serde_json::from_slice(&text).ok());
    if purpose.is_some_and(|p| p.format == FORMAT && p.work == work) {
        return Ok(true);
    }
    remove_entries(path, |entry| entry.file_name() != LOCK)?;
    let text = serde_json::to_vec(&Purpose { format: FORMAT.into(), work: work.into() });
    let text = text.map_err(|e| Error::invalid(e.to_string()))?;
    atomic::replace(&mut Real, &path.join(PURPOSE), &text)?;
    Ok(false)
}

/// Removes the files of the scratch in the directory `path`, but those called `names`.
pub(super) fn keep_only(path: &Path, names: &[&str]) -> Result<()> {
    remove_entries(path, |entry| {
        let name = entry.file_name();
        let own = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        own.is_some_and(|name| !names.contains(&name))
    })
}

/// Removes the directory `path` of a scratch. The note of a finished work goes last, so that
/// [`remove_left`] recognizes what a process that is killed meanwhile leaves.
pub(super) fn remove(path: &Path) -> Result<()> {
    keep_only(path, &[PUBLISHED])?;
    remove_entries(path, |_| true)?;
    match Real.remove_dir(path) {
        // another process begins its work here, or has removed the empty directory
        Err(e) if [io::ErrorKind::NotFound, io::ErrorKind::DirectoryNotEmpty].contains(&e.kind()) => Ok(()),
        removed => removed.map_err(|e| Error::io(path, "remove", e)),
    }
}

/// Removes the directory `path` of a scratch if no process works there and it holds no work to
/// resume: a process was killed after it had moved its result into place, or the work never
/// resumes (`is_resumed`). No failure is reported: the directory takes space and nothing else.
pub(crate) fn remove_left(path: &Path, is_resumed: bool) {
    if !fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        return;
    }
    let has = |name: &str| atomic::is_there(&file(path, name)).unwrap_or(true);
    let is_left = || match (has(PUBLISHED), has(FRESH)) {
        _ if !is_resumed => true,
        (true, fresh) => !fresh,
        (false, _) => is_bare(path),
    };
    if matches!(stranger(path), Ok(None)) && is_left() {
        // An empty directory has no lock to be taken.
        if fs::remove_dir(path).is_err()
            && let Ok(Some(_lock)) = atomic::lock(&path.join(LOCK))
            && is_left()
        {
            let _ = remove(path);
        }
    }
}

/// Returns true if the directory `path` of a scratch holds no work.
fn is_bare(path: &Path) -> bool {
    let is_work = |entry: fs::DirEntry| entry.file_name().to_string_lossy().starts_with(PREFIX);
    fs::read_dir(path).is_ok_and(|entries| !entries.flatten().any(is_work))
}

/// Removes the `unwanted` entries of the directory `path`.
fn remove_entries(path: &Path, unwanted: impl Fn(&fs::DirEntry) -> bool) -> Result<()> {
    for entry in fs::read_dir(path).map_err(|e| Error::io(path, "look into", e))? {
        let entry = entry.map_err(|e| Error::io(path, "look into", e))?;
        if unwanted(&entry) {
            atomic::remove_all(&mut Real, &entry.path())?;
        }
    }
    Ok(())
}

/// File `name` of the scratch in the directory `dir`.
pub(super) fn file(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{PREFIX}{name}"))
}

/// Restores a directory that a process had moved aside before it was killed between two renames.
/// `dir` is the scratch's, and locked.
fn restore(dir: &Path) -> Result<()> {
    let (old, note) = (file(dir, REPLACED), file(dir, NOTE));
    if !atomic::is_there(&old)? {
        return Ok(());
    }
    let place: Option<PathBuf> = fs::read(&note).ok().and_then(|text| serde_json::from_slice(&text).ok());
    match place {
        Some(place) if !atomic::is_there(&place)? => {
            let moved = |e| Error::io(&place, "move the replaced dataset back to", e);
            Real.rename(&old, &place).map_err(moved)?;
            // before the note is removed, without which the dataset at `old` would be removed, too
            atomic::sync_dir(&mut Real, atomic::parent(&place))?;
            atomic::sync_dir(&mut Real, dir)
        }
        // The new directory is already in place.
        _ => atomic::remove_all(&mut Real, &old),
    }
}
