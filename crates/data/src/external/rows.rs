//! A table written row by row.

use graphmill_core::{Buffer, Error, Result, search::position};
use serde::{Deserialize, Serialize};

use super::Scratch;
use crate::npy::{self, Element, Writer};

/// Bytes between two points that a killed import can go on from.
const SYNC: u64 = 1 << 30;

/// A row-major table on its way to a dataset. Rows are pushed in an order that the source alone decides.
#[derive(Debug)]
pub struct Rows<T> {
    scratch: Scratch,
    name: String,
    /// Of a table; a single column has one axis.
    columns: Option<usize>,
    /// The rows, while they fit.
    data: Vec<T>,
    /// The rows, once they do not.
    file: Option<Writer<T>>,
    /// Values that an earlier process left, still to be passed over.
    known: u64,
    /// Values on the disk for sure.
    synced: u64,
}

/// What is on the disk for sure.
#[derive(Serialize, Deserialize)]
struct State {
    columns: Option<usize>,
    dtype: String,
    values: u64,
}

impl Scratch {
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
}

impl<T: Element> Rows<T> {
    pub(super) fn new(scratch: Scratch, name: &str, columns: Option<usize>) -> Result<Self> {
        let mut rows =
            Self { scratch, name: name.into(), columns, data: Vec::new(), file: None, known: 0, synced: 0 };
        let state: Option<State> = rows.scratch.load(name);
        if let Some(state) = state.filter(|s| s.columns == columns && s.dtype == T::DTYPE.to_string()) {
            rows.start_at(state.values)?;
            rows.known = rows.synced;
        }
        Ok(rows)
    }

    /// Takes up a file of at least so many values, of which exactly these count; starts with nothing where there is none. (A process
    /// that is killed may leave a file without even its header, or a note of more than a later process has left in it.)
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
    /// `values` is not a multiple of a row, a value is not finite (rows are counted from 0), writing fails, or the watcher ends the
    /// work.
    pub fn extend(&mut self, values: &[T]) -> Result<()> {
        let width = self.columns.unwrap_or(1);
        if width == 0 || !values.len().is_multiple_of(width) {
            let message = format!("{} values are not whole rows of {width} columns", values.len());
            return Err(Error::invalid(message));
        }
        if let Some(i) = position(values, |x| !x.finite()) {
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

    /// Moves the rows to a file, where there is room for one and they are not in it yet.
    pub(crate) fn spill(&mut self) -> Result<()> {
        if let (None, Some(path)) = (&self.file, self.path()) {
            let mut file = Writer::create(&path)?;
            file.extend(&self.data)?;
            (self.data, self.file) = (Vec::new(), Some(file));
        }
        Ok(())
    }

    /// Makes a point that a killed import can go on from, where rows are in a file.
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

    /// Columns of a row.
    pub fn columns(&self) -> usize {
        self.columns.unwrap_or(1)
    }

    /// Rows so far, those that an earlier process left included.
    pub fn len(&self) -> usize {
        let values = self.file.as_ref().map_or(self.data.len(), |file| file.len() as usize);
        values.checked_div(self.columns()).unwrap_or(0)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All rows, in memory or mapped from the scratch directory.
    ///
    /// # Errors
    /// Fewer rows were pushed than an earlier process left, or writing or mapping fails.
    pub fn finish(mut self) -> Result<Buffer<T>> {
        if self.known > 0 {
            let message = "the source has become shorter since the import was stopped; start again without what it left";
            return Err(Error::invalid(message));
        }
        let rows = self.len();
        self.sync()?;
        match (self.path(), self.file) {
            (Some(path), Some(file)) => {
                let shape = [rows, self.columns.unwrap_or(1)];
                let entry = file.finish(if self.columns.is_some() { &shape } else { &shape[..1] })?;
                npy::map_written(path, entry)
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
    fn rows_beyond_the_budget_go_to_a_file_and_are_taken_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("work");
        let open = || Scratch::open(&path, "rows", 0, Box::new(Quiet)).unwrap();
        let data: Vec<f32> = (0..3_000_000).map(|i| i as f32).collect();
        // stopped after a point and some more rows
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
        // few rows stay in memory
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
