//! Verification of a dataset's files: when it is opened, or for large feature files when their rows
//! are first read ([`ChunkVerifier`]).
//!
//! A file's checksum is a tree over chunks of 1 MiB ([`crate::checksum`]). A feature file of
//! several chunks has its chunk checksums beside it, in `features_checksums.npy`. The manifest
//! holds the root of the tree, so it covers this second file as well.

pub(crate) mod leaves;
pub(crate) mod verified;

use std::path::PathBuf;

pub use graphmill_core::verifier::ChunkVerifier;
use graphmill_core::{Buffer, memory, verifier::Checksums};

use crate::{
    checksum::{self, CHUNK},
    npy::Element,
};

/// Extent of the verification when a dataset, or a part of a partitioned one, is opened. Topology,
/// labels, splits and sparse features are verified in every case, once in each of their states:
/// `verified.json` records the files that were verified ([`Verify::All`] ignores it).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Reads every file that was not verified at this place before, but no features that are larger
    /// than a quarter of the memory: the first read of a row verifies those.
    #[default]
    Once,
    /// Reads every file.
    All,
    /// As [`Verify::Once`], but the first read of a row verifies dense features of any size.
    FirstRead,
    /// As [`Verify::Once`], but dense features are never verified.
    NoFeatures,
}

impl Verify {
    /// Returns true if dense features of `bytes` bytes are not read at opening.
    pub(crate) fn defers(self, bytes: u64) -> bool {
        match self {
            Self::Once => is_too_large(bytes),
            Self::All => false,
            Self::FirstRead | Self::NoFeatures => true,
        }
    }
}

/// Returns true if features of `bytes` bytes exceed a quarter of the machine's memory. Reading them
/// on every open would take longer than many commands and would evict everything else from the page
/// cache.
fn is_too_large(bytes: u64) -> bool {
    memory::total().is_some_and(|total| bytes > total / 4)
}

/// Verifier of the file at `path`, whose `bytes` hold values of type `T` behind a header. `whole`
/// is its checksum, and `leaves` are those of its chunks, if they are known.
pub(crate) fn verifier<T: Element>(
    path: PathBuf,
    bytes: Buffer<u8>,
    header: usize,
    whole: &str,
    leaves: Option<Vec<u128>>,
) -> ChunkVerifier {
    let (leaf, root) = (checksum::leaf, checksum::root);
    let sums = Checksums { chunk: CHUNK, whole: whole.into(), leaves, leaf, root };
    ChunkVerifier::new(path, bytes, header, sums, |bytes| {
        bytemuck::cast_slice::<u8, T>(bytes).iter().position(|x| !x.finite())
    })
}

#[cfg(test)]
mod tests;
