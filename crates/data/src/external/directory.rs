//! Directory of a scratch: its lock, the work it is for, and the names of its files. A directory that holds anything else
//! is refused.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use graphmill_core::{Error, Result, place::At};
use serde::{Deserialize, Serialize};

use crate::atomic::{self, BESIDE, Real, TryLock};

/// What the directory is for.
#[derive(Serialize, Deserialize)]
struct Purpose {
    format: String,
    work: String,
}

pub(super) const PURPOSE: &str = "work.json";
pub(super) const LOCK: &str = "lock";
/// What the names of a scratch's other files begin with.
const PREFIX: &str = "scratch-";
const FORMAT: &str = "graphmill-scratch-1";
/// Where a directory that it replaces goes until it is removed.
pub(super) const REPLACED: &str = "replaced";
/// Notes what was replaced.
const NOTE: &str = "replaced.json";

/// Makes the directory `path` of a scratch, if it is missing, and locks it. Returns the lock, and
/// whether this call made the directory.
pub(super) fn lock_directory(path: &Path, try_lock: &TryLock) -> Result<(File, bool)> {
    let at = At::new(path, "directory");
    let mut made = false;
    loop {
        made |= make(path)?;
        // checked before there is a lock, so that nothing is put into a directory of somebody else
        if let Some(name) = stranger(path)? {
            return Err(
                at.error(format!("it holds '{name}', which no import wrote; move the directory away"))
            );
        }
        let lock_path = path.join(LOCK);
        let error = match atomic::lock_by(&lock_path, try_lock) {
            Ok(Some(lock)) => return Ok((lock, made)),
            Ok(None) => at.error("another process is at work here; wait for it, or choose another directory"),
            // the process that was at work here has just finished and removed the directory
            Err(e) if e.kind() == io::ErrorKind::NotFound && !path.exists() => continue,
            Err(e) => Error::io(&lock_path, "create", e),
        };
        if made {
            // only if it is empty: it may be another process' by now
            let _ = fs::remove_dir(path);
        }
        return Err(error);
    }
}

/// Makes the directory `path` with its parents; whether it was missing.
fn make(path: &Path) -> Result<bool> {
    let in_the_way = |what: &str| {
        Err(At::new(path, "directory").error(format!("a {what} of this name is in the way; move it away")))
    };
    let made = match path.parent() {
        Some(parent) => fs::create_dir_all(parent).and_then(|()| fs::create_dir(path)),
        None => fs::create_dir(path),
    };
    match made {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => match fs::symlink_metadata(path) {
            Ok(found) if found.is_symlink() => in_the_way("symbolic link"),
            Ok(found) if !found.is_dir() => in_the_way("file"),
            // a directory, or one that was removed in the meantime
            _ => Ok(false),
        },
        Err(e) => Err(Error::io(path, "create the directory", e)),
    }
}

/// A name in the directory `path` that no scratch gives. The file beside [`PURPOSE`] is one of ours: a
/// process that is killed in its first moment leaves it.
fn stranger(path: &Path) -> Result<Option<String>> {
    let entries = match fs::read_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries.map_err(|e| Error::io(path, "look into", e))?,
    };
    let beside = format!("{PURPOSE}{BESIDE}");
    let is_own = |name: &str| name.starts_with(PREFIX) || [PURPOSE, &beside, LOCK].contains(&name);
    for entry in entries {
        let name = entry.map_err(|e| Error::io(path, "look into", e))?.file_name();
        if !name.to_str().is_some_and(is_own) {
            return Ok(Some(name.to_string_lossy().into_owned()));
        }
    }
    Ok(None)
}

/// Prepares the locked directory `path` for `work`: whether the beginnings of the same work are there.
/// Anything else of a scratch is removed.
pub(super) fn take_up(path: &Path, work: &str) -> Result<bool> {
    restore(path)?;
    // no scratch makes a link
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

/// Removes those entries of the directory `path` that are `unwanted`.
fn remove_entries(path: &Path, unwanted: impl Fn(&fs::DirEntry) -> bool) -> Result<()> {
    for entry in fs::read_dir(path).map_err(|e| Error::io(path, "look into", e))? {
        let entry = entry.map_err(|e| Error::io(path, "look into", e))?;
        if unwanted(&entry) {
            atomic::remove_all(&mut Real, &entry.path())?;
        }
    }
    Ok(())
}

/// The file `name` of the scratch in the directory `dir`.
pub(super) fn file(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{PREFIX}{name}"))
}

/// Puts back what a process that was killed between two renames had moved out of the way. `dir` is the scratch's, and
/// locked.
fn restore(dir: &Path) -> Result<()> {
    let (old, note) = (file(dir, REPLACED), file(dir, NOTE));
    if !atomic::is_there(&old)? {
        return Ok(());
    }
    let place: Option<PathBuf> = fs::read(&note).ok().and_then(|text| serde_json::from_slice(&text).ok());
    match place {
        Some(place) if !atomic::is_there(&place)? => {
            fs::rename(&old, &place).map_err(|e| Error::io(&place, "move the replaced dataset back to", e))
        }
        // the new one is in its place
        _ => atomic::remove_all(&mut Real, &old),
    }
}
