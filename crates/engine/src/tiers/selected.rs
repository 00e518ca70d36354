//! Some feature rows of a table: those of a part of a graph, or of the edges that are left of one.

use std::sync::Arc;

use graphmill_core::{NodeId, Result};
use graphmill_loader::{
    Feature,
    feature::{Capabilities, OutputRows, Traffic},
};
use graphmill_nn::Matrix;

/// Some rows of others, by their numbers.
pub(crate) struct Selected {
    rows: Arc<dyn Feature>,
    /// Row of each number.
    ids: Vec<NodeId>,
}

impl Selected {
    /// Selects the rows `ids`, one for each number.
    pub(crate) fn new(rows: Arc<dyn Feature>, ids: Vec<NodeId>) -> Self {
        Self { rows, ids }
    }

    fn ids(&self, numbers: &[NodeId]) -> Vec<NodeId> {
        numbers.iter().map(|&i| self.ids[i as usize]).collect()
    }
}

impl Feature for Selected {
    fn dim(&self) -> usize {
        self.rows.dim()
    }

    fn num_rows(&self) -> usize {
        self.ids.len()
    }

    fn read_to(&self, numbers: &[NodeId], places: OutputRows, out: &mut [f32]) -> Result<Traffic> {
        self.rows.read_to(&self.ids(numbers), places, out)
    }

    fn gather(&self, numbers: &[NodeId], out: &mut Matrix) -> Result<Traffic> {
        self.rows.gather(&self.ids(numbers), out)
    }

    fn row_bytes(&self) -> u64 {
        self.rows.row_bytes()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::default()
    }
}
