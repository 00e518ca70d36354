//! One hop on a device: what its destinations draw, and local numbers for it.

use std::sync::Arc;

use graphmill_graph::{Result, block::Aggregation};
use graphmill_loader::sampler::too_many;

use super::{Draw, Topology};
use crate::{
    Buffer, Queue, arguments,
    device::{THREADS, WARP},
    driver::{Address, Shape},
    scan,
};

/// The fanout that takes all.
pub(super) const ALL: u32 = u32::MAX;
/// Up to this fanout a row is a few lanes' work.
const FEW: u32 = 32;
/// Bytes of the tables of rows being drawn with larger fanouts.
const TABLES: usize = 32 << 20;

/// The nodes that a batch has so far, on a device.
pub(super) struct Nodes {
    /// Ids, u32, `count` of them.
    pub(super) ids: Buffer,
    pub(super) count: usize,
    /// The edges of the next hop, where they were counted already.
    pub(super) edges: Option<u64>,
}

/// What a hop drew.
pub(super) struct Drawn {
    pub(super) indptr: Buffer,
    /// Sources, as global ids.
    pub(super) indices: Buffer,
    pub(super) edges: usize,
    pub(super) edge_weight: Option<Buffer>,
}

/// What kernels of a hop are given.
pub(super) struct Hop<'a> {
    pub(super) queue: &'a Arc<Queue>,
    pub(super) topology: &'a Topology,
    pub(super) draw: Draw,
    pub(super) fanout: u32,
    pub(super) key: u64,
    pub(super) aggregation: Aggregation,
}

impl Hop<'_> {
    /// Draws the in-neighbours of all nodes.
    pub(super) fn draw(&self, nodes: &Nodes) -> Result<Drawn> {
        if let Draw::Walks { .. } = self.draw {
            return self.walk(nodes);
        }
        let (queue, rows) = (self.queue, nodes.count);
        let (graph, parts) = (self.topology.table(), self.topology.num_parts());
        let (ids, fanout, mode) = (nodes.ids.address(), self.fanout, self.draw.mode());
        let indptr = queue.take(4 * (rows + 1))?;
        let at = indptr.address();
        // SAFETY: the graph is that of the sampler, ids are of its nodes, and there is room for a count of each and one more
        unsafe {
            queue.run("sample_count", rows, arguments![graph, parts, ids, rows, fanout, mode, at])?;
        }
        let edges = self.scanned(&indptr, rows, nodes.edges)?;
        let indices = queue.take(4 * edges)?;
        let out = indices.address();
        // SAFETY: as above; edges have been counted for the same rows and fanout
        unsafe {
            match self.draw {
                _ if fanout == ALL => {
                    queue.run("sample_copy", edges, arguments![graph, parts, ids, rows, at, edges, out])?;
                }
                Draw::Distinct if fanout <= FEW => {
                    let group = fanout.next_power_of_two();
                    let arguments = arguments![graph, parts, ids, rows, at, fanout, group, self.key, out];
                    queue.run("sample_few", rows * group as usize, arguments)?;
                }
                Draw::Distinct => self.many(nodes, at, out)?,
                Draw::Again | Draw::Alias | Draw::Walks { .. } => {
                    let arguments = arguments![graph, parts, ids, rows, at, fanout, mode, self.key, out];
                    queue.run("sample_again", rows * fanout as usize, arguments)?;
                }
            }
        }
        Ok(Drawn { indptr, indices, edges, edge_weight: None })
    }

    /// Without replacement, with a table for each warp.
    fn many(&self, nodes: &Nodes, indptr: Address, out: Address) -> crate::Result<()> {
        let (graph, parts) = (self.topology.table(), self.topology.num_parts());
        let (queue, rows, fanout) = (self.queue, nodes.count, self.fanout);
        let slots = (2 * fanout).next_power_of_two();
        let each = (THREADS / WARP) as usize;
        let most = 8 * self.queue.device().properties().multiprocessors.max(1) as usize;
        let fits = TABLES / (4 * slots as usize * each);
        let blocks = rows.div_ceil(each).min(most).min(fits).max(1);
        let tables = queue.scratch(4 * slots as usize * each * blocks)?;
        let shape = Shape { grid: [blocks as u32, 1, 1], block: [THREADS, 1, 1], shared: 0 };
        let (ids, tables) = (nodes.ids.address(), &tables);
        let arguments =
            arguments![graph, parts, ids, rows, indptr, fanout, self.key, tables.address(), slots, out];
        // SAFETY: as in `draw`; a table for each warp
        unsafe { queue.launch("sample_many", shape, arguments) }
    }

    /// PinSAGE's neighbourhoods.
    fn walk(&self, nodes: &Nodes) -> Result<Drawn> {
        let Draw::Walks { walks, length, restart } = self.draw else { unreachable!("the caller has looked") };
        let (queue, rows) = (self.queue, nodes.count);
        let (graph, parts, ids) = (self.topology.table(), self.topology.num_parts(), nodes.ids.address());
        let visits = walks * length;
        let width = self.fanout.min(visits);
        let indptr = queue.take(4 * (rows + 1))?;
        let (visited, times) =
            (queue.scratch(4 * rows * width as usize)?, queue.scratch(4 * rows * width as usize)?);
        let most = 32 * queue.device().properties().multiprocessors.max(1) as usize;
        let warps = (THREADS / WARP) as usize;
        let blocks = rows.div_ceil(warps).min(most) as u32;
        let shape = Shape { grid: [blocks, 1, 1], block: [THREADS, 1, 1], shared: 8 * visits * warps as u32 };
        let (at, visited_at, times_at) = (indptr.address(), visited.address(), times.address());
        // SAFETY: the graph is that of the sampler, ids are of its nodes; `width` places for each, and a count and one more
        unsafe {
            let arguments = arguments![
                graph,
                parts,
                ids,
                rows,
                walks,
                length,
                restart.to_bits(),
                self.key,
                width,
                visited_at,
                times_at,
                at
            ];
            queue.launch("walk_draw", shape, arguments)?;
        }
        let edges = self.scanned(&indptr, rows, None)?;
        let (indices, weights) = (queue.take(4 * edges)?, queue.take(4 * edges)?);
        let makes = match self.aggregation {
            Aggregation::Other => 0u32,
            Aggregation::Mean => 1,
            Aggregation::Sum | Aggregation::Symmetric => 2,
        };
        let (out, weights_at) = (indices.address(), weights.address());
        // SAFETY: as above, and an edge and a weight for all that were counted
        unsafe {
            let arguments =
                arguments![graph, parts, ids, rows, at, width, visited_at, times_at, makes, out, weights_at];
            queue.run("walk_edges", rows * width as usize, arguments)?;
        }
        Ok(Drawn { indptr, indices, edges, edge_weight: Some(weights) })
    }

    /// Makes starts of the counts in `indptr`; how many edges there are, counted before or now.
    fn scanned(&self, indptr: &Buffer, rows: usize, known: Option<u64>) -> Result<usize> {
        let total = self.queue.scratch(8)?;
        // SAFETY: there is a count for each row, and one more
        unsafe { scan::exclusive(self.queue, indptr.address(), rows, total.address())? };
        let edges = match known {
            Some(edges) => edges,
            None => {
                let mut edges = [0u64];
                total.download(&mut edges)?;
                edges[0]
            }
        };
        // positions of nodes and edges have 32 bits together
        if edges + rows as u64 >= u64::from(u32::MAX) {
            return Err(too_many(edges));
        }
        Ok(edges as usize)
    }

    /// Makes local ids of the sources in `drawn`, and appends the new ones to the nodes, of whom there are at most `num_nodes`. Where there is a
    /// `next` hop its edges are counted.
    pub(super) fn number(
        &self,
        nodes: Nodes,
        drawn: &Drawn,
        num_nodes: usize,
        next: Option<(Draw, u32)>,
    ) -> Result<Nodes> {
        let (queue, driver) = (self.queue, self.queue.device().driver());
        let (count, edges) = (nodes.count, drawn.edges);
        let most = (count + edges).min(num_nodes);
        let open = (2 * most).next_power_of_two().max(2);
        let dense = num_nodes <= open;
        let slots = if dense { num_nodes } else { open };
        let mask = if dense { 0 } else { (slots - 1) as u32 };
        let table = queue.scratch(8 * slots)?;
        let first = queue.scratch(4 * (edges + 1))?;
        let ids = queue.take(4 * most)?;
        // the sum of the scan, nodes, edges of the next hop
        let totals = queue.scratch(24)?;
        let (sum, all) = (totals.address(), totals.address().offset(8));
        let (at, old, new) = (table.address(), nodes.ids.address(), ids.address());
        let (indices, before) = (drawn.indices.address(), first.address());
        // SAFETY: slots for all ids, flags for all edges and one more, room for all nodes there can be
        unsafe {
            driver.fill(at, u32::MAX, 2 * slots, queue.stream())?;
            driver.fill(sum, 0, 6, queue.stream())?;
            driver.copy(old, new, 4 * count, queue.stream())?;
            let arguments = arguments![at, mask, u32::from(dense), old, count, indices, edges];
            queue.run("relabel_put", count + edges, arguments)?;
            queue.run("relabel_first", edges, arguments![at, count, indices, edges, before])?;
            scan::exclusive(queue, before, edges, sum)?;
            queue.run(
                "relabel_number",
                edges.max(1),
                arguments![at, count, indices, edges, before, new, all],
            )?;
            if let Some((draw, fanout)) = next {
                let (graph, parts) = (self.topology.table(), self.topology.num_parts());
                let arguments =
                    arguments![graph, parts, new, all, fanout, draw.mode(), totals.address().offset(16)];
                queue.run("sample_total", most, arguments)?;
            }
        }
        let mut found = [0u64; 3];
        totals.download(&mut found)?;
        Ok(Nodes { ids, count: found[1] as usize, edges: next.map(|_| found[2]) })
    }
}
