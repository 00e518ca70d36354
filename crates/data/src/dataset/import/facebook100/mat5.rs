//! MATLAB's `.mat` files of level 5 (`save -v6`, `-v7`), limited to real matrices, dense or sparse.
//!
//! Specification: MathWorks, MAT-File Format, chapter 1; unspecified details follow SciPy
//! (`scipy/io/matlab/_mio5.py`).
//!
//! ```text
//! file      = text (116 bytes), subsystem (8), version (u16, 0x0100), byte order ("IM" little, "MI" big),
//!             variable ...
//! variable  = element miMATRIX, or element miCOMPRESSED that unpacks (zlib) to one
//! miMATRIX  = flags and class, shape, name, and then values (dense), or row numbers, column starts and values
//!             (sparse)
//! element   = type (u32), size (u32), bytes, padding to 8;
//!             up to 4 bytes also as type (u16), size (u16), bytes, padding
//! ```
//!
//! Variables are read sequentially, and unpacked only as far as needed. Sizes are trusted only as
//! far as the bytes of the file can back them: deflate expands at most 1032 times.

use std::{
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom},
    path::Path,
};

use flate2::bufread::ZlibDecoder;
use graphmill_core::{Error, Result, location::Location, memory, search::position};

use crate::npy::{Dtype, Element, Kind, convert};

/// Bytes of the header.
const HEADER: usize = 128;
/// Largest expansion factor of deflate (zlib technical notes: 1032:1).
const MAX_EXPANSION: u64 = 1032;
/// Bytes converted at a time.
const CHUNK_LEN: usize = 1 << 20;

const MI_MATRIX: u32 = 14;
const MI_COMPRESSED: u32 = 15;
const MX_SPARSE: u32 = 5;
/// Numeric classes, from mxDOUBLE to mxUINT64.
const MX_NUMBERS: std::ops::RangeInclusive<u32> = 6..=15;
/// Classes from here on (function handles, opaque objects) have no shape and name at the usual
/// position.
const MX_NAMELESS: u32 = 16;
const COMPLEX: u32 = 0x0800;

/// Open file.
pub(crate) struct Mat<'p> {
    path: &'p Path,
    file: BufReader<File>,
    big_endian: bool,
    /// Offset of the next variable.
    next: u64,
    /// End of the file.
    end: u64,
}

/// Variable whose values are still to be read.
pub(crate) struct Variable<'a> {
    /// Name of the variable; empty if it has none.
    pub(crate) name: String,
    /// Declared length of each axis.
    pub(crate) shape: Vec<usize>,
    class: u32,
    complex: bool,
    /// Declared capacity of a sparse matrix, in entries.
    capacity: u64,
    body: Body<'a>,
}

/// Sparse matrix by columns: column `j` has entries in the rows `row[k]` for `k` in
/// `starts[j]..starts[j + 1]`. Values are discarded.
#[derive(Debug, PartialEq)]
pub(crate) struct Sparse {
    /// Column starts, `columns + 1`.
    pub(crate) starts: Vec<u64>,
    /// Row of every entry.
    pub(crate) row: Vec<u32>,
}

impl<'p> Mat<'p> {
    /// Opens the file at `path` and reads its header.
    ///
    /// # Errors
    /// The file cannot be opened, or is not a MAT file of level 5.
    pub(crate) fn open(path: &'p Path) -> Result<Self> {
        let file = File::open(path).map_err(|e| Error::io(path, "open", e))?;
        let end = file.metadata().map_err(|e| Error::io(path, "read the size of", e))?.len();
        let mut file = BufReader::new(file);
        let mut header = Vec::with_capacity(HEADER);
        let read = (&mut file).take(HEADER as u64).read_to_end(&mut header);
        read.map_err(|e| Error::io(path, "read", e))?;
        let at = Location::new(path, "header");
        if header.starts_with(b"\x89HDF") || header.starts_with(b"MATLAB 7.3") {
            return Err(at.error(
                "a MAT file of version 7.3 (HDF5), which is not read; save it again in MATLAB with save(..., \
                 '-v7')",
            ));
        }
        let (version, big_endian) = match header.get(HEADER - 4..) {
            Some(&[a, b, b'I', b'M']) => (u16::from_le_bytes([a, b]), false),
            Some(&[a, b, b'M', b'I']) => (u16::from_be_bytes([a, b]), true),
            _ => {
                return Err(at.error(
                    "not a MAT file of level 5 (128 bytes that end in IM or MI expected); save it again with \
                     save(..., '-v7')",
                ));
            }
        };
        if version != 0x0100 {
            return Err(at.error(format!("version {version:#06x} of the format, 0x0100 expected")));
        }
        Ok(Self { path, file, big_endian, next: HEADER as u64, end })
    }

    /// Returns the next variable; `None` at the end.
    ///
    /// # Errors
    /// The file is damaged here.
    pub(crate) fn next(&mut self) -> Result<Option<Variable<'_>>> {
        if self.next == self.end {
            return Ok(None);
        }
        let (path, start, big_endian) = (self.path, self.next, self.big_endian);
        self.file.seek(SeekFrom::Start(start)).map_err(|e| Error::io(path, "read", e))?;
        let place = || Location::new(path, format!("variable at byte {start}"));
        let left = self.end - start;
        let mut outer = Body { reader: Box::new(&mut self.file), left, big_endian, at: place() };
        let Tag { kind, size, .. } = outer.tag()?;
        self.next = self.end - outer.left + size;
        drop(outer);
        let element = (&mut self.file).take(size);
        let body = match kind {
            MI_MATRIX => Body { reader: Box::new(element), left: size, big_endian, at: place() },
            MI_COMPRESSED => {
                let reader = Box::new(ZlibDecoder::new(element));
                let most = size.saturating_add(1).saturating_mul(MAX_EXPANSION);
                let mut body = Body { reader, left: most, big_endian, at: place() };
                let inner = body.tag()?;
                if inner.kind != MI_MATRIX {
                    let message =
                        format!("an element of type {} is packed here, a matrix expected", inner.kind);
                    return Err(body.at.error(message));
                }
                Body { left: inner.size, ..body }
            }
            _ => return Err(place().error(format!("an element of type {kind} is here, a matrix expected"))),
        };
        Variable::read(body).map(Some)
    }
}

impl<'a> Variable<'a> {
    /// Reads the fields before the values.
    fn read(mut body: Body<'a>) -> Result<Self> {
        let flags: Vec<u32> = body.numbers("flags")?;
        let &[flags, capacity] = &flags[..] else {
            return Err(body.at.error(format!("{} words of flags, 2 expected", flags.len())));
        };
        let class = flags & 0xff;
        let (mut shape, mut name) = (Vec::new(), String::new());
        if class < MX_NAMELESS {
            shape = body.numbers::<u32>("shape")?.into_iter().map(|axis| axis as usize).collect();
            name = String::from_utf8_lossy(&body.numbers::<u8>("name")?).into_owned();
            body.at.place = format!("variable {}", name.escape_debug()).into();
        }
        Ok(Self { name, shape, class, complex: flags & COMPLEX != 0, capacity: capacity.into(), body })
    }

    /// Location of the variable.
    pub(crate) fn at(&self) -> &Location<'a> {
        &self.body.at
    }

    /// Maximum number of entries of a sparse matrix: as declared, and at most one per two bytes.
    pub(crate) fn most_entries(&self) -> u64 {
        self.capacity.min(self.body.left / 2)
    }

    /// Values of a dense matrix, column by column.
    ///
    /// # Errors
    /// The variable is of another kind or damaged, or a value does not fit `T`.
    pub(crate) fn dense<T: Element>(mut self) -> Result<Vec<T>> {
        self.check(MX_NUMBERS.contains(&self.class), "a matrix of numbers")?;
        let values: Vec<T> = self.body.numbers("values")?;
        let expected = self.shape.iter().try_fold(1usize, |size, &axis| size.checked_mul(axis));
        if expected != Some(values.len()) {
            let message = format!("{} values, but the shape is {:?}", values.len(), self.shape);
            return Err(self.body.at.error(message));
        }
        self.body.end()?;
        Ok(values)
    }

    /// Entries of a sparse matrix. Unused capacity is dropped; 4 bytes an entry and 8 a column.
    ///
    /// # Errors
    /// The variable is of another kind or damaged.
    pub(crate) fn sparse(mut self) -> Result<Sparse> {
        self.check(self.class == MX_SPARSE, "a sparse matrix of numbers")?;
        let &[rows, columns] = &self.shape[..] else {
            return Err(self.body.at.error(format!("two axes expected, shape {:?} found", self.shape)));
        };
        let mut row: Vec<u32> = self.body.numbers("row numbers")?;
        let starts: Vec<u64> = self.body.numbers("column starts")?;
        let values = self.body.pass("values")?;
        let at = self.body.at.clone();
        self.body.end()?;
        if Some(starts.len()) != columns.checked_add(1) {
            let message =
                format!("{} column starts, but {columns} columns need one more than that", starts.len());
            return Err(at.error(message));
        }
        let (first, last) = (starts[0], starts[columns]);
        if first != 0 || last > row.len() as u64 || last > values {
            return Err(at.error(format!(
                "column starts run from {first} to {last}, but there are {} row numbers and {values} values",
                row.len()
            )));
        }
        if let Some(j) = starts.windows(2).position(|pair| pair[0] > pair[1]) {
            return Err(at.error(format!("column starts decrease after column {j}")));
        }
        row.truncate(last as usize);
        if let Some(k) = position(&row, |&i| i as usize >= rows) {
            return Err(at.error(format!("entry {k} is in row {}, but there are {rows} rows", row[k])));
        }
        Ok(Sparse { starts, row })
    }

    fn check(&self, fits: bool, expected: &str) -> Result<()> {
        if fits && !self.complex {
            return Ok(());
        }
        let complex = if self.complex { "complex numbers of " } else { "" };
        Err(self.body.at.error(format!("{expected} expected, {complex}class {} found", self.class)))
    }
}

/// Unread rest of a variable.
struct Body<'a> {
    reader: Box<dyn Read + 'a>,
    /// Number of bytes that may still be read.
    left: u64,
    big_endian: bool,
    at: Location<'a>,
}

/// Header of an element.
struct Tag {
    kind: u32,
    size: u64,
    padding: u64,
}

impl Body<'_> {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<()> {
        let left = self.left.checked_sub(buffer.len() as u64);
        self.left = left.ok_or_else(|| self.at.error("the data ends too early"))?;
        self.reader.read_exact(buffer).map_err(|e| self.at.error(format!("the data cannot be read: {e}")))
    }

    fn word(&mut self) -> Result<u32> {
        let mut raw = [0; 4];
        self.fill(&mut raw)?;
        Ok(if self.big_endian { u32::from_be_bytes(raw) } else { u32::from_le_bytes(raw) })
    }

    fn tag(&mut self) -> Result<Tag> {
        let word = self.word()?;
        let (kind, size, unit) = match u64::from(word >> 16) {
            0 => (word, u64::from(self.word()?), 8),
            size @ 1..=4 => (word & 0xffff, size, 4),
            size => return Err(self.at.error(format!("a small element of {size} bytes; they have up to 4"))),
        };
        if size > self.left {
            return Err(self
                .at
                .error(format!("an element claims {size} bytes, but at most {} are left", self.left)));
        }
        Ok(Tag { kind, size, padding: size.next_multiple_of(unit) - size })
    }

    /// Tag of an element of numbers, and their type.
    fn numbers_tag(&mut self, what: &str) -> Result<(Tag, Dtype)> {
        let tag = self.tag()?;
        let (kind, size) = match tag.kind {
            1 => (Kind::Int, 1),
            2 => (Kind::Uint, 1),
            3 => (Kind::Int, 2),
            4 => (Kind::Uint, 2),
            5 => (Kind::Int, 4),
            6 => (Kind::Uint, 4),
            7 => (Kind::Float, 4),
            9 => (Kind::Float, 8),
            12 => (Kind::Int, 8),
            13 => (Kind::Uint, 8),
            kind => {
                return Err(self.at.error(format!("{what}: an element of type {kind}, numbers expected")));
            }
        };
        if !tag.size.is_multiple_of(size as u64) {
            return Err(self.at.error(format!("{what}: {} bytes are not numbers of {size}", tag.size)));
        }
        Ok((tag, Dtype { kind, size, big_endian: self.big_endian }))
    }

    /// Reads the next element, converted to `T`.
    fn numbers<T: Element>(&mut self, what: &str) -> Result<Vec<T>> {
        let (tag, dtype) = self.numbers_tag(what)?;
        let mut data = self.at.locate(memory::reserve(tag.size as usize / dtype.size))?;
        let mut piece = vec![0; CHUNK_LEN.min(tag.size as usize)];
        let mut left = tag.size as usize;
        while left > 0 {
            let part = left.min(CHUNK_LEN);
            self.fill(&mut piece[..part])?;
            convert(&piece[..part], dtype, data.len(), &mut data)
                .map_err(|e| self.at.error(format!("{what}: {e}")))?;
            left -= part;
        }
        self.skip(tag.padding.min(self.left))?;
        Ok(data)
    }

    /// Skips the next element; returns its number of values.
    fn pass(&mut self, what: &str) -> Result<u64> {
        let (tag, dtype) = self.numbers_tag(what)?;
        self.skip(tag.size)?;
        self.skip(tag.padding.min(self.left))?;
        Ok(tag.size / dtype.size as u64)
    }

    fn skip(&mut self, bytes: u64) -> Result<()> {
        let skipped = io::copy(&mut (&mut self.reader).take(bytes), &mut io::sink());
        match skipped {
            Ok(skipped) if skipped == bytes => {
                self.left -= bytes;
                Ok(())
            }
            Ok(_) => Err(self.at.error("the data ends too early")),
            Err(e) => Err(self.at.error(format!("the data cannot be read: {e}"))),
        }
    }

    /// Reads past the last byte, which makes the decoder verify the checksum.
    fn end(mut self) -> Result<()> {
        match self.reader.read(&mut [0]) {
            Ok(0) if self.left == 0 => Ok(()),
            Ok(_) => Err(self.at.error("there is data after the values")),
            Err(e) => Err(self.at.error(format!("the data is damaged: {e}"))),
        }
    }
}

/// Files for tests.
#[cfg(test)]
pub(crate) mod testing {
    use std::io::Write;

    /// Encoding of a test file.
    #[derive(Clone, Copy, Default)]
    pub(crate) struct Style {
        pub(crate) big_endian: bool,
        pub(crate) packed: bool,
    }

    impl Style {
        fn word(self, x: u32) -> [u8; 4] {
            if self.big_endian { x.to_be_bytes() } else { x.to_le_bytes() }
        }

        /// Element of the type `kind` with numbers of `size` bytes each.
        pub(crate) fn element(self, kind: u32, size: usize, values: &[u64]) -> Vec<u8> {
            let mut data = Vec::new();
            for x in values {
                match self.big_endian {
                    true => data.extend(&x.to_be_bytes()[8 - size..]),
                    false => data.extend(&x.to_le_bytes()[..size]),
                }
            }
            let bytes = data.len() as u32;
            let mut out = Vec::new();
            if (1..=4).contains(&bytes) {
                out.extend(self.word(bytes << 16 | kind));
                data.resize(4, 0);
            } else {
                out.extend([self.word(kind), self.word(bytes)].concat());
                data.resize(data.len().next_multiple_of(8), 0);
            }
            out.extend(data);
            out
        }

        /// Matrix: its class (with flags), capacity, shape, name and elements.
        pub(crate) fn matrix(
            self,
            class: u32,
            capacity: u32,
            shape: &[u64],
            name: &str,
            rest: &[Vec<u8>],
        ) -> Vec<u8> {
            let name: Vec<u64> = name.bytes().map(u64::from).collect();
            let head = [
                self.element(6, 4, &[class.into(), capacity.into()]),
                self.element(5, 4, shape),
                self.element(1, 1, &name),
            ];
            let body = [head.concat(), rest.concat()].concat();
            let plain = [&self.word(14)[..], &self.word(body.len() as u32), &body].concat();
            if !self.packed {
                return plain;
            }
            let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
            zlib.write_all(&plain).unwrap();
            let packed = zlib.finish().unwrap();
            [&self.word(15)[..], &self.word(packed.len() as u32), &packed].concat()
        }

        /// Sparse matrix of ones, with one unused entry.
        pub(crate) fn sparse(self, shape: [u64; 2], name: &str, row: &[u64], starts: &[u64]) -> Vec<u8> {
            let (mut row, ones) = (row.to_vec(), vec![1f64.to_bits(); row.len()]);
            row.push(0);
            let parts = [self.element(5, 4, &row), self.element(5, 4, starts), self.element(9, 8, &ones)];
            self.matrix(super::MX_SPARSE, row.len() as u32, &shape, name, &parts)
        }

        /// File of these variables.
        pub(crate) fn file(self, variables: &[Vec<u8>]) -> Vec<u8> {
            let mut out = b"MATLAB 5.0 MAT-file".to_vec();
            out.resize(124, b' ');
            out.extend(if self.big_endian { b"\x01\0MI" } else { b"\0\x01IM" });
            out.extend(variables.concat());
            out
        }
    }
}

#[cfg(test)]
mod tests;
