//! Node ids to feature rows: tiers that nest, with counters.

pub mod host;
mod stream;

use graphmill_graph::{Matrix, NodeId, matrix::TableData};

pub use host::Host;

/// Rows and bytes read from one tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// Rows.
    pub rows: u64,
    /// Bytes.
    pub bytes: u64,
}

impl std::ops::AddAssign for Rows {
    fn add_assign(&mut self, other: Self) {
        self.rows += other.rows;
        self.bytes += other.bytes;
    }
}

/// What a read cost, tier by tier from the nearest to the farthest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Accelerator memory.
    pub device: Rows,
    /// Host memory.
    pub host: Rows,
    /// Files.
    pub disk: Rows,
    /// Other machines.
    pub remote: Rows,
}

impl Traffic {
    /// All tiers together.
    pub fn total(&self) -> Rows {
        let mut total = self.device;
        total += self.host;
        total += self.disk;
        total += self.remote;
        total
    }
}

impl std::ops::AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        self.device += other.device;
        self.host += other.host;
        self.disk += other.disk;
        self.remote += other.remote;
    }
}

/// A table of feature rows, wherever it lives. Every tier returns the same bytes.
pub trait Feature: Send + Sync {
    /// `F`.
    fn dim(&self) -> usize;

    /// `V`.
    fn num_rows(&self) -> usize;

    /// Copies the rows of `ids` (each below `V`) to `out` (`len x F`) and says what that cost.
    fn read(&self, ids: &[NodeId], out: &mut [f32]) -> Traffic;

    /// Makes `out` the rows of `ids` (each below `V`), sparse where they are stored so, and says what that cost.
    fn gather(&self, ids: &[NodeId], out: &mut Matrix) -> Traffic {
        out.resize(ids.len(), self.dim());
        self.read(ids, out.view_mut().host())
    }

    /// Bytes of a row where it is stored; of sparse rows in the mean.
    fn row_bytes(&self) -> u64;

    /// The whole table (`V x F`), where it can be read in place: dense, in host memory.
    fn table(&self) -> Option<TableData> {
        None
    }
}
