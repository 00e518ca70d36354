//! One alias table per node, over its in-neighbours.

use std::fmt;

use rayon::prelude::*;

use super::{Cell, Scratch, build};
use crate::{
    Buffer, Error, NodeId, Result,
    keyed::Stream,
    memory,
    prefetch::prefetch,
    search::{pair_position, position},
};

/// Number of nodes whose rows are built by one task.
const ROWS: usize = 1 << 10;

/// Marks a row without a positive weight, in `Cell::other`.
pub const NOTHING: u32 = u32::MAX;

/// Distribution of each node over its in-neighbours, with 8 bytes per edge in the order of the
/// graph's edges.
#[derive(Clone, Debug)]
pub struct RowAlias {
    /// Per edge (`E`), `other` counting within the row; [`NOTHING`] throughout rows whose weights
    /// are all 0.
    cells: Buffer<Cell>,
}

/// Stores the tables of a graph's edge weights, for example in a file.
///
/// ```
/// use graphmill_core::{EdgeOptions, Result, alias::{RowAlias, TableStore}, build_weighted};
///
/// /// Builds the tables each time.
/// #[derive(Debug)]
/// struct Unstored;
///
/// impl TableStore for Unstored {
///     fn tables(&self, indptr: &[u64], weights: &[f32]) -> Result<RowAlias> {
///         RowAlias::new(indptr, weights)
///     }
/// }
///
/// let graph = build_weighted(3, &[0, 1], &[2, 2], &[0.5, 1.5], EdgeOptions::DIRECTED)?;
/// let graph = graph.with_table_store(std::sync::Arc::new(Unstored));
/// assert_eq!(graph.alias_tables()?.num_edges(), 2);
/// # Ok::<(), graphmill_core::Error>(())
/// ```
pub trait TableStore: Send + Sync + fmt::Debug {
    /// Returns tables proportional to `weights` (`E`) within the rows that start at `indptr`, from
    /// storage or built.
    ///
    /// # Errors
    /// As for [`RowAlias::new`].
    fn tables(&self, indptr: &[u64], weights: &[f32]) -> Result<RowAlias>;
}

/// Borrowed tables of a [`RowAlias`], for many draws.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    cells: &'a [Cell],
}

/// Position of a draw in a [`RowAlias`], before its cell is read.
#[derive(Clone, Copy, Debug)]
pub struct Aim {
    /// Index of the cell among all.
    cell: u64,
    /// Number of the cell within the row.
    own: u32,
    /// Position within the cell, of 2^32.
    place: u32,
}

impl RowAlias {
    /// Builds rows proportional to `weights` (`E`). `indptr` (`V + 1`) ascends from 0 to `E`, as
    /// that of a graph. O(V + E), parallel.
    ///
    /// # Errors
    /// The lengths disagree; a weight is negative or not finite; a row has 2^32 - 1 edges or more.
    pub fn new(indptr: &[u64], weights: &[f32]) -> Result<Self> {
        let edges = indptr.last().copied().unwrap_or(0);
        if weights.len() as u64 != edges {
            return Err(Error::invalid(format!("{} weights for {edges} edges", weights.len())));
        }
        if let Some(e) = position(weights, |w| !(*w >= 0.0 && w.is_finite())) {
            return Err(Error::invalid(format!(
                "edge weight {e} is {}: weights are finite and at least 0",
                weights[e]
            )));
        }
        if let Some(v) = pair_position(indptr, |start, end| end - start >= u64::from(NOTHING)) {
            return Err(Error::invalid(format!(
                "node {v} has 2^32 - 1 in-neighbours or more: too many for an alias table"
            )));
        }
        let mut cells = memory::filled(Cell { threshold: 0, other: NOTHING }, weights.len())?;
        // the cells of each run of rows
        let nodes = indptr.len().saturating_sub(1);
        let mut parts = Vec::with_capacity(nodes.div_ceil(ROWS));
        let mut all = &mut cells[..];
        for first in (0..nodes).step_by(ROWS) {
            let rows = &indptr[first..=(first + ROWS).min(nodes)];
            let (part, rest) = all.split_at_mut((rows[rows.len() - 1] - rows[0]) as usize);
            all = rest;
            parts.push((rows, part));
        }
        parts.into_par_iter().for_each_init(Scratch::default, |scratch, (rows, cells)| {
            for ends in rows.windows(2) {
                let first = (ends[0] - rows[0]) as usize;
                let row = &weights[ends[0] as usize..ends[1] as usize];
                build(row.len(), |i| f64::from(row[i]), scratch, |i, cell| cells[first + i] = cell);
            }
        });
        Ok(Self { cells: cells.into() })
    }

    /// Tables from `cells` made earlier for these rows and weights ([`RowAlias::new`]); `None` if a
    /// draw could leave its row or return an edge of a row without weight. O(V + E), parallel.
    pub fn of_cells(indptr: &[u64], weights: &[f32], cells: Buffer<Cell>) -> Option<Self> {
        let rows = indptr.par_windows(2).with_min_len(1 << 10);
        let sound = cells.len() as u64 == indptr.last().copied().unwrap_or(0)
            && weights.len() == cells.len()
            && rows.all(|ends| {
                let row = ends[0] as usize..ends[1] as usize;
                let (cells, weights) = (&cells[row.clone()], &weights[row]);
                match cells.first() {
                    None => true,
                    Some(cell) if cell.other == NOTHING => weights.iter().all(|&weight| weight == 0.0),
                    Some(_) => {
                        weights.iter().any(|&weight| weight != 0.0)
                            && cells.iter().all(|cell| (cell.other as usize) < cells.len())
                    }
                }
            });
        sound.then_some(Self { cells })
    }

    /// Cells of the tables, one per edge (`E`).
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// `E`.
    pub fn num_edges(&self) -> usize {
        self.cells.len()
    }

    /// Memory of the tables: 8 bytes per edge, threshold and other, both u32.
    pub fn as_bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.cells)
    }

    /// Returns true if the tables are mapped from a file.
    pub fn is_mapped(&self) -> bool {
        self.cells.is_mapped()
    }

    /// Borrowed tables, for draws.
    pub fn rows(&self) -> Rows<'_> {
        Rows { cells: &self.cells }
    }
}

impl PartialEq for RowAlias {
    fn eq(&self, other: &Self) -> bool {
        self.cells[..] == other.cells[..]
    }
}

impl Eq for RowAlias {}

impl Rows<'_> {
    /// Draws an in-neighbour of `v` and returns its number within the row. Returns `None` if `v`
    /// has no in-neighbours or all their weights are 0. One draw of 64 bits, and one read. `indptr`
    /// is that of the tables.
    #[inline(always)]
    pub fn draw(&self, indptr: &[u64], v: NodeId, stream: &mut Stream) -> Option<u32> {
        let (start, end) = (indptr[v as usize], indptr[v as usize + 1]);
        if start == end || self.cells[start as usize].other == NOTHING {
            return None;
        }
        Some((self.end_draw(self.begin_draw(start, end, stream.next_u64())) - start) as u32)
    }

    /// First half of [`Rows::draw`], from a random word: prefetches the cell of a non-empty row of
    /// edges `start..end`.
    #[inline(always)]
    pub fn begin_draw(&self, start: u64, end: u64, word: u64) -> Aim {
        let product = u128::from(word) * u128::from(end - start);
        let own = (product >> 64) as u32;
        let cell = start + u64::from(own);
        prefetch(self.cells, cell as usize);
        Aim { cell, own, place: ((product as u64) >> 32) as u32 }
    }

    /// Second half of [`Rows::draw`]: position of the edge, in a row with a positive weight.
    #[inline(always)]
    pub fn end_draw(&self, aim: Aim) -> u64 {
        let cell = self.cells[aim.cell as usize];
        let other = aim.cell - u64::from(aim.own) + u64::from(cell.other);
        if aim.place < cell.threshold { aim.cell } else { other }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::fits, *};

    #[test]
    fn rows_are_drawn_by_their_weights() {
        // degrees 0, 3, 1, 2 (all 0), 4, and many more of one
        let mut indptr = vec![0, 0, 3, 4, 6, 10];
        indptr.extend((0..2 * ROWS as u64).map(|i| 11 + i));
        let edges = indptr[indptr.len() - 1] as usize;
        let mut weights = vec![2.0f32; edges];
        weights[..10].copy_from_slice(&[1.0, 0.0, 2.5, 4.0, 0.0, 0.0, 0.1, 0.2, 0.3, 0.4]);
        let table = RowAlias::new(&indptr, &weights).unwrap();
        let mut stream = Stream::new(8);
        assert_eq!((table.num_edges(), table.rows().draw(&indptr, 0, &mut stream)), (edges, None));
        for v in [1, 2, 3, 4, 5, 2 * ROWS as u32 + 4] {
            let row = indptr[v as usize] as usize..indptr[v as usize + 1] as usize;
            let row: Vec<f64> = weights[row].iter().map(|&w| f64::from(w)).collect();
            let mut counts = vec![0; row.len()];
            for _ in 0..50_000 {
                let drawn = table.rows().draw(&indptr, v, &mut stream);
                assert_eq!(drawn.is_none(), v == 3);
                drawn.into_iter().for_each(|i| counts[i as usize] += 1);
            }
            if v != 3 {
                fits(&counts, &row);
            }
        }
    }

    #[test]
    fn tables_do_not_depend_on_the_number_of_threads() {
        let indptr: Vec<u64> = (0..=5000).map(|v| v * 13).collect();
        let edges: Vec<f32> = (0..65_000u64).map(|i| (i * i % 1000) as f32).collect();
        let build = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| RowAlias::new(&indptr, &edges).unwrap())
        };
        assert!(build(1) == build(3));
    }

    #[test]
    fn stored_cells_are_accepted_only_if_draws_stay_on_edges_with_weight() {
        // degrees 2, 0, 1 and 3, of which the last two rows have no weight
        let (indptr, weights) = ([0, 2, 2, 3, 6], [1.0, 0.5, 0.0, 0.0, 0.0, 0.0]);
        let made = RowAlias::new(&indptr, &weights).unwrap();
        let open = |cells: Vec<Cell>| RowAlias::of_cells(&indptr, &weights, cells.into());
        assert_eq!(open(made.cells().to_vec()).as_ref(), Some(&made));
        let changed = |e: usize, other: u32| {
            let mut cells = made.cells().to_vec();
            cells[e].other = other;
            open(cells)
        };
        assert!(changed(1, 0).is_some(), "the first edge of the row");
        assert!(changed(1, 2).is_none(), "an edge of another row");
        assert!(changed(1, NOTHING).is_none(), "only the first cell marks a row without weight");
        assert!(changed(0, NOTHING).is_none(), "the row has a weight");
        assert!(changed(2, 0).is_none() && changed(3, 1).is_none(), "the rows have no weight");
        assert!(open(made.cells()[..5].to_vec()).is_none());
        assert!(RowAlias::of_cells(&indptr, &weights[..5], made.cells().to_vec().into()).is_none());
        assert_eq!(RowAlias::of_cells(&[], &[], Vec::new().into()).unwrap().num_edges(), 0);
    }

    #[test]
    fn halves_of_a_draw_are_the_whole_draw() {
        let indptr = [0, 4, 4, 9];
        let weights: Vec<f32> = (0..9).map(|e| (e % 4) as f32).collect();
        let table = RowAlias::new(&indptr, &weights).unwrap();
        let rows = table.rows();
        for seed in 0..500 {
            for v in [0, 2] {
                let (start, end) = (indptr[v], indptr[v + 1]);
                let word = Stream::new(seed).next_u64();
                let edge = rows.end_draw(rows.begin_draw(start, end, word));
                let whole = rows.draw(&indptr, v as NodeId, &mut Stream::new(seed));
                assert_eq!(whole.map(|i| start + u64::from(i)), Some(edge));
                assert!(weights[edge as usize] > 0.0 && (start..end).contains(&edge));
            }
        }
        assert_eq!(table.as_bytes().len(), 9 * 8);
        assert!(!table.is_mapped());
    }

    #[test]
    fn invalid_weights_are_rejected() {
        let bad = |weights: &[f32]| RowAlias::new(&[0, 2], weights).unwrap_err().to_string();
        assert!(bad(&[1.0]).contains("1 weights for 2 edges"));
        assert!(bad(&[1.0, -1.0]).contains("edge weight 1 is -1"));
    }
}
