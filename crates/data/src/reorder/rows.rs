//! Rows in a new order, window by window: all threads fill one while the previous one is written.

use std::ops::Range;

use graphmill_core::{Buffer, NodeId, Result, memory};
use rayon::prelude::*;

use crate::{external::Rows, npy::Element};

/// Bytes of a window.
const WINDOW: usize = 4 << 20;
/// Tables of more bytes are written to disk directly, if the scratch has a directory.
const SMALL: usize = 8 << 20;
/// Minimum number of values per task.
const MIN_TASK_LEN: usize = 1 << 14;

/// Gathers the rows `order` of a table of `width` columns through the scratch `to`.
pub(crate) fn gather<T: Element>(
    data: &[T],
    width: usize,
    order: &[NodeId],
    to: Rows<T>,
) -> Result<Buffer<T>> {
    gather_by(data, width, order.len(), |i| order[i] as usize, to)
}

/// Gathers `len` rows of a table of `width` columns, of which number `i` is row `at(i)`, through
/// the scratch `to`.
pub(crate) fn gather_by<T: Element>(
    data: &[T],
    width: usize,
    len: usize,
    at: impl Fn(usize) -> usize + Sync,
    to: Rows<T>,
) -> Result<Buffer<T>> {
    let row = |i: usize, row: &mut [T]| row.copy_from_slice(&data[at(i) * width..][..width]);
    fill_rows(width, len, row, to)
}

/// Fills `len` rows of `width` values, each by `row` with its number, through the scratch `to`.
pub(crate) fn fill_rows<T: Element>(
    width: usize,
    len: usize,
    row: impl Fn(usize, &mut [T]) + Sync,
    mut to: Rows<T>,
) -> Result<Buffer<T>> {
    if len * width * size_of::<T>() > SMALL {
        to.spill()?;
    }
    let rows = (WINDOW / size_of::<T>() / width.max(1)).max(1);
    let runs = (0..len).step_by(rows).map(|first| first..len.min(first + rows));
    let fill = |run: Range<usize>, window: &mut Vec<T>| {
        window.resize(run.len() * width, T::zeroed());
        let rows = window.par_chunks_exact_mut(width.max(1)).enumerate();
        rows.with_min_len(MIN_TASK_LEN.div_ceil(width.max(1))).for_each(|(i, out)| row(run.start + i, out));
    };
    stream(runs, fill, |window| to.extend(window))?;
    to.finish()
}

/// Row starts in a new order. Parallel except for the prefix sum.
///
/// # Errors
/// Memory runs out.
pub(crate) fn indptr(of: &[u64], order: &[NodeId]) -> Result<Vec<u64>> {
    let length = |&v: &NodeId| of[v as usize + 1] - of[v as usize];
    let mut starts: Vec<u64> = memory::reserve(order.len() + 1)?;
    starts.push(0);
    starts.par_extend(order.par_iter().with_min_len(MIN_TASK_LEN).map(length));
    for v in 1..starts.len() {
        starts[v] += starts[v - 1];
    }
    Ok(starts)
}

/// Contents of rows of different lengths: ids, and optionally one value each.
#[derive(Default)]
struct Window {
    ids: Vec<u32>,
    values: Vec<f32>,
}

/// Writes rows of the lengths given by `indptr`, each filled by `row` (its number, its ids, their
/// values), to `ids` and, if present, `values`.
pub(crate) fn ragged(
    indptr: &[u64],
    mut ids: Rows<u32>,
    mut values: Option<Rows<f32>>,
    row: impl Fn(usize, &mut [u32], &mut [f32]) + Sync,
) -> Result<(Buffer<u32>, Option<Buffer<f32>>)> {
    let length = indptr[indptr.len() - 1] as usize;
    if length * 4 > SMALL {
        ids.spill()?;
        values.as_mut().map_or(Ok(()), Rows::spill)?;
    }
    let valued = values.is_some();
    let fill = |run: Range<usize>, window: &mut Window| {
        let indptr = &indptr[run.start..=run.end];
        let length = (indptr[indptr.len() - 1] - indptr[0]) as usize;
        window.ids.resize(length, 0);
        window.values.resize(if valued { length } else { 0 }, 0.0);
        fill(indptr, run.start, &mut window.ids, &mut window.values, &row);
    };
    let write = |window: &Window| {
        ids.extend(&window.ids)?;
        values.as_mut().map_or(Ok(()), |values| values.extend(&window.values))
    };
    stream(runs(indptr), fill, write)?;
    Ok((ids.finish()?, values.map(Rows::finish).transpose()?))
}

/// Ranges of rows that fit a window; a row is not split.
fn runs(indptr: &[u64]) -> impl Iterator<Item = Range<usize>> {
    let rows = indptr.len() - 1;
    let mut first = 0;
    std::iter::from_fn(move || {
        let most = indptr[first] + (WINDOW / 4) as u64;
        let fits = indptr[first + 1..].partition_point(|&end| end <= most).max(1);
        let run = first..(first + fits).min(rows);
        first = run.end;
        (!run.is_empty()).then_some(run)
    })
}

/// Fills the rows from `first` on, recursively halved by entries over the threads.
fn fill(
    indptr: &[u64],
    first: usize,
    ids: &mut [u32],
    values: &mut [f32],
    row: &(impl Fn(usize, &mut [u32], &mut [f32]) + Sync),
) {
    let rows = indptr.len() - 1;
    let at = |i: usize| (indptr[i] - indptr[0]) as usize;
    let of_values = |at: usize, values: &[f32]| if values.is_empty() { 0 } else { at };
    if rows > 1 && at(rows) + rows > MIN_TASK_LEN {
        let half = indptr[0] + (at(rows) / 2) as u64;
        // Rows without edges are halved by number.
        let middle = if at(rows) == 0 { rows / 2 } else { indptr.partition_point(|&start| start <= half) };
        let middle = middle.clamp(1, rows - 1);
        let place = of_values(at(middle), values);
        let ((ids, more_ids), (values, more_values)) =
            (ids.split_at_mut(at(middle)), values.split_at_mut(place));
        rayon::join(
            || fill(&indptr[..=middle], first, ids, values, row),
            || fill(&indptr[middle..], first + middle, more_ids, more_values, row),
        );
        return;
    }
    for i in 0..rows {
        let valued = of_values(at(i), values)..of_values(at(i + 1), values);
        row(first + i, &mut ids[at(i)..at(i + 1)], &mut values[valued]);
    }
}

/// Fills a window with each of `runs` and writes it while the next is filled.
fn stream<W: Default + Send + Sync>(
    runs: impl Iterator<Item = Range<usize>>,
    fill: impl Fn(Range<usize>, &mut W) + Sync,
    mut write: impl FnMut(&W) -> Result<()> + Send,
) -> Result<()> {
    let (mut full, mut spare) = (None, W::default());
    for run in runs {
        let (written, ()) =
            rayon::join(|| full.as_ref().map_or(Ok(()), &mut write), || fill(run, &mut spare));
        written?;
        spare = full.replace(spare).unwrap_or_default();
    }
    full.as_ref().map_or(Ok(()), write)
}
