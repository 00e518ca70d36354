//! Feature rows as words of a reply: the type of the values, then the rows, of 16-bit values two in
//! a word.
//!
//! A reply has the type in which its owner stores the rows, so it takes half the bytes of f32 if
//! that has 16 bits. The rank that receives it widens the values. Both conversions are exact.

#![forbid(unsafe_code)]

use graphmill_core::{NodeId, Result, matrix::TableType, memory};
use graphmill_loader::Feature;
use half::{bf16, f16, slice::HalfFloatSliceExt};
use rayon::prelude::*;

/// Number of values from which rows are copied in parallel.
pub(crate) const MIN_PARALLEL: usize = 64 << 10;
/// Number of values that one task copies.
pub(crate) const TASK_LEN: usize = 16 << 10;

/// Word of a type: its number in [`TableType::ALL`].
fn word_of(kind: TableType) -> u32 {
    TableType::ALL.iter().position(|&(_, other)| other == kind).unwrap_or(0) as u32
}

/// Words of `rows` rows of `dim` values in a reply, with that of their type.
pub(crate) fn words_of_rows(rows: usize, dim: usize, kind: TableType) -> usize {
    1 + (rows * dim * kind.width()).div_ceil(4)
}

/// Appends the rows `ids` of a tier, in the type that it stores.
///
/// # Errors
/// As [`Feature::read`].
pub(crate) fn append_rows(rows: &dyn Feature, ids: &[NodeId], words: &mut Vec<u32>) -> Result<()> {
    let kind = rows.capabilities().half.unwrap_or(TableType::F32);
    let len = ids.len() * rows.dim();
    if kind == TableType::F32 {
        return append_f32(len, words, |out| rows.read(ids, out).map(drop));
    }
    let mut wide = memory::demand_zeros(len);
    rows.read(ids, &mut wide)?;
    words.push(word_of(kind));
    let before = words.len();
    memory::demand_len(words, before + len.div_ceil(2), 0);
    let words = &mut words[before..];
    match kind {
        TableType::Bf16 => narrow(&wide, words, |from, to: &mut [bf16]| to.convert_from_f32_slice(from)),
        _ => narrow(&wide, words, |from, to: &mut [f16]| to.convert_from_f32_slice(from)),
    }
    Ok(())
}

/// Appends `len` values of f32 that `write` writes.
///
/// # Errors
/// Those of `write`.
pub(crate) fn append_f32(
    len: usize,
    words: &mut Vec<u32>,
    write: impl FnOnce(&mut [f32]) -> Result<()>,
) -> Result<()> {
    words.push(word_of(TableType::F32));
    let before = words.len();
    memory::demand_len(words, before + len, 0);
    write(bytemuck::cast_slice_mut(&mut words[before..]))
}

/// Converts values to 16 bits each, in parallel if there are many.
fn narrow<T: bytemuck::Pod + Send>(wide: &[f32], words: &mut [u32], convert: fn(&[f32], &mut [T])) {
    let halves: &mut [T] = bytemuck::cast_slice_mut(words);
    let halves = &mut halves[..wide.len()];
    if wide.len() < MIN_PARALLEL {
        return convert(wide, halves);
    }
    let parts = wide.par_chunks(TASK_LEN).zip(halves.par_chunks_mut(TASK_LEN));
    parts.for_each(|(from, to)| convert(from, to));
}

/// Copies the rows of `dim` values of a reply to the rows `at` of `out`, ascending, and returns
/// their bytes in the reply.
///
/// # Errors
/// The reply has other words: a description of them.
pub(crate) fn place_rows(
    words: &[u32],
    dim: usize,
    at: &[u32],
    out: &mut [f32],
) -> std::result::Result<u64, String> {
    let kind = words.first().and_then(|&word| TableType::ALL.get(word as usize)).map(|&(_, kind)| kind);
    let kind = kind.filter(|&kind| words.len() == words_of_rows(at.len(), dim, kind));
    let Some(kind) = kind else {
        return Err(format!("{} words of {} rows of {dim} values", words.len(), at.len()));
    };
    let words = &words[1..];
    let range = |i: usize| i * dim..(i + 1) * dim;
    match kind {
        TableType::F32 => {
            let rows: &[f32] = bytemuck::cast_slice(words);
            write_rows(at, dim, out, &|i, row| row.copy_from_slice(&rows[range(i)]));
        }
        TableType::F16 => {
            let rows: &[f16] = bytemuck::cast_slice(words);
            write_rows(at, dim, out, &|i, row| rows[range(i)].convert_to_f32_slice(row));
        }
        TableType::Bf16 => {
            let rows: &[bf16] = bytemuck::cast_slice(words);
            write_rows(at, dim, out, &|i, row| rows[range(i)].convert_to_f32_slice(row));
        }
    }
    Ok((at.len() * dim * kind.width()) as u64)
}

/// Calls `write` for each of the rows `at` of `out` (`R x dim`, strictly ascending) with its number
/// in `at`, in parallel if the rows have many values.
pub(crate) fn write_rows(
    at: &[u32],
    dim: usize,
    out: &mut [f32],
    write: &(impl Fn(usize, &mut [f32]) + Sync),
) {
    let is_long = at.len() * dim >= MIN_PARALLEL;
    let run = if is_long { (TASK_LEN / dim).max(1) } else { at.len() };
    split(at, (0, 0), dim, out, run, write);
}

/// As [`write_rows`], for rows from that number on in a part of the result that begins at that
/// row: halves them until they are no more than `run`.
fn split(
    at: &[u32],
    (number, first): (usize, u32),
    dim: usize,
    out: &mut [f32],
    run: usize,
    write: &(impl Fn(usize, &mut [f32]) + Sync),
) {
    if at.len() <= run {
        for (i, &to) in at.iter().enumerate() {
            write(number + i, &mut out[(to - first) as usize * dim..][..dim]);
        }
        return;
    }
    let half = at.len() / 2;
    let middle = at[half];
    let (before, behind) = out.split_at_mut((middle - first) as usize * dim);
    rayon::join(
        || split(&at[..half], (number, first), dim, before, run, write),
        || split(&at[half..], (number + half, middle), dim, behind, run, write),
    );
}

#[cfg(test)]
mod tests {
    use graphmill_core::Features;
    use graphmill_loader::feature::Host;

    use super::*;

    #[test]
    fn rows_arrive_with_the_bits_of_the_table_in_the_bytes_of_its_type() {
        let values: Vec<f32> = (0..40 * 3).map(|i| (i as f32).sin() * 90.0).collect();
        let values = Features::f32(3, values);
        // few rows, and more than a task copies
        for count in [5, MIN_PARALLEL as u32 / 3 + 2] {
            let ids: Vec<NodeId> = (0..count).map(|i| i * 7 % 40).collect();
            let at: Vec<u32> = (0..count).map(|i| 2 * i + 1).collect();
            for (_, kind) in TableType::ALL {
                let table = Host::resident(&values, kind).unwrap();
                let mut words = Vec::new();
                append_rows(&table, &ids, &mut words).unwrap();
                assert_eq!(words.len(), 1 + (ids.len() * 3 * kind.width()).div_ceil(4));
                let mut out = vec![-1.0; 2 * ids.len() * 3];
                let bytes = place_rows(&words, 3, &at, &mut out).unwrap();
                assert_eq!(bytes, (ids.len() * 3 * kind.width()) as u64);
                let mut expected = vec![0.0; ids.len() * 3];
                table.read(&ids, &mut expected).unwrap();
                for (found, row) in out.chunks(6).zip(expected.chunks(3)) {
                    assert_eq!(found[..3], [-1.0; 3]);
                    assert!(found[3..].iter().zip(row).all(|(a, b)| a.to_bits() == b.to_bits()));
                }
            }
        }
    }

    #[test]
    fn replies_of_another_size_or_type_are_refused() {
        let mut out = [0.0; 4];
        for words in [&[][..], &[0, 1, 2, 3], &[1, 7, 8, 9, 10], &[3, 7, 8, 9, 10]] {
            let error = place_rows(words, 2, &[0, 1], &mut out).unwrap_err();
            assert!(error.contains("2 rows of 2 values"), "{error}");
        }
        assert_eq!(out, [0.0; 4]);
    }
}
