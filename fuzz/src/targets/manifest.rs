//! Text of `graphmill.json`. A checksum of 32 zeros is filled in first, because otherwise the
//! parser would stop there.

use graphmill_data::{checksum::checksum, dataset::import::fuzz};

use super::Answer;
use crate::alloc::limited;

/// Placeholder of a checksum to be filled in.
pub const UNSIGNED: &str = "00000000000000000000000000000000";

pub(super) const TOKENS: &[&[u8]] = &[
    b"\"format\": \"graphmill-dataset\"",
    b"\"version\": 1",
    b"\"version\": 2",
    b"\"name\": ",
    b"\"nodes\": ",
    b"\"edges\": ",
    b"\"feature_dim\": ",
    b"\"classes\": ",
    b"\"multilabel\": true",
    b"\"metric\": \"accuracy\"",
    b"\"files\": {}",
    b"\"indptr.npy\": {}",
    b"\"dtype\": \"<u8\"",
    b"\"shape\": [3]",
    b"\"bytes\": ",
    b"\"checksum\": \"00000000000000000000000000000000\"",
    b"18446744073709551615",
    b"1e999",
    b"null",
    b"\\ud800",
    crate::input::FILE,
];

/// One input: the text.
pub fn run(data: &[u8]) -> Answer {
    let text = std::str::from_utf8(data)?;
    let signed = sign(text);
    Ok(limited(text.len(), || fuzz::manifest(&signed))?)
}

/// Fills in the checksum of the whole text for its last [`UNSIGNED`].
pub(super) fn sign(text: &str) -> String {
    match text.rfind(UNSIGNED) {
        Some(at) => {
            [&text[..at], &checksum(text.as_bytes()), &text[at + UNSIGNED.len()..]].concat()
        }
        None => text.to_string(),
    }
}
