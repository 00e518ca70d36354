//! Seeds to blocks on a device: the same blocks, element by element, that the processor's samplers
//! draw under the same key.
//!
//! A hop is counted (`kernels/starts.cu`), drawn (`sample.cu`, `walk.cu`) into a hash table on the
//! device, numbered by it (`relabel.cu`) and transposed where that is wanted (`transpose.cu`):
//! three kernels, and two and one a digit more. The host learns how many nodes and edges there are,
//! and the input nodes, in the end; the blocks stay ([`graphmill_core::block::OnDevice`]).

mod batch;
mod hop;
mod nodes;
mod plan;
mod staging;
mod topology;
mod transpose;
mod zeros;

use std::sync::{Arc, Mutex, PoisonError};

use graphmill_core::{Error, Graph, Result};
use graphmill_loader::{
    MinibatchSampler, Sampled, Seeds, Workspace,
    sampler::{BatchRequest, HopStack, SamplerOptions, SamplerProperties, Source, SplitSampler},
    weights::SymmetricWeights,
};
use hop::{Drawn, Hop};
use nodes::{Nodes, Slots};
use plan::Plan;
pub use plan::is_drawn_on_devices;
use staging::Stagings;
pub use topology::{Place, Topology};

use crate::{Buffer, Device, Queue, arguments, driver::Address, pool::QueuePool};

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

/// The sampler of that name (of [`graphmill_loader::sampler::TABLE`]) for each of `devices`, which
/// may each use `budget` bytes for the graph (see [`Topology::new`]).
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
        pool: QueuePool::new(device),
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

/// A sampler on a device. Batches of several threads are drawn side by side, each in a queue of its
/// own. Another graph than the one it was made for, and batches in two steps ([`SplitSampler`]),
/// are drawn by the processor.
pub struct DeviceSampler {
    pool: QueuePool,
    graph: Graph,
    inner: HopStack,
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
        // SAFETY: ids are of the graph's nodes, which the tables have values for; a weight for each
        // row and each edge
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

impl MinibatchSampler for DeviceSampler {
    fn properties(&self) -> SamplerProperties {
        self.inner.properties()
    }

    fn sample(&self, request: &BatchRequest, workspace: &mut Workspace, seeds: Seeds) -> Result<Sampled> {
        let &BatchRequest { graph, key, layout } = request;
        let own = std::ptr::eq(graph.indptr(), self.graph.indptr())
            && std::ptr::eq(graph.indices(), self.graph.indices());
        if !own {
            return self.inner.sample(request, workspace, seeds);
        }
        if let Some(v) = seeds.nodes.iter().find(|&&v| v as usize >= graph.num_nodes()) {
            return Err(Error::invalid(format!("seed {v}: the graph has {} nodes", graph.num_nodes())));
        }
        self.pool.with(|queue| self.draw(queue, key, layout, seeds))
    }

    fn split(&self) -> Option<&dyn SplitSampler> {
        Some(&self.inner)
    }
}
