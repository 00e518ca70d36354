//! What all ranks do together, each calling the same with the same number.
//!
//! Sums are made in the order of the ranks, so that they are the same bits on all of them and in every run.

use std::sync::Arc;

use graphmill_core::{Error, Result};

use crate::{Messenger, messenger::HEADER};

/// What all ranks do together. Numbers are the caller's: a number is of one call only while others may still be at it.
#[derive(Clone)]
pub struct Collective {
    post: Arc<Messenger>,
}

/// The values of a message, which are to be so many.
fn as_many(words: &[u32], len: usize, rank: usize) -> Result<&[f32]> {
    let values = words.get(HEADER..).unwrap_or_default();
    if values.len() != len {
        let message =
            format!("{} values where {len} are summed: the ranks do not all do the same", values.len());
        return Err(Error::Peer { rank, message });
    }
    Ok(bytemuck::cast_slice(values))
}

/// The part of `len` values that a rank sums.
fn share(len: usize, rank: usize, size: usize) -> std::ops::Range<usize> {
    rank * len / size..(rank + 1) * len / size
}

impl Collective {
    /// Over this post.
    pub fn new(post: Arc<Messenger>) -> Self {
        Self { post }
    }

    /// The post.
    pub fn post(&self) -> &Arc<Messenger> {
        &self.post
    }

    /// Makes `values` the sum of all ranks' `values`, which are as many. Each rank sums a share and hands it round (reduce-scatter and
    /// all-gather): 2 (K - 1) / K of the values go out of, and come to, each of K ranks.
    ///
    /// # Errors
    /// A rank did not take part.
    pub fn sum(&self, number: u64, values: &mut [f32]) -> Result<()> {
        self.scatter(number, values);
        self.reduce(number, values)?;
        self.collect(number, values)
    }

    /// The first step of [`Collective::sum`]: sends the others their shares. Waits for nobody, so that several sums can be begun before
    /// the first is made.
    pub fn scatter(&self, number: u64, values: &[f32]) {
        let post = &self.post;
        for to in post.others() {
            let part = &values[share(values.len(), to, post.size())];
            post.put(to, number, |words| words.extend_from_slice(bytemuck::cast_slice(part)));
        }
    }

    /// The second: sums this rank's share and hands it round.
    ///
    /// # Errors
    /// A rank did not take part.
    pub fn reduce(&self, number: u64, values: &mut [f32]) -> Result<()> {
        let post = &self.post;
        let (rank, size) = (post.rank(), post.size());
        let own = share(values.len(), rank, size);
        let mut sum = vec![0.0f32; own.len()];
        for from in 0..size {
            let words = if from == rank { Vec::new() } else { post.take(from, number)? };
            let part = if from == rank { &values[own.clone()] } else { as_many(&words, own.len(), from)? };
            sum.iter_mut().zip(part).for_each(|(sum, &x)| *sum += x);
        }
        for to in post.others() {
            post.put(to, number, |words| words.extend_from_slice(bytemuck::cast_slice(&sum)));
        }
        values[own].copy_from_slice(&sum);
        Ok(())
    }

    /// The third: takes the others' sums.
    ///
    /// # Errors
    /// A rank did not take part.
    pub fn collect(&self, number: u64, values: &mut [f32]) -> Result<()> {
        let post = &self.post;
        let len = values.len();
        for from in post.others() {
            let words = post.take(from, number)?;
            let range = share(len, from, post.size());
            values[range.clone()].copy_from_slice(as_many(&words, range.len(), from)?);
        }
        Ok(())
    }

    /// What every rank says, in their order.
    ///
    /// # Errors
    /// A rank did not take part.
    pub fn gather(&self, number: u64, said: &[u32]) -> Result<Vec<Vec<u32>>> {
        let post = &self.post;
        for to in post.others() {
            post.put(to, number, |words| words.extend_from_slice(said));
        }
        let one = |from| {
            if from == post.rank() {
                return Ok(said.to_vec());
            }
            let mut words = post.take(from, number)?;
            words.drain(..HEADER);
            Ok(words)
        };
        (0..post.size()).map(one).collect()
    }

    /// What rank 0 says.
    ///
    /// # Errors
    /// It did not take part.
    pub fn broadcast(&self, number: u64, said: Vec<u32>) -> Result<Vec<u32>> {
        if self.post.rank() > 0 {
            let mut words = self.post.take(0, number)?;
            words.drain(..HEADER);
            return Ok(words);
        }
        for to in self.post.others() {
            self.post.put(to, number, |words| words.extend_from_slice(&said));
        }
        Ok(said)
    }

    /// Waits until all ranks have come here.
    ///
    /// # Errors
    /// A rank did not come.
    pub fn barrier(&self, number: u64) -> Result<()> {
        self.gather(number, &[]).map(drop)
    }
}
