//! Devices that compute a run: the processor, or NVIDIA devices.
//!
//! Everything that needs an NVIDIA device goes through one module, `devices`: with the feature
//! `cuda` it is `nvidia/mod.rs`, otherwise `absent.rs`, whose device type has no values because
//! opening a device fails.

#[cfg_attr(feature = "cuda", path = "nvidia/mod.rs")]
#[cfg_attr(not(feature = "cuda"), path = "absent.rs")]
mod devices;
mod samplers;

pub(crate) use devices::{AllReduce, Arithmetic, Gpu, Meter, RowsBehind, draws_on_devices};
pub(crate) use samplers::Samplers;
pub use samplers::SamplingDevices;

use std::{fmt, ops::Range, sync::OnceLock};

use graphmill_core::{Graph, features::FeatureData};
use graphmill_data::Dataset;
use graphmill_loader::sampler::Source;
use graphmill_nn::{Backend, backend::Cpu, model::Model};

use crate::{Error, Result, TrainConfig, build, config, record::NvidiaRecord};

/// Share of a device's free memory that inference may take for its tables.
const INFERENCE_SHARE: f64 = 0.5;

/// Share of a device's memory that the graph may take beside rows and training.
pub(crate) const TOPOLOGY_SHARE: f64 = 0.5;

/// Share of a device's memory that the graph may take if the device only samples. The batches that
/// wait for a Trainer need the rest.
const SAMPLER_SHARE: f64 = 0.8;

/// Share of the memory of a device that samples which the graph may take.
pub(crate) fn topology_share(sampling: Option<SamplingDevices>) -> f64 {
    match sampling {
        Some(SamplingDevices { may_train: false, .. }) => SAMPLER_SHARE,
        _ => TOPOLOGY_SHARE,
    }
}

/// Processor and NVIDIA devices of a run, which opens them once.
pub(crate) struct ComputeDevices {
    cpu: Cpu,
    gpus: Vec<Gpu>,
    /// Description of the sum of gradients over several devices.
    all_reduce: OnceLock<String>,
}

impl ComputeDevices {
    /// Opens the devices that `--devices` names.
    ///
    /// # Errors
    /// A device does not exist, or its driver cannot be used.
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
        Ok(Self { cpu: Cpu { precision: build::precision(config) }, gpus, all_reduce: OnceLock::new() })
    }

    /// Operations of the processor.
    pub(crate) fn cpu(&self) -> &Cpu {
        &self.cpu
    }

    /// NVIDIA devices in the order of `--devices`; empty if the processor computes.
    pub(crate) fn gpus(&self) -> &[Gpu] {
        &self.gpus
    }

    /// Record of each device: its properties, and the memory taken so far.
    pub(crate) fn records(&self) -> Vec<NvidiaRecord> {
        self.gpus.iter().map(Gpu::record).collect()
    }

    /// Sets the description of the sum of gradients over several devices.
    pub(crate) fn set_all_reduce(&self, description: String) {
        let _ = self.all_reduce.set(description);
    }

    /// Description of the sum of gradients, if several devices have some.
    pub(crate) fn all_reduce(&self) -> Option<String> {
        self.all_reduce.get().cloned()
    }

    /// Reason why a device does not capture steps, if capturing failed.
    pub(crate) fn refusal(&self) -> Option<String> {
        let why = self.gpus.iter().find_map(Gpu::refusal)?;
        Some(format!(
            "steps are launched kernel by kernel, because they cannot be captured as CUDA graphs: {why}"
        ))
    }

    /// Backend that trains: the first NVIDIA device, else the processor.
    pub(crate) fn training(&self) -> &dyn Backend {
        self.gpus.first().map_or(&self.cpu, Gpu::backend)
    }

    /// Sampler of each of the NVIDIA devices `draw` for `graph`, which takes at most a `share` of
    /// their memory, if devices support `--sampler`; otherwise a note that the processor draws.
    /// Only devices with a sampler hold the graph. Batches that are drawn `in_parts` are always
    /// drawn by the processor.
    ///
    /// # Errors
    /// As [`build::sampler`], or the graph does not fit into the memory of a device.
    pub(crate) fn samplers(
        &self,
        config: &TrainConfig,
        data: &Dataset,
        graph: &Graph,
        in_parts: bool,
        draw: Range<usize>,
        share: f64,
    ) -> Result<Samplers> {
        let draw = &self.gpus[draw];
        let Some(budget) = draw.iter().map(Gpu::budget).min() else { return Ok(Samplers::default()) };
        if in_parts {
            let note = format!(
                "neighbours are drawn by the processor, because --strategy {} --reuse {} draws the blocks \
                 of a batch separately",
                config.strategy, config.reuse
            );
            return Ok(Samplers { each: Vec::new(), note: Some(note) });
        }
        let source = Source::new(graph, &data.split.train);
        let options = build::sampler_options(config, data);
        let budget = (share * budget as f64) as u64;
        let mut made = devices::samplers(draw, &config.sampler, &options, &source, budget)
            .map_err(|message| Error::usage(format!("--sampler {}: {message}", config.sampler)))?;
        if draw.len() < self.gpus.len() && !made.each.is_empty() {
            made.note = made.note.map(|note| format!("{note}; trainers do not hold it"));
        }
        Ok(made)
    }

    /// Backend of inference in chunks of at most `chunk` nodes: the first NVIDIA device if the
    /// features, the inputs and outputs of a layer of all nodes, and a chunk fit into half of its
    /// free memory, otherwise the processor.
    pub(crate) fn inference(&self, data: &Dataset, model: &Model, chunk: usize) -> &dyn Backend {
        let Some(gpu) = self.gpus.first() else { return &self.cpu };
        let mut orders = model.inference_orders(data.num_nodes(), data.graph.num_edges());
        if matches!(data.features.data, FeatureData::Csr(_)) {
            model.start_with_product(&mut orders);
        }
        // aggregated rows, own rows and the output of a chunk
        let widths = (0..model.num_layers()).map(|l| 2 * model.layer_in_dim(l) + model.layer_out_dim(l));
        let of_chunk = widths.max().unwrap_or(0) as f64 * chunk.min(data.num_nodes()) as f64;
        let of_all = (data.features.dim + model.inference_values(&orders)) as f64 * data.num_nodes() as f64;
        let free = gpu.budget().saturating_sub(gpu.taken().0);
        if 4.0 * (of_all + of_chunk) <= INFERENCE_SHARE * free as f64 { gpu.backend() } else { &self.cpu }
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
