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
