//! Integer types of node ids.

use crate::npy;

/// Integer type of an id: 32 bits, or 64 before compaction.
pub(in super::super::super) trait Id:
    npy::Element + std::str::FromStr + std::fmt::Display + Ord + Into<u64>
{
    fn from_id(id: u64) -> Option<Self>;
}

impl Id for u32 {
    #[inline(always)]
    fn from_id(id: u64) -> Option<Self> {
        id.try_into().ok()
    }
}

impl Id for u64 {
    #[inline(always)]
    fn from_id(id: u64) -> Option<Self> {
        Some(id)
    }
}

pub(super) fn outside<T: Id>(u: T, v: T, limit: u128) -> String {
    format!("the edge joins nodes {u} and {v}, but there are {limit} nodes")
}

pub(super) fn not_an_id<T: Id>(field: &str) -> String {
    let most = T::DTYPE.size * 8;
    let is_number = field.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    let hint = match is_number {
        true if most < 64 => "; pass compact-ids for larger ones",
        true => "",
        false => "; 'graphmill import tables' reads keys of any type",
    };
    format!(
        "'{}' is not a node id: ids are whole numbers from 0 that fit {most} bits{hint}",
        field.escape_debug()
    )
}
