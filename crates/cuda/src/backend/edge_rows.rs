//! Edges of a block as kernels read them, and sums over them.

#![allow(unsafe_code, reason = "device memory and kernels")]

use graphmill_core::Block;

use super::{
    attention::{edges, edges_back},
    shape,
    work::{Rows, Work, lanes},
};
use crate::{
    Result,
    block::Resident,
    kernels::{self, Edges, In, Out, RowKernel},
};

/// Edges of rows, with the list of the long rows.
pub(super) struct EdgeRows {
    pub(super) edges: Edges,
    pub(super) rows: Rows,
}

impl EdgeRows {
    /// Edges of a block's destinations.
    pub(super) fn new(work: &Work, block: &Block, resident: &Resident) -> Result<Self> {
        shape::block(block, resident);
        // SAFETY: a block has this number of edges and destinations
        let rows = unsafe { work.list_rows(resident.indptr.read(), resident.num_edges, block.num_dst)? };
        Ok(Self { edges: edges(resident), rows })
    }

    /// Edges of a block's sources.
    pub(super) fn transposed(work: &Work, block: &Block, resident: &Resident) -> Result<Self> {
        let back = shape::local(block, resident);
        // SAFETY: a transpose has this number of edges and sources
        let rows = unsafe { work.list_rows(back.indptr.read(), back.num_edges, back.num_src)? };
        Ok(Self { edges: edges_back(resident, back), rows })
    }

    /// The same rows, without the entries of destinations.
    pub(super) fn alone(self) -> Self {
        Self { edges: Edges { num_own: 0, ..self.edges }, ..self }
    }

    /// Launches a kernel that sums `cols` columns over the rows' entries with this number of lanes:
    /// see [`lanes`].
    pub(super) fn sum(&self, work: &Work, cols: usize, lanes: u32, kernel: &impl RowKernel) -> Result<()> {
        // SAFETY: the callers checked the shapes
        unsafe { work.rows(&self.rows, cols.div_ceil(lanes as usize), lanes, kernel) }
    }

    /// Sums `values`, a row for each entry, into `out`, added to the old values if `onto`.
    pub(super) fn sum_rows(
        &self,
        work: &Work,
        values: In<f32>,
        cols: usize,
        onto: bool,
        out: Out<f32>,
    ) -> Result<()> {
        let lanes = lanes(cols, 1);
        let kernel = kernels::SumEdgeRows { edges: self.edges, values, onto, out, cols, lanes };
        self.sum(work, cols, lanes, &kernel)
    }
}
