//! Assignment of every node to a part.

use graphmill_core::{Buffer, Error, NodeId, Result, memory, search::position};
use rayon::prelude::*;

/// Part of every node: `V` numbers below `parts`. Cloning shares the memory.
///
/// ```
/// use graphmill_data::partition::PartitionBook;
/// let book = PartitionBook::new(2, vec![0, 1, 1])?;
/// assert_eq!((book.part_of(2), book.sizes()), (1, vec![1, 2]));
/// assert!(PartitionBook::new(2, vec![2]).is_err());
/// # Ok::<(), graphmill_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct PartitionBook {
    parts: u16,
    of: Buffer<u16>,
}

impl PartitionBook {
    /// Creates a book from the part of every node, after checking it.
    ///
    /// # Errors
    /// `parts` is zero, or a number is not below `parts`.
    pub fn new(parts: u16, of: impl Into<Buffer<u16>>) -> Result<Self> {
        let of = of.into();
        if parts == 0 {
            return Err(Error::invalid("a partition into 0 parts"));
        }
        match position(&of, |&part| part >= parts) {
            Some(v) => Err(Error::invalid(format!("node {v} is in part {} of {parts}", of[v]))),
            None => Ok(Self { parts, of }),
        }
    }

    /// Number of parts, `K`.
    pub fn parts(&self) -> u16 {
        self.parts
    }

    /// Number of nodes, `V`.
    pub fn num_nodes(&self) -> usize {
        self.of.len()
    }

    /// Part of every node.
    pub fn of(&self) -> &[u16] {
        &self.of
    }

    /// Part of node `v`.
    #[inline]
    pub fn part_of(&self, v: NodeId) -> u16 {
        self.of[v as usize]
    }

    /// Number of nodes of every part. O(V), parallel.
    pub fn sizes(&self) -> Vec<usize> {
        self.count(&self.of, |&part| part)
    }

    /// Number of `nodes` in every part. Parallel.
    ///
    /// # Panics
    /// An id is not below `V`.
    pub fn sizes_of(&self, nodes: &[NodeId]) -> Vec<usize> {
        self.count(nodes, |&v| self.part_of(v))
    }

    fn count<T: Sync>(&self, items: &[T], part: impl Fn(&T) -> u16 + Sync) -> Vec<usize> {
        let none = || vec![0; self.parts.into()];
        let one = |mut counts: Vec<usize>, item| {
            counts[usize::from(part(item))] += 1;
            counts
        };
        let add = |mut a: Vec<usize>, b: Vec<usize>| {
            a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
            a
        };
        items.par_iter().with_min_len(1 << 16).fold(none, one).reduce(none, add)
    }

    /// Nodes of every part, ascending and concatenated, and the start of each part (`K + 1`). O(V).
    ///
    /// # Errors
    /// The allocation fails.
    pub fn by_part(&self) -> Result<(Vec<NodeId>, Vec<usize>)> {
        let mut starts = vec![0];
        for size in self.sizes() {
            starts.push(starts[starts.len() - 1] + size);
        }
        let mut next = starts.clone();
        let mut nodes: Vec<NodeId> = memory::zeroed(self.num_nodes())?;
        for (v, &part) in self.of.iter().enumerate() {
            nodes[next[usize::from(part)]] = v as NodeId;
            next[usize::from(part)] += 1;
        }
        Ok((nodes, starts))
    }

    pub(super) fn buffer(&self) -> &Buffer<u16> {
        &self.of
    }
}
