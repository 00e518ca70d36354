//! NVIDIA devices of the crate `graphmill-cuda`.

#![allow(unsafe_code, reason = "device memory and kernels")]

mod meter;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use graphmill_core::{
    NodeId, View, ViewMut,
    matrix::{TableData, TableType},
    units,
};
use graphmill_cuda::{
    Cuda, Device,
    feature::{Behind, Cached, Dynamic, Policy, Stored, Tiered},
    queue::Memory,
    replay::Counts,
    sampler::SamplerPlacement,
};
pub(crate) use graphmill_cuda::{driver::Arithmetic, sampler::is_drawn_on_devices as draws_on_devices};
use graphmill_loader::{
    Feature, MinibatchSampler,
    feature::{
        DeviceIds,
        cached::{CacheLayout, Late},
    },
    policy::{self, fifo::Fifo},
    sampler::{SamplerOptions, Source},
};
use graphmill_nn::Backend;

use super::samplers::Samplers;
use crate::{
    Error, Result,
    cache_kind::{Fill, counts_training, is_metric},
    record::{GraphRecord, NvidiaRecord},
};
pub(crate) use meter::Meter;

/// NVIDIA device with its operations.
pub(crate) struct Gpu {
    device: Arc<Device>,
    backend: Cuda,
    /// Bytes of the graph, and of cached feature rows, in its memory.
    topology_bytes: AtomicU64,
    cache_bytes: Arc<AtomicU64>,
}

impl Gpu {
    /// Opens device `number`, and uses at most `budget` bytes of its memory (0: all free memory).
    ///
    /// # Errors
    /// The device does not exist, or its driver cannot be used.
    pub(crate) fn open(number: usize, budget: u64, arithmetic: Arithmetic, graphs: bool) -> Result<Self> {
        let device = graphmill_cuda::open(number, budget)?;
        let backend = Cuda::new(&device, arithmetic)?.with_graphs(graphs);
        let (topology_bytes, cache_bytes) = (AtomicU64::default(), Arc::default());
        Ok(Self { device, backend, topology_bytes, cache_bytes })
    }

    /// Operations of the device.
    pub(crate) fn backend(&self) -> &dyn Backend {
        &self.backend
    }

    /// Operations of the device, with products in another arithmetic.
    pub(crate) fn with_arithmetic(&self, arithmetic: Arithmetic) -> Box<dyn Backend> {
        Box::new(Cuda::on(self.backend.queue(), arithmetic))
    }

    /// Number of the device, as matrices on it report it.
    pub(crate) fn number(&self) -> usize {
        self.device.number()
    }

    /// Bytes of its memory that the run may use.
    pub(crate) fn budget(&self) -> u64 {
        self.device.budget()
    }

    /// Bytes of its memory in use, and their peak.
    pub(crate) fn taken(&self) -> (u64, u64) {
        self.device.taken()
    }

    /// Bytes of its memory that are free, once unused memory of queues is returned.
    ///
    /// # Errors
    /// The device failed.
    pub(crate) fn free(&self) -> Result<u64> {
        self.device.trim()?;
        Ok(self.budget().saturating_sub(self.taken().0))
    }

    /// Sets the bytes of all caches of feature rows in its memory, for its record.
    pub(crate) fn set_cache_bytes(&self, bytes: u64) {
        self.cache_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns the first failure of the device.
    ///
    /// # Errors
    /// The device failed.
    pub(crate) fn check(&self) -> Result<()> {
        Ok(self.device.check()?)
    }

    /// Copies a value to the device. If its memory is full, the worker that trains there reports
    /// the error of the device.
    pub(crate) fn copy_here(&self, value: View) {
        let _ = value.on_device(&Memory(self.backend.queue().clone()));
    }

    /// Copies ids to the device and waits for them.
    ///
    /// # Errors
    /// Its memory is full, or it failed.
    pub(crate) fn upload(&self, ids: &[u32]) -> Result<DeviceIds> {
        let queue = self.backend.queue();
        let memory = Arc::new(queue.upload(ids)?);
        queue.synchronize()?;
        // SAFETY: they were copied there.
        Ok(unsafe { DeviceIds::new(memory, ids) })
    }

    /// Reason why it does not capture steps, if capturing failed.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.device.replayed().refused
    }

    /// Record of the device and its use, for the summary of a run.
    pub(crate) fn record(&self) -> NvidiaRecord {
        let Counts { captured, replayed, launched, refused } = self.device.replayed();
        let graphs = GraphRecord { captured, replayed, launched, refused };
        NvidiaRecord {
            device: self.device.name().to_string(),
            name: self.device.properties().name.clone(),
            budget_bytes: self.device.budget(),
            peak_bytes: self.device.taken().1,
            topology_bytes: self.topology_bytes.load(Ordering::Relaxed),
            cache_bytes: self.cache_bytes.load(Ordering::Relaxed),
            graphs: (replayed + launched > 0).then_some(graphs),
        }
    }

    /// Describes the device for a note.
    pub(crate) fn describe(&self) -> String {
        let (device, properties) = (&self.device, self.device.properties());
        let (major, minor) = properties.capability;
        format!(
            "{} is {} ({major}.{minor}), using up to {} of {}",
            device.name(),
            properties.name,
            units::bytes(device.budget()),
            units::bytes(properties.memory)
        )
    }
}

/// Sampler `name` of each device, or a note that the processor draws.
///
/// # Errors
/// An option is impossible, or the graph does not fit.
pub(super) fn samplers(
    gpus: &[Gpu],
    name: &str,
    options: &SamplerOptions,
    source: &Source,
    budget: u64,
) -> Result<Samplers, String> {
    let devices: Vec<Arc<Device>> = gpus.iter().map(|gpu| gpu.device.clone()).collect();
    Ok(match graphmill_cuda::sampler::make(&devices, name, options, source, budget)? {
        SamplerPlacement::OnDevices(each) => {
            let note = each.first().map(|sampler| {
                format!("neighbours are drawn on the device, the graph {}", sampler.placement())
            });
            for (gpu, sampler) in gpus.iter().zip(&each) {
                gpu.topology_bytes.store(sampler.topology_bytes(), Ordering::Relaxed);
            }
            let each =
                each.into_iter().map(|sampler| Arc::new(sampler) as Arc<dyn MinibatchSampler>).collect();
            Samplers { each, note }
        }
        SamplerPlacement::OnHost(why) => {
            let note = format!(
                "neighbours are drawn by the processor and blocks are copied: {why} is not for devices"
            );
            Samplers { each: Vec::new(), note: Some(note) }
        }
    })
}

/// Rows behind the caches of devices.
pub(crate) struct RowsBehind(Behind);

impl RowsBehind {
    /// Page-locks the rows of `values`, of `dim` values each, which devices then read in place.
    ///
    /// # Errors
    /// The system refuses to page-lock them.
    pub(crate) fn table(gpu: &Gpu, values: &TableData, dim: usize) -> Result<Self> {
        Ok(Self(Behind::Table(Stored::new(&gpu.device, values, dim)?)))
    }

    /// Rows of a tier that the host reads; devices hold them as values of type `kind`.
    pub(crate) fn tier(_: &Gpu, rows: Arc<dyn Feature>, kind: TableType) -> Self {
        Self(Behind::Tier(rows, kind))
    }

    /// Bytes of a row on a device.
    pub(crate) fn row_bytes(&self) -> usize {
        match &self.0 {
            Behind::Table(table) => table.row_bytes(),
            Behind::Tier(rows, kind) => rows.dim() * kind.width(),
        }
    }

    /// Returns true if the host reads the rows.
    pub(crate) fn is_tier(&self) -> bool {
        matches!(self.0, Behind::Tier(..))
    }

    /// Returns true if they are a page-locked copy.
    pub(crate) fn is_copy(&self) -> bool {
        matches!(&self.0, Behind::Table(table) if table.mapped().is_copy())
    }

    /// Returns true if the maps of a cache by this policy or metric are on the device.
    pub(crate) fn maps_on_device(&self, name: &str) -> bool {
        let on_device = Policy::ALL.iter().any(|(policy, _)| *policy == name);
        !self.is_tier() && (on_device || is_metric(name) && !counts_training(name))
    }

    /// The rows behind a dynamic cache of `slots` rows on the device.
    ///
    /// # Errors
    /// The policy is unknown, or an allocation fails.
    pub(crate) fn dynamic(&self, gpu: &Gpu, slots: usize, name: &str) -> Result<Arc<dyn Feature>> {
        let on_device = Policy::ALL.iter().find(|(policy, _)| *policy == name);
        if let (Behind::Table(table), Some(&(_, policy))) = (&self.0, on_device) {
            let rows = Dynamic::new(&gpu.device, table, slots, policy)?;
            gpu.cache_bytes.store(rows.device_bytes(), Ordering::Relaxed);
            return Ok(Arc::new(rows));
        }
        let make = policy::TABLE.find(name).map_err(Error::name)?.make;
        let rows = Cached::new(&gpu.device, self.0.clone(), make(self.num_rows(), slots))?;
        gpu.cache_bytes.store(rows.device_bytes(), Ordering::Relaxed);
        Ok(Arc::new(rows))
    }

    /// The rows as each of `gpus` reads them, which hold those of `held`, and then as each of
    /// `others` reads them: from `gpus` if all devices can read each other's memory. If the host
    /// reads the rows, each of `gpus` holds all of `held`, and reads no rows of the others.
    ///
    /// # Errors
    /// The rows cannot be read, or an allocation fails.
    pub(crate) fn tiered(
        &self,
        gpus: &[Gpu],
        others: &[Gpu],
        held: &CacheLayout,
    ) -> Result<Vec<Arc<dyn Feature>>> {
        let Behind::Table(table) = &self.0 else {
            let of_gpus = gpus.iter().map(|gpu| self.holding(gpu, &held.ids));
            return of_gpus.chain(others.iter().map(|gpu| self.holding(gpu, &[]))).collect();
        };
        let [on, beside] = [gpus, others]
            .map(|gpus| -> Vec<Arc<Device>> { gpus.iter().map(|gpu| gpu.device.clone()).collect() });
        let tiers = Tiered::with_readers(&on, &beside, table, held)?;
        for (gpu, tier) in gpus.iter().chain(others).zip(&tiers) {
            gpu.cache_bytes.store(tier.device_bytes(), Ordering::Relaxed);
        }
        Ok(tiers.into_iter().map(|tier| Arc::new(tier) as Arc<dyn Feature>).collect())
    }

    /// The rows behind a cache of the rows `ids` on the device.
    fn holding(&self, gpu: &Gpu, ids: &[NodeId]) -> Result<Arc<dyn Feature>> {
        let policy = Box::new(Fifo::new(self.num_rows(), ids.len()));
        let rows = Cached::new(&gpu.device, self.0.clone(), policy)?.holding(ids)?;
        gpu.cache_bytes.store(rows.device_bytes(), Ordering::Relaxed);
        Ok(Arc::new(rows))
    }

    /// The rows as the device reads them, all from behind until the cache is filled: then the
    /// device holds the first `slots` rows of a ranking.
    ///
    /// # Errors
    /// An allocation fails.
    pub(crate) fn late(&self, gpu: &Gpu, slots: usize) -> Result<(Arc<dyn Feature>, Fill)> {
        let late = Arc::new(Late::new(self.holding(gpu, &[])?));
        let (rows, behind, num_rows) = (late.clone(), self.0.clone(), self.num_rows());
        let (device, cache_bytes) = (gpu.device.clone(), gpu.cache_bytes.clone());
        let fill = move |ranking: &[NodeId]| {
            let ids = &ranking[..slots.min(ranking.len())];
            let policy = Box::new(Fifo::new(num_rows, ids.len()));
            let cache = Cached::new(&device, behind.clone(), policy)?.holding(ids)?;
            cache_bytes.store(cache.device_bytes(), Ordering::Relaxed);
            late.fill(Arc::new(cache));
            Ok(())
        };
        Ok((rows, Box::new(fill)))
    }

    fn num_rows(&self) -> usize {
        match &self.0 {
            Behind::Table(table) => table.num_rows(),
            Behind::Tier(rows, _) => rows.num_rows(),
        }
    }
}

/// Sum over several devices.
pub(crate) struct AllReduce(graphmill_cuda::AllReduce);

impl AllReduce {
    /// Sum over these devices.
    ///
    /// # Errors
    /// The library is not installed.
    pub(crate) fn new(gpus: &[Gpu]) -> Result<Self, String> {
        let queues = gpus.iter().map(|gpu| gpu.backend.queue().clone()).collect();
        graphmill_cuda::AllReduce::new(queues).map(Self).map_err(|error| error.to_string())
    }

    /// Name of the library that sums.
    pub(crate) fn name(&self) -> &str {
        self.0.name()
    }

    /// Replaces the matrices of each device by their sums over all devices.
    ///
    /// # Errors
    /// A device failed.
    pub(crate) fn sum(&self, each: Vec<Vec<ViewMut>>) -> Result<()> {
        Ok(self.0.sum(each)?)
    }
}

impl From<graphmill_cuda::Error> for Error {
    fn from(error: graphmill_cuda::Error) -> Self {
        Self::Gpu(error.to_string())
    }
}
