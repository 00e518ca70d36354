//! Aggregation over the edges of a block.

#![allow(unsafe_code, reason = "device memory and kernels")]

use graphmill_core::matrix::TableType;
use graphmill_nn::backend::{
    EdgeWeight, OwnWeight,
    ops::{
        Aggregate, AggregateMax, AggregateMaxTransposed, AggregateTransposed, Hop, HopTransposed, shape::of,
    },
};

use super::{
    shape,
    work::{Work, address, edge_lanes, lanes, wide},
};
use crate::{Buffer, Result, arguments, block::Resident, device::Argument, driver::Address};

/// Weighted sum of rows over edges, with their own rows.
struct Sum {
    /// Edge range of each row.
    indptr: Address,
    /// Source row of each edge.
    indices: Address,
    /// Number of edges.
    edges: usize,
    /// Position of each edge's weight; null if it is the edge's own position.
    position: Address,
    of_edge: Address,
    of_source: Address,
    mean: bool,
    of_row: Address,
    own_rows: Address,
    num_own: usize,
    own: Own,
    /// First aggregated column.
    first: usize,
}

/// Weights of own rows.
struct Own {
    /// Weight of each row; null if all use the constant and the value at `shared`.
    of_row: Address,
    constant: f32,
    shared: Address,
}

/// Names of a kernel and of its variant for long rows.
fn names(kind: TableType, vector: usize) -> [&'static str; 2] {
    match (kind, vector) {
        (TableType::F32, 4) => ["aggregate_f32_4", "aggregate_f32_4_long"],
        (TableType::F32, _) => ["aggregate_f32", "aggregate_f32_long"],
        (TableType::F16, 4) => ["aggregate_f16_4", "aggregate_f16_4_long"],
        (TableType::F16, _) => ["aggregate_f16", "aggregate_f16_long"],
        (TableType::Bf16, 4) => ["aggregate_bf16_4", "aggregate_bf16_4_long"],
        (TableType::Bf16, _) => ["aggregate_bf16", "aggregate_bf16_long"],
    }
}

impl Sum {
    /// Sums the columns from `first` on of `rows` rows.
    fn run(
        &self,
        work: &Work,
        (kind, src): (TableType, Address),
        cols: usize,
        beta: f32,
        dst: Address,
        rows: usize,
    ) -> Result<()> {
        if self.first >= cols || rows == 0 {
            return Ok(());
        }
        let is_wide = self.first.is_multiple_of(4) && wide(cols, &[(src, kind.width()), (dst, 4)]);
        let vector = if is_wide { 4 } else { 1 };
        let lanes = lanes(cols - self.first, vector);
        let common: [Argument; 18] = [
            self.indptr.into(),
            self.indices.into(),
            self.position.into(),
            self.of_edge.into(),
            self.of_source.into(),
            u32::from(self.mean).into(),
            self.of_row.into(),
            self.own_rows.into(),
            self.num_own.into(),
            self.own.of_row.into(),
            self.own.constant.into(),
            self.own.shared.into(),
            src.into(),
            cols.into(),
            self.first.into(),
            beta.into(),
            dst.into(),
            lanes.into(),
        ];
        let chunks = (cols - self.first).div_ceil(lanes as usize * vector);
        // SAFETY: the operation checked the shapes
        unsafe {
            let rows = work.list_rows(self.indptr, self.edges, rows)?;
            work.rows(names(kind, vector), &rows, chunks, lanes, &common)
        }
    }

    /// Copies the columns before [`Sum::first`] of the own rows.
    fn keep(&self, work: &Work, src: Address, cols: usize, dst: Address, rows: usize) -> Result<()> {
        let arguments = arguments![self.own_rows, self.num_own, src, cols, self.first, dst, rows];
        // SAFETY: the operation checked the shapes
        unsafe { work.groups("aggregate_keep", rows, 32, arguments) }
    }
}

const NULL: Address = Address(0);

/// Factors of the destinations' sums: 1 / max(sum of their `weight`s, 1), or 1 / (number of edges)
/// without weights.
fn scales(work: &Work, block: &Resident, weight: Address) -> Result<Buffer> {
    let scales = work.scratch::<f32>(block.num_dst)?;
    let lanes = edge_lanes(block.num_edges, block.num_dst);
    let arguments = arguments![block.indptr.address(), weight, block.num_dst, lanes, scales.address()];
    // SAFETY: one scale per destination; weights are by edge
    unsafe { work.groups("aggregate_scales", block.num_dst, lanes, arguments)? };
    Ok(scales)
}

/// Weights of the destinations' own rows.
fn own(work: &Work, block: &Resident, weight: OwnWeight) -> Result<Own> {
    let none = Own { of_row: NULL, constant: 0.0, shared: NULL };
    Ok(match weight {
        OwnWeight::None => none,
        OwnWeight::Constant(constant) => Own { constant, ..none },
        OwnWeight::OnePlus(x) => Own { constant: 1.0, shared: work.read(x)?, ..none },
        OwnWeight::Stored => Own { of_row: address(block.self_weight.as_ref()), ..none },
    })
}

pub(super) fn aggregate(work: &Work, op: Aggregate) -> Result<()> {
    forward(work, 0, op)
}

/// Aggregates the columns from `first` on and copies the own rows' columns before.
fn forward(work: &Work, first: usize, op: Aggregate) -> Result<()> {
    let Aggregate { block, weights: weighting, src, beta, mut dst } = op;
    let resident = work.block(block)?;
    let resident = resident.get();
    shape::block(block, resident);
    shape::weights(resident, weighting);
    let (rows, cols) = of(dst.as_view());
    let from = work.table(src)?;
    let to = work.place(dst.reborrow(), beta != 0.0)?;
    let weights = address(resident.edge_weight.as_ref());
    let is_weighted = matches!(weighting.edge, EdgeWeight::Stored | EdgeWeight::Normalized);
    let normalized = (weighting.edge == EdgeWeight::Normalized && rows > 0)
        .then(|| scales(work, resident, weights))
        .transpose()?;
    let own_rows = address(resident.dst_ids.as_ref());
    let sum = Sum {
        indptr: resident.indptr.address(),
        indices: resident.indices.address(),
        edges: resident.num_edges,
        position: NULL,
        of_edge: if is_weighted { weights } else { NULL },
        of_source: NULL,
        mean: weighting.edge == EdgeWeight::Mean,
        of_row: address(normalized.as_ref()),
        own_rows,
        num_own: rows,
        own: own(work, resident, weighting.own)?,
        first,
    };
    sum.run(work, from, cols, beta, to, rows)?;
    if first == 0 {
        return Ok(());
    }
    assert_eq!(from.0, TableType::F32, "tables of 16-bit floats must be gathered first");
    sum.keep(work, from.1, cols, to, rows)
}

pub(super) fn aggregate_transposed(work: &Work, op: AggregateTransposed) -> Result<()> {
    backward(work, 0, op)
}

/// Gradient of [`forward`].
fn backward(work: &Work, first: usize, op: AggregateTransposed) -> Result<()> {
    let AggregateTransposed { block, weights: weighting, dst_grad, beta, src_grad } = op;
    let resident = work.block(block)?;
    let resident = resident.get();
    let back = shape::local(block, resident);
    shape::weights(resident, weighting);
    let (rows, cols) = of(src_grad.as_view());
    let from = work.read(dst_grad)?;
    let to = work.place(src_grad, beta != 0.0)?;
    let weights = address(resident.edge_weight.as_ref());
    let is_weighted = matches!(weighting.edge, EdgeWeight::Stored | EdgeWeight::Normalized);
    let of_source = match weighting.edge {
        EdgeWeight::One | EdgeWeight::Stored => None,
        EdgeWeight::Mean => Some(scales(work, resident, NULL)?),
        EdgeWeight::Normalized => Some(scales(work, resident, weights)?),
    };
    let sum = Sum {
        indptr: back.indptr.address(),
        indices: back.dst.address(),
        edges: back.num_edges,
        position: back.edge.address(),
        of_edge: if is_weighted { weights } else { NULL },
        of_source: address(of_source.as_ref()),
        mean: false,
        of_row: NULL,
        own_rows: NULL,
        num_own: block.num_dst,
        own: own(work, resident, weighting.own)?,
        first,
    };
    sum.run(work, (TableType::F32, from), cols, beta, to, rows)?;
    if first > 0 { sum.keep(work, from, cols, to, rows) } else { Ok(()) }
}

pub(super) fn hop(work: &Work, op: Hop) -> Result<()> {
    let Hop { block, first, weights, src, dst } = op;
    forward(work, first, Aggregate { block, weights, src, beta: 0.0, dst })
}

pub(super) fn hop_transposed(work: &Work, op: HopTransposed) -> Result<()> {
    let HopTransposed { block, first, weights, dst_grad, src_grad } = op;
    backward(work, first, AggregateTransposed { block, weights, dst_grad, beta: 0.0, src_grad })
}

pub(super) fn aggregate_max(work: &Work, op: AggregateMax) -> Result<()> {
    let AggregateMax { block, src, dst, arg } = op;
    let resident = work.block(block)?;
    let resident = resident.get();
    shape::block(block, resident);
    let (rows, cols) = of(dst.as_view());
    arg.resize(rows, cols);
    let (from, to, winners) = (work.read(src)?, work.write(dst)?, work.write(arg.bits_mut())?);
    let (names, vector) = if wide(cols, &[(from, 4), (to, 4)]) {
        (["aggregate_max_4", "aggregate_max_4_long"], 4)
    } else {
        (["aggregate_max", "aggregate_max_long"], 1)
    };
    let lanes = lanes(cols, vector);
    let chunks = cols.div_ceil(lanes as usize * vector);
    let (indptr, indices) = (resident.indptr.address(), resident.indices.address());
    let arguments = arguments![indptr, indices, from, cols, to, winners, lanes];
    // SAFETY: the shapes were checked above
    unsafe {
        let rows = work.list_rows(indptr, resident.num_edges, rows)?;
        work.rows(names, &rows, chunks, lanes, arguments)
    }
}

pub(super) fn aggregate_max_transposed(work: &Work, op: AggregateMaxTransposed) -> Result<()> {
    let AggregateMaxTransposed { block, arg, dst_grad, src_grad } = op;
    let resident = work.block(block)?;
    let resident = resident.get();
    let back = shape::local(block, resident);
    let (rows, cols) = of(src_grad.as_view());
    let (winners, from, to) = (work.read(arg.bits())?, work.read(dst_grad)?, work.write(src_grad)?);
    let lanes = lanes(cols, 1);
    let chunks = cols.div_ceil(lanes as usize);
    let [indptr, dst, edge] = [&back.indptr, &back.dst, &back.edge].map(Buffer::address);
    let arguments = arguments![indptr, dst, edge, winners, from, cols, to, lanes];
    // SAFETY: the shapes were checked above
    unsafe {
        let rows = work.list_rows(indptr, back.num_edges, rows)?;
        work.rows(["aggregate_max_back", "aggregate_max_back_long"], &rows, chunks, lanes, arguments)
    }
}
