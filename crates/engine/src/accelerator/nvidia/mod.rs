//! NVIDIA devices of the crate `graphmill-cuda`.

mod meter;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use graphmill_core::{View, ViewMut, accelerator::DeviceMemory, matrix::TableData, units};
use graphmill_cuda::{
    Cuda, Device,
    feature::{Dynamic, Policy, Stored, Tiered},
    queue::Memory,
    replay::Counts,
    sampler::SamplerPlacement,
};
pub(crate) use graphmill_cuda::{driver::Arithmetic, sampler::is_drawn_on_devices as draws_on_devices};
use graphmill_loader::{
    Feature, MinibatchSampler,
    feature::cached::CacheLayout,
    sampler::{SamplerOptions, Source},
};
use graphmill_nn::Backend;

use super::samplers::Samplers;
use crate::{
    Error, Result,
    record::{GraphRecord, NvidiaRecord},
};
pub(crate) use meter::Meter;

/// NVIDIA device with its operations.
pub(crate) struct Gpu {
    device: Arc<Device>,
    backend: Cuda,
    /// Bytes of the graph, and of cached feature rows, in its memory.
    topology_bytes: AtomicU64,
    cache_bytes: AtomicU64,
}

impl Gpu {
    /// Opens device `number`, and uses at most `budget` bytes of its memory (0: all free memory).
    ///
    /// # Errors
    /// The device does not exist, or its driver cannot be used.
    pub(crate) fn open(number: usize, budget: u64, arithmetic: Arithmetic, graphs: bool) -> Result<Self> {
        let device = graphmill_cuda::open(number, budget)?;
        let backend = Cuda::new(&device, arithmetic)?.with_graphs(graphs);
        let (topology_bytes, cache_bytes) = (AtomicU64::default(), AtomicU64::default());
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
    pub(crate) fn upload(&self, ids: &[u32]) -> Result<Arc<dyn DeviceMemory>> {
        let queue = self.backend.queue();
        let ids = Arc::new(queue.upload(ids)?);
        queue.synchronize()?;
        Ok(ids)
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

/// Rows in host memory that devices read in place.
pub(crate) struct StoredRows(Arc<Stored>);

impl StoredRows {
    /// Page-locks the rows of `values`, of `dim` values each.
    ///
    /// # Errors
    /// The system refuses to page-lock them.
    pub(crate) fn new(gpu: &Gpu, values: &TableData, dim: usize) -> Result<Self> {
        Ok(Self(Stored::new(&gpu.device, values, dim)?))
    }

    /// Bytes of a row.
    pub(crate) fn row_bytes(&self) -> usize {
        self.0.row_bytes()
    }

    /// Returns true if they are a page-locked copy.
    pub(crate) fn is_copy(&self) -> bool {
        self.0.mapped().is_copy()
    }

    /// The rows behind a dynamic cache of `slots` rows on the device.
    ///
    /// # Errors
    /// Devices do not support the policy, or an allocation fails.
    pub(crate) fn dynamic(&self, gpu: &Gpu, slots: usize, policy: &str) -> Result<Arc<dyn Feature>> {
        let Some(&(_, policy)) = Policy::ALL.iter().find(|(name, _)| *name == policy) else {
            let known: Vec<&str> = Policy::ALL.iter().map(|(name, _)| *name).collect();
            let known = known.join(" and ");
            return Err(Error::usage(format!(
                "--cache {policy}: the dynamic policies of NVIDIA devices are {known}; use one of them, or \
                 a hotness"
            )));
        };
        let rows = Dynamic::new(&gpu.device, &self.0, slots, policy)?;
        gpu.cache_bytes.store(rows.device_bytes(), Ordering::Relaxed);
        Ok(Arc::new(rows))
    }

    /// The rows as each of `gpus` reads them, which hold those of `held`, and then as each of
    /// `others` reads them: from `gpus` if all devices can read each other's memory.
    ///
    /// # Errors
    /// An allocation fails.
    pub(crate) fn tiered(
        &self,
        gpus: &[Gpu],
        others: &[Gpu],
        held: &CacheLayout,
    ) -> Result<Vec<Arc<dyn Feature>>> {
        let [on, beside] = [gpus, others]
            .map(|gpus| -> Vec<Arc<Device>> { gpus.iter().map(|gpu| gpu.device.clone()).collect() });
        let tiers = Tiered::with_readers(&on, &beside, &self.0, held)?;
        for (gpu, tier) in gpus.iter().chain(others).zip(&tiers) {
            gpu.cache_bytes.store(tier.device_bytes(), Ordering::Relaxed);
        }
        Ok(tiers.into_iter().map(|tier| Arc::new(tier) as Arc<dyn Feature>).collect())
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
