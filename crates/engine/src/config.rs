//! Every option of a training run, once: the struct, its defaults, the command line, `config.toml`
//! and the JSON that a run records all come from the one list in this file.
//!
//! Precedence: defaults, then a configuration file, then the command line.

mod devices;
mod value;

use std::path::Path;

use graphmill_graph::table::names;
use graphmill_loader::feature::{LinkOptions, cached::Placement};
use graphmill_nn::layer;
use serde_json::{Map, Value as Json};

pub(crate) use devices::Devices;
use value::Value;
pub use value::{Bytes, Fanout, Ratio};

use crate::{Error, Result, strategy::pipelined::Cores};

/// One option, as the command line and the files see it.
pub struct Key {
    /// Its name in files; the flag is the same with dashes.
    pub name: &'static str,
    /// What stands for its value in help texts: `N`, `NAME`, ...; `BOOL` may be left out on the command line.
    pub value: &'static str,
    /// Heading it stands under.
    pub group: &'static str,
    /// What it does: the field's doc comment.
    pub help: &'static [&'static str],
    /// Reads it from a word.
    pub parse: fn(&mut TrainConfig, &str) -> Result<(), String>,
    /// Reads it from a file's value.
    pub read: fn(&mut TrainConfig, &Json) -> Result<(), String>,
    /// Its value, for files.
    pub write: fn(&TrainConfig) -> Json,
    /// Whether a resumed run may change it: it does not touch the numbers.
    pub free: bool,
}

impl Key {
    /// The flag, without the dashes in front: `batch-size`.
    pub fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    /// The names of the table that this option chooses from, where its help text does not tell them.
    fn known(&self) -> Option<String> {
        match self.name {
            "sampler" => Some(names(graphmill_loader::sampler::TABLE)),
            "order" => Some(names(graphmill_loader::order::TABLE)),
            "model" => Some(names(graphmill_nn::layer::TABLE)),
            "strategy" => Some(names(crate::strategy::TABLE)),
            "cache" => Some(crate::hotness::known()),
            _ => None,
        }
    }

    /// The help text with the known names and the default.
    pub fn help(&self) -> String {
        let text: Vec<&str> = self.help.iter().map(|line| line.trim()).collect();
        let default = match (self.write)(&TrainConfig::default()) {
            Json::String(word) => word,
            Json::Array(hops) => hops.iter().map(Json::to_string).collect::<Vec<_>>().join(","),
            other => other.to_string(),
        };
        let text = text.join(" ");
        let mut text = text.trim_end_matches('.').to_string();
        if let Some(known) = self.known() {
            text += &format!(": {known}");
        }
        if default.is_empty() { text } else { format!("{text} [default: {default}]") }
    }
}

macro_rules! options {
    ($($group:literal { $($(#[doc = $doc:literal])+ $free:ident $name:ident: $kind:ty = $default:expr, $value:literal;)+ })+) => {
        /// Everything a training run can be told.
        #[derive(Clone, Debug, PartialEq)]
        pub struct TrainConfig {
            $($($(#[doc = $doc])+ pub $name: $kind,)+)+
        }

        impl Default for TrainConfig {
            fn default() -> Self {
                Self { $($($name: $default.into(),)+)+ }
            }
        }

        /// Every option, in the order of help and files.
        pub const KEYS: &[Key] = &[
            $($(Key {
                name: stringify!($name),
                value: $value,
                group: $group,
                help: &[$($doc),+],
                parse: |config, word| { config.$name = <$kind as Value>::parse(word)?; Ok(()) },
                read: |config, json| { config.$name = <$kind as Value>::read(json)?; Ok(()) },
                write: |config| Value::write(&config.$name),
                free: options!(@ $free),
            },)+)+
        ];
    };
    (@ free) => { true };
    (@ fixed) => { false };
}

options! {
    "Data" {
        /// Directory of the dataset, or nothing for the built-in demo graph.
        fixed dataset: String = "", "DIR";
        /// Score to judge by: accuracy, f1-micro, f1-macro, roc-auc, average-precision, or auto for the dataset's own.
        fixed metric: String = "auto", "NAME";
    }
    "Minibatches" {
        /// Sampler.
        fixed sampler: String = "neighbor", "NAME";
        /// Neighbours per node per hop, from the seeds outward; -1 takes all.
        fixed fanout: Fanout = Fanout(vec![15, 10]), "K,K";
        /// Seeds per minibatch, 0 for all training nodes at once; with samplers of subgraphs, nodes per subgraph.
        fixed batch_size: usize = 1024_usize, "N";
        /// Minibatches of an epoch at most, 0 for all: every epoch then trains on other random nodes.
        fixed max_batches: usize = 0_usize, "N";
        /// Order of the seeds.
        fixed order: String = "random", "NAME";
        /// Sequences of neighbouring nodes that batches are mixed from (proximity); 0 for as few as mix labels well.
        fixed order_sequences: usize = 0_usize, "N";
        /// Draw subgraphs among the training nodes alone (inductive).
        fixed inductive: bool = false, "BOOL";
        /// Count every node so often on average for the normalisation of subgraphs; 0 leaves it out.
        fixed coverage: f64 = 50.0, "N";
        /// How counted edges estimate a sum over all neighbours: by ratio, or unbiased as GraphSAINT's paper does.
        fixed estimator: String = "ratio", "NAME";
        /// Draw a neighbour again (weighted).
        fixed replace: bool = false, "BOOL";
        /// What edges weigh (weighted, labor): stored, or by their source in-degree, out-degree, inverse-in-degree or inverse-out-degree.
        fixed edge_weights: String = "stored", "NAME";
        /// Draw by alias tables, 8 bytes an edge, or by prefix-sums, without tables but as slow as rows are long (weighted).
        fixed draw_by: String = "alias", "NAME";
        /// How often to make nodes that many need more likely, and others less: fewer rows are read (labor); * for as often as it helps.
        fixed labor_iterations: String = "0", "N";
        /// Walks from each node (random-walk).
        fixed walks: usize = 4_usize, "N";
        /// Probability that a walk ends, after each step (random-walk).
        fixed restart: f64 = 0.5, "P";
        /// Steps of a walk; 0 takes the sampler's own, 2 (saint-rw) or 3 (random-walk).
        fixed walk_length: usize = 0_usize, "N";
        /// Nodes of the frontier (frontier).
        fixed frontier_size: usize = 1000_usize, "N";
        /// Pop the frontier's nodes by sums (a tree of running sums) or by dashboard (GraphSAINT's) (frontier).
        fixed pop_by: String = "sums", "NAME";
        /// How much larger than its live part a dashboard is, 1.01 to 64 (frontier).
        fixed eta: f64 = 2.0, "X";
        /// A node of more neighbours is popped as if it had so many; GraphSAINT's program has 3000 (frontier).
        fixed degree_cap: usize = 30_usize, "N";
        /// Probability that fire spreads to one more neighbour (forest-fire).
        fixed burning: f64 = 0.7, "P";
        /// Parts of the graph (cluster).
        fixed parts: usize = 50_usize, "N";
        /// Parts of a subgraph (cluster).
        fixed parts_per_batch: usize = 5_usize, "N";
        /// Let the bottom layer aggregate straight from the feature table: auto, on or off.
        fixed fused: String = "auto", "WHEN";
        /// Multiply sparse feature rows as they are in the first layer: auto (where few enough values are not zero), on
        /// or off.
        fixed sparse: String = "auto", "WHEN";
    }
    "Model" {
        /// Layer type.
        fixed model: String = "sage", "NAME";
        /// GraphSAGE's aggregator: mean or max-pool.
        fixed aggregator: String = "mean", "NAME";
        /// Number of graph layers; as many as there are fanouts (MixHop: times --hops).
        fixed layers: usize = 2_usize, "N";
        /// Hops of each layer, its highest power of the adjacency matrix (MixHop).
        fixed hops: usize = 2_usize, "N";
        /// Width of the hidden layers.
        fixed hidden: usize = 256_usize, "N";
        /// Attention heads of the hidden layers (GAT).
        fixed heads: usize = 4_usize, "N";
        /// Attention heads of the last layer, averaged (GAT).
        fixed out_heads: usize = 1_usize, "N";
        /// Non-linearity: relu, elu, leaky-relu or identity.
        fixed activation: String = "relu", "NAME";
        /// First weights of dense layers: glorot, or fan-in (1 / sqrt(in), as PyTorch's).
        fixed init: String = "glorot", "NAME";
        /// Normalisation between layers: none, batch, layer or l2.
        fixed norm: String = "none", "NAME";
        /// Residual connection around each layer: none, identity or linear.
        fixed residual: String = "none", "NAME";
        /// Put a linear layer with activation in front of the first graph layer.
        fixed input_layer: bool = false, "BOOL";
        /// Linear layers of an MLP classifier on top; 0 lets the last graph layer classify.
        fixed head_layers: usize = 0_usize, "N";
        /// Dropout of hidden rows.
        fixed dropout: f64 = 0.5, "P";
        /// Dropout of feature rows.
        fixed input_dropout: f64 = 0.0, "P";
        /// Dropout of attention weights (GAT).
        fixed attention_dropout: f64 = 0.0, "P";
    }
    "Optimisation" {
        /// Passes over the training nodes.
        free epochs: usize = 10_usize, "N";
        /// Optimiser: adam, adamw or sgd.
        fixed optimizer: String = "adam", "NAME";
        /// Learning rate.
        fixed lr: f64 = 0.003, "LR";
        /// Momentum (SGD).
        fixed momentum: f64 = 0.9, "M";
        /// L2 penalty; decoupled decay with adamw.
        fixed weight_decay: f64 = 0.0, "WD";
        /// Apply the weight decay to the first graph layer alone, as Kipf and Welling do.
        fixed decay_first: bool = false, "BOOL";
        /// Learning-rate schedule: constant, step, cosine or plateau.
        fixed schedule: String = "constant", "NAME";
        /// Epochs between steps (step), of a whole descent (cosine; 0: all epochs), or scored epochs of patience (plateau).
        fixed schedule_epochs: usize = 0_usize, "N";
        /// Factor at each step (step, plateau).
        fixed schedule_factor: f64 = 0.5, "F";
        /// Lowest learning rate (cosine, plateau).
        fixed min_lr: f64 = 0.0, "LR";
        /// Epochs of linear warm-up.
        fixed warmup: f64 = 0.0, "N";
        /// Largest norm of the gradient; 0 for no limit.
        fixed clip: f64 = 0.0, "NORM";
        /// What tells the best epoch: the validation score (ties go by the loss), or the validation loss.
        fixed select: String = "score", "NAME";
        /// Stop after so many scored epochs (--eval-every) without a better one; 0 never stops early.
        free patience: usize = 0_usize, "N";
        /// Seed of every random choice.
        fixed seed: u64 = 0_u64, "N";
    }
    "Feature tiers" {
        /// Memory for feature rows in the host; what is beyond it stays on the disk. 0 sets no limit.
        free host_budget: Bytes = Bytes(0), "BYTES";
        /// Memory of a device; 0 sets no limit.
        free device_budget: Bytes = Bytes(0), "BYTES";
        /// Rows that the nearest cache holds (the devices' where there are some, else the host's), a part of all; auto fills its budget.
        free cache_ratio: Ratio = Ratio(None), "R";
        /// What the nearest cache holds: the hottest rows by a metric, or rows that come and go; auto for posterior:2, or lru with --order
        /// proximity. Known
        free cache: String = "auto", "POLICY";
        /// What the host's cache holds where devices have one before it.
        free host_cache: String = "auto", "POLICY";
        /// How rows are spread over devices: shard, interleave, replicate, or replicate:R for the hottest part R of each.
        free placement: String = "interleave", "HOW";
    }
    "Execution" {
        /// Who runs which stage.
        fixed strategy: String = "sequential", "NAME";
        /// Cores of the stages (pipelined): profiled, naive (all compete for all), or those to sample, extract and train, such as 1,1,2.
        free allocation: String = "profiled", "HOW";
        /// Batches under way at most (all but sequential); 0 for as many as keep every stage busy.
        free queue: usize = 0_usize, "N";
        /// Devices that sample (factored); 0 for as many as keep pace with those that train.
        free num_samplers: usize = 0_usize, "N";
        /// Let devices that have finished sampling train for the rest of the epoch (factored): on or off.
        free switching: String = "on", "WHEN";
        /// How Trainers update the model (factored, time-sharing): synchronous, or asynchronous with --staleness as the bound.
        fixed updates: String = "synchronous", "HOW";
        /// How gradients of several NVIDIA devices are summed: nccl, peer (copies in the order of the batches), or auto for nccl where it is there and
        /// rounds are of two batches, whose sums are the same bits in any order.
        fixed all_reduce: String = "auto", "HOW";
        /// Batches of a synchronous update; 0 for one of each virtual device that trains: then it is as if batches were so many times as large.
        fixed batches_per_update: usize = 0_usize, "N";
        /// Nodes whose bottom-layer rows a super-batch reuses, at most this part of all (layered); auto for all that two of its batches ask for, as far as there is memory.
        fixed hot_ratio: Ratio = Ratio(None), "R";
        /// Batches of a super-batch (layered); 0 for as few as save most of the work.
        fixed super_batch: usize = 0_usize, "N";
        /// What makes a node hot (layered): asked (by how many batches of the super-batch), or a hotness such as presc:1.
        fixed hot_by: String = "asked", "NAME";
        /// Directions in which reused rows follow the parameters, and are as old as their super-batch only in the others (layered; not with
        /// --hot-gradient kept); 0 for none.
        fixed hot_rank: usize = 16_usize, "K";
        /// Where the gradient of reused rows goes (layered): projected (to the weights, in the directions of --hot-rank), kept (to the weights,
        /// through all that the rows were made from, without directions), none (they are constants), or auto for projected where it can be.
        fixed hot_gradient: String = "auto", "NAME";
        /// Make the rows to be reused during the super-batch before (layered): on, off, or auto for on with devices.
        fixed hot_ahead: String = "auto", "WHEN";
        /// The part of the hot nodes whose rows are reused, the rest being left to devices' caches of features (layered); auto adapts it to how
        /// long devices wait, so that numbers depend on time.
        fixed hot_split: Ratio = Ratio(Some(1.0)), "R";
        /// Shorten super-batches where the largest change of a bottom-layer weight, times twice their updates, is more (layered); 0 never does.
        fixed max_variation: f64 = 0.0, "X";
        /// Updates that an asynchronous gradient may be late.
        fixed staleness: usize = 4_usize, "N";
        /// Link between each virtual device and the host: none, or bytes a second and a latency, such as 12G,10us.
        free link: String = "none", "LINK";
        /// What dense products multiply in: f32, bf16 with f32 sums (weights, sums and all else stay f32), or on NVIDIA devices tf32.
        fixed precision: String = "f32", "TYPE";
        /// Capture steps whose batch comes again (full batches) as CUDA graphs and replay them (NVIDIA devices): auto or off. The numbers do not
        /// depend on it.
        free cuda_graphs: String = "auto", "WHEN";
        /// How the feature table is held in memory: f32, f16, bf16, or auto (bf16 with --precision bf16, else as stored).
        fixed feature_precision: String = "auto", "TYPE";
        /// Where the arithmetic runs: cpu, cuda:0 or cuda:0,1 for NVIDIA devices, or virtual:N for N devices that are made up, with memory of
        /// their own.
        free devices: String = "cpu", "LIST";
        /// Threads; 0 takes all cores. The numbers do not depend on it.
        free threads: usize = 0_usize, "N";
        /// Score the validation nodes every N epochs.
        fixed eval_every: usize = 1_usize, "N";
        /// Score so many of the validation and of the test nodes, always the same random ones; 0 scores all.
        fixed eval_nodes: usize = 0_usize, "N";
        /// Nodes per chunk of full-neighbour inference: bounds its memory.
        fixed eval_chunk: usize = 16384_usize, "N";
        /// Deal the parts of a partitioned dataset to the ranks anew every N epochs (samplers of subgraphs); 0 never does.
        fixed shuffle_parts: usize = 0_usize, "N";
        /// How long another rank may be silent before a run over several ends, in seconds.
        free peer_timeout: f64 = 60.0, "S";
        /// Write a checkpoint every N batches as well as after every epoch; 0 for epochs alone.
        free checkpoint_batches: usize = 0_usize, "N";
        /// At most so many seconds between checkpoints.
        free checkpoint_seconds: f64 = 60.0, "S";
        /// Write trace.json into the run directory: what every worker did with every batch, for ui.perfetto.dev.
        free trace: bool = false, "BOOL";
        /// Write event files for TensorBoard into the run directory's tensorboard/, a point an epoch.
        free tensorboard: bool = false, "BOOL";
    }
}

/// Deeper networks are a slip of the hand.
const MOST_LAYERS: usize = 64;
/// A super-batch is drawn before it is trained on, and counted in 16 bits.
const MOST_BATCHES: usize = 1 << 14;
/// With more directions rows may as well be computed.
const MOST_DIRECTIONS: usize = 1 << 10;
/// So are higher powers.
const MOST_HOPS: usize = 16;

/// The option of that name, written with dashes or underscores.
pub fn key(name: &str) -> Option<&'static Key> {
    let name = name.replace('-', "_");
    KEYS.iter().find(|key| key.name == name)
}

impl TrainConfig {
    /// Reads options from a TOML file over the ones there are; returns the names it set.
    ///
    /// # Errors
    /// The file cannot be read or parsed, or holds an unknown option or an impossible value.
    pub fn read_file(&mut self, path: &Path) -> Result<Vec<&'static str>> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, "read", e))?;
        self.read_text(&text, path)
    }

    /// [`TrainConfig::read_file`] of text that is that of `path`.
    ///
    /// # Errors
    /// As [`TrainConfig::read_file`].
    pub fn read_text(&mut self, text: &str, path: &Path) -> Result<Vec<&'static str>> {
        let table: toml::Table =
            text.parse().map_err(|e: toml::de::Error| Error::format(path, place(text, &e), e.message()))?;
        let mut set = Vec::new();
        for (name, value) in table {
            let Some(key) = key(&name) else {
                let known: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
                return Err(Error::format(
                    path,
                    name,
                    format!("no such option; known: {}", known.join(", ")),
                ));
            };
            let json =
                serde_json::to_value(&value).map_err(|e| Error::format(path, key.name, e.to_string()))?;
            (key.read)(self, &json).map_err(|message| Error::format(path, key.name, message))?;
            set.push(key.name);
        }
        Ok(set)
    }

    /// All options as a JSON object.
    pub fn to_json(&self) -> Json {
        Json::Object(KEYS.iter().map(|key| (key.name.to_string(), (key.write)(self))).collect::<Map<_, _>>())
    }

    /// All options as TOML, commented: reusable with `--config`.
    pub fn to_toml(&self) -> String {
        let mut text =
            String::from("# Every option of this run; reuse it with: graphmill train --config FILE\n");
        let mut group = "";
        for key in KEYS {
            if key.group != group {
                group = key.group;
                text += &format!("\n# {group}\n");
            }
            let value = (key.write)(self);
            let value = toml::Value::try_from(&value).map_or_else(|_| value.to_string(), |v| v.to_string());
            text += &format!("{} = {value}\n", key.name);
        }
        text
    }

    /// Makes `layers` and `fanout` agree: the one that was not `given` follows the other.
    ///
    /// # Errors
    /// Both were given and disagree.
    pub fn settle(&mut self, given: &[&str]) -> Result<()> {
        if crate::strategy::is_by_device(self) && self.batches_per_update == 0 {
            // written down, so that a resumed run has the same on other devices
            self.batches_per_update = usize::try_from(self.round()).unwrap_or(1);
        }
        if self.hot_ahead == "auto" && self.strategy == "layered" {
            self.hot_ahead = if self.devices == "cpu" { "off" } else { "on" }.into();
        }
        let (layers, hops, each) = (self.layers, self.fanout.0.len(), self.hops_of_layer());
        if layers.saturating_mul(each) == hops {
            return Ok(());
        }
        let fanout = given.contains(&"fanout");
        if fanout && (given.contains(&"layers") || hops % each != 0) {
            let per_layer = self.hops_per_layer();
            return Err(Error::usage(format!(
                "--fanout {} has {hops} hops, but --layers is {layers}: {per_layer}",
                self.fanout
            )));
        }
        if fanout {
            self.layers = hops / each;
        } else {
            let last = self.fanout.0.last().copied().unwrap_or(10);
            self.fanout.0.resize(layers.min(MOST_LAYERS) * each, last); // validate() refuses more
        }
        Ok(())
    }

    /// Hops of the sampler for each layer.
    fn hops_of_layer(&self) -> usize {
        layer::hops(&self.model, self.hops).clamp(1, MOST_HOPS)
    }

    /// The same in words.
    fn hops_per_layer(&self) -> String {
        match self.hops_of_layer() {
            1 => "one hop per layer".into(),
            each => format!("{each} hops per layer, as --hops says"),
        }
    }

    /// Checks every value that needs no dataset to be checked.
    ///
    /// # Errors
    /// The first impossible one, by the name of its flag.
    pub fn validate(&self) -> Result<()> {
        let probability = |name: &str, p: f64| {
            if (0.0..1.0).contains(&p) {
                Ok(())
            } else {
                Err(Error::usage(format!("--{name} {p}: a probability of at least 0 and below 1")))
            }
        };
        if self.lr <= 0.0 {
            return Err(Error::usage(format!("--lr {}: a learning rate above 0", self.lr)));
        }
        probability("dropout", self.dropout)?;
        probability("input-dropout", self.input_dropout)?;
        probability("attention-dropout", self.attention_dropout)?;
        let at_least = |name: &str, value: f64, least: f64| {
            if value >= least {
                Ok(())
            } else {
                Err(Error::usage(format!("--{name} {value}: at least {least}")))
            }
        };
        for (name, value) in [
            ("momentum", self.momentum),
            ("weight-decay", self.weight_decay),
            ("min-lr", self.min_lr),
            ("warmup", self.warmup),
            ("clip", self.clip),
            ("checkpoint-seconds", self.checkpoint_seconds),
            ("schedule-factor", self.schedule_factor),
            ("max-variation", self.max_variation),
        ] {
            at_least(name, value, 0.0)?;
        }
        for (name, value, most) in [
            ("hidden", self.hidden, 1 << 20),
            ("heads", self.heads, 1 << 10),
            ("out-heads", self.out_heads, 1 << 10),
            ("layers", self.layers, MOST_LAYERS),
            ("hops", self.hops, MOST_HOPS),
            ("eval-every", self.eval_every, usize::MAX),
            ("eval-chunk", self.eval_chunk, usize::MAX),
            ("epochs", self.epochs, 1_000_000_000),
        ] {
            if value == 0 || value > most {
                let most = if most == usize::MAX { "more".to_string() } else { most.to_string() };
                return Err(Error::usage(format!("--{name} {value}: a number from 1 to {most}")));
            }
        }
        if self.threads > 1 << 12 {
            return Err(Error::usage(format!("--threads {}: at most {}", self.threads, 1 << 12)));
        }
        if self.head_layers > 16 {
            return Err(Error::usage(format!("--head-layers {}: at most 16", self.head_layers)));
        }
        if self.batch_size > u32::MAX as usize {
            return Err(Error::usage(format!("--batch-size {}: at most {}", self.batch_size, u32::MAX)));
        }
        if self.order_sequences > u32::MAX as usize {
            return Err(Error::usage(format!(
                "--order-sequences {}: at most {}",
                self.order_sequences,
                u32::MAX
            )));
        }
        let hops = self.layers * self.hops_of_layer();
        if self.fanout.0.len() != hops {
            let per_layer = self.hops_per_layer();
            return Err(Error::usage(format!("--fanout {} must have {hops} hops: {per_layer}", self.fanout)));
        }
        for (name, value) in [("fused", &self.fused), ("sparse", &self.sparse)] {
            if !["auto", "on", "off"].contains(&value.as_str()) {
                return Err(Error::usage(format!("--{name} {value}: auto, on or off")));
            }
        }
        if !["score", "loss"].contains(&self.select.as_str()) {
            return Err(Error::usage(format!("--select {}: score or loss", self.select)));
        }
        if !["f32", "tf32", "bf16"].contains(&self.precision.as_str()) {
            return Err(Error::usage(format!("--precision {}: f32, tf32 or bf16", self.precision)));
        }
        if self.precision == "tf32" && self.cuda_devices()?.is_empty() {
            return Err(Error::usage(
                "--precision tf32: only NVIDIA devices multiply in it; use --devices cuda:0, or --precision f32 or bf16",
            ));
        }
        if !["auto", "f32", "f16", "bf16"].contains(&self.feature_precision.as_str()) {
            return Err(Error::usage(format!(
                "--feature-precision {}: auto, f32, f16 or bf16",
                self.feature_precision
            )));
        }
        if !["auto", "on", "off"].contains(&self.hot_ahead.as_str()) {
            return Err(Error::usage(format!("--hot-ahead {}: auto, on or off", self.hot_ahead)));
        }
        if !["auto", "none", "projected", "kept"].contains(&self.hot_gradient.as_str()) {
            return Err(Error::usage(format!(
                "--hot-gradient {}: auto, none, projected or kept",
                self.hot_gradient
            )));
        }
        if self.hot_gradient == "projected" && self.hot_rank == 0 {
            return Err(Error::usage(
                "--hot-gradient projected --hot-rank 0: gradients go through directions, of which there are none; use a rank of 1 or more",
            ));
        }
        if self.hot_rank > MOST_DIRECTIONS {
            return Err(Error::usage(format!("--hot-rank {}: at most {MOST_DIRECTIONS}", self.hot_rank)));
        }
        if self.hot_by != "asked" {
            let known = |e| Error::usage(format!("--hot-by: {e}; or asked"));
            if !matches!(crate::hotness::kind(&self.hot_by).map_err(known)?, crate::hotness::Kind::Pinned) {
                return Err(Error::usage(format!(
                    "--hot-by {}: rows that come and go make no node hot; use asked, or a hotness such as presc:1",
                    self.hot_by
                )));
            }
        }
        if self.super_batch > MOST_BATCHES {
            return Err(Error::usage(format!("--super-batch {}: at most {MOST_BATCHES}", self.super_batch)));
        }
        LinkOptions::parse(&self.link).map_err(|e| Error::usage(format!("--link {e}")))?;
        if !["on", "off"].contains(&self.switching.as_str()) {
            return Err(Error::usage(format!("--switching {}: on or off", self.switching)));
        }
        if !["auto", "nccl", "peer"].contains(&self.all_reduce.as_str()) {
            return Err(Error::usage(format!("--all-reduce {}: auto, nccl or peer", self.all_reduce)));
        }
        if !["auto", "off"].contains(&self.cuda_graphs.as_str()) {
            return Err(Error::usage(format!("--cuda-graphs {}: auto or off", self.cuda_graphs)));
        }
        if !["synchronous", "asynchronous"].contains(&self.updates.as_str()) {
            return Err(Error::usage(format!("--updates {}: synchronous or asynchronous", self.updates)));
        }
        Cores::parse(&self.allocation).map_err(|e| Error::usage(format!("--allocation {e}")))?;
        self.num_devices()?;
        for (flag, name) in [("cache", &self.cache), ("host-cache", &self.host_cache)] {
            if name != "auto" {
                crate::hotness::kind(name).map_err(|e| Error::usage(format!("--{flag}: {e}")))?;
            }
        }
        Placement::parse(&self.placement).map_err(|e| Error::usage(format!("--placement {e}")))?;
        Ok(())
    }

    /// Batches of a synchronous update. A function of the options alone: how many devices turn out to sample depends on how fast
    /// they are today, and groups of cores on the machine.
    pub(crate) fn round(&self) -> u64 {
        if self.batches_per_update > 0 {
            return self.batches_per_update as u64;
        }
        let sample = if self.strategy == "factored" { self.num_samplers.max(1) } else { 0 };
        self.num_devices().map_or(1, |devices| devices.saturating_sub(sample).max(1)) as u64
    }

    /// How many devices there are besides the processor.
    ///
    /// # Errors
    /// `--devices` names none that is known.
    pub fn num_devices(&self) -> Result<usize> {
        Ok(match Devices::parse(&self.devices)? {
            Devices::Cpu => 0,
            Devices::Virtual(count) => count,
            Devices::Cuda(numbers) => numbers.len(),
        })
    }

    /// The numbers of the NVIDIA devices that the arithmetic runs on; none where it runs elsewhere.
    ///
    /// # Errors
    /// As [`TrainConfig::num_devices`].
    pub fn cuda_devices(&self) -> Result<Vec<usize>> {
        Ok(match Devices::parse(&self.devices)? {
            Devices::Cuda(numbers) => numbers,
            _ => Vec::new(),
        })
    }
}

/// Line and column of a TOML error.
pub(crate) fn place(text: &str, error: &toml::de::Error) -> String {
    let at = error.span().map_or(0, |span| span.start.min(text.len()));
    let before = &text.as_bytes()[..at];
    let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
    let column = at - before.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1) + 1;
    format!("line {line}, column {column}")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(text: &str) -> Result<TrainConfig> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let mut config = TrainConfig::default();
        config.read_file(file.path()).map(|_| config)
    }

    #[test]
    fn what_is_written_reads_back() {
        let mut config =
            TrainConfig { seed: u64::MAX, fanout: Fanout(vec![-1, 5]), lr: 1e-4, ..TrainConfig::default() };
        config.dataset = "a \"quoted\" \\ path".into();
        assert_eq!(read(&config.to_toml()).unwrap(), config);
        assert_eq!(config.to_json()["fanout"], serde_json::json!([-1, 5]));
    }

    #[test]
    fn files_accept_flags_spelling_and_refuse_unknown_options() {
        let config = read("batch-size = 7\nfanout = \"3,4\"\ninput_layer = true\n").unwrap();
        assert_eq!((config.batch_size, config.fanout.0, config.input_layer), (7, vec![3, 4], true));
        assert!(read("hiden = 3").unwrap_err().to_string().contains("hiden: no such option; known: dataset"));
        assert!(read("hidden = \"wide\"").unwrap_err().to_string().contains("'wide' is not a whole number"));
        assert!(read("hidden = -3").unwrap_err().to_string().contains("'-3' is not a whole number"));
        assert!(read("lr = 0.1\nhidden = [").unwrap_err().to_string().contains("line 2"));
    }

    #[test]
    fn every_recipe_can_be_read() {
        let recipes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
        let mut read = 0;
        for entry in std::fs::read_dir(recipes).unwrap() {
            let path = entry.unwrap().path();
            if path.file_name().is_some_and(|name| name != "accuracy.toml") {
                let mut config = TrainConfig::default();
                config.read_file(&path).unwrap();
                config.validate().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                read += 1;
            }
        }
        assert!(read > 10);
    }

    #[test]
    fn layers_and_fanout_follow_each_other() {
        let mut config = TrainConfig { layers: 3, ..TrainConfig::default() };
        config.settle(&["layers"]).unwrap();
        assert_eq!(config.fanout.0, [15, 10, 10]);
        let mut config = TrainConfig { fanout: Fanout(vec![5]), ..TrainConfig::default() };
        config.settle(&["fanout"]).unwrap();
        assert_eq!(config.layers, 1);
        let mut config = TrainConfig { fanout: Fanout(vec![5]), layers: 4, ..TrainConfig::default() };
        assert!(config.settle(&["fanout", "layers"]).is_err());
    }

    #[test]
    fn a_layer_of_several_hops_takes_as_many_fanouts() {
        let base = TrainConfig { model: "mixhop".into(), ..TrainConfig::default() };
        let mut config = base.clone();
        config.settle(&["model"]).unwrap();
        assert_eq!((config.layers, config.fanout.0.as_slice()), (2, &[15, 10, 10, 10][..]));
        let mut config = TrainConfig { hops: 3, fanout: Fanout(vec![5, 4, 3]), ..base.clone() };
        config.settle(&["model", "hops", "fanout"]).unwrap();
        config.validate().unwrap();
        assert_eq!(config.layers, 1);
        let mut config = TrainConfig { fanout: Fanout(vec![5, 4, 3]), ..base };
        let error = config.settle(&["model", "fanout"]).unwrap_err().to_string();
        assert!(error.contains("--fanout 5,4,3 has 3 hops"), "{error}");
        assert!(error.contains("2 hops per layer, as --hops says"), "{error}");
        assert!(TrainConfig { hops: 0, ..config }.validate().is_err());
    }

    #[test]
    fn impossible_values_name_their_flag() {
        let bad = |change: fn(&mut TrainConfig)| {
            let mut config = TrainConfig::default();
            change(&mut config);
            config.validate().unwrap_err().to_string()
        };
        assert!(bad(|c| c.dropout = 1.0).starts_with("--dropout 1"));
        assert!(bad(|c| c.hidden = 0).starts_with("--hidden 0"));
        assert!(bad(|c| c.lr = -1.0).starts_with("--lr -1"));
        assert!(bad(|c| c.fused = "maybe".into()).contains("auto, on or off"));
        assert!(bad(|c| c.sparse = "maybe".into()).starts_with("--sparse maybe: auto, on or off"));
        assert!(bad(|c| c.precision = "f16".into()).contains("f32, tf32 or bf16"));
        assert!(bad(|c| c.feature_precision = "f8".into()).contains("auto, f32, f16 or bf16"));
        assert!(TrainConfig::default().validate().is_ok());
    }
}
