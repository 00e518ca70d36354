//! Finished parts of an import, recorded in its scratch so that it resumes after a kill.
//!
//! A part is a JSON record of values and columns. Columns are files of the scratch, which are
//! durable before the record is; a record whose files are missing or have another size does not
//! count, and the part is read again. Imports of small tables record nothing: they begin again.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use graphmill_core::{Buffer, Error, Result};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    atomic,
    external::{Scratch, SortedRecords},
    npy::{self, Element, Writer},
    signed::FileEntry,
};

/// Column in a file of the scratch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct KeptColumn {
    /// Path below the scratch's directory.
    file: PathBuf,
    entry: FileEntry,
}

/// Sorted records in a file of the scratch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct KeptRecords {
    file: PathBuf,
    bytes: u64,
}

/// Records of an import.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    /// `None` if nothing is recorded.
    scratch: Option<Scratch>,
}

impl Kept {
    /// Creates the records of an import; with `is_large` unset nothing is recorded.
    pub(super) fn new(scratch: &Scratch, is_large: bool) -> Self {
        Self { scratch: is_large.then(|| scratch.clone()) }
    }

    /// Creates records that record nothing.
    pub(super) fn none() -> Self {
        Self { scratch: None }
    }

    /// Returns true if parts are recorded.
    pub(super) fn is_on(&self) -> bool {
        self.scratch.is_some()
    }

    /// Directory of the scratch.
    fn directory(&self) -> Option<PathBuf> {
        Some(self.scratch.as_ref()?.file("x")?.parent()?.to_path_buf())
    }

    /// Loads a part that an earlier process finished, if `restore` finds all of its files.
    pub(super) fn load<S: DeserializeOwned, T>(
        &self,
        name: &str,
        restore: impl FnOnce(S) -> Option<T>,
    ) -> Option<T> {
        let scratch = self.scratch.as_ref()?;
        let part = restore(scratch.load(&format!("done-{name}"))?)?;
        scratch.note(&format!("taking over from the interrupted import: {name}"));
        Some(part)
    }

    /// Records a finished part; `describe` also stores its columns.
    pub(super) fn save<S: Serialize>(&self, name: &str, describe: impl FnOnce() -> Result<S>) -> Result<()> {
        match &self.scratch {
            Some(scratch) => scratch.save(&format!("done-{name}"), &describe()?),
            None => Ok(()),
        }
    }

    /// Stores a column, unless it is a file of the scratch already.
    pub(super) fn column<T: Element>(&self, name: &str, values: &Buffer<T>) -> Result<KeptColumn> {
        if let (Some(written), Some(directory)) = (npy::written(values), self.directory())
            && let Ok(file) = written.path.strip_prefix(&directory)
        {
            return Ok(KeptColumn { file: file.to_path_buf(), entry: written.entry.clone() });
        }
        self.values(name, values)
    }

    /// Stores values as a column.
    pub(super) fn values<T: Element>(&self, name: &str, values: &[T]) -> Result<KeptColumn> {
        let path = self.scratch.as_ref().and_then(|scratch| scratch.file(&format!("kept-{name}.npy")));
        let path = path.ok_or_else(|| Error::invalid("a record of an import without a directory"))?;
        let mut writer = Writer::create(&path)?;
        writer.extend(values)?;
        let entry = writer.finish(&[values.len()])?;
        Ok(KeptColumn { file: path.file_name().unwrap_or_default().into(), entry })
    }

    /// Column of a record; `None` if its file is not there.
    pub(super) fn open<T: Element>(&self, kept: &KeptColumn) -> Option<Buffer<T>> {
        let path = self.there(&kept.file, kept.entry.bytes)?;
        if kept.entry.dtype != T::DTYPE.to_string() {
            return None;
        }
        npy::map_written(path, kept.entry.clone(), None).ok()
    }

    /// Makes sorted records in a file durable; `None` if they are in memory.
    pub(super) fn records(&self, records: &SortedRecords) -> Result<Option<KeptRecords>> {
        let (SortedRecords::File(path), Some(directory)) = (records, self.directory()) else {
            return Ok(None);
        };
        let file = File::open(path).map_err(|e| Error::io(path, "open", e))?;
        atomic::sync(&file, path).map_err(|e| Error::io(path, "sync", e))?;
        let bytes = file.metadata().map_err(|e| Error::io(path, "read the size of", e))?.len();
        let below = path.strip_prefix(&directory).unwrap_or(path);
        Ok(Some(KeptRecords { file: below.to_path_buf(), bytes }))
    }

    /// Sorted records of a record; `None` if their file is not there.
    pub(super) fn open_records(&self, kept: &KeptRecords) -> Option<SortedRecords> {
        Some(SortedRecords::File(self.there(&kept.file, kept.bytes)?))
    }

    /// Path of a file that has this size.
    fn there(&self, file: &Path, bytes: u64) -> Option<PathBuf> {
        let path = self.directory()?.join(file);
        let found = fs::symlink_metadata(&path).ok()?;
        (found.is_file() && found.len() == bytes).then_some(path)
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::progress::Quiet;

    use super::*;

    fn scratch(dir: &Path) -> Scratch {
        Scratch::open(&dir.join("work"), "test", 0, Box::new(Quiet)).unwrap()
    }

    #[test]
    fn columns_count_only_as_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = scratch(dir.path());
        let kept = Kept::new(&scratch, true);
        let column = kept.column("numbers", &Buffer::from(vec![7u32, 8, 9])).unwrap();
        let path = scratch.file("kept-numbers.npy").unwrap();
        let open = || kept.open::<u32>(&column);
        assert_eq!(open().unwrap()[..], [7, 8, 9]);
        // a column that is a file of the scratch already is not stored again
        let again = kept.column("copy", &open().unwrap()).unwrap();
        assert_eq!(again.file, column.file);
        assert!(!scratch.file("kept-copy.npy").unwrap().exists());
        // another one is
        let other = kept.values("copy", &[1.5f64]).unwrap();
        assert_eq!(kept.open::<f64>(&other).unwrap()[..], [1.5]);
        assert!(kept.open::<f32>(&column).is_none(), "values of another type and the same size");
        let bytes = fs::read(&path).unwrap();
        for changed in [&bytes[..bytes.len() - 1], &[&bytes[..], &[0]].concat()] {
            fs::write(&path, changed).unwrap();
            assert!(open().is_none(), "{} bytes", changed.len());
        }
        fs::write(&path, &bytes).unwrap();
        assert!(open().is_some());
        fs::remove_file(&path).unwrap();
        assert!(open().is_none());
        fs::create_dir(&path).unwrap();
        assert!(open().is_none());
    }

    #[test]
    fn records_of_a_finished_part_are_loaded_with_their_files_alone() {
        let dir = tempfile::tempdir().unwrap();
        {
            let scratch = scratch(dir.path());
            let kept = Kept::new(&scratch, true);
            assert!(kept.is_on());
            kept.save("part", || Ok((5u64, "five".to_string()))).unwrap();
            let failed = kept.save::<u64>("failed", || Err(Error::invalid("no"))).unwrap_err();
            assert_eq!(failed.to_string(), "no");
        }
        // another process
        let scratch = scratch(dir.path());
        let kept = Kept::new(&scratch, true);
        let load = |name: &str| kept.load(name, |part: (u64, String)| Some(part));
        assert_eq!(load("part"), Some((5, "five".into())));
        assert_eq!((load("failed"), load("other")), (None, None));
        assert!(kept.load("part", |_: (u64, String)| None::<u64>).is_none(), "a file is missing");
        assert!(kept.load("part", |part: u64| Some(part)).is_none(), "a record of another form");
        // small imports record nothing
        for none in [Kept::none(), Kept::new(&scratch, false)] {
            none.save::<u64>("part", || panic!("it is not described")).unwrap();
            assert!(!none.is_on() && none.load("part", |part: (u64, String)| Some(part)).is_none());
            assert!(none.values("numbers", &[1u32]).is_err());
        }
    }

    #[test]
    fn sorted_records_count_only_in_a_file_of_their_size() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = scratch(dir.path());
        let kept = Kept::new(&scratch, true);
        let path = scratch.file("sorted").unwrap();
        fs::write(&path, [3; 40]).unwrap();
        let in_file = SortedRecords::File(path.clone());
        let record = kept.records(&in_file).unwrap().unwrap();
        assert_eq!((record.bytes, path.strip_prefix(dir.path().join("work")).unwrap()), (40, &*record.file));
        assert!(matches!(kept.open_records(&record), Some(SortedRecords::File(found)) if found == path));
        fs::write(&path, [3; 39]).unwrap();
        assert!(kept.open_records(&record).is_none());
        assert!(kept.records(&SortedRecords::Memory(Vec::new(), Vec::new())).unwrap().is_none());
        assert!(Kept::none().records(&in_file).unwrap().is_none());
    }
}
