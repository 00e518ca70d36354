//! Kernels of a hop: they draw the destinations' neighbours and number them locally.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::sync::Arc;

use graphmill_core::{Result, block::Aggregation};

use super::{
    Draw, Topology,
    nodes::{Nodes, Slots},
    zeros::{self, TILE_THREADS, Zeros},
};
use crate::{
    Buffer, Queue, arguments,
    device::{THREADS, WARP},
    driver::{Address, Shape},
};

/// Fanout that draws all neighbours.
pub(super) const ALL: u32 = u32::MAX;
/// Maximum fanout for which a few lanes draw a row.
const MAX_FEW: u32 = 32;
/// Total bytes of the per-warp tables for larger fanouts.
const TABLES: usize = 32 << 20;
/// Maximum number of edges that a hop may have without being counted first. Memory for them is
/// partly unused if nodes have few neighbours.
const MAX_UNCOUNTED: usize = 1 << 22;

/// Edges drawn by a hop. Buffers may be longer than their content.
pub(super) struct Drawn {
    pub(super) indptr: Buffer,
    /// Sources: slots of the nodes' table, or global ids without a table; local ids after
    /// numbering.
    pub(super) indices: Buffer,
    /// Maximum number of edges.
    pub(super) max_edges: usize,
    pub(super) edge_weight: Option<Buffer>,
}

/// Edges that are counted, but not drawn yet.
pub(super) struct Counted {
    indptr: Buffer,
    /// For walks: the most visited nodes, and their numbers of visits.
    visits: Option<(Buffer, Buffer)>,
}

/// Inputs of a hop's kernels.
pub(super) struct Hop<'a> {
    pub(super) queue: &'a Arc<Queue>,
    pub(super) topology: &'a Topology,
    pub(super) draw: Draw,
    pub(super) fanout: u32,
    pub(super) key: u64,
    pub(super) aggregation: Aggregation,
    /// Address of the hop's sizes: destinations, edges, and nodes after the hop, as u64.
    pub(super) sizes: Address,
}

/// Maximum number of edges of `rows` destinations, if the fanout bounds it and the bound is small
/// enough.
pub(super) fn edge_bound(draw: Draw, fanout: u32, rows: usize) -> Option<usize> {
    let each = match draw {
        Draw::Walks { walks, length, .. } => fanout.min(walks * length),
        _ => Some(fanout).filter(|&fanout| fanout != ALL)?,
    };
    rows.checked_mul(each as usize).filter(|&edges| edges <= MAX_UNCOUNTED)
}

impl Hop<'_> {
    /// Counts the edges of all nodes: writes each node's start, and the total on the device. Also
    /// zeroes `later` words for later kernels.
    pub(super) fn count(&self, nodes: &Nodes, later: usize) -> Result<(Counted, Zeros)> {
        let (queue, rows) = (self.queue, nodes.max_nodes);
        let (graph, parts) = (self.topology.table(), self.topology.num_parts());
        let indptr = queue.take(4 * (rows + 1))?;
        let (at, ids) = (indptr.address(), nodes.ids.address());
        let mut zeros = Zeros::new(queue, zeros::of_starts(rows) + later)?;
        let visits = match self.draw {
            Draw::Walks { walks, length, restart } => Some(self.walk(nodes, [walks, length], restart, at)?),
            _ => None,
        };
        let counted = u32::from(visits.is_some());
        let counters = zeros.take(zeros::of_starts(rows));
        let arguments =
            arguments![graph, parts, ids, self.fanout, self.draw.mode(), counted, at, self.sizes, counters];
        // SAFETY: the graph is that of the sampler, and ids are of its nodes, at most this many;
        // there is a count for each and one more, and a word for each tile
        unsafe { queue.run("sample_starts", TILE_THREADS * zeros::starts_tiles(rows), arguments)? };
        Ok((Counted { indptr, visits }, zeros))
    }

    /// Draws the counted edges, at most `max_edges`, and inserts their sources into `slots`.
    pub(super) fn draw(
        &self,
        nodes: &Nodes,
        counted: Counted,
        max_edges: usize,
        slots: Slots,
    ) -> Result<Drawn> {
        let (queue, rows) = (self.queue, nodes.max_nodes);
        let Counted { indptr, visits } = counted;
        let (graph, parts) = (self.topology.table(), self.topology.num_parts());
        let indices = queue.take(4 * max_edges)?;
        let (ids, sizes, at, out) = (nodes.ids.address(), self.sizes, indptr.address(), indices.address());
        let (fanout, mode, (entries, mask, dense)) = (self.fanout, self.draw.mode(), slots);
        let mut edge_weight = None;
        // SAFETY: as in `count`; `max_edges` bounds the edges counted for the same rows and fanout,
        // and the table is large enough for their sources
        unsafe {
            match self.draw {
                Draw::Walks { walks, length, .. } => {
                    let (visited, times) = visits.as_ref().expect("walks have visits");
                    let weights = queue.take(4 * max_edges)?;
                    let makes = match self.aggregation {
                        Aggregation::Other => 0u32,
                        Aggregation::Mean => 1,
                        Aggregation::Sum | Aggregation::Symmetric => 2,
                    };
                    let width = fanout.min(walks * length);
                    let from = [visited.address(), times.address()];
                    #[rustfmt::skip]
                    let arguments = arguments![
                        graph, parts, ids, sizes, at, width, from[0], from[1], makes, entries, mask, dense,
                        out, weights.address()
                    ];
                    queue.run("walk_edges", rows * width as usize, arguments)?;
                    edge_weight = Some(weights);
                }
                _ if fanout == ALL => {
                    let arguments = arguments![graph, parts, ids, sizes, at, entries, mask, dense, out];
                    queue.run("sample_copy", max_edges, arguments)?;
                }
                Draw::Distinct if fanout <= MAX_FEW => {
                    let group = fanout.next_power_of_two();
                    #[rustfmt::skip]
                    let arguments = arguments![
                        graph, parts, ids, sizes, at, fanout, group, self.key, entries, mask, dense, out
                    ];
                    queue.run("sample_few", rows * group as usize, arguments)?;
                }
                Draw::Distinct => self.many(nodes, at, out, slots)?,
                Draw::WithReplacement | Draw::Alias => {
                    #[rustfmt::skip]
                    let arguments = arguments![
                        graph, parts, ids, sizes, at, fanout, mode, self.key, entries, mask, dense, out
                    ];
                    queue.run("sample_again", rows * fanout as usize, arguments)?;
                }
            }
        }
        Ok(Drawn { indptr, indices, max_edges, edge_weight })
    }

    /// Draws without replacement, with a table for each warp.
    fn many(&self, nodes: &Nodes, indptr: Address, out: Address, of_batch: Slots) -> crate::Result<()> {
        let (graph, parts) = (self.topology.table(), self.topology.num_parts());
        let (queue, rows, fanout) = (self.queue, nodes.max_nodes, self.fanout);
        let slots = (2 * fanout).next_power_of_two();
        let each = (THREADS / WARP) as usize;
        let max_blocks = 8 * self.queue.device().properties().multiprocessors.max(1) as usize;
        let fits = TABLES / (4 * slots as usize * each);
        let blocks = rows.div_ceil(each).min(max_blocks).min(fits).max(1);
        let tables = queue.scratch(4 * slots as usize * each * blocks)?;
        let shape = Shape { grid: [blocks as u32, 1, 1], block: [THREADS, 1, 1], shared: 0 };
        let (ids, sizes, (entries, mask, dense)) = (nodes.ids.address(), self.sizes, of_batch);
        let at = tables.address();
        #[rustfmt::skip]
        let arguments = arguments![
            graph, parts, ids, sizes, indptr, fanout, self.key, at, slots, entries, mask, dense, out
        ];
        // SAFETY: as in `draw`; there is a table for each warp
        unsafe { queue.launch("sample_many", shape, arguments) }
    }

    /// Computes PinSAGE's neighbourhoods: the nodes that walks visit most, and their numbers of
    /// visits. Writes the number of nodes to `counts`.
    fn walk(
        &self,
        nodes: &Nodes,
        [walks, length]: [u32; 2],
        restart: f64,
        counts: Address,
    ) -> Result<(Buffer, Buffer)> {
        let (queue, rows) = (self.queue, nodes.max_nodes);
        let (graph, parts, ids) = (self.topology.table(), self.topology.num_parts(), nodes.ids.address());
        let visits = walks * length;
        let width = self.fanout.min(visits);
        let bytes = 4 * rows * width as usize;
        let (visited, times) = (queue.scratch(bytes)?, queue.scratch(bytes)?);
        let max_blocks = 32 * queue.device().properties().multiprocessors.max(1) as usize;
        let warps = (THREADS / WARP) as usize;
        let blocks = rows.div_ceil(warps).min(max_blocks) as u32;
        let shape = Shape { grid: [blocks, 1, 1], block: [THREADS, 1, 1], shared: 8 * visits * warps as u32 };
        let (restart, to) = (restart.to_bits(), [visited.address(), times.address()]);
        #[rustfmt::skip]
        let arguments = arguments![
            graph, parts, ids, self.sizes, walks, length, restart, self.key, width, to[0], to[1], counts
        ];
        // SAFETY: the graph is that of the sampler, and ids are of its nodes; there are `width`
        // entries for each, and a count
        unsafe { queue.launch("walk_draw", shape, arguments)? };
        Ok((visited, times))
    }

    /// Replaces the slots in `drawn` by local ids of the sources, and appends new sources to the
    /// nodes.
    pub(super) fn number(&self, nodes: &mut Nodes, drawn: &Drawn, zeros: &mut Zeros) -> Result<()> {
        let (entries, ..) = nodes.slots();
        let counters = zeros.take(zeros::of_numbers(drawn.max_edges));
        let threads = TILE_THREADS * zeros::edge_tiles(drawn.max_edges);
        let arguments =
            arguments![entries, drawn.indices.address(), nodes.ids.address(), self.sizes, counters];
        // SAFETY: the sources are slots of the table, the nodes are long enough for all new ones,
        // and there is a word for each tile
        unsafe { self.queue.run("relabel_number", threads, arguments)? };
        nodes.max_nodes = nodes.with(drawn.max_edges);
        Ok(())
    }
}
