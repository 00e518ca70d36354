//! Reading, writing and checking the options of a run as a whole.

use std::path::Path;

use graphmill_core::options::{Fault, Values, read, write};
use graphmill_nn::layer;
use serde_json::Value as Json;

use super::{
    Arithmetic, Devices, HotGradient, IN_MEMORY, Switch, TrainConfig,
    keys::{KEYS, Key, key, suggestion},
};
use crate::{Error, Result};

/// Deeper networks are a slip of the hand.
const MOST_LAYERS: usize = 64;
/// A super-batch is drawn before it is trained on, and counted in 16 bits.
const MOST_BATCHES: usize = 1 << 14;
/// With more directions rows may as well be computed.
const MOST_DIRECTIONS: usize = 1 << 10;
/// So are higher powers.
const MOST_HOPS: usize = 16;

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
        let mut values = Values::new();
        let mut set = Vec::new();
        for (name, value) in table {
            let known: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
            let Some(key) = key(&name) else {
                let message = format!("no such option{}", suggestion(&name, &known));
                return Err(Error::format(path, name, message));
            };
            let value =
                serde_json::to_value(&value).map_err(|e| Error::format(path, key.name, e.to_string()))?;
            values.insert(key.name.into(), value);
            set.push(key.name);
        }
        self.set(&values)
            .map_err(|Fault { option, message }| Error::format(path, option.unwrap_or_default(), message))?;
        Ok(set)
    }

    /// Sets options by their names. This is how files, the command line and Python set them.
    ///
    /// # Errors
    /// The first value that its option cannot have; nothing is set then.
    pub fn set(&mut self, values: &Values) -> Result<(), Fault> {
        let mut all = write(self);
        all.extend(values.iter().map(|(name, value)| (name.clone(), value.clone())));
        *self = read(&all)?;
        Ok(())
    }

    /// All options as a JSON object.
    pub fn to_json(&self) -> Json {
        Json::Object(write(self))
    }

    /// All options as TOML, commented: reusable with `--config`.
    pub fn to_toml(&self) -> String {
        let mut text = String::from(match self.is_in_memory() {
            false => "# Every option of this run; reuse it with: graphmill train --config FILE\n",
            true => {
                "# Every option of this run, whose dataset was in memory; reuse it with: graphmill train DATASET --config FILE\n"
            }
        });
        let mut group = "";
        let values = write(self);
        for key in KEYS.iter() {
            if key.group != group {
                group = key.group;
                text += &format!("\n# {group}\n");
            }
            let value = &values[key.name];
            let value = toml::Value::try_from(value).map_or_else(|_| value.to_string(), |v| v.to_string());
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
        if self.hot_ahead == Switch::Auto && self.strategy == "layered" {
            self.hot_ahead = if *self.devices == Devices::Cpu { Switch::Off } else { Switch::On };
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

    /// Whether the options are of a run on a dataset in memory, which has no directory.
    pub fn is_in_memory(&self) -> bool {
        self.dataset == IN_MEMORY
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
        if self.precision == Arithmetic::Tf32 && self.cuda_devices().is_empty() {
            return Err(Error::usage(
                "--precision tf32: only NVIDIA devices multiply in it; use --devices cuda:0, or --precision f32 or bf16",
            ));
        }
        if self.hot_gradient == HotGradient::Projected && self.hot_rank == 0 {
            return Err(Error::usage(
                "--hot-gradient projected --hot-rank 0: gradients go through directions, of which there are none; use a rank of 1 or more",
            ));
        }
        if self.hot_rank > MOST_DIRECTIONS {
            return Err(Error::usage(format!("--hot-rank {}: at most {MOST_DIRECTIONS}", self.hot_rank)));
        }
        if self.hot_by != "asked" {
            let known = |e| Error::usage(format!("--hot-by: {e}; or asked"));
            if !matches!(
                crate::cache_kind::kind(&self.hot_by).map_err(known)?,
                crate::cache_kind::Kind::Pinned
            ) {
                return Err(Error::usage(format!(
                    "--hot-by {}: rows that come and go make no node hot; use asked, or a hotness such as presc:1",
                    self.hot_by
                )));
            }
        }
        if self.super_batch > MOST_BATCHES {
            return Err(Error::usage(format!("--super-batch {}: at most {MOST_BATCHES}", self.super_batch)));
        }
        for (flag, name) in [("cache", &self.cache), ("host-cache", &self.host_cache)] {
            if name != "auto" {
                crate::cache_kind::kind(name).map_err(|e| Error::usage(format!("--{flag}: {e}")))?;
            }
        }
        Ok(())
    }

    /// Batches of a synchronous update. A function of the options alone: how many devices turn out to sample depends on how fast
    /// they are today, and groups of cores on the machine.
    pub(crate) fn round(&self) -> u64 {
        if self.batches_per_update > 0 {
            return self.batches_per_update as u64;
        }
        let sample = if self.strategy == "factored" { self.num_samplers.max(1) } else { 0 };
        self.num_devices().saturating_sub(sample).max(1) as u64
    }

    /// Refuses options in which a resumed run differs from the run `before` so that its numbers would
    /// change.
    ///
    /// # Errors
    /// Wrong usage: the first such option with both values.
    pub fn check_resumed(&self, before: &Self) -> Result<()> {
        let (before, now) = (write(before), write(self));
        let differs = |key: &&Key| !key.free && before[key.name] != now[key.name];
        match KEYS.iter().find(differs) {
            None => Ok(()),
            Some(key) => Err(Error::usage(format!(
                "--{} is {} in the run to resume and cannot become {}",
                key.flag(),
                before[key.name],
                now[key.name]
            ))),
        }
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

/// Line and column of a TOML error in the `text` that was parsed.
pub fn place(text: &str, error: &toml::de::Error) -> String {
    let at = error.span().map_or(0, |span| span.start.min(text.len()));
    let before = &text.as_bytes()[..at];
    let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
    let column = at - before.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1) + 1;
    format!("line {line}, column {column}")
}
