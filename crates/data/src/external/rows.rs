//! Table written row by row.

use graphmill_core::{Buffer, Error, Result, search::position};
use serde::{Deserialize, Serialize};

use super::Scratch;
use crate::npy::{self, Element, Writer};

/// Bytes between two checkpoints of an import.
const SYNC: u64 = 1 << 30;

/// Row-major table under construction. Rows must be pushed in an order that depends only on the
/// source.
#[derive(Debug)]
pub struct Rows<T> {
    scratch: Scratch,
    name: String,
    /// Number of columns of a table; `None` for a single column, whose file has one axis.
    columns: Option<usize>,
    /// Rows in memory, while they fit.
    data: Vec<T>,
    /// Rows in a file, once they do not.
    file: Option<Writer<T>>,
    /// Values left by an earlier process that are still to be skipped.
    known: u64,
    /// Values that are synced.
    synced: u64,
    /// True if NaN is a missing value, and no fault.
    may_be_missing: bool,
}

/// Persisted progress.
#[derive(Serialize, Deserialize)]
struct State {
    columns: Option<usize>,
    dtype: String,
    values: u64,
}

impl Scratch {
    /// Creates a table of `columns` columns; `name` is unique within this scratch.
    ///
    /// # Errors
    /// The files of an earlier process cannot be resumed.
    pub fn rows<T: Element>(&self, name: &str, columns: usize) -> Result<Rows<T>> {
        Rows::new(self.clone(), name, Some(columns))
    }

    /// Creates a single column, whose file has one axis, as [`Scratch::rows`] creates a table.
    ///
    /// # Errors
    /// As for [`Scratch::rows`].
    pub fn column<T: Element>(&self, name: &str) -> Result<Rows<T>> {
        Rows::new(self.clone(), name, None)
    }
}

impl<T: Element> Rows<T> {
    pub(super) fn new(scratch: Scratch, name: &str, columns: Option<usize>) -> Result<Self> {
        let mut rows = Self {
            scratch,
            name: name.into(),
            columns,
            data: Vec::new(),
            file: None,
            known: 0,
            synced: 0,
            may_be_missing: false,
        };
        let state: Option<State> = rows.scratch.load(name);
        if let Some(state) = state.filter(|s| s.columns == columns && s.dtype == T::DTYPE.to_string()) {
            rows.start_at(state.values)?;
            rows.known = rows.synced;
        }
        Ok(rows)
    }

    /// The same table, in which NaN is a missing value, as in targets.
    pub(crate) fn with_missing(self) -> Self {
        Self { may_be_missing: true, ..self }
    }

    /// Resumes a file that has at least `values` values, of which exactly those count; starts empty
    /// if the file is missing. (A killed process may leave a file without a header, or a record of
    /// more values than a later process has left in it.)
    pub(super) fn start_at(&mut self, values: u64) -> Result<()> {
        (self.file, self.known, self.synced) = (None, 0, 0);
        if let Some(path) = self.path().filter(|path| values > 0 && path.exists()) {
            self.file = Writer::resume(&path, values)?;
            self.synced = self.file.as_ref().map_or(0, |_| values);
        }
        Ok(())
    }

    fn path(&self) -> Option<std::path::PathBuf> {
        self.scratch.file(&format!("{}.npy", self.name))
    }

    /// Adds whole rows.
    ///
    /// # Errors
    /// `values` is not a multiple of a row, a value is not finite (rows are counted from 0) and may
    /// not be missing,
    /// writing fails, or the work is cancelled.
    pub fn extend(&mut self, values: &[T]) -> Result<()> {
        let width = self.columns.unwrap_or(1);
        if width == 0 || !values.len().is_multiple_of(width) {
            let message = format!("{} values are not whole rows of {width} columns", values.len());
            return Err(Error::invalid(message));
        }
        if let Some(i) = position(values, |x| !x.finite()).filter(|_| !self.may_be_missing) {
            let before = self.len() - self.known as usize / width;
            let (row, column) = (before + i / width, i % width);
            return Err(Error::invalid(format!("column {column} of row {row} is not a finite number")));
        }
        self.scratch.check()?;
        let passed = self.known.min(values.len() as u64);
        self.known -= passed;
        let values = &values[passed as usize..];
        if let Some(file) = &mut self.file {
            file.extend(values)?;
            if (file.len() - self.synced) * size_of::<T>() as u64 >= SYNC {
                self.sync()?;
            }
            return Ok(());
        }
        let bytes = ((self.data.len() + values.len()) * size_of::<T>()) as u64;
        self.data.extend_from_slice(values);
        if bytes > self.scratch.memory() / 16 { self.spill() } else { Ok(()) }
    }

    /// Moves the rows to a file, if the scratch has a directory and they are still in memory.
    pub(crate) fn spill(&mut self) -> Result<()> {
        if let (None, Some(path)) = (&self.file, self.path()) {
            let mut file = Writer::create(&path)?;
            file.extend(&self.data)?;
            (self.data, self.file) = (Vec::new(), Some(file));
        }
        Ok(())
    }

    /// Writes a checkpoint from which a killed import resumes, if the rows are in a file.
    pub(super) fn sync(&mut self) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.sync()?;
        self.synced = file.len();
        let state = State { columns: self.columns, dtype: T::DTYPE.to_string(), values: self.synced };
        self.scratch.save(&self.name, &state)
    }

    #[cfg(test)]
    fn is_on_disk(&self) -> bool {
        self.file.is_some()
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.columns.unwrap_or(1)
    }

    /// Number of rows, including those left by an earlier process.
    pub fn len(&self) -> usize {
        let values = self.file.as_ref().map_or(self.data.len(), |file| file.len() as usize);
        values.checked_div(self.columns()).unwrap_or(0)
    }

    /// Returns true if the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all rows, in memory or mapped from the scratch directory.
    ///
    /// # Errors
    /// Fewer rows were pushed than an earlier process left, or writing or mapping fails.
    pub fn finish(mut self) -> Result<Buffer<T>> {
        if self.known > 0 {
            let message = "the source has become shorter since the interrupted import; remove its directory \
                (.importing) and start again";
            return Err(Error::invalid(message));
        }
        let rows = self.len();
        self.sync()?;
        match (self.path(), self.file) {
            (Some(path), Some(file)) => {
                let shape = [rows, self.columns.unwrap_or(1)];
                let shape = if self.columns.is_some() { &shape[..] } else { &shape[..1] };
                let (entry, leaves) = file.finish_with_leaves(shape)?;
                npy::map_written(path, entry, Some(leaves))
            }
            _ => Ok(self.data.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::progress::Quiet;

    use super::*;

    #[test]
    fn rows_beyond_the_budget_spill_to_a_file_and_resume() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("work");
        let open = || Scratch::open(&path, "rows", 0, Box::new(Quiet)).unwrap();
        let data: Vec<f32> = (0..3_000_000).map(|i| i as f32).collect();
        // Stopped after a checkpoint and some more rows.
        let scratch = open();
        let mut rows = scratch.rows::<f32>("features", 3).unwrap();
        rows.extend(&data[..2_100_000]).unwrap();
        assert!(rows.is_on_disk());
        rows.sync().unwrap();
        rows.extend(&data[2_100_000..2_400_000]).unwrap();
        drop((rows, scratch));
        let scratch = open();
        let mut rows = scratch.rows::<f32>("features", 3).unwrap();
        assert_eq!(rows.len(), 700_000);
        for piece in data.chunks(30_000) {
            rows.extend(piece).unwrap();
        }
        let table = rows.finish().unwrap();
        assert!(table.is_mapped() && table[..] == data[..]);
        assert_eq!(npy::written(&table).unwrap().entry.shape, [1_000_000, 3]);
        // Few rows stay in memory.
        let mut few = scratch.column::<u32>("few").unwrap();
        few.extend(&[1, 2, 3]).unwrap();
        assert!(!few.is_on_disk() && few.finish().unwrap()[..] == [1, 2, 3]);
        assert!(scratch.rows::<f32>("odd", 2).unwrap().extend(&[1.0]).is_err());
        let bad = scratch.rows::<f32>("bad", 2).unwrap().extend(&[1.0, 2.0, 3.0, f32::NAN]).unwrap_err();
        assert!(bad.to_string().contains("column 1 of row 1"), "{bad}");
        let short = scratch.rows::<f32>("features", 3).unwrap();
        assert!(short.finish().unwrap_err().to_string().contains("shorter"));
    }
}
