//! Every option of a training run: the struct, its defaults and its choices. The command line, `config.toml`,
//! the JSON that a run records and the keywords of Python all follow from the struct.

use clap::{Args, ValueEnum};
use graphmill_core::{by_name, by_word, matrix::TableType, options::Spelled};
use graphmill_loader::{
    Fanout,
    feature::{LinkOptions, cached::Placement},
    sampler::{
        Estimator,
        labor::Iterations,
        weighted::{DrawBy, EdgeWeights},
    },
    subgraph::PopBy,
};
use serde::{Deserialize, Serialize, Serializer};

use super::{Bytes, Cores, Devices, Ratio};

/// Stands for the directory of a dataset that was in memory.
pub const IN_MEMORY: &str = "<in memory>";

/// Options of a training run.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrainConfig {
    /// Directory of the dataset, or nothing for the built-in demo graph.
    #[arg(long, value_name = "DIR", help_heading = "Data")]
    pub dataset: String,
    /// Score to judge by: accuracy, f1-micro, f1-macro, roc-auc, average-precision, or auto for the
    /// dataset's own.
    #[arg(long, value_name = "NAME", help_heading = "Data")]
    pub metric: String,
    /// Sampler.
    #[arg(long, value_name = "NAME", help_heading = "Minibatches")]
    pub sampler: String,
    /// Neighbours per node per hop, from the seeds outward; -1 takes all.
    #[arg(long, value_name = "K,K", help_heading = "Minibatches")]
    pub fanout: Fanout,
    /// Seeds per minibatch, 0 for all training nodes at once; with samplers of subgraphs, nodes per
    /// subgraph.
    #[arg(long, value_name = "N", help_heading = "Minibatches")]
    pub batch_size: usize,
    /// Minibatches of an epoch at most, 0 for all: every epoch then trains on other random nodes.
    #[arg(long, value_name = "N", help_heading = "Minibatches")]
    pub max_batches: usize,
    /// Order of the seeds.
    #[arg(long, value_name = "NAME", help_heading = "Minibatches")]
    pub order: String,
    /// Sequences of neighbouring nodes that batches are mixed from (proximity); 0 for as few as mix
    /// labels well.
    #[arg(long, value_name = "N", help_heading = "Minibatches")]
    pub order_sequences: usize,
    /// Draw subgraphs among the training nodes alone (inductive).
    #[arg(long, help_heading = "Minibatches")]
    pub inductive: bool,
    /// Count every node so often on average for the normalisation of subgraphs; 0 leaves it out.
    #[arg(long, value_name = "N", help_heading = "Minibatches")]
    pub coverage: f64,
    /// How counted edges estimate a sum over all neighbours: by ratio, or unbiased as GraphSAINT's
    /// paper does.
    #[arg(long, value_name = "NAME", help_heading = "Minibatches")]
    pub estimator: Estimator,
    /// Draw a neighbour again (weighted).
    #[arg(long, help_heading = "Minibatches")]
    pub replace: bool,
    /// What edges weigh (weighted, labor): stored, or by their source in-degree, out-degree,
    /// inverse-in-degree or inverse-out-degree.
    #[arg(long, value_name = "NAME", help_heading = "Minibatches")]
    pub edge_weights: EdgeWeights,
    /// Draw by alias tables, 8 bytes an edge, or by prefix-sums, without tables but as slow as rows
    /// are long (weighted).
    #[arg(long, value_name = "NAME", help_heading = "Minibatches")]
    pub draw_by: DrawBy,
    /// How often to make nodes that many need more likely, and others less: fewer rows are read
    /// (labor); * for as often as it helps.
    #[arg(long, value_name = "N", help_heading = "Minibatches")]
    pub labor_iterations: Iterations,
    /// Walks from each node (random-walk).
    #[arg(long, value_name = "N", help_heading = "Minibatches")]
    pub walks: usize,
    /// Probability that a walk ends, after each step (random-walk).
    #[arg(long, value_name = "P", help_heading = "Minibatches")]
    pub restart: f64,
    /// Steps of a walk; 0 takes the sampler's own, 2 (saint-rw) or 3 (random-walk).
    #[arg(long, value_name = "N", help_heading = "Minibatches")]
    pub walk_length: usize,
    /// Nodes of the frontier (frontier).
    #[arg(long, value_name = "N", help_heading = "Minibatches")]
    pub frontier_size: usize,
    /// Pop the frontier's nodes by sums (a tree of running sums) or by dashboard (GraphSAINT's)
    /// (frontier).
    #[arg(long, value_name = "NAME", help_heading = "Minibatches")]
    pub pop_by: PopBy,
    /// How much larger than its live part a dashboard is, 1.01 to 64 (frontier).
    #[arg(long, value_name = "X", help_heading = "Minibatches")]
    pub eta: f64,
    /// A node of more neighbours is popped as if it had so many; GraphSAINT's program has 3000
    /// (frontier).
    #[arg(long, value_name = "N", help_heading = "Minibatches")]
    pub degree_cap: usize,
    /// Probability that fire spreads to one more neighbour (forest-fire).
    #[arg(long, value_name = "P", help_heading = "Minibatches")]
    pub burning: f64,
    /// Parts of the graph (cluster).
    #[arg(long, value_name = "N", help_heading = "Minibatches")]
    pub parts: usize,
    /// Parts of a subgraph (cluster).
    #[arg(long, value_name = "N", help_heading = "Minibatches")]
    pub parts_per_batch: usize,
    /// Let the bottom layer aggregate straight from the feature table: auto, on or off.
    #[arg(long, value_name = "WHEN", help_heading = "Minibatches")]
    pub fused: Switch,
    /// Multiply sparse feature rows as they are in the first layer: auto (where few enough values
    /// are not zero), on or off.
    #[arg(long, value_name = "WHEN", help_heading = "Minibatches")]
    pub sparse: Switch,
    /// Layer type.
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    pub model: String,
    /// GraphSAGE's aggregator: mean or max-pool.
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    pub aggregator: String,
    /// Number of graph layers; as many as there are fanouts (MixHop: times --hops).
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub layers: usize,
    /// Hops of each layer, its highest power of the adjacency matrix (MixHop).
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub hops: usize,
    /// Width of the hidden layers.
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub hidden: usize,
    /// Attention heads of the hidden layers (GAT).
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub heads: usize,
    /// Attention heads of the last layer, averaged (GAT).
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub out_heads: usize,
    /// Non-linearity: relu, elu, leaky-relu or identity.
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    pub activation: String,
    /// First weights of dense layers: glorot, or fan-in (1 / sqrt(in), as PyTorch's).
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    pub init: String,
    /// Normalisation between layers: none, batch, layer or l2.
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    pub norm: String,
    /// Residual connection around each layer: none, identity or linear.
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    pub residual: String,
    /// Put a linear layer with activation in front of the first graph layer.
    #[arg(long, help_heading = "Model")]
    pub input_layer: bool,
    /// Linear layers of an MLP classifier on top; 0 lets the last graph layer classify.
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub head_layers: usize,
    /// Dropout of hidden rows.
    #[arg(long, value_name = "P", help_heading = "Model")]
    pub dropout: f64,
    /// Dropout of feature rows.
    #[arg(long, value_name = "P", help_heading = "Model")]
    pub input_dropout: f64,
    /// Dropout of attention weights (GAT).
    #[arg(long, value_name = "P", help_heading = "Model")]
    pub attention_dropout: f64,
    /// Passes over the training nodes.
    #[arg(long, value_name = "N", help_heading = "Optimisation")]
    pub epochs: usize,
    /// Optimiser: adam, adamw or sgd.
    #[arg(long, value_name = "NAME", help_heading = "Optimisation")]
    pub optimizer: String,
    /// Learning rate.
    #[arg(long, value_name = "LR", help_heading = "Optimisation")]
    pub lr: f64,
    /// Momentum (SGD).
    #[arg(long, value_name = "M", help_heading = "Optimisation")]
    pub momentum: f64,
    /// L2 penalty; decoupled decay with adamw.
    #[arg(long, value_name = "WD", help_heading = "Optimisation")]
    pub weight_decay: f64,
    /// Apply the weight decay to the first graph layer alone, as Kipf and Welling do.
    #[arg(long, help_heading = "Optimisation")]
    pub decay_first: bool,
    /// Learning-rate schedule: constant, step, cosine or plateau.
    #[arg(long, value_name = "NAME", help_heading = "Optimisation")]
    pub schedule: String,
    /// Epochs between steps (step), of a whole descent (cosine; 0: all epochs), or scored epochs of
    /// patience (plateau).
    #[arg(long, value_name = "N", help_heading = "Optimisation")]
    pub schedule_epochs: usize,
    /// Factor at each step (step, plateau).
    #[arg(long, value_name = "F", help_heading = "Optimisation")]
    pub schedule_factor: f64,
    /// Lowest learning rate (cosine, plateau).
    #[arg(long, value_name = "LR", help_heading = "Optimisation")]
    pub min_lr: f64,
    /// Epochs of linear warm-up.
    #[arg(long, value_name = "N", help_heading = "Optimisation")]
    pub warmup: f64,
    /// Largest norm of the gradient; 0 for no limit.
    #[arg(long, value_name = "NORM", help_heading = "Optimisation")]
    pub clip: f64,
    /// What tells the best epoch: the validation score (ties go by the loss), or the validation
    /// loss.
    #[arg(long, value_name = "NAME", help_heading = "Optimisation")]
    pub select: SelectBy,
    /// Stop after so many scored epochs (--eval-every) without a better one; 0 never stops early.
    #[arg(long, value_name = "N", help_heading = "Optimisation")]
    pub patience: usize,
    /// Seed of every random choice.
    #[arg(long, value_name = "N", help_heading = "Optimisation")]
    #[serde(serialize_with = "as_integer_or_word")]
    pub seed: u64,
    /// Memory for feature rows in the host; what is beyond it stays on the disk. 0 sets no limit.
    #[arg(long, value_name = "BYTES", help_heading = "Feature tiers")]
    pub host_budget: Bytes,
    /// Memory of a device; 0 sets no limit.
    #[arg(long, value_name = "BYTES", help_heading = "Feature tiers")]
    pub device_budget: Bytes,
    /// Rows that the nearest cache holds (the devices' where there are some, else the host's), a
    /// part of all; auto fills its budget.
    #[arg(long, value_name = "R", help_heading = "Feature tiers")]
    pub cache_ratio: Ratio,
    /// What the nearest cache holds: the hottest rows by a metric, or rows that come and go; auto
    /// for posterior:2, or lru with --order proximity. Known
    #[arg(long, value_name = "POLICY", help_heading = "Feature tiers")]
    pub cache: String,
    /// What the host's cache holds where devices have one before it.
    #[arg(long, value_name = "POLICY", help_heading = "Feature tiers")]
    pub host_cache: String,
    /// How rows are spread over devices: shard, interleave, replicate, or replicate:R for the
    /// hottest part R of each.
    #[arg(long, value_name = "HOW", help_heading = "Feature tiers")]
    pub placement: Spelled<Placement>,
    /// Who runs which stage.
    #[arg(long, value_name = "NAME", help_heading = "Execution")]
    pub strategy: String,
    /// Cores of the stages (pipelined): profiled, naive (all compete for all), or those to sample,
    /// extract and train, such as 1,1,2.
    #[arg(long, value_name = "HOW", help_heading = "Execution")]
    pub allocation: Spelled<Cores>,
    /// Batches under way at most (all but sequential); 0 for as many as keep every stage busy.
    #[arg(long, value_name = "N", help_heading = "Execution")]
    pub queue: usize,
    /// Devices that sample (factored); 0 for as many as keep pace with those that train.
    #[arg(long, value_name = "N", help_heading = "Execution")]
    pub num_samplers: usize,
    /// Let devices that have finished sampling train for the rest of the epoch (factored): on or
    /// off.
    #[arg(long, value_name = "WHEN", help_heading = "Execution")]
    pub switching: Toggle,
    /// How Trainers update the model (factored, time-sharing): synchronous, or asynchronous with
    /// --staleness as the bound.
    #[arg(long, value_name = "HOW", help_heading = "Execution")]
    pub updates: Updates,
    /// How gradients of several NVIDIA devices are summed: nccl, peer (copies in the order of the
    /// batches), or auto for nccl where it is there and rounds are of two batches, whose sums are
    /// the same bits in any order.
    #[arg(long, value_name = "HOW", help_heading = "Execution")]
    pub all_reduce: AllReduce,
    /// Batches of a synchronous update; 0 for one of each virtual device that trains: then it is as
    /// if batches were so many times as large.
    #[arg(long, value_name = "N", help_heading = "Execution")]
    pub batches_per_update: usize,
    /// Nodes whose bottom-layer rows a super-batch reuses, at most this part of all (layered); auto
    /// for all that two of its batches ask for, as far as there is memory.
    #[arg(long, value_name = "R", help_heading = "Execution")]
    pub hot_ratio: Ratio,
    /// Batches of a super-batch (layered); 0 for as few as save most of the work.
    #[arg(long, value_name = "N", help_heading = "Execution")]
    pub super_batch: usize,
    /// What makes a node hot (layered): asked (by how many batches of the super-batch), or a
    /// hotness such as presc:1.
    #[arg(long, value_name = "NAME", help_heading = "Execution")]
    pub hot_by: String,
    /// Directions in which reused rows follow the parameters, and are as old as their super-batch
    /// only in the others (layered; not with --hot-gradient kept); 0 for none.
    #[arg(long, value_name = "K", help_heading = "Execution")]
    pub hot_rank: usize,
    /// Where the gradient of reused rows goes (layered): projected (to the weights, in the
    /// directions of --hot-rank), kept (to the weights, through all that the rows were made from,
    /// without directions), none (they are constants), or auto for projected where it can be.
    #[arg(long, value_name = "NAME", help_heading = "Execution")]
    pub hot_gradient: HotGradient,
    /// Make the rows to be reused during the super-batch before (layered): on, off, or auto for on
    /// with devices.
    #[arg(long, value_name = "WHEN", help_heading = "Execution")]
    pub hot_ahead: Switch,
    /// The part of the hot nodes whose rows are reused, the rest being left to devices' caches of
    /// features (layered); auto adapts it to how long devices wait, so that numbers depend on time.
    #[arg(long, value_name = "R", help_heading = "Execution")]
    pub hot_split: Ratio,
    /// Shorten super-batches where the largest change of a bottom-layer weight, times twice their
    /// updates, is more (layered); 0 never does.
    #[arg(long, value_name = "X", help_heading = "Execution")]
    pub max_variation: f64,
    /// Updates that an asynchronous gradient may be late.
    #[arg(long, value_name = "N", help_heading = "Execution")]
    pub staleness: usize,
    /// Link between each virtual device and the host: none, or bytes a second and a latency, such
    /// as 12G,10us.
    #[arg(long, value_name = "LINK", help_heading = "Execution")]
    pub link: Spelled<LinkOptions>,
    /// What dense products multiply in: f32, bf16 with f32 sums (weights, sums and all else stay
    /// f32), or on NVIDIA devices tf32.
    #[arg(long, value_name = "TYPE", help_heading = "Execution")]
    pub precision: Arithmetic,
    /// Capture steps whose batch comes again (full batches) as CUDA graphs and replay them (NVIDIA
    /// devices): auto or off. The numbers do not depend on it.
    #[arg(long, value_name = "WHEN", help_heading = "Execution")]
    pub cuda_graphs: CudaGraphs,
    /// How the feature table is held in memory: f32, f16, bf16, or auto (bf16 with --precision
    /// bf16, else as stored).
    #[arg(long, value_name = "TYPE", help_heading = "Execution")]
    pub feature_precision: FeaturePrecision,
    /// Where the arithmetic runs: cpu, cuda:0 or cuda:0,1 for NVIDIA devices, or virtual:N for N
    /// devices that are made up, with memory of their own.
    #[arg(long, value_name = "LIST", help_heading = "Execution")]
    pub devices: Spelled<Devices>,
    /// Threads; 0 takes all cores. The numbers do not depend on it.
    #[arg(long, value_name = "N", help_heading = "Execution")]
    pub threads: usize,
    /// Score the validation nodes every N epochs.
    #[arg(long, value_name = "N", help_heading = "Execution")]
    pub eval_every: usize,
    /// Score so many of the validation and of the test nodes, always the same random ones; 0 scores
    /// all.
    #[arg(long, value_name = "N", help_heading = "Execution")]
    pub eval_nodes: usize,
    /// Nodes per chunk of full-neighbour inference: bounds its memory.
    #[arg(long, value_name = "N", help_heading = "Execution")]
    pub eval_chunk: usize,
    /// Deal the parts of a partitioned dataset to the ranks anew every N epochs (samplers of
    /// subgraphs); 0 never does.
    #[arg(long, value_name = "N", help_heading = "Execution")]
    pub shuffle_parts: usize,
    /// How long another rank may be silent before a run over several ends, in seconds.
    #[arg(long, value_name = "S", help_heading = "Execution")]
    pub peer_timeout: f64,
    /// Write a checkpoint every N batches as well as after every epoch; 0 for epochs alone.
    #[arg(long, value_name = "N", help_heading = "Execution")]
    pub checkpoint_batches: usize,
    /// At most so many seconds between checkpoints.
    #[arg(long, value_name = "S", help_heading = "Execution")]
    pub checkpoint_seconds: f64,
    /// Write trace.json into the run directory: what every worker did with every batch, for
    /// ui.perfetto.dev.
    #[arg(long, help_heading = "Execution")]
    pub trace: bool,
    /// Write event files for TensorBoard into the run directory's tensorboard/, a point an epoch.
    #[arg(long, help_heading = "Execution")]
    pub tensorboard: bool,
}

impl Default for TrainConfig {
    // long: one line per option
    fn default() -> Self {
        Self {
            dataset: "".into(),
            metric: "auto".into(),
            sampler: "neighbor".into(),
            fanout: Fanout(vec![15, 10]),
            batch_size: 1024,
            max_batches: 0,
            order: "random".into(),
            order_sequences: 0,
            inductive: false,
            coverage: 50.0,
            estimator: Estimator::default(),
            replace: false,
            edge_weights: EdgeWeights::default(),
            draw_by: DrawBy::default(),
            labor_iterations: Iterations(0),
            walks: 4,
            restart: 0.5,
            walk_length: 0,
            frontier_size: 1000,
            pop_by: PopBy::default(),
            eta: 2.0,
            degree_cap: 30,
            burning: 0.7,
            parts: 50,
            parts_per_batch: 5,
            fused: Switch::Auto,
            sparse: Switch::Auto,
            model: "sage".into(),
            aggregator: "mean".into(),
            layers: 2,
            hops: 2,
            hidden: 256,
            heads: 4,
            out_heads: 1,
            activation: "relu".into(),
            init: "glorot".into(),
            norm: "none".into(),
            residual: "none".into(),
            input_layer: false,
            head_layers: 0,
            dropout: 0.5,
            input_dropout: 0.0,
            attention_dropout: 0.0,
            epochs: 10,
            optimizer: "adam".into(),
            lr: 0.003,
            momentum: 0.9,
            weight_decay: 0.0,
            decay_first: false,
            schedule: "constant".into(),
            schedule_epochs: 0,
            schedule_factor: 0.5,
            min_lr: 0.0,
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
            allocation: spelled("profiled"),
            queue: 0,
            num_samplers: 0,
            switching: Toggle::On,
            updates: Updates::Synchronous,
            all_reduce: AllReduce::Auto,
            batches_per_update: 0,
            hot_ratio: Ratio(None),
            super_batch: 0,
            hot_by: "asked".into(),
            hot_rank: 16,
            hot_gradient: HotGradient::Auto,
            hot_ahead: Switch::Auto,
            hot_split: Ratio(Some(1.0)),
            max_variation: 0.0,
            staleness: 4,
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
        }
    }
}

/// The value of a default's spelling.
pub(super) fn spelled<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> Spelled<T> {
    text.parse().expect("a default can be read")
}

/// TOML's integers are signed: the few seeds beyond travel as words.
fn as_integer_or_word<S: Serializer>(seed: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    match i64::try_from(*seed) {
        Ok(seed) => serializer.serialize_i64(seed),
        Err(_) => serializer.serialize_str(&seed.to_string()),
    }
}

/// Defines enums of unit variants, whose names in options are those of the variants in kebab-case.
macro_rules! choices {
    ($($(#[doc = $doc:literal])+ $name:ident { $($(#[doc = $text:literal])+ $variant:ident,)+ })+) => {
        $(
            $(#[doc = $doc])+
            #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
            #[serde(rename_all = "kebab-case")]
            pub enum $name {
                $($(#[doc = $text])+ $variant,)+
            }
        )+
        by_name!($($name),+);
    };
}

choices! {
    /// A fast path that is taken by itself, always or never.
    Switch {
        /// Where it helps.
        Auto,
        /// Always; an error where it cannot be.
        On,
        /// Never.
        Off,
    }
    /// A behaviour that is on or off.
    Toggle {
        /// On.
        On,
        /// Off.
        Off,
    }
    /// The measure of the best epoch.
    SelectBy {
        /// The validation score; ties go by the loss.
        Score,
        /// The validation loss.
        Loss,
    }
    /// How Trainers update the model.
    Updates {
        /// All at once, by the gradient of a round of batches.
        Synchronous,
        /// Each by itself, by a gradient whose staleness is bounded.
        Asynchronous,
    }
    /// How gradients of several NVIDIA devices are summed.
    AllReduce {
        /// By NCCL if it is installed and the order cannot matter, else by copies.
        Auto,
        /// By NCCL.
        Nccl,
        /// By copies between devices, in the order of the batches.
        Peer,
    }
    /// Where the gradient of reused rows goes.
    HotGradient {
        /// Projected where it can be.
        Auto,
        /// Nowhere: the rows are constants.
        None,
        /// To the weights, in the directions that the rows follow.
        Projected,
        /// To the weights, through all that the rows were made from.
        Kept,
    }
    /// Replay of steps as CUDA graphs.
    CudaGraphs {
        /// Where a batch comes again.
        Auto,
        /// Never.
        Off,
    }
    /// The number type in which dense products multiply.
    Arithmetic {
        /// Single precision.
        F32,
        /// NVIDIA's 19 bits.
        Tf32,
        /// Half as many bits, summed in single precision.
        Bf16,
    }
    /// The number type of the feature table in memory.
    FeaturePrecision {
        /// As stored; bf16 where products multiply in it.
        Auto,
        /// Single precision.
        F32,
        /// IEEE half precision.
        F16,
        /// Brain floats.
        Bf16,
    }
}

impl FeaturePrecision {
    /// The one that names `kind`.
    pub(crate) fn of(kind: TableType) -> Self {
        match kind {
            TableType::F32 => Self::F32,
            TableType::F16 => Self::F16,
            TableType::Bf16 => Self::Bf16,
        }
    }
}

by_word!(Bytes, Ratio);
