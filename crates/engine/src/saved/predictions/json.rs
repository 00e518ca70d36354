//! Predictions as JSON: an array of objects, or an object on each line.
//!
//! A row is an object with the names and the order of the table's columns. Ids, classes without
//! names and values are numbers, keys and names of classes are texts, and a value that is infinite
//! or not a number is `null`. Rows are written one by one, each on a line of its own.

use std::io::{self, Write};

use super::{Column, Predictions};

/// Writes an array of objects.
pub(super) fn write_array(of: &Predictions, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(b"[")?;
    write_rows(of, out, |row| if row == 0 { "\n" } else { ",\n" })?;
    out.write_all(b"\n]\n")
}

/// Writes an object on each line.
pub(super) fn write_lines(of: &Predictions, out: &mut dyn Write) -> io::Result<()> {
    write_rows(of, out, |row| if row == 0 { "" } else { "\n" })?;
    if of.nodes.is_empty() { Ok(()) } else { out.write_all(b"\n") }
}

/// Writes the rows as objects, each after the text that `before` gives for its number.
fn write_rows(of: &Predictions, out: &mut dyn Write, before: fn(usize) -> &'static str) -> io::Result<()> {
    let columns = of.table();
    let name = |(i, (name, _)): (usize, &(String, Column<'_>))| {
        let name = serde_json::to_string(name)?;
        Ok::<_, io::Error>(format!("{}{name}:", if i == 0 { "{" } else { "," }))
    };
    let names = columns.iter().enumerate().map(name).collect::<io::Result<Vec<String>>>()?;
    for row in 0..of.nodes.len() {
        out.write_all(before(row).as_bytes())?;
        for (name, (_, column)) in names.iter().zip(&columns) {
            out.write_all(name.as_bytes())?;
            column.write_json(row, out)?;
        }
        out.write_all(b"}")?;
    }
    Ok(())
}

impl Column<'_> {
    /// Writes the value of row `i`.
    fn write_json(&self, i: usize, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Floats(values, first, cols) => Ok(serde_json::to_writer(out, &values[i * cols + first])?),
            Self::Texts(..) | Self::Names(..) => Ok(serde_json::to_writer(out, &self.text(i))?),
            Self::Ids(_) | Self::Numbers(..) | Self::Classes(..) | Self::Members(..) => {
                out.write_all(self.text(i).as_bytes())
            }
        }
    }
}
