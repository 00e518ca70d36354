//! The last step of work in a scratch: the finished directory is made within the scratch and moved to its place, so that
//! a process killed on the way leaves nothing outside of the scratch, and the next one finds what it left.

use std::path::{self, Path};

use graphmill_core::{Error, Result};

use super::{Scratch, directory::REPLACED};
use crate::atomic::{self, Real};

/// Where the directory is made.
const FRESH: &str = "finished";

impl Scratch {
    /// Writes the directory `path` through `fill`, which is handed a fresh one: `path` appears whole or not at all. With
    /// `replace`, an existing directory is replaced; otherwise `path` must be missing or empty.
    ///
    /// # Errors
    /// What `fill` reports, or creating, syncing or renaming fails; `path` is then as it was.
    pub fn publish(&self, path: &Path, replace: bool, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        let (Some(fresh), Some(old)) = (self.file(FRESH), self.file(REPLACED)) else {
            return atomic::write_dir(path, replace, fill);
        };
        atomic::remove_all(&mut Real, &fresh)?;
        if replace {
            let place = path::absolute(path).map_err(|e| Error::io(path, "look for", e))?;
            self.save(REPLACED, &place)?;
        }
        atomic::write_dir_by_way_of([&fresh, &old], path, replace, fill)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use graphmill_core::progress::Quiet;

    use super::*;

    fn open(dir: &Path, work: &str) -> Scratch {
        Scratch::open(&dir.join("d.importing"), work, 0, Box::new(Quiet)).unwrap()
    }

    fn fill(text: &str) -> impl FnOnce(&Path) -> Result<()> {
        move |d: &Path| fs::write(d.join("f"), text).map_err(|e| Error::io(d, "write", e))
    }

    #[test]
    fn what_is_published_appears_whole() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("d");
        let scratch = open(room.path(), "one");
        assert!(scratch.publish(&path, false, |_| Err(Error::invalid("no"))).is_err());
        assert!(!path.exists());
        // what a killed process had begun is in nobody's way
        let begun = room.path().join("d.importing/scratch-finished");
        fs::create_dir(&begun).unwrap();
        fs::write(begun.join("half"), "").unwrap();
        scratch.publish(&path, false, fill("one")).unwrap();
        assert!(scratch.publish(&path, false, fill("two")).is_err());
        scratch.publish(&path, true, fill("three")).unwrap();
        assert_eq!(fs::read(path.join("f")).unwrap(), b"three");
        assert!(!path.join("half").exists());
        scratch.remove().unwrap();
        assert_eq!(fs::read_dir(room.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_dataset_moved_out_of_the_way_comes_back() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("d");
        let scratch = open(room.path(), "one");
        scratch.publish(&path, false, fill("old")).unwrap();
        scratch.save(REPLACED, &path).unwrap();
        let old = room.path().join("d.importing/scratch-replaced");
        fs::rename(&path, &old).unwrap();
        drop(scratch);
        // whatever work the next process has there
        drop(open(room.path(), "two"));
        assert_eq!(fs::read(path.join("f")).unwrap(), b"old");
        // where the new one is in its place, the old one goes
        let scratch = open(room.path(), "three");
        scratch.save(REPLACED, &path).unwrap();
        fs::create_dir(&old).unwrap();
        fs::write(old.join("f"), "older").unwrap();
        drop(scratch);
        open(room.path(), "three").publish(&path, true, fill("new")).unwrap();
        assert_eq!(fs::read(path.join("f")).unwrap(), b"new");
        assert!(!old.exists());
    }
}
