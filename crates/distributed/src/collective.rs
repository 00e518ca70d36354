//! Collective operations, called by all ranks with the same number.
//!
//! Sums are computed in rank order, so that they are bit-identical on all ranks and in every run.

#![forbid(unsafe_code)]

use std::sync::Arc;

use graphmill_core::{Error, Result, memory};

use crate::{Messenger, messenger::HEADER};

/// Collective operations over the ranks. The caller chooses numbers; a number must identify a
/// single call while any rank may still take part in it.
#[derive(Clone)]
pub struct Collective {
    post: Arc<Messenger>,
    /// Number of ranks that take part, the first ones.
    size: usize,
}

/// Checks that a message holds `len` values.
fn as_many(words: &[u32], len: usize, rank: usize) -> Result<&[f32]> {
    let values = words.get(HEADER..).unwrap_or_default();
    if values.len() != len {
        let message = format!(
            "{} values received for a sum of {len}: the ranks run different operations; start all \
                with the same program and options",
            values.len()
        );
        return Err(Error::Peer { rank, message });
    }
    Ok(bytemuck::cast_slice(values))
}

/// Range of `len` values that a rank sums.
fn share(len: usize, rank: usize, size: usize) -> std::ops::Range<usize> {
    rank * len / size..(rank + 1) * len / size
}

impl Collective {
    /// Creates the operations over this messenger.
    pub fn new(post: Arc<Messenger>) -> Self {
        let size = post.size();
        Self { post, size }
    }

    /// The same operations over the first `size` ranks only, of which this is one.
    #[must_use]
    pub fn among(&self, size: usize) -> Self {
        Self { post: self.post.clone(), size }
    }

    /// The other ranks that take part, beginning with the next.
    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (rank, size) = (self.post.rank(), self.size);
        (1..size).map(move |i| (rank + i) % size)
    }

    /// Underlying messenger.
    pub fn post(&self) -> &Arc<Messenger> {
        &self.post
    }

    /// Replaces `values` by the sum over all ranks' `values`, which have equal lengths. Each rank
    /// sums a share and distributes it (reduce-scatter and all-gather): each of K ranks sends and
    /// receives 2 (K - 1) / K of the values.
    ///
    /// # Errors
    /// A rank did not take part.
    pub fn sum(&self, number: u64, values: &mut [f32]) -> Result<()> {
        self.scatter(number, values);
        self.reduce(number, values)?;
        self.collect(number, values)
    }

    /// First step of [`Collective::sum`]: sends the others their shares. Does not wait, so that
    /// several sums can be started before the first completes.
    pub fn scatter(&self, number: u64, values: &[f32]) {
        let post = &self.post;
        for to in self.others() {
            let part = &values[share(values.len(), to, self.size)];
            post.put(to, number, |words| memory::demand_append(words, bytemuck::cast_slice(part)));
        }
    }

    /// Second step: sums this rank's share and distributes it.
    ///
    /// # Errors
    /// A rank did not take part.
    pub fn reduce(&self, number: u64, values: &mut [f32]) -> Result<()> {
        let post = &self.post;
        let (rank, size) = (post.rank(), self.size);
        let own = share(values.len(), rank, size);
        let mut sum: Vec<f32> = memory::demand_zeros(own.len());
        for from in 0..size {
            let words = if from == rank { Vec::new() } else { post.take(from, number)? };
            let part = if from == rank { &values[own.clone()] } else { as_many(&words, own.len(), from)? };
            sum.iter_mut().zip(part).for_each(|(sum, &x)| *sum += x);
        }
        for to in self.others() {
            post.put(to, number, |words| memory::demand_append(words, bytemuck::cast_slice(&sum)));
        }
        values[own].copy_from_slice(&sum);
        Ok(())
    }

    /// Third step: receives the others' sums.
    ///
    /// # Errors
    /// A rank did not take part.
    pub fn collect(&self, number: u64, values: &mut [f32]) -> Result<()> {
        let post = &self.post;
        let len = values.len();
        for from in self.others() {
            let words = post.take(from, number)?;
            let range = share(len, from, self.size);
            values[range.clone()].copy_from_slice(as_many(&words, range.len(), from)?);
        }
        Ok(())
    }

    /// Gathers the words of every rank, in rank order.
    ///
    /// # Errors
    /// A rank did not take part.
    pub fn gather(&self, number: u64, said: &[u32]) -> Result<Vec<Vec<u32>>> {
        let post = &self.post;
        for to in self.others() {
            post.put(to, number, |words| memory::demand_append(words, said));
        }
        let one = |from| {
            if from == post.rank() {
                return Ok(memory::demand_collect(said.iter().copied()));
            }
            let mut words = post.take(from, number)?;
            words.drain(..HEADER);
            Ok(words)
        };
        (0..self.size).map(one).collect()
    }

    /// Broadcasts the words of rank 0.
    ///
    /// # Errors
    /// Rank 0 did not take part.
    pub fn broadcast(&self, number: u64, said: Vec<u32>) -> Result<Vec<u32>> {
        if self.post.rank() > 0 {
            let mut words = self.post.take(0, number)?;
            words.drain(..HEADER);
            return Ok(words);
        }
        for to in self.others() {
            self.post.put(to, number, |words| memory::demand_append(words, &said));
        }
        Ok(said)
    }

    /// Waits until all ranks have arrived.
    ///
    /// # Errors
    /// A rank did not arrive.
    pub fn barrier(&self, number: u64) -> Result<()> {
        self.gather(number, &[]).map(drop)
    }
}
