//! A table in one or several Parquet files, read in runs of rows.

use std::{
    fs::File,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use parquet::{
    errors::ParquetError,
    file::reader::{FileReader, SerializedFileReader},
};

use super::column::{Cells, Column, Kind, kind};
use crate::{
    Error, Result,
    external::{Scratch, Unit},
    place::At,
};

/// Rows read at a time.
const RUN: usize = 1 << 13;

/// The files of a table and its columns, which all files have alike.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) files: Vec<PathBuf>,
    /// Rows by the files' own account.
    pub(super) rows: u64,
    columns: Vec<(String, Kind)>,
}

impl Table {
    /// Looks into all of `files`.
    ///
    /// # Errors
    /// One is no Parquet file, or has other columns than the first.
    pub(super) fn open(files: Vec<PathBuf>) -> Result<Self> {
        let mut table = Self { files: Vec::new(), rows: 0, columns: Vec::new() };
        for path in files {
            let reader = open(&path)?;
            let metadata = reader.metadata().file_metadata();
            let columns = columns_of(&reader);
            if table.files.is_empty() {
                table.columns = columns;
            } else if table.columns != columns {
                let names = |columns: &[(String, Kind)]| {
                    columns.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
                };
                return Err(At::new(&path, "schema").error(format!(
                    "columns {} here, but {} in {} (or of other types)",
                    names(&columns),
                    names(&table.columns),
                    table.files[0].display()
                )));
            }
            table.rows = table.rows.saturating_add(u64::try_from(metadata.num_rows()).unwrap_or(0));
            table.files.push(path);
        }
        Ok(table)
    }

    /// The columns with their names, in the files' order.
    pub(super) fn columns(&self) -> &[(String, Kind)] {
        &self.columns
    }

    /// The column that has one of these names.
    pub(super) fn find(&self, names: &[&str]) -> Option<usize> {
        names.iter().find_map(|name| self.columns.iter().position(|(known, _)| known == name))
    }

    /// The name of column `c`.
    pub(super) fn name(&self, c: usize) -> &str {
        &self.columns[c].0
    }

    /// Where errors of the schema are.
    pub(super) fn at_schema(&self) -> At<'_> {
        At::new(&self.files[0], "schema")
    }

    /// Hands the cells of the columns `wanted` to `each`, a run of rows at a time, with the number of rows. Rows of a file
    /// are counted from 0 in the places of errors; [`At`] stands at the first row of a run.
    ///
    /// # Errors
    /// A file is damaged, or what `each` reports.
    pub(super) fn read(
        &self,
        wanted: &[usize],
        scratch: &Scratch,
        mut each: impl FnMut(&[Cells], usize, &Place) -> Result<()>,
    ) -> Result<()> {
        let mut cells: Vec<Cells> = wanted.iter().map(|_| Cells::default()).collect();
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        scratch.stage(&format!("reading {}", name(&self.files[0])), Some(self.rows), Unit::Rows);
        let mut done = 0u64;
        for path in &self.files {
            let reader = open(path)?;
            if columns_of(&reader) != self.columns {
                return Err(At::new(path, "schema").error("the file has changed since it was opened"));
            }
            let leaves = leaves_of(&reader);
            let mut row = 0u64;
            for g in 0..reader.num_row_groups() {
                let place = |row: u64| Place { path, row, group: g };
                let fail = |e: ParquetError| place(row).damaged(&e);
                let group = guarded(|| reader.get_row_group(g)).map_err(fail)?;
                let expected = group.metadata().num_rows();
                let mut open_columns = Vec::new();
                for &c in wanted {
                    let leaf = leaves[c];
                    let column = group.metadata().column(leaf).column_descr_ptr();
                    let reader = guarded(|| group.get_column_reader(leaf)).map_err(fail)?;
                    open_columns.push(Column::new(reader, &column));
                }
                let first = row;
                loop {
                    let at = place(row);
                    let mut rows = None;
                    for (column, cells) in open_columns.iter_mut().zip(&mut cells) {
                        let found = guarded(|| column.read(RUN, cells)).map_err(|e| at.damaged(&e))?;
                        let values = if cells.lengths.is_empty() {
                            cells.numbers.len().max(cells.texts.len())
                        } else {
                            cells.lengths.len()
                        };
                        if values != found || rows.is_some_and(|rows| rows != found) {
                            return Err(at.error(
                                0,
                                "the columns have different numbers of rows: the file is damaged",
                            ));
                        }
                        rows = Some(found);
                    }
                    let rows = rows.unwrap_or(0);
                    if rows == 0 {
                        break;
                    }
                    each(&cells, rows, &at)?;
                    row += rows as u64;
                    done += rows as u64;
                    scratch.done(done);
                }
                if i64::try_from(row - first).ok() != Some(expected) && !wanted.is_empty() {
                    let message =
                        format!("{} rows, but the file says {expected}: it is damaged", row - first);
                    return Err(At::new(path, format!("row group {g}")).error(message));
                }
            }
        }
        Ok(())
    }
}

/// Where a run of rows begins.
pub(super) struct Place<'a> {
    path: &'a Path,
    row: u64,
    group: usize,
}

impl Place<'_> {
    /// An error in the row `i` of the run.
    pub(super) fn error(&self, i: usize, message: impl Into<String>) -> Error {
        At::new(self.path, format!("row {}", self.row + i as u64)).error(message)
    }

    fn damaged(&self, e: &ParquetError) -> Error {
        let place = format!("row group {}, after row {}", self.group, self.row);
        At::new(self.path, place).error(format!("cannot be read: {e}"))
    }
}

/// Turns a panic of the reader into an error. Some decoders assert what a damaged page does not keep (in version 60 the
/// widths of packed integers, for one). Whatever a panic leaves half done is dropped with the error.
fn guarded<T>(work: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(ParquetError::General("the data is damaged, and its reader gave up".into())))
}

/// Opens a file and checks that what its metadata says of places lies within it: the reader takes them at their word.
fn open(path: &Path) -> Result<SerializedFileReader<File>> {
    let file = File::open(path).map_err(|e| Error::io(path, "open", e))?;
    let size = file.metadata().map_err(|e| Error::io(path, "read the size of", e))?.len();
    let reader = guarded(|| SerializedFileReader::new(file))
        .map_err(|e| At::new(path, "metadata").error(format!("not a readable Parquet file: {e}")))?;
    for (g, group) in reader.metadata().row_groups().iter().enumerate() {
        for column in group.columns() {
            let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
            let length = column.compressed_size();
            let end = u64::try_from(start).ok().zip(u64::try_from(length).ok());
            let inside =
                end.and_then(|(start, length)| start.checked_add(length)).is_some_and(|end| end <= size);
            let counts = column.num_values() >= 0 && column.data_page_offset() >= 0 && group.num_rows() >= 0;
            if !inside || !counts {
                let place = format!("metadata, row group {g}");
                let name = column.column_path().string().escape_debug().to_string();
                return Err(At::new(path, place).error(format!(
                    "the column '{name}' is said to be {length} bytes from byte {start} on, but the file has {size}: it is damaged"
                )));
            }
        }
    }
    Ok(reader)
}

/// The names of the top columns, with what they hold.
fn columns_of(reader: &SerializedFileReader<File>) -> Vec<(String, Kind)> {
    let schema = reader.metadata().file_metadata().schema_descr();
    let roots: Vec<usize> = (0..schema.num_columns()).map(|leaf| schema.get_column_root_idx(leaf)).collect();
    let mut columns = Vec::new();
    for leaf in 0..roots.len() {
        if leaf > 0 && roots[leaf - 1] == roots[leaf] {
            continue;
        }
        let alone = roots.get(leaf + 1) != Some(&roots[leaf]);
        let column = schema.column(leaf);
        columns.push((schema.get_column_root(leaf).name().to_string(), kind(&column, alone)));
    }
    columns
}

/// The first leaf of every top column.
fn leaves_of(reader: &SerializedFileReader<File>) -> Vec<usize> {
    let schema = reader.metadata().file_metadata().schema_descr();
    let root = |leaf: usize| schema.get_column_root_idx(leaf);
    (0..schema.num_columns()).filter(|&leaf| leaf == 0 || root(leaf - 1) != root(leaf)).collect()
}
