//! The rows of a graph with times, wherever they are.

use std::ops::Range;

use graphmill_core::{NodeId, Result};

/// Draws of one relation at one hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeHop {
    /// Number of the relation.
    pub relation: usize,
    /// Number of neighbours of a node; `usize::MAX` takes all.
    pub fanout: usize,
    /// Key of the draws.
    pub key: u64,
    /// False if the positions of the edges are not read.
    pub positions: bool,
}

/// Destinations with their times.
#[derive(Clone, Copy, Debug)]
pub struct TimeDestinations<'a> {
    /// Nodes by local id.
    pub nodes: &'a [NodeId],
    /// Time of each.
    pub times: &'a [i64],
}

/// Edges that are drawn, overwritten.
#[derive(Debug)]
pub struct TimeDrawn<'a> {
    /// Edge range of each destination, `D + 1`.
    pub indptr: &'a mut Vec<u32>,
    /// Source of each edge.
    pub sources: &'a mut Vec<NodeId>,
    /// Position of each edge in the relation's graph; may be empty if they are not read.
    pub positions: &'a mut Vec<u64>,
    /// Time of the row that each edge leads to, if requested.
    pub times: Option<&'a mut Vec<i64>>,
}

/// Scratch buffers of draws.
#[derive(Debug, Default)]
pub struct TimeScratch {
    /// Admitted edges of each destination: places in the order of its row.
    pub(super) admitted: Vec<Range<u32>>,
}

/// Rows of a graph with times that a [`TimeSampler`](super::TimeSampler) reads.
pub trait TimeSource: Send + Sync {
    /// Draws the edges of destinations by one relation.
    ///
    /// # Errors
    /// There are more edges than 32-bit positions can number, or rows cannot be read.
    fn draw(
        &self,
        hop: &TimeHop,
        of: TimeDestinations,
        scratch: &mut TimeScratch,
        drawn: TimeDrawn,
    ) -> Result<()>;

    /// Overwrites `out` by the visible time of the last edge that each destination admits by any of
    /// `relations`, which lead to their type; [`i64::MIN`] if it admits none.
    ///
    /// # Errors
    /// Rows cannot be read.
    fn last_admitted(&self, relations: &[usize], of: TimeDestinations, out: &mut Vec<i64>) -> Result<()>;
}
