//! Opening of a Parquet file: its metadata is checked against its size before use.

#[cfg(feature = "tables")]
use std::collections::BTreeMap;
use std::{
    fs,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
    sync::Arc,
};

use graphmill_core::{Error, Result, location::Location, memory};
use parquet::{
    column::reader::ColumnReader,
    errors::ParquetError,
    file::metadata::{ParquetMetaData, ParquetMetaDataReader},
};

use super::{
    column::{Kind, kind},
    guard::guarded,
    pages, thrift,
};

/// Bytes at the end of a file: the metadata's length, and a magic word.
const TAIL: u64 = 8;
/// Maximum nesting of groups; lists have two levels.
const MAX_DEPTH: usize = 64;
/// Number of rows (or values of a list column) that is always accepted, and the additional number
/// per byte: rows are not expected to compress better than by deflate. (A single column may: a
/// billion equal values are one run.)
const MAX_CLAIMS: (u64, u64) = (1 << 20, 1032);

/// File and its metadata.
pub(super) struct Source {
    pub(super) metadata: ParquetMetaData,
    file: Arc<fs::File>,
}

impl Source {
    /// Opens a file.
    ///
    /// # Errors
    /// The file is not a Parquet file, or its declared offsets and sizes are impossible.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = fs::File::open(path).map_err(|e| Error::io(path, "open", e))?;
        let size = file.metadata().map_err(|e| Error::io(path, "read the size of", e))?.len();
        let mut reader = &file;
        let metadata = metadata(path, size, |buffer, at| {
            reader.seek(SeekFrom::Start(at))?;
            reader.read_exact(buffer)
        })?;
        Ok(Self { metadata, file: Arc::new(file) })
    }

    /// Reader of the column `leaf` of the row group `group`.
    pub(super) fn column(&self, group: usize, leaf: usize) -> Result<ColumnReader, ParquetError> {
        guarded(|| pages::column_reader(&self.file, self.metadata.row_group(group), leaf))
    }

    /// Names of the top-level columns, with their contents.
    pub(super) fn columns(&self) -> Vec<(String, Kind)> {
        let schema = self.metadata.file_metadata().schema_descr();
        let leaves = self.leaves();
        let ends = leaves.iter().skip(1).copied().chain([schema.num_columns()]);
        let of = |(&leaf, end): (&usize, usize)| {
            (schema.get_column_root(leaf).name().to_string(), kind(&schema.column(leaf), end - leaf == 1))
        };
        leaves.iter().zip(ends).map(of).collect()
    }

    /// Texts that the writer recorded, by their keys.
    #[cfg(feature = "tables")]
    pub(super) fn recorded(&self) -> BTreeMap<String, String> {
        let pairs = self.metadata.file_metadata().key_value_metadata().into_iter().flatten();
        pairs.filter_map(|pair| Some((pair.key.clone(), pair.value.clone()?))).collect()
    }

    /// First leaf of every top-level column.
    pub(super) fn leaves(&self) -> Vec<usize> {
        let schema = self.metadata.file_metadata().schema_descr();
        let root = |leaf: usize| schema.get_column_root_idx(leaf);
        (0..schema.num_columns()).filter(|&leaf| leaf == 0 || root(leaf - 1) != root(leaf)).collect()
    }
}

/// Checked metadata of a file of `size` bytes, which `read` reads from a position on.
///
/// # Errors
/// As for [`Source::open`].
pub(super) fn metadata(
    path: &Path,
    size: u64,
    read: impl FnMut(&mut [u8], u64) -> io::Result<()>,
) -> Result<ParquetMetaData> {
    let at = Location::new(path, "metadata");
    let fail = |why: &str| at.error(format!("not a readable Parquet file: {why}"));
    let footer = read_footer(size, read)
        .map_err(|e| Error::io(path, "read", e))?
        .ok_or_else(|| fail("it does not end like one, or is encrypted"))?;
    check_schema(&footer).map_err(|why| fail(&why))?;
    let metadata = guarded(|| ParquetMetaDataReader::decode_metadata(&footer));
    let metadata = metadata.map_err(|e| fail(&e.to_string()))?;
    check_places(&metadata, size, path)?;
    Ok(metadata)
}

/// Bytes of the metadata; `None` if the file has none.
fn read_footer(
    size: u64,
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<()>,
) -> io::Result<Option<Vec<u8>>> {
    let mut tail = [0; TAIL as usize];
    let Some(end) = size.checked_sub(TAIL) else { return Ok(None) };
    read(&mut tail, end)?;
    let [a, b, c, d, word @ ..] = tail;
    let length = u32::from_le_bytes([a, b, c, d]);
    let (b"PAR1", Some(start)) = (&word, end.checked_sub(length.into())) else { return Ok(None) };
    let mut footer: Vec<u8> = memory::zeroed(length as usize).map_err(io::Error::other)?;
    read(&mut footer, start)?;
    Ok(Some(footer))
}

/// Checks that the schema is a tree of its elements, because the decoder descends it, allocates the
/// declared children, and names every leaf by all elements above it.
/// 103t| // the length of all names down to here, and the number of missing children
fn check_schema(footer: &[u8]) -> Result<(), String> {
    let mut elements: Vec<(i64, i64)> = Vec::new(); // the length of the name, and the number of children
    let read = thrift::look(footer, thrift::metadata, &mut |path, number| match path {
        [2, 4] => elements.push((number, 0)), // a name comes before the number of children
        [2, 5] => {
            if let Some((_, children)) = elements.last_mut() {
                *children = number;
            }
        }
        _ => {}
    });
    read.ok_or("its metadata is damaged")?;
    // The length of all names down to here, and the number of missing children.
    let mut above: Vec<(i64, i64)> = Vec::new();
    let mut names = 0i64;
    for (i, &(name, children)) in elements.iter().enumerate() {
        while above.last().is_some_and(|&(_, missing)| missing == 0) {
            above.pop();
        }
        let length = match above.last_mut() {
            Some((length, missing)) => {
                *missing -= 1;
                *length + name
            }
            None if i == 0 => name,
            None => return Err("its schema is damaged: an element is in no group".into()),
        };
        if !(0..elements.len() as i64).contains(&children) || above.len() == MAX_DEPTH {
            return Err(format!(
                "its schema is damaged: a group of {children} elements, {} deep",
                above.len()
            ));
        }
        if children > 0 {
            above.push((length, children));
        } else {
            names = names.saturating_add(length);
        }
    }
    if above.iter().any(|&(_, missing)| missing > 0) {
        return Err("its schema is damaged: elements are missing".into());
    }
    if names > (1 << 20) + 64 * footer.len() as i64 {
        return Err("its columns' names are too long".into());
    }
    Ok(())
}

/// Checks that columns lie within the file, and that the number of rows is plausible.
fn check_places(metadata: &ParquetMetaData, size: u64, path: &Path) -> Result<()> {
    let believed = |bytes: u64| MAX_CLAIMS.0.saturating_add(bytes.saturating_mul(MAX_CLAIMS.1));
    let mut rows = 0u64;
    for (g, group) in metadata.row_groups().iter().enumerate() {
        let at = Location::new(path, format!("metadata, row group {g}"));
        let group_rows = u64::try_from(group.num_rows()).unwrap_or(u64::MAX);
        rows = rows.saturating_add(group_rows);
        for column in group.columns() {
            let name = || column.column_path().string().escape_debug().to_string();
            let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
            let length = column.compressed_size();
            let place = u64::try_from(start).ok().zip(u64::try_from(length).ok());
            let inside =
                place.and_then(|(start, length)| start.checked_add(length)).is_some_and(|end| end <= size);
            if !inside || column.data_page_offset() < 0 {
                return Err(at.error(format!(
                    "the column '{}' claims {length} bytes from byte {start} on, but the file has {size}: it \
                     is damaged",
                    name()
                )));
            }
            let values = u64::try_from(column.num_values()).unwrap_or(u64::MAX);
            let is_list = column.column_descr().max_rep_level() > 0;
            let most = if is_list { believed(length.unsigned_abs()) } else { group_rows };
            if values > most {
                return Err(at.error(format!(
                    "the column '{}' claims {} values in {length} bytes and {} rows: it is damaged",
                    name(),
                    column.num_values(),
                    group.num_rows()
                )));
            }
        }
    }
    if rows > believed(size) {
        return Err(
            Location::new(path, "metadata").error(format!("{rows} rows in {size} bytes: it is damaged"))
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Footer with these names and numbers of children.
    fn footer(elements: &[(&str, u8)]) -> Vec<u8> {
        let mut bytes = vec![0x29, (elements.len() as u8) << 4 | 12];
        for &(name, children) in elements {
            bytes.extend([0x48, name.len() as u8]);
            bytes.extend(name.bytes());
            bytes.extend([0x15, children * 2, 0]);
        }
        bytes.push(0);
        bytes
    }

    #[test]
    fn schemas_must_be_trees_of_their_elements() {
        let check = |elements: &[(&str, u8)]| check_schema(&footer(elements));
        assert_eq!(check(&[("a", 2), ("b", 1), ("c", 0), ("d", 0)]), Ok(()));
        assert_eq!(check(&[("a", 0)]), Ok(()));
        assert!(check(&[("a", 2), ("b", 0)]).unwrap_err().contains("a group of 2 elements"));
        assert!(check(&[("a", 2), ("b", 0), ("c", 1)]).unwrap_err().contains("are missing"));
        assert!(check(&[("a", 1), ("b", 0), ("c", 0)]).unwrap_err().contains("in no group"));
        assert!(check(&[("a", 60), ("b", 0)]).unwrap_err().contains("a group of 60 elements"));
        assert!(check_schema(&[0x29]).unwrap_err().contains("its metadata is damaged"));
    }
}
