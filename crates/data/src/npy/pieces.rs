//! Chunked reading of arrays of any size in bounded memory, with conversion to the requested type.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
};

use graphmill_core::{Result, location::Location, memory};

use super::{Element, Header, Kind, NpyFile, convert};

/// Approximate number of values read at a time: enough for a parallel conversion.
pub(crate) const CHUNK_LEN: usize = 1 << 17;
/// Values read at a time from a matrix in Fortran order: each column is a separate read, so it
/// should be long.
const TRANSPOSE_CHUNK_LEN: usize = 1 << 22;

/// Iterator over the values of an array in file order.
pub(crate) struct Pieces<'a, T> {
    input: Box<dyn Read + 'a>,
    header: Header,
    at: Location<'a>,
    /// Number of values already returned.
    given: usize,
    raw: Vec<u8>,
    values: Vec<T>,
}

impl<'a, T: Element> Pieces<'a, T> {
    /// Creates a reader of the values that `input` holds behind its `header`, of which the first
    /// `given` precede its current position.
    pub(crate) fn new(input: impl Read + 'a, header: Header, given: usize, at: Location<'a>) -> Self {
        Self { input: Box::new(input), header, at, given, raw: Vec::new(), values: Vec::new() }
    }

    /// Header of the array.
    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    /// File and member for error messages.
    pub(crate) fn at(&self) -> &Location<'a> {
        &self.at
    }

    /// Returns the next values, at most `most`; none at the end.
    ///
    /// # Errors
    /// The data cannot be read or fails its checksum, or a value does not fit `T`.
    pub(crate) fn next(&mut self, most: usize) -> Result<&[T]> {
        self.check_type()?;
        let count = most.min(self.header.len() - self.given);
        self.values.clear();
        if self.values.capacity() < count {
            self.values = self.at.locate(memory::reserve(count))?;
        }
        let fault = |e: io::Error| self.at.error(format!("the data cannot be read: {e}"));
        if self.header.dtype == T::DTYPE {
            self.values.resize(count, T::zeroed());
            self.input.read_exact(bytemuck::cast_slice_mut(&mut self.values)).map_err(fault)?;
        } else {
            let bytes = count * self.header.dtype.size;
            if self.raw.capacity() < bytes {
                self.raw = self.at.locate(memory::reserve(bytes))?;
            }
            self.raw.resize(bytes, 0);
            self.input.read_exact(&mut self.raw).map_err(fault)?;
            convert(&self.raw, self.header.dtype, self.given, &mut self.values)
                .map_err(|e| self.at.error(e))?;
        }
        self.given += count;
        if self.given == self.header.len() {
            // Reading past the last byte makes a decoder verify the checksum.
            match self.input.read(&mut [0]) {
                Ok(0) => {}
                Ok(_) => return Err(self.at.error("there is data after the array")),
                Err(e) => return Err(self.at.error(format!("the data is damaged: {e}"))),
            }
        }
        Ok(&self.values)
    }

    /// Checks the type before allocating: texts may take no bytes, so their declared number is
    /// unverified.
    fn check_type(&self) -> Result<()> {
        match self.header.dtype.kind {
            Kind::Bytes | Kind::Unicode => {
                let dtype = self.header.dtype;
                Err(self.at.error(format!("the type {dtype} is text, numbers were expected")))
            }
            _ => Ok(()),
        }
    }

    /// Returns the last result of [`Pieces::next`] by value.
    pub(super) fn into_values(self) -> Vec<T> {
        self.values
    }

    /// Skips `count` values.
    ///
    /// # Errors
    /// As for [`Pieces::next`].
    pub(crate) fn skip(&mut self, count: usize) -> Result<()> {
        let count = count.min(self.header.len() - self.given);
        let bytes = (count * self.header.dtype.size) as u64;
        match io::copy(&mut self.input.by_ref().take(bytes), &mut io::sink()) {
            Ok(read) if read == bytes => {
                self.given += count;
                Ok(())
            }
            Ok(read) => Err(self.at.error(format!("the data ends {} bytes early", bytes - read))),
            Err(e) => Err(self.at.error(format!("the data cannot be read: {e}"))),
        }
    }

    /// Passes whole rows (entries of the first axis) of an array in C order to `each`, in batches.
    ///
    /// # Errors
    /// As for [`Pieces::next`], or `each` fails.
    pub(crate) fn rows(mut self, mut each: impl FnMut(&[T]) -> Result<()>) -> Result<()> {
        let row: usize = self.header.shape.iter().skip(1).product();
        let most = CHUNK_LEN.checked_div(row).map_or(CHUNK_LEN, |rows| rows.max(1) * row);
        loop {
            let piece = self.next(most)?;
            if piece.is_empty() {
                return Ok(());
            }
            each(piece)?;
        }
    }
}

/// File reader with a position of its own.
struct Section<'a> {
    file: &'a File,
    at: u64,
}

impl Read for Section<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut file = self.file;
        file.seek(SeekFrom::Start(self.at))?;
        let read = file.read(buffer)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl NpyFile {
    /// Reads the values from index `first` on, in file order. (One reader of a file at a time: they
    /// share its cursor.)
    pub(crate) fn pieces<T: Element>(&self, first: usize) -> Pieces<'_, T> {
        let header =
            Header { dtype: self.dtype, shape: self.shape.clone(), fortran_order: self.fortran_order };
        let first = first.min(self.len());
        let input = Section { file: &self.file, at: (self.offset + first * self.dtype.size) as u64 };
        Pieces::new(input, header, first, Location::new(&self.path, "data"))
    }

    /// Passes whole rows (entries of the first axis) to `each` in order, in batches, converted to
    /// `T`. Memory is bounded in either order of the file.
    ///
    /// # Errors
    /// The data cannot be read, a value does not fit `T`, the file is in Fortran order with more
    /// than two axes, or `each` fails.
    pub(crate) fn for_each_rows<T: Element>(&self, mut each: impl FnMut(&[T]) -> Result<()>) -> Result<()> {
        if !self.is_transposed() {
            return self.pieces(0).rows(each);
        }
        self.pieces::<T>(0).check_type()?;
        let at = Location::new(&self.path, "data");
        let &[rows, columns] = &self.shape[..] else {
            return Err(at.error(format!("Fortran order with {} axes is not read", self.shape.len())));
        };
        let most = (TRANSPOSE_CHUNK_LEN / columns.max(1)).clamp(1, rows.max(1));
        let mut turned: Vec<T> = Vec::new();
        for first in (0..rows).step_by(most) {
            let count = most.min(rows - first);
            turned.clear();
            turned.resize(count * columns, T::zeroed());
            for j in 0..columns {
                let mut column = self.pieces::<T>(j * rows + first);
                for (i, &x) in column.next(count)?.iter().enumerate() {
                    turned[i * columns + j] = x;
                }
            }
            each(&turned)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::npy::{Dtype, open, write};

    fn rows<T: Element>(array: &NpyFile) -> Result<Vec<T>> {
        let mut all = Vec::new();
        array.for_each_rows(|rows| {
            all.extend_from_slice(rows);
            Ok(())
        })?;
        Ok(all)
    }

    #[test]
    fn chunks_concatenate_to_the_array() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npy");
        let values: Vec<i32> = (0..2 * CHUNK_LEN as i32 + 36).collect();
        write(&path, &values, &[values.len() / 10, 10]).unwrap();
        let array = open(&path).unwrap();
        assert_eq!(rows::<i32>(&array).unwrap(), values);
        assert!(rows::<f32>(&array).unwrap().iter().copied().eq(values.iter().map(|&x| x as f32)));
        array
            .for_each_rows::<u64>(|piece| {
                assert!(piece.len().is_multiple_of(10) && piece.len() <= CHUNK_LEN);
                Ok(())
            })
            .unwrap();
        let (mut early, mut late) = (array.pieces::<u32>(0), array.pieces::<u32>(7));
        assert_eq!((early.next(3).unwrap().to_vec(), late.next(2).unwrap()), (vec![0, 1, 2], &[7, 8][..]));
        early.skip(2).unwrap();
        assert_eq!(early.next(1).unwrap(), [5]);
        late.skip(usize::MAX).unwrap();
        assert!(late.next(1).unwrap().is_empty());
        write(&path, &[1i64, 2, -1], &[3]).unwrap();
        assert!(rows::<u32>(&open(&path).unwrap()).unwrap_err().to_string().contains("element 2 is -1"));
        write::<f32>(&path, &[], &[3, 0]).unwrap();
        assert!(rows::<f32>(&open(&path).unwrap()).unwrap().is_empty());
    }

    #[test]
    fn fortran_order_is_transposed_in_bounded_memory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npy");
        for (n, columns) in [(3usize, 2usize), (TRANSPOSE_CHUNK_LEN / 2 + 5, 2), (0, 3), (3, 0)] {
            let header =
                Header { dtype: Dtype::parse("<u4").unwrap(), shape: vec![n, columns], fortran_order: true };
            let file = (0..columns).flat_map(|j| (0..n).map(move |i| (i * columns + j) as u32));
            let data: Vec<u32> = file.collect();
            std::fs::write(&path, [&header.to_bytes()[..], bytemuck::cast_slice(&data)].concat()).unwrap();
            assert!(rows::<u64>(&open(&path).unwrap()).unwrap().into_iter().eq(0..(n * columns) as u64));
        }
    }

    #[test]
    fn texts_are_rejected_before_allocation() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npy");
        for fortran_order in [false, true] {
            let header =
                Header { dtype: Dtype::parse("|S0").unwrap(), shape: vec![1, 1 << 60], fortran_order };
            std::fs::write(&path, header.to_bytes()).unwrap();
            assert!(rows::<f32>(&open(&path).unwrap()).unwrap_err().to_string().contains("|S0 is text"));
        }
        let header =
            Header { dtype: Dtype::parse("|S0").unwrap(), shape: vec![1 << 40; 2], fortran_order: false };
        std::fs::write(&path, header.to_bytes()).unwrap();
        assert!(open(&path).unwrap_err().to_string().contains("overflows"));
    }

    #[test]
    fn truncation_while_reading_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npy");
        write(&path, &[1u32, 2, 3, 4], &[4]).unwrap();
        let array = open(&path).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(array.offset() as u64 + 7).unwrap();
        assert!(
            rows::<u32>(&array).unwrap_err().to_string().contains("a.npy: data: the data cannot be read")
        );
        assert!(array.pieces::<u32>(0).skip(3).unwrap_err().to_string().contains("5 bytes early"));
    }
}
