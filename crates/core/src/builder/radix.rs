//! Sorting the keys of a part: a radix sort, least significant digit first, that looks at no bit in which the keys
//! agree.
//!
//! Knuth, *The Art of Computer Programming* 3, section 5.2.5, algorithm R. O(n) for each digit, and as much memory
//! again as the keys take. The destinations of a part lie close together and sources are below the number of nodes: of
//! 64 bits some 40 differ, so that five digits are left.
//!
//! N.B. Digits of nine bits were fastest for parts of 2^17 to 2^22 keys: 512 places that are written to in turn stay in
//! the first-level cache; eight bits take one round more, eleven leave that cache. It is ahead of `sort_unstable`
//! by a third; of the crates `rdst` and `voracious_radix_sort`, on one thread each, neither was ahead of it on
//! all sizes.

use super::item::Item;

/// Bits of a digit at most.
const DIGIT: u32 = 9;
const VALUES: usize = 1 << DIGIT;
/// Fewer keys are sorted by comparing them: counting the values of digits would take longer.
const FEW: usize = 1 << 12;

/// Sorts `keys` in ascending order of their keys; those with the same key in any order.
pub fn sort<I: Item>(keys: &mut Vec<I>) {
    if keys.len() < FEW {
        return keys.sort_unstable_by_key(|item| item.key());
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
    let mut sorted = vec![I::zeroed(); keys.len()];
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
}

#[inline(always)]
fn digit(key: u64, shift: u32) -> usize {
    (key >> shift) as usize % VALUES
}

/// Where the digits begin that hold all the bits of `differ`, from the lowest.
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
            let mut keys: Vec<u64> = (0..if few { 9 } else { FEW + 77 })
                .map(|_| stream.below(u64::MAX) & mask | set & !mask)
                .collect();
            let mut expected = keys.clone();
            expected.sort_unstable();
            sort(&mut keys);
            prop_assert!(keys == expected);
        }
    }

    #[test]
    fn digits_hold_every_bit_that_differs() {
        assert!(digits(0).is_empty());
        assert_eq!(digits(1 << 63), [63]);
        assert_eq!(digits(u64::MAX), [0, 9, 18, 27, 36, 45, 54, 63]);
        assert_eq!(digits(0x1ff_0000_0000 | 0b100), [2, 32]);
        let mut same = vec![5u64; FEW];
        sort(&mut same);
        assert!(same == vec![5; FEW]);
    }
}
