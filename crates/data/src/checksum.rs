//! Checksum of a dataset's files: a two-level tree of xxh3 hashes.
//!
//! # Algorithm
//!
//! ```text
//! digest = xxh3_128( length (u64, little endian) || xxh3_128(chunk 0) || xxh3_128(chunk 1) || ... )
//! ```
//!
//! The chunks have a fixed length of 1 MiB, so that all cores check a large file and the result
//! depends on the bytes alone. Digests are little endian; the result is written as 32 lower-case
//! hexadecimal digits.
//!
//! # Source
//!
//! Yann Collet, xxHash 0.8 (the hash XXH3). It detects damage and does not protect against forgery.
//!
//! # Cost
//!
//! One pass at memory speed, parallel over the chunks.

use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_128;

/// Bytes per leaf: small enough to spread over cores, large enough that the root is cheap.
pub(crate) const CHUNK: usize = 1 << 20;

/// Computes the checksum of `bytes`, in parallel, at memory speed.
pub fn checksum(bytes: &[u8]) -> String {
    root(bytes.len() as u64, &leaves(bytes))
}

/// Hash of each chunk. Parallel.
pub(crate) fn leaves(bytes: &[u8]) -> Vec<u128> {
    bytes.par_chunks(CHUNK).map(leaf).collect()
}

/// Computes the checksum of `head`, at most one chunk, followed by `rest`. Parallel.
pub(crate) fn of_parts(head: &[u8], rest: &[u8]) -> String {
    let (first, others) = rest.split_at(rest.len().min(CHUNK - head.len()));
    let mut leaves = vec![leaf(&[head, first].concat())];
    leaves.par_extend(others.par_chunks(CHUNK).map(leaf));
    root((head.len() + rest.len()) as u64, &leaves)
}

/// Hash of one chunk.
pub(crate) fn leaf(chunk: &[u8]) -> u128 {
    xxh3_128(chunk)
}

/// Checksum of `length` bytes with these chunk hashes.
pub(crate) fn root(length: u64, leaves: &[u128]) -> String {
    let mut root = length.to_le_bytes().to_vec();
    root.extend(leaves.iter().flat_map(|leaf| leaf.to_le_bytes()));
    format!("{:032x}", xxh3_128(&root))
}

/// Incremental checksum, chunk by chunk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    length: u64,
    leaves: Vec<u128>,
}

impl Tree {
    /// Bytes of every chunk but the last.
    pub(crate) const CHUNK: usize = CHUNK;

    /// Adds a chunk of [`Tree::CHUNK`] bytes; only the last may be shorter.
    pub(crate) fn add(&mut self, chunk: &[u8]) {
        debug_assert!(self.length.is_multiple_of(CHUNK as u64), "a short chunk is the last");
        self.length += chunk.len() as u64;
        self.leaves.push(xxh3_128(chunk));
    }

    /// Replaces the first chunk by another of the same length.
    pub(crate) fn replace_first(&mut self, chunk: &[u8]) {
        self.leaves[0] = xxh3_128(chunk);
    }

    /// Returns the value of [`checksum`] for all bytes.
    pub(crate) fn finish(&self) -> String {
        root(self.length, &self.leaves)
    }

    /// Returns the hash of each chunk.
    pub(crate) fn into_leaves(self) -> Vec<u128> {
        self.leaves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_of_parts_match_the_whole() {
        let bytes: Vec<u8> = (0..3 * CHUNK + 77).map(|i| (i * 7) as u8).collect();
        for (head, length) in [(1, 1), (4096, 4096), (4096, CHUNK), (4096, CHUNK + 1), (4096, bytes.len())] {
            assert_eq!(
                of_parts(&bytes[..head], &bytes[head..length]),
                checksum(&bytes[..length]),
                "{head} {length}"
            );
        }
    }

    #[test]
    fn incremental_checksums_match_the_whole() {
        for length in [0, 1, CHUNK, CHUNK + 1, 3 * CHUNK] {
            let mut bytes: Vec<u8> = (0..length).map(|i| (i * 31 % 251) as u8).collect();
            let mut tree = Tree::default();
            bytes.chunks(CHUNK).for_each(|chunk| tree.add(chunk));
            assert_eq!(tree.finish(), checksum(&bytes));
            if length > 0 {
                bytes[0] ^= 1;
                tree.replace_first(&bytes[..length.min(CHUNK)]);
                assert_eq!(tree.finish(), checksum(&bytes));
            }
        }
    }

    #[test]
    fn checksums_match_the_documented_formula() {
        let bytes: Vec<u8> = (0..CHUNK + 10).map(|i| (i % 251) as u8).collect();
        let mut root = (CHUNK as u64 + 10).to_le_bytes().to_vec();
        root.extend(xxh3_128(&bytes[..CHUNK]).to_le_bytes());
        root.extend(xxh3_128(&bytes[CHUNK..]).to_le_bytes());
        assert_eq!(checksum(&bytes), format!("{:032x}", xxh3_128(&root)));
        assert_eq!(checksum(b"").len(), 32);
    }

    #[test]
    fn checksums_ignore_the_number_of_threads() {
        let bytes: Vec<u8> = (0..5 * CHUNK).map(|i| (i * 7 % 253) as u8).collect();
        let with = |threads| {
            rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| checksum(&bytes))
        };
        assert_eq!(with(1), with(4));
    }
}
