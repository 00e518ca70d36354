//! Numbers of 64 bits as words of messages.

#![forbid(unsafe_code)]

use graphmill_core::memory;

/// Words of a message that holds these numbers, the low half of each first.
pub fn to_words(numbers: impl IntoIterator<Item = u64>) -> Vec<u32> {
    memory::demand_collect(numbers.into_iter().flat_map(|x| [x as u32, (x >> 32) as u32]))
}

/// Numbers that the words of [`to_words`] hold.
pub fn of_words(words: &[u32]) -> impl Iterator<Item = u64> + '_ {
    words.chunks_exact(2).map(|two| u64::from(two[1]) << 32 | u64::from(two[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_hold_all_bits() {
        let numbers = [0, 1, u64::MAX, 1 << 32, 0x0123_4567_89ab_cdef];
        assert_eq!(of_words(&to_words(numbers)).collect::<Vec<_>>(), numbers);
    }
}
