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
