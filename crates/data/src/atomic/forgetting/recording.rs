//! Recording of all changes below a directory.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{ForgettingDisk, states::Contents};

/// Disks that record at present, each below another root.
static DISKS: Mutex<Vec<ForgettingDisk>> = Mutex::new(Vec::new());

/// Enters a finished change of `path` through `change`, if its directory is recorded. Outside of
/// tests the list is empty.
pub(in super::super) fn note(path: &Path, change: impl FnOnce(&mut ForgettingDisk) -> io::Result<()>) {
    let mut disks = lock();
    let Some(disk) = disks.iter_mut().find(|disk| path.starts_with(&disk.root)) else { return };
    if let Err(e) = change(disk) {
        disk.unknown.get_or_insert_with(|| format!("{}: {e}", path.display()));
    }
}

fn lock() -> MutexGuard<'static, Vec<ForgettingDisk>> {
    DISKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Recording below a root, which ends with it.
struct Recording(PathBuf);

impl Recording {
    fn end(&self) -> Option<ForgettingDisk> {
        let mut disks = lock();
        let place = disks.iter().position(|disk| disk.root == self.0)?;
        Some(disks.swap_remove(place))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.end();
    }
}

impl ForgettingDisk {
    /// Records the changes below the directory `root` that `work` makes on any thread through
    /// [`super::super::Real`] and the functions of [`crate::atomic`].
    ///
    /// # Errors
    /// The contents of `root` cannot be read; a change does not fit to the recorded ones, because
    /// an earlier one was made in another way.
    pub fn record(root: &Path, work: impl FnOnce()) -> io::Result<Self> {
        let disk = Self::new(root)?;
        lock().push(disk);
        let recording = Recording(root.to_path_buf());
        work();
        let disk = recording.end().ok_or(io::ErrorKind::NotFound)?;
        match &disk.unknown {
            Some(change) => Err(io::Error::other(format!("not all changes were recorded: {change}"))),
            None => Ok(disk),
        }
    }

    /// Checks that the files at `place` are those that were recorded.
    pub(super) fn check_complete(&self, place: &Path) -> io::Result<()> {
        let mut found = Vec::new();
        walk(&self.root, place, &mut found)?;
        let found = found.iter().map(|(path, bytes)| (path.clone(), bytes.as_deref()));
        let mut found = self.visible(found.collect());
        let mut recorded = self.visible(self.contents(&self.now, place, self.steps.len(), None));
        found.sort();
        recorded.sort();
        if found == recorded {
            return Ok(());
        }
        let paths = |these: &Contents<'_>, others: &Contents<'_>| -> Vec<PathBuf> {
            these.iter().filter(|entry| !others.contains(entry)).map(|(path, _)| path.clone()).collect()
        };
        let message = format!(
            "changed in another way than through `atomic`, or not synced: found {:?}, recorded {:?}",
            paths(&found, &recorded),
            paths(&recorded, &found)
        );
        Err(io::Error::other(message))
    }
}

/// Lists what `place` below `root` holds: paths below the root, and the bytes of files.
fn walk(root: &Path, place: &Path, found: &mut Vec<(PathBuf, Option<Vec<u8>>)>) -> io::Result<()> {
    let path = root.join(place);
    match fs::symlink_metadata(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
        Ok(data) if data.is_dir() => {
            if !place.as_os_str().is_empty() {
                found.push((place.to_path_buf(), None));
            }
            fs::read_dir(&path)?.try_for_each(|entry| walk(root, &place.join(entry?.file_name()), found))
        }
        Ok(_) => {
            found.push((place.to_path_buf(), Some(fs::read(&path)?)));
            Ok(())
        }
    }
}
