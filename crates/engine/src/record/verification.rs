//! Record of the verification of a run's features.

use serde::{Deserialize, Serialize};

/// Bytes of the dense and sparse feature rows of a run's dataset, by the time at which they were
/// compared with their checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VerificationRecord {
    /// All bytes.
    pub bytes: u64,
    /// Bytes verified when the dataset was opened, at this or an earlier opening.
    pub at_opening: u64,
    /// Bytes verified by the first read of a row, since the start or the last resume.
    pub at_first_read: u64,
    /// Bytes not verified. Rows in them were not read, unless `is_off` or `lacks_checksums`.
    pub unverified: u64,
    /// True if `--verify none` turned the verification of some of them off.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_off: bool,
    /// True if the dataset lacks the checksums that verify a part of a file.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub lacks_checksums: bool,
}
