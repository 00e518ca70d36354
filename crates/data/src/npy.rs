//! The NumPy `.npy` format, read by memory mapping and written atomically.
//!
//! Specification: NumPy Enhancement Proposal 1 and `numpy/lib/format.py`. Supports versions 1 to 3;
//! floats, integers, bools and text, either byte order, C and Fortran order.
//!
//! ```
//! use graphmill_data::npy;
//! let path = std::env::temp_dir().join(format!("graphmill-doc-{}.npy", std::process::id()));
//! npy::write(&path, &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2]).unwrap();
//! let array = npy::open(&path).unwrap();
//! assert_eq!(array.shape, [3, 2]);
//! assert_eq!(array.map::<f32>().unwrap()[3], 4.0); // mapped, not copied
//! assert_eq!(array.read_as::<i64>().unwrap()[5], 6); // converted, every value checked
//! # std::fs::remove_file(path).unwrap();
//! ```

mod dtype;
mod header;
mod pieces;
mod writer;

use std::{
    fs::File,
    io::{self, BufReader, Write},
    path::{Path, PathBuf},
};

use bytemuck::Pod;

pub(crate) use dtype::convert;
pub use dtype::{Dtype, Element, Kind, Number};
pub use header::Header;
pub(crate) use pieces::{CHUNK_LEN, Pieces};
pub(crate) use writer::{Writer, map_written, written};

use graphmill_core::{Buffer, Error, Result, location::Location, memory};

use crate::atomic::{self, Disk, Real};

// Mapped arrays are used without byte swapping.
const _: () = assert!(cfg!(target_endian = "little"), "Graphmill needs a little-endian machine");

/// Open `.npy` file with a parsed header and a verified length.
#[derive(Debug)]
pub struct NpyFile {
    /// Element type.
    pub dtype: Dtype,
    /// Length of each axis.
    pub shape: Vec<usize>,
    /// True if the first axis varies fastest.
    pub fortran_order: bool,
    path: PathBuf,
    file: File,
    offset: usize,
}

/// Opens the array at `path`.
///
/// # Errors
/// The file cannot be opened, is not an `.npy` array, or its length differs from its shape.
pub fn open(path: impl AsRef<Path>) -> Result<NpyFile> {
    let path = path.as_ref();
    of_file(File::open(path).map_err(|e| Error::io(path, "open", e))?, path)
}

/// Reads the header of an array from the start of `file`, which was opened at `path`.
///
/// # Errors
/// As for [`open`].
pub(crate) fn of_file(file: File, path: &Path) -> Result<NpyFile> {
    let size = file.metadata().map_err(|e| Error::io(path, "read the size of", e))?.len();
    let (header, offset) = Header::read(&mut BufReader::new(&file), &Location::new(path, "header"))?;
    let expected = offset as u64 + header.bytes() as u64;
    if size != expected {
        let what = if size < expected { "truncated" } else { "longer than its array" };
        return Err(Error::format(
            path,
            format!("byte {}", size.min(expected)),
            format!(
                "the file is {what}: shape {:?} of {} takes {expected} bytes, the file has {size}",
                header.shape, header.dtype
            ),
        ));
    }
    let Header { dtype, shape, fortran_order } = header;
    Ok(NpyFile { dtype, shape, fortran_order, path: path.to_path_buf(), file, offset })
}

/// Opens the array at `path`, or, if the file has no header, the 32-bit floats that `numpy.memmap`
/// writes: an axis for a `width` of 1, otherwise rows of `width` values.
///
/// # Errors
/// As for [`open`], or a file without a header does not hold whole rows.
pub(crate) fn open_or_memmap(path: &Path, width: usize) -> Result<NpyFile> {
    let mut file = File::open(path).map_err(|e| Error::io(path, "open", e))?;
    if header::is_array(&mut file).map_err(|e| Error::io(path, "read", e))? {
        return of_file(file, path);
    }
    let size = file.metadata().map_err(|e| Error::io(path, "read the size of", e))?.len();
    let row = width as u64 * f32::DTYPE.size as u64;
    if size == 0 || !size.is_multiple_of(row) {
        let message = format!(
            "not a .npy array, and its {size} bytes are not rows of {width} 32-bit floats; is the file \
             truncated?"
        );
        return Err(Error::format(path, "header", message));
    }
    let rows = (size / row) as usize;
    let shape = if width == 1 { vec![rows] } else { vec![rows, width] };
    let path = path.to_path_buf();
    Ok(NpyFile { dtype: f32::DTYPE, shape, fortran_order: false, path, file, offset: 0 })
}

impl NpyFile {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns true if the array has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Offset of the data in the file, in bytes.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Maps the data, which must be of type `T` and in C order. Copies nothing.
    ///
    /// # Errors
    /// The type or the order differs ([`NpyFile::read_as`] converts), or mapping fails.
    pub fn map<T: Element>(&self) -> Result<Buffer<T>> {
        if !self.is_plain::<T>() {
            let order = if self.fortran_order { " in Fortran order" } else { "" };
            let message = format!("the array is {}{order}, {} in C order was expected", self.dtype, T::DTYPE);
            return Err(Error::format(&self.path, "header", message));
        }
        Buffer::map(&self.file, &self.path, self.offset, self.len())
    }

    /// Reads the values converted to `T`, in C order (one or two axes, or more if the file is in C
    /// order).
    ///
    /// # Errors
    /// A value does not fit `T`: see [`Element::from_number`].
    pub fn read_as<T: Element>(&self) -> Result<Vec<T>> {
        let at = Location::new(&self.path, "data");
        let bytes = Buffer::<u8>::map(&self.file, &self.path, self.offset, self.len() * self.dtype.size)?;
        let mut data = at.locate(memory::reserve(self.len()))?;
        convert(&bytes, self.dtype, 0, &mut data).map_err(|e| at.error(e))?;
        c_order(data, &self.shape, self.fortran_order, &at)
    }

    /// Reads a range of the values, in file order, converted to `T`. Reads only that range.
    ///
    /// # Errors
    /// The range exceeds the array, reading fails, or a value does not fit `T`.
    pub fn values<T: Element>(&mut self, range: std::ops::Range<usize>) -> Result<Vec<T>> {
        let at = Location::new(&self.path, "data");
        if range.start > range.end || range.end > self.len() {
            return Err(at.error(format!("values {range:?} of {} asked for", self.len())));
        }
        let mut pieces = self.pieces(range.start);
        pieces.next(range.len())?;
        Ok(pieces.into_values())
    }

    /// Loads the values as `T`: mapped if the file holds them in that form, converted otherwise.
    ///
    /// # Errors
    /// As for [`NpyFile::read_as`].
    pub fn load<T: Element>(&self) -> Result<Buffer<T>> {
        if self.is_plain::<T>() { self.map() } else { Ok(self.read_as()?.into()) }
    }

    /// Reads the values as 32-bit floats.
    ///
    /// # Errors
    /// As for [`NpyFile::read_as`].
    pub fn read_as_f32(&self) -> Result<Vec<f32>> {
        self.read_as()
    }

    /// Reads the values as 64-bit integers.
    ///
    /// # Errors
    /// As for [`NpyFile::read_as`].
    pub fn read_as_i64(&self) -> Result<Vec<i64>> {
        self.read_as()
    }

    fn is_plain<T: Element>(&self) -> bool {
        self.dtype == T::DTYPE && !self.is_transposed()
    }

    fn is_transposed(&self) -> bool {
        self.fortran_order && self.shape.len() > 1
    }
}

/// Converts a Fortran-ordered matrix to C order.
pub(crate) fn c_order<T: Pod>(data: Vec<T>, shape: &[usize], fortran: bool, at: &Location) -> Result<Vec<T>> {
    if !fortran || shape.len() < 2 {
        return Ok(data);
    }
    let &[rows, columns] = shape else {
        return Err(at.error(format!("Fortran order with {} axes is not read", shape.len())));
    };
    let mut turned = at.locate(memory::reserve(data.len()))?;
    for i in 0..rows {
        turned.extend((0..columns).map(|j| data[j * rows + i]));
    }
    Ok(turned)
}

/// Writes `data` as an array of `shape` to `path`, atomically.
///
/// # Errors
/// The length of `data` differs from the shape, or writing fails; then `path` is unchanged.
pub fn write<T: Element>(path: impl AsRef<Path>, data: &[T], shape: &[usize]) -> Result<()> {
    let path = path.as_ref();
    check_shape(path, data, shape)?;
    atomic::write(path, |file| write_from(file, data, shape, 0))
}

/// Offset of the data in a dataset's arrays: a block of any disk, so that rows whose length divides
/// a block do not straddle two blocks under direct I/O.
pub(crate) const DATA: usize = 4096;

/// Writes an array as [`write()`] does, but in place and with the data from [`DATA`] on; for a
/// directory that is itself moved into place.
pub(crate) fn write_new<T: Element>(path: &Path, data: &[T], shape: &[usize]) -> Result<()> {
    check_shape(path, data, shape)?;
    Real.write(path, |file| write_from(file, data, shape, DATA)).map_err(|e| Error::io(path, "write", e))
}

/// Header bytes of a file that [`write_new`] creates.
pub(crate) fn header_of<T: Element>(shape: &[usize]) -> Vec<u8> {
    Header { dtype: T::DTYPE, shape: shape.to_vec(), fortran_order: false }.to_bytes_of(DATA)
}

fn check_shape<T>(path: &Path, data: &[T], shape: &[usize]) -> Result<()> {
    let expected = shape.iter().try_fold(1usize, |n, &axis| n.checked_mul(axis));
    if expected == Some(data.len()) {
        return Ok(());
    }
    Err(Error::invalid(format!("{}: {} values do not have the shape {shape:?}", path.display(), data.len())))
}

/// Writes an array to any byte sink.
///
/// # Errors
/// The length of `data` differs from the shape, or `out` fails.
pub fn write_to<T: Element>(out: &mut dyn Write, data: &[T], shape: &[usize]) -> io::Result<()> {
    check_shape(Path::new("array"), data, shape).map_err(io::Error::other)?;
    write_from(out, data, shape, 0)
}

fn write_from<T: Element>(file: &mut dyn Write, data: &[T], shape: &[usize], start: usize) -> io::Result<()> {
    let header = Header { dtype: T::DTYPE, shape: shape.to_vec(), fortran_order: false };
    file.write_all(&header.to_bytes_of(start))?;
    file.write_all(bytemuck::cast_slice(data))
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    #[test]
    fn every_type_round_trips() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npy");
        fn one<T: Element + PartialEq + std::fmt::Debug>(path: &Path, data: &[T]) {
            write(path, data, &[data.len()]).unwrap();
            let array = open(path).unwrap();
            assert_eq!(&*array.map::<T>().unwrap(), data);
            assert_eq!(array.read_as::<T>().unwrap(), data);
            assert!(array.map::<T>().unwrap().is_mapped() || data.is_empty());
        }
        one(&path, &[1.5f32, -2.0]);
        one(&path, &[f16::from_f32(0.25)]);
        one(&path, &[1.0f64, 2.0, f64::INFINITY]);
        one(&path, &[i64::MIN, i64::MAX]);
        one(&path, &[u64::MAX]);
        one(&path, &[1u32, 2, 3]);
        one(&path, &[-1i32]);
        one(&path, &[-1i16]);
        one(&path, &[-1i8]);
        one(&path, &[7u8; 5]);
        one::<f32>(&path, &[]);
    }

    #[test]
    fn fortran_order_and_big_endian_are_converted_but_not_mapped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npy");
        let header = Header { dtype: Dtype::parse(">i2").unwrap(), shape: vec![2, 3], fortran_order: true };
        let mut bytes = header.to_bytes();
        bytes.extend([0, 1, 0, 4, 0, 2, 0, 5, 0, 3, 0, 6]); // columns (1, 4), (2, 5), (3, 6)
        std::fs::write(&path, &bytes).unwrap();
        let array = open(&path).unwrap();
        assert_eq!(array.read_as::<i64>().unwrap(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(&*array.load::<i16>().unwrap(), [1, 2, 3, 4, 5, 6]);
        let error = array.map::<i16>().unwrap_err().to_string();
        assert!(error.contains("big") || error.contains(">i2 in Fortran order"), "{error}");
    }

    #[test]
    fn damage_is_an_error_or_still_an_array() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npy");
        write(&path, &[1u32, 2, 3, 4, 5, 6], &[3, 2]).unwrap();
        let good = std::fs::read(&path).unwrap();
        for length in 0..good.len() {
            std::fs::write(&path, &good[..length]).unwrap();
            assert!(open(&path).is_err(), "truncated to {length}");
        }
        for bit in (0..good.len() * 8).step_by(3) {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, &bad).unwrap();
            if let Ok(array) = open(&path) {
                assert!(array.read_as_f32().map_or(0, |data| data.len()) <= 24);
            }
        }
        std::fs::write(&path, [&good[..], &[0]].concat()).unwrap();
        assert!(open(&path).unwrap_err().to_string().contains("longer"));
    }

    #[test]
    fn a_huge_shape_allocates_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npy");
        let header = Header {
            dtype: Dtype::parse("<f8").unwrap(),
            shape: vec![1 << 40, 1 << 10],
            fortran_order: false,
        };
        std::fs::write(&path, header.to_bytes()).unwrap();
        assert!(open(&path).unwrap_err().to_string().contains("truncated"));
        assert!(write(&path, &[1u8], &[2]).is_err());
        assert!(write(&path, &[1u8], &[usize::MAX, 2]).is_err());
    }
}
