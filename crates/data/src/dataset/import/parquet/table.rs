//! Table in one or several Parquet files, read in batches of rows.

use std::path::{Path, PathBuf};

use graphmill_core::{Error, Result, location::Location, progress::Unit};
use parquet::{errors::ParquetError, file::metadata::RowGroupMetaData};

use super::{
    column::{Cells, Column, Kind},
    file::Source,
    guard::guarded,
};
use crate::external::Scratch;

/// Number of rows read at a time, if they are short.
const BATCH_ROWS: u64 = 1 << 13;
/// Maximum number of values read at a time, or those of one row.
const BATCH_VALUES: u64 = 1 << 20;

/// Files of a table and its columns, which are the same in all files.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) files: Vec<PathBuf>,
    /// Number of rows declared by the files.
    pub(super) rows: u64,
    columns: Vec<(String, Kind)>,
}

impl Table {
    /// Opens all of `files`.
    ///
    /// # Errors
    /// A file is not a Parquet file, or its columns differ from those of the first.
    pub(super) fn open(files: Vec<PathBuf>) -> Result<Self> {
        let mut table = Self { files: Vec::new(), rows: 0, columns: Vec::new() };
        for path in files {
            let source = Source::open(&path)?;
            let columns = source.columns();
            if table.files.is_empty() {
                table.columns = columns;
            } else if table.columns != columns {
                let names = |columns: &[(String, Kind)]| {
                    columns.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
                };
                return Err(Location::new(&path, "schema").error(format!(
                    "the columns are {}, but {} in {} (or types differ)",
                    names(&columns),
                    names(&table.columns),
                    table.files[0].display()
                )));
            }
            let groups = source.metadata.row_groups().iter();
            let rows = groups.map(|group| group.num_rows().unsigned_abs()).fold(0, u64::saturating_add);
            table.rows = table.rows.saturating_add(rows);
            table.files.push(path);
        }
        Ok(table)
    }

    /// Columns with their names, in file order.
    pub(super) fn columns(&self) -> &[(String, Kind)] {
        &self.columns
    }

    /// Index of the column with one of these names.
    pub(super) fn find(&self, names: &[&str]) -> Option<usize> {
        names.iter().find_map(|name| self.columns.iter().position(|(known, _)| known == name))
    }

    /// Name of column `c`.
    pub(super) fn name(&self, c: usize) -> &str {
        &self.columns[c].0
    }

    /// Location of schema errors.
    pub(super) fn at_schema(&self) -> Location<'_> {
        Location::new(&self.files[0], "schema")
    }

    /// Passes the cells of the columns `wanted` to `each`, one batch of rows at a time, with the
    /// number of rows. Locations of errors count a file's rows from 0; [`At`] is the first row of a
    /// batch.
    ///
    /// # Errors
    /// A file is damaged, or `each` fails.
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
            let source = Source::open(path)?;
            if source.columns() != self.columns {
                return Err(Location::new(path, "schema").error("the file has changed since it was opened"));
            }
            let leaves = source.leaves();
            let mut row = 0u64;
            for (g, group) in source.metadata.row_groups().iter().enumerate() {
                let place = |row: u64| Place { path, row, group: g };
                let expected = group.num_rows();
                let wanted_leaves: Vec<usize> = wanted.iter().map(|&c| leaves[c]).collect();
                let run = run(group, &wanted_leaves);
                let mut open_columns = Vec::new();
                for &leaf in &wanted_leaves {
                    let reader = source.column(g, leaf).map_err(|e| place(row).damaged(&e))?;
                    open_columns.push(Column::new(reader, group.column(leaf).column_descr()));
                }
                let first = row;
                loop {
                    let at = place(row);
                    let mut rows = None;
                    for (column, cells) in open_columns.iter_mut().zip(&mut cells) {
                        let found = guarded(|| column.read(run, cells)).map_err(|e| at.damaged(&e))?;
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
                    return Err(Location::new(path, format!("row group {g}")).error(message));
                }
            }
        }
        Ok(())
    }
}

/// Number of rows of a group read at a time: fewer for many columns, or lists that are long on
/// average.
fn run(group: &RowGroupMetaData, leaves: &[usize]) -> usize {
    let values = |&leaf: &usize| group.column(leaf).num_values().unsigned_abs();
    let values = leaves.iter().map(values).fold(0, u64::saturating_add);
    let rows = group.num_rows().unsigned_abs();
    let fit = u128::from(BATCH_VALUES) * u128::from(rows) / u128::from(values.max(1));
    fit.clamp(1, BATCH_ROWS.into()) as usize
}

/// Location of a batch of rows.
pub(super) struct Place<'a> {
    path: &'a Path,
    row: u64,
    group: usize,
}

impl Place<'_> {
    /// Error in row `i` of the batch.
    pub(super) fn error(&self, i: usize, message: impl Into<String>) -> Error {
        Location::new(self.path, format!("row {}", self.row + i as u64)).error(message)
    }

    fn damaged(&self, e: &ParquetError) -> Error {
        let place = format!("row group {}, after row {}", self.group, self.row);
        Location::new(self.path, place).error(format!("cannot be read: {e}"))
    }
}
