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

#[cfg(test)]
mod tests {
    use super::*;

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
