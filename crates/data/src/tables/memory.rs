//! Tables in memory, from Arrow record batches.

use std::{collections::HashSet, sync::Arc};

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, ListArray, RecordBatch, StringArray, new_null_array,
    types::Float64Type,
};
use arrow_schema::DataType;
use graphmill_core::{Error, Result};
use serde_json::{Map, Value};

use super::source::{BATCH_ROWS, Table, check_columns};

/// Values that a table of objects may have, with missing ones.
const MAX_VALUES: usize = 1 << 20;
/// Values, with missing ones, for each value that is present, in a table of more than
/// [`MAX_VALUES`]: its memory is bounded by that of the objects.
const MAX_VALUES_OF_EACH: usize = 64;

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
        let twice = {
            let mut known = HashSet::with_capacity(columns.len());
            columns.iter().find(|&name| !known.insert(name))
        };
        if let Some(twice) = twice {
            return Err(Error::invalid(format!("two columns are called '{twice}'; rename one")));
        }
        Ok(Self { columns, ..Self::default() })
    }

    /// Creates a table of JSON objects, a row each, as a file of JSON lines is read: a column has
    /// the type that its values agree on, and is text otherwise. A missing name is a missing value.
    ///
    /// # Errors
    /// The rows have no names, or so many different ones that most of the table would be missing
    /// values.
    pub fn of_objects(rows: &[Map<String, Value>]) -> Result<Self> {
        let mut known = HashSet::new();
        let names = rows.iter().flat_map(Map::keys).filter(|name| known.insert(&name[..]));
        let mut table = Self::new(names.cloned().collect())?;
        let (all, present) = (rows.len() * table.columns.len(), rows.iter().map(Map::len).sum::<usize>());
        if is_nearly_empty(all, present) {
            return Err(Error::invalid(format!(
                "{} rows have {} different names and {present} values in all, so nearly all of the {all} \
                 values of the table would be missing; pass rows with the same names, or fewer at once",
                rows.len(),
                table.columns.len()
            )));
        }
        let column = |name: &String| {
            let values: Vec<&Value> = rows.iter().map(|row| row.get(name).unwrap_or(&Value::Null)).collect();
            (name.clone(), array(&values), true)
        };
        let columns: Vec<(String, ArrayRef, bool)> = table.columns.iter().map(column).collect();
        let batch = RecordBatch::try_from_iter_with_nullable(columns);
        table.push(&batch.map_err(|e| Error::invalid(format!("rows: {e}; pass objects with values")))?)?;
        Ok(table)
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
        Table::of_batches(name, self.columns.clone(), vec![self.batches.clone()])
    }

    /// Opens tables with the columns of the first as one table, of which each is a file. They may
    /// lack the columns `optional`.
    ///
    /// # Errors
    /// A table has other columns.
    pub(super) fn open_all(tables: &[&Self], name: &str, optional: &[String]) -> Result<Table> {
        let columns = tables.first().map(|table| table.columns.clone()).unwrap_or_default();
        let files = tables.iter().map(|table| {
            check_columns([&columns, &table.columns], optional).map_err(|why| {
                Error::invalid(format!("{name}: the columns differ from those of its first table: {why}"))
            })?;
            table.batches.iter().map(|batch| ordered(batch, &table.columns, &columns)).collect()
        });
        let files: Result<_> = files.collect();
        Ok(Table::of_batches(name, columns, files?))
    }
}

/// Returns true if too few of `all` values of a table are `present`.
fn is_nearly_empty(all: usize, present: usize) -> bool {
    all > MAX_VALUES.max(MAX_VALUES_OF_EACH * present)
}

/// The batch of the columns `found` with the columns `wanted`, of which missing ones are null.
fn ordered(batch: &RecordBatch, found: &[String], wanted: &[String]) -> Result<RecordBatch> {
    let column = |name: &String| match found.iter().position(|column| column == name) {
        Some(c) => (name.clone(), batch.column(c).clone(), true),
        None => (name.clone(), new_null_array(&DataType::Null, batch.num_rows()), true),
    };
    let columns = RecordBatch::try_from_iter_with_nullable(wanted.iter().map(column));
    columns.map_err(|e| Error::invalid(e.to_string()))
}

/// Array of the values of a column.
fn array(values: &[&Value]) -> ArrayRef {
    let all = |is: &dyn Fn(&Value) -> bool| values.iter().all(|value| value.is_null() || is(value));
    let numbers = |value: &Value| -> Option<Vec<Option<f64>>> {
        value.as_array()?.iter().map(|x| x.as_f64().map(Some)).collect()
    };
    if all(&|_| false) {
        Arc::new(values.iter().map(|_| None::<&str>).collect::<StringArray>())
    } else if all(&Value::is_boolean) {
        Arc::new(values.iter().map(|value| value.as_bool()).collect::<BooleanArray>())
    } else if all(&Value::is_i64) {
        Arc::new(values.iter().map(|value| value.as_i64()).collect::<Int64Array>())
    } else if all(&|value| value.is_number() && !value.is_u64() || value.is_i64()) {
        Arc::new(values.iter().map(|value| value.as_f64()).collect::<Float64Array>())
    } else if all(&|value| numbers(value).is_some()) {
        let lists = values.iter().map(|value| numbers(value));
        Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>(lists))
    } else {
        let text = |value: &&Value| match value {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        };
        Arc::new(values.iter().map(text).collect::<StringArray>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_with_names_of_their_own_are_refused_before_they_take_memory() {
        let row = |i: usize| Map::from_iter([(format!("c{i}"), Value::from(1))]);
        let rows: Vec<_> = (0..2000).map(row).collect();
        let error = MemoryTable::of_objects(&rows).unwrap_err().to_string();
        assert!(error.contains("2000 rows have 2000 different names and 2000 values in all"), "{error}");
        assert!(error.ends_with("pass rows with the same names, or fewer at once"), "{error}");
        // few rows with names of their own, and many with some of the names
        assert_eq!(MemoryTable::of_objects(&rows[..100]).unwrap().columns.len(), 100);
        assert!(!is_nearly_empty(20_000 * 60, 20_000) && is_nearly_empty(20_000 * 65, 20_000));
    }

    #[test]
    fn columns_of_the_same_name_are_refused() {
        let columns = ["a", "b", "a"].map(String::from).to_vec();
        let error = MemoryTable::new(columns).unwrap_err().to_string();
        assert_eq!(error, "two columns are called 'a'; rename one");
    }
}
