//! JSON lines: an object per line.

use std::{
    collections::HashSet,
    io::BufRead,
    path::{Path, PathBuf},
};

use graphmill_core::{Error, Result, location::Location};
use serde_json::{Map, Value};

use super::{BATCH_ROWS, Dialect, Reader, Rows, files};
use crate::tables::{
    column::{Column, Lists, OutputRows, Texts},
    faults::Faults,
};

/// Maximum number of bytes of a line.
const MAX_LINE_BYTES: u64 = 1 << 26;

/// Maximum number of cells of a batch.
const MAX_BATCH_CELLS: usize = 1 << 20;

struct Json {
    path: PathBuf,
    input: Box<dyn BufRead + Send>,
    columns: Vec<String>,
    line: u64,
    text: Vec<u8>,
}

/// Returns true for text that begins with an object.
pub(super) fn recognize(start: &[u8]) -> bool {
    start.first().is_some_and(|byte| matches!(byte, b'{'))
        || (start.first() == Some(&b'[') && start[1..].trim_ascii_start().first() == Some(&b'{'))
}

/// Opens a file and reads it once for the names of its columns.
pub(super) fn open(path: &Path, _: &Dialect) -> Result<Box<dyn Reader>> {
    if files::start(path)?.starts_with(b"[") {
        let message = "the file is one JSON array; write one object per line (JSON lines), as pandas does \
            with to_json(orient='records', lines=True)";
        return Err(Error::format(path, "line 1", message));
    }
    let mut json = start(path)?;
    let (mut columns, mut known) = (Vec::new(), HashSet::new());
    while json.read_line()? {
        // Faults are reported by the pass that reads the values.
        if let Ok(Value::Object(row)) = serde_json::from_slice(&json.text) {
            columns.extend(row.keys().filter(|&name| known.insert(name.clone())).cloned());
        }
    }
    Ok(Box::new(Json { columns, ..start(path)? }))
}

fn start(path: &Path) -> Result<Json> {
    let mut input = files::open(path)?;
    if input.fill_buf().map_err(|e| Error::io(path, "read", e))?.starts_with(b"\xef\xbb\xbf") {
        input.consume(3);
    }
    Ok(Json { path: path.to_path_buf(), input, columns: Vec::new(), line: 0, text: Vec::new() })
}

impl Json {
    /// Reads the next line that is not blank; false at the end.
    fn read_line(&mut self) -> Result<bool> {
        loop {
            self.text.clear();
            let mut limited = std::io::Read::take(&mut self.input, MAX_LINE_BYTES);
            let read = limited.read_until(b'\n', &mut self.text);
            let read = read.map_err(|e| Error::io(&self.path, "read", e))?;
            self.line += 1;
            if read as u64 == MAX_LINE_BYTES {
                let message =
                    format!("the line is longer than {MAX_LINE_BYTES} bytes; write one object per line");
                return Err(Location::new(&self.path, format!("line {}", self.line)).error(message));
            }
            if read == 0 {
                return Ok(false);
            }
            if !self.text.trim_ascii().is_empty() {
                return Ok(true);
            }
        }
    }
}

impl Reader for Json {
    fn columns(&self) -> &[String] {
        &self.columns
    }

    fn next(&mut self, wanted: &[bool], faults: &mut Faults) -> Result<Option<Rows>> {
        let name = self.path.display().to_string();
        let (mut rows, mut lines): (Vec<Map<String, Value>>, Vec<u64>) = Default::default();
        // Keys that few rows have make wide batches.
        let most = (MAX_BATCH_CELLS / self.columns.len().max(1)).clamp(1, BATCH_ROWS);
        while rows.len() < most && self.read_line()? {
            match serde_json::from_slice(&self.text) {
                Ok(Value::Object(row)) => {
                    rows.push(row);
                    lines.push(self.line);
                }
                Ok(_) => {
                    faults.add(&name, format!("line {}: not an object; write {{...}} per line", self.line))
                }
                Err(e) => faults.add(
                    &name,
                    format!("line {}: column {}: not JSON: {}", self.line, e.column(), plain(&e)),
                ),
            }
        }
        if rows.is_empty() {
            return Ok(None);
        }
        let column = |(name, &wanted): (&String, &bool)| {
            let values = rows.iter().map(|row| row.get(name).unwrap_or(&Value::Null));
            if wanted { column(values) } else { Column::Empty(rows.len()) }
        };
        let columns = self.columns.iter().zip(wanted).map(column).collect();
        Ok(Some(Rows { columns, places: OutputRows::Lines(lines) }))
    }
}

/// Message of an error without its position.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_string()
}

/// Column of JSON values: of their type if they agree, of their texts otherwise.
fn column<'a>(values: impl ExactSizeIterator<Item = &'a Value> + Clone) -> Column {
    let all = |is: fn(&Value) -> bool| values.clone().all(|value| value.is_null() || is(value));
    if all(|_| false) {
        return Column::Empty(values.len());
    }
    if all(Value::is_boolean) {
        return Column::Bool(values.map(Value::as_bool).collect());
    }
    if all(Value::is_i64) {
        return Column::Int(values.map(Value::as_i64).collect());
    }
    if all(|value| value.is_number() && !value.is_u64() || value.is_i64()) {
        return Column::Float(values.map(Value::as_f64).collect());
    }
    if all(|value| numbers(value).is_some()) {
        let mut lists = Lists::default();
        values.for_each(|value| lists.push(numbers(value).as_deref()));
        return Column::List(lists);
    }
    let mut texts = Texts::default();
    for value in values {
        match value {
            Value::Null => texts.push(""),
            Value::String(text) => texts.push(text),
            other => texts.push(&other.to_string()),
        }
    }
    Column::Text(texts)
}

/// Numbers of an array of numbers.
fn numbers(value: &Value) -> Option<Vec<f64>> {
    value.as_array()?.iter().map(Value::as_f64).collect()
}
