//! Where a run's arithmetic is done: on the processor, or on NVIDIA devices.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use graphmill_cuda::{Cuda, Device, driver::Arithmetic, sampler::Made};
use graphmill_graph::{Dataset, Graph};
use graphmill_loader::{Sampler, sampler::Source};
use graphmill_nn::{Backend, backend::Cpu, model::Model};

use crate::{
    Error, Result, TrainConfig, build,
    record::{GraphRecord, NvidiaRecord},
    report::size,
};

/// Part of a device's free memory that inference may take for its tables.
const INFERENCE: f64 = 0.5;

/// Part of a device's memory that the graph may take.
pub(crate) const TOPOLOGY: f64 = 0.5;

/// What computes. Devices are opened once a run.
pub(crate) struct Computers {
    cpu: Cpu,
    gpus: Vec<Gpu>,
    /// What gradients of several devices are summed by.
    sums: OnceLock<String>,
}

/// An NVIDIA device with its operations.
pub(crate) struct Gpu {
    pub(crate) device: Arc<Device>,
    pub(crate) backend: Cuda,
}

impl Computers {
    /// Those that `--devices` names.
    ///
    /// # Errors
    /// A device that is not there, or whose driver cannot be used.
    pub(crate) fn open(config: &TrainConfig) -> Result<Self> {
        let arithmetic = match config.precision.as_str() {
            "bf16" => Arithmetic::Bf16,
            "tf32" => Arithmetic::Tf32,
            _ => Arithmetic::F32,
        };
        let open = |number| -> Result<Gpu> {
            let device = graphmill_cuda::open(number, config.device_budget.0)?;
            let backend = Cuda::new(&device, arithmetic)?.with_graphs(config.cuda_graphs != "off");
            Ok(Gpu { device, backend })
        };
        let devices = config.cuda_devices()?;
        sums_something(config, devices.len())?;
        let gpus = devices.into_iter().map(open).collect::<Result<Vec<_>>>()?;
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
        let record = |Gpu { device, .. }: &Gpu| NvidiaRecord {
            device: device.name().to_string(),
            name: device.properties().name.clone(),
            budget_bytes: device.budget(),
            peak_bytes: device.taken().1,
            graphs: GraphRecord::new(device.replayed()),
        };
        self.gpus.iter().map(record).collect()
    }

    /// Remembers what gradients of several devices are summed by.
    pub(crate) fn tell_sums(&self, how: String) {
        let _ = self.sums.set(how);
    }

    /// What they are summed by, where several devices do.
    pub(crate) fn sums(&self) -> Option<String> {
        self.sums.get().cloned()
    }

    /// Why a device does not capture steps, where it was tried.
    pub(crate) fn refusal(&self) -> Option<String> {
        let refused = |gpu: &Gpu| gpu.device.replayed().refused;
        let why = self.gpus.iter().find_map(refused)?;
        Some(format!("steps are not captured as CUDA graphs, and launched one kernel at a time: {why}"))
    }

    /// What trains: the first device where there is one.
    pub(crate) fn training(&self) -> &dyn Backend {
        self.gpus.first().map_or(&self.cpu, |gpu| &gpu.backend)
    }

    /// The sampler for each device, where there are devices that draw as `--sampler` says; otherwise why the processor does, if there are
    /// devices at all. `graph` is what it draws from.
    ///
    /// # Errors
    /// As [`build::sampler`], or the graph does not fit.
    pub(crate) fn samplers(&self, config: &TrainConfig, data: &Dataset, graph: &Graph) -> Result<Samplers> {
        let Some(first) = self.gpus.first() else { return Ok(Samplers::default()) };
        if config.strategy == "layered" || config.strategy == "historical" {
            let note = format!("--strategy {} draws batches in parts: the processor does", config.strategy);
            return Ok(Samplers { each: Vec::new(), note: Some(note) });
        }
        let devices: Vec<Arc<Device>> = self.gpus.iter().map(|gpu| gpu.device.clone()).collect();
        let source = Source { graph, train: &data.split.train };
        let options = build::sampler_options(config, data)?;
        let budget = (TOPOLOGY * first.device.budget() as f64) as u64;
        let made = graphmill_cuda::sampler::make(&devices, &config.sampler, &options, &source, budget);
        let made =
            made.map_err(|message| Error::usage(format!("--sampler {}: {message}", config.sampler)))?;
        Ok(match made {
            Made::OnDevices(each) => {
                let note = each.first().map(|sampler| {
                    format!("neighbours are drawn on the device, the graph {}", sampler.place())
                });
                let each = each.into_iter().map(|sampler| Arc::new(sampler) as Arc<dyn Sampler>).collect();
                Samplers { each, note }
            }
            Made::OnHost(why) => {
                let note = format!("the processor draws, and blocks are copied: {why} is not for devices");
                Samplers { each: Vec::new(), note: Some(note) }
            }
        })
    }

    /// What scores nodes: the first device where all features and the rows of two layers of all nodes fit into a half of what is free
    /// there, otherwise the processor.
    pub(crate) fn inference(&self, data: &Dataset, model: &Model) -> &dyn Backend {
        let Some(gpu) = self.gpus.first() else { return &self.cpu };
        let widest = (0..model.num_layers())
            .map(|l| model.layer_out_dim(l) + model.transformed_dims(l).iter().sum::<usize>())
            .max()
            .unwrap_or(0);
        let row = (data.features.dim + 2 * widest) as f64 * 4.0;
        let free = gpu.device.budget().saturating_sub(gpu.device.taken().0);
        if row * data.num_nodes() as f64 <= INFERENCE * free as f64 { &gpu.backend } else { &self.cpu }
    }
}

/// Whether `--all-reduce nccl` has anything to do with so many NVIDIA devices.
///
/// # Errors
/// It has not: what to do instead.
fn sums_something(config: &TrainConfig, devices: usize) -> Result<()> {
    if config.all_reduce != "nccl" {
        return Ok(());
    }
    if devices < 2 {
        return Err(Error::usage(format!(
            "--all-reduce nccl: it sums the gradients of several NVIDIA devices, and --devices {} names {devices}: name more (--devices cuda:0,1), or \
             leave it out",
            config.devices
        )));
    }
    if !matches!(config.strategy.as_str(), "factored" | "time-sharing" | "layered") {
        return Err(Error::usage(format!(
            "--all-reduce nccl: --strategy {} trains on one device, whose gradients nobody sums: use --strategy time-sharing or factored, or leave it out",
            config.strategy
        )));
    }
    Ok(())
}

/// What draws on devices.
#[derive(Default)]
pub(crate) struct Samplers {
    /// For each device; none where the processor draws.
    pub(crate) each: Vec<Arc<dyn Sampler>>,
    /// What to say of it.
    pub(crate) note: Option<String>,
}

impl fmt::Display for Computers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Gpu { device, .. }) in self.gpus.iter().enumerate() {
            let separator = if i > 0 { "; " } else { "" };
            let properties = device.properties();
            let (major, minor) = properties.capability;
            write!(
                f,
                "{separator}{} is {} ({major}.{minor}), {} of {} to be used",
                device.name(),
                properties.name,
                size(device.budget()),
                size(properties.memory)
            )?;
        }
        Ok(())
    }
}

impl From<graphmill_cuda::Error> for Error {
    fn from(error: graphmill_cuda::Error) -> Self {
        Self::Gpu(error.to_string())
    }
}
