//! External sort of records: a key of any length, and a number.

use std::{
    fs::File,
    io::{BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use graphmill_core::{Error, Result, memory};
use rayon::prelude::*;

use super::{
    Scratch,
    merge::{Merge, Source},
};
use crate::atomic;

/// Maximum number of sorted files that are merged at a time.
const MAX_RUNS: usize = 64;
/// Bytes of a read of a sorted file.
const BUFFER: usize = 1 << 17;
/// Bytes of a record beside its key.
const OVERHEAD: usize = 40;

/// Records to sort by key, and records of a key by number. They are in memory while they take at
/// most the budget, and in sorted files of the scratch's directory beyond it.
pub(crate) struct RecordSorter {
    scratch: Scratch,
    name: String,
    budget: usize,
    keys: Vec<u8>,
    /// End of each key, and its number.
    records: Vec<(usize, u64)>,
    runs: Vec<PathBuf>,
    files: usize,
}

/// Sorted records, which can be read any number of times.
pub(crate) enum SortedRecords {
    /// Records in memory: keys, and start, end and number of each record in order.
    Memory(Vec<u8>, Vec<(usize, usize, u64)>),
    /// Records in a file.
    File(PathBuf),
}

impl RecordSorter {
    /// Creates a sorter with a budget in bytes; `name` is unique within the scratch.
    pub(crate) fn new(scratch: &Scratch, name: &str, budget: u64) -> Self {
        let budget = usize::try_from(budget).unwrap_or(usize::MAX);
        let (keys, records, runs) = Default::default();
        Self { scratch: scratch.clone(), name: name.into(), budget, keys, records, runs, files: 0 }
    }

    /// Adds a record.
    ///
    /// # Errors
    /// A file cannot be written, or the work is cancelled.
    pub(crate) fn push(&mut self, key: &[u8], number: u64) -> Result<()> {
        self.keys.extend_from_slice(key);
        self.records.push((self.keys.len(), number));
        if self.keys.len() + OVERHEAD * self.records.len() > self.budget { self.spill() } else { Ok(()) }
    }

    /// Returns the sorted records.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub(crate) fn finish(mut self) -> Result<SortedRecords> {
        if self.runs.is_empty() {
            let records = self.sorted();
            return Ok(SortedRecords::Memory(self.keys, records));
        }
        if !self.records.is_empty() {
            self.spill()?;
        }
        self.merge()?;
        Ok(SortedRecords::File(self.runs.remove(0)))
    }

    /// Start, end and number of each record, in order.
    fn sorted(&mut self) -> Vec<(usize, usize, u64)> {
        let mut start = 0;
        let ranges =
            self.records.drain(..).map(|(end, number)| (std::mem::replace(&mut start, end), end, number));
        let mut order: Vec<_> = ranges.collect();
        let keys = &self.keys;
        order.par_sort_unstable_by(|a, b| (&keys[a.0..a.1], a.2).cmp(&(&keys[b.0..b.1], b.2)));
        order
    }

    fn spill(&mut self) -> Result<()> {
        self.scratch.check()?;
        let Some(path) = self.path() else { return Ok(()) };
        let order = self.sorted();
        let mut out = Writer::create(&path)?;
        for (start, end, number) in order {
            out.write(&self.keys[start..end], number)?;
        }
        out.finish()?;
        self.keys.clear();
        self.runs.push(path);
        if self.runs.len() == MAX_RUNS { self.merge() } else { Ok(()) }
    }

    /// Path of the next file; `None` if the scratch has no directory.
    fn path(&mut self) -> Option<PathBuf> {
        self.files += 1;
        self.scratch.file(&format!("{}-{}.bin", self.name, self.files))
    }

    /// Merges all sorted files into one.
    fn merge(&mut self) -> Result<()> {
        let Some(path) = self.path().filter(|_| self.runs.len() > 1) else { return Ok(()) };
        let readers: Result<Vec<_>> = self.runs.iter().map(|run| Reader::open(run)).collect();
        let (mut merged, mut out) = (Merge::new(readers?)?, Writer::create(&path)?);
        while let Some((key, number)) = merged.next()? {
            out.write(&key, number)?;
        }
        out.finish()?;
        for run in self.runs.drain(..) {
            std::fs::remove_file(&run).map_err(|e| Error::io(&run, "remove", e))?;
        }
        self.runs.push(path);
        Ok(())
    }
}

impl SortedRecords {
    /// Passes all records to `each`, in order.
    ///
    /// # Errors
    /// The file cannot be read, or `each` fails.
    pub(crate) fn for_each(&self, mut each: impl FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
        let mut cursor = self.cursor()?;
        while let Some((key, number)) = cursor.next()? {
            each(key, number)?;
        }
        Ok(())
    }

    /// Starts to read the records.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn cursor(&self) -> Result<Cursor<'_>> {
        Ok(match self {
            Self::Memory(keys, records) => Cursor::Memory(keys, records.iter()),
            Self::File(path) => Cursor::File(Reader::open(path)?, None),
        })
    }
}

/// Position in sorted records.
pub(crate) enum Cursor<'a> {
    Memory(&'a [u8], std::slice::Iter<'a, (usize, usize, u64)>),
    File(Reader, Option<(Vec<u8>, u64)>),
}

impl Cursor<'_> {
    /// Returns the next record; `None` at the end.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn next(&mut self) -> Result<Option<(&[u8], u64)>> {
        match self {
            Self::Memory(keys, records) => {
                Ok(records.next().map(|&(start, end, number)| (&keys[start..end], number)))
            }
            Self::File(reader, current) => {
                *current = reader.next()?;
                Ok(current.as_ref().map(|(key, number)| (&key[..], *number)))
            }
        }
    }
}

/// Reader of a sorted file.
pub(crate) struct Reader {
    path: PathBuf,
    input: BufReader<File>,
    /// Bytes behind those that were read.
    rest: u64,
}

impl Reader {
    fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|e| Error::io(path, "open", e))?;
        let rest = file.metadata().map_err(|e| Error::io(path, "read the size of", e))?.len();
        Ok(Self { path: path.to_path_buf(), input: BufReader::with_capacity(BUFFER, file), rest })
    }
}

impl Source for Reader {
    type Record = (Vec<u8>, u64);

    fn next(&mut self) -> Result<Option<(Vec<u8>, u64)>> {
        let mut head = [0; 12];
        let first = self.input.read(&mut head[..1]).map_err(|e| Error::io(&self.path, "read", e))?;
        if first == 0 {
            return Ok(None);
        }
        let io = |e| Error::io(&self.path, "read", e);
        self.input.read_exact(&mut head[1..]).map_err(io)?;
        let [number @ .., a, b, c, d] = head;
        let length = u32::from_le_bytes([a, b, c, d]);
        // a damaged length is found before its bytes are allocated
        let rest = self.rest.checked_sub(head.len() as u64 + u64::from(length));
        self.rest = rest.ok_or_else(|| io(std::io::ErrorKind::UnexpectedEof.into()))?;
        let mut key = memory::zeroed(length as usize)?;
        self.input.read_exact(&mut key).map_err(io)?;
        Ok(Some((key, u64::from_le_bytes(number))))
    }
}

/// Writer of a sorted file, which is not synced: an import that keeps it syncs it, and any other
/// work that is repeated after a loss of power writes it again.
struct Writer {
    path: PathBuf,
    out: BufWriter<File>,
}

impl Writer {
    fn create(path: &Path) -> Result<Self> {
        let file = atomic::create_fresh(path).map_err(|e| Error::io(path, "create", e))?;
        Ok(Self { path: path.to_path_buf(), out: BufWriter::with_capacity(BUFFER, file) })
    }

    fn write(&mut self, key: &[u8], number: u64) -> Result<()> {
        let length = (key.len() as u32).to_le_bytes();
        let written = self.out.write_all(&number.to_le_bytes()).and_then(|()| self.out.write_all(&length));
        written.and_then(|()| self.out.write_all(key)).map_err(|e| Error::io(&self.path, "write", e))
    }

    fn finish(mut self) -> Result<()> {
        self.out.flush().map_err(|e| Error::io(&self.path, "write", e))
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::progress::Quiet;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_damaged_length_is_found_before_its_bytes_are_allocated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sorted");
        let mut writer = Writer::create(&path).unwrap();
        writer.write(b"key", 7).unwrap();
        writer.finish().unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        let next = |path: &Path| Reader::open(path).unwrap().next();
        assert_eq!(next(&path).unwrap(), Some((b"key".to_vec(), 7)));
        for length in [4, u32::MAX] {
            bytes[8..12].copy_from_slice(&length.to_le_bytes());
            std::fs::write(&path, &bytes).unwrap();
            let error = next(&path).unwrap_err().to_string();
            assert!(error.contains("sorted: cannot read: "), "{error}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn records_are_sorted_for_any_budget(
            records in prop::collection::vec((prop::collection::vec(0u8..3, 0..4), 0u64..9), 0..200),
            budget in 0u64..4000,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let scratch = Scratch::open(&dir.path().join("work"), "sort", 0, Box::new(Quiet)).unwrap();
            let mut sorter = RecordSorter::new(&scratch, "keys", budget);
            records.iter().for_each(|(key, number)| sorter.push(key, *number).unwrap());
            let sorted = sorter.finish().unwrap();
            let mut expected = records.clone();
            expected.sort();
            for _ in 0..2 {
                let mut found = Vec::new();
                sorted.for_each(|key, number| { found.push((key.to_vec(), number)); Ok(()) }).unwrap();
                prop_assert_eq!(&found, &expected);
            }
        }
    }
}
