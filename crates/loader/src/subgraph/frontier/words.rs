//! The words of a random stream, made many at a time.

use graphmill_core::keyed::{self, GOLDEN};

/// Uniform in `0..n` from a uniform word, as [`keyed::Stream::below`].
#[inline(always)]
pub(super) fn below(word: u64, n: u64) -> u64 {
    ((u128::from(word) * u128::from(n)) >> 64) as u64
}

/// The words of a [`keyed::Stream`], made many at a time, since they are a function of a counter:
/// the compiler makes vectors of it.
#[derive(Clone, Debug)]
pub(super) struct Words {
    state: u64,
    next: usize,
    words: [u64; Words::MANY],
}

impl Words {
    const MANY: usize = 64;

    /// The words of `Stream::new(key)`.
    pub(super) fn new(key: u64) -> Self {
        Self { state: key, next: Self::MANY, words: [0; Self::MANY] }
    }

    /// The next `N` words, always the same `N` for one stream.
    #[inline(always)]
    pub(super) fn take<const N: usize>(&mut self) -> &[u64; N] {
        const { assert!(Self::MANY.is_multiple_of(N)) }
        if self.next >= Self::MANY {
            for (word, i) in self.words.iter_mut().zip(1u64..) {
                *word = keyed::mix(self.state.wrapping_add(i.wrapping_mul(GOLDEN)));
            }
            self.state = self.state.wrapping_add(GOLDEN.wrapping_mul(Self::MANY as u64));
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
    fn words_are_the_streams() {
        let (mut words, mut stream) = (Words::new(3), Stream::new(3));
        for _ in 0..100 {
            assert!(words.take::<4>().iter().all(|&word| word == stream.next_u64()));
        }
    }
}
