//! Validation of a column's pages before they are decoded: the decoder allocates the sizes that a
//! page declares, and a few damaged bits can declare any size. (Version 60 of the `parquet` crate;
//! `fuzz/regressions/import_parquet` has a file for each case, which would allocate gigabytes or
//! panic.)
//!
//! - A page's unpacked size is at most the maximum expansion of its packed size by its codec
//!   ([`most_unpacked`]).
//! - The dictionary has enough bytes for its entries.
//! - All pages together have no more values than the file's metadata declares, which was checked
//!   against the file's size.
//! - The number of texts encoded with lengths is at most the page's values. Texts encoded as deltas
//!   are not read, because a few bytes can encode many texts of any length.

use std::{
    fs::File,
    io::{Cursor, Read},
    sync::Arc,
};

use bytes::Bytes;
use parquet::{
    basic::{Compression, Encoding, Type as Physical},
    column::{
        page::{Page, PageMetadata, PageReader},
        reader::{ColumnReader, get_column_reader},
    },
    errors::{ParquetError, Result},
    file::{
        metadata::RowGroupMetaData,
        reader::{ChunkReader, Length},
        serialized_reader::SerializedPageReader,
    },
};

use super::thrift;

/// Maximum size of a page header: some numbers, and the smallest and largest value.
const MAX_HEADER: u64 = 1 << 16;
/// Maximum number of texts in a dictionary, which is meant for a column of a few words. (Numbers of
/// 16 bits have no more values.)
const MAX_TEXTS: u32 = 1 << 16;

/// Reader of the column `leaf` of a row group whose location in the file has been checked.
pub(super) fn column_reader(file: &Arc<File>, group: &RowGroupMetaData, leaf: usize) -> Result<ColumnReader> {
    let column = group.column(leaf);
    let (start, length) = column.byte_range();
    let chunk = Chunk { file: Arc::clone(file), end: start + length, compression: column.compression() };
    let rows = usize::try_from(group.num_rows())?;
    let pages = SerializedPageReader::new(Arc::new(chunk), column, rows, None)?;
    let optional = column.column_descr().max_def_level() > 0;
    let kind = column.column_type();
    let checked = Checked { pages, left: column.num_values(), dictionary: false, kind, optional };
    Ok(get_column_reader(column.column_descr_ptr(), Box::new(checked)))
}

/// Maximum size after unpacking `packed` bytes.
///
/// - Snappy copies up to 64 bytes by 3 (format description, section 2.2).
/// - LZ4 lengthens a match by 255 for a byte (block format).
/// - Deflate expands up to 1032 times (zlib's technical notes).
/// - Zstandard's blocks expand to up to 128 KiB, and have at least four bytes (RFC 8878, section
///   3.1.1.2).
fn most_unpacked(packed: u64, compression: Compression) -> u64 {
    let ratio = match compression {
        Compression::UNCOMPRESSED => 1,
        Compression::SNAPPY => 22,
        Compression::LZ4 | Compression::LZ4_RAW => 255,
        Compression::GZIP(_) => 1032,
        _ => 1 << 15,
    };
    packed.saturating_mul(ratio)
}

/// Minimum number of bits of a value in a dictionary.
fn fewest_bits(kind: Physical) -> u64 {
    match kind {
        Physical::BOOLEAN => 1,
        Physical::FIXED_LEN_BYTE_ARRAY => 8,
        Physical::INT32 | Physical::FLOAT | Physical::BYTE_ARRAY => 32, // a text has its length
        Physical::INT64 | Physical::DOUBLE => 64,
        Physical::INT96 => 96,
    }
}

/// Number of values that a delta-encoded run declares (Parquet's DELTA_BINARY_PACKED: the block
/// size, its parts, the number of values, each a varint).
fn delta_count(data: &[u8]) -> Option<u64> {
    let mut numbers = data.split_inclusive(|byte| byte & 0x80 == 0);
    let count = numbers.nth(2)?;
    let digit = |value: u64, byte: &u8| value.checked_mul(128)?.checked_add((byte & 0x7f).into());
    count.iter().rev().try_fold(0, digit)
}

/// Bytes of a column of a row group.
struct Chunk {
    file: Arc<File>,
    end: u64,
    compression: Compression,
}

impl Length for Chunk {
    fn len(&self) -> u64 {
        self.end
    }
}

impl ChunkReader for Chunk {
    type T = Cursor<Vec<u8>>;

    /// The page reader uses this only for page headers.
    fn get_read(&self, start: u64) -> Result<Self::T> {
        let mut bytes = Vec::new();
        let most = self.end.saturating_sub(start).min(MAX_HEADER);
        self.file.get_read(start)?.take(most).read_to_end(&mut bytes)?;
        let (mut unpacked, mut packed) = (None, None);
        let header = thrift::look(&bytes, thrift::page, &mut |path, number| match path {
            [2] => unpacked = Some(number),
            [3] => packed = Some(number),
            _ => {}
        });
        let size = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
        let (Some(_), Some(unpacked), Some(packed)) = (header, size(unpacked), size(packed)) else {
            return Err(ParquetError::General(format!("no page header at byte {start}")));
        };
        if unpacked > most_unpacked(packed, self.compression) {
            return Err(ParquetError::General(format!(
                "the page at byte {start} claims {unpacked} bytes packed to {packed}, more than {} can \
                 achieve",
                self.compression
            )));
        }
        Ok(Cursor::new(bytes))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.end) {
            return Err(ParquetError::EOF(format!("{length} bytes from byte {start} on leave the column")));
        }
        self.file.get_bytes(start, length)
    }
}

/// Validated pages.
struct Checked {
    pages: SerializedPageReader<Chunk>,
    /// Number of values still allowed.
    left: i64,
    /// True if a dictionary was read.
    dictionary: bool,
    kind: Physical,
    /// True if values may be missing; then their levels precede them.
    optional: bool,
}

impl Checked {
    fn check(&mut self, page: &Page) -> Result<()> {
        let is_text = matches!(self.kind, Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY);
        let fail = |message: String| Err(ParquetError::General(message));
        let (buf, values, encoding, levels) = match page {
            Page::DictionaryPage { buf, num_values, .. } => {
                self.dictionary = true;
                let bits = u64::from(*num_values).saturating_mul(fewest_bits(self.kind));
                if bits > (buf.len() as u64).saturating_mul(8) {
                    return fail(format!("a dictionary of {num_values} entries in {} bytes", buf.len()));
                }
                if is_text && *num_values > MAX_TEXTS {
                    return fail(format!(
                        "{num_values} distinct texts in a dictionary, more than the maximum of {MAX_TEXTS}"
                    ));
                }
                return Ok(());
            }
            Page::DataPage { buf, num_values, encoding, def_level_encoding, .. } => {
                // Needed only for texts with lengths: offset of their beginning (levels of the old
                // encoding do not declare it).
                let levels = match (encoding, buf.first_chunk::<4>()) {
                    (Encoding::DELTA_LENGTH_BYTE_ARRAY, Some(&length)) if self.optional => {
                        let known = *def_level_encoding == Encoding::RLE;
                        if known { 4 + u64::from(u32::from_le_bytes(length)) } else { u64::MAX }
                    }
                    _ => 0,
                };
                (buf, *num_values, *encoding, levels)
            }
            Page::DataPageV2 {
                buf, num_values, encoding, def_levels_byte_len, rep_levels_byte_len, ..
            } => {
                let levels = u64::from(*def_levels_byte_len) + u64::from(*rep_levels_byte_len);
                (buf, *num_values, *encoding, levels)
            }
        };
        let Some(data) = usize::try_from(levels).ok().and_then(|levels| buf.get(levels..)) else {
            return fail("a page's levels leave the page".into());
        };
        self.left -= i64::from(values);
        if self.left < 0 {
            return fail("the pages have more values than the metadata says".into());
        }
        let from_dictionary = matches!(encoding, Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY);
        match encoding {
            _ if from_dictionary && !self.dictionary => {
                fail("values of a dictionary, but the column has none".into())
            }
            Encoding::DELTA_LENGTH_BYTE_ARRAY if self.kind == Physical::BYTE_ARRAY => {
                match delta_count(data) {
                    Some(count) if count <= values.into() => Ok(()),
                    _ => fail(format!("a page of {values} texts does not have as many lengths")),
                }
            }
            Encoding::PLAIN | Encoding::BYTE_STREAM_SPLIT => Ok(()),
            _ if is_text && !from_dictionary => {
                fail(format!("texts encoded as {encoding} are not read: write them with a dictionary"))
            }
            _ => Ok(()),
        }
    }
}

impl Iterator for Checked {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Checked {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.pages.get_next_page()?;
        page.as_ref().map_or(Ok(()), |page| self.check(page))?;
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.pages.at_record_boundary()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn delta_runs_declare_their_length() {
        assert_eq!(delta_count(&[0x80, 1, 4, 0xac, 2, 7]), Some(300));
        assert_eq!(delta_count(&[0x80, 1, 4]), None);
        assert_eq!(delta_count(&[[0x80, 1, 4].as_slice(), &[0xff; 12], &[1]].concat()), None);
    }

    #[test]
    fn page_sizes_are_limited_by_the_codec() {
        let mut file = tempfile::tempfile().unwrap();
        // type 0, unpacked 2200, packed 100
        file.write_all(&[0x15, 0, 0x15, 0xb0, 0x22, 0x15, 0xc8, 1, 0]).unwrap();
        let chunk = |compression, end| Chunk { file: Arc::new(file.try_clone().unwrap()), end, compression };
        assert!(chunk(Compression::SNAPPY, 9).get_read(0).is_ok());
        let error = chunk(Compression::UNCOMPRESSED, 9).get_read(0).unwrap_err();
        assert!(error.to_string().contains("claims 2200 bytes packed to 100"), "{error}");
        assert!(chunk(Compression::SNAPPY, 8).get_read(0).is_err(), "the header leaves the column");
        assert!(chunk(Compression::SNAPPY, 9).get_bytes(1, usize::MAX).is_err());
    }
}
