//! Profile of a plan: seconds and bytes of one minibatch on one executor, and of the dataset.
//!
//! ```toml
//! name = "papers, sage"
//! batches = 151            # of an epoch
//! last_batch = 0.9         # size of the last batch relative to the others [1]
//! cores = 2                # of the profiled host
//! bandwidth = 20e9         # bytes a second of the executor's memory; optional if the hardware has a speed
//! seconds = { sample = 0.1, gather = 0.05, near = 0.05, train = 0.2 }
//! bytes = { topology = 6.4e9, features = 53e9, batch_rows = 1e8, batch = 1e7, sample = 1e9, train = 3e9 }
//! hit_rates = [{ ratio = 0.05, rate = 0.9 }, { ratio = 0.2, rate = 0.99 }]
//! ```

use std::path::Path;

use graphmill_engine::{
    Error, Result,
    strategy::reuse::{LAYERED, NONE},
    tiers::CacheBytes,
    typed::cost::TypeCost,
};
use serde::{Deserialize, Serialize};

use crate::{file, reuse::ReusedRows};

/// Maximum number of simulated batches.
const MAX_BATCHES: u64 = 1_000_000;

/// Measured costs of a minibatch, and sizes of the dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Description of the profiled run.
    #[serde(default)]
    pub name: String,
    /// Minibatches of an epoch.
    pub batches: u64,
    /// Size of the last batch relative to the others, above 0, at most 1.
    #[serde(default = "whole")]
    pub last_batch: f64,
    /// Cores of the profiled host.
    pub cores: f64,
    /// Bandwidth of the executor's memory, in bytes a second.
    #[serde(default)]
    pub bandwidth: Option<f64>,
    /// Seconds of a minibatch.
    pub seconds: Seconds,
    /// Sizes in bytes.
    pub bytes: Sizes,
    /// Hit rates of a cache by its size: ratios ascend. Values in between are interpolated
    /// linearly; by default an empty cache serves no rows and a full one all.
    #[serde(default)]
    pub hit_rates: Vec<HitRate>,
    /// Costs of the rows that minibatches reuse, if they do. The other costs are then those of
    /// minibatches that reuse rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reuse: Option<ReusedRows>,
    /// Profile of the same run with `--reuse layered`, if a plan compares both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layered: Option<Box<Profile>>,
    /// Reason why the run cannot reuse rows, if a plan would have compared both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_reuse: Option<String>,
    /// Costs by node type, if the run is on several types.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<TypeCost>,
}

/// Seconds of a minibatch on one executor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seconds {
    /// Sampling.
    pub sample: f64,
    /// Sampling with all cores of the host, if that is another executor; by default equal to
    /// `sample`.
    #[serde(default)]
    pub sample_host: Option<f64>,
    /// Gathering of all rows in the host's memory.
    pub gather: f64,
    /// Gathering of all rows in the executor's own memory.
    pub near: f64,
    /// Forward, backward and update.
    pub train: f64,
}

/// Sizes of data in memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// Topology.
    pub topology: f64,
    /// All feature rows.
    pub features: f64,
    /// Maps of a cache in host memory over all nodes, whatever it holds.
    #[serde(default)]
    pub maps: f64,
    /// Maps of such a cache per cached row, for all rows.
    #[serde(default)]
    pub row_maps: f64,
    /// The same two of a cache on an NVIDIA device; by default those of a cache in host memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_maps: Option<[f64; 2]>,
    /// Feature rows of a minibatch.
    pub batch_rows: f64,
    /// Feature rows of the next minibatch on a device that extracts it while it trains, with their
    /// margin; by default `batch_rows`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_rows: Option<f64>,
    /// Blocks of a minibatch in a queue.
    #[serde(default)]
    pub batch: f64,
    /// Workspace of sampling, without the topology.
    pub sample: f64,
    /// Memory of a thread that samples on a device which shares the host's cores, as a run reserves
    /// it; by default that of all threads is `sample`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_thread: Option<f64>,
    /// Memory of training: a minibatch with its rows, activations, parameters, gradients and the
    /// optimizer's state.
    pub train: f64,
    /// The same on a device that computes gradients beside others, and holds of the learned rows
    /// only those of its minibatch; by default `train`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_gradients: Option<f64>,
    /// Parameters, whose gradients devices exchange.
    #[serde(default)]
    pub parameters: f64,
}

/// Point of a cache's hit-rate curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HitRate {
    /// Share of the rows that it holds.
    pub ratio: f64,
    /// Share of the requested rows that it serves.
    pub rate: f64,
}

fn whole() -> f64 {
    1.0
}

impl Sizes {
    /// Sets the maps of caches by `policy` in front of tables of these numbers of rows and bytes of
    /// a row, as runs count them.
    ///
    /// # Errors
    /// The policy is unknown.
    pub(crate) fn with_maps(self, policy: &str, tables: &[(usize, u64)]) -> Result<Self> {
        let mut sizes = Self { maps: 0.0, row_maps: 0.0, device_maps: None, ..self };
        let mut on_device = [0.0; 2];
        let of = |memory: CacheBytes, rows: usize, row_bytes: u64| {
            [memory.of_table, (memory.of_row - row_bytes as f64) * rows as f64]
        };
        for &(rows, row_bytes) in tables {
            let [of_table, of_rows] = of(CacheBytes::new(policy, rows, row_bytes), rows, row_bytes);
            sizes.maps += of_table;
            sizes.row_maps += of_rows;
            let nvidia = of(CacheBytes::on_nvidia(policy, rows, row_bytes)?, rows, row_bytes);
            on_device.iter_mut().zip(nvidia).for_each(|(sum, bytes)| *sum += bytes);
        }
        sizes.device_maps = Some(on_device);
        Ok(sizes)
    }

    /// Memory of a cache in host memory or on a simulated device, whose only row is the whole
    /// table: its number of rows is the share of the rows.
    pub(crate) fn host_cache(&self) -> CacheBytes {
        CacheBytes { of_table: self.maps, of_row: self.features + self.row_maps }
    }

    /// The same on a device with memory of its own.
    pub(crate) fn device_cache(&self) -> CacheBytes {
        let [of_table, of_rows] = self.device_maps.unwrap_or([self.maps, self.row_maps]);
        CacheBytes { of_table, of_row: self.features + of_rows }
    }

    /// Memory of training on a device that computes gradients beside others.
    pub(crate) fn train_gradients(&self) -> f64 {
        self.train_gradients.unwrap_or(self.train)
    }

    /// Feature rows of the next minibatch on a device that extracts it while it trains.
    pub(crate) fn next_rows(&self) -> f64 {
        self.next_rows.unwrap_or(self.batch_rows)
    }
}

impl Profile {
    /// Reads a TOML or JSON file.
    ///
    /// # Errors
    /// The file cannot be read or is invalid; the error contains the line or the field.
    pub fn open(path: &Path) -> Result<Self> {
        let profile: Self = file::read(path)?;
        profile.check().map_err(|(place, message)| Error::format(path, place, message))?;
        Ok(profile)
    }

    /// Profiles of a plan: this one, and that with reused rows if it compares both.
    pub(crate) fn compared(&self) -> impl Iterator<Item = &Self> {
        [Some(self), self.layered.as_deref()].into_iter().flatten()
    }

    /// Value of `--reuse` of the profiled run.
    pub(crate) fn reuse_name(&self) -> &'static str {
        if self.reuse.is_some() { LAYERED } else { NONE }
    }

    /// Share of the rows served by a cache that holds the share `ratio`, from 0 to 1.
    pub fn hit_rate(&self, ratio: f64) -> f64 {
        interpolated(self.hit_rates.iter().copied(), ratio)
    }

    /// The same share of the bytes of the rows: rows of different types have different widths.
    pub(crate) fn byte_rate(&self, ratio: f64) -> f64 {
        let all: f64 = self.types.iter().map(TypeCost::bytes).sum();
        if all == 0.0 {
            return self.hit_rate(ratio);
        }
        self.types.iter().map(|of| of.bytes() * self.type_rate(of, ratio)).sum::<f64>() / all
    }

    /// The same share of the rows of a type.
    pub(crate) fn type_rate(&self, of: &TypeCost, ratio: f64) -> f64 {
        if of.hit_rates.is_empty() {
            return self.hit_rate(ratio);
        }
        interpolated(of.hit_rates.iter().map(|&[ratio, rate]| HitRate { ratio, rate }), ratio)
    }

    /// Bytes of the learned rows of a minibatch.
    pub(crate) fn learned_rows(&self) -> f64 {
        self.types.iter().map(|of| of.nodes * of.learned_bytes).sum()
    }

    /// Checks the fields, and those of the profile with reused rows; an error contains the field
    /// and its valid range.
    pub(crate) fn check(&self) -> std::result::Result<(), (String, String)> {
        if let Some(layered) = &self.layered {
            if self.reuse.is_some() || layered.reuse.is_none() || layered.layered.is_some() {
                let message = "it is the profile of the same run with reused rows, so it needs the field \
                               reuse, and the outer profile does not have it; take both from one plan";
                return Err(("layered".into(), message.into()));
            }
            layered.check().map_err(|(place, message)| (format!("layered.{place}"), message))?;
        }
        if !(1..=MAX_BATCHES).contains(&self.batches) {
            return Err(("batches".into(), format!("{}: from 1 to {MAX_BATCHES}", self.batches)));
        }
        if !(self.last_batch > 0.0 && self.last_batch <= 1.0) {
            return Err(("last_batch".into(), format!("{}: above 0, at most 1", self.last_batch)));
        }
        let positive = [("cores", self.cores), ("bandwidth", self.bandwidth.unwrap_or(1.0))];
        if let Some((place, value)) = positive.into_iter().find(|(_, x)| !(x.is_finite() && *x > 0.0)) {
            return Err((place.into(), format!("{value}: a number above 0")));
        }
        let (seconds, bytes) = (&self.seconds, &self.bytes);
        let from_zero = [
            ("seconds.sample", seconds.sample),
            ("seconds.sample_host", seconds.sample_host.unwrap_or(0.0)),
            ("seconds.gather", seconds.gather),
            ("seconds.near", seconds.near),
            ("seconds.train", seconds.train),
            ("bytes.topology", bytes.topology),
            ("bytes.features", bytes.features),
            ("bytes.maps", bytes.maps),
            ("bytes.row_maps", bytes.row_maps),
            ("bytes.device_maps[0]", bytes.device_maps.map_or(0.0, |maps| maps[0])),
            ("bytes.device_maps[1]", bytes.device_maps.map_or(0.0, |maps| maps[1])),
            ("bytes.batch_rows", bytes.batch_rows),
            ("bytes.next_rows", bytes.next_rows()),
            ("bytes.batch", bytes.batch),
            ("bytes.sample", bytes.sample),
            ("bytes.sample_thread", bytes.sample_thread.unwrap_or_default()),
            ("bytes.train", bytes.train),
            ("bytes.train_gradients", bytes.train_gradients()),
            ("bytes.parameters", bytes.parameters),
        ];
        let from_zero = from_zero.into_iter().chain(self.reuse.iter().flat_map(ReusedRows::numbers));
        if let Some((place, value)) = from_zero.into_iter().find(|(_, x)| !(x.is_finite() && *x >= 0.0)) {
            return Err((place.into(), format!("{value}: a number from 0")));
        }
        for of in &self.types {
            let numbers = [of.nodes, of.row_bytes, of.learned_bytes, of.gather];
            if let Some(value) = numbers.into_iter().find(|x| !(x.is_finite() && *x >= 0.0)) {
                return Err((format!("types.{}", of.name), format!("{value}: a number from 0")));
            }
            let place = format!("types.{}.hit_rates", of.name);
            check_rates(&place, of.hit_rates.iter().map(|&[ratio, rate]| HitRate { ratio, rate }))?;
        }
        check_rates("hit_rates", self.hit_rates.iter().copied())
    }
}

/// Checks the curve of a cache at `place` in a profile.
fn check_rates(
    place: &str,
    points: impl Iterator<Item = HitRate>,
) -> std::result::Result<(), (String, String)> {
    let mut before = 0.0;
    for (i, HitRate { ratio, rate }) in points.enumerate() {
        if !(before <= ratio && ratio <= 1.0) {
            let message = format!("{ratio}: from 0 to 1, and not below the one before");
            return Err((format!("{place}[{i}].ratio"), message));
        }
        if !(0.0..=1.0).contains(&rate) {
            return Err((format!("{place}[{i}].rate"), format!("{rate}: from 0 to 1")));
        }
        before = ratio;
    }
    Ok(())
}

/// Share of the rows served by a cache of the share `ratio`, between the points of its curve.
fn interpolated(points: impl Iterator<Item = HitRate>, ratio: f64) -> f64 {
    let mut before = HitRate { ratio: 0.0, rate: 0.0 };
    for point in points.chain([HitRate { ratio: 1.0, rate: 1.0 }]) {
        if ratio <= point.ratio {
            let width = point.ratio - before.ratio;
            let part = if width > 0.0 { (ratio - before.ratio) / width } else { 1.0 };
            return before.rate + part * (point.rate - before.rate);
        }
        before = point;
    }
    before.rate
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "batches = 10\ncores = 2\nseconds = { sample = 1, gather = 1, near = 1, train = 1 }\n\
        bytes = { topology = 1, features = 8, batch_rows = 1, sample = 1, train = 1 }\n\
        hit_rates = [{ ratio = 0.25, rate = 0.5 }, { ratio = 0.5, rate = 0.75 }]\n";

    fn open(text: &str, name: &str) -> Result<Profile, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        Profile::open(&path).map_err(|e| e.to_string())
    }

    #[test]
    fn hit_rates_are_interpolated() {
        let mut profile = open(TEXT, "p.toml").unwrap();
        let rates = [0.0, 0.125, 0.25, 0.375, 0.5, 0.75, 1.0].map(|ratio| profile.hit_rate(ratio));
        assert_eq!(rates, [0.0, 0.25, 0.5, 0.625, 0.75, 0.875, 1.0]);
        profile.hit_rates = vec![HitRate { ratio: 0.0, rate: 0.5 }, HitRate { ratio: 1.0, rate: 0.5 }];
        assert_eq!([0.0, 0.5, 1.0].map(|ratio| profile.hit_rate(ratio)), [0.5; 3]);
        profile.hit_rates.clear();
        assert_eq!(profile.hit_rate(0.3), 0.3);
    }

    #[test]
    fn toml_and_json_profiles_agree() {
        let profile = open(TEXT, "p.toml").unwrap();
        assert_eq!(open(&serde_json::to_string(&profile).unwrap(), "p.json").unwrap(), profile);
        assert_eq!(profile.last_batch, 1.0);
    }

    #[test]
    fn errors_contain_the_field() {
        for (old, new, says) in [
            ("batches = 10", "batches = 0", "batches"),
            ("cores = 2", "cores = 0", "cores"),
            ("sample = 1", "sample = -1", "seconds.sample"),
            ("train = 1 }\nbytes", "train = inf }\nbytes", "seconds.train"),
            ("topology = 1", "topology = nan", "bytes.topology"),
            ("ratio = 0.5", "ratio = 0.1", "hit_rates[1].ratio"),
            ("rate = 0.75", "rate = 1.5", "hit_rates[1].rate"),
            ("cores = 2", "cores = 2\ncolour = 1", "colour"),
            ("cores = 2\n", "", "cores"),
        ] {
            let message = open(&TEXT.replacen(old, new, 1), "p.toml").unwrap_err();
            assert!(message.contains("p.toml") && message.contains(says), "{new}: {message}");
        }
        assert!(open("{", "p.json").unwrap_err().contains("line 1"));
    }
}
