//! Scratch buffers that samplers reuse from batch to batch.

use std::{cmp::Ordering, collections::BinaryHeap, sync::Mutex};

use graphmill_core::{Block, alias::Aim, keyed::Stream};

/// Scratch buffers for one hop's draws.
#[derive(Debug)]
pub struct HopScratch {
    /// True if a call may use all threads of the pool.
    pub parallel: bool,
    /// Membership table of each thread, for large fanouts.
    pub tables: Vec<Mutex<Vec<u32>>>,
    /// Number of edges of each run of destinations.
    pub counts: Vec<u64>,
    /// Runs of destinations being drawn.
    pub(super) runs: Vec<Run>,
    /// Rows of destinations without and with excluded edges, before they are merged.
    pub(super) spare: [Block; 2],
}

impl Default for HopScratch {
    fn default() -> Self {
        let spare = Default::default();
        Self { parallel: true, tables: Vec::new(), counts: Vec::new(), runs: Vec::new(), spare }
    }
}

impl HopScratch {
    /// Grows to one table for each of `threads` threads.
    pub(super) fn fit(&mut self, threads: usize) {
        if self.tables.len() < threads {
            self.tables.resize_with(threads, Mutex::default);
        }
    }
}

/// A run of destinations being drawn.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) scratch: RunScratch,
    pub(super) block: Block,
}

/// Scratch buffers for drawing a run, shared by all samplers.
#[derive(Debug, Default)]
pub(super) struct RunScratch {
    /// Draws from alias tables whose cells are not read yet.
    pub(super) aims: Vec<Aim>,
    /// Positions among the graph's edges.
    pub(super) positions: Vec<u64>,
    /// Prefix sums of a row's weights.
    pub(super) sums: Vec<f64>,
    /// One bit for each edge of a row; all 0 between two rows.
    pub(super) bits: Vec<u64>,
    /// The first arrivals in a reservoir.
    pub(super) ahead: BinaryHeap<Candidate>,
    /// Walks in progress.
    pub(super) walks: Vec<Walk>,
    /// Visits of the walks.
    pub(super) visits: Vec<u64>,
}

/// A walk in progress.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    pub(super) stream: Stream,
    /// Current node, or the position of the edge to it.
    pub(super) at: u64,
    /// Number of the start node within the group.
    pub(super) from: u32,
    pub(super) is_alive: bool,
}

/// An edge and its arrival time, ordered by time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) time: f64,
    pub(super) position: u64,
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.time.total_cmp(&other.time).then(self.position.cmp(&other.position))
    }
}
