//! Columns of sorted edges, written range by range of destinations.

use std::ops::Range;

use graphmill_core::{
    NodeId, Result, memory,
    parallel::{self, for_each_piece},
};
use rayon::prelude::*;

use crate::{external::Rows, npy::Element, typed::csc};

/// Number of destinations whose row starts are written at a time.
const ROWS: usize = 1 << 16;
/// Number of feature rows that a thread copies at a time.
const ROWS_OF_FEATURES: usize = 1 << 8;

/// Columns of an [`EdgeSorter`](super::EdgeSorter).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgeColumns {
    /// True if edges have weights.
    pub weights: bool,
    /// True if edges have times.
    pub time: bool,
    /// Number of feature columns; 0 without features.
    pub features: usize,
}

/// Treatment of the edges of a row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RowRules {
    /// True to order a row by time; equal times keep their order.
    pub(crate) by_time: bool,
    /// True to count the edges beyond the first between the same nodes.
    pub(crate) counts_parallel: bool,
    /// True to drop them. Rows with times keep them.
    pub(crate) drops_parallel: bool,
}

impl RowRules {
    /// Returns true if a row is treated as a whole.
    pub(super) fn needs_row(self) -> bool {
        self.by_time || self.counts_parallel || self.drops_parallel
    }

    /// Orders the rows by time, and counts or drops parallel edges. Returns their number.
    fn apply(self, sorted: &mut csc::Order, records: Records) -> Result<u64> {
        let Self { by_time, counts_parallel, drops_parallel } = self;
        if !self.needs_row() {
            return Ok(0);
        }
        let mut rest = &mut sorted.order[..];
        let mut rows = memory::reserve(sorted.indptr.len())?;
        for ends in sorted.indptr.windows(2) {
            let (row, others) = rest.split_at_mut((ends[1] - ends[0]) as usize);
            rest = others;
            rows.push(row);
        }
        let time = records.layout.places[1];
        // Number of edges of each row that are the first between their nodes, in front.
        let first = rows.par_iter_mut().with_min_len(1 << 10).map(|row| {
            let mut first = row.len();
            if counts_parallel || drops_parallel {
                let mut sources: Vec<(NodeId, u64)> =
                    row.iter().map(|&e| (number(records.get(e as usize), 4), e)).collect();
                sources.sort_unstable();
                sources.dedup_by_key(|(source, _)| *source);
                first = sources.len();
                if drops_parallel && first < row.len() {
                    let mut kept: Vec<u64> = sources.into_iter().map(|(_, e)| e).collect();
                    kept.sort_unstable();
                    row[..first].copy_from_slice(&kept);
                }
            }
            if by_time {
                row.sort_by_key(|&e| number::<i64>(records.get(e as usize), time)); // stable
            }
            first as u64
        });
        let first: Vec<u64> = first.collect();
        let kept: u64 = first.iter().sum();
        let others = sorted.order.len() as u64 - kept;
        if drops_parallel && others > 0 {
            let mut end = 0;
            let mut order = memory::reserve(kept as usize)?;
            for (row, &first) in first.iter().enumerate() {
                let start = sorted.indptr[row] as usize;
                order.extend_from_slice(&sorted.order[start..start + first as usize]);
                sorted.indptr[row] = end;
                end += first;
            }
            if let Some(last) = sorted.indptr.last_mut() {
                *last = end;
            }
            sorted.order = order;
        }
        Ok(others)
    }
}

/// Places of the values in a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) columns: EdgeColumns,
    /// Offset of the weight, of the time, and of the features.
    places: [usize; 3],
    /// Bytes of a record.
    pub(super) length: usize,
}

impl Layout {
    pub(super) fn new<F>(columns: EdgeColumns) -> Self {
        let weight = 8;
        let time = weight + if columns.weights { 4 } else { 0 };
        let features = time + if columns.time { 8 } else { 0 };
        let length = features + columns.features * size_of::<F>();
        Self { columns, places: [weight, time, features], length }
    }
}

/// Columns of the result, from the first row to the last.
pub(super) struct Output<F> {
    pub(super) layout: Layout,
    pub(super) rules: RowRules,
    pub(super) indptr: Rows<u64>,
    pub(super) indices: Rows<NodeId>,
    pub(super) weights: Option<Rows<f32>>,
    pub(super) time: Option<Rows<i64>>,
    pub(super) features: Option<Rows<F>>,
    pub(super) edges: u64,
    /// Edges beyond the first between the same nodes.
    pub(super) parallel: u64,
}

/// Records in the order of the input.
#[derive(Clone, Copy)]
struct Records<'a> {
    bytes: &'a [u8],
    layout: Layout,
}

impl<'a> Records<'a> {
    fn get(self, e: usize) -> &'a [u8] {
        &self.bytes[e * self.layout.length..][..self.layout.length]
    }

    /// Orders the records by destination; `range` has all destinations.
    fn order(self, range: &Range<u64>) -> Result<csc::Order> {
        let rows = parallel::map(self.bytes.len() / self.layout.length, |e| {
            number::<NodeId>(self.get(e), 0) - range.start as NodeId
        })?;
        csc::order(&rows, (range.end - range.start) as usize)
    }

    /// Adds the values at a place of the records to a column, in the given order.
    fn column<T: Element>(self, to: &mut Rows<T>, order: &[u64], at: usize) -> Result<()> {
        to.extend(&parallel::map(order.len(), |i| number(self.get(order[i] as usize), at))?)
    }
}

impl<F: Element> Output<F> {
    /// Adds the edges of a range of destinations, from records in the order of the input.
    pub(super) fn add(&mut self, records: &[u8], range: Range<u64>) -> Result<()> {
        let records = Records { bytes: records, layout: self.layout };
        let mut sorted = records.order(&range)?;
        self.parallel += self.rules.apply(&mut sorted, records)?;
        let csc::Order { indptr, order } = sorted;
        for ends in indptr[1..].chunks(ROWS) {
            let ends: Vec<u64> = ends.iter().map(|end| self.edges + end).collect();
            self.indptr.extend(&ends)?;
        }
        self.edges += order.len() as u64;
        let [weight, time, features] = self.layout.places;
        records.column(&mut self.indices, &order, 4)?;
        if let Some(to) = &mut self.weights {
            records.column(to, &order, weight)?;
        }
        if let Some(to) = &mut self.time {
            records.column(to, &order, time)?;
        }
        if let Some(to) = &mut self.features {
            let width = to.columns();
            let mut table: Vec<F> = memory::zeroed(order.len().saturating_mul(width))?;
            for_each_piece(&mut table, ROWS_OF_FEATURES * width, |piece, rows| {
                for (row, &e) in rows.chunks_mut(width).zip(&order[piece * ROWS_OF_FEATURES..]) {
                    bytemuck::cast_slice_mut(row).copy_from_slice(&records.get(e as usize)[features..]);
                }
            });
            to.extend(&table)?;
        }
        Ok(())
    }

    /// Adds edges of the last destination that [`Output::add`] was called with.
    pub(super) fn add_to_last(&mut self, records: &[u8]) -> Result<()> {
        let [weight, time, features] = self.layout.places;
        let each = || records.chunks_exact(self.layout.length);
        self.indices.extend(&each().map(|record| number(record, 4)).collect::<Vec<_>>())?;
        if let Some(to) = &mut self.weights {
            to.extend(&each().map(|record| number(record, weight)).collect::<Vec<_>>())?;
        }
        if let Some(to) = &mut self.time {
            to.extend(&each().map(|record| number(record, time)).collect::<Vec<_>>())?;
        }
        if let Some(to) = &mut self.features {
            let bytes: Vec<u8> = each().flat_map(|record| &record[features..]).copied().collect();
            to.extend(&bytemuck::pod_collect_to_vec::<u8, F>(&bytes))?;
        }
        self.edges += each().len() as u64;
        Ok(())
    }
}

/// Value at a place of a record.
pub(super) fn number<T: Element>(record: &[u8], at: usize) -> T {
    bytemuck::pod_read_unaligned(&record[at..at + size_of::<T>()])
}
