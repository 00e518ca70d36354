//! Verification of feature files that are not read when they are opened: chunk by chunk, by the
//! first read of a row.
//!
//! # Algorithm
//!
//! The checksum of a file is the root of a tree over chunks of equal length ([`Checksums`]). Before
//! a row is read for the first time, the chunks in which it lies are read whole and compared with
//! their checksums, and a bit for each chunk records the outcome: every chunk is read once per open
//! dataset, however small the reads are.
//!
//! # Source
//!
//! Ralph C. Merkle, "A Digital Signature Based on a Conventional Encryption Function", CRYPTO '87:
//! a tree of hashes verifies a part of the data. This one has two levels, and the caller's hash.
//!
//! # Cost
//!
//! A read of each chunk that the rows lie in, and a hash of it at memory speed. Afterwards a test
//! of a bit per row, and once all chunks are verified a single load per request.
//!
//! # Memory
//!
//! 16 bytes and a bit for each chunk of the file.

#![forbid(unsafe_code)]

use std::{
    fmt,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*},
    },
};

use rayon::prelude::*;

use crate::{Buffer, Error, FeatureData, Features, NodeId, Result};

/// Bytes that are verified together before their pages are released: whole chunks. Those of tests
/// are few, so that a small file has several windows.
const WINDOW: usize = if cfg!(test) { 64 } else { 64 << 20 };
/// Number of locks that keep two threads from verifying the same chunk.
const LOCKS: usize = 64;

/// Verifier of one feature file. Clones share what was verified.
///
/// The buffer of a feature table that was not verified when it was opened has a verifier as its tag
/// ([`Features::verifier`]), which checks rows before they are read.
#[derive(Clone)]
pub struct ChunkVerifier(Arc<State>);

struct State {
    path: PathBuf,
    /// The whole file.
    bytes: Buffer<u8>,
    /// Bytes before the rows.
    header: usize,
    sums: Checksums,
    /// Finds the first value that is not finite.
    first_not_finite: FirstNotFinite,
    /// A bit for each chunk that was verified.
    verified: Box<[AtomicU64]>,
    /// Number of chunks that were not.
    left: AtomicUsize,
    /// Bytes of rows that were verified, and those of them that were when the dataset was opened.
    bytes_verified: AtomicU64,
    bytes_at_opening: AtomicU64,
    is_off: AtomicBool,
    locks: [Mutex<()>; LOCKS],
}

/// Checksums of a file: a tree of two levels over chunks of equal length.
#[derive(Clone, Debug)]
pub struct Checksums {
    /// Bytes of each chunk but the last: a multiple of a page.
    pub chunk: usize,
    /// Checksum of the file.
    pub whole: String,
    /// Checksum of each chunk, if they are known.
    pub leaves: Option<Vec<u128>>,
    /// Computes the checksum of a chunk.
    pub leaf: fn(&[u8]) -> u128,
    /// Computes the checksum of a file from its length and its chunks' checksums.
    pub root: fn(u64, &[u128]) -> String,
}

/// Finds the first value that is not finite in bytes that begin with a value.
pub type FirstNotFinite = fn(&[u8]) -> Option<usize>;

/// Reads a byte range of the file and passes it to the second argument once.
pub type ReadRange<'r> = dyn Fn(Range<u64>, &mut dyn FnMut(&[u8])) -> Result<()> + Sync + 'r;

impl ChunkVerifier {
    /// Creates the verifier of the file at `path`, whose `bytes` hold values behind a header.
    pub fn new(
        path: PathBuf,
        bytes: Buffer<u8>,
        header: usize,
        sums: Checksums,
        first_not_finite: FirstNotFinite,
    ) -> Self {
        let chunks = bytes.len().div_ceil(sums.chunk);
        Self(Arc::new(State {
            path,
            bytes,
            header,
            sums,
            first_not_finite,
            verified: (0..chunks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            left: AtomicUsize::new(chunks),
            bytes_verified: AtomicU64::new(0),
            bytes_at_opening: AtomicU64::new(0),
            is_off: AtomicBool::new(false),
            locks: std::array::from_fn(|_| Mutex::new(())),
        }))
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Checksum of the whole file, by its manifest.
    pub fn checksum(&self) -> &str {
        &self.0.sums.whole
    }

    /// Returns true if chunks can be verified one by one: the dataset has their checksums.
    pub fn has_checksums(&self) -> bool {
        self.0.sums.leaves.is_some() || self.num_chunks() <= 1
    }

    /// Returns true if verification is off.
    pub fn is_off(&self) -> bool {
        self.0.is_off.load(Relaxed)
    }

    /// Turns verification off: every later check passes.
    pub fn turn_off(&self) {
        self.0.is_off.store(true, Relaxed);
    }

    /// Bytes of the rows.
    pub fn bytes(&self) -> u64 {
        (self.0.bytes.len() - self.0.header) as u64
    }

    /// Bytes of the rows that were verified so far.
    pub fn bytes_verified(&self) -> u64 {
        self.0.bytes_verified.load(Relaxed)
    }

    /// Those of them that were verified by [`ChunkVerifier::verify_at_opening`].
    pub fn bytes_at_opening(&self) -> u64 {
        self.0.bytes_at_opening.load(Relaxed)
    }

    /// Returns true if no later check reads the file: all of it was verified, or it cannot be
    /// verified in chunks, or verification is off.
    pub fn is_done(&self) -> bool {
        self.0.left.load(Acquire) == 0 || !self.has_checksums() || self.is_off()
    }

    /// Verifies the chunks of the rows of `ids`, of `row_bytes` bytes each, through a map of the
    /// file. Parallel.
    ///
    /// # Errors
    /// A chunk is damaged, or a value in it is not finite; the first such chunk.
    pub fn verify_rows(&self, ids: &[NodeId], row_bytes: usize) -> Result<()> {
        if self.is_done() {
            return Ok(());
        }
        let start = |v: NodeId| (self.0.header + v as usize * row_bytes) as u64;
        let ranges = ids.iter().map(|&v| start(v)..start(v) + row_bytes as u64);
        self.verify_ranges(ranges, &|range, see| {
            let range = range.start as usize..range.end as usize;
            see(&self.0.bytes[range.clone()]);
            self.0.bytes.release(range);
            Ok(())
        })
        .map(drop)
    }

    /// Verifies the chunks in which these byte ranges lie, unless they were verified before, and
    /// returns the number of bytes that were read for it. `read` reads a chunk. Parallel.
    ///
    /// # Errors
    /// A chunk cannot be read or is damaged, or a value in it is not finite; the first such chunk.
    pub fn verify_ranges(&self, ranges: impl Iterator<Item = Range<u64>>, read: &ReadRange) -> Result<u64> {
        if self.is_done() {
            return Ok(0);
        }
        let mut chunks: Vec<usize> = Vec::new();
        for range in ranges.filter(|range| !range.is_empty()) {
            let of_range =
                range.start as usize / self.0.sums.chunk..(range.end as usize).div_ceil(self.0.sums.chunk);
            chunks.extend(of_range.filter(|&chunk| !self.has(chunk)));
        }
        chunks.sort_unstable();
        chunks.dedup();
        let read = chunks.par_iter().with_max_len(1).map(|&chunk| self.verify_chunk(chunk, read));
        // in the order of the file, so that every number of threads finds the same chunk
        let read: Vec<Result<u64>> = read.collect();
        read.into_iter().sum()
    }

    /// Verifies all that was not verified before, also without checksums of chunks. For readers of
    /// the whole table: one pass over the file, parallel.
    ///
    /// # Errors
    /// As [`ChunkVerifier::verify_rows`].
    pub fn verify_all(&self) -> Result<()> {
        let state = &*self.0;
        if self.is_off() || state.left.load(Acquire) == 0 {
            return Ok(());
        }
        let has_checksums = self.has_checksums();
        let (mut leaves, mut outcome) = (Vec::new(), Ok(()));
        state.bytes.scan(WINDOW, |start, window| {
            if outcome.is_err() {
                return;
            }
            let first = start / state.sums.chunk;
            let check = |(i, bytes): (usize, &[u8])| match has_checksums {
                true => {
                    let read = |_: Range<u64>, see: &mut dyn FnMut(&[u8])| {
                        see(bytes);
                        Ok(())
                    };
                    self.verify_chunk(first + i, &read).map(|_| 0)
                }
                false => self.check_finite(first + i, bytes).map(|()| (state.sums.leaf)(bytes)),
            };
            let found: Vec<Result<u128>> =
                window.par_chunks(state.sums.chunk).enumerate().map(check).collect();
            match found.into_iter().collect::<Result<Vec<_>>>() {
                Ok(found) => leaves.extend(found),
                Err(error) => outcome = Err(error),
            }
        });
        outcome?;
        if !has_checksums {
            let found = (state.sums.root)(state.bytes.len() as u64, &leaves);
            if found != state.sums.whole {
                return Err(damaged(&state.path, "checksum", "the file has", &found, &state.sums.whole));
            }
            (0..self.num_chunks()).for_each(|chunk| self.pass(chunk));
        }
        Ok(())
    }

    /// Verifies all as [`ChunkVerifier::verify_all`] does, and counts it as verified at opening.
    ///
    /// # Errors
    /// As [`ChunkVerifier::verify_rows`].
    pub fn verify_at_opening(&self) -> Result<()> {
        self.verify_all()?;
        self.0.bytes_at_opening.store(self.bytes_verified(), Relaxed);
        Ok(())
    }

    fn num_chunks(&self) -> usize {
        self.0.bytes.len().div_ceil(self.0.sums.chunk)
    }

    fn range(&self, chunk: usize) -> Range<usize> {
        chunk * self.0.sums.chunk..((chunk + 1) * self.0.sums.chunk).min(self.0.bytes.len())
    }

    fn has(&self, chunk: usize) -> bool {
        self.0.verified[chunk / 64].load(Acquire) >> (chunk % 64) & 1 == 1
    }

    /// Records that a chunk was verified.
    fn pass(&self, chunk: usize) {
        if self.0.verified[chunk / 64].fetch_or(1 << (chunk % 64), AcqRel) >> (chunk % 64) & 1 == 0 {
            let range = self.range(chunk);
            let rows = range.end.saturating_sub(range.start.max(self.0.header));
            self.0.bytes_verified.fetch_add(rows as u64, Relaxed);
            self.0.left.fetch_sub(1, AcqRel);
        }
    }

    /// Verifies one chunk, unless it was verified before, and returns the number of bytes read.
    fn verify_chunk(&self, chunk: usize, read: &ReadRange) -> Result<u64> {
        let state = &*self.0;
        // No thread works for the pool while it holds the lock, so none waits for itself.
        let _held = state.locks[chunk % LOCKS].lock().unwrap_or_else(PoisonError::into_inner);
        if self.has(chunk) {
            return Ok(0);
        }
        let range = self.range(chunk);
        let place = range.start as u64..range.end as u64;
        let mut outcome = Ok(());
        read(place.clone(), &mut |bytes| {
            let leaf = (state.sums.leaf)(bytes);
            let (found, expected) = match &state.sums.leaves {
                Some(leaves) => (format!("{leaf:032x}"), format!("{:032x}", leaves[chunk])),
                None => ((state.sums.root)(bytes.len() as u64, &[leaf]), state.sums.whole.clone()),
            };
            outcome = match found == expected {
                true => self.check_finite(chunk, bytes),
                false => {
                    let place = format!("bytes {} to {}", place.start, place.end);
                    Err(damaged(&state.path, place, "these bytes have", &found, &expected))
                }
            };
        })?;
        outcome?;
        self.pass(chunk);
        Ok(range.len() as u64)
    }

    /// Checks that the values of a chunk are finite.
    fn check_finite(&self, chunk: usize, bytes: &[u8]) -> Result<()> {
        let state = &*self.0;
        let start = self.range(chunk).start;
        let first = state.header.max(start);
        let Some(i) = (state.first_not_finite)(bytes.get(first - start..).unwrap_or_default()) else {
            return Ok(());
        };
        let place = format!("bytes {start} to {}", start + bytes.len());
        let message = format!(
            "value {i} from byte {first} on is not a finite number; correct the source and import it again"
        );
        Err(Error::format(&state.path, place, message))
    }
}

/// Error for features with a wrong checksum.
fn damaged(path: &Path, place: impl Into<String>, what: &str, found: &str, expected: &str) -> Error {
    let message = format!(
        "the features are damaged: {what} the checksum {found}, the dataset says {expected}; restore the \
         file or import the data again"
    );
    Error::format(path, place, message)
}

impl fmt::Debug for ChunkVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verified, bytes) = (self.bytes_verified(), self.bytes());
        write!(f, "ChunkVerifier({:?}, {verified} of {bytes} bytes)", self.0.path)
    }
}

impl Features {
    /// Verifier of dense rows that were not verified when they were opened.
    pub fn verifier(&self) -> Option<&ChunkVerifier> {
        match &self.data {
            FeatureData::F32(data) => data.tag(),
            FeatureData::F16(data) => data.tag(),
            FeatureData::Csr(_) => None,
        }
    }

    /// Verifies all rows that were not verified before, for readers of the whole table.
    ///
    /// # Errors
    /// As [`ChunkVerifier::verify_all`].
    pub fn verify(&self) -> Result<()> {
        self.verifier().map_or(Ok(()), ChunkVerifier::verify_all)
    }
}

#[cfg(test)]
mod tests;
