//! Edges of a block as kernels read them, and sums over them.

#![allow(unsafe_code, reason = "device memory and kernels")]

use graphmill_core::Block;

use super::{
    attention::{edges, edges_back},
    shape,
    work::{Rows, Work, lanes},
};
use crate::{Result, arguments, block::Resident, device::Argument, driver::Address};

/// Edges of rows, with the list of the long rows.
pub(super) struct EdgeRows {
    pub(super) of: [Argument; 6],
    pub(super) rows: Rows,
}

impl EdgeRows {
    /// Edges of a block's destinations.
    pub(super) fn new(work: &Work, block: &Block, resident: &Resident) -> Result<Self> {
        shape::block(block, resident);
        // SAFETY: a block has this number of edges and destinations
        let rows = unsafe { work.list_rows(resident.indptr.address(), resident.num_edges, block.num_dst)? };
        Ok(Self { of: edges(resident), rows })
    }

    /// Edges of a block's sources.
    pub(super) fn transposed(work: &Work, block: &Block, resident: &Resident) -> Result<Self> {
        let back = shape::local(block, resident);
        // SAFETY: a transpose has this number of edges and sources
        let rows = unsafe { work.list_rows(back.indptr.address(), back.num_edges, back.num_src)? };
        Ok(Self { of: edges_back(resident, back), rows })
    }

    /// The same rows, without the entries of destinations.
    pub(super) fn alone(self) -> Self {
        let [indptr, indices, entry, own_rows, count, _] = self.of;
        Self { of: [indptr, indices, entry, own_rows, count, 0usize.into()], ..self }
    }

    /// Launches kernels that sum `cols` columns over the rows' entries.
    pub(super) fn sum(
        &self,
        work: &Work,
        names: [&'static str; 2],
        cols: usize,
        rest: &[Argument],
    ) -> Result<()> {
        let lanes = lanes(cols, 1);
        let arguments = [&self.of[..], rest, &arguments![lanes][..]].concat();
        // SAFETY: the callers checked the shapes
        unsafe { work.rows(names, &self.rows, cols.div_ceil(lanes as usize), lanes, &arguments) }
    }

    /// Sums `values`, a row for each entry, into `out`, added to the old values if `onto`.
    pub(super) fn sum_rows(
        &self,
        work: &Work,
        values: Address,
        cols: usize,
        onto: bool,
        out: Address,
    ) -> Result<()> {
        let rest = arguments![values, u32::from(onto), out, cols];
        self.sum(work, ["sum_edge_rows", "sum_edge_rows_long"], cols, rest)
    }
}
