//! Scratch of an import: a memory budget, a directory for data beyond it, and progress.

use std::{
    fmt,
    fs::{self, File},
    path::{Path, PathBuf},
    sync::Arc,
};

use graphmill_core::{
    Error, Result,
    progress::{Progress, Quiet, Unit},
};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    Needs,
    directory::{self, file, keep_only, lock_directory, take_up},
    needs,
};
use crate::atomic::{self, Real, TryLock};

/// Temporary storage for a dataset under construction: a memory budget, an optional directory for
/// data beyond it, and progress. Clones share all three.
///
/// The directory survives a kill. A scratch that is opened again for the same work resumes it:
/// [`Edges`](super::Edges) and [`Rows`](super::Rows) skip the data they already hold when it is
/// pushed again.
#[derive(Clone)]
pub struct Scratch {
    inner: Arc<Inner>,
}

struct Inner {
    dir: Option<Directory>,
    memory: u64,
    progress: Box<dyn Progress>,
}

struct Directory {
    path: PathBuf,
    /// Lock held for the lifetime of the scratch.
    _lock: File,
}

/// Smallest disk requirement that is reported, in bytes.
const MIN_REPORTED_BYTES: u64 = 100_000_000;

impl Scratch {
    /// Creates a scratch without a directory and without progress.
    pub fn in_memory() -> Self {
        Self::reporting(Box::new(Quiet))
    }

    /// Creates a scratch without a directory that reports to `progress`.
    pub fn reporting(progress: Box<dyn Progress>) -> Self {
        Self { inner: Arc::new(Inner { dir: None, memory: u64::MAX, progress }) }
    }

    /// Opens a scratch in the directory `path` for `work`, a description of everything the result
    /// depends on. Files of an earlier process for the same work are resumed; other files of a
    /// scratch are removed.
    ///
    /// `memory` is the budget in bytes, at least 64 MiB.
    ///
    /// # Errors
    /// The directory cannot be created, is in use by another process, or holds files that no
    /// scratch wrote.
    pub fn open(path: &Path, work: &str, memory: u64, progress: Box<dyn Progress>) -> Result<Self> {
        Self::open_by(path, work, memory, progress, &File::try_lock)
    }

    /// Variant of [`Scratch::open`] with a replaceable lock call, for tests.
    fn open_by(
        path: &Path,
        work: &str,
        memory: u64,
        progress: Box<dyn Progress>,
        try_lock: &TryLock,
    ) -> Result<Self> {
        let (lock, made) = lock_directory(path, try_lock)?;
        let is_taken_up = take_up(path, work);
        if is_taken_up.is_err() && made {
            // The first error is reported.
            let _ = atomic::remove_all(&mut Real, path);
        }
        let is_taken_up = is_taken_up?;
        let dir = Some(Directory { path: path.to_path_buf(), _lock: lock });
        let scratch = Self { inner: Arc::new(Inner { dir, memory: memory.max(64 << 20), progress }) };
        if is_taken_up {
            scratch.note("resuming the interrupted work");
        }
        Ok(scratch)
    }

    /// Opens a scratch with any budget, for tests.
    #[cfg(test)]
    pub(crate) fn open_within(path: &Path, memory: u64) -> Self {
        let (lock, _) = lock_directory(path, &File::try_lock).unwrap();
        take_up(path, "test").unwrap();
        let dir = Some(Directory { path: path.to_path_buf(), _lock: lock });
        Self { inner: Arc::new(Inner { dir, memory, progress: Box::new(Quiet) }) }
    }

    /// Removes the directory with its contents.
    ///
    /// # Errors
    /// Removing fails.
    pub fn remove(&self) -> Result<()> {
        match &self.inner.dir {
            Some(dir) => directory::remove(&dir.path),
            None => Ok(()),
        }
    }

    /// Opens a scratch in a directory within this one, because collections such as
    /// [`Edges`](super::Edges) have fixed names of files. It reports no progress.
    ///
    /// # Errors
    /// The directory cannot be created.
    #[cfg(feature = "tables")]
    pub(crate) fn nested(&self, name: &str) -> Result<Self> {
        match self.file(name) {
            Some(path) => Self::open(&path, name, self.memory(), Box::new(Quiet)),
            None => Ok(Self::in_memory()),
        }
    }

    /// Returns true if the scratch has a directory.
    pub(crate) fn has_directory(&self) -> bool {
        self.inner.dir.is_some()
    }

    /// Path of the file `name` in the directory, if the scratch has one.
    pub(crate) fn file(&self, name: &str) -> Option<PathBuf> {
        self.inner.dir.as_ref().map(|dir| file(&dir.path, name))
    }

    /// Reports the expected size of the result, as soon as it is known and before much is written.
    ///
    /// # Errors
    /// The disk has too little free space.
    pub fn expect(&self, needs: &Needs) -> Result<()> {
        let Some(dir) = &self.inner.dir else { return Ok(()) };
        // Same decision as in `Edges`.
        let on_disk = needs.edges > self.memory() / Needs::building(needs.weighted);
        let summary = needs::check(needs, on_disk, needs::free(&dir.path), &dir.path)?;
        if needs.peak(on_disk) >= MIN_REPORTED_BYTES {
            self.note(&summary);
        }
        Ok(())
    }

    /// Reports that `what` will take `bytes` in the directory, before they are written.
    ///
    /// # Errors
    /// The disk has too little free space.
    pub(crate) fn expect_bytes(&self, what: &str, bytes: u64) -> Result<()> {
        let Some(dir) = &self.inner.dir else { return Ok(()) };
        self.note(&needs::check_bytes(what, bytes, needs::free(&dir.path), &dir.path)?);
        Ok(())
    }

    /// Removes everything that the work has written so far but the files called `names`.
    ///
    /// # Errors
    /// Removing fails.
    pub(crate) fn keep_only(&self, names: &[&str]) -> Result<()> {
        self.inner.dir.as_ref().map_or(Ok(()), |dir| keep_only(&dir.path, names))
    }

    /// Memory budget of the work in bytes.
    pub fn memory(&self) -> u64 {
        self.inner.memory
    }

    /// Records the progress of a part of the work.
    pub(crate) fn save(&self, name: &str, state: &impl Serialize) -> Result<()> {
        let Some(path) = self.file(&format!("{name}.json")) else { return Ok(()) };
        let text = serde_json::to_vec(state).map_err(|e| Error::invalid(e.to_string()))?;
        atomic::replace(&mut Real, &path, &text)
    }

    /// Loads the recorded progress of a part of the work. An unreadable record counts as missing:
    /// that part starts again.
    pub(crate) fn load<S: DeserializeOwned>(&self, name: &str) -> Option<S> {
        serde_json::from_slice(&fs::read(self.file(&format!("{name}.json"))?).ok()?).ok()
    }

    /// Reports the beginning of a stage.
    pub fn stage(&self, what: &str, total: Option<u64>, unit: Unit) {
        self.inner.progress.stage(what, total, unit);
    }

    /// Reports the amount of the stage that an earlier process had completed.
    pub(crate) fn resume(&self, amount: u64) {
        self.inner.progress.resume(amount);
    }

    /// Reports the completed amount of the stage.
    pub fn done(&self, amount: u64) {
        self.inner.progress.done(amount);
    }

    /// Reports a message.
    pub fn note(&self, message: &str) {
        self.inner.progress.note(message);
    }

    /// Returns an error if the work was cancelled.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn check(&self) -> Result<()> {
        self.inner.progress.check()
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::in_memory()
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scratch")
            .field("dir", &self.inner.dir.as_ref().map(|dir| &dir.path))
            .field("memory", &self.inner.memory)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::TryLockError;

    use super::{super::directory::LOCK, *};

    #[test]
    fn directories_are_resumed_cleared_or_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("work");
        let open = |work: &str| Scratch::open(&path, work, 0, Box::new(Quiet));
        let scratch = open("one").unwrap();
        scratch.save("part", &7).unwrap();
        assert!(open("one").unwrap_err().to_string().contains("another process"));
        drop(scratch);
        assert_eq!(open("one").unwrap().load::<u32>("part"), Some(7));
        assert_eq!(open("two").unwrap().load::<u32>("part"), None);
        fs::write(path.join("mine"), "").unwrap();
        assert!(open("two").unwrap_err().to_string().contains("'mine'"));
        fs::remove_file(path.join("mine")).unwrap();
        open("two").unwrap().remove().unwrap();
        assert!(!path.exists());
        fs::write(&path, "").unwrap();
        assert!(open("two").unwrap_err().to_string().contains("a file of this name exists"));
    }

    fn open(path: &Path) -> Result<Scratch> {
        Scratch::open(path, "work", 0, Box::new(Quiet))
    }

    #[test]
    fn work_killed_during_its_first_write_resumes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("work");
        for names in [&[][..], &["lock"], &["lock", "work.json.tmp"], &["work.json.tmp"]] {
            fs::create_dir(&path).unwrap();
            names.iter().for_each(|name| fs::write(path.join(name), "").unwrap());
            open(&path).unwrap().remove().unwrap();
            assert!(!path.exists(), "{names:?}");
        }
        // A second process at the same time.
        fs::create_dir(&path).unwrap();
        let _held = atomic::lock(&path.join(LOCK)).unwrap().unwrap();
        fs::write(path.join("work.json.tmp"), "").unwrap();
        let message = open(&path).unwrap_err().to_string();
        assert!(message.contains("another process is working here"), "{message}");
    }

    #[test]
    fn file_systems_without_locks_do_not_count_as_locked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("work");
        let open = |error: &dyn Fn() -> TryLockError| {
            Scratch::open_by(&path, "work", 0, Box::new(Quiet), &|_| Err(error()))
        };
        for error in atomic::UNSUPPORTED {
            open(&|| TryLockError::Error(error.into())).unwrap().remove().unwrap();
        }
        let message = open(&|| TryLockError::WouldBlock).unwrap_err().to_string();
        assert!(message.contains("another process is working here"), "{message}");
        // The lock belongs to the other process.
        assert!(path.join(LOCK).exists());
    }

    #[cfg(unix)]
    #[test]
    fn links_in_a_scratch_are_unlinked_and_targets_stay() {
        use std::os::unix::fs::symlink;

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("work");
        let [victim, file] = ["victim", "victim/thesis"].map(|name| dir.path().join(name));
        fs::create_dir(&victim).unwrap();
        fs::write(&file, "mine").unwrap();
        drop(open(&path).unwrap());
        // Other work removes everything; the same work removes only the links.
        for work in ["other", "other"] {
            for (name, target) in [
                ("lock", &file),
                ("work.json.tmp", &file),
                ("scratch-x", &victim),
                ("scratch-edges.bin", &file),
                ("scratch-finished", &victim),
                ("scratch-replaced", &victim),
            ] {
                let _ = fs::remove_file(path.join(name));
                symlink(target, path.join(name)).unwrap();
            }
            let scratch = Scratch::open(&path, work, 0, Box::new(Quiet)).unwrap();
            for entry in fs::read_dir(&path).unwrap() {
                assert!(entry.unwrap().file_type().unwrap().is_file());
            }
            drop(scratch);
            assert_eq!(fs::read(&file).unwrap(), b"mine");
        }
        atomic::remove_all(&mut Real, &path).unwrap();
        symlink(&victim, &path).unwrap();
        let message = open(&path).unwrap_err().to_string();
        assert!(message.contains("a symbolic link of this name exists"), "{message}");
        assert_eq!(fs::read(&file).unwrap(), b"mine");
    }

    #[test]
    fn failed_opens_leave_no_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("work");
        // Restoring a dataset fails after locking.
        let plant = |_: &File| {
            fs::create_dir(path.join("scratch-replaced")).unwrap();
            let place = serde_json::to_vec(&dir.path().join("missing/data")).unwrap();
            fs::write(path.join("scratch-replaced.json"), place).unwrap();
            Ok(())
        };
        let opened = Scratch::open_by(&path, "work", 0, Box::new(Quiet), &plant);
        assert!(opened.is_err() && !path.exists(), "{opened:?}");
    }
}
