//! Text tables: lines of numbers separated by commas, tabs or spaces, with comments and headers.
//!
//! Every line except comments (`#` or `%`) is a row. In a table of one column an empty line is a
//! row with a missing value, as written by pandas, Polars and R, and so is `""`; the reader of the
//! column decides whether a value may be missing. In a table of several columns an empty line is an
//! error. A newline at the end of the file ends the last row and does not begin another. The first
//! line is a header if none of its fields is a number and not all are empty. (Edge lists have a
//! separate reader in `ends.rs`, which skips empty lines, because an edge is never empty.)
//!
//! Files are read line by line; wide rows are parsed in parallel, one batch of lines at a time.

use std::{
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use graphmill_core::{Result, location::Location};
use rayon::prelude::*;

use super::unpack::Unpacked;
use crate::npy::{Element, Number};

/// Maximum length of a line: a row of a million features fits.
pub(crate) const MAX_LINE: u64 = 1 << 26;
/// Bytes read at a time.
const CHUNK_LEN: usize = 1 << 20;
/// Maximum lines and bytes of a batch.
const BATCH: (usize, usize) = (1 << 13, 1 << 22);

/// Lines of a file except comments (`#` or `%`).
pub(crate) struct Lines {
    path: PathBuf,
    reader: BufReader<Unpacked>,
    line: Vec<u8>,
    /// Number of the last line read, from 1.
    number: usize,
}

impl Lines {
    /// Opens `path`, unpacking it if it is gzipped.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let reader = BufReader::with_capacity(CHUNK_LEN, Unpacked::open(path, CHUNK_LEN)?);
        Ok(Self { path: path.to_path_buf(), reader, line: Vec::new(), number: 0 })
    }

    /// Location of the last line.
    pub(crate) fn at(&self) -> Location<'_> {
        Location::new(&self.path, format!("line {}", self.number))
    }

    /// Returns the next line with its number, trimmed; it may be empty.
    pub(crate) fn next(&mut self) -> Result<Option<(usize, &str)>> {
        loop {
            self.line.clear();
            self.number += 1;
            let read = self.reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut self.line);
            let read = read.map_err(|e| self.at().error(format!("cannot be read: {e}")))?;
            if read == 0 {
                return Ok(None);
            }
            if read as u64 == MAX_LINE {
                return Err(self.at().error("a line of more than 64 MiB: this is not a text table"));
            }
            if self.number == 1 && self.line.starts_with(b"\xef\xbb\xbf") {
                self.line.drain(..3); // a byte order mark
            }
            let line = self.line.trim_ascii();
            if !matches!(line.first(), Some(b'#' | b'%')) {
                break;
            }
        }
        match std::str::from_utf8(self.line.trim_ascii()) {
            Ok(line) => Ok(Some((self.number, line))),
            Err(_) => Err(self.at().error("the line is not text (UTF-8)")),
        }
    }
}

/// Splits a line into fields: at commas, else at semicolons, else at white space; spaces and quotes
/// around fields are removed.
pub(crate) fn fields(line: &str) -> impl Iterator<Item = &str> {
    let separator = [',', ';'].into_iter().find(|&c| line.contains(c));
    let (separated, spaced) = match separator {
        Some(c) => (Some(line.split(c)), None),
        None => (None, Some(line.split_ascii_whitespace())),
    };
    separated.into_iter().flatten().chain(spaced.into_iter().flatten()).map(|field| {
        let field = field.trim();
        field.strip_prefix('"').and_then(|field| field.strip_suffix('"')).unwrap_or(field)
    })
}

/// Parses a whole number, which may be written with a point (`3.0`), as by NumPy and pandas.
pub(crate) fn whole<T: Element + std::str::FromStr>(field: &str) -> Option<T> {
    field.parse().ok().or_else(|| T::from_number(Number::Float(field.parse().ok()?)))
}

/// Parses a finite 32-bit float.
pub(crate) fn finite(field: &str) -> Option<f32> {
    field.parse().ok().filter(|x: &f32| x.is_finite())
}

/// Returns true if a first line is a header: none of the fields is a number, and some are not
/// empty.
pub(crate) fn is_header<'a>(fields: impl Iterator<Item = &'a str>) -> bool {
    let mut named = false;
    for field in fields {
        if field.parse::<f64>().is_ok() {
            return false;
        }
        named |= !field.is_empty();
    }
    named
}

/// Number of columns of the table at `path`: that of its first nonempty line; 0 if all are empty.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn width(path: &Path) -> Result<usize> {
    let mut lines = Lines::open(path)?;
    while let Some((_, line)) = lines.next()? {
        if !line.is_empty() {
            return Ok(fields(line).count());
        }
    }
    Ok(0)
}

/// Text table of numbers.
#[derive(Debug)]
pub(crate) struct Table<T> {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// Row-major.
    pub(crate) data: Vec<T>,
}

/// Reads the table at `path`; `parse` converts fields to values, and `what` describes a valid field
/// in messages.
///
/// # Errors
/// A field does not parse, a line of a table of several columns is empty, a row has another length
/// than the first (with line numbers), or the table has no rows.
pub(crate) fn table<T: Element>(
    path: &Path,
    what: &str,
    parse: impl Fn(&str) -> Option<T> + Sync,
) -> Result<Table<T>> {
    let mut table = Table { rows: 0, columns: 0, data: Vec::new() };
    for_each_batch(path, what, parse, |columns, rows| {
        table.columns = columns;
        table.rows += rows.len() / columns;
        table.data.extend_from_slice(rows);
        Ok(())
    })?;
    Ok(table)
}

/// Reads a table as [`table`] does, but passes the rows to `each` in batches, with the number of
/// columns (at least 1).
///
/// # Errors
/// As for [`table`], or `each` fails.
pub(crate) fn for_each_batch<T: Element>(
    path: &Path,
    what: &str,
    parse: impl Fn(&str) -> Option<T> + Sync,
    mut each: impl FnMut(usize, &[T]) -> Result<()>,
) -> Result<()> {
    let mut columns = width(path)?.max(1); // a single column of missing values has empty lines alone
    let mut lines = Lines::open(path)?;
    let mut batch: Vec<(usize, String)> = Vec::new();
    let mut data = Vec::new();
    let (mut rows, mut first) = (0, true);
    loop {
        let mut bytes = 0;
        while batch.len() < BATCH.0 && bytes < BATCH.1 {
            let Some((number, line)) = lines.next()? else { break };
            if std::mem::take(&mut first) && is_header(fields(line)) {
                continue;
            }
            bytes += line.len();
            batch.push((number, line.to_string()));
        }
        let Some((_, row)) = batch.first() else { break };
        if rows == 0 && !row.is_empty() {
            columns = fields(row).count(); // a header may have fewer names
        }
        rows += batch.len();
        let values = parse_rows(&batch, columns, what, &parse);
        data.clear();
        for ((number, _), row) in batch.iter().zip(values) {
            let row = row.map_err(|message| Location::new(path, format!("line {number}")).error(message))?;
            data.extend_from_slice(&row);
        }
        each(columns, &data)?;
        batch.clear();
    }
    if rows == 0 {
        return Err(Location::new(path, "contents").error("there are no rows"));
    }
    Ok(())
}

/// Parser of a field.
type Parse<'a, T> = dyn Fn(&str) -> Option<T> + Sync + 'a;

/// Parses numbered lines in parallel. All parsers of a type share it.
fn parse_rows<T: Send>(
    lines: &[(usize, String)],
    columns: usize,
    what: &str,
    parse: &Parse<'_, T>,
) -> Vec<Result<Vec<T>, String>> {
    lines.par_iter().map(|(_, line)| parse_row(line, columns, what, parse)).collect()
}

fn parse_row<T>(line: &str, columns: usize, what: &str, parse: &Parse<'_, T>) -> Result<Vec<T>, String> {
    if line.is_empty() {
        return match (columns, parse("")) {
            (1, Some(missing)) => Ok(vec![missing]),
            (1, None) => Err(format!("the line is empty, but {what} is expected; fill it in or remove it")),
            _ => Err(format!("the line is empty, but a row has {columns} values; remove the line")),
        };
    }
    let mut row = Vec::with_capacity(columns.min(line.len()));
    for (j, field) in fields(line).enumerate() {
        let value = parse(field);
        let wrong = || format!("column {}: '{}' is not {what}", j + 1, field.escape_debug());
        row.push(value.ok_or_else(wrong)?);
    }
    if row.len() != columns {
        return Err(format!("{} values, but the first row has {columns}", row.len()));
    }
    Ok(row)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn floats(text: &str) -> Result<Table<f32>, String> {
        table(file(text.as_bytes()).path(), "a finite number", finite).map_err(|e| e.to_string())
    }

    #[test]
    fn separators_headers_and_comments() {
        for text in ["a,b\n1,2\n3, 4\n", "1\t2\r\n# x\r\n3 4", "\u{feff}x y\n1 2\n3 4\n", "\"1\";\"2\"\n3;4"]
        {
            let table = floats(text).unwrap();
            assert_eq!((table.rows, table.columns, &table.data[..]), (2, 2, &[1., 2., 3., 4.][..]), "{text}");
        }
        assert_eq!(fields("a,,b").collect::<Vec<_>>(), ["a", "", "b"]);
    }

    #[test]
    fn empty_lines_of_a_single_column_are_missing_values() {
        let parse = |field: &str| if field.is_empty() { Some(-1) } else { whole::<i64>(field) };
        let column = |text: &str| table(file(text.as_bytes()).path(), "a class", parse).map(|t| t.data);
        let same = |text: &str, expected: &[i64]| assert_eq!(column(text).unwrap(), expected, "{text:?}");
        same("label\n0\n\n1\n0\n", &[0, -1, 1, 0]);
        same("label\n0\n\"\"\n1\n0", &[0, -1, 1, 0]);
        same("\"\"\n3\n", &[-1, 3]); // a missing first value is not a header
        same("\n3\n", &[-1, 3]);
        same("# c\nlabel\r\n\r\n% c\r\n3\r\n", &[-1, 3]);
        // The final newline ends the last row; a second one is another row.
        same("3\n4", &[3, 4]);
        same("3\n4\n", &[3, 4]);
        same("3\n4\n\n", &[3, 4, -1]);
        same("\n\n", &[-1, -1]);
        assert!(floats("1\n\n2\n").unwrap_err().contains("line 2: the line is empty, but a finite number"));
    }

    #[test]
    fn empty_lines_among_several_columns_are_errors() {
        for (text, line) in [("1,2\n\n3,4\n", 2), ("a,b\n\n3,4\n", 2), ("\n3,4\n", 1), ("1 2\n3 4\n \t\n", 3)]
        {
            let error = floats(text).unwrap_err();
            let expected = format!("line {line}: the line is empty, but a row has 2 values; remove the line");
            assert!(error.contains(&expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn errors_contain_line_and_column() {
        assert!(floats("# c\n1,2\n3\n").unwrap_err().contains("line 3: 1 values, but the first row has 2"));
        assert!(floats("1,2\n3,x\n").unwrap_err().contains("line 2: column 2: 'x' is not a finite number"));
        assert!(floats("1,2\n3,nan\n").unwrap_err().contains("'nan'"));
        assert!(floats("1,2\n3,1e999\n").unwrap_err().contains("'1e999'"));
        assert!(floats("1,2\n3,\n").unwrap_err().contains("column 2: ''"));
        assert!(floats("a,b\n").unwrap_err().contains("no rows"));
        assert!(table(file(b"1\n\xff\n").path(), "", finite).err().unwrap().to_string().contains("line 2"));
    }

    #[test]
    fn whole_numbers_may_have_a_point() {
        assert_eq!(whole::<i32>("3.0"), Some(3));
        assert_eq!(whole::<i32>("-1"), Some(-1));
        assert_eq!(whole::<u64>("18446744073709551615"), Some(u64::MAX));
        for bad in ["0.5", "x", "", "nan", "1e30"] {
            assert_eq!(whole::<i32>(bad), None, "{bad}");
        }
        assert_eq!(whole::<u64>("-1"), None);
    }

    #[test]
    fn gzip_is_recognized_and_damage_detected() {
        let text: String = (0..20_000).map(|i| format!("{i},{}\n", i * 2)).collect();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        let packed = encoder.finish().unwrap();
        let read = |bytes: &[u8]| table(file(bytes).path(), "a number", finite);
        let unpacked = read(&packed).unwrap();
        assert_eq!((unpacked.rows, unpacked.data[39_999]), (20_000, 39_998.0));
        let error = read(&packed[..packed.len() / 2]).err().unwrap().to_string();
        assert!(error.contains("line ") && error.contains("cannot be read"), "{error}");
        let mut bad = packed.clone();
        let last = bad.len() - 6;
        bad[last] ^= 1; // the checksum
        assert!(read(&bad).is_err());
    }
}
