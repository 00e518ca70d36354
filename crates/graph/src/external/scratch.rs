//! Where an import keeps what it has collected.

use std::{
    fmt, fs,
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{Edges, Needs, Quiet, Rows, Unit, Watch, needs, publish};
use crate::{
    EdgeOptions, Error, Result,
    atomic::{self, Real},
    npy::Element,
    place::At,
};

/// Room for data on its way to a dataset: a budget of memory, perhaps a directory for what does not fit, and a watcher.
/// Clones share all three.
///
/// The directory stays when the process is killed. A scratch that is opened again for the same work finds what is
/// there: [`Edges`] and [`Rows`] pass over what they already hold when it is pushed again.
#[derive(Clone)]
pub struct Scratch {
    inner: Arc<Inner>,
}

struct Inner {
    dir: Option<Directory>,
    memory: u64,
    watch: Box<dyn Watch>,
}

struct Directory {
    path: PathBuf,
    /// Locked for as long as the scratch lives.
    _lock: File,
}

/// What the directory is for.
#[derive(Serialize, Deserialize)]
struct Purpose {
    format: String,
    work: String,
}

/// Less disk than this is not worth a line.
const WORTH_TELLING: u64 = 100_000_000;
const PURPOSE: &str = "work.json";
const LOCK: &str = "lock";
const FORMAT: &str = "graphmill-scratch-1";

impl Scratch {
    /// Everything stays in memory; nobody watches.
    pub fn in_memory() -> Self {
        Self::watched(Box::new(Quiet))
    }

    /// Everything stays in memory.
    pub fn watched(watch: Box<dyn Watch>) -> Self {
        Self { inner: Arc::new(Inner { dir: None, memory: u64::MAX, watch }) }
    }

    /// Room in the directory `path` for the work that `work` describes: all that its outcome depends on. What an earlier
    /// process left there for the same work is taken up, anything else of a scratch is removed first.
    ///
    /// `memory` is what the work may take, in bytes; at least 64 MiB are taken.
    ///
    /// # Errors
    /// The directory cannot be made, is in use by another process, or holds what no scratch wrote.
    pub fn open(path: &Path, work: &str, memory: u64, watch: Box<dyn Watch>) -> Result<Self> {
        let at = At::new(path, "directory");
        match fs::create_dir_all(path) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(at.error("a file of this name is in the way; move it away"));
            }
            made => made.map_err(|e| Error::io(path, "create the directory", e))?,
        }
        let stranger = |name: &str| !name.starts_with("scratch-") && ![PURPOSE, LOCK].contains(&name);
        let entries = fs::read_dir(path).map_err(|e| Error::io(path, "look into", e))?;
        for entry in entries {
            let name = entry.map_err(|e| Error::io(path, "look into", e))?.file_name();
            if name.to_str().is_none_or(stranger) {
                let name = name.to_string_lossy();
                return Err(
                    at.error(format!("it holds '{name}', which no import wrote; move the directory away"))
                );
            }
        }
        let lock_path = path.join(LOCK);
        let lock = File::create(&lock_path).map_err(|e| Error::io(&lock_path, "create", e))?;
        if lock.try_lock().is_err() {
            return Err(at.error("another process is at work here; wait for it, or choose another directory"));
        }
        publish::restore(path)?;
        let purpose: Option<Purpose> =
            fs::read(path.join(PURPOSE)).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let same = purpose.is_some_and(|p| p.format == FORMAT && p.work == work);
        if !same {
            for entry in fs::read_dir(path).map_err(|e| Error::io(path, "look into", e))? {
                let entry = entry.map_err(|e| Error::io(path, "look into", e))?.path();
                if entry != lock_path {
                    // a published dataset's beginnings are the one directory that may be here
                    let removed = if entry.is_dir() {
                        atomic::remove_all(&mut Real, &entry)
                    } else {
                        fs::remove_file(&entry).map_err(|e| Error::io(&entry, "remove", e))
                    };
                    removed?;
                }
            }
        }
        let dir = Some(Directory { path: path.to_path_buf(), _lock: lock });
        let scratch = Self { inner: Arc::new(Inner { dir, memory: memory.max(64 << 20), watch }) };
        if same {
            scratch.note("taking up the work that was stopped");
        } else {
            let text = serde_json::to_vec(&Purpose { format: FORMAT.into(), work: work.into() });
            let text = text.map_err(|e| Error::invalid(e.to_string()))?;
            atomic::replace(&mut Real, &path.join(PURPOSE), &text)?;
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
        let told = needs::check(needs, on_disk, needs::free(&dir.path), &dir.path)?;
        if needs.peak(on_disk) >= WORTH_TELLING {
            self.note(&told);
        }
        Ok(())
    }

    /// Bytes of memory that the work may take in all.
    pub fn memory(&self) -> u64 {
        self.inner.memory
    }

    /// An empty collection of edges, which [`Edges::build`] treats by `options`.
    pub fn edges(&self, options: EdgeOptions) -> Edges {
        Edges::new(self.clone(), options, false)
    }

    /// As [`Scratch::edges`], for edges that have weights where `weighted` says so.
    pub fn maybe_weighted_edges(&self, options: EdgeOptions, weighted: bool) -> Edges {
        Edges::new(self.clone(), options, weighted)
    }

    /// A table of `columns` columns; `name` is one of its own within this scratch.
    ///
    /// # Errors
    /// What an earlier process left cannot be taken up.
    pub fn rows<T: Element>(&self, name: &str, columns: usize) -> Result<Rows<T>> {
        Rows::new(self.clone(), name, Some(columns))
    }

    /// A single column, whose file has one axis; else as [`Scratch::rows`].
    ///
    /// # Errors
    /// As for [`Scratch::rows`].
    pub fn column<T: Element>(&self, name: &str) -> Result<Rows<T>> {
        Rows::new(self.clone(), name, None)
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

    /// Tells the watcher that a stage begins.
    pub fn stage(&self, what: &str, total: Option<u64>, unit: Unit) {
        self.inner.watch.stage(what, total, unit);
    }

    /// Tells the watcher how far the stage is.
    pub fn done(&self, amount: u64) {
        self.inner.watch.done(amount);
    }

    /// Tells the watcher something worth a line.
    pub fn note(&self, message: &str) {
        self.inner.watch.note(message);
    }

    /// Whether to go on.
    ///
    /// # Errors
    /// [`Error::Stopped`]: the watcher says no.
    pub fn check(&self) -> Result<()> {
        self.inner.watch.check()
    }
}

/// The file `name` of the scratch in the directory `dir`.
pub(super) fn file(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("scratch-{name}"))
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
    use super::*;

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
        assert!(open("two").unwrap_err().to_string().contains("in the way"));
    }
}
