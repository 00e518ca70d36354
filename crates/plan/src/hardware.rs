//! Machine of a plan: devices, the link to each, the host.
//!
//! ```toml
//! name = "two cards"
//! devices = { count = 2, memory = "16G", bandwidth = 900e9 }   # or speed = 20: times the profile's executor
//! link = { bandwidth = 12e9, latency = 10e-6 }                 # bytes a second, seconds
//! peer_link = { bandwidth = 50e9 }                             # if devices have a link of their own
//! host = { cores = 32, memory = "128G", disk = { bandwidth = 2e9 } }   # disk: for --host-budget
//! ```

use std::{collections::BTreeMap, path::Path};

use graphmill_core::error::suggestion;
use graphmill_engine::{Error, Result, config::Bytes};
use serde::{Deserialize, Deserializer, Serialize};

use crate::file;

/// Machines with predefined names.
const PRESETS: &str = include_str!("presets.toml");

/// Maximum number of devices in a machine.
pub(crate) const MAX_DEVICES: usize = 256;

/// Description of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// Name of the machine; by default that of its file.
    #[serde(default)]
    pub name: String,
    /// Devices, all equal.
    pub devices: Devices,
    /// Link from the host to one device; each device has its own.
    pub link: Link,
    /// Link between two devices, over which one reads rows of the other; by default these take
    /// the time of `link`, or none between devices that share the host's memory.
    #[serde(default)]
    pub peer_link: Option<Link>,
    /// The host.
    pub host: Host,
}

/// Devices of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Devices {
    /// Number of devices.
    pub count: usize,
    /// Memory of each device in bytes.
    #[serde(deserialize_with = "amount")]
    pub memory: u64,
    /// Speed of each device relative to the profile's executor; by default the ratio of memory
    /// bandwidths.
    #[serde(default)]
    pub speed: Option<f64>,
    /// Bandwidth of a device's memory, in bytes a second.
    #[serde(default)]
    pub bandwidth: Option<f64>,
    /// Relative slowdown of a step that waits for very many other devices; `n` training devices
    /// have `(n - 1) / n` of it.
    #[serde(default)]
    pub sync: f64,
    /// True if devices share the host's cores, as virtual devices do, so that gathering delays
    /// computing.
    #[serde(default)]
    pub shared: bool,
}

/// Link between the host and a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Bandwidth in bytes a second.
    pub bandwidth: f64,
    /// Latency in seconds.
    #[serde(default)]
    pub latency: f64,
}

/// Host of the devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Number of cores.
    pub cores: usize,
    /// Memory in bytes.
    #[serde(deserialize_with = "amount")]
    pub memory: u64,
    /// Number of concurrent gathers that each run as fast as a single one; more gathers share that
    /// speed.
    #[serde(default = "one")]
    pub gathers: f64,
    /// Disk of the rows beyond `--host-budget`: bandwidth of reading random rows, and latency of a
    /// batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Link>,
}

fn one() -> f64 {
    1.0
}

/// Parses bytes, as a number or as in `16G`.
fn amount<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a size: bytes, or a word such as \"16G\"")]
    enum Amount {
        Number(u64),
        Word(String),
    }
    match Amount::deserialize(from)? {
        Amount::Number(bytes) => Ok(bytes),
        Amount::Word(word) => word.parse().map(|Bytes(bytes)| bytes).map_err(serde::de::Error::custom),
    }
}

impl Hardware {
    /// Finds a predefined machine, or reads one from a file.
    ///
    /// # Errors
    /// The name is unknown, or the file cannot be read or is invalid; the error contains the line
    /// or the field.
    pub fn find(word: &str) -> Result<Self> {
        let mut presets = presets();
        if let Some(hardware) = presets.remove(word) {
            return Ok(hardware);
        }
        let path = Path::new(word);
        if path.extension().is_none() && !path.exists() {
            let known = presets.into_keys().collect::<Vec<String>>().join(", ");
            return Err(Error::usage(format!(
                "--hardware {word}: unknown machine '{word}'{}; known: {known}; or give a file, FILE.toml",
                suggestion(word, &known)
            )));
        }
        let mut hardware: Self = file::read(path)?;
        hardware.check().map_err(|(place, message)| Error::format(path, place, message))?;
        if hardware.name.is_empty() {
            hardware.name =
                path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        }
        Ok(hardware)
    }

    /// Names that [`Hardware::find`] accepts.
    pub fn known() -> String {
        presets().into_keys().collect::<Vec<_>>().join(", ")
    }

    /// Checks the fields; an error contains the field and its valid range.
    fn check(&self) -> std::result::Result<(), (&'static str, String)> {
        let Self { devices, link, peer_link, host, .. } = self;
        let peers = peer_link.as_ref().unwrap_or(link);
        let disk = host.disk.as_ref().unwrap_or(link);
        if !(1..=MAX_DEVICES).contains(&devices.count) {
            return Err(("devices.count", format!("{}: from 1 to {MAX_DEVICES}", devices.count)));
        }
        if !(1..=1 << 16).contains(&host.cores) {
            return Err(("host.cores", format!("{}: from 1 to 65536", host.cores)));
        }
        let positive = [
            ("devices.speed", devices.speed.unwrap_or(1.0)),
            ("devices.bandwidth", devices.bandwidth.unwrap_or(1.0)),
            ("link.bandwidth", link.bandwidth),
            ("peer_link.bandwidth", peers.bandwidth),
            ("host.gathers", host.gathers),
            ("host.disk.bandwidth", disk.bandwidth),
        ];
        if let Some((place, value)) = positive.into_iter().find(|(_, x)| !(x.is_finite() && *x > 0.0)) {
            return Err((place, format!("{value}: a number above 0")));
        }
        let from_zero = [
            ("devices.sync", devices.sync),
            ("link.latency", link.latency),
            ("peer_link.latency", peers.latency),
            ("host.disk.latency", disk.latency),
        ];
        if let Some((place, value)) = from_zero.into_iter().find(|(_, x)| !(x.is_finite() && *x >= 0.0)) {
            return Err((place, format!("{value}: a number from 0")));
        }
        Ok(())
    }
}

impl Hardware {
    /// Speed of its devices relative to an executor whose memory has this bandwidth.
    ///
    /// # Errors
    /// Neither a speed nor both bandwidths are known.
    pub(crate) fn speed(&self, profiled: Option<f64>) -> Result<f64> {
        match (self.devices.speed, self.devices.bandwidth, profiled) {
            (Some(speed), _, _) => Ok(speed),
            (None, Some(device), Some(profiled)) => Ok(device / profiled),
            _ => Err(Error::usage(format!(
                "--hardware {}: the speed of its devices is unknown; set devices.speed, or devices.bandwidth \
                 and the profile's bandwidth",
                self.name
            ))),
        }
    }

    /// Slowdown of a step that waits for those of the other devices, `n` in all.
    pub(crate) fn waits(&self, n: usize) -> f64 {
        1.0 + self.devices.sync * n.saturating_sub(1) as f64 / n.max(1) as f64
    }

    /// Seconds of a ring all-reduce of `bytes` bytes of gradients among `n` devices: `2 (n - 1) /
    /// n` of the bytes in `2 (n - 1)` messages.
    pub(crate) fn reduce(&self, n: usize, bytes: f64) -> f64 {
        let others = n.saturating_sub(1) as f64;
        let share = others / n.max(1) as f64;
        2.0 * share * bytes / self.link.bandwidth + 2.0 * others * self.link.latency
    }
}

impl Link {
    /// Seconds in which `bytes` bytes cross it; none if there are no bytes.
    pub(crate) fn seconds(&self, bytes: f64) -> f64 {
        if bytes > 0.0 { self.latency + bytes / self.bandwidth } else { 0.0 }
    }
}

/// All predefined machines.
fn presets() -> BTreeMap<String, Hardware> {
    let mut presets: BTreeMap<String, Hardware> = toml::from_str(PRESETS).expect("tested");
    presets.iter_mut().for_each(|(name, hardware)| hardware.name.clone_from(name));
    presets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_valid() {
        assert_eq!(Hardware::known(), "a100x4, h100x8, laptop, rtx4090, v100x8");
        for (name, hardware) in presets() {
            assert_eq!(hardware.check(), Ok(()), "{name}");
            assert!(hardware.devices.bandwidth.is_some(), "{name}");
        }
        let v100 = Hardware::find("v100x8").unwrap();
        assert_eq!((v100.devices.count, v100.devices.memory), (8, 16 << 30));
    }

    #[test]
    fn files_parse_and_errors_contain_the_field() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mine.toml");
        let text = "devices = { count = 2, memory = 1000, speed = 2.0 }\nlink = { bandwidth = 1e9 }\n\
                    host = { cores = 4, memory = '1G' }\n";
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Hardware::find(path.to_str().unwrap()).map_err(|e| e.to_string())
        };
        let mine = read(text).unwrap();
        assert_eq!((mine.name.as_str(), mine.devices.memory, mine.host.memory), ("mine", 1000, 1 << 30));
        for (old, new, says) in [
            ("count = 2", "count = 0", "devices.count"),
            ("count = 2", "count = -2", "line 1"),
            ("speed = 2.0", "speed = nan", "devices.speed"),
            ("bandwidth = 1e9", "bandwidth = 0", "link.bandwidth"),
            ("'1G'", "'1 pound'", "is not a size"),
            ("'1G'", "true", "a size: bytes, or a word"),
            ("cores = 4", "cores = 4, colour = 1", "colour"),
            ("cores = 4", "cores = 4, disk = { bandwidth = 0 }", "host.disk.bandwidth"),
            ("link", "lnk", "lnk"),
        ] {
            let message = read(&text.replacen(old, new, 1)).unwrap_err();
            assert!(message.contains("mine.toml") && message.contains(says), "{new}: {message}");
        }
        let unknown = Hardware::find("abacus").unwrap_err();
        assert!(unknown.is_usage() && unknown.to_string().contains("known: a100x4, h100x8"), "{unknown}");
        assert!(Hardware::find("nowhere.toml").unwrap_err().to_string().contains("nowhere.toml"));
    }
}
