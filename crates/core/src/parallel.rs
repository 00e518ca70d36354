//! Parallel loops that are compiled once, for code that is generic over number types.
//!
//! A parallel iterator is compiled again for every type and every closure, most of it code of the
//! thread pool: 3,300 lines of intermediate code each, which were a quarter of the data crate. The
//! loops below take the closure by reference. Their calls cost nothing beside a piece of thousands
//! of values.

#![forbid(unsafe_code)]

use bytemuck::Pod;
use rayon::prelude::*;

use crate::{Result, memory};

/// Number of values that a thread computes at a time.
const PIECE_LEN: usize = 1 << 12;

/// Result of the first of `count` pieces that has one. Later pieces are skipped if possible.
pub fn first(count: usize, find: &(dyn Fn(usize) -> Option<usize> + Sync)) -> Option<usize> {
    (0..count).into_par_iter().find_map_first(find)
}

/// First index below `count` for which `is_found` holds. Later pieces are skipped if possible.
pub fn first_index(count: usize, is_found: impl Fn(usize) -> bool + Sync) -> Option<usize> {
    first(count.div_ceil(PIECE_LEN), &|piece| {
        let start = piece * PIECE_LEN;
        (start..count.min(start + PIECE_LEN)).find(|&i| is_found(i))
    })
}

/// Calls `work` with every piece of `len` values (the last may have fewer) and its number. Pieces
/// have at least one value.
///
/// ```
/// let mut data = [0u32; 5];
/// graphmill_core::parallel::for_each_piece(&mut data, 2, |i, piece| piece.fill(i as u32));
/// assert_eq!(data, [0, 0, 1, 1, 2]);
/// ```
pub fn for_each_piece<T: Pod>(data: &mut [T], len: usize, work: impl Fn(usize, &mut [T]) + Sync) {
    let bytes = len.max(1).saturating_mul(size_of::<T>().max(1));
    pieces_of_bytes(bytemuck::cast_slice_mut(data), bytes, &|i, piece| {
        work(i, bytemuck::cast_slice_mut(piece));
    });
}

fn pieces_of_bytes(bytes: &mut [u8], len: usize, work: &(dyn Fn(usize, &mut [u8]) + Sync)) {
    bytes.par_chunks_mut(len).enumerate().for_each(|(i, piece)| work(i, piece));
}

/// Vector of `value(i)` for `i` below `count`.
///
/// ```
/// assert_eq!(graphmill_core::parallel::map(3, |i| i as u64 * 2)?, [0, 2, 4]);
/// # Ok::<(), graphmill_core::Error>(())
/// ```
///
/// # Errors
/// The allocation fails.
pub fn map<T: Pod>(count: usize, value: impl Fn(usize) -> T + Sync) -> Result<Vec<T>> {
    let mut out = memory::zeroed(count)?;
    for_each_piece(&mut out, PIECE_LEN, |piece, out| {
        let start = piece * PIECE_LEN;
        out.iter_mut().enumerate().for_each(|(i, out)| *out = value(start + i));
    });
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_computed_once_and_the_first_result_wins() {
        for count in [0, 1, PIECE_LEN, 3 * PIECE_LEN + 7] {
            assert_eq!(map(count, |i| i as u64).unwrap(), (0..count as u64).collect::<Vec<_>>());
        }
        assert_eq!(first(100, &|i| (i % 30 == 29).then_some(i * 2)), Some(58));
        assert_eq!(first(100, &|_| None), None);
        assert_eq!(first_index(9_000, |i| i % 5_000 == 4_999), Some(4_999));
        assert_eq!(first_index(9_000, |i| i >= 9_000), None);
        for_each_piece(&mut [0u8; 0], 0, |_, _| unreachable!("there are no pieces"));
    }
}
