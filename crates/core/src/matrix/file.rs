//! Values in a file without a name, for tables that are larger than memory ([`FileArray`]).

use std::{io::Write, ops::Range, path::Path};

use super::{Matrix, Storage};
use crate::{
    Buffer, Error, Result,
    file_array::{CHUNK, FileArray, unnamed},
    maps,
};

impl Matrix {
    /// Zeros in a file without a name in the directory `dir`, for a table that may be larger than
    /// memory. The file ends with the matrix. A copy of the matrix is in memory.
    ///
    /// # Errors
    /// The directory cannot be written, or the disk has too little space.
    pub fn in_file(rows: usize, cols: usize, dir: &Path) -> Result<Self> {
        let values = FileArray::zeros(rows.saturating_mul(cols), dir)?;
        Ok(Self { rows, cols, storage: Storage::File(Box::new(values)), ..Self::default() })
    }

    /// Zeros of this shape, in a file in the same directory if this matrix is in one.
    ///
    /// # Errors
    /// Those of [`Matrix::in_file`].
    pub fn zeros_like(&self) -> Result<Self> {
        match &self.storage {
            Storage::File(values) => Self::in_file(self.rows, self.cols, values.directory()),
            _ => Ok(Self::zeros(self.rows, self.cols)),
        }
    }

    /// Returns true if the values are in a file.
    pub fn is_in_file(&self) -> bool {
        matches!(self.storage, Storage::File(_))
    }

    /// Announces that rows in a file will soon be used, so that the system reads them ahead.
    ///
    /// # Panics
    /// The range is outside.
    pub fn expect(&self, rows: Range<usize>) {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
        if self.is_in_file() {
            maps::expect(self.rows(rows).host());
        }
    }

    /// Takes rows in a file out of the memory of this process, until they are used again.
    ///
    /// # Panics
    /// The range is outside.
    pub fn release(&self, rows: Range<usize>) {
        if self.is_in_file() {
            maps::release(self.rows(rows).host());
        }
    }

    /// A copy of the values in another file without a name in the same directory, or in memory if
    /// they are in memory.
    ///
    /// # Errors
    /// The directory cannot be written, or the disk has too little space.
    pub fn copy_in_place(&self) -> Result<Buffer<f32>> {
        let Storage::File(values) = &self.storage else { return Ok(self.view().host().to_vec().into()) };
        let (mut file, path) = unnamed(values.directory())?;
        let all = &values[..self.rows * self.cols];
        for run in all.chunks(CHUNK) {
            file.write_all(bytemuck::cast_slice(run))
                .map_err(|e| Error::io(values.directory(), "write", e))?;
            maps::release(run);
        }
        Buffer::map(&file, &path, 0, all.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_in_a_file_are_those_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        let mut matrix = Matrix::in_file(1000, 9, dir.path()).unwrap();
        assert!(matrix.view().host().iter().all(|&x| x == 0.0));
        let values: Vec<f32> = (0..9000).map(|i| i as f32).collect();
        matrix.view_mut().host().copy_from_slice(&values);
        matrix.expect(0..1000);
        matrix.release(0..1000);
        assert_eq!(matrix.view().host(), values);
        assert_eq!(matrix.rows(7..9).host(), &values[63..81]);
        // a copy is in memory, and zeros of the same shape in another file
        let copy = matrix.clone();
        assert!(!copy.is_in_file() && copy.view().host() == values);
        let zeros = matrix.zeros_like().unwrap();
        assert!(zeros.is_in_file() && zeros.view().host().iter().all(|&x| x == 0.0));
        assert!(!copy.zeros_like().unwrap().is_in_file());
        let [kept, owned] = [&matrix, &copy].map(|matrix| matrix.copy_in_place().unwrap());
        assert!(kept.is_mapped() && !owned.is_mapped() && *kept == values[..] && *owned == values[..]);
        // no file has a name
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn released_rows_leave_the_memory_of_the_process() {
        let dir = tempfile::tempdir().unwrap();
        // pages of files of the directory that this process has mapped
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let mut of_rows = false;
            let mut kib = 0;
            for line in status.lines() {
                if line.contains(':') && line.split(' ').next().is_some_and(|word| word.contains('-')) {
                    of_rows = line.contains(dir.path().to_str().unwrap());
                }
                if let Some(rest) = line.strip_prefix("Rss:").filter(|_| of_rows) {
                    kib += rest.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
                }
            }
            kib
        };
        let mut matrix = Matrix::in_file(4096, 1024, dir.path()).unwrap();
        matrix.view_mut().host().fill(1.0);
        assert!(resident() >= 16 << 10, "{} KiB", resident());
        matrix.release(0..2048);
        assert!(resident() < 9 << 10, "{} KiB", resident());
        matrix.release(2048..4096);
        assert!(resident() < 1 << 10, "{} KiB", resident());
        assert!(matrix.view().host().iter().all(|&x| x == 1.0));
    }

    #[test]
    fn a_directory_that_is_missing_is_named() {
        let message = Matrix::in_file(1, 1, Path::new("/nowhere/at/all")).unwrap_err().to_string();
        assert!(message.contains("/nowhere/at/all"), "{message}");
    }

    #[test]
    fn no_rows_take_no_space() {
        let dir = tempfile::tempdir().unwrap();
        let mut matrix = Matrix::in_file(0, 5, dir.path()).unwrap();
        assert!(matrix.view_mut().host().is_empty());
        matrix.release(0..0);
    }
}
