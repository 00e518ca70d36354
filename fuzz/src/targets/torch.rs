//! A file of PyTorch, in the zip form or the older one, and every array and tensor in it.

use std::path::Path;

use graphmill_data::dataset::import::fuzz;

use super::Answer;
use crate::alloc::limited;

pub(super) const TOKENS: &[&[u8]] = &[
    b"\x80\x02",
    b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.",
    b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"ctorch\nFloatStorage\n",
    b"ctorch\nLongStorage\n",
    b"ctorch\nBFloat16Storage\n",
    b"ctorch\nSize\n",
    b"ccollections\nOrderedDict\n)R",
    b"X\x07\0\0\0storage",
    b"X\x01\0\0\x000",
    b"X\x03\0\0\0cpu",
    b"tQ",
    b"K\0K\x02\x85K\x01\x85\x89",
    b"a/data.pkl",
    b"a/data/0",
    b"a/byteorder",
    b"little",
];

/// One input: the bytes of the file.
pub fn run(data: &[u8]) -> Answer {
    Ok(limited(data.len(), || fuzz::torch(data, Path::new("fuzz.pt")))?)
}
