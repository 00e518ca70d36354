//! Arrow: files and streams, and the conversion of arrays to columns.

use std::{
    io::{BufReader, Read, Seek, SeekFrom},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use arrow_array::{
    Array, ArrayRef, RecordBatch,
    cast::AsArray,
    types::{
        ArrowPrimitiveType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type,
        Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
        TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
        UInt8Type, UInt16Type, UInt32Type, UInt64Type,
    },
};
use arrow_ipc::{
    reader::{FileReader, StreamReader, read_footer_length},
    root_as_footer,
};
use arrow_schema::{ArrowError, DataType, Schema, TimeUnit};
use graphmill_core::{Error, Result, location::Location};

use super::{Dialect, Reader, Rows, TableFile, files};
use crate::tables::{
    column::{Column, Lists, OutputRows, Texts},
    date::DAY,
    faults::Faults,
};

/// Record batches of a file.
pub(super) type Batches = Box<dyn Iterator<Item = Result<RecordBatch, String>>>;
/// Starts to read the columns of which the flag is set.
type Start = Box<dyn Fn(&[bool]) -> Result<Batches>>;

/// Reader of record batches.
pub(super) struct Arrow {
    path: PathBuf,
    columns: Vec<String>,
    start: Start,
    batches: Option<Batches>,
    row: u64,
}

impl Arrow {
    /// Creates the reader of a file.
    pub(super) fn new(path: PathBuf, schema: &Schema, start: Start) -> Self {
        let columns = schema.fields().iter().map(|field| field.name().clone()).collect();
        Self { path, columns, start, batches: None, row: 1 }
    }
}

/// Opens a file or a stream.
pub(super) fn open(file: &TableFile, _: &Dialect) -> Result<Box<dyn Reader>> {
    let is_file = files::start(file)?.starts_with(b"ARROW1");
    let path = file.path().to_path_buf();
    if is_file {
        guarded(|| check(file), &path)?;
    }
    let reader = {
        let (file, path) = (file.clone(), path.clone());
        move |projection: Option<Vec<usize>>| {
            let wrong = |e: ArrowError| {
                Location::new(&path, "schema").error(format!("not a readable Arrow file: {e}"))
            };
            if is_file {
                let reader = FileReader::try_new(BufReader::new(file.seek()?), projection).map_err(wrong)?;
                let schema = reader.schema();
                Ok((schema, Box::new(reader.map(|batch| batch.map_err(|e| e.to_string()))) as Batches))
            } else {
                let reader = StreamReader::try_new(files::open(&file)?, projection).map_err(wrong)?;
                let schema = reader.schema();
                Ok((schema, Box::new(reader.map(|batch| batch.map_err(|e| e.to_string()))) as Batches))
            }
        }
    };
    let (schema, _) = guarded(|| reader(None), &path)?;
    let start = {
        let path = path.clone();
        move |wanted: &[bool]| {
            let projection =
                wanted.iter().enumerate().filter(|(_, wanted)| **wanted).map(|(c, _)| c).collect();
            Ok(guarded(|| reader(Some(projection)), &path)?.1)
        }
    };
    Ok(Box::new(Arrow::new(path, &schema, Box::new(start))))
}

/// Bytes at the end of a file: the footer's length, and a magic word.
const TAIL: usize = 10;

/// Checks that the footer, and the batches that it names, lie within the file: the decoder
/// allocates their lengths before it reads them.
fn check(file: &TableFile) -> Result<()> {
    let at = Location::new(file.path(), "footer");
    let wrong =
        |why: &str| at.error(format!("not a readable Arrow file: {why}; copy or write the file again"));
    let mut reader = file.seek()?;
    let mut read = |from: u64, bytes: &mut [u8]| {
        let read = reader.seek(SeekFrom::Start(from)).and_then(|_| reader.read_exact(bytes));
        read.map_err(|e| Error::io(file.path(), "read", e))
    };
    let size = file.size()?;
    let end = size.checked_sub(TAIL as u64).ok_or_else(|| wrong("it is too short"))?;
    let mut tail = [0; TAIL];
    read(end, &mut tail)?;
    let length = read_footer_length(tail).map_err(|e| wrong(&e.to_string()))?;
    let start = end.checked_sub(length as u64).ok_or_else(|| wrong("the footer is longer than the file"))?;
    let mut footer = vec![0; length];
    read(start, &mut footer)?;
    let footer = root_as_footer(&footer).map_err(|e| wrong(&e.to_string()))?;
    for block in [footer.recordBatches(), footer.dictionaries()].into_iter().flatten().flatten() {
        let parts = [block.offset(), block.metaDataLength().into(), block.bodyLength()];
        let end = parts.into_iter().try_fold(0u64, |sum, part| sum.checked_add(u64::try_from(part).ok()?));
        if end.is_none_or(|end| end > size) {
            return Err(wrong("a batch of rows is not within the file"));
        }
    }
    Ok(())
}

/// Runs a decoder, whose panic on a damaged file becomes an error.
fn guarded<T>(work: impl FnOnce() -> Result<T>, path: &Path) -> Result<T> {
    let done = catch_unwind(AssertUnwindSafe(work));
    done.unwrap_or_else(|_| {
        Err(Location::new(path, "data").error("the file is damaged: its decoder panicked"))
    })
}

impl Reader for Arrow {
    fn columns(&self) -> &[String] {
        &self.columns
    }

    fn next(&mut self, wanted: &[bool], _: &mut Faults) -> Result<Option<Rows>> {
        if self.batches.is_none() {
            self.batches = Some((self.start)(wanted)?);
        }
        let Some(batches) = &mut self.batches else { return Ok(None) };
        loop {
            let at = Location::new(&self.path, format!("row {}", self.row));
            let batch = guarded(|| batches.next().transpose().map_err(|e| at.error(e)), &self.path)?;
            let Some(batch) = batch else { return Ok(None) };
            let rows = batch.num_rows();
            if rows == 0 {
                continue;
            }
            let mut arrays = batch.columns().iter();
            let columns = wanted
                .iter()
                // Only the wanted columns are in the batch.
                .map(|&wanted| match if wanted { arrays.next() } else { None } {
                    Some(array) => column(array),
                    None => Column::Empty(rows),
                })
                .collect();
            let places = OutputRows::Rows(self.row);
            self.row += rows as u64;
            return Ok(Some(Rows { columns, places }));
        }
    }
}

/// Columns of a record batch of which `wanted` is set; the others are empty.
pub(super) fn columns_of(batch: &RecordBatch, wanted: &[bool]) -> Vec<Column> {
    let rows = batch.num_rows();
    let columns = batch.columns().iter().zip(wanted);
    columns.map(|(array, &wanted)| if wanted { column(array) } else { Column::Empty(rows) }).collect()
}

/// Column of an array.
fn column(array: &ArrayRef) -> Column {
    let rows = array.len();
    // Arrays of the type null count no nulls.
    if array.null_count() == rows || *array.data_type() == DataType::Null {
        return Column::Empty(rows);
    }
    if let Some(floats) = floats(array) {
        return Column::Float(floats);
    }
    match array.data_type() {
        DataType::Boolean => Column::Bool(array.as_boolean().iter().collect()),
        DataType::Int8 => integers::<Int8Type>(array),
        DataType::Int16 => integers::<Int16Type>(array),
        DataType::Int32 => integers::<Int32Type>(array),
        DataType::Int64 => integers::<Int64Type>(array),
        DataType::UInt8 => integers::<UInt8Type>(array),
        DataType::UInt16 => integers::<UInt16Type>(array),
        DataType::UInt32 => integers::<UInt32Type>(array),
        DataType::UInt64 => unsigned(array),
        DataType::Date32 => times::<Date32Type>(array, |days| i64::from(days).checked_mul(DAY)),
        DataType::Date64 => times::<Date64Type>(array, |millis| millis.checked_mul(1000)),
        DataType::Timestamp(TimeUnit::Second, _) => {
            times::<TimestampSecondType>(array, |t| t.checked_mul(1_000_000))
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            times::<TimestampMillisecondType>(array, |t| t.checked_mul(1000))
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => times::<TimestampMicrosecondType>(array, Some),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            times::<TimestampNanosecondType>(array, |t| Some(t.div_euclid(1000)))
        }
        DataType::Utf8 => texts(array.as_string::<i32>().iter()),
        DataType::LargeUtf8 => texts(array.as_string::<i64>().iter()),
        DataType::Utf8View => texts(array.as_string_view().iter()),
        DataType::Binary => bytes(array.as_binary::<i32>().iter()),
        DataType::LargeBinary => bytes(array.as_binary::<i64>().iter()),
        DataType::BinaryView => bytes(array.as_binary_view().iter()),
        DataType::FixedSizeBinary(_) => bytes(array.as_fixed_size_binary().iter()),
        DataType::List(_) => lists(array.as_list::<i32>().iter(), rows),
        DataType::LargeList(_) => lists(array.as_list::<i64>().iter(), rows),
        DataType::FixedSizeList(..) => lists(array.as_fixed_size_list().iter(), rows),
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let (keys, values) = (dictionary.normalized_keys(), column(dictionary.values()));
            select(
                &values,
                keys.iter().enumerate().map(|(row, &key)| dictionary.keys().is_valid(row).then_some(key)),
            )
        }
        other => Column::Other(rows, other.to_string()),
    }
}

/// Values of an array of floats or decimals.
fn floats(array: &ArrayRef) -> Option<Vec<Option<f64>>> {
    fn of<T: ArrowPrimitiveType>(array: &ArrayRef, convert: impl Fn(T::Native) -> f64) -> Vec<Option<f64>> {
        array.as_primitive::<T>().iter().map(|value| value.map(&convert)).collect()
    }
    Some(match array.data_type() {
        DataType::Float16 => of::<Float16Type>(array, f64::from),
        // The shortest decimal of a 32-bit float, as in a text file.
        DataType::Float32 => of::<Float32Type>(array, f64::from),
        DataType::Float64 => of::<Float64Type>(array, |value| value),
        DataType::Decimal32(_, scale) => {
            let scale = 10f64.powi(i32::from(*scale));
            of::<Decimal32Type>(array, |value| f64::from(value) / scale)
        }
        DataType::Decimal64(_, scale) => {
            let scale = 10f64.powi(i32::from(*scale));
            of::<Decimal64Type>(array, |value| value as f64 / scale)
        }
        DataType::Decimal128(_, scale) => {
            let scale = 10f64.powi(i32::from(*scale));
            of::<Decimal128Type>(array, |value| value as f64 / scale)
        }
        _ => return None,
    })
}

fn integers<T: ArrowPrimitiveType<Native: Into<i64>>>(array: &ArrayRef) -> Column {
    Column::Int(array.as_primitive::<T>().iter().map(|value| value.map(Into::into)).collect())
}

/// Unsigned 64-bit integers; as texts if one exceeds a signed integer.
fn unsigned(array: &ArrayRef) -> Column {
    let values = array.as_primitive::<UInt64Type>();
    if values.iter().flatten().all(|value| i64::try_from(value).is_ok()) {
        return Column::Int(values.iter().map(|value| value.map(|value| value as i64)).collect());
    }
    let mut texts = Texts::default();
    values.iter().for_each(|value| texts.push(&value.map(|value| value.to_string()).unwrap_or_default()));
    Column::Text(texts)
}

fn times<T: ArrowPrimitiveType>(array: &ArrayRef, micros: impl Fn(T::Native) -> Option<i64>) -> Column {
    Column::Time(array.as_primitive::<T>().iter().map(|value| value.and_then(&micros)).collect())
}

fn texts<'a>(values: impl Iterator<Item = Option<&'a str>>) -> Column {
    let mut texts = Texts::default();
    values.for_each(|value| texts.push(value.unwrap_or_default()));
    Column::Text(texts)
}

/// Binary values: UTF-8 as texts, 16 bytes as a UUID, others in hexadecimal.
fn bytes<'a>(values: impl Iterator<Item = Option<&'a [u8]>>) -> Column {
    let mut texts = Texts::default();
    for value in values {
        let value = value.unwrap_or_default();
        let hex = || value.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        match std::str::from_utf8(value) {
            _ if value.len() == 16 => {
                let hex = hex();
                let groups = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
                texts.push(&groups.join("-"));
            }
            Ok(text) => texts.push(text),
            Err(_) => texts.push(&hex()),
        }
    }
    Column::Text(texts)
}

/// Lists of numbers; other lists have no encoder.
fn lists(values: impl Iterator<Item = Option<ArrayRef>>, rows: usize) -> Column {
    let mut lists = Lists::default();
    let mut row = Vec::new();
    for value in values {
        let Some(value) = value else {
            lists.push(None);
            continue;
        };
        row.clear();
        let numbers = column(&value);
        for i in 0..numbers.len() {
            row.push(match numbers.get(i) {
                crate::tables::column::Cell::Int(value) => value as f64,
                crate::tables::column::Cell::Float(value) => value,
                crate::tables::column::Cell::Bool(value) => f64::from(u8::from(value)),
                crate::tables::column::Cell::Missing => f64::NAN,
                _ => return Column::Other(rows, format!("list of {}", value.data_type())),
            });
        }
        lists.push(Some(&row));
    }
    Column::List(lists)
}

/// Column of the values `keys` of `values`.
fn select(values: &Column, keys: impl Iterator<Item = Option<usize>>) -> Column {
    let valid = |key: Option<usize>, len: usize| key.filter(|&key| key < len);
    match values {
        Column::Text(known) => {
            let mut texts = Texts::default();
            keys.for_each(|key| texts.push(valid(key, known.len()).map_or("", |key| known.get(key))));
            Column::Text(texts)
        }
        Column::Int(known) => Column::Int(keys.map(|key| known.get(key?).copied().flatten()).collect()),
        Column::Time(known) => Column::Time(keys.map(|key| known.get(key?).copied().flatten()).collect()),
        Column::Float(known) => Column::Float(keys.map(|key| known.get(key?).copied().flatten()).collect()),
        Column::Bool(known) => Column::Bool(keys.map(|key| known.get(key?).copied().flatten()).collect()),
        other => Column::Other(keys.count(), format!("dictionary of {} values", other.len())),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc};

    use arrow_array::Int64Array;
    use arrow_ipc::writer::FileWriter;

    use super::*;

    #[test]
    fn lengths_beyond_the_file_are_refused_before_they_are_allocated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.arrow");
        let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
        let mut writer = FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        let good = writer.into_inner().unwrap();
        let check_of = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            check(&TableFile::Local(path.clone())).map_err(|e| e.to_string())
        };
        assert_eq!(check_of(&good), Ok(()));
        let fails = |bytes: &[u8], why: &str| {
            let error = check_of(bytes).unwrap_err();
            assert!(
                error.contains("a.arrow: footer: not a readable Arrow file") && error.contains(why),
                "{error}"
            );
        };
        fails(b"ARROW1", "it is too short");
        let end = good.len() - TAIL;
        let mut bad = good.clone();
        bad[end..end + 4].copy_from_slice(&i32::MAX.to_le_bytes());
        fails(&bad, "the footer is longer than the file");
        // the length of the only batch's values, behind its offset and the length of its metadata
        let length = read_footer_length(good[end..].try_into().unwrap()).unwrap();
        let footer = good[end - length..end].to_vec();
        let footer = root_as_footer(&footer).unwrap();
        let block = footer.recordBatches().unwrap().get(0);
        let (start, values) = (block.offset().to_le_bytes(), block.bodyLength().to_le_bytes());
        let at =
            (end - length..end - 24).find(|&i| good[i..i + 8] == start && good[i + 16..i + 24] == values);
        let at = at.unwrap();
        for length in [1 << 40, -1, i64::MAX] {
            let mut bad = good.clone();
            bad[at + 16..at + 24].copy_from_slice(&i64::to_le_bytes(length));
            fails(&bad, "a batch of rows is not within the file");
        }
    }
}
