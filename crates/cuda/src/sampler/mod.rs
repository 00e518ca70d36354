//! Samplers on a device, which draw the same blocks, element by element, as the CPU's samplers
//! under the same key.
//!
//! A hop is counted (`kernels/starts.cu`), drawn (`sample.cu`, `walk.cu`) into a hash table on the
//! device, numbered by it (`relabel.cu`) and transposed if needed (`transpose.cu`): three kernels,
//! plus two and one per digit for a transpose. At the end the host receives the numbers of nodes
//! and edges and the input nodes; the blocks stay on the device
//! ([`graphmill_core::block::OnDevice`]).

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
use nodes::Nodes;
use plan::Plan;
pub use plan::is_drawn_on_devices;
use staging::Stagings;
pub use topology::{Topology, TopologyPlacement};

use crate::{
    Buffer, Device, Queue,
    kernels::{self, Slots},
    pool::QueuePool,
};

/// Method by which a hop draws neighbours.
#[derive(Clone, Copy, Debug)]
enum Draw {
    /// Uniformly, without replacement.
    Distinct,
    /// Uniformly, with replacement.
    WithReplacement,
    /// With replacement, in proportion to weights, by alias tables.
    Alias,
    /// The nodes that short walks visit most.
    Walks { walks: u32, length: u32, restart: f64 },
}

impl Draw {
    /// Number of the method in the kernels.
    fn mode(self) -> u32 {
        match self {
            Self::Distinct | Self::Walks { .. } => 0,
            Self::WithReplacement => 1,
            Self::Alias => 2,
        }
    }
}

/// Result of [`make`].
#[derive(Debug)]
pub enum SamplerPlacement {
    /// A sampler for each device.
    OnDevices(Vec<DeviceSampler>),
    /// The CPU must draw; the reason.
    OnHost(String),
}

/// Creates the sampler of that name (in [`graphmill_loader::sampler::TABLE`]) for each of
/// `devices`, which may use `budget` bytes each for the graph (see [`Topology::new`]).
///
/// Devices draw for the samplers of [`is_drawn_on_devices`], with most of their options.
///
/// # Errors
/// An option is invalid, or the devices' memory is insufficient.
pub fn make(
    devices: &[Arc<Device>],
    name: &str,
    options: &SamplerOptions,
    source: &Source,
    budget: u64,
) -> Result<SamplerPlacement, String> {
    let graph = source.graph;
    let (inner, draw, fanout, alias) = match plan::make(name, options, source)? {
        Plan::OnDevices { inner, draw, fanout, alias } => (inner, draw, fanout, alias),
        Plan::OnHost(why) => return Ok(SamplerPlacement::OnHost(why)),
    };
    if graph.indptr().windows(2).any(|ends| ends[1] - ends[0] > u64::from(u32::MAX)) {
        return Ok(SamplerPlacement::OnHost("a node with more than 2^32 - 1 in-neighbours".into()));
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
    Ok(SamplerPlacement::OnDevices(devices.iter().zip(topologies).map(each).collect()))
}

/// A sampler on a device. Several threads may draw batches concurrently, each in its own queue. The
/// CPU draws from any graph other than the sampler's own, and batches in two steps
/// ([`SplitSampler`]).
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

/// Tables of the symmetric normalization on a device.
struct Symmetric {
    /// Host table of which they are copies.
    of: Arc<Vec<f32>>,
    inv_sqrt: Buffer<f32>,
    degrees: Option<Buffer<u32>>,
}

impl DeviceSampler {
    /// Placement of the graph.
    pub fn placement(&self) -> TopologyPlacement {
        self.topology.placement()
    }

    /// Bytes of the graph in the memory of its device.
    pub fn topology_bytes(&self) -> u64 {
        self.topology.device_bytes()
    }

    /// Device of the sampler.
    pub fn device(&self) -> &Arc<Device> {
        self.pool.device()
    }

    /// Copies of the tables on the device, created on first use.
    fn symmetric(&self, weights: &SymmetricWeights) -> Result<Arc<Symmetric>> {
        let mut cached = self.symmetric.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cached) = cached.as_ref().filter(|cached| Arc::ptr_eq(&cached.of, weights.inv_sqrt())) {
            return Ok(cached.clone());
        }
        let queue = Queue::new(self.pool.device())?;
        let made = Arc::new(Symmetric {
            of: weights.inv_sqrt().clone(),
            inv_sqrt: queue.upload(weights.inv_sqrt())?,
            degrees: weights.degrees().map(|degrees| queue.upload(degrees)).transpose()?,
        });
        queue.synchronize()?;
        *cached = Some(made.clone());
        Ok(made)
    }

    /// Fills the weights of the symmetric normalization and returns those of the own rows. `slots`
    /// determines the meaning of sources.
    #[allow(unsafe_code, reason = "device memory and kernels")]
    fn normalize(
        &self,
        at: &Hop,
        weights: &SymmetricWeights,
        nodes: &Nodes,
        drawn: &mut Drawn,
        slots: Slots,
    ) -> Result<Buffer<f32>> {
        let (queue, tables) = (at.queue, self.symmetric(weights)?);
        let mut own = queue.take(nodes.max_nodes)?;
        let known = drawn.edge_weight.is_some();
        let mut edge = match drawn.edge_weight.take() {
            Some(known) => known,
            None => queue.take(drawn.max_edges)?,
        };
        let kernel = kernels::SampleWeights {
            graph: self.topology.parts(),
            nodes: nodes.ids.read(),
            sizes: at.sizes.into(),
            indptr: drawn.indptr.read(),
            slots,
            indices: drawn.indices.read(),
            inv_sqrt: tables.inv_sqrt.read(),
            degrees: tables.degrees.as_ref().map(Buffer::read),
            known,
            own_weights: own.write(),
            weights: edge.write(),
        };
        // SAFETY: ids are of the graph's nodes, for which the tables have values; there is a weight
        // for each row and each edge
        unsafe { queue.run(drawn.max_edges.max(nodes.max_nodes), &kernel)? };
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
            self.placement()
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
        // devices draw from whole rows, with the excluded edges
        if !own || seeds.excluded().is_some() {
            return self.inner.sample(request, workspace, seeds);
        }
        if let Some(v) = seeds.nodes.iter().find(|&&v| v as usize >= graph.num_nodes()) {
            return Err(Error::invalid(format!(
                "seed {v} is not a node of the graph of {} nodes",
                graph.num_nodes()
            )));
        }
        self.pool.with(|queue| self.draw(queue, key, layout, seeds))
    }

    fn split(&self) -> Option<&dyn SplitSampler> {
        Some(&self.inner)
    }
}
