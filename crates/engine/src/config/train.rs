//! Options of a training run: general options, and options of algorithms. The command line,
//! `config.toml`, the JSON of a run and the keywords of Python are derived from the structs.

use clap::Args;
use graphmill_core::options::{OptionSet, OwnOptions, Spelled};
use graphmill_loader::{
    Fanout,
    feature::{LinkOptions, cached::Placement},
};
use graphmill_nn::{backend::Activation, layer::Init, model::ResidualKind, regression::TargetTransform};
use serde::{Deserialize, Serialize, Serializer};

use super::{
    Arithmetic, Bottom, Bytes, CudaGraphs, Devices, EvalEvery, FeaturePrecision, NormChoice, Ratio, SelectBy,
    Switch, VerifyFeatures,
};

/// Placeholder for the directory of a dataset in memory.
pub const IN_MEMORY: &str = "<in memory>";

/// Options of a training run.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrainConfig {
    /// Dataset directory; without one, the built-in demo graph.
    #[arg(long, value_name = "DIR", help_heading = "Data", hide_short_help = true)]
    pub dataset: String,
    /// Run whose best model the run starts from; none by default.
    ///
    /// Use it to continue on newer data: if graphmill append wrote it, known nodes keep their
    /// learned rows. Options of the model must be the same. Example: --start-from runs/monday.
    #[arg(long, value_name = "DIR", help_heading = "Data", hide_short_help = true)]
    pub start_from: String,
    /// Metric of the scores.
    ///
    /// Auto takes the dataset's own metric, else accuracy (f1-micro with several labels per node,
    /// rmse for values). Example: --metric f1-macro.
    #[arg(long, value_name = "NAME", help_heading = "Data", hide_short_help = true)]
    pub metric: String,
    /// Task to train; without one, the only classification of nodes.
    ///
    /// Link learns the edges of a graph: on several types, all its link tasks. Other names are
    /// tasks of graphmill info, or edge types (source:name:destination,...). Example: --task venue.
    #[arg(long, value_name = "NAME", help_heading = "Data", hide_short_help = true)]
    pub task: String,
    /// Time of verifying feature rows: auto, open, first-read or none.
    ///
    /// Auto compares features with their checksums when the dataset is opened or, if they are
    /// larger than a quarter of the memory, each MiB of them when the first of its rows is read.
    /// Results do not depend on it. Choose open to find damage before training, and none if the
    /// file system verifies what it reads. Example: --verify open.
    #[arg(long, value_name = "WHEN", help_heading = "Data", hide_short_help = true)]
    pub verify: VerifyFeatures,
    /// Loss: auto, cross-entropy, mse, mae, huber, quantile, or one of links.
    ///
    /// Auto is cross-entropy for classes, mse for values and bce for links. Mae and huber are
    /// robust to outliers. Links have bce, margin, bpr, sampled-softmax, info-nce and
    /// self-adversarial: bpr and sampled-softmax suit rankings, bce suits the classification of
    /// pairs.
    #[arg(long, value_name = "NAME", help_heading = "Targets", hide_short_help = true)]
    pub loss: String,
    /// Quantile that --loss quantile predicts.
    ///
    /// Range: above 0 to below 1. Example: --loss quantile --quantile 0.9.
    #[arg(long, value_name = "Q", help_heading = "Targets", hide_short_help = true)]
    pub quantile: f64,
    /// Transform of the values before the loss; predictions and scores undo it.
    ///
    /// Log suits amounts that span powers of ten. Quantile suits any skewed values; its predictions
    /// stay between the least and the largest training value. With both, --loss mse predicts values
    /// near the median, not the mean. Example: --target-transform log.
    #[arg(long, value_name = "NAME", help_heading = "Targets", hide_short_help = true)]
    pub target_transform: TargetTransform,
    /// Error up to which --loss huber is squared, in deviations of the target.
    ///
    /// Larger errors count linearly. The unit follows --target-transform. Range: above 0.
    #[arg(long, value_name = "D", help_heading = "Targets", hide_short_help = true)]
    pub huber_delta: f64,
    /// Weights of the classes in the loss: none, balanced, a list or a file.
    ///
    /// Balanced lets all classes count alike. A list has a weight for each class, a file one per
    /// line, in the order of the classes. With several labels per node, the weight of a label
    /// counts where a node has it; balanced lets the nodes with a label count as much as the
    /// others. Set it if rare classes matter. Example: --class-weights balanced.
    #[arg(long, value_name = "WEIGHTS", help_heading = "Targets", hide_short_help = true)]
    pub class_weights: String,
    /// Exponent of the focal loss; 0 for cross-entropy.
    ///
    /// Nodes that are already predicted well count less. Range: 0 to 10. Example: --focal 2.
    #[arg(long, value_name = "GAMMA", help_heading = "Targets", hide_short_help = true)]
    pub focal: f64,
    /// Share of the training labels that batches read as inputs; 0 for none.
    ///
    /// A column for each class, label or value follows the features; the labels of a batch's seeds
    /// stay hidden, and predictions read all training labels. Set it if neighbours have similar
    /// labels. Range: 0 to 1. Example: --label-inputs 0.8.
    #[arg(long, value_name = "R", help_heading = "Targets", hide_short_help = true)]
    pub label_inputs: f64,
    /// Sampler.
    ///
    /// Change it for deep models, whose blocks grow fast with neighbor, or to draw by edge weights.
    /// Example: --sampler labor.
    #[arg(long, value_name = "NAME", help_heading = "Minibatches")]
    pub sampler: String,
    /// Neighbours per node per hop; -1 for all.
    ///
    /// One number per hop, from the seeds outward. Smaller fanouts are faster and noisier. Edge
    /// types may have their own, and 0 does not follow one: --fanout "15,10;cites=5,0". Example:
    /// --fanout 10,5.
    #[arg(long, value_name = "K,K", help_heading = "Minibatches")]
    pub fanout: Fanout,
    /// Part of `--fanout` for some relations (or node types), such as `cites=5,0`; may be empty.
    #[arg(skip)]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fanout_by_name: String,
    /// Seeds per minibatch; 0 for all training nodes at once.
    ///
    /// With subgraph samplers: nodes per subgraph, 0 for all nodes. Lower it if memory runs out.
    /// Range: 0 to 4294967295.
    #[arg(long, value_name = "N", help_heading = "Minibatches")]
    pub batch_size: usize,
    /// Maximum number of minibatches per epoch; 0 for all.
    ///
    /// With a limit, each epoch trains on a different random subset. Set it for quick trials.
    /// Example: --max-batches 100.
    #[arg(long, value_name = "N", help_heading = "Minibatches", hide_short_help = true)]
    pub max_batches: usize,
    /// Order of the seeds.
    ///
    /// Change it to read features from a small cache or from disk: proximity puts nearby seeds into
    /// successive minibatches.
    #[arg(long, value_name = "NAME", help_heading = "Minibatches")]
    pub order: String,
    /// Neighbours of the bottom hop: sampled, exact (all, stored) or auto.
    ///
    /// Exact stores the aggregate of all neighbours' features once beside the dataset, and neither
    /// samples nor aggregates the last hop of --fanout. With auto a last -1 is exact, if possible.
    #[arg(long, value_name = "HOW", help_heading = "Minibatches", hide_short_help = true)]
    pub bottom: Bottom,
    /// Directory of the aggregates of --bottom exact.
    ///
    /// The default is that of the dataset, or over ranks of each part. Set it if that is read-only.
    /// Example: --bottom-dir cache.
    #[arg(long, value_name = "DIR", help_heading = "Minibatches", hide_short_help = true)]
    pub bottom_dir: String,
    /// Aggregate straight from the feature table: auto, on or off.
    ///
    /// The bottom layer then reads rows in place instead of copying them first. Auto does so if
    /// all rows are in one table and the layer aggregates before it multiplies, which pinsage and
    /// mixhop do not. Over tiers, on needs a static cache of f32 rows.
    #[arg(long, value_name = "WHEN", help_heading = "Minibatches", hide_short_help = true)]
    pub fused: Switch,
    /// Keep sparse feature rows sparse: auto, on or off.
    ///
    /// Auto multiplies sparse rows directly in the first layer if few values are nonzero. Set off
    /// to compare with dense rows.
    #[arg(long, value_name = "WHEN", help_heading = "Minibatches", hide_short_help = true)]
    pub sparse: Switch,
    /// Layer type.
    ///
    /// All graph layers have this type. Example: --model gat --heads 4.
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    pub model: String,
    /// Number of graph layers; must match --fanout.
    ///
    /// Derived from --fanout if that alone is given. Layers of several hops (mixhop) take a fanout
    /// per hop. Range: 1 to 64.
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub layers: usize,
    /// Width of the hidden layers.
    ///
    /// Wider layers fit more and take more time and memory. Range: 1 to 1048576. Example: --hidden
    /// 128.
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub hidden: usize,
    /// Activation: relu, elu, leaky-relu or identity.
    ///
    /// Applied after each hidden layer. Set it to reproduce a paper. Example: --activation elu, as
    /// in GAT.
    #[arg(long, value_name = "NAME", help_heading = "Model", hide_short_help = true)]
    pub activation: Activation,
    /// Initial weights of dense layers: glorot or fan-in.
    ///
    /// Fan-in is uniform up to 1 / sqrt(in), as in PyTorch; choose it to reproduce PyTorch runs.
    #[arg(long, value_name = "NAME", help_heading = "Model", hide_short_help = true)]
    pub init: Init,
    /// Normalisation between layers: auto, none, batch, layer or l2.
    ///
    /// Auto is batch for gin, whose sums seldom train without it, and none for other models. Try
    /// batch or layer if a model of three or more layers trains slowly. Example: --norm batch.
    #[arg(long, value_name = "NAME", help_heading = "Model", hide_short_help = true)]
    pub norm: NormChoice,
    /// Residual connection of layers: none, identity or linear.
    ///
    /// Set it for deep models. Linear also works between layers of different widths.
    #[arg(long, value_name = "NAME", help_heading = "Model", hide_short_help = true)]
    pub residual: ResidualKind,
    /// Put a linear layer in front of the first graph layer.
    ///
    /// It has the hidden width and an activation. Use it if features are much wider than --hidden.
    #[arg(long, help_heading = "Model", hide_short_help = true)]
    pub input_layer: bool,
    /// Linear layers of an MLP classifier on top.
    ///
    /// With 0, the last graph layer gives the classes. Range: 0 to 16. Example: --head-layers 2.
    #[arg(long, value_name = "N", help_heading = "Model", hide_short_help = true)]
    pub head_layers: usize,
    /// Dropout of hidden rows.
    ///
    /// Raise it if the model overfits, lower it if the training loss stays high. Range: 0 to below
    /// 1.
    #[arg(long, value_name = "P", help_heading = "Model")]
    pub dropout: f64,
    /// Dropout of feature rows.
    ///
    /// Set it for small citation graphs, whose features are sparse words. Range: 0 to below 1.
    /// Example: --input-dropout 0.5.
    #[arg(long, value_name = "P", help_heading = "Model", hide_short_help = true)]
    pub input_dropout: f64,
    /// Passes over the training nodes.
    ///
    /// A resumed run may raise it. Range: 1 to 1000000000. Example: --epochs 50.
    #[arg(long, value_name = "N", help_heading = "Optimisation")]
    pub epochs: usize,
    /// Optimiser.
    ///
    /// Use adamw for decoupled weight decay. Example: --optimizer sgd --lr 0.1.
    #[arg(long, value_name = "NAME", help_heading = "Optimisation")]
    pub optimizer: String,
    /// Learning rate.
    ///
    /// Lower it if the loss diverges or jumps, and scale it with --batch-size. Range: above 0.
    /// Example: --lr 0.01.
    #[arg(long, value_name = "LR", help_heading = "Optimisation")]
    pub lr: f64,
    /// L2 penalty; decoupled decay with adamw.
    ///
    /// Set it if the model overfits. Range: from 0. Example: --weight-decay 5e-4.
    #[arg(long, value_name = "WD", help_heading = "Optimisation")]
    pub weight_decay: f64,
    /// Decay only the weights of the first graph layer.
    ///
    /// Reproduces the GCN of Kipf and Welling. Needs --weight-decay.
    #[arg(long, alias = "decay-first", help_heading = "Optimisation", hide_short_help = true)]
    pub weight_decay_first_layer: bool,
    /// Learning-rate schedule.
    ///
    /// Try cosine or step in long runs. Example: --schedule cosine --warmup 1.
    #[arg(long, value_name = "NAME", help_heading = "Optimisation")]
    pub schedule: String,
    /// Epochs of linear warm-up of the learning rate.
    ///
    /// Set it if the first epochs diverge, as with large batches. Range: from 0; fractions are
    /// allowed. Example: --warmup 0.5.
    #[arg(long, value_name = "N", help_heading = "Optimisation", hide_short_help = true)]
    pub warmup: f64,
    /// Maximum norm of the gradient; 0 for no limit.
    ///
    /// Set it if single batches make the loss jump. Range: from 0. Example: --clip 1.
    #[arg(long, value_name = "NORM", help_heading = "Optimisation", hide_short_help = true)]
    pub clip: f64,
    /// Selects the best epoch by score or loss.
    ///
    /// Score takes the validation score, and the validation loss breaks ties; loss takes the
    /// validation loss alone.
    #[arg(
        long,
        alias = "select",
        value_name = "NAME",
        help_heading = "Optimisation",
        hide_short_help = true
    )]
    pub select_by: SelectBy,
    /// Stop after N scored epochs without improvement; 0 never stops.
    ///
    /// Epochs are scored every --eval-every epochs. Example: --epochs 500 --patience 20.
    #[arg(long, value_name = "N", help_heading = "Optimisation")]
    pub patience: usize,
    /// Seed of every random choice.
    ///
    /// Runs with equal options and seed have the same bits. Change it to repeat an experiment.
    /// Range: 0 to 2^64 - 1.
    #[arg(long, value_name = "N", help_heading = "Optimisation")]
    #[serde(serialize_with = "as_integer_or_word")]
    pub seed: u64,
    /// Host memory for feature rows; the rest stays on disk.
    ///
    /// 0 sets no limit. Set it if features exceed the host's memory. Learned rows of nodes, tables
    /// of embeddings, and the nodes and events of streams of events are in files if they exceed it.
    /// Example: --host-budget 16G.
    #[arg(long, value_name = "BYTES", help_heading = "Feature tiers")]
    pub host_budget: Bytes,
    /// Memory of each device; 0 for no limit.
    ///
    /// Set it to simulate a small device, or to share an NVIDIA device. Example: --device-budget
    /// 4G.
    #[arg(long, value_name = "BYTES", help_heading = "Feature tiers")]
    pub device_budget: Bytes,
    /// Fraction of the rows in the nearest cache.
    ///
    /// Auto fills its budget. The nearest cache is on the devices if there are any, else in host
    /// memory. Range: 0 to 1. Example: --cache-ratio 0.1.
    #[arg(long, value_name = "R", help_heading = "Feature tiers")]
    pub cache_ratio: Ratio,
    /// Hotness or policy of the nearest cache.
    ///
    /// A hotness pins the hottest rows, a policy admits and evicts them. Auto is posterior:2, or a
    /// policy with --order proximity. Presc-online:K fills the cache after K epochs of training, by
    /// their minibatches. Compare them with graphmill hotness.
    #[arg(long, value_name = "POLICY", help_heading = "Feature tiers")]
    pub cache: String,
    /// Hotness or policy of the host's cache behind devices.
    ///
    /// Takes the names of --cache. It needs --host-budget. Example: --host-cache lru.
    #[arg(long, value_name = "POLICY", help_heading = "Feature tiers", hide_short_help = true)]
    pub host_cache: String,
    /// Spread of cached rows over devices.
    ///
    /// Shard, interleave, blocked, replicate, replicate:R or private. Replicate:R copies the
    /// hottest fraction R of each device's rows to all devices, private gives each device its own
    /// cache. Set it if links between devices are slow. Example: --placement replicate:0.2.
    #[arg(long, value_name = "HOW", help_heading = "Feature tiers", hide_short_help = true)]
    pub placement: Spelled<Placement>,
    /// Assignment of stages to workers and devices.
    ///
    /// Pipelined overlaps sampling and training on several cores. Compare them with graphmill plan.
    /// Example: --strategy pipelined.
    #[arg(long, value_name = "NAME", help_heading = "Execution")]
    pub strategy: String,
    /// Reuse of bottom-layer rows by several batches.
    ///
    /// Layered computes the rows of hot nodes once for all batches of a super-batch; their age has
    /// a bound. With auto, only if counts of the first one say that it pays. With layered,
    /// subgraphs also read the rows of neighbours outside of them. Example: --reuse auto.
    #[arg(long, value_name = "NAME", help_heading = "Execution")]
    pub reuse: String,
    /// Link of a simulated device to the host, or none.
    ///
    /// Bandwidth in bytes per second and an optional latency, then an optional access: streamed
    /// (rows leave as the host gathers them), gathered (they leave after it) or direct (the device
    /// reads whole lines of 128 bytes). Set it to simulate transfers. Example: --link
    /// 12G,10us,direct.
    #[arg(long, value_name = "LINK", help_heading = "Execution", hide_short_help = true)]
    pub link: Spelled<LinkOptions>,
    /// Link of a simulated device to the other devices, or none.
    ///
    /// Rows that another device caches cross it. Takes the values of --link. Example: --peer-link
    /// 50G,2us.
    #[arg(long, value_name = "LINK", help_heading = "Execution", hide_short_help = true)]
    pub peer_link: Spelled<LinkOptions>,
    /// Arithmetic of dense products: f32, bf16 or tf32.
    ///
    /// Sums and weights are f32. Of the inputs, bf16 keeps 8 bits, and tf32 keeps 16 on processors
    /// with AMX, 11 on NVIDIA devices, and all on others. Either is for wide layers.
    #[arg(long, value_name = "TYPE", help_heading = "Execution")]
    pub precision: Arithmetic,
    /// Replay of repeated steps as CUDA graphs: auto or off.
    ///
    /// Steps repeat with full batches (--sampler full --batch-size 0). Results do not depend on it.
    /// Set it to off for debugging.
    #[arg(long, value_name = "WHEN", help_heading = "Execution", hide_short_help = true)]
    pub cuda_graphs: CudaGraphs,
    /// Number type of features in memory: auto, f32, f16 or bf16.
    ///
    /// Auto is bf16 with --precision bf16, else the stored type. 16 bits halve memory and traffic,
    /// or double the rows of a cache. Rows of a file on disk are rounded when they are read.
    #[arg(long, value_name = "TYPE", help_heading = "Execution", hide_short_help = true)]
    pub feature_precision: FeaturePrecision,
    /// Devices: cpu, cuda:0,1, or virtual:N (simulated).
    ///
    /// Each simulated device has its own memory. Range of N: 1 to 64. Example: --devices cuda:0.
    #[arg(long, value_name = "LIST", help_heading = "Execution")]
    pub devices: Spelled<Devices>,
    /// Threads; 0 for all cores.
    ///
    /// Results do not depend on it. Lower it to share the machine. Range: 0 to 4096.
    #[arg(long, value_name = "N", help_heading = "Execution")]
    pub threads: usize,
    /// Score the validation nodes every N epochs.
    ///
    /// Raise it if scoring takes long beside training. With auto, scoring takes under a tenth of
    /// the work, by counts. Range: from 1. Example: --eval-every 5.
    #[arg(long, value_name = "N", help_heading = "Execution")]
    pub eval_every: EvalEvery,
    /// Validation and test nodes to score; 0 for all.
    ///
    /// A fixed random subset of each split, the same in every epoch. Set it for large graphs.
    /// Example: --eval-nodes 10000.
    #[arg(long, value_name = "N", help_heading = "Execution", hide_short_help = true)]
    pub eval_nodes: usize,
    /// Nodes per chunk of full-neighbour inference.
    ///
    /// Lower it if scoring runs out of memory. Scores change at most by rounding. Range: from 1.
    #[arg(long, value_name = "N", help_heading = "Execution", hide_short_help = true)]
    pub eval_chunk: usize,
    /// Reassign parts to ranks every N epochs; 0 for never.
    ///
    /// For partitioned datasets and subgraph samplers: mixes parts that one rank trains on.
    /// Example: --shuffle-parts 1.
    #[arg(long, value_name = "N", help_heading = "Execution", hide_short_help = true)]
    pub shuffle_parts: usize,
    /// Ranks that hold the graph and serve it while the others train; 0 for none.
    ///
    /// The last N ranks become graph stores: they hold all parts, draw neighbours or subgraphs,
    /// read rows and score. The other ranks hold no part and train, as in BGL. For partitioned
    /// datasets; fewer than the ranks. Example: --graph-stores 2.
    #[arg(long, value_name = "N", help_heading = "Execution", hide_short_help = true)]
    pub graph_stores: usize,
    /// Seconds after which a silent rank is declared dead.
    ///
    /// Raise it if ranks pause for long, as on loaded machines. Example: --peer-timeout 300.
    #[arg(long, value_name = "S", help_heading = "Execution", hide_short_help = true)]
    pub peer_timeout: f64,
    /// Write a checkpoint every N batches; 0 to go by time alone.
    ///
    /// Set it to bound the work that a kill loses. --checkpoint-seconds applies, too. Example:
    /// --checkpoint-batches 500.
    #[arg(long, value_name = "N", help_heading = "Execution", hide_short_help = true)]
    pub checkpoint_batches: usize,
    /// Maximum seconds between checkpoints within an epoch.
    ///
    /// 0 writes one after every batch. Raise it if writing takes long. Range: from 0. Example:
    /// --checkpoint-seconds 600.
    #[arg(long, value_name = "S", help_heading = "Execution", hide_short_help = true)]
    pub checkpoint_seconds: f64,
    /// Write trace.json: the work of every worker on every batch.
    ///
    /// Open it at ui.perfetto.dev to see where time goes.
    #[arg(long, help_heading = "Execution", hide_short_help = true)]
    pub trace: bool,
    /// Write TensorBoard event files, one point per epoch.
    ///
    /// They also have the test score and the hyperparameters. View them with: tensorboard --logdir
    /// RUN.
    #[arg(long, help_heading = "Execution", hide_short_help = true)]
    pub tensorboard: bool,
    /// Options of algorithms.
    #[arg(skip)]
    #[serde(skip)]
    pub own: OwnOptions,
}

/// General options that a resumed run may change: they do not affect the results of its epochs.
pub(crate) const FREE: &[&str] = &[
    "dataset",
    "verify",
    "epochs",
    "patience",
    "bottom_dir",
    "host_budget",
    "device_budget",
    "cache_ratio",
    "cache",
    "host_cache",
    "placement",
    "link",
    "peer_link",
    "cuda_graphs",
    "devices",
    "threads",
    "graph_stores",
    "peer_timeout",
    "checkpoint_batches",
    "checkpoint_seconds",
    "trace",
    "tensorboard",
];

impl TrainConfig {
    /// Returns these options with a change to those of an algorithm.
    #[must_use]
    pub fn with<T: OptionSet>(mut self, change: impl FnOnce(&mut T)) -> Self {
        change(self.own.get_mut());
        self
    }

    /// Returns true if the run's dataset was in memory and has no directory.
    pub fn is_in_memory(&self) -> bool {
        self.dataset == IN_MEMORY
    }

    /// Number of devices besides the processor.
    pub fn num_devices(&self) -> usize {
        self.devices.count()
    }

    /// Numbers of the NVIDIA devices that run the arithmetic; empty for other devices.
    pub fn cuda_devices(&self) -> &[usize] {
        self.devices.cuda()
    }
}

/// Writes a seed as an integer, or as a string if it exceeds TOML's signed integers.
fn as_integer_or_word<S: Serializer>(seed: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    match i64::try_from(*seed) {
        Ok(seed) => serializer.serialize_i64(seed),
        Err(_) => serializer.serialize_str(&seed.to_string()),
    }
}
