//! Merge of sorted sources.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
};

use graphmill_core::Result;

/// Records in ascending order.
pub(super) trait Source {
    /// A record; records of all sources are merged by their order.
    type Record: Ord;

    /// Returns the next record; `None` at the end.
    ///
    /// # Errors
    /// The record cannot be read.
    fn next(&mut self) -> Result<Option<Self::Record>>;
}

/// Records of several sources in ascending order: of equal ones, that of the first source comes
/// first. O(log S) for each record of `S` sources.
pub(super) struct Merge<S: Source> {
    sources: Vec<S>,
    /// Next record of each source that has one, and the number of the source.
    heads: BinaryHeap<Reverse<(S::Record, usize)>>,
}

impl<S: Source> Merge<S> {
    /// Reads the first record of each source.
    ///
    /// # Errors
    /// A record cannot be read.
    pub(super) fn new(mut sources: Vec<S>) -> Result<Self> {
        let mut heads = BinaryHeap::with_capacity(sources.len());
        for (i, source) in sources.iter_mut().enumerate() {
            heads.extend(source.next()?.map(|record| Reverse((record, i))));
        }
        Ok(Self { sources, heads })
    }

    /// Returns the next record of all; `None` at the end.
    ///
    /// # Errors
    /// A record cannot be read.
    pub(super) fn next(&mut self) -> Result<Option<S::Record>> {
        let Some(mut head) = self.heads.peek_mut() else { return Ok(None) };
        let following = self.sources[head.0.1].next()?;
        Ok(Some(match following {
            Some(record) => std::mem::replace(&mut head.0.0, record),
            None => PeekMut::pop(head).0.0,
        }))
    }
}
