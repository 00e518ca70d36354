//! Publication of finished work: the directory is built within the scratch and moved into place, so
//! that a killed process leaves nothing outside of the scratch, and the next one can resume.

use std::path::{self, Path};

use graphmill_core::{Error, Result};

use super::{
    Scratch,
    directory::{FRESH, PUBLISHED, REPLACED},
};
use crate::atomic::{self, Real};

impl Scratch {
    /// Writes the directory `path` atomically through `fill`, which receives a fresh directory.
    /// With `replace`, an existing directory is replaced; otherwise `path` must be missing or
    /// empty.
    ///
    /// # Errors
    /// The error of `fill`, or creating, syncing or renaming fails; `path` is then unchanged.
    pub fn publish(&self, path: &Path, replace: bool, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        let names = [FRESH, REPLACED, PUBLISHED].map(|name| self.file(name));
        let [Some(fresh), Some(old), Some(note)] = names else {
            return atomic::write_dir(path, replace, fill);
        };
        atomic::remove_all(&mut Real, &note)?;
        atomic::remove_all(&mut Real, &fresh)?;
        if replace {
            let place = path::absolute(path).map_err(|e| Error::io(path, "look for", e))?;
            self.save(REPLACED, &place)?;
        }
        let finish = |fresh: &Path| {
            fill(fresh)?;
            atomic::replace(&mut Real, &note, b"{}")
        };
        atomic::write_dir_by_way_of([&fresh, &old], path, replace, finish)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use graphmill_core::progress::Quiet;

    use super::*;
    use crate::{atomic::ForgettingDisk, external::remove_left};

    fn open(dir: &Path, work: &str) -> Scratch {
        Scratch::open(&dir.join("d.importing"), work, 0, Box::new(Quiet)).unwrap()
    }

    fn fill(text: &str) -> impl FnOnce(&Path) -> Result<()> {
        move |d: &Path| fs::write(d.join("f"), text).map_err(|e| Error::io(d, "write", e))
    }

    #[test]
    fn published_directories_appear_atomically() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d");
        let scratch = open(dir.path(), "one");
        assert!(scratch.publish(&path, false, |_| Err(Error::invalid("no"))).is_err());
        assert!(!path.exists());
        // Leftovers of a killed process do not interfere.
        let begun = dir.path().join("d.importing/scratch-finished");
        fs::create_dir(&begun).unwrap();
        fs::write(begun.join("half"), "").unwrap();
        scratch.publish(&path, false, fill("one")).unwrap();
        assert!(scratch.publish(&path, false, fill("two")).is_err());
        scratch.publish(&path, true, fill("three")).unwrap();
        assert_eq!(fs::read(path.join("f")).unwrap(), b"three");
        assert!(!path.join("half").exists());
        scratch.remove().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn only_a_published_scratch_is_removed_for_a_refused_command() {
        let dir = tempfile::tempdir().unwrap();
        let (path, place) = (dir.path().join("d"), dir.path().join("d.importing"));
        let scratch = open(dir.path(), "one");
        fs::write(scratch.file("half").unwrap(), "hours of work").unwrap();
        let is_kept = || {
            remove_left(&place, true);
            place.exists()
        };
        assert!(is_kept(), "a process works there");
        drop(scratch);
        assert!(is_kept(), "unfinished work");
        let scratch = open(dir.path(), "one");
        scratch.publish(&path, false, fill("one")).unwrap();
        assert!(is_kept(), "a process works there");
        drop(scratch);
        fs::write(place.join("mine"), "").unwrap();
        assert!(is_kept(), "it holds a file of another program");
        fs::remove_file(place.join("mine")).unwrap();
        assert!(!is_kept(), "its result is in place");
        // a process that is killed while it removes the directory
        for names in [&[][..], &["lock"], &["work.json"], &["lock", "scratch-published.json", "work.json"]] {
            fs::create_dir(&place).unwrap();
            names.iter().for_each(|name| fs::write(place.join(name), "").unwrap());
            assert!(!is_kept(), "{names:?}");
        }
        fs::write(&place, "a file").unwrap();
        assert!(is_kept());
        fs::remove_file(&place).unwrap();
        fs::write(open(dir.path(), "two").file("half").unwrap(), "").unwrap();
        remove_left(&place, false);
        assert!(!place.exists(), "work that is never resumed");
        assert_eq!(fs::read(path.join("f")).unwrap(), b"one");
    }

    #[test]
    fn directories_moved_aside_are_restored() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d");
        let scratch = open(dir.path(), "one");
        scratch.publish(&path, false, fill("old")).unwrap();
        scratch.save(REPLACED, &path).unwrap();
        let old = dir.path().join("d.importing/scratch-replaced");
        fs::rename(&path, &old).unwrap();
        drop(scratch);
        // Independent of the work of the next process.
        drop(open(dir.path(), "two"));
        assert_eq!(fs::read(path.join("f")).unwrap(), b"old");
        // If the new directory is in place, the old one is removed.
        let scratch = open(dir.path(), "three");
        scratch.save(REPLACED, &path).unwrap();
        fs::create_dir(&old).unwrap();
        fs::write(old.join("f"), "older").unwrap();
        drop(scratch);
        open(dir.path(), "three").publish(&path, true, fill("new")).unwrap();
        assert_eq!(fs::read(path.join("f")).unwrap(), b"new");
        assert!(!old.exists());
    }

    #[test]
    fn a_loss_of_power_keeps_a_dataset_that_is_restored() {
        let [root, states] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let path = root.path().join("d");
        let scratch = open(root.path(), "one");
        scratch.publish(&path, false, fill("old")).unwrap();
        scratch.save(REPLACED, &path).unwrap();
        fs::rename(&path, root.path().join("d.importing/scratch-replaced")).unwrap();
        drop(scratch);
        let lost = |ignores_syncs: bool| {
            let disk = ForgettingDisk::record(root.path(), || drop(open(root.path(), "two"))).unwrap();
            let disk = if ignores_syncs { disk.ignoring_syncs() } else { disk };
            let mut lost = 0;
            let see = &mut |state: &Path, _| {
                let old = state.join("d.importing/scratch-replaced");
                let is_restored = fs::read(state.join("d/f")).is_ok_and(|text| text == b"old");
                let is_noted = old.join("f").exists() && old.with_extension("json").exists();
                lost += usize::from(!is_restored && !is_noted);
            };
            disk.losses(states.path(), see).unwrap();
            lost
        };
        assert_eq!(lost(false), 0);
        assert_eq!(fs::read(path.join("f")).unwrap(), b"old");
        // as it was, to prove that the test notices a missing sync
        let scratch = open(root.path(), "one");
        scratch.save(REPLACED, &path).unwrap();
        fs::rename(&path, root.path().join("d.importing/scratch-replaced")).unwrap();
        drop(scratch);
        assert!(lost(true) > 0);
    }
}
