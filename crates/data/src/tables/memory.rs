//! Tables in memory, from Arrow record batches.

use arrow_array::RecordBatch;
use graphmill_core::{Error, Result};

use super::{
    column::{Batch, OutputRows},
    source::{Table, columns_of},
};

/// Table in memory, which a schema names by its key in [`super::TableSchema::memory`].
#[derive(Clone, Debug, Default)]
pub struct MemoryTable {
    columns: Vec<String>,
    batches: Vec<Batch>,
    rows: u64,
}

impl PartialEq for MemoryTable {
    fn eq(&self, other: &Self) -> bool {
        self.columns == other.columns && self.rows == other.rows
    }
}

impl MemoryTable {
    /// Creates a table without rows.
    ///
    /// # Errors
    /// Two columns have the same name.
    pub fn new(columns: Vec<String>) -> Result<Self> {
        if let Some(twice) = (1..columns.len()).find(|&c| columns[..c].contains(&columns[c])) {
            return Err(Error::invalid(format!("two columns are called '{}'; rename one", columns[twice])));
        }
        Ok(Self { columns, ..Self::default() })
    }

    /// Adds the rows of a record batch.
    ///
    /// # Errors
    /// The batch has another number of columns.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_columns() != self.columns.len() {
            let (found, expected) = (batch.num_columns(), self.columns.len());
            return Err(Error::invalid(format!("a batch of {found} columns for a table of {expected}")));
        }
        let rows = batch.num_rows();
        let (first, places) = (self.rows, OutputRows::Rows(self.rows + 1));
        self.batches.push(Batch { file: 0, first, rows, places, columns: columns_of(batch) });
        self.rows += rows as u64;
        Ok(())
    }

    pub(super) fn open(&self, name: &str) -> Table {
        Table::of_batches(name, self.columns.clone(), self.batches.clone())
    }
}
