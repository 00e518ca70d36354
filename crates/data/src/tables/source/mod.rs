//! Tables: CSV, JSON lines, Parquet and Arrow files, read as batches of [`Column`]s.
//!
//! The format is recognized by content. To add one, write a reader as in `json.rs` and add its row
//! to [`TABLE`].

mod arrow;
mod csv;
mod files;
mod json;
mod parquet;

use std::{cell::RefCell, collections::BTreeMap};

use arrow_array::RecordBatch;
use graphmill_core::{Error, Result, location::Location};
use rayon::prelude::*;

pub(super) use csv::Dialect;
pub(super) use files::{Spool, TableFile, find};

use super::{
    column::{Batch, Column, OutputRows},
    faults::{Faults, MAX_LISTED},
    format::Format,
    nulls::Nulls,
    schema::Names,
};

/// Rows of a batch.
pub(super) const BATCH_ROWS: usize = 8192;

/// Reader of one file.
pub(super) trait Reader {
    /// Names of the columns.
    fn columns(&self) -> &[String];

    /// Reads the next rows: only the columns of which `wanted` is set, the others are empty. `None`
    /// at the end. Rows with faults are added to `faults` and omitted.
    ///
    /// # Errors
    /// The file cannot be read any further.
    fn next(&mut self, wanted: &[bool], faults: &mut Faults) -> Result<Option<Rows>>;
}

/// Rows of a file, with their positions.
pub(super) struct Rows {
    pub(super) columns: Vec<Column>,
    pub(super) places: super::column::OutputRows,
}

/// Opens a file of one format.
type Open = fn(&TableFile, &Dialect) -> Result<Box<dyn Reader>>;

/// Format of tables.
struct FileFormat {
    /// Returns true if a file that begins with these bytes has the format.
    recognize: fn(&[u8]) -> bool,
    open: Open,
}

/// Formats, in the order in which they are tried.
const TABLE: &[FileFormat] = &[
    FileFormat { recognize: |bytes| bytes.starts_with(b"PAR1"), open: parquet::open },
    FileFormat {
        recognize: |bytes| bytes.starts_with(b"ARROW1") || bytes.starts_with(&[0xff; 4]),
        open: arrow::open,
    },
    FileFormat { recognize: json::recognize, open: json::open },
    FileFormat { recognize: |_| true, open: csv::open },
];

/// Table of one file or several with the same columns, or of batches in memory.
pub(super) struct Table {
    /// Name in messages.
    name: String,
    /// Names of the columns.
    pub(super) columns: Vec<String>,
    input: Input,
    /// Columns with a format, by which their texts are read.
    formats: Vec<(usize, Format)>,
    /// Columns with texts that stand for missing values.
    nulls: Vec<(usize, Nulls)>,
    /// Rows that fit the memory, once they were read.
    cache: RefCell<Option<Vec<Batch>>>,
    /// Maximum number of bytes of the cache.
    cache_bytes: usize,
}

enum Input {
    /// Files, and the form of each.
    Files { files: Vec<TableFile>, dialects: Vec<Dialect> },
    /// Batches of each table in memory.
    Batches(Vec<Vec<RecordBatch>>),
}

impl Table {
    /// Opens the files of a table, whose rows are kept in memory between passes if they take at
    /// most `cache_bytes`. Files behind the first may lack the columns `optional`, whose values are
    /// missing then.
    ///
    /// # Errors
    /// A file cannot be opened, or its columns differ from those of the first file.
    pub(super) fn open(
        name: &str,
        files: Vec<TableFile>,
        (dialect, optional): (Dialect, &[String]),
        cache_bytes: usize,
    ) -> Result<Self> {
        let mut columns: Vec<String> = Vec::new();
        let mut dialects = Vec::new();
        for (i, file) in files.iter().enumerate() {
            let reader = open_file(file, &dialect)?;
            let found = reader.columns();
            dialects.push(Dialect { columns: Some(found.to_vec()), ..dialect.clone() });
            let at = Location::new(file.path(), "columns");
            if let Some(twice) = (1..found.len()).find(|&c| found[..c].contains(&found[c])) {
                return Err(at.error(format!("two columns are called '{}'; rename one", found[twice])));
            }
            if i == 0 {
                columns = found.to_vec();
                continue;
            }
            check_columns([&columns, found], optional).map_err(|why| {
                at.error(format!("the columns differ from those of {}: {why}", files[0].path().display()))
            })?;
        }
        let input = Input::Files { files, dialects };
        let (formats, nulls) = (Vec::new(), Vec::new());
        Ok(Self { name: name.into(), columns, input, formats, nulls, cache: RefCell::default(), cache_bytes })
    }

    /// Creates a table of batches in memory, of which each list counts as a file.
    pub(super) fn of_batches(name: &str, columns: Vec<String>, batches: Vec<Vec<RecordBatch>>) -> Self {
        let input = Input::Batches(batches);
        let (formats, nulls, cache) = (Vec::new(), Vec::new(), RefCell::default());
        Self { name: name.into(), columns, input, formats, nulls, cache, cache_bytes: 0 }
    }

    /// Columns with a format.
    pub(super) fn formats(&self) -> &[(usize, Format)] {
        &self.formats
    }

    /// Adds columns with a format, by which all further passes read them. Values in memory that a
    /// format does not read are faults.
    pub(super) fn add_formats(&mut self, formats: Vec<(usize, Format)>, faults: &mut Faults) {
        let mut cache = self.cache.take();
        cache.iter_mut().flatten().for_each(|batch| self.apply_formats(&formats, batch, faults));
        self.cache = RefCell::new(cache);
        self.formats.extend(formats);
    }

    /// Adds columns with texts that all passes read as missing values. Call it before the first.
    pub(super) fn add_nulls(&mut self, nulls: Vec<(usize, Names)>) {
        self.nulls.extend(nulls.into_iter().map(|(c, names)| (c, Nulls::new(names))));
    }

    /// Texts that stand for missing values by the names of their columns.
    pub(super) fn named_nulls(&self) -> BTreeMap<String, Names> {
        self.nulls.iter().map(|(c, nulls)| (self.columns[*c].clone(), nulls.names.clone())).collect()
    }

    /// Removes the values that stand for missing ones.
    fn clear_nulls(&self, batch: &mut Batch) {
        for (c, nulls) in &self.nulls {
            batch.columns[*c] = nulls.clear(&batch.columns[*c]);
        }
    }

    /// Format of the column number `c`, in words.
    pub(super) fn format(&self, c: usize) -> Option<String> {
        let found = self.formats.iter().find(|(of, _)| *of == c);
        found.map(|(_, format)| format.to_string())
    }

    /// Formats by the names of their columns.
    pub(super) fn named_formats(&self) -> BTreeMap<String, Format> {
        self.formats.iter().map(|(c, format)| (self.columns[*c].clone(), format.clone())).collect()
    }

    /// Reads columns by their formats. Values that a format does not read are faults.
    fn apply_formats(&self, formats: &[(usize, Format)], batch: &mut Batch, faults: &mut Faults) {
        let read: Vec<_> = formats
            .par_iter()
            .filter(|(c, _)| !matches!(batch.columns[*c], Column::Empty(_)))
            .map(|(c, format)| {
                let (mut wrong, mut count) = (Vec::new(), 0);
                let column = format.convert(&batch.columns[*c], |row, cell| {
                    count += 1;
                    if wrong.len() < MAX_LISTED {
                        wrong.push((row, cell.text().into_owned()));
                    }
                });
                (*c, column, (wrong, count), format)
            })
            .collect();
        for (c, column, (wrong, count), format) in read {
            let more = count - wrong.len() as u64;
            for (row, text) in wrong {
                let place = batch.places.of(row);
                let (name, what) = (&self.columns[c], format.describe());
                faults.add(
                    &self.file(batch),
                    format!(
                        "{place}: column '{name}': '{text}' is not {what}; correct it, declare it missing \
                         (null {name}={text}), or state another format"
                    ),
                );
            }
            if more > 0 {
                faults.add_many(&self.file(batch), more, String::new);
            }
            batch.columns[c] = column;
        }
    }

    /// Name of the file that holds a batch, or of the table.
    pub(super) fn file(&self, batch: &Batch) -> String {
        match &self.input {
            Input::Files { files, .. } => files[batch.file].path().display().to_string(),
            Input::Batches(_) => self.name.clone(),
        }
    }

    /// Position of a row of a batch for a message, with the file if the table has several.
    pub(super) fn place(&self, batch: &Batch, row: usize) -> String {
        format!("{}{}", self.before_place(batch), batch.places.of(row))
    }

    /// Text before the position of a row of a batch: the file if the table has several.
    pub(super) fn before_place(&self, batch: &Batch) -> String {
        match &self.input {
            Input::Files { files, .. } if files.len() > 1 => format!("{}: ", self.file(batch)),
            _ => String::new(),
        }
    }

    /// Name of the table in messages: its file, or the name of its type.
    pub(super) fn name(&self) -> String {
        match &self.input {
            Input::Files { files, .. } if files.len() == 1 => files[0].path().display().to_string(),
            _ => self.name.clone(),
        }
    }

    /// Position of the column `name`.
    ///
    /// # Errors
    /// The table has no such column; the message lists the columns.
    pub(super) fn position(&self, name: &str) -> Result<usize, String> {
        self.columns.iter().position(|column| column == name).ok_or_else(|| {
            let near = self.columns.iter().filter(|known| strsim::jaro_winkler(known, name) > 0.8);
            let near =
                near.max_by(|a, b| strsim::jaro_winkler(a, name).total_cmp(&strsim::jaro_winkler(b, name)));
            let hint = near.map(|near| format!(", did you mean '{near}'?")).unwrap_or_default();
            let all: Vec<&str> = self.columns.iter().map(String::as_str).collect();
            format!("there is no column '{name}'{hint}; the columns are: {}", list(&all))
        })
    }

    /// Passes all rows to `each`, batch by batch: only the columns of which `wanted` is set.
    ///
    /// # Errors
    /// A file cannot be read, or `each` fails.
    pub(super) fn scan(
        &self,
        wanted: &[bool],
        faults: &mut Faults,
        mut each: impl FnMut(&Batch, &mut Faults) -> Result<()>,
    ) -> Result<()> {
        if let Some(batches) = &*self.cache.borrow() {
            return batches.iter().try_for_each(|batch| each(batch, faults));
        }
        let (files, dialects) = match &self.input {
            Input::Batches(batches) => {
                return scan_batches(batches, wanted, |mut batch| {
                    self.clear_nulls(&mut batch);
                    self.apply_formats(&self.formats, &mut batch, faults);
                    each(&batch, faults)
                });
            }
            Input::Files { files, dialects } => (files, dialects),
        };
        // Only a pass over all columns fills the cache.
        let mut cache = wanted.iter().all(|&wanted| wanted).then(Vec::new);
        let (mut first, mut bytes) = (0, 0);
        for (file, (table_file, dialect)) in files.iter().zip(dialects).enumerate() {
            let mut reader = open_file(table_file, dialect)?;
            let order: Vec<Option<usize>> = self
                .columns
                .iter()
                .map(|name| reader.columns().iter().position(|column| column == name))
                .collect();
            if dialect.columns.as_deref() != Some(reader.columns()) {
                let at = Location::new(table_file.path(), "columns");
                return Err(at.error("the file changed while it was read; start again"));
            }
            let mut wanted_there = vec![false; reader.columns().len()];
            for (there, &wanted) in order.iter().zip(wanted) {
                there.iter().for_each(|&there| wanted_there[there] = wanted);
            }
            while let Some(Rows { columns, places }) = reader.next(&wanted_there, faults)? {
                let rows = columns.first().map_or(0, Column::len);
                let mut columns: Vec<Option<Column>> = columns.into_iter().map(Some).collect();
                let columns = order
                    .iter()
                    .map(|there| there.and_then(|c| columns[c].take()).unwrap_or(Column::Empty(rows)))
                    .collect();
                let mut batch = Batch { file, first, rows, places, columns };
                self.clear_nulls(&mut batch);
                self.apply_formats(&self.formats, &mut batch, faults);
                first += rows as u64;
                each(&batch, faults)?;
                bytes += batch.bytes();
                if bytes > self.cache_bytes {
                    cache = None;
                }
                cache.iter_mut().for_each(|cache| cache.push(batch.clone()));
            }
        }
        if !faults.any() {
            *self.cache.borrow_mut() = cache;
        }
        Ok(())
    }

    /// Flags of the columns `positions` for [`Table::scan`].
    pub(super) fn only(&self, positions: impl IntoIterator<Item = usize>) -> Vec<bool> {
        let mut wanted = vec![false; self.columns.len()];
        positions.into_iter().for_each(|c| wanted[c] = true);
        wanted
    }
}

/// Converts record batches one by one: only the columns of which `wanted` is set.
fn scan_batches(
    tables: &[Vec<RecordBatch>],
    wanted: &[bool],
    mut each: impl FnMut(Batch) -> Result<()>,
) -> Result<()> {
    let mut first = 0;
    for (file, batch) in tables.iter().enumerate().flat_map(|(file, of)| of.iter().map(move |of| (file, of)))
    {
        let (rows, places) = (batch.num_rows(), OutputRows::Rows(first + 1));
        let columns = arrow::columns_of(batch, wanted);
        each(Batch { file, first, rows, places, columns })?;
        first += rows as u64;
    }
    Ok(())
}

/// Checks that a table has the columns `expected` of the first one, in any order. It may lack the
/// columns `optional`.
///
/// # Errors
/// The message names the columns that differ.
pub(super) fn check_columns([expected, found]: [&[String]; 2], optional: &[String]) -> Result<(), String> {
    let is_missing = |name: &&String| !found.contains(name) && !optional.contains(name);
    let missing: Vec<&str> = expected.iter().filter(is_missing).map(String::as_str).collect();
    let added: Vec<&str> = found.iter().filter(|name| !expected.contains(name)).map(String::as_str).collect();
    if missing.is_empty() && added.is_empty() {
        return Ok(());
    }
    let (missing, added) = (list(&missing), list(&added));
    Err(format!("missing: {missing}; added: {added}; give files with the same columns"))
}

/// Names in quotes, separated by commas.
pub(super) fn list(names: &[&str]) -> String {
    if names.is_empty() {
        return "none".into();
    }
    names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
}

fn open_file(file: &TableFile, dialect: &Dialect) -> Result<Box<dyn Reader>> {
    let start = files::start(file)?;
    if start.is_empty() {
        return Err(Error::format(
            file.path(),
            "line 1",
            "the file is empty; a line with the names of the columns is expected",
        ));
    }
    let format = TABLE.iter().find(|format| (format.recognize)(&start)).unwrap_or(&TABLE[TABLE.len() - 1]);
    (format.open)(file, dialect)
}
