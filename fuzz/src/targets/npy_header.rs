//! The header of an `.npy` array, from bytes.

use graphmill_data::dataset::import::fuzz;

use super::Answer;
use crate::alloc::limited;

pub(super) use super::ARRAY_TOKENS as TOKENS;

/// One input: the bytes of the file.
pub fn run(data: &[u8]) -> Answer {
    Ok(limited(data.len(), || fuzz::npy_header(data))?)
}
