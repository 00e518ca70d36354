//! The options of a training run: general ones, and those that algorithms own. The command line,
//! `config.toml`, the JSON that a run records and the keywords of Python all follow from the
//! structs.

use clap::Args;
use graphmill_core::options::{OptionSet, OwnOptions, Spelled};
use graphmill_loader::{
    Fanout,
    feature::{LinkOptions, cached::Placement},
};
use graphmill_nn::{
    backend::Activation,
    layer::{Init, NormKind},
    model::ResidualKind,
};
use serde::{Deserialize, Serialize, Serializer};

use super::{Arithmetic, Bytes, CudaGraphs, Devices, FeaturePrecision, Ratio, SelectBy, Switch};

/// Stands for the directory of a dataset that was in memory.
pub const IN_MEMORY: &str = "<in memory>";

/// Options of a training run.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrainConfig {
    /// Directory of the dataset; without one, the demo graph.
    #[arg(long, value_name = "DIR", help_heading = "Data", hide_short_help = true)]
    pub dataset: String,
    /// Score to judge by; auto for the dataset's own.
    #[arg(long, value_name = "NAME", help_heading = "Data", hide_short_help = true)]
    pub metric: String,
    /// Sampler.
    #[arg(long, value_name = "NAME", help_heading = "Minibatches")]
    pub sampler: String,
    /// Neighbours per node per hop; -1 for all.
    ///
    /// From the seeds outward, a number for each hop.
    #[arg(long, value_name = "K,K", help_heading = "Minibatches")]
    pub fanout: Fanout,
    /// Seeds per minibatch; 0 for all training nodes at once.
    ///
    /// With samplers of subgraphs: nodes per subgraph, 0 for all nodes.
    #[arg(long, value_name = "N", help_heading = "Minibatches")]
    pub batch_size: usize,
    /// Minibatches of an epoch at most; 0 for all.
    ///
    /// With a limit, every epoch trains on other random nodes.
    #[arg(long, value_name = "N", help_heading = "Minibatches", hide_short_help = true)]
    pub max_batches: usize,
    /// Order of the seeds.
    #[arg(long, value_name = "NAME", help_heading = "Minibatches")]
    pub order: String,
    /// Aggregate straight from the feature table: auto, on or off.
    ///
    /// The bottom layer then reads rows in place, instead of a copy of them.
    #[arg(long, value_name = "WHEN", help_heading = "Minibatches", hide_short_help = true)]
    pub fused: Switch,
    /// Multiply sparse feature rows as they are: auto, on or off.
    ///
    /// Auto does so in the first layer if few enough values are not zero.
    #[arg(long, value_name = "WHEN", help_heading = "Minibatches", hide_short_help = true)]
    pub sparse: Switch,
    /// Layer type.
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    pub model: String,
    /// Number of graph layers; as many as fanouts.
    ///
    /// A layer of several hops (mixhop) has as many fanouts as hops.
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub layers: usize,
    /// Width of the hidden layers.
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub hidden: usize,
    /// Non-linearity: relu, elu, leaky-relu or identity.
    #[arg(long, value_name = "NAME", help_heading = "Model", hide_short_help = true)]
    pub activation: Activation,
    /// Initial weights of dense layers: glorot or fan-in.
    ///
    /// Fan-in is uniform up to 1 / sqrt(in), as PyTorch's.
    #[arg(long, value_name = "NAME", help_heading = "Model", hide_short_help = true)]
    pub init: Init,
    /// Normalisation between layers: none, batch, layer or l2.
    #[arg(long, value_name = "NAME", help_heading = "Model", hide_short_help = true)]
    pub norm: NormKind,
    /// Residual connection of layers: none, identity or linear.
    #[arg(long, value_name = "NAME", help_heading = "Model", hide_short_help = true)]
    pub residual: ResidualKind,
    /// Put a linear layer in front of the first graph layer.
    ///
    /// It has the hidden width, and an activation.
    #[arg(long, help_heading = "Model", hide_short_help = true)]
    pub input_layer: bool,
    /// Linear layers of an MLP classifier on top.
    ///
    /// 0 lets the last graph layer classify.
    #[arg(long, value_name = "N", help_heading = "Model", hide_short_help = true)]
    pub head_layers: usize,
    /// Dropout of hidden rows.
    #[arg(long, value_name = "P", help_heading = "Model")]
    pub dropout: f64,
    /// Dropout of feature rows.
    #[arg(long, value_name = "P", help_heading = "Model", hide_short_help = true)]
    pub input_dropout: f64,
    /// Passes over the training nodes.
    #[arg(long, value_name = "N", help_heading = "Optimisation")]
    pub epochs: usize,
    /// Optimiser.
    #[arg(long, value_name = "NAME", help_heading = "Optimisation")]
    pub optimizer: String,
    /// Learning rate.
    #[arg(long, value_name = "LR", help_heading = "Optimisation")]
    pub lr: f64,
    /// L2 penalty; decoupled decay with adamw.
    #[arg(long, value_name = "WD", help_heading = "Optimisation")]
    pub weight_decay: f64,
    /// Decay the weights of the first graph layer alone.
    ///
    /// As Kipf and Welling do.
    #[arg(long, help_heading = "Optimisation", hide_short_help = true)]
    pub decay_first: bool,
    /// Learning-rate schedule.
    #[arg(long, value_name = "NAME", help_heading = "Optimisation")]
    pub schedule: String,
    /// Epochs of linear warm-up.
    #[arg(long, value_name = "N", help_heading = "Optimisation", hide_short_help = true)]
    pub warmup: f64,
    /// Largest norm of the gradient; 0 for no limit.
    #[arg(long, value_name = "NORM", help_heading = "Optimisation", hide_short_help = true)]
    pub clip: f64,
    /// Measure of the best epoch: score or loss.
    ///
    /// The validation score (ties go by the loss), or the validation loss.
    #[arg(long, value_name = "NAME", help_heading = "Optimisation", hide_short_help = true)]
    pub select: SelectBy,
    /// Stop after so many scored epochs without a better one.
    ///
    /// 0 never stops early. Epochs are scored as --eval-every says.
    #[arg(long, value_name = "N", help_heading = "Optimisation")]
    pub patience: usize,
    /// Seed of every random choice.
    #[arg(long, value_name = "N", help_heading = "Optimisation")]
    #[serde(serialize_with = "as_integer_or_word")]
    pub seed: u64,
    /// Host memory for feature rows; the others stay on disk.
    ///
    /// 0 sets no limit.
    #[arg(long, value_name = "BYTES", help_heading = "Feature tiers")]
    pub host_budget: Bytes,
    /// Memory of a device; 0 for no limit.
    #[arg(long, value_name = "BYTES", help_heading = "Feature tiers")]
    pub device_budget: Bytes,
    /// Part of the rows in the nearest cache.
    ///
    /// Auto fills its budget. The nearest cache is the devices' if there are devices, else the
    /// host's.
    #[arg(long, value_name = "R", help_heading = "Feature tiers")]
    pub cache_ratio: Ratio,
    /// Contents of the nearest cache: a hotness, or a policy.
    ///
    /// Auto is posterior:2, or with --order proximity a policy.
    #[arg(long, value_name = "POLICY", help_heading = "Feature tiers")]
    pub cache: String,
    /// Contents of the host's cache behind those of devices.
    #[arg(long, value_name = "POLICY", help_heading = "Feature tiers", hide_short_help = true)]
    pub host_cache: String,
    /// Spread of rows over devices: shard, interleave or replicate.
    ///
    /// Replicate:R replicates the hottest part R of each device's rows.
    #[arg(long, value_name = "HOW", help_heading = "Feature tiers", hide_short_help = true)]
    pub placement: Spelled<Placement>,
    /// Strategy: which workers run which stage.
    #[arg(long, value_name = "NAME", help_heading = "Execution")]
    pub strategy: String,
    /// Link of a simulated device to the host, or none.
    ///
    /// Bytes a second and a latency, such as 12G,10us.
    #[arg(long, value_name = "LINK", help_heading = "Execution", hide_short_help = true)]
    pub link: Spelled<LinkOptions>,
    /// Arithmetic of dense products: f32, bf16 or tf32.
    ///
    /// Bf16 sums in f32; weights and all else stay f32. Tf32 is for NVIDIA devices.
    #[arg(long, value_name = "TYPE", help_heading = "Execution")]
    pub precision: Arithmetic,
    /// Replay of repeated steps as CUDA graphs: auto or off.
    ///
    /// Steps repeat with full batches. Results do not depend on it.
    #[arg(long, value_name = "WHEN", help_heading = "Execution", hide_short_help = true)]
    pub cuda_graphs: CudaGraphs,
    /// Number type of features in memory: auto, f32, f16 or bf16.
    ///
    /// Auto is bf16 with --precision bf16, else as stored.
    #[arg(long, value_name = "TYPE", help_heading = "Execution", hide_short_help = true)]
    pub feature_precision: FeaturePrecision,
    /// Devices: cpu, cuda:0,1, or virtual:N (simulated).
    ///
    /// Each simulated device has its own memory.
    #[arg(long, value_name = "LIST", help_heading = "Execution")]
    pub devices: Spelled<Devices>,
    /// Threads; 0 for all cores.
    ///
    /// Results do not depend on it.
    #[arg(long, value_name = "N", help_heading = "Execution")]
    pub threads: usize,
    /// Score the validation nodes every N epochs.
    #[arg(long, value_name = "N", help_heading = "Execution")]
    pub eval_every: usize,
    /// Validation and test nodes that are scored; 0 for all.
    ///
    /// Always the same random ones.
    #[arg(long, value_name = "N", help_heading = "Execution", hide_short_help = true)]
    pub eval_nodes: usize,
    /// Nodes per chunk of full-neighbour inference.
    ///
    /// Bounds its memory.
    #[arg(long, value_name = "N", help_heading = "Execution", hide_short_help = true)]
    pub eval_chunk: usize,
    /// Assign parts to ranks anew every N epochs; 0 for never.
    ///
    /// For partitioned datasets and samplers of subgraphs.
    #[arg(long, value_name = "N", help_heading = "Execution", hide_short_help = true)]
    pub shuffle_parts: usize,
    /// Seconds after which a silent rank is declared dead.
    #[arg(long, value_name = "S", help_heading = "Execution", hide_short_help = true)]
    pub peer_timeout: f64,
    /// Write a checkpoint every N batches; 0 for epochs alone.
    #[arg(long, value_name = "N", help_heading = "Execution", hide_short_help = true)]
    pub checkpoint_batches: usize,
    /// Seconds between checkpoints at most.
    #[arg(long, value_name = "S", help_heading = "Execution", hide_short_help = true)]
    pub checkpoint_seconds: f64,
    /// Write trace.json: the work of every worker on every batch.
    ///
    /// For ui.perfetto.dev.
    #[arg(long, help_heading = "Execution", hide_short_help = true)]
    pub trace: bool,
    /// Write event files for TensorBoard, a point an epoch.
    #[arg(long, help_heading = "Execution", hide_short_help = true)]
    pub tensorboard: bool,
    /// Options that algorithms own.
    #[arg(skip)]
    #[serde(skip)]
    pub own: OwnOptions,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            dataset: "".into(),
            metric: "auto".into(),
            sampler: "neighbor".into(),
            fanout: Fanout(vec![15, 10]),
            batch_size: 1024,
            max_batches: 0,
            order: "random".into(),
            fused: Switch::Auto,
            sparse: Switch::Auto,
            model: "sage".into(),
            layers: 2,
            hidden: 256,
            activation: Activation::Relu,
            init: Init::Glorot,
            norm: NormKind::None,
            residual: ResidualKind::None,
            input_layer: false,
            head_layers: 0,
            dropout: 0.5,
            input_dropout: 0.0,
            epochs: 10,
            optimizer: "adam".into(),
            lr: 0.003,
            weight_decay: 0.0,
            decay_first: false,
            schedule: "constant".into(),
            warmup: 0.0,
            clip: 0.0,
            select: SelectBy::Score,
            patience: 0,
            seed: 0,
            host_budget: Bytes(0),
            device_budget: Bytes(0),
            cache_ratio: Ratio(None),
            cache: "auto".into(),
            host_cache: "auto".into(),
            placement: spelled("interleave"),
            strategy: "sequential".into(),
            link: spelled("none"),
            precision: Arithmetic::F32,
            cuda_graphs: CudaGraphs::Auto,
            feature_precision: FeaturePrecision::Auto,
            devices: spelled("cpu"),
            threads: 0,
            eval_every: 1,
            eval_nodes: 0,
            eval_chunk: 16384,
            shuffle_parts: 0,
            peer_timeout: 60.0,
            checkpoint_batches: 0,
            checkpoint_seconds: 60.0,
            trace: false,
            tensorboard: false,
            own: OwnOptions::default(),
        }
    }
}

/// General options that a resumed run may change, because the results do not depend on them.
pub(crate) const FREE: &[&str] = &[
    "dataset",
    "epochs",
    "patience",
    "host_budget",
    "device_budget",
    "cache_ratio",
    "cache",
    "host_cache",
    "placement",
    "link",
    "cuda_graphs",
    "devices",
    "threads",
    "peer_timeout",
    "checkpoint_batches",
    "checkpoint_seconds",
    "trace",
    "tensorboard",
];

impl TrainConfig {
    /// These options with a change to those of an algorithm.
    #[must_use]
    pub fn with<T: OptionSet>(mut self, change: impl FnOnce(&mut T)) -> Self {
        change(self.own.get_mut());
        self
    }

    /// Whether the options are of a run on a dataset in memory, which has no directory.
    pub fn is_in_memory(&self) -> bool {
        self.dataset == IN_MEMORY
    }

    /// The number of devices besides the processor.
    pub fn num_devices(&self) -> usize {
        match &*self.devices {
            Devices::Cpu => 0,
            Devices::Virtual(count) => *count,
            Devices::Cuda(numbers) => numbers.len(),
        }
    }

    /// The numbers of the NVIDIA devices that the arithmetic runs on; empty if it runs elsewhere.
    pub fn cuda_devices(&self) -> &[usize] {
        match &*self.devices {
            Devices::Cuda(numbers) => numbers,
            _ => &[],
        }
    }
}

/// The value of a default's spelling.
pub(crate) fn spelled<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> Spelled<T> {
    text.parse().expect("a default can be read")
}

/// TOML's integers are signed: the few seeds beyond travel as words.
fn as_integer_or_word<S: Serializer>(seed: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    match i64::try_from(*seed) {
        Ok(seed) => serializer.serialize_i64(seed),
        Err(_) => serializer.serialize_str(&seed.to_string()),
    }
}
