//! The directories of a checkpoint: the newest, the one before it, and that of a save under way.
//! The [parent](super) explains why one of them is complete at any moment.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use graphmill_core::Error as GraphError;
use graphmill_data::atomic::{self, Disk, Real};

use crate::{Error, Result};

pub(super) const MODEL: &str = "model.safetensors";
pub(super) const BEST: &str = "best.safetensors";
pub(super) const OPTIMIZER: &str = "optimizer.safetensors";
pub(super) const HISTORY: &str = "history.safetensors";
pub(super) const STATE: &str = "state.json";
/// Files that a save writes.
pub(super) const FILES: [&str; 5] = [MODEL, BEST, OPTIMIZER, HISTORY, STATE];

/// Field of `state.json` that errors of another version name.
pub(super) const VERSION_FIELD: &str = "graphmill_checkpoint";

/// Remedy for a damaged file of the newest checkpoint if the one before it is there.
const CONTINUE: &str = "train --resume continues the run from the checkpoint before this one";
/// Number of the system's error of a disk that fails, on every Unix.
const EIO: i32 = 5;

/// Maximum length of a chain of symbolic links, as on Linux.
const MAX_LINKS: usize = 40;

/// Target of the symbolic link `dir`, which may not exist; `dir` itself if it is not a link.
pub(super) fn target(dir: &Path) -> PathBuf {
    let mut target = dir.to_path_buf();
    for _ in 0..MAX_LINKS {
        let Ok(next) = fs::read_link(&target) else { break };
        target = target.parent().map(|parent| parent.join(&next)).unwrap_or(next);
    }
    target
}

/// Directory of an unfinished save, beside the directory `dir`, which is not a link.
fn unfinished(dir: &Path) -> PathBuf {
    atomic::suffixed(dir, ".tmp")
}

/// Directory of the checkpoint before the newest, in the same way.
fn previous(dir: &Path) -> PathBuf {
    atomic::suffixed(dir, ".old")
}

/// Returns true if `path` is a directory, and not a link to one.
fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

/// The directory that holds the newest complete checkpoint of `dir`; `None` if nothing was saved.
///
/// # Errors
/// `dir` is a symbolic link whose target holds no checkpoint.
pub(super) fn complete(dir: &Path) -> Result<Option<PathBuf>> {
    let target = target(dir);
    if target.is_dir() {
        return Ok(Some(target));
    }
    let old = previous(&target);
    if is_directory(&old) {
        return Ok(Some(old));
    }
    if target != dir {
        let message = format!(
            "it is a symbolic link to {}, which holds no checkpoint; mount the disk that holds it, or remove \
             the link to start from the beginning",
            target.display()
        );
        return Err(Error::run(dir, message));
    }
    Ok(None)
}

/// Reads the newest checkpoint of `dir` by `read`, which gets its directory, or the one before it
/// if that is damaged or the disk fails to read it; `None` if nothing was saved. Also returns the
/// damage.
///
/// # Errors
/// Those of `read`, of a damaged checkpoint only if there is none before it; or both are damaged.
pub(super) fn newest<T>(
    dir: &Path,
    read: impl Fn(&Path) -> Result<T>,
) -> Result<Option<(T, Option<String>)>> {
    let Some(first) = complete(dir)? else { return Ok(None) };
    let damage = match read(&first) {
        Ok(found) => return Ok(Some((found, None))),
        Err(error) => error,
    };
    let second = previous(&target(dir));
    if !is_damage(&damage) || second == first || !is_directory(&second) {
        return Err(damage);
    }
    match read(&second) {
        Ok(found) => Ok(Some((found, Some(damage.to_string())))),
        Err(other) if is_damage(&other) => {
            let both = format!("the newest checkpoint and the one before it are damaged: {damage}; {other}");
            Err(Error::run(dir, both))
        }
        Err(other) => Err(other),
    }
}

/// Returns true if a file of a checkpoint is not as it was written, or the disk fails to read it.
/// Other refusals of the system, such as a missing permission, say nothing about the file.
fn is_damage(error: &Error) -> bool {
    match error {
        Error::Graph(GraphError::Format { place, .. }) => place != VERSION_FIELD,
        Error::Graph(GraphError::Io { source, .. }) => cfg!(unix) && source.raw_os_error() == Some(EIO),
        _ => false,
    }
}

/// Adds to the error of the damaged file `path` of a checkpoint that its run can continue from the
/// one before, if there is one.
pub(super) fn with_remedy(path: &Path, error: Error) -> Error {
    let is_checkpoint = |dir: &Path| is_directory(dir) && dir.join(STATE).is_file();
    let has_previous = path.parent().is_some_and(|dir| is_checkpoint(dir) && is_checkpoint(&previous(dir)));
    match error {
        Error::Graph(GraphError::Format { path, place, message }) if has_previous => {
            Error::format(path, place, format!("{message}; {CONTINUE}"))
        }
        error => error,
    }
}

/// Removes what a crash left beside the checkpoint `dir`, which is not a link, before a save.
/// Returns the directory to write.
pub(super) fn prepare(disk: &mut impl Disk, dir: &Path) -> Result<PathBuf> {
    let (fresh, old) = (unfinished(dir), previous(dir));
    if atomic::is_there(dir)? {
        adopt(disk, &old, dir)?;
    } else if is_directory(&old) {
        disk.rename(&old, dir).map_err(|e| Error::io(&old, "rename", e))?;
    }
    atomic::remove_all(disk, &fresh)?;
    Ok(fresh)
}

/// Replaces the checkpoint `dir`, which is not a link, by the finished one `fresh`, and keeps it as
/// the one before.
pub(super) fn replace(disk: &mut impl Disk, fresh: &Path, dir: &Path) -> Result<()> {
    let old = previous(dir);
    retire(disk, &old, dir)?;
    atomic::swap(disk, fresh, dir, &old)?;
    adopt(disk, &old, dir)
}

/// Moves files that no save wrote from the checkpoint `old` to `dir`. One whose name is taken there
/// gets the suffix `.old`, because `old` can be removed only if nothing is left in it.
fn adopt(disk: &mut impl Disk, old: &Path, dir: &Path) -> Result<()> {
    if !is_directory(old) {
        return Ok(());
    }
    let mut moved = false;
    for entry in fs::read_dir(old).map_err(|e| Error::io(old, "read", e))? {
        let entry = entry.map_err(|e| Error::io(old, "read", e))?;
        let (name, from) = (entry.file_name(), entry.path());
        if FILES.iter().any(|file| name == *file) {
            continue;
        }
        let mut to = dir.join(&name);
        while atomic::is_there(&to)? {
            to = atomic::suffixed(&to, ".old");
        }
        disk.rename(&from, &to).map_err(|e| Error::io(&from, "move to the checkpoint", e))?;
        moved = true;
    }
    if moved {
        atomic::sync_dir(disk, dir)?;
    }
    Ok(())
}

/// Removes the checkpoint `old`. Moves files that no save wrote to `dir`.
fn retire(disk: &mut impl Disk, old: &Path, dir: &Path) -> Result<()> {
    if !is_directory(old) {
        return Ok(atomic::remove_all(disk, old)?);
    }
    adopt(disk, old, dir)?;
    // the state first: without it, the rest is no checkpoint
    for file in FILES.iter().rev() {
        atomic::remove_all(disk, &old.join(file))?;
    }
    disk.remove_dir(old).map_err(|e| Error::io(old, "remove", e))
}

/// Removes the unfinished save that a killed process left beside the complete checkpoint `dir`, and
/// completes its last one. Only the process that may write the checkpoint calls this.
///
/// # Errors
/// It cannot be removed.
pub(crate) fn tidy(dir: &Path) -> Result<()> {
    let dir = &*target(dir);
    if !dir.is_dir() {
        return Ok(());
    }
    atomic::remove_all(&mut Real, &unfinished(dir))?;
    adopt(&mut Real, &previous(dir), dir)
}

/// Removes the checkpoint before the newest of `dir`, which a finished run does not keep.
///
/// # Errors
/// It cannot be removed.
pub(crate) fn forget_previous(dir: &Path) -> Result<()> {
    let dir = &*target(dir);
    if dir.is_dir() { retire(&mut Real, &previous(dir), dir) } else { Ok(()) }
}

/// Replaces the damaged newest checkpoint of `dir` by the one before it, so that the next save
/// keeps that one.
///
/// # Errors
/// The directories cannot be changed. The checkpoint before stays.
pub(crate) fn reinstate(dir: &Path) -> Result<()> {
    reinstate_on(&mut Real, dir)
}

/// [`reinstate`] on a disk.
pub(super) fn reinstate_on(disk: &mut impl Disk, dir: &Path) -> Result<()> {
    let dir = &*target(dir);
    let old = previous(dir);
    retire(disk, dir, &old)?;
    disk.rename(&old, dir).map_err(|e| Error::io(&old, "rename", e))?;
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok(atomic::sync_dir(disk, parent.unwrap_or(Path::new(".")))?)
}

/// Removes what a failed save has written.
///
/// # Errors
/// It cannot be removed.
pub(super) fn remove_unfinished(dir: &Path) -> Result<()> {
    Ok(atomic::remove_all(&mut Real, &unfinished(&target(dir)))?)
}

/// Returns true if a save failed because the disk is full.
pub(super) fn is_full(error: &Error) -> bool {
    let Error::Graph(GraphError::Io { source, .. }) = error else { return false };
    matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Removes an unfinished save and the checkpoint before the newest; returns true if there was one
/// and both are removed.
pub(super) fn make_space(dir: &Path) -> bool {
    let has_previous = is_directory(&previous(&target(dir)));
    has_previous && remove_unfinished(dir).is_ok() && forget_previous(dir).is_ok()
}
