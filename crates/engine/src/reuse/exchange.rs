//! The ranks that share reused rows. `shared_rows.rs` exchanges the rows.

use graphmill_core::{Error, Matrix, NodeId};
use graphmill_distributed::numbers::{of_words, to_words};

use crate::Result;

/// The ranks that make rows together. All ranks call the same methods in the same order, from one
/// thread at a time.
///
/// ```
/// use std::sync::Arc;
/// use graphmill_engine::{distributed::Ranks, reuse::RowExchange};
///
/// // the ranks of a run exchange rows
/// fn exchange(ranks: Arc<Ranks>) -> Arc<dyn RowExchange> {
///     ranks
/// }
/// ```
pub trait RowExchange: Send + Sync {
    /// This rank.
    fn rank(&self) -> usize;

    /// Rank that makes the row of a node: its owner or, if the owners are graph stores, one of the
    /// ranks that train.
    fn maker(&self, node: NodeId) -> usize;

    /// Gathers the words of every rank, in the order of ranks.
    ///
    /// # Errors
    /// A rank did not take part.
    fn gather(&self, words: &[u32]) -> Result<Vec<Vec<u32>>>;
}

impl dyn RowExchange + '_ {
    /// Smallest number of all ranks.
    ///
    /// # Errors
    /// A rank did not take part.
    pub fn least(&self, number: u64) -> Result<u64> {
        let all = self.gather(&to_words([number]))?;
        Ok(all.iter().flat_map(|words| of_words(words)).min().unwrap_or(number))
    }

    /// Largest number of all ranks, none of which is NaN.
    ///
    /// # Errors
    /// A rank did not take part.
    pub fn greatest(&self, number: f64) -> Result<f64> {
        let all = self.gather(&to_words([number.to_bits()]))?;
        Ok(all.iter().flat_map(|words| of_words(words)).map(f64::from_bits).fold(number, f64::max))
    }

    /// Replaces `numbers` by their sums over ranks, in the order of ranks. All ranks have the same
    /// sums.
    ///
    /// # Errors
    /// A rank did not take part, or has another count of numbers.
    pub fn sum(&self, numbers: &mut [f64]) -> Result<()> {
        for chunk in numbers.chunks_mut(SUMMED_AT_ONCE) {
            let received = self.gather(&to_words(chunk.iter().map(|x| x.to_bits())))?;
            chunk.fill(0.0);
            for (rank, words) in received.iter().enumerate() {
                if words.len() != 2 * chunk.len() {
                    return Err(other_length(rank));
                }
                chunk.iter_mut().zip(of_words(words)).for_each(|(sum, own)| *sum += f64::from_bits(own));
            }
        }
        Ok(())
    }

    /// The matrices that rank 0 returns from `make`, of these widths.
    ///
    /// # Errors
    /// `make` fails, or a rank did not take part.
    pub fn matrices(
        &self,
        widths: &[usize],
        make: impl FnOnce() -> Result<Vec<Matrix>>,
    ) -> Result<Vec<Matrix>> {
        let own = if self.rank() == 0 { make()? } else { Vec::new() };
        let mut words = Vec::new();
        own.iter().for_each(|matrix| words.extend_from_slice(bytemuck::cast_slice(matrix.view().host())));
        let received = self.gather(&words)?.into_iter().next().unwrap_or_default();
        let all: usize = widths.iter().sum();
        let rows = received.len().checked_div(all).unwrap_or(0);
        if rows * all != received.len() {
            return Err(other_length(0));
        }
        if rows == 0 {
            return Ok(Vec::new());
        }
        let mut values: &[f32] = bytemuck::cast_slice(&received);
        Ok(widths
            .iter()
            .map(|&width| {
                let (part, rest) = values.split_at(rows * width);
                values = rest;
                Matrix::from_slice(rows, width, part)
            })
            .collect())
    }
}

/// Count of numbers that ranks sum at once, which limits the memory of messages.
const SUMMED_AT_ONCE: usize = 1 << 18;

/// Error of a message whose length differs from that of this rank's tables.
pub(super) fn other_length(rank: usize) -> crate::Error {
    let message = "its reused rows have another shape; start all ranks with the same options".to_string();
    Error::Peer { rank, message }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rank, and the words of the others in their order.
    struct Other {
        rank: usize,
        words: Vec<Vec<u32>>,
    }

    impl RowExchange for Other {
        fn rank(&self) -> usize {
            self.rank
        }

        fn maker(&self, node: NodeId) -> usize {
            node as usize
        }

        fn gather(&self, words: &[u32]) -> Result<Vec<Vec<u32>>> {
            let mut all = self.words.clone();
            all.insert(self.rank, words.to_vec());
            Ok(all)
        }
    }

    fn of_bits(numbers: &[f64]) -> Vec<u32> {
        to_words(numbers.iter().map(|x| x.to_bits()))
    }

    #[test]
    fn all_ranks_get_the_same_numbers() {
        let of = |rank: usize, words: &[Vec<u32>]| -> Box<dyn RowExchange> {
            Box::new(Other { rank, words: words.to_vec() })
        };
        // 2^53 + 1 - 2^53 depends on the order of the sum, which is that of the ranks
        let numbers = [[9_007_199_254_740_992.0, -3.0], [1.0, 0.5], [-9_007_199_254_740_992.0, 8.0]];
        let mut sums = Vec::new();
        for rank in 0..3 {
            let others: Vec<[f64; 2]> = (0..3).filter(|other| *other != rank).map(|i| numbers[i]).collect();
            let ranks = of(rank, &[of_bits(&others[0]), of_bits(&others[1])]);
            let mut own = numbers[rank];
            ranks.sum(&mut own).unwrap();
            sums.push(own);
            let ranks = of(rank, &[of_bits(&others[0][1..]), of_bits(&others[1][1..])]);
            assert_eq!(ranks.greatest(numbers[rank][1]).unwrap(), 8.0);
            let least: Vec<u64> = vec![1 << 40, 3, 7];
            let words = |i: usize| to_words([least[i]]);
            let others: Vec<_> = (0..3).filter(|other| *other != rank).map(words).collect();
            assert_eq!(of(rank, &others).least(least[rank]).unwrap(), 3);
        }
        assert_eq!(sums, [[0.0, 5.5]; 3]);
        let short = of(0, &[of_bits(&[1.0]), of_bits(&[1.0, 2.0])]);
        let error = short.sum(&mut [1.0, 2.0]).unwrap_err().to_string();
        assert!(error.contains("another shape"), "{error}");
    }

    #[test]
    fn matrices_are_those_of_rank_zero() {
        let made = || Ok(vec![Matrix::from_slice(2, 3, &[1.0; 6]), Matrix::from_slice(2, 1, &[2.0, 3.0])]);
        let first: &dyn RowExchange = &Other { rank: 0, words: vec![Vec::new()] };
        let own = first.matrices(&[3, 1], made).unwrap();
        let words = vec![[&[1.0f32.to_bits(); 6][..], &[2.0f32.to_bits(), 3.0f32.to_bits()]].concat()];
        let second: &dyn RowExchange = &Other { rank: 1, words };
        let received = second.matrices(&[3, 1], || panic!("rank 0 makes them")).unwrap();
        for matrices in [&own, &received] {
            let shapes: Vec<_> = matrices.iter().map(|of| (of.num_rows(), of.num_cols())).collect();
            assert_eq!(shapes, [(2, 3), (2, 1)]);
            assert_eq!(
                (matrices[0].view().host(), matrices[1].view().host()),
                (&[1.0; 6][..], &[2.0, 3.0][..])
            );
        }
        assert!(second.matrices(&[3, 2], || panic!("rank 0 makes them")).is_err(), "no rows of five values");
        let none: &dyn RowExchange = &Other { rank: 1, words: vec![Vec::new()] };
        assert!(none.matrices(&[3, 1], || panic!("rank 0 makes them")).unwrap().is_empty());
    }
}
