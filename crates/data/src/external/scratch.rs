//! Scratch space of an import: a memory budget, a directory beyond it, and progress.

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
    directory::{file, lock_directory, take_up},
    needs,
};
use crate::atomic::{self, Real, TryLock};

/// Room for data on its way to a dataset: a budget of memory, perhaps a directory for what does not fit, and progress.
/// Clones share all three.
///
/// The directory stays when the process is killed. A scratch that is opened again for the same work finds what is
/// there: [`Edges`](super::Edges) and [`Rows`](super::Rows) pass over what they already hold when it is pushed again.
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
    /// Locked for as long as the scratch lives.
    _lock: File,
}

/// Less disk than this is not worth a line.
const WORTH_TELLING: u64 = 100_000_000;

impl Scratch {
    /// Keeps everything in memory and reports no progress.
    pub fn in_memory() -> Self {
        Self::reporting(Box::new(Quiet))
    }

    /// Keeps everything in memory and reports to `progress`.
    pub fn reporting(progress: Box<dyn Progress>) -> Self {
        Self { inner: Arc::new(Inner { dir: None, memory: u64::MAX, progress }) }
    }

    /// Room in the directory `path` for the work that `work` describes: all that its outcome depends on. What an earlier
    /// process left there for the same work is taken up, anything else of a scratch is removed first.
    ///
    /// `memory` is what the work may take, in bytes; at least 64 MiB are taken.
    ///
    /// # Errors
    /// The directory cannot be made, is in use by another process, or holds what no scratch wrote.
    pub fn open(path: &Path, work: &str, memory: u64, progress: Box<dyn Progress>) -> Result<Self> {
        Self::open_by(path, work, memory, progress, &File::try_lock)
    }

    /// [`Scratch::open`] with the system call that locks replaced, for tests.
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
            // the first error is the one to report
            let _ = atomic::remove_all(&mut Real, path);
        }
        let is_taken_up = is_taken_up?;
        let dir = Some(Directory { path: path.to_path_buf(), _lock: lock });
        let scratch = Self { inner: Arc::new(Inner { dir, memory: memory.max(64 << 20), progress }) };
        if is_taken_up {
            scratch.note("taking up the work that was stopped");
        }
        Ok(scratch)
    }

    /// Removes the directory and all that is in it.
    ///
    /// # Errors
    /// Removing fails.
    pub fn remove(&self) -> Result<()> {
        match &self.inner.dir {
            Some(dir) => atomic::remove_all(&mut Real, &dir.path),
            None => Ok(()),
        }
    }

    /// The file `name` of the directory, if there is one.
    pub(super) fn file(&self, name: &str) -> Option<PathBuf> {
        self.inner.dir.as_ref().map(|dir| file(&dir.path, name))
    }

    /// Tells what the source will come to, as soon as that is known and before much is written.
    ///
    /// # Errors
    /// There is not enough disk for it.
    pub fn expect(&self, needs: &Needs) -> Result<()> {
        let Some(dir) = &self.inner.dir else { return Ok(()) };
        // as `Edges` decides
        let on_disk = needs.edges > self.memory() / Needs::building(needs.weighted);
        let summary = needs::check(needs, on_disk, needs::free(&dir.path), &dir.path)?;
        if needs.peak(on_disk) >= WORTH_TELLING {
            self.note(&summary);
        }
        Ok(())
    }

    /// Bytes of memory that the work may take in all.
    pub fn memory(&self) -> u64 {
        self.inner.memory
    }

    /// Notes how far a part of the work is on the disk.
    pub(super) fn save(&self, name: &str, state: &impl Serialize) -> Result<()> {
        let Some(path) = self.file(&format!("{name}.json")) else { return Ok(()) };
        let text = serde_json::to_vec(state).map_err(|e| Error::invalid(e.to_string()))?;
        atomic::replace(&mut Real, &path, &text)
    }

    /// How far a part of the work came, where that was noted. A note that cannot be read is none: that part starts again.
    pub(super) fn load<S: DeserializeOwned>(&self, name: &str) -> Option<S> {
        serde_json::from_slice(&fs::read(self.file(&format!("{name}.json"))?).ok()?).ok()
    }

    /// Reports that a stage begins.
    pub fn stage(&self, what: &str, total: Option<u64>, unit: Unit) {
        self.inner.progress.stage(what, total, unit);
    }

    /// Reports the amount of the stage that is done.
    pub fn done(&self, amount: u64) {
        self.inner.progress.done(amount);
    }

    /// Reports something worth a line.
    pub fn note(&self, message: &str) {
        self.inner.progress.note(message);
    }

    /// Ends the work early if that was asked for.
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
    fn a_directory_is_taken_up_cleared_or_refused() {
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
        assert!(open("two").unwrap_err().to_string().contains("a file of this name is in the way"));
    }

    fn open(path: &Path) -> Result<Scratch> {
        Scratch::open(path, "work", 0, Box::new(Quiet))
    }

    #[test]
    fn work_killed_in_its_first_moment_is_taken_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("work");
        for names in [&[][..], &["lock"], &["lock", "work.json.tmp"], &["work.json.tmp"]] {
            fs::create_dir(&path).unwrap();
            names.iter().for_each(|name| fs::write(path.join(name), "").unwrap());
            open(&path).unwrap().remove().unwrap();
            assert!(!path.exists(), "{names:?}");
        }
        // a second process in the same moment
        fs::create_dir(&path).unwrap();
        let _held = atomic::lock(&path.join(LOCK)).unwrap().unwrap();
        fs::write(path.join("work.json.tmp"), "").unwrap();
        let message = open(&path).unwrap_err().to_string();
        assert!(message.contains("another process is at work here"), "{message}");
    }

    #[test]
    fn a_file_system_without_locks_is_not_another_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("work");
        let open = |error: &dyn Fn() -> TryLockError| {
            Scratch::open_by(&path, "work", 0, Box::new(Quiet), &|_| Err(error()))
        };
        for error in atomic::UNSUPPORTED {
            open(&|| TryLockError::Error(error.into())).unwrap().remove().unwrap();
        }
        let message = open(&|| TryLockError::WouldBlock).unwrap_err().to_string();
        assert!(message.contains("another process is at work here"), "{message}");
        // the lock of the other process is its own to remove
        assert!(path.join(LOCK).exists());
    }

    #[cfg(unix)]
    #[test]
    fn links_in_a_scratch_are_unlinked_and_their_targets_stay() {
        use std::os::unix::fs::symlink;

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("work");
        let [victim, file] = ["victim", "victim/thesis"].map(|name| dir.path().join(name));
        fs::create_dir(&victim).unwrap();
        fs::write(&file, "mine").unwrap();
        drop(open(&path).unwrap());
        // for other work all goes; for the same work the links alone
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
        assert!(message.contains("a symbolic link of this name is in the way"), "{message}");
        assert_eq!(fs::read(&file).unwrap(), b"mine");
    }

    #[test]
    fn an_error_while_it_is_opened_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("work");
        // a dataset that cannot be moved back fails behind the lock
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
