//! The devices that compute a run: the processor, or NVIDIA devices.
//!
//! Everything that needs an NVIDIA device goes through one seam, the module `devices`: with the
//! feature `cuda` it is `nvidia.rs`, without it `absent.rs`, whose devices cannot be opened and
//! therefore have no values.

#[cfg_attr(feature = "cuda", path = "nvidia/mod.rs")]
#[cfg_attr(not(feature = "cuda"), path = "absent.rs")]
mod devices;
mod samplers;

pub(crate) use devices::{AllReduce, Arithmetic, Gpu, Meter, StoredRows, draws_on_devices};
pub(crate) use samplers::Samplers;

use std::{fmt, sync::OnceLock};

use graphmill_core::Graph;
use graphmill_data::Dataset;
use graphmill_loader::sampler::Source;
use graphmill_nn::{Backend, backend::Cpu, model::Model};

use crate::{Error, Result, TrainConfig, build, config, record::NvidiaRecord};

/// Part of a device's free memory that inference may take for its tables.
const INFERENCE: f64 = 0.5;

/// Part of a device's memory that the graph may take.
pub(crate) const TOPOLOGY: f64 = 0.5;

/// What computes. Devices are opened once a run.
pub(crate) struct ComputeDevices {
    cpu: Cpu,
    gpus: Vec<Gpu>,
    /// What gradients of several devices are summed by.
    sums: OnceLock<String>,
}

impl ComputeDevices {
    /// Those that `--devices` names.
    ///
    /// # Errors
    /// A device that is not there, or whose driver cannot be used.
    pub(crate) fn open(config: &TrainConfig) -> Result<Self> {
        let arithmetic = match config.precision {
            config::Arithmetic::Bf16 => Arithmetic::Bf16,
            config::Arithmetic::Tf32 => Arithmetic::Tf32,
            config::Arithmetic::F32 => Arithmetic::F32,
        };
        let open = |&number: &usize| -> Result<Gpu> {
            let gpu = Gpu::open(
                number,
                config.device_budget.0,
                arithmetic,
                config.cuda_graphs != config::CudaGraphs::Off,
            );
            gpu.map_err(|error| match error {
                Error::Usage(message) => Error::usage(format!("--devices {}: {message}", config.devices)),
                error => error,
            })
        };
        let devices = config.cuda_devices();
        let gpus = devices.iter().map(open).collect::<Result<Vec<_>>>()?;
        Ok(Self { cpu: Cpu { precision: build::precision(config) }, gpus, sums: OnceLock::new() })
    }

    /// The processor's operations.
    pub(crate) fn cpu(&self) -> &Cpu {
        &self.cpu
    }

    /// The devices, in the order they were named; none where the processor computes.
    pub(crate) fn gpus(&self) -> &[Gpu] {
        &self.gpus
    }

    /// What each device is, and took so far.
    pub(crate) fn records(&self) -> Vec<NvidiaRecord> {
        self.gpus.iter().map(Gpu::record).collect()
    }

    /// Remembers what gradients of several devices are summed by.
    pub(crate) fn set_all_reduce(&self, how: String) {
        let _ = self.sums.set(how);
    }

    /// What they are summed by, where several devices do.
    pub(crate) fn sums(&self) -> Option<String> {
        self.sums.get().cloned()
    }

    /// Why a device does not capture steps, where it was tried.
    pub(crate) fn refusal(&self) -> Option<String> {
        let why = self.gpus.iter().find_map(Gpu::refusal)?;
        Some(format!("steps are not captured as CUDA graphs, and launched one kernel at a time: {why}"))
    }

    /// What trains: the first device where there is one.
    pub(crate) fn training(&self) -> &dyn Backend {
        self.gpus.first().map_or(&self.cpu, Gpu::backend)
    }

    /// The sampler for each device, where there are devices that draw as `--sampler` says;
    /// otherwise why the processor does, if there are devices at all. `graph` is what it draws
    /// from; the processor alone draws batches `in_parts`.
    ///
    /// # Errors
    /// As [`build::sampler`], or the graph does not fit.
    pub(crate) fn samplers(
        &self,
        config: &TrainConfig,
        data: &Dataset,
        graph: &Graph,
        in_parts: bool,
    ) -> Result<Samplers> {
        let Some(first) = self.gpus.first() else { return Ok(Samplers::default()) };
        if in_parts {
            let note = format!("--strategy {} draws batches in parts: the processor does", config.strategy);
            return Ok(Samplers { each: Vec::new(), note: Some(note) });
        }
        let source = Source { graph, train: &data.split.train };
        let options = build::sampler_options(config, data);
        let budget = (TOPOLOGY * first.budget() as f64) as u64;
        let made = devices::samplers(&self.gpus, &config.sampler, &options, &source, budget);
        made.map_err(|message| Error::usage(format!("--sampler {}: {message}", config.sampler)))
    }

    /// What scores nodes: the first device where all features and the rows of two layers of all
    /// nodes fit into a half of what is free there, otherwise the processor.
    pub(crate) fn inference(&self, data: &Dataset, model: &Model) -> &dyn Backend {
        let Some(gpu) = self.gpus.first() else { return &self.cpu };
        let widest = (0..model.num_layers())
            .map(|l| model.layer_out_dim(l) + model.transformed_dims(l).iter().sum::<usize>())
            .max()
            .unwrap_or(0);
        let row = (data.features.dim + 2 * widest) as f64 * 4.0;
        let free = gpu.budget().saturating_sub(gpu.taken().0);
        if row * data.num_nodes() as f64 <= INFERENCE * free as f64 { gpu.backend() } else { &self.cpu }
    }
}

impl fmt::Display for ComputeDevices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, gpu) in self.gpus.iter().enumerate() {
            let separator = if i > 0 { "; " } else { "" };
            write!(f, "{separator}{}", gpu.describe())?;
        }
        Ok(())
    }
}
