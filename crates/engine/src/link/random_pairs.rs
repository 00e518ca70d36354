//! Random pairs of nodes without an edge, which edges are compared with.

use std::{collections::HashSet, ops::Range};

use graphmill_core::{
    NodeId,
    keyed::{Stream, key},
};

use super::split::Edge;
use crate::{Error, Result};

/// Part of the key of random pairs.
const PAIRS: u64 = 0x7061_6972_7320_3132;
/// Draws of a random pair before the graph counts as complete.
const MAX_TRIES: usize = 10_000;

/// Key of the part of this name.
fn part_key(name: &str) -> u64 {
    name.bytes().fold(0, |key, byte| key << 8 | u64::from(byte))
}

/// Pairs to draw at random.
pub(crate) struct RandomPairs<'a> {
    /// Name of the dataset.
    pub(crate) name: &'a str,
    /// Nodes that may be sources and destinations.
    pub(crate) candidates: [Range<NodeId>; 2],
    /// True if a pair and its reverse are the same.
    pub(crate) undirected: bool,
    /// Returns true for known edges.
    pub(crate) is_known: &'a dyn Fn(Edge) -> bool,
}

impl RandomPairs<'_> {
    /// Draws distinct random pairs of two nodes without a known edge, in either direction if the
    /// graph is undirected. They are functions of the `seed` and the `part` of this name.
    ///
    /// # Errors
    /// Almost all pairs have an edge.
    pub(crate) fn draw(&self, count: usize, (part, seed): (&str, u64)) -> Result<Vec<Edge>> {
        let [sources, destinations] = &self.candidates;
        let mut stream = Stream::new(key(&[seed, PAIRS, part_key(part)]));
        let (mut pairs, mut seen) = (Vec::with_capacity(count), HashSet::new());
        for _ in 0..count {
            let mut draw = || {
                [sources, destinations].map(|of| of.start + stream.below(of.len() as u64) as NodeId).into()
            };
            let found = (0..MAX_TRIES).map(|_| draw()).find(|&(u, v): &Edge| {
                let name = if self.undirected { (u.min(v), u.max(v)) } else { (u, v) };
                u != v && !(self.is_known)((u, v)) && seen.insert(name)
            });
            pairs.push(found.ok_or_else(|| {
                Error::dataset(
                    self.name,
                    format!(
                        "it has fewer than {count} pairs of nodes without an edge to compare {count} edges \
                         with; use --candidates all, or --eval-nodes with fewer edges"
                    ),
                )
            })?);
        }
        Ok(pairs)
    }
}
