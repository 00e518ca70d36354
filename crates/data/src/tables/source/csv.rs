//! CSV: a header line, quotes, any separator.

use std::{
    io::{self, BufRead, Read},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use csv::{ByteRecord, ReaderBuilder, Terminator};
use graphmill_core::{Error, Result, location::Location};

use super::{BATCH_ROWS, Reader, Rows, TableFile, files};
use crate::tables::{
    column::{Column, OutputRows, Texts},
    faults::Faults,
};

/// Separators that are tried, the more usual first.
const SEPARATORS: [u8; 4] = *b",;\t|";
/// Lines by which the separator is found.
const SAMPLE_LINES: usize = 10;
/// Bytes of a batch's texts.
const MAX_BATCH_BYTES: usize = 1 << 28;

/// Form of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::tables) struct Dialect {
    /// Separator of the fields; `None` to find it.
    pub(in crate::tables) separator: Option<u8>,
    /// Quote; `None` for `"`.
    pub(in crate::tables) quote: Option<u8>,
    /// Columns of the file, once they are known: JSON lines have no header.
    pub(in crate::tables) columns: Option<Vec<String>>,
}

struct Csv {
    path: PathBuf,
    reader: csv::Reader<Box<dyn Read + Send>>,
    columns: Vec<String>,
    record: ByteRecord,
    quote: u8,
    /// Number of quotes that were read.
    quotes: Arc<AtomicU64>,
    /// True if lines end with a carriage return and a line feed, as on Windows.
    ends_with_crlf: bool,
}

/// Counter of the quotes of a file: an odd number means that one is not closed.
struct Counted<R> {
    input: R,
    quote: u8,
    quotes: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        let quotes = buffer[..read].iter().filter(|&&byte| byte == self.quote).count();
        self.quotes.fetch_add(quotes as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Opens a file and reads its header.
pub(super) fn open(file: &TableFile, dialect: &Dialect) -> Result<Box<dyn Reader>> {
    let path = file.path();
    let at = Location::new(path, "line 1");
    let quote = dialect.quote.unwrap_or(b'"');
    let separator = match dialect.separator {
        Some(separator) => separator,
        None => find_separator(&files::start(file)?, quote),
    };
    let mut input = files::open(file)?;
    let start = input.fill_buf().map_err(|e| Error::io(path, "read", e))?;
    if start.starts_with(&[0xff, 0xfe]) || start.starts_with(&[0xfe, 0xff]) {
        return Err(at.error("the file is UTF-16; save it as UTF-8"));
    }
    let first_end = start.iter().position(|&byte| byte == b'\n');
    let ends_with_crlf = first_end.is_some_and(|end| start[..end].ends_with(b"\r"));
    if start.starts_with(b"\xef\xbb\xbf") {
        input.consume(3);
    }
    let quotes = Arc::new(AtomicU64::new(0));
    let mut reader = ReaderBuilder::new()
        .delimiter(separator)
        .quote(quote)
        .flexible(true)
        .terminator(Terminator::CRLF)
        .has_headers(false)
        .buffer_capacity(1 << 16)
        .from_reader(Box::new(Counted { input, quote, quotes: quotes.clone() }) as Box<dyn Read + Send>);
    let mut record = ByteRecord::new();
    reader.read_byte_record(&mut record).map_err(|e| at.error(e.to_string()))?;
    let columns: Result<Vec<String>, _> =
        record.iter().map(|name| std::str::from_utf8(name).map(|name| name.trim().to_string())).collect();
    let columns = columns.map_err(|_| at.error("a name of a column is not UTF-8; save the file as UTF-8"))?;
    if let Some(c) = columns.iter().position(String::is_empty).filter(|&c| c > 0 || columns.len() == 1) {
        return Err(
            at.error(format!("column {} has no name; the first line holds the names of the columns", c + 1))
        );
    }
    // pandas writes its index as a first column without a name.
    let columns =
        columns.into_iter().map(|name| if name.is_empty() { "index".into() } else { name }).collect();
    Ok(Box::new(Csv { path: path.to_path_buf(), reader, columns, record, quote, quotes, ends_with_crlf }))
}

impl Reader for Csv {
    fn columns(&self) -> &[String] {
        &self.columns
    }

    fn next(&mut self, wanted: &[bool], faults: &mut Faults) -> Result<Option<Rows>> {
        let name = self.path.display().to_string();
        let mut texts: Vec<Texts> = wanted.iter().map(|_| Texts::default()).collect();
        let mut lines = Vec::new();
        let mut bytes = 0;
        while lines.len() < BATCH_ROWS && bytes < MAX_BATCH_BYTES {
            let more = self.reader.read_byte_record(&mut self.record);
            let more = more.map_err(|e| match e.into_kind() {
                csv::ErrorKind::Io(e) => Error::io(&self.path, "read", e),
                other => Location::new(&self.path, "text").error(format!("{other:?}")),
            })?;
            if !more {
                self.check_end(&name, &lines, &texts, wanted, faults);
                break;
            }
            let line = self.line();
            if self.record.len() != self.columns.len() {
                faults.add(&name, self.length_fault(line));
                continue;
            }
            let Some(bad) = self.record.iter().position(|field| std::str::from_utf8(field).is_err()) else {
                for ((field, texts), &wanted) in self.record.iter().zip(&mut texts).zip(wanted) {
                    if wanted {
                        texts.push(std::str::from_utf8(field).unwrap_or_default());
                    }
                }
                bytes += self.record.as_slice().len();
                lines.push(line);
                continue;
            };
            let column = &self.columns[bad];
            faults.add(
                &name,
                format!("line {line}: column '{column}': the text is not UTF-8; save the file as UTF-8"),
            );
        }
        if lines.is_empty() {
            return Ok(None);
        }
        let columns = texts
            .into_iter()
            .zip(wanted)
            .map(|(texts, &wanted)| if wanted { Column::Text(texts) } else { Column::Empty(lines.len()) })
            .collect();
        Ok(Some(Rows { columns, places: OutputRows::Lines(lines) }))
    }
}

impl Csv {
    /// Line on which the last record begins, from 1.
    ///
    /// The position of a record is that behind the previous one: before the line feed of Windows,
    /// and before empty lines, which are skipped. The position of the reader is behind the record:
    /// before its line feed on Windows, behind it elsewhere. Only the last record of a file may
    /// lack a line end, and then the first of the two is right.
    fn line(&self) -> u64 {
        let begin = self.record.position().map_or(0, csv::Position::line);
        let feeds = self.record.as_slice().iter().filter(|&&byte| byte == b'\n').count() as u64;
        let after = self.reader.position().line().saturating_sub(feeds);
        begin.max(after.saturating_sub(u64::from(!self.ends_with_crlf)))
    }

    /// Adds a fault if the last row ends with a text of several lines in a file with an odd number
    /// of quotes.
    fn check_end(&self, name: &str, lines: &[u64], texts: &[Texts], wanted: &[bool], faults: &mut Faults) {
        let last = texts.last().filter(|_| wanted.last() == Some(&true)).zip(lines.len().checked_sub(1));
        let spans_lines = last.is_some_and(|(texts, row)| texts.get(row).trim_end().contains('\n'));
        if spans_lines && self.quotes.load(Ordering::Relaxed) % 2 == 1 {
            let (quote, line) = (char::from(self.quote), lines[lines.len() - 1]);
            faults.add(
                name,
                format!("line {line}: a {quote} is not closed until the end of the file; close it"),
            );
        }
    }

    /// Message about a row with a wrong number of fields.
    fn length_fault(&self, line: u64) -> String {
        let (found, expected) = (self.record.len(), self.columns.len());
        let spans_lines = self.record.iter().any(|field| field.contains(&b'\n'));
        let hint = if spans_lines {
            format!("a {} that is not closed joins lines; close it", char::from(self.quote))
        } else {
            "put fields that contain the separator in quotes".into()
        };
        format!("line {line}: {found} fields, but the header has {expected}; {hint}")
    }
}

/// Separator of a file by its first lines: the one by which most lines have as many fields as the
/// header, of which there are most.
fn find_separator(start: &[u8], quote: u8) -> u8 {
    let counts = |separator: u8| {
        let (mut counts, mut fields, mut quoted) = (Vec::new(), 0usize, false);
        for &byte in start {
            match byte {
                byte if byte == quote => quoted = !quoted,
                b'\n' if !quoted => {
                    counts.push(fields);
                    fields = 0;
                    if counts.len() == SAMPLE_LINES {
                        break;
                    }
                }
                byte if byte == separator && !quoted => fields += 1,
                _ => {}
            }
        }
        if counts.is_empty() {
            counts.push(fields);
        }
        let header = counts[0];
        (counts.iter().filter(|&&count| header > 0 && count == header).count(), header)
    };
    // The first of equal separators is the more usual.
    SEPARATORS.into_iter().rev().max_by_key(|&separator| counts(separator)).unwrap_or(b',')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of the records of a file.
    fn lines_of(text: &str) -> Vec<u64> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("table.csv");
        std::fs::write(&path, text).unwrap();
        let mut reader = open(&TableFile::Local(path), &Dialect::default()).unwrap();
        let mut faults = Faults::default();
        let rows = reader.next(&[true, true], &mut faults).unwrap().unwrap();
        assert_eq!(faults.total(), 0, "{text:?}");
        let OutputRows::Lines(lines) = rows.places else { panic!("no lines") };
        lines
    }

    #[test]
    fn records_have_the_lines_on_which_they_begin() {
        let unix = "a,b\n1,2\n\"x\ny\",3\n\n\n4,5\n6,7";
        let lines = [2, 3, 7, 8];
        assert_eq!(lines_of(unix), lines);
        assert_eq!(lines_of(&format!("{unix}\n")), lines);
        let windows = unix.replace('\n', "\r\n");
        assert_eq!(lines_of(&windows), lines);
        assert_eq!(lines_of(&format!("{windows}\r\n")), lines);
        assert_eq!(lines_of(&format!("\u{feff}{windows}")), lines);
    }

    #[test]
    fn the_separator_divides_all_lines_alike() {
        for (text, separator) in [
            ("a,b\n1,2\n", b','),
            ("a;b\n1,5;2\n1,0;3\n", b';'),
            ("a\tb c\n1\tx, y\n", b'\t'),
            ("a|b\n\"x,y,z\"|2\n", b'|'),
            ("a\n1\n2\n", b','),
            ("a,b", b','),
        ] {
            assert_eq!(find_separator(text.as_bytes(), b'"'), separator, "{text}");
        }
    }
}
