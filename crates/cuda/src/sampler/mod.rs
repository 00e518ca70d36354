//! Seeds to blocks on a device: the same blocks, element by element, that the processor's samplers draw under the same key.
//!
//! A hop is counted (`kernels/starts.cu`), drawn (`sample.cu`, `walk.cu`) into a hash table on the device, numbered by it (`relabel.cu`) and transposed
//! where that is wanted (`transpose.cu`): three kernels, and two and one a digit more. The host learns how many nodes and edges there are, and the input
//! nodes, in the end; the blocks stay ([`graphmill_graph::block::OnDevice`]).

mod batch;
mod hop;
mod nodes;
mod plan;
mod staging;
mod topology;
mod transpose;
mod zeros;

use std::sync::{Arc, Mutex, PoisonError};

use graphmill_graph::{Block, Error, Graph, NodeId, Result, block::Aggregation};
use graphmill_loader::{
    BatchKey, Form, MiniBatch, Sampler, Workspace,
    sampler::{SamplerOptions, Scratch, Source},
    weights::SymmetricWeights,
};
use hop::{Drawn, Hop};
use nodes::{Nodes, Slots};
use plan::Plan;
pub use plan::is_drawn_on_devices;
use staging::Stagings;
pub use topology::{Place, Topology};

use crate::{Buffer, Device, Queue, arguments, driver::Address, pool::Pool};

/// How a hop's neighbours are drawn.
#[derive(Clone, Copy, Debug)]
enum Draw {
    /// Uniformly, without replacement.
    Distinct,
    /// Uniformly, with replacement.
    Again,
    /// By alias tables, with replacement.
    Alias,
    /// By what short walks visit most.
    Walks { walks: u32, length: u32, restart: f64 },
}

impl Draw {
    /// Its number among the kernels.
    fn mode(self) -> u32 {
        match self {
            Self::Distinct | Self::Walks { .. } => 0,
            Self::Again => 1,
            Self::Alias => 2,
        }
    }
}

/// What [`make`] made.
#[derive(Debug)]
pub enum Made {
    /// A sampler for each device.
    OnDevices(Vec<DeviceSampler>),
    /// The processor has to draw: why.
    OnHost(String),
}

/// The sampler of that name (of [`graphmill_loader::sampler::TABLE`]) for each of `devices`, which may each use `budget` bytes for the
/// graph (see [`Topology::new`]).
///
/// Drawn on devices are those that [`is_drawn_on_devices`], by most of their options.
///
/// # Errors
/// What is wrong with the options; the devices' memory is not enough.
pub fn make(
    devices: &[Arc<Device>],
    name: &str,
    options: &SamplerOptions,
    source: &Source,
    budget: u64,
) -> Result<Made, String> {
    let graph = source.graph;
    let (inner, draw, fanout, alias) = match plan::make(name, options, source)? {
        Plan::OnDevices { inner, draw, fanout, alias } => (inner, draw, fanout, alias),
        Plan::OnHost(why) => return Ok(Made::OnHost(why)),
    };
    if graph.indptr().windows(2).any(|ends| ends[1] - ends[0] > u64::from(u32::MAX)) {
        return Ok(Made::OnHost("a node with more than 2^32 - 1 in-neighbours".into()));
    }
    let topologies = Topology::new(devices, graph, alias.as_ref(), budget).map_err(|e| e.to_string())?;
    let each = |(device, topology): (&Arc<Device>, Topology)| DeviceSampler {
        pool: Pool::new(device),
        graph: graph.clone(),
        inner: inner.clone(),
        draw,
        fanout: fanout.clone(),
        topology,
        symmetric: Mutex::default(),
        stagings: Stagings::default(),
    };
    Ok(Made::OnDevices(devices.iter().zip(topologies).map(each).collect()))
}

/// A sampler on a device. Batches of several threads are drawn side by side, each in a queue of its own. Another graph than the one it was made for,
/// and the parts of a batch ([`Sampler::sample_above`], [`Sampler::sample_bottom`]), are drawn by the processor.
pub struct DeviceSampler {
    pool: Pool,
    graph: Graph,
    inner: Arc<dyn Sampler>,
    draw: Draw,
    fanout: Vec<u32>,
    topology: Topology,
    symmetric: Mutex<Option<Arc<Symmetric>>>,
    stagings: Stagings,
}

/// The symmetric normalisation's tables on a device.
struct Symmetric {
    /// What they are copies of.
    of: Arc<Vec<f32>>,
    inv_sqrt: Buffer,
    degrees: Option<Buffer>,
}

impl DeviceSampler {
    /// Where the graph is.
    pub fn place(&self) -> Place {
        self.topology.place()
    }

    /// Its device.
    pub fn device(&self) -> &Arc<Device> {
        self.pool.device()
    }

    /// Copies of the tables on the device, made when they are first asked for.
    fn symmetric(&self, weights: &SymmetricWeights) -> Result<Arc<Symmetric>> {
        let mut kept = self.symmetric.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = kept.as_ref().filter(|kept| Arc::ptr_eq(&kept.of, weights.inv_sqrt())) {
            return Ok(kept.clone());
        }
        let queue = Queue::new(self.pool.device())?;
        let made = Arc::new(Symmetric {
            of: weights.inv_sqrt().clone(),
            inv_sqrt: queue.upload(weights.inv_sqrt())?,
            degrees: weights.degrees().map(|degrees| queue.upload(degrees)).transpose()?,
        });
        queue.synchronize()?;
        *kept = Some(made.clone());
        Ok(made)
    }

    /// Fills the symmetric normalisation's weights; the nodes' own. Sources are what `slots` says.
    fn normalize(
        &self,
        at: &Hop,
        weights: &SymmetricWeights,
        nodes: &Nodes,
        drawn: &mut Drawn,
        (entries, mask, dense): Slots,
    ) -> Result<Buffer> {
        let (queue, tables) = (at.queue, self.symmetric(weights)?);
        let own = queue.take(4 * nodes.most)?;
        let known = u32::from(drawn.edge_weight.is_some());
        let edge = match drawn.edge_weight.take() {
            Some(known) => known,
            None => queue.take(4 * drawn.most)?,
        };
        let (graph, parts) = (self.topology.table(), self.topology.num_parts());
        let (ids, inv_sqrt) = (nodes.ids.address(), tables.inv_sqrt.address());
        let degrees = tables.degrees.as_ref().map_or(Address(0), Buffer::address);
        let (indptr, indices) = (drawn.indptr.address(), drawn.indices.address());
        let (own_at, edge_at) = (own.address(), edge.address());
        #[rustfmt::skip]
        let arguments = arguments![
            graph, parts, ids, at.sizes, indptr, entries, mask, dense, indices, inv_sqrt, degrees, known, own_at, edge_at
        ];
        // SAFETY: ids are of the graph's nodes, which the tables have values for; a weight for each row and each edge
        unsafe { queue.run("sample_weights", drawn.most.max(nodes.most), arguments)? };
        drawn.edge_weight = Some(edge);
        Ok(own)
    }
}

impl std::fmt::Debug for DeviceSampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "DeviceSampler({:?} on {}, the graph {})",
            self.draw,
            self.pool.device().name(),
            self.place()
        )
    }
}

impl Sampler for DeviceSampler {
    fn num_layers(&self) -> usize {
        self.inner.num_layers()
    }

    fn is_random(&self) -> bool {
        self.inner.is_random()
    }

    fn draws_by_node(&self) -> bool {
        self.inner.draws_by_node()
    }

    fn reads_own_lists(&self) -> bool {
        self.inner.reads_own_lists()
    }

    fn reads_edge_weights(&self) -> bool {
        self.inner.reads_edge_weights()
    }

    fn sample_layer(
        &self,
        graph: &Graph,
        hop: usize,
        dst: &[NodeId],
        key: BatchKey,
        aggregation: Aggregation,
        scratch: &mut Scratch,
        block: &mut Block,
    ) -> Result<()> {
        self.inner.sample_layer(graph, hop, dst, key, aggregation, scratch, block)
    }

    fn sample(
        &self,
        graph: &Graph,
        seed: u64,
        epoch: u64,
        form: Form,
        workspace: &mut Workspace,
        batch: &mut MiniBatch,
    ) -> Result<()> {
        let same = |a: &[u64], b: &[u64]| std::ptr::eq(a, b);
        if !same(graph.indptr(), self.graph.indptr()) || !std::ptr::eq(graph.indices(), self.graph.indices())
        {
            return self.inner.sample(graph, seed, epoch, form, workspace, batch);
        }
        if let Some(v) = batch.seeds.iter().find(|&&v| v as usize >= graph.num_nodes()) {
            return Err(Error::invalid(format!("seed {v}: the graph has {} nodes", graph.num_nodes())));
        }
        let key = BatchKey { seed, epoch, batch: batch.number };
        self.pool.with(|queue| self.draw(queue, key, form, batch))
    }
}
