//! Temporary names beside a path that several processes may write: `.NAME.PID-COUNT.tmp`.
//!
//! A killed process leaves its temporary file or directory behind. The next write of the same path
//! removes it ([`sweep`]) once it is certain that no process writes it: its writer holds a lock on
//! it, so it is removed only if the lock is free, the process is gone from this machine, and a
//! minute has passed since its last change (a writer creates it and locks it in two steps). On a
//! file system without locks it stays.

use std::{
    fs::{self, File},
    io::{self, Write},
    mem,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, SystemTime},
};

use graphmill_core::{Error, Result};

use super::{Disk, Real, disk::parent, remove_all};

/// Time since the last change after which a temporary name may be removed.
const MIN_AGE: Duration = Duration::from_secs(60);

/// Unique name beside `path`: hidden, and marked as temporary.
pub(super) fn sibling(path: &Path) -> Result<PathBuf> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Relaxed);
    Ok(parent(path).join(format!("{}{}-{count}.tmp", start_of(path)?, std::process::id())))
}

/// Beginning of the temporary names of `path`.
fn start_of(path: &Path) -> Result<String> {
    let Some(name) = path.file_name() else {
        return Err(Error::invalid(format!("{}: not a file name that can be written", path.display())));
    };
    Ok(format!(".{}.", name.to_string_lossy()))
}

/// Removes the temporary files and directories that killed writers of `path` left. What cannot be
/// examined or removed stays: it takes space and nothing else.
pub(super) fn sweep(path: &Path) {
    let Ok(start) = start_of(path) else { return };
    let Ok(entries) = fs::read_dir(parent(path)) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| process_of(name, &start));
        if process.is_some_and(|process| !is_running(process)) {
            remove_if_left(&entry.path());
        }
    }
}

/// File with a temporary name beside a path, which is removed when it is dropped.
#[derive(Debug)]
pub struct TemporaryFile(PathBuf);

impl TemporaryFile {
    /// Writes a file beside `path` through `fill`. What killed processes left there is removed
    /// first; after an error no file is left.
    ///
    /// # Errors
    /// The file cannot be created or written, or `fill` fails.
    pub fn new(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<Self> {
        sweep(path);
        let this = Self(sibling(path)?);
        Real.write(&this.0, fill).map_err(|e| Error::io(path, "write", e))?;
        Ok(this)
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Removes the file, as a drop does, which reports no error.
    ///
    /// # Errors
    /// The file cannot be removed; the message names it.
    pub fn remove(mut self) -> Result<()> {
        let path = mem::take(&mut self.0);
        Real.remove_file(&path).map_err(|e| Error::io(&path, "remove", e))
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // without a name if it was removed
        if !self.0.as_os_str().is_empty() {
            let _ = Real.remove_file(&self.0);
        }
    }
}

/// Process in a temporary name with this beginning.
fn process_of(name: &str, start: &str) -> Option<u32> {
    let (process, count) = name.strip_prefix(start)?.strip_suffix(".tmp")?.split_once('-')?;
    count.parse::<u64>().ok()?;
    process.parse().ok()
}

/// Returns true if a process of this machine has the number, or if the system cannot be asked.
#[cfg(unix)]
fn is_running(process: u32) -> bool {
    use rustix::{io::Errno, process};
    let found = i32::try_from(process).ok().and_then(process::Pid::from_raw);
    found.is_some_and(|found| process::test_kill_process(found) != Err(Errno::SRCH))
}

/// Returns true for this process alone: where files always have locks, these suffice for others.
#[cfg(not(unix))]
fn is_running(process: u32) -> bool {
    process == std::process::id()
}

/// Removes a temporary file or directory unless a process holds its lock or has just changed it.
fn remove_if_left(path: &Path) {
    let Ok(found) = fs::symlink_metadata(path) else { return };
    let age = found.modified().ok().and_then(|time| SystemTime::now().duration_since(time).ok());
    if !(found.is_file() || found.is_dir()) || age.is_none_or(|age| age < MIN_AGE) {
        return;
    }
    let Ok(file) = File::open(path) else { return };
    if file.try_lock().is_ok() {
        let _ = remove_all(&mut Real, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_killed_writers_left_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("data");
        let old = SystemTime::now() - 2 * MIN_AGE;
        // no process has this number: it is above every limit of the system
        let gone = 4_194_305;
        let living = std::process::id();
        let file = |name: &str, time: SystemTime| {
            let path = dir.path().join(name);
            fs::write(&path, "x").unwrap();
            File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
            path
        };
        let directory = dir.path().join(format!(".data.{gone}-0.tmp"));
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("part"), "x").unwrap();
        File::open(&directory).unwrap().set_modified(old).unwrap();
        let left = file(&format!(".data.{gone}-7.tmp"), old);
        let locked = file(&format!(".data.{gone}-8.tmp"), old);
        let held = File::open(&locked).unwrap();
        held.lock().unwrap();
        let others = [
            file(&format!(".data.{gone}-1.tmp"), SystemTime::now()),
            file(&format!(".data.{living}-1.tmp"), old),
            file(&format!(".other.{gone}-1.tmp"), old),
            file(&format!(".data.{gone}.tmp"), old),
            file(".data.mine-1.tmp", old),
            file("data.tmp", old),
        ];
        sweep(&place);
        assert!(!left.exists() && !directory.exists());
        assert!(locked.exists() && others.iter().all(|path| path.exists()));
        drop(held);
        super::super::write(&place, |out| out.write_all(b"new")).unwrap();
        assert!(!locked.exists() && place.exists());
    }

    #[test]
    fn a_temporary_file_is_removed_and_a_failed_one_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("trial");
        let left = dir.path().join(".trial.4194305-0.tmp");
        fs::write(&left, "x").unwrap();
        File::options()
            .write(true)
            .open(&left)
            .unwrap()
            .set_modified(SystemTime::now() - 2 * MIN_AGE)
            .unwrap();
        let count = || fs::read_dir(dir.path()).unwrap().count();
        let file = TemporaryFile::new(&place, |file| file.write_all(b"bytes")).unwrap();
        assert_eq!((fs::read(file.path()).unwrap(), count()), (b"bytes".to_vec(), 1));
        drop(file);
        assert_eq!(count(), 0);
        let file = TemporaryFile::new(&place, |_| Ok(())).unwrap();
        let name = file.path().to_path_buf();
        fs::remove_file(&name).unwrap();
        let error = file.remove().unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}: cannot remove: ", name.display())), "{error}");
        TemporaryFile::new(&place, |_| Ok(())).unwrap().remove().unwrap();
        assert_eq!(count(), 0);
        let failed = TemporaryFile::new(&place, |file| {
            file.write_all(b"a part")?;
            file.flush()?;
            Err(io::Error::other("full"))
        });
        assert!(failed.unwrap_err().to_string().ends_with("cannot write: full"));
        assert_eq!(count(), 0);
    }
}
