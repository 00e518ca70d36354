//! Tables in memory, from Arrow record batches.

use arrow_array::RecordBatch;
use graphmill_core::{Error, Result};

use super::source::{BATCH_ROWS, Table};

/// Table in memory, which a schema names by its key in [`super::TableSchema::memory`]. The memory
/// of the record batches is shared, not copied.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryTable {
    columns: Vec<String>,
    batches: Vec<RecordBatch>,
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
        // Slices bound the memory of a pass, because a pass converts one batch at a time.
        let starts = (0..batch.num_rows()).step_by(BATCH_ROWS);
        let slice = |start| batch.slice(start, BATCH_ROWS.min(batch.num_rows() - start));
        self.batches.extend(starts.map(slice));
        Ok(())
    }

    pub(super) fn open(&self, name: &str) -> Table {
        Table::of_batches(name, self.columns.clone(), self.batches.clone())
    }
}
