//! Words of a random stream, generated many at a time.

use graphmill_core::keyed::{self, GOLDEN};

/// Maps a uniform word to a uniform number of `0..n`, as [`keyed::Stream::below`].
#[inline(always)]
pub(super) fn below(word: u64, n: u64) -> u64 {
    ((u128::from(word) * u128::from(n)) >> 64) as u64
}

/// Words of a [`keyed::Stream`], generated many at a time: they are a function of a counter, so the
/// compiler vectorises the loop.
#[derive(Clone, Debug)]
pub(super) struct WordStream {
    state: u64,
    next: usize,
    words: [u64; WordStream::LEN],
}

impl WordStream {
    const LEN: usize = 64;

    /// Creates the words of `Stream::new(key)`.
    pub(super) fn new(key: u64) -> Self {
        Self { state: key, next: Self::LEN, words: [0; Self::LEN] }
    }

    /// Returns the next `N` words; `N` must be the same for all calls on one stream.
    #[inline(always)]
    pub(super) fn take<const N: usize>(&mut self) -> &[u64; N] {
        const { assert!(Self::LEN.is_multiple_of(N)) }
        if self.next >= Self::LEN {
            for (word, i) in self.words.iter_mut().zip(1u64..) {
                *word = keyed::mix(self.state.wrapping_add(i.wrapping_mul(GOLDEN)));
            }
            self.state = self.state.wrapping_add(GOLDEN.wrapping_mul(Self::LEN as u64));
            self.next = 0;
        }
        let words = self.words[self.next..].first_chunk().expect("a multiple of N is left");
        self.next += N;
        words
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::keyed::Stream;

    use super::*;

    #[test]
    fn words_match_the_stream() {
        let (mut words, mut stream) = (WordStream::new(3), Stream::new(3));
        for _ in 0..100 {
            assert!(words.take::<4>().iter().all(|&word| word == stream.next_u64()));
        }
    }
}
