//! Parquet file as a matrix: all its columns are numbers, or lists of numbers of one length.

use std::path::Path;

use graphmill_core::Result;

use super::table::Table;
use crate::{dataset::import::parquet::column::Kind, external::Scratch, npy::Element};

/// Reads all columns of the file at `path`, row by row, converted to `T`, with the shape `[rows,
/// columns]`; a list counts as as many columns as it is long.
///
/// # Errors
/// The file is damaged, a column is not of numbers, a value is missing or does not fit `T`, or rows
/// differ in length.
pub(crate) fn read<T: Element>(path: &Path) -> Result<(Vec<T>, Vec<usize>)> {
    let table = Table::open(vec![path.to_path_buf()])?;
    for (name, kind) in table.columns() {
        if !matches!(kind, Kind::Number | Kind::List) {
            let message = format!("the column '{}' is not of numbers or lists of them", name.escape_debug());
            return Err(table.at_schema().error(message));
        }
    }
    let wanted: Vec<usize> = (0..table.columns().len()).collect();
    let (mut values, mut width, mut count) = (Vec::new(), None, 0);
    table.read(&wanted, &Scratch::in_memory(), |cells, rows, at| {
        let mut next = vec![0usize; cells.len()];
        for i in 0..rows {
            let before = values.len();
            for (c, cells) in cells.iter().enumerate() {
                let length = cells.lengths.get(i).copied().unwrap_or(1);
                for number in cells.numbers.get(next[c]..next[c] + length).unwrap_or_default() {
                    let value = number.and_then(T::from_number).ok_or_else(|| {
                        let found = number.map_or("missing".into(), |number| number.to_string());
                        at.error(i, format!("a value of '{}' is {found}, not {}", table.name(c), T::DTYPE))
                    })?;
                    values.push(value);
                }
                next[c] += length;
            }
            let length = values.len() - before;
            let expected = *width.get_or_insert(length);
            if length != expected {
                return Err(at.error(i, format!("{length} values, but the first row has {expected}")));
            }
            count += 1;
        }
        Ok(())
    })?;
    Ok((values, vec![count, width.unwrap_or(0)]))
}
