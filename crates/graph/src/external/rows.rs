//! A table written row by row.

use super::Scratch;
use crate::{Buffer, Error, Result, npy::Element};

/// A row-major table on its way to a dataset. Rows are pushed in their order.
#[derive(Debug)]
pub struct Rows<T> {
    columns: usize,
    data: Vec<T>,
}

impl<T: Element> Rows<T> {
    pub(super) fn new(_: Scratch, _: &str, columns: usize) -> Result<Self> {
        Ok(Self { columns, data: Vec::new() })
    }

    /// Adds whole rows.
    ///
    /// # Errors
    /// `values` is not a multiple of a row, or writing fails.
    pub fn extend(&mut self, values: &[T]) -> Result<()> {
        if self.columns == 0 || !values.len().is_multiple_of(self.columns) {
            return Err(Error::invalid(format!(
                "{} values are not whole rows of {} columns",
                values.len(),
                self.columns
            )));
        }
        self.data.extend_from_slice(values);
        Ok(())
    }

    /// Columns of a row.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Rows so far.
    pub fn len(&self) -> usize {
        self.data.len().checked_div(self.columns).unwrap_or(0)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All rows, in memory or mapped from the scratch directory.
    ///
    /// # Errors
    /// Writing or mapping fails.
    pub fn finish(self) -> Result<Buffer<T>> {
        Ok(self.data.into())
    }
}
