//! Arrays of descriptions that name a file and its format: `numpy`, `torch`, `csv` or (with
//! the feature of that name) `parquet`.

use graphmill_core::{Buffer, Result, location::Location, memory};

use super::{
    arrays,
    files::Files,
    lines::{finite, for_each_line, wrong},
};
use crate::{
    dataset::import::{pickle::Item, torch},
    npy::{self, Element, NpyFile, Number},
    typed::{FeatureTable, Values},
};

/// Maximum length of a file of PyTorch inside an archive.
const MAX_TORCH: u64 = 1 << 36;

/// Reads the array in the file `path` of the format `format`, converted to `T`, with its shape.
///
/// # Errors
/// The file cannot be read, the format is unknown, or a value does not fit `T`.
pub(super) fn load<T: Element>(files: &Files, path: &str, format: &str) -> Result<(Buffer<T>, Vec<usize>)> {
    let name = files.required(path.strip_prefix("./").unwrap_or(path))?;
    match format {
        "numpy" => arrays::read(files, name),
        "torch" | "pytorch" => {
            let read =
                |root: &Item, storages: &torch::Storages, at: &Location| storages.values::<T>(root, at);
            let (values, shape) = match files.on_disk(name) {
                Some(path) => torch::read(&path, read)?,
                None => torch::read_bytes(&files.bytes(name, MAX_TORCH)?, files.path(), read)?,
            };
            Ok((values.into(), shape))
        }
        "csv" => {
            let (mut values, mut columns): (Vec<T>, Option<usize>) = (Vec::new(), None);
            for_each_line(files, name, |line| {
                let before = values.len();
                for field in line.split([',', ' ', '\t']).filter(|field| !field.is_empty()) {
                    values.push(number(field)?);
                }
                let width = values.len() - before;
                match *columns.get_or_insert(width) {
                    expected if expected != width => {
                        Err(format!("{width} values, but the first line has {expected}"))
                    }
                    _ => Ok(()),
                }
            })?;
            let width = columns.unwrap_or(1);
            let shape = vec![values.len() / width.max(1), width];
            Ok((values.into(), shape))
        }
        #[cfg(feature = "parquet")]
        "parquet" => match files.on_disk(name) {
            Some(path) => {
                let (values, shape) = crate::dataset::import::parquet::matrix::read(&path)?;
                Ok((values.into(), shape))
            }
            None => {
                Err(wrong(files, name, "a Parquet file inside an archive is not read; unpack the archive"))
            }
        },
        other => Err(wrong(
            files,
            name,
            format!("the format '{other}' is not read; numpy, torch, csv or parquet expected"),
        )),
    }
}

/// Parses a number of any type.
fn number<T: Element>(field: &str) -> Result<T, String> {
    let wrong = || format!("'{}' is not a number that fits the type {}", field.escape_debug(), T::DTYPE);
    let number = match field.parse::<i64>() {
        Ok(x) => Number::Int(x),
        Err(_) => Number::Float(f64::from(finite("value", field)?)),
    };
    T::from_number(number).ok_or_else(wrong)
}

/// Reads edges as two columns: a table of pairs, or an array `[2, E]` or `[E, 2]`.
///
/// # Errors
/// As for [`load`], or the array has another shape.
pub(super) fn edges(files: &Files, path: &str, format: &str) -> Result<[Vec<u32>; 2]> {
    let (ids, shape) = load::<u32>(files, path, format)?;
    match shape[..] {
        // NumPy's and PyTorch's edges are two rows; a text table has a row per edge.
        [2, count] if !matches!(format, "csv" | "parquet") => {
            Ok([ids[..count].to_vec(), ids[count..].to_vec()])
        }
        [_, 2] => {
            Ok([ids.iter().copied().step_by(2).collect(), ids.iter().copied().skip(1).step_by(2).collect()])
        }
        _ => Err(files.error(
            path,
            "edges",
            format!("shape [2, edges] or [edges, 2] expected, {shape:?} found"),
        )),
    }
}

/// Reads feature rows. Arrays of 16-bit and 32-bit floats are mapped and keep their type; other
/// numbers become 32-bit floats.
///
/// # Errors
/// As for [`load`], or there are not `rows` rows.
pub(super) fn features(files: &Files, path: &str, format: &str, rows: usize) -> Result<FeatureTable> {
    let name = files.required(path.strip_prefix("./").unwrap_or(path))?;
    let (values, shape): (Values, Vec<usize>) = match files.on_disk(name) {
        Some(path) if format == "numpy" && !name.ends_with(".gz") => {
            let array = npy::open(&path)?;
            (floats(&array)?, array.shape.clone())
        }
        _ => {
            let (values, shape) = load::<f32>(files, path, format)?;
            (values.into(), shape)
        }
    };
    table_of(values, &shape, rows).ok_or_else(|| {
        files.error(name, "features", format!("shape [{rows}, features] expected, {shape:?} found"))
    })
}

/// Values of an array: mapped if they are 16-bit or 32-bit floats in C order, otherwise converted
/// to 32-bit floats.
///
/// # Errors
/// A value does not fit, or mapping fails.
pub(super) fn floats(array: &NpyFile) -> Result<Values> {
    Ok(if array.dtype == half::f16::DTYPE {
        array.load::<half::f16>()?.into()
    } else {
        array.load::<f32>()?.into()
    })
}

/// Feature rows of an array; `None` if its shape is not that of `rows` rows.
pub(super) fn table_of(values: Values, shape: &[usize], rows: usize) -> Option<FeatureTable> {
    match *shape {
        [count] if count == rows => Some(FeatureTable::dense(1, values)),
        [count, width] if count == rows && width > 0 => Some(FeatureTable::dense(width, values)),
        _ => None,
    }
}

/// Joins feature tables of the same rows, column by column. A single table is returned unchanged.
///
/// # Errors
/// Memory runs out.
pub(super) fn join(mut tables: Vec<FeatureTable>, rows: usize) -> Result<Option<FeatureTable>> {
    if tables.len() < 2 {
        return Ok(tables.pop());
    }
    let width: usize = tables.iter().map(|table| table.width).sum();
    let mut values: Vec<f32> = memory::reserve(rows.saturating_mul(width))?;
    let mut row = vec![0f64; width];
    for i in 0..rows {
        for table in &tables {
            table.copy_row(i, &mut row);
            values.extend(row[..table.width].iter().map(|&x| x as f32));
        }
    }
    Ok(Some(FeatureTable::dense(width, values)))
}

/// Labels of rows: whole numbers are classes, rows of zeros and ones are sets, other numbers are
/// values.
#[derive(Debug)]
pub(super) enum Rows {
    /// A class per row, -1 if unknown.
    Classes(Vec<i32>),
    /// Zeros and ones, row by row, and their number.
    Sets(Vec<u8>, usize),
    /// Values, row by row, and their number.
    Values(Vec<f32>, usize),
}

/// Reads the labels of `rows` rows.
///
/// # Errors
/// As for [`load`], or there are not `rows` rows.
pub(super) fn labels(files: &Files, path: &str, format: &str, rows: usize) -> Result<Rows> {
    let (values, shape) = load::<f64>(files, path, format)?;
    let width = match shape[..] {
        [count] if count == rows => 1,
        [count, width] if count == rows && width > 0 => width,
        _ => return Err(files.error(path, "labels", format!("shape [{rows}] expected, {shape:?} found"))),
    };
    let is_class = |x: &f64| x.is_nan() || x.fract() == 0.0 && (-1.0..f64::from(1 << 24)).contains(x);
    if width == 1 && values.iter().all(is_class) {
        return Ok(Rows::Classes(values.iter().map(|&x| if x.is_nan() { -1 } else { x as i32 }).collect()));
    }
    if width > 1 && values.iter().all(|&x| x == 0.0 || x == 1.0) {
        return Ok(Rows::Sets(values.iter().map(|&x| x as u8).collect(), width));
    }
    Ok(Rows::Values(values.iter().map(|&x| x as f32).collect(), width))
}
