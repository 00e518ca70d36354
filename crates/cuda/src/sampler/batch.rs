//! Minibatch sampling on a device, hop by hop.
//!
//! The numbers of nodes and edges are known on the device; the host knows their bounds from the
//! fanouts, and allocates memory and launches threads for these. It waits once, at the end, for the
//! sizes and the input nodes. If a fanout gives no bound on the edges, or too large a bound, the
//! host also waits for the hop's count.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::sync::Arc;

use graphmill_core::{Error, NodeId, Result, block::OnDevice, keyed};
use graphmill_loader::{BatchKey, BlockLayout, Sampled, Seeds, feature::DeviceIds, sampler::too_many};

use super::{
    DeviceSampler,
    hop::{Drawn, Hop, edge_bound},
    nodes::{NO_SLOTS, Nodes},
    transpose::{self, Transposed, transpose},
    zeros::{self, Zeros},
};
use crate::{
    Buffer, Queue,
    block::Resident,
    driver::Address,
    kernels::{self, Out},
};

/// Block of a hop, on the device.
struct Layer {
    drawn: Drawn,
    self_weight: Option<Buffer<f32>>,
    transposed: Option<Transposed>,
}

/// Properties of a hop's block.
#[derive(Clone, Copy)]
struct HopLayout {
    /// If true, sources get local ids.
    is_local: bool,
    is_transposed: bool,
}

impl HopLayout {
    fn of(form: &BlockLayout, hop: usize, layers: usize) -> Self {
        let is_local = !(form.fused && hop + 1 == layers);
        Self { is_local, is_transposed: is_local && form.transposed >> (layers - 1 - hop) & 1 == 1 }
    }

    /// Number of zeroed words for a hop of this many edges, which bring the total of nodes to
    /// `nodes`.
    fn words(self, edges: usize, nodes: usize) -> usize {
        let local = if self.is_local { zeros::of_numbers(edges) } else { 0 };
        local + if self.is_transposed { transpose::words(edges, nodes) } else { 0 }
    }
}

impl DeviceSampler {
    /// Draws a whole batch in its own queue.
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
        let mut sizes = queue.upload(&counts)?;
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
                sizes: sizes.write().offset(2 * hop),
            };
            drawn.push(self.layer(&at, hop, &form, &mut nodes)?);
        }
        // the input nodes are the destinations of a fused bottom block
        let last = 2 * layers - if form.fused { 2 } else { 0 };
        self.report(queue, &sizes, last, &nodes, &mut counts, &mut batch.input_nodes)?;
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
                // a block without edges has no weights
                edge_weight: drawn.edge_weight.filter(|_| edges > 0),
                self_weight: self_weight.filter(|_| rows > 0),
                transposed: transposed.map(|back| back.resident(sources, edges)),
            }));
        }
        if let Some(ids) = ids {
            // SAFETY: the device drew them into this memory, and the host read them from it
            batch.device_input = Some(unsafe { DeviceIds::new(Arc::new(ids), &batch.input_nodes) });
        }
        Ok(batch)
    }

    /// Draws a hop.
    fn layer(&self, at: &Hop, hop: usize, form: &BlockLayout, nodes: &mut Nodes) -> Result<Layer> {
        let (queue, layout) = (at.queue, HopLayout::of(form, hop, self.fanout.len()));
        let known = edge_bound(at.draw, at.fanout, nodes.max_nodes);
        let later = known.map_or(0, |edges| layout.words(edges, nodes.with(edges)));
        let (counted, mut zeros) = at.count(nodes, later)?;
        let max_edges = match known {
            Some(edges) => edges,
            None => {
                let edges = counted_edges(at, layout, nodes)?;
                zeros = Zeros::new(queue, layout.words(edges, nodes.with(edges)))?;
                edges
            }
        };
        if layout.is_local {
            // reserved while the number of nodes is known, for all hops up to the next count
            let capacity = self.node_bound(form, hop, nodes, max_edges);
            if !nodes.has_capacity(capacity) {
                nodes.reserve(queue, capacity)?;
            }
        }
        let slots = if layout.is_local { nodes.slots() } else { NO_SLOTS };
        let mut drawn = at.draw(nodes, counted, max_edges, slots)?;
        let self_weight = match form.symmetric {
            Some(weights) => Some(self.normalize(at, weights, nodes, &mut drawn, slots)?),
            None => None,
        };
        let mut transposed = None;
        if layout.is_local {
            at.number(nodes, &mut drawn, &mut zeros)?;
        }
        if layout.is_transposed {
            // SAFETY: the edges have just been numbered, and there are no more nodes than that
            transposed =
                Some(unsafe { transpose(queue, nodes.max_nodes, &drawn, at.sizes.into(), &mut zeros)? });
        }
        Ok(Layer { drawn, self_weight, transposed })
    }

    /// Maximum number of nodes after this hop, of `edges` edges, and all later hops that need no
    /// count.
    fn node_bound(&self, form: &BlockLayout, hop: usize, nodes: &Nodes, edges: usize) -> usize {
        let layers = self.fanout.len();
        let mut capacity = nodes.with(edges);
        for later in hop + 1..layers {
            let edges = edge_bound(self.draw, self.fanout[later], capacity);
            let Some(edges) = edges.filter(|_| HopLayout::of(form, later, layers).is_local) else { break };
            capacity = nodes.with_many(capacity, edges);
        }
        capacity
    }

    /// Copies the sizes and the nodes, whose number is the size at `last`, to the host by a kernel,
    /// and waits, because other streams read the blocks.
    fn report(
        &self,
        queue: &Arc<Queue>,
        sizes: &Buffer<u64>,
        last: usize,
        nodes: &Nodes,
        counts: &mut [u64],
        to: &mut Vec<NodeId>,
    ) -> Result<()> {
        let (head, max_nodes) = (8 * counts.len(), nodes.max_nodes);
        let work = |host: Address| -> Result<()> {
            let (count, sizes_to, nodes_to) = (head / 8, Out::at(host), Out::at(host.offset(head)));
            let (sizes, nodes) = (sizes.read(), nodes.ids.read());
            let kernel = kernels::SampleSizes { sizes, count, last, nodes, sizes_to, nodes_to };
            // SAFETY: the memory is large enough for the sizes, followed by the maximum number of
            // nodes
            unsafe { queue.run(max_nodes.max(count), &kernel)? };
            Ok(queue.synchronize()?)
        };
        self.stagings.with(queue.device(), head + 4 * max_nodes, work, |bytes| {
            counts.copy_from_slice(bytemuck::cast_slice(&bytes[..head]));
            to.clear();
            to.extend_from_slice(bytemuck::cast_slice(&bytes[head..head + 4 * counts[last] as usize]));
        })
    }
}

/// Waits for a hop's number of edges, which also gives the exact number of destinations.
fn counted_edges(at: &Hop, layout: HopLayout, nodes: &mut Nodes) -> Result<usize> {
    let mut sizes = [0u64; 2];
    // SAFETY: they are the hop's first two sizes
    unsafe { at.queue.download(at.sizes.address(), &mut sizes)? };
    let [rows, edges] = sizes;
    nodes.max_nodes = rows as usize;
    // row starts have 32 bits, node and edge numbers 31
    if edges + rows >= u64::from(u32::MAX) {
        return Err(too_many(edges));
    }
    if layout.is_local && edges + rows > i32::MAX as u64 {
        return Err(Error::invalid(format!(
            "a minibatch needs a block of {edges} edges, and a device supports at most 2^31 - 1 nodes and \
             edges; use a smaller batch or fanout"
        )));
    }
    Ok(edges as usize)
}
