//! Text tables: lines with numbers, fields between commas, tabs or spaces, comments, headers.
//!
//! Files are read line by line; wide rows are parsed in
//! parallel, a batch of lines at a time.

use std::{
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use rayon::prelude::*;

use super::unpack::Unpacked;
use crate::{
    Result,
    npy::{Element, Number},
    place::At,
};

/// A longer line is no table: a row of a million features fits.
pub(super) const LONGEST_LINE: u64 = 1 << 26;
/// Bytes read at a time.
const PIECE: usize = 1 << 20;
/// Lines and bytes that are parsed together.
const BATCH: (usize, usize) = (1 << 13, 1 << 22);

/// The lines of a file that carry data: not empty, no comment (`#` or `%`).
pub(in super::super) struct Lines {
    path: PathBuf,
    reader: BufReader<Unpacked>,
    line: Vec<u8>,
    /// The number of the last line read, from 1.
    number: usize,
}

impl Lines {
    /// Opens `path`, unpacking it if it is gzipped.
    pub(in super::super) fn open(path: &Path) -> Result<Self> {
        let reader = BufReader::with_capacity(PIECE, Unpacked::open(path, PIECE)?);
        Ok(Self { path: path.to_path_buf(), reader, line: Vec::new(), number: 0 })
    }

    /// Where the last line is.
    pub(in super::super) fn at(&self) -> At<'_> {
        At::new(&self.path, format!("line {}", self.number))
    }

    /// The next line with its number, without white space around it.
    pub(in super::super) fn next(&mut self) -> Result<Option<(usize, &str)>> {
        loop {
            self.line.clear();
            self.number += 1;
            let read = self.reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut self.line);
            let read = read.map_err(|e| self.at().error(format!("cannot be read: {e}")))?;
            if read == 0 {
                return Ok(None);
            }
            if read as u64 == LONGEST_LINE {
                return Err(self.at().error("a line of more than 64 MiB: this is no text table"));
            }
            if self.number == 1 && self.line.starts_with(b"\xef\xbb\xbf") {
                self.line.drain(..3); // a byte order mark
            }
            let line = self.line.trim_ascii();
            if !line.is_empty() && !matches!(line[0], b'#' | b'%') {
                break;
            }
        }
        match std::str::from_utf8(self.line.trim_ascii()) {
            Ok(line) => Ok(Some((self.number, line))),
            Err(_) => Err(self.at().error("the line is not text (UTF-8)")),
        }
    }
}

/// The fields of a line: between commas, else between semicolons, else between white space; without
/// spaces and quotes around them.
pub(in super::super) fn fields(line: &str) -> impl Iterator<Item = &str> {
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

/// A whole number, which may be written with a point (`3.0`), as NumPy and pandas do.
pub(in super::super) fn whole<T: Element + std::str::FromStr>(field: &str) -> Option<T> {
    field.parse().ok().or_else(|| T::from_number(Number::Float(field.parse().ok()?)))
}

/// A finite 32-bit float.
pub(in super::super) fn finite(field: &str) -> Option<f32> {
    field.parse().ok().filter(|x: &f32| x.is_finite())
}

/// Whether a first line names columns rather than holding values: none of the fields is a number.
pub(super) fn is_header<'a>(mut fields: impl Iterator<Item = &'a str>) -> bool {
    fields.all(|field| field.parse::<f64>().is_err())
}

/// A text table of numbers.
#[derive(Debug)]
pub(in super::super) struct Table<T> {
    pub(in super::super) rows: usize,
    pub(in super::super) columns: usize,
    /// Row-major.
    pub(in super::super) data: Vec<T>,
}

/// Reads the table at `path`, whose fields `parse` turns into values; `what` says in messages what
/// a field must be.
///
/// # Errors
/// A field that does not parse, a row of another length than the first (with line numbers), or no
/// rows at all.
pub(in super::super) fn table<T: Element>(
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

/// As [`table`], but hands the rows to `each` a batch at a time, with the number of columns (1 at least).
///
/// # Errors
/// As for [`table`], and those of `each`.
pub(in super::super) fn for_each_batch<T: Element>(
    path: &Path,
    what: &str,
    parse: impl Fn(&str) -> Option<T> + Sync,
    mut each: impl FnMut(usize, &[T]) -> Result<()>,
) -> Result<()> {
    let mut lines = Lines::open(path)?;
    let mut batch: Vec<(usize, String)> = Vec::new();
    let mut data = Vec::new();
    let (mut columns, mut first) = (0, true);
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
        if columns == 0 {
            columns = fields(row).count();
        }
        let rows: Vec<Result<Vec<T>, String>> =
            batch.par_iter().map(|(_, line)| parse_row(line, columns, what, &parse)).collect();
        data.clear();
        for ((number, _), row) in batch.iter().zip(rows) {
            let row = row.map_err(|message| At::new(path, format!("line {number}")).error(message))?;
            data.extend_from_slice(&row);
        }
        each(columns, &data)?;
        batch.clear();
    }
    if columns == 0 {
        return Err(At::new(path, "contents").error("there are no rows"));
    }
    Ok(())
}

fn parse_row<T>(
    line: &str,
    columns: usize,
    what: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, String> {
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
        for text in
            ["a,b\n1,2\n3, 4\n", "1\t2\r\n# x\r\n\r\n3 4", "\u{feff}x y\n1 2\n3 4\n", "\"1\";\"2\"\n3;4"]
        {
            let table = floats(text).unwrap();
            assert_eq!((table.rows, table.columns, &table.data[..]), (2, 2, &[1., 2., 3., 4.][..]), "{text}");
        }
        assert_eq!(fields("a,,b").collect::<Vec<_>>(), ["a", "", "b"]);
    }

    #[test]
    fn faults_have_line_and_column() {
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
    fn gzip_is_recognised_and_damage_noticed() {
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
