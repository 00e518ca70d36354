//! Tables of numbers: feature rows as text and arrays, sparse if that takes fewer bytes.

use graphmill_core::{Result, SparseRows, location::Location};

use super::{files::Files, lines::for_each_line};
use crate::{dataset::import::csr::Csr, typed::FeatureTable};

/// Feature rows under construction, of which only the nonzero values are held.
#[derive(Debug, Default)]
pub(super) struct SparseTable {
    columns: Option<usize>,
    starts: Vec<u64>,
    indices: Vec<u32>,
    values: Vec<f32>,
}

impl SparseTable {
    /// Adds a row of numbers separated by `separator`.
    ///
    /// # Errors
    /// A message: a value is not a finite number, or the row has another length than the first.
    pub(super) fn push_text(&mut self, line: &str, separator: char) -> Result<(), String> {
        let before = self.indices.len();
        let mut columns = 0;
        for field in line.split(separator) {
            if !matches!(field, "0" | "0.0") {
                let field = field.trim();
                let value = field.parse().ok().filter(|x: &f32| x.is_finite());
                let Some(value) = value else {
                    self.truncate(before);
                    return Err(format!(
                        "feature {columns}: '{}' is not a finite number",
                        field.escape_debug()
                    ));
                };
                if value != 0.0 {
                    self.indices.push(columns);
                    self.values.push(value);
                }
            }
            columns += 1;
        }
        let expected = *self.columns.get_or_insert(columns as usize);
        if columns as usize != expected {
            self.truncate(before);
            return Err(format!("{columns} features, but the first row has {expected}"));
        }
        if self.starts.is_empty() {
            self.starts.push(0);
        }
        self.starts.push(self.indices.len() as u64);
        Ok(())
    }

    fn truncate(&mut self, length: usize) {
        self.indices.truncate(length);
        self.values.truncate(length);
    }

    /// Number of rows.
    pub(super) fn rows(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// Table of all rows; `None` if there are none. It stays sparse if that takes fewer bytes,
    /// unless `dense` is set.
    ///
    /// # Errors
    /// An allocation fails.
    pub(super) fn finish(self, dense: bool) -> Result<Option<FeatureTable>> {
        let (rows, Some(columns)) = (self.rows(), self.columns) else { return Ok(None) };
        let is_smaller = SparseRows::bytes_of(rows, self.values.len()) < rows * columns * 4;
        let sparse = SparseRows::new(columns, self.starts.into(), self.indices.into(), self.values.into())?;
        Ok(Some(match is_smaller && !dense {
            true => FeatureTable::sparse(sparse),
            false => FeatureTable::dense(columns, sparse.to_dense()?),
        }))
    }
}

/// Feature table of a matrix of SciPy, sparse if that takes fewer bytes.
///
/// # Errors
/// The matrix is inconsistent or has another number of rows.
pub(super) fn from_csr(csr: Csr, rows: usize, dense: bool, at: &Location) -> Result<FeatureTable> {
    let mut report = crate::dataset::import::ImportReport::default();
    let features = crate::dataset::import::features::from_csr(csr, rows, dense, at, at, &mut report)?;
    FeatureTable::of_features(&features).ok_or_else(|| at.error("a matrix without columns"))
}

/// Reads the feature rows of the text file `name`.
///
/// # Errors
/// The file cannot be read, or lines have faults, or there are not `rows` rows.
pub(super) fn text_features(
    files: &Files,
    name: &str,
    rows: usize,
    dense: bool,
) -> Result<Option<FeatureTable>> {
    let mut table = SparseTable::default();
    for_each_line(files, name, |line| table.push_text(line, ','))?;
    if table.rows() != rows {
        return Err(super::lines::wrong(files, name, format!("{} rows, but there are {rows}", table.rows())));
    }
    table.finish(dense)
}
