//! A hop's kernels: what its destinations draw, and local numbers for it.

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

/// The fanout that takes all.
pub(super) const ALL: u32 = u32::MAX;
/// Up to this fanout a row is a few lanes' work.
const FEW: u32 = 32;
/// Bytes of the tables of rows being drawn with larger fanouts.
const TABLES: usize = 32 << 20;
/// Edges that a hop may have, by its fanout, without anybody counting them first: what is taken for
/// them lies partly idle where nodes have few neighbours.
const UNCOUNTED: usize = 1 << 22;

/// What a hop drew. Buffers may be longer than what is in them.
pub(super) struct Drawn {
    pub(super) indptr: Buffer,
    /// Sources: slots of the nodes' table, or where there is none global ids; local ones once they
    /// are numbered.
    pub(super) indices: Buffer,
    /// How many there are at most.
    pub(super) most: usize,
    pub(super) edge_weight: Option<Buffer>,
}

/// Edges that were asked for, but not drawn yet.
pub(super) struct Counted {
    indptr: Buffer,
    /// Of walks, the nodes that they visit most, and how often.
    visits: Option<(Buffer, Buffer)>,
}

/// What kernels of a hop are given.
pub(super) struct Hop<'a> {
    pub(super) queue: &'a Arc<Queue>,
    pub(super) topology: &'a Topology,
    pub(super) draw: Draw,
    pub(super) fanout: u32,
    pub(super) key: u64,
    pub(super) aggregation: Aggregation,
    /// Where the hop's sizes are: destinations, edges, and the nodes there are then, as u64.
    pub(super) sizes: Address,
}

/// How many edges so many destinations have at most, where the fanout says so and they are few
/// enough.
pub(super) fn most_edges(draw: Draw, fanout: u32, rows: usize) -> Option<usize> {
    let each = match draw {
        Draw::Walks { walks, length, .. } => fanout.min(walks * length),
        _ => Some(fanout).filter(|&fanout| fanout != ALL)?,
    };
    rows.checked_mul(each as usize).filter(|&edges| edges <= UNCOUNTED)
}

impl Hop<'_> {
    /// Counts the edges of all nodes: where each one's start, and on the device how many there are.
    /// Words for later kernels become 0 with its own.
    pub(super) fn count(&self, nodes: &Nodes, later: usize) -> Result<(Counted, Zeros)> {
        let (queue, rows) = (self.queue, nodes.most);
        let (graph, parts) = (self.topology.table(), self.topology.num_parts());
        let indptr = queue.take(4 * (rows + 1))?;
        let (at, ids) = (indptr.address(), nodes.ids.address());
        let mut zeros = Zeros::new(queue, zeros::of_starts(rows) + later)?;
        let visits = match self.draw {
            Draw::Walks { walks, length, restart } => Some(self.walk(nodes, [walks, length], restart, at)?),
            _ => None,
        };
        let counted = u32::from(visits.is_some());
        let dealt = zeros.take(zeros::of_starts(rows));
        let arguments =
            arguments![graph, parts, ids, self.fanout, self.draw.mode(), counted, at, self.sizes, dealt];
        // SAFETY: the graph is that of the sampler, ids are of its nodes, of whom there are at most
        // as many; there is room for a count of each and one more, and a word for each tile
        unsafe { queue.run("sample_starts", TILE_THREADS * zeros::starts_tiles(rows), arguments)? };
        Ok((Counted { indptr, visits }, zeros))
    }

    /// Draws the edges that were counted, `most` of them at most, and puts their sources into
    /// `slots`.
    pub(super) fn draw(&self, nodes: &Nodes, counted: Counted, most: usize, slots: Slots) -> Result<Drawn> {
        let (queue, rows) = (self.queue, nodes.most);
        let Counted { indptr, visits } = counted;
        let (graph, parts) = (self.topology.table(), self.topology.num_parts());
        let indices = queue.take(4 * most)?;
        let (ids, sizes, at, out) = (nodes.ids.address(), self.sizes, indptr.address(), indices.address());
        let (fanout, mode, (entries, mask, dense)) = (self.fanout, self.draw.mode(), slots);
        let mut edge_weight = None;
        // SAFETY: as in `count`; `most` edges are the most that were counted for the same rows and
        // fanout, and the table has room for their sources
        unsafe {
            match self.draw {
                Draw::Walks { walks, length, .. } => {
                    let (visited, times) = visits.as_ref().expect("walks were counted by their visits");
                    let weights = queue.take(4 * most)?;
                    let makes = match self.aggregation {
                        Aggregation::Other => 0u32,
                        Aggregation::Mean => 1,
                        Aggregation::Sum | Aggregation::Symmetric => 2,
                    };
                    let width = fanout.min(walks * length);
                    let from = [visited.address(), times.address()];
                    #[rustfmt::skip]
                    let arguments = arguments![
                        graph, parts, ids, sizes, at, width, from[0], from[1], makes, entries, mask, dense, out,
                        weights.address()
                    ];
                    queue.run("walk_edges", rows * width as usize, arguments)?;
                    edge_weight = Some(weights);
                }
                _ if fanout == ALL => {
                    let arguments = arguments![graph, parts, ids, sizes, at, entries, mask, dense, out];
                    queue.run("sample_copy", most, arguments)?;
                }
                Draw::Distinct if fanout <= FEW => {
                    let group = fanout.next_power_of_two();
                    #[rustfmt::skip]
                    let arguments = arguments![
                        graph, parts, ids, sizes, at, fanout, group, self.key, entries, mask, dense, out
                    ];
                    queue.run("sample_few", rows * group as usize, arguments)?;
                }
                Draw::Distinct => self.many(nodes, at, out, slots)?,
                Draw::Again | Draw::Alias => {
                    #[rustfmt::skip]
                    let arguments = arguments![
                        graph, parts, ids, sizes, at, fanout, mode, self.key, entries, mask, dense, out
                    ];
                    queue.run("sample_again", rows * fanout as usize, arguments)?;
                }
            }
        }
        Ok(Drawn { indptr, indices, most, edge_weight })
    }

    /// Without replacement, with a table for each warp.
    fn many(&self, nodes: &Nodes, indptr: Address, out: Address, of_batch: Slots) -> crate::Result<()> {
        let (graph, parts) = (self.topology.table(), self.topology.num_parts());
        let (queue, rows, fanout) = (self.queue, nodes.most, self.fanout);
        let slots = (2 * fanout).next_power_of_two();
        let each = (THREADS / WARP) as usize;
        let most = 8 * self.queue.device().properties().multiprocessors.max(1) as usize;
        let fits = TABLES / (4 * slots as usize * each);
        let blocks = rows.div_ceil(each).min(most).min(fits).max(1);
        let tables = queue.scratch(4 * slots as usize * each * blocks)?;
        let shape = Shape { grid: [blocks as u32, 1, 1], block: [THREADS, 1, 1], shared: 0 };
        let (ids, sizes, (entries, mask, dense)) = (nodes.ids.address(), self.sizes, of_batch);
        let at = tables.address();
        #[rustfmt::skip]
        let arguments = arguments![
            graph, parts, ids, sizes, indptr, fanout, self.key, at, slots, entries, mask, dense, out
        ];
        // SAFETY: as in `draw`; a table for each warp
        unsafe { queue.launch("sample_many", shape, arguments) }
    }

    /// PinSAGE's neighbourhoods: the nodes that walks visit most, and how often. How many there are
    /// goes to `counts`.
    fn walk(
        &self,
        nodes: &Nodes,
        [walks, length]: [u32; 2],
        restart: f64,
        counts: Address,
    ) -> Result<(Buffer, Buffer)> {
        let (queue, rows) = (self.queue, nodes.most);
        let (graph, parts, ids) = (self.topology.table(), self.topology.num_parts(), nodes.ids.address());
        let visits = walks * length;
        let width = self.fanout.min(visits);
        let bytes = 4 * rows * width as usize;
        let (visited, times) = (queue.scratch(bytes)?, queue.scratch(bytes)?);
        let most = 32 * queue.device().properties().multiprocessors.max(1) as usize;
        let warps = (THREADS / WARP) as usize;
        let blocks = rows.div_ceil(warps).min(most) as u32;
        let shape = Shape { grid: [blocks, 1, 1], block: [THREADS, 1, 1], shared: 8 * visits * warps as u32 };
        let (restart, to) = (restart.to_bits(), [visited.address(), times.address()]);
        #[rustfmt::skip]
        let arguments = arguments![
            graph, parts, ids, self.sizes, walks, length, restart, self.key, width, to[0], to[1], counts
        ];
        // SAFETY: the graph is that of the sampler, ids are of its nodes; `width` places for each,
        // and a count
        unsafe { queue.launch("walk_draw", shape, arguments)? };
        Ok((visited, times))
    }

    /// Makes local ids of the sources in `drawn`, which are slots, and appends the new ones to the
    /// nodes.
    pub(super) fn number(&self, nodes: &mut Nodes, drawn: &Drawn, zeros: &mut Zeros) -> Result<()> {
        let (entries, ..) = nodes.slots();
        let dealt = zeros.take(zeros::of_numbers(drawn.most));
        let threads = TILE_THREADS * zeros::edge_tiles(drawn.most);
        let arguments = arguments![entries, drawn.indices.address(), nodes.ids.address(), self.sizes, dealt];
        // SAFETY: the sources are slots of the table, the nodes have room for all of them that are
        // new, and there is a word for each tile
        unsafe { self.queue.run("relabel_number", threads, arguments)? };
        nodes.most = nodes.with(drawn.most);
        Ok(())
    }
}
