//! Radix sort of the keys of a part.
//!
//! # Algorithm
//!
//! Least significant digit first; bits in which all keys agree are skipped. The destinations of a
//! part are close together and sources are below the number of nodes: about 40 of 64 bits differ,
//! which are five digits.
//!
//! # Source
//!
//! Knuth, *The Art of Computer Programming* 3, section 5.2.5, algorithm R.
//!
//! # Cost
//!
//! O(n) for each digit. Digits of nine bits were fastest for parts of 2^17 to 2^22 keys: 512 write
//! positions stay in the L1 cache; eight bits take one more round, eleven exceed that cache. It is
//! a third faster than `sort_unstable`; of the crates `rdst` and `voracious_radix_sort`, on one
//! thread each, neither was faster on all sizes.
//!
//! # Memory
//!
//! As much again as the keys.

use super::item::Item;
use crate::{Result, memory};

/// Maximum number of bits of a digit.
const DIGIT: u32 = 9;
const VALUES: usize = 1 << DIGIT;
/// Fewer keys are sorted by comparison: counting the digit values would take longer.
const MIN_RADIX_LEN: usize = 1 << 12;

/// Sorts items by ascending key; the order of equal keys is unspecified.
///
/// # Errors
/// Memory runs out.
pub fn sort<I: Item>(keys: &mut Vec<I>) -> Result<()> {
    if keys.len() < MIN_RADIX_LEN {
        keys.sort_unstable_by_key(|item| item.key());
        return Ok(());
    }
    let both = |(any, all), item: &I| (any | item.key(), all & item.key());
    let (any, all) = keys.iter().fold((0, u64::MAX), both);
    let shifts = digits(any & !all);
    let mut counts = vec![[0usize; VALUES]; shifts.len()];
    for &key in &*keys {
        for (counts, &shift) in counts.iter_mut().zip(&shifts) {
            counts[digit(key.key(), shift)] += 1;
        }
    }
    let mut sorted: Vec<I> = memory::zeroed(keys.len())?;
    for (mut places, &shift) in counts.into_iter().zip(&shifts) {
        let mut sum = 0;
        for place in &mut places {
            sum += std::mem::replace(place, sum);
        }
        for &key in &*keys {
            let place = &mut places[digit(key.key(), shift)];
            sorted[*place] = key;
            *place += 1;
        }
        std::mem::swap(keys, &mut sorted);
    }
    Ok(())
}

#[inline(always)]
fn digit(key: u64, shift: u32) -> usize {
    (key >> shift) as usize % VALUES
}

/// Starts of the digits that cover all bits of `differ`, from the lowest.
fn digits(differ: u64) -> Vec<u32> {
    let mut shifts = Vec::new();
    let mut rest = differ;
    while rest != 0 {
        let shift = rest.trailing_zeros();
        shifts.push(shift);
        rest &= u64::MAX.checked_shl(shift + DIGIT).unwrap_or(0);
    }
    shifts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::keyed::Stream;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn same_as_sorting_by_comparison(seed: u64, mask: u64, set: u64, few: bool) {
            let mut stream = Stream::new(seed);
            let mut keys: Vec<u64> = (0..if few { 9 } else { MIN_RADIX_LEN + 77 })
                .map(|_| stream.below(u64::MAX) & mask | set & !mask)
                .collect();
            let mut expected = keys.clone();
            expected.sort_unstable();
            sort(&mut keys).unwrap();
            prop_assert!(keys == expected);
        }
    }

    #[test]
    fn digits_hold_every_bit_that_differs() {
        assert!(digits(0).is_empty());
        assert_eq!(digits(1 << 63), [63]);
        assert_eq!(digits(u64::MAX), [0, 9, 18, 27, 36, 45, 54, 63]);
        assert_eq!(digits(0x1ff_0000_0000 | 0b100), [2, 32]);
        let mut same = vec![5u64; MIN_RADIX_LEN];
        sort(&mut same).unwrap();
        assert!(same == vec![5; MIN_RADIX_LEN]);
    }
}
