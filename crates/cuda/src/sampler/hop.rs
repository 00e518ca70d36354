//! Kernels of a hop: they draw the destinations' neighbours and number them locally.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::sync::Arc;

use graphmill_core::{Result, block::Aggregation};

use super::{
    Draw, Topology,
    nodes::Nodes,
    zeros::{self, TILE_THREADS, Zeros},
};
use crate::{
    Buffer, Queue,
    device::{THREADS, WARP},
    driver::Shape,
    kernels::{self, In, Kernel as _, Out, Slots},
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
    pub(super) indptr: Buffer<u32>,
    /// Sources: slots of the nodes' table, or global ids without a table; local ids after
    /// numbering.
    pub(super) indices: Buffer<u32>,
    /// Maximum number of edges.
    pub(super) max_edges: usize,
    pub(super) edge_weight: Option<Buffer<f32>>,
}

/// Edges that are counted, but not drawn yet.
pub(super) struct Counted {
    indptr: Buffer<u32>,
    /// For walks: the most visited nodes, and their numbers of visits.
    visits: Option<(Buffer<u32>, Buffer<u32>)>,
}

/// Inputs of a hop's kernels.
pub(super) struct Hop<'a> {
    pub(super) queue: &'a Arc<Queue>,
    pub(super) topology: &'a Topology,
    pub(super) draw: Draw,
    pub(super) fanout: u32,
    pub(super) key: u64,
    pub(super) aggregation: Aggregation,
    /// Sizes of the hop: destinations, edges, and nodes after the hop.
    pub(super) sizes: Out<u64>,
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
        let mut indptr = queue.take(rows + 1)?;
        let mut zeros = Zeros::new(queue, zeros::of_starts(rows) + later)?;
        let visits = match self.draw {
            Draw::Walks { walks, length, restart } => {
                Some(self.walk(nodes, [walks, length], restart, indptr.write())?)
            }
            _ => None,
        };
        let kernel = kernels::SampleStarts {
            graph: self.topology.parts(),
            nodes: nodes.ids.read(),
            fanout: self.fanout,
            mode: self.draw.mode(),
            counted: visits.is_some(),
            indptr: indptr.write(),
            sizes: self.sizes,
            counters: zeros.take(zeros::of_starts(rows)),
        };
        // SAFETY: the graph is that of the sampler, and ids are of its nodes, at most this many;
        // there is a count for each and one more, and a word for each tile
        unsafe { queue.run(TILE_THREADS * zeros::starts_tiles(rows), &kernel)? };
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
        let mut indices = queue.take(max_edges)?;
        let (graph, sizes, out) = (self.topology.parts(), In::from(self.sizes), indices.write());
        let (nodes, indptr_of) = (nodes.ids.read(), indptr.read());
        let (fanout, mode, key) = (self.fanout, self.draw.mode(), self.key);
        let mut edge_weight = None;
        // SAFETY: as in `count`; `max_edges` bounds the edges counted for the same rows and fanout,
        // and the table is large enough for their sources
        unsafe {
            match self.draw {
                Draw::Walks { walks, length, .. } => {
                    let (visited, times) = visits.as_ref().expect("walks have visits");
                    let makes = match self.aggregation {
                        Aggregation::Other => 0,
                        Aggregation::Mean => 1,
                        Aggregation::Sum | Aggregation::Symmetric => 2,
                    };
                    let width = fanout.min(walks * length);
                    let kernel = kernels::WalkEdges {
                        graph,
                        nodes,
                        sizes,
                        indptr: indptr_of,
                        width,
                        nodes_from: visited.read(),
                        visits_from: times.read(),
                        makes,
                        slots,
                        indices: out,
                        weights: edge_weight.insert(queue.take(max_edges)?).write(),
                    };
                    queue.run(rows * width as usize, &kernel)?;
                }
                _ if fanout == ALL => {
                    let kernel = kernels::SampleCopy { graph, nodes, sizes, indptr: indptr_of, slots, out };
                    queue.run(max_edges, &kernel)?;
                }
                Draw::Distinct if fanout <= MAX_FEW => {
                    let (indptr, group) = (indptr_of, fanout.next_power_of_two());
                    let kernel =
                        kernels::SampleFew { graph, nodes, sizes, indptr, fanout, group, key, slots, out };
                    queue.run(rows * group as usize, &kernel)?;
                }
                Draw::Distinct => self.many(rows, nodes, indptr_of, out, slots)?,
                Draw::WithReplacement | Draw::Alias => {
                    let indptr = indptr_of;
                    let kernel =
                        kernels::SampleAgain { graph, nodes, sizes, indptr, fanout, mode, key, slots, out };
                    queue.run(rows * fanout as usize, &kernel)?;
                }
            }
        }
        Ok(Drawn { indptr, indices, max_edges, edge_weight })
    }

    /// Draws for `rows` rows without replacement, with a table for each warp.
    fn many(
        &self,
        rows: usize,
        nodes: In<u32>,
        indptr: In<u32>,
        out: Out<u32>,
        of_batch: Slots,
    ) -> crate::Result<()> {
        let (queue, fanout) = (self.queue, self.fanout);
        let slots = (2 * fanout).next_power_of_two();
        let each = (THREADS / WARP) as usize;
        let max_blocks = 8 * self.queue.device().properties().multiprocessors.max(1) as usize;
        let fits = TABLES / (4 * slots as usize * each);
        let blocks = rows.div_ceil(each).min(max_blocks).min(fits).max(1);
        let mut tables = queue.scratch(slots as usize * each * blocks)?;
        let shape = Shape { grid: [blocks as u32, 1, 1], block: [THREADS, 1, 1], shared: 0 };
        let kernel = kernels::SampleMany {
            graph: self.topology.parts(),
            nodes,
            sizes: self.sizes.into(),
            indptr,
            fanout,
            key: self.key,
            tables: tables.write(),
            slots,
            of_batch,
            out,
        };
        // SAFETY: as in `draw`; there is a table for each warp
        unsafe { queue.launch(shape, kernel.call()) }
    }

    /// Computes PinSAGE's neighbourhoods: the nodes that walks visit most, and their numbers of
    /// visits. Writes the number of nodes to `counts`.
    fn walk(
        &self,
        nodes: &Nodes,
        [walks, length]: [u32; 2],
        restart: f64,
        counts: Out<u32>,
    ) -> Result<(Buffer<u32>, Buffer<u32>)> {
        let (queue, rows) = (self.queue, nodes.max_nodes);
        let visits = walks * length;
        let width = self.fanout.min(visits);
        let entries = rows * width as usize;
        let (mut visited, mut times) = (queue.scratch(entries)?, queue.scratch(entries)?);
        let max_blocks = 32 * queue.device().properties().multiprocessors.max(1) as usize;
        let warps = (THREADS / WARP) as usize;
        let blocks = rows.div_ceil(warps).min(max_blocks) as u32;
        let shape = Shape { grid: [blocks, 1, 1], block: [THREADS, 1, 1], shared: 8 * visits * warps as u32 };
        let kernel = kernels::WalkDraw {
            graph: self.topology.parts(),
            nodes: nodes.ids.read(),
            sizes: self.sizes.into(),
            walks,
            length,
            restart: restart.to_bits(),
            key: self.key,
            width,
            nodes_to: visited.write(),
            visits_to: times.write(),
            counts,
        };
        // SAFETY: the graph is that of the sampler, and ids are of its nodes; there are `width`
        // entries for each, and a count
        unsafe { queue.launch(shape, kernel.call())? };
        Ok((visited, times))
    }

    /// Replaces the slots in `drawn` by local ids of the sources, and appends new sources to the
    /// nodes.
    pub(super) fn number(&self, nodes: &mut Nodes, drawn: &mut Drawn, zeros: &mut Zeros) -> Result<()> {
        let entries = nodes.slots().entries.expect("local sources have a table");
        let threads = TILE_THREADS * zeros::edge_tiles(drawn.max_edges);
        let kernel = kernels::RelabelNumber {
            entries,
            indices: drawn.indices.write(),
            nodes: nodes.ids.write(),
            sizes: self.sizes,
            counters: zeros.take(zeros::of_numbers(drawn.max_edges)),
        };
        // SAFETY: the sources are slots of the table, the nodes are long enough for all new ones,
        // and there is a word for each tile
        unsafe { self.queue.run(threads, &kernel)? };
        nodes.max_nodes = nodes.with(drawn.max_edges);
        Ok(())
    }
}
