//! The checksum of a dataset's files: a two-level tree of xxh3 hashes over fixed chunks, so that
//! large files are checked by all cores and the result depends on the bytes alone.
//!
//! ```text
//! digest = xxh3_128( length (u64, little endian) || xxh3_128(chunk 0) || xxh3_128(chunk 1) || ... )
//! ```
//!
//! Chunks are 1 MiB, digests little endian, and the result is written as 32 lower-case hexadecimal
//! digits. xxh3 (Yann Collet, xxHash 0.8) finds damage; it is no protection against forgery.

use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_128;

/// Bytes per leaf: small enough to spread over cores, large enough that the root is cheap.
pub(crate) const CHUNK: usize = 1 << 20;

/// The checksum of `bytes`. Parallel; memory speed.
pub fn checksum(bytes: &[u8]) -> String {
    root(bytes.len() as u64, &bytes.par_chunks(CHUNK).map(leaf).collect::<Vec<_>>())
}

/// The checksum of the bytes of `head`, at most a chunk, and of `rest` behind them. Parallel.
pub(crate) fn of_parts(head: &[u8], rest: &[u8]) -> String {
    let (first, others) = rest.split_at(rest.len().min(CHUNK - head.len()));
    let mut leaves = vec![leaf(&[head, first].concat())];
    leaves.par_extend(others.par_chunks(CHUNK).map(leaf));
    root((head.len() + rest.len()) as u64, &leaves)
}

/// The hash of one chunk.
pub(crate) fn leaf(chunk: &[u8]) -> u128 {
    xxh3_128(chunk)
}

/// The checksum of `length` bytes whose chunks have these hashes.
pub(crate) fn root(length: u64, leaves: &[u128]) -> String {
    let mut root = length.to_le_bytes().to_vec();
    root.extend(leaves.iter().flat_map(|leaf| leaf.to_le_bytes()));
    format!("{:032x}", xxh3_128(&root))
}

/// The checksum of bytes that come one chunk after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    length: u64,
    leaves: Vec<u128>,
}

impl Tree {
    /// Bytes of every chunk but the last.
    pub(crate) const CHUNK: usize = CHUNK;

    /// Adds a chunk: of [`Tree::CHUNK`] bytes, unless it is the last.
    pub(crate) fn add(&mut self, chunk: &[u8]) {
        debug_assert!(self.length.is_multiple_of(CHUNK as u64), "a short chunk is the last");
        self.length += chunk.len() as u64;
        self.leaves.push(xxh3_128(chunk));
    }

    /// Puts another chunk of the same length in the place of the first.
    pub(crate) fn replace_first(&mut self, chunk: &[u8]) {
        self.leaves[0] = xxh3_128(chunk);
    }

    /// What [`checksum`] gives for all the bytes.
    pub(crate) fn finish(&self) -> String {
        let mut root = self.length.to_le_bytes().to_vec();
        root.extend(self.leaves.iter().flat_map(|leaf| leaf.to_le_bytes()));
        format!("{:032x}", xxh3_128(&root))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_parts_it_is_the_same() {
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
    fn chunk_by_chunk_it_is_the_same() {
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
    fn it_is_what_the_format_says() {
        let bytes: Vec<u8> = (0..CHUNK + 10).map(|i| (i % 251) as u8).collect();
        let mut root = (CHUNK as u64 + 10).to_le_bytes().to_vec();
        root.extend(xxh3_128(&bytes[..CHUNK]).to_le_bytes());
        root.extend(xxh3_128(&bytes[CHUNK..]).to_le_bytes());
        assert_eq!(checksum(&bytes), format!("{:032x}", xxh3_128(&root)));
        assert_eq!(checksum(b"").len(), 32);
    }

    #[test]
    fn it_does_not_depend_on_the_number_of_threads() {
        let bytes: Vec<u8> = (0..5 * CHUNK).map(|i| (i * 7 % 253) as u8).collect();
        let with = |threads| {
            rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| checksum(&bytes))
        };
        assert_eq!(with(1), with(4));
    }
}
