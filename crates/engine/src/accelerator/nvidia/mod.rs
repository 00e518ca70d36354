//! NVIDIA devices, by the crate `graphmill-cuda`.

mod meter;

use std::sync::Arc;

use graphmill_core::{View, ViewMut, accelerator::DeviceMemory, matrix::TableData, units};
use graphmill_cuda::{
    Cuda, Device,
    feature::{Dynamic, Policy, Stored, Tiered},
    queue::Memory,
    replay::Counts,
    sampler::Made,
};
pub(crate) use graphmill_cuda::{driver::Arithmetic, sampler::is_drawn_on_devices as draws_on_devices};
use graphmill_loader::{
    Feature, MinibatchSampler,
    feature::cached::Placed,
    sampler::{SamplerOptions, Source},
};
use graphmill_nn::Backend;

use super::samplers::Samplers;
use crate::{
    Error, Result,
    record::{GraphRecord, NvidiaRecord},
};
pub(crate) use meter::Meter;

/// An NVIDIA device with its operations.
pub(crate) struct Gpu {
    device: Arc<Device>,
    backend: Cuda,
}

impl Gpu {
    /// The device of that number, of whose memory at most `budget` bytes are used (0: all that is
    /// free).
    ///
    /// # Errors
    /// A device that is not there, or whose driver cannot be used.
    pub(crate) fn open(number: usize, budget: u64, arithmetic: Arithmetic, graphs: bool) -> Result<Self> {
        let device = graphmill_cuda::open(number, budget)?;
        let backend = Cuda::new(&device, arithmetic)?.with_graphs(graphs);
        Ok(Self { device, backend })
    }

    /// Its operations.
    pub(crate) fn backend(&self) -> &dyn Backend {
        &self.backend
    }

    /// Its operations, with products in another arithmetic.
    pub(crate) fn with_arithmetic(&self, arithmetic: Arithmetic) -> Box<dyn Backend> {
        Box::new(Cuda::on(self.backend.queue(), arithmetic))
    }

    /// Number of the device that a matrix on it tells.
    pub(crate) fn number(&self) -> usize {
        self.device.number()
    }

    /// Bytes of its memory that may be used.
    pub(crate) fn budget(&self) -> u64 {
        self.device.budget()
    }

    /// Bytes of its memory that are taken, and the most that ever were.
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

    /// Copies a value to the device, if there is memory for it: if not, the device says so to the
    /// worker that trains there.
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

    /// The reason why it does not capture steps, where that was tried.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.device.replayed().refused
    }

    /// The device and its use, for the summary of a run.
    pub(crate) fn record(&self) -> NvidiaRecord {
        let Counts { captured, replayed, launched, refused } = self.device.replayed();
        let graphs = GraphRecord { captured, replayed, launched, refused };
        NvidiaRecord {
            device: self.device.name().to_string(),
            name: self.device.properties().name.clone(),
            budget_bytes: self.device.budget(),
            peak_bytes: self.device.taken().1,
            graphs: (replayed + launched > 0).then_some(graphs),
        }
    }

    /// The device in words.
    pub(crate) fn describe(&self) -> String {
        let (device, properties) = (&self.device, self.device.properties());
        let (major, minor) = properties.capability;
        format!(
            "{} is {} ({major}.{minor}), {} of {} to be used",
            device.name(),
            properties.name,
            units::bytes(device.budget()),
            units::bytes(properties.memory)
        )
    }
}

/// The sampler of that name for each device, or a note that the processor draws.
///
/// # Errors
/// An impossible option, or the graph does not fit.
pub(super) fn samplers(
    gpus: &[Gpu],
    name: &str,
    options: &SamplerOptions,
    source: &Source,
    budget: u64,
) -> Result<Samplers, String> {
    let devices: Vec<Arc<Device>> = gpus.iter().map(|gpu| gpu.device.clone()).collect();
    Ok(match graphmill_cuda::sampler::make(&devices, name, options, source, budget)? {
        Made::OnDevices(each) => {
            let note = each
                .first()
                .map(|sampler| format!("neighbours are drawn on the device, the graph {}", sampler.place()));
            let each =
                each.into_iter().map(|sampler| Arc::new(sampler) as Arc<dyn MinibatchSampler>).collect();
            Samplers { each, note }
        }
        Made::OnHost(why) => {
            let note = format!("the processor draws, and blocks are copied: {why} is not for devices");
            Samplers { each: Vec::new(), note: Some(note) }
        }
    })
}

/// Rows in host memory that devices read in place.
pub(crate) struct StoredRows(Arc<Stored>);

impl StoredRows {
    /// The rows of `values`, of `dim` values each, page-locked.
    ///
    /// # Errors
    /// They cannot be page-locked.
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

    /// The rows behind a cache of the device, whose rows come and go by that policy.
    ///
    /// # Errors
    /// A policy that devices do not know, or memory that cannot be had.
    pub(crate) fn dynamic(&self, gpu: &Gpu, slots: usize, policy: &str) -> Result<Arc<dyn Feature>> {
        let Some(&(_, policy)) = Policy::ALL.iter().find(|(name, _)| *name == policy) else {
            let known: Vec<&str> = Policy::ALL.iter().map(|(name, _)| *name).collect();
            let known = known.join(" and ");
            return Err(Error::usage(format!(
                "--cache {policy}: of the policies whose rows come and go NVIDIA devices know {known}"
            )));
        };
        Ok(Arc::new(Dynamic::new(&gpu.device, &self.0, slots, policy)?))
    }

    /// The rows as each device reads them, of which devices hold some.
    ///
    /// # Errors
    /// Memory that cannot be had.
    pub(crate) fn tiered(&self, gpus: &[Gpu], held: &Placed) -> Result<Vec<Arc<dyn Feature>>> {
        let devices: Vec<Arc<Device>> = gpus.iter().map(|gpu| gpu.device.clone()).collect();
        let tiers = Tiered::new(&devices, &self.0, held)?;
        Ok(tiers.into_iter().map(|tier| Arc::new(tier) as Arc<dyn Feature>).collect())
    }
}

/// Sums over several devices.
pub(crate) struct AllReduce(graphmill_cuda::AllReduce);

impl AllReduce {
    /// Over these devices.
    ///
    /// # Errors
    /// The library that sums is not there.
    pub(crate) fn new(gpus: &[Gpu]) -> Result<Self, String> {
        let queues = gpus.iter().map(|gpu| gpu.backend.queue().clone()).collect();
        graphmill_cuda::AllReduce::new(queues).map(Self).map_err(|error| error.to_string())
    }

    /// The library that sums.
    pub(crate) fn name(&self) -> &str {
        self.0.name()
    }

    /// Makes the matrices of each device the sums of those of all.
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
