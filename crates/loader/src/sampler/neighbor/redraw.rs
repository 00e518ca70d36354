//! Draws of the rows with excluded edges, from the edges that remain.
//!
//! # Algorithm
//!
//! A row of `d` edges of which `e` are excluded draws as a row of `d - e` edges, by the same random
//! numbers: the numbers of `min(k, d - e)` of the remaining edges. A search among the places of the
//! excluded edges maps each number to its place in the row. So the draws are those from the graph
//! without these edges, bit by bit, and all other rows stay as they are.
//!
//! # Source
//!
//! None: a draw from a shorter list.
//!
//! # Cost
//!
//! O(D) to find the rows with excluded edges; for each of these, O(e log d + k log e), or O(d) if
//! the rows of the graph do not ascend. Rows after one that became shorter are moved.

#![forbid(unsafe_code)]

use std::sync::Mutex;

use graphmill_core::NodeId;

use super::{Draws, Marks, floyd};
use crate::link::{ExcludedEdges, append_places, remaining_place};

impl Draws<'_> {
    /// Draws the rows with excluded edges again. `indptr` and `out` hold the draws of `dst` from
    /// whole rows: neighbours (`FIND`) or positions within the rows.
    pub(super) fn redraw<const FIND: bool>(
        &self,
        excluded: &ExcludedEdges,
        dst: &[NodeId],
        (indptr, out): (&mut [u32], &mut Vec<u32>),
        tables: &[Mutex<Vec<u32>>],
    ) {
        let (mut places, mut marks) = (Vec::new(), Marks::new());
        let (mut from, mut to) = (0, 0);
        for (i, &v) in dst.iter().enumerate() {
            let end = indptr[i + 1] as usize;
            places.clear();
            append_places(self.rows.graph, v, excluded.sources_of(self.name(v)), &mut places);
            if !places.is_empty() {
                // a row never becomes longer
                to += self.redraw_row::<FIND>(v, &places, &mut out[to..end], &mut marks, tables);
            } else if to == from {
                to = end;
            } else {
                out.copy_within(from..end, to);
                to += end - from;
            }
            from = end;
            indptr[i + 1] = to as u32;
        }
        out.truncate(to);
    }

    /// Writes the draws of `v` from the edges that are not at these places to the beginning of
    /// `out`, and returns their number.
    fn redraw_row<const FIND: bool>(
        &self,
        v: NodeId,
        excluded: &[usize],
        out: &mut [u32],
        marks: &mut Marks,
        tables: &[Mutex<Vec<u32>>],
    ) -> usize {
        let row = self.rows.graph.in_neighbors(v);
        let remain = row.len() - excluded.len();
        let drawn = &mut out[..remain.min(self.fanout)];
        if remain <= self.fanout {
            (0..).zip(&mut *drawn).for_each(|(number, slot)| *slot = number);
        } else {
            floyd(&mut self.stream(v), remain as u64, drawn, marks, tables, |number| number);
        }
        for slot in &mut *drawn {
            let place = remaining_place(excluded, u64::from(*slot));
            *slot = if FIND { row[place as usize] } else { place as u32 };
        }
        drawn.len()
    }
}
