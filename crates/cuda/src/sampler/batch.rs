//! A batch on a device, hop by hop.
//!
//! How many nodes and edges there are the device knows; the host knows how many there are at most,
//! by the fanouts, takes memory for as many and starts as many threads. It waits once, in the end,
//! when a kernel has told it the sizes and the input nodes. Where a fanout does not say how many
//! edges there may be, or too many, the host waits for the hop's count, too.

use std::sync::Arc;

use graphmill_core::{Error, NodeId, Result, block::OnDevice, keyed};
use graphmill_loader::{BatchKey, BlockLayout, Sampled, Seeds, sampler::too_many};

use super::{
    DeviceSampler,
    hop::{Drawn, Hop, most_edges},
    nodes::{NO_SLOTS, Nodes},
    transpose::{self, Transposed, transpose},
    zeros::{self, Zeros},
};
use crate::{Buffer, Queue, arguments, block::Resident, driver::Address};

/// A hop's block, as the device has it.
struct Layer {
    drawn: Drawn,
    self_weight: Option<Buffer>,
    transposed: Option<Transposed>,
}

/// What a hop's block is to be.
#[derive(Clone, Copy)]
struct Wanted {
    /// Whether sources get local ids.
    is_local: bool,
    is_transposed: bool,
}

impl Wanted {
    fn of(form: &BlockLayout, hop: usize, layers: usize) -> Self {
        let is_local = !(form.fused && hop + 1 == layers);
        Self { is_local, is_transposed: is_local && form.transposed >> (layers - 1 - hop) & 1 == 1 }
    }

    /// Words that are to be 0, where so many edges bring the nodes to so many.
    fn words(self, edges: usize, nodes: usize) -> usize {
        let local = if self.is_local { zeros::of_numbers(edges) } else { 0 };
        local + if self.is_transposed { transpose::words(edges, nodes) } else { 0 }
    }
}

impl DeviceSampler {
    /// Draws a whole batch in a queue of its own.
    pub(super) fn draw(
        &self,
        queue: &Arc<Queue>,
        key: BatchKey,
        form: BlockLayout,
        seeds: Seeds,
    ) -> Result<Sampled> {
        let layers = self.fanout.len();
        let mut batch = seeds.into_sampled(layers);
        let mut counts = vec![0u64; 2 * layers + 1];
        counts[0] = batch.seeds.nodes.len() as u64;
        let sizes = queue.upload(&counts)?;
        let mut nodes = Nodes::new(queue, &batch.seeds.nodes, self.graph.num_nodes())?;
        let mut drawn = Vec::with_capacity(layers);
        for hop in 0..layers {
            let at = Hop {
                queue,
                topology: &self.topology,
                draw: self.draw,
                fanout: self.fanout[hop],
                key: keyed::key(&[key.seed, key.epoch, key.batch, hop as u64]),
                aggregation: form.aggregation,
                sizes: sizes.address().offset(16 * hop),
            };
            drawn.push(self.layer(&at, hop, &form, &mut nodes)?);
        }
        // the input nodes are the destinations of a fused bottom block
        let last = 2 * layers - if form.fused { 2 } else { 0 };
        self.tell(queue, &sizes, last, &nodes, &mut counts, &mut batch.input_nodes)?;
        let mut ids = Some(nodes.ids);
        for (hop, layer) in drawn.into_iter().enumerate() {
            let [rows, edges, sources] = [0, 1, 2].map(|i| counts[2 * hop + i] as usize);
            let block = &mut batch.blocks[layers - 1 - hop];
            block.clear();
            (block.num_dst, block.num_src) = (rows, sources);
            let is_global = form.fused && hop + 1 == layers;
            if is_global {
                block.num_src = self.graph.num_nodes();
                block.dst_ids = Some(Vec::new());
            }
            let Layer { drawn, self_weight, transposed } = layer;
            block.device = OnDevice::of(Arc::new(Resident {
                num_dst: rows,
                num_edges: edges,
                indptr: drawn.indptr,
                indices: drawn.indices,
                dst_ids: ids.take_if(|_| is_global),
                // a block without edges has no weights either
                edge_weight: drawn.edge_weight.filter(|_| edges > 0),
                self_weight: self_weight.filter(|_| rows > 0),
                transposed: transposed.map(|back| back.resident(sources, edges)),
            }));
        }
        if let Some(ids) = ids {
            batch.device_input = Some(Arc::new(ids));
        }
        Ok(batch)
    }

    /// Draws a hop.
    fn layer(&self, at: &Hop, hop: usize, form: &BlockLayout, nodes: &mut Nodes) -> Result<Layer> {
        let (queue, wanted) = (at.queue, Wanted::of(form, hop, self.fanout.len()));
        let known = most_edges(at.draw, at.fanout, nodes.most);
        let later = known.map_or(0, |edges| wanted.words(edges, nodes.with(edges)));
        let (counted, mut zeros) = at.count(nodes, later)?;
        let most = match known {
            Some(edges) => edges,
            None => {
                let edges = counted_edges(at, wanted, nodes)?;
                zeros = Zeros::new(queue, wanted.words(edges, nodes.with(edges)))?;
                edges
            }
        };
        if wanted.is_local {
            // asked for where it is known how many nodes there are: the hops up to the next count
            // find it made
            let room = self.horizon(form, hop, nodes, most);
            if !nodes.has_room(room) {
                nodes.make_room(queue, room)?;
            }
        }
        let slots = if wanted.is_local { nodes.slots() } else { NO_SLOTS };
        let mut drawn = at.draw(nodes, counted, most, slots)?;
        let self_weight = match form.symmetric {
            Some(weights) => Some(self.normalize(at, weights, nodes, &mut drawn, slots)?),
            None => None,
        };
        let mut transposed = None;
        if wanted.is_local {
            at.number(nodes, &drawn, &mut zeros)?;
        }
        if wanted.is_transposed {
            // SAFETY: the edges have just been numbered, and there are no more nodes than that
            transposed = Some(unsafe { transpose(queue, nodes.most, &drawn, at.sizes, &mut zeros)? });
        }
        Ok(Layer { drawn, self_weight, transposed })
    }

    /// How many nodes there are at most when this hop, of so many edges, and those are drawn that
    /// nobody has to count first.
    fn horizon(&self, form: &BlockLayout, hop: usize, nodes: &Nodes, edges: usize) -> usize {
        let layers = self.fanout.len();
        let mut room = nodes.with(edges);
        for later in hop + 1..layers {
            let edges = most_edges(self.draw, self.fanout[later], room);
            let Some(edges) = edges.filter(|_| Wanted::of(form, later, layers).is_local) else { break };
            room = nodes.with_many(room, edges);
        }
        room
    }

    /// Has a kernel tell the host the sizes and the nodes, of which there are as many as the size
    /// at `last` says, and waits: others read the blocks in streams of their own.
    fn tell(
        &self,
        queue: &Arc<Queue>,
        sizes: &Buffer,
        last: usize,
        nodes: &Nodes,
        counts: &mut [u64],
        to: &mut Vec<NodeId>,
    ) -> Result<()> {
        let (head, most) = (8 * counts.len(), nodes.most);
        let work = |host: Address| -> Result<()> {
            let (from, ids) = (sizes.address(), nodes.ids.address());
            let arguments = arguments![from, head / 8, last, ids, host, host.offset(head)];
            // SAFETY: there is room for the sizes, and behind them for as many nodes as there are
            // at most
            unsafe { queue.run("sample_tell", most.max(head / 8), arguments)? };
            Ok(queue.synchronize()?)
        };
        self.stagings.with(queue.device(), head + 4 * most, work, |told| {
            counts.copy_from_slice(bytemuck::cast_slice(&told[..head]));
            to.clear();
            to.extend_from_slice(bytemuck::cast_slice(&told[head..head + 4 * counts[last] as usize]));
        })
    }
}

/// Waits for a hop's count. How many destinations there are is known then, too.
fn counted_edges(at: &Hop, wanted: Wanted, nodes: &mut Nodes) -> Result<usize> {
    let mut sizes = [0u64; 2];
    // SAFETY: they are a hop's first two
    unsafe { at.queue.download(at.sizes, &mut sizes)? };
    let [rows, edges] = sizes;
    nodes.most = rows as usize;
    // starts have 32 bits, numbers of nodes and edges 31
    if edges + rows >= u64::from(u32::MAX) {
        return Err(too_many(edges));
    }
    if wanted.is_local && edges + rows > i32::MAX as u64 {
        return Err(Error::invalid(format!(
            "a minibatch needs a block of {edges} edges, and a device numbers at most 2^31 - 1 nodes and edges: use a smaller batch or fanout"
        )));
    }
    Ok(edges as usize)
}
