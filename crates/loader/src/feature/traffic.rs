//! Rows and bytes read, per tier. Tiers count them, and records store them.

use std::{ops::AddAssign, time::Instant};

use serde::{Deserialize, Serialize};

/// Rows and bytes read from one tier.
///
/// In JSON the time is `seconds`, a floating-point number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TierTraffic {
    /// Number of rows.
    pub rows: u64,
    /// Bytes read for the rows: more than the rows' size if a tier reads whole blocks.
    pub bytes: u64,
    /// Nanoseconds that batches waited in the tier itself, without the next tiers; 0 if layers read
    /// rows in place.
    #[serde(rename = "seconds", with = "as_seconds")]
    pub nanos: u64,
}

impl TierTraffic {
    /// Traffic of these rows and bytes, read since `began`.
    pub fn since(began: Instant, rows: u64, bytes: u64) -> Self {
        Self { rows, bytes, nanos: u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX) }
    }

    /// Time in seconds.
    pub fn seconds(&self) -> f64 {
        self.nanos as f64 * 1e-9
    }
}

impl AddAssign for TierTraffic {
    fn add_assign(&mut self, other: Self) {
        self.rows += other.rows;
        self.bytes += other.bytes;
        self.nanos = self.nanos.saturating_add(other.nanos);
    }
}

/// Serialises nanoseconds as seconds.
mod as_seconds {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(nanos: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(*nanos as f64 * 1e-9)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        // negative and very large numbers in a damaged record saturate
        f64::deserialize(from).map(|seconds| (seconds * 1e9).round() as u64)
    }
}

/// Rows and bytes read, per tier from the nearest to the farthest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Traffic {
    /// Accelerator memory.
    pub device: TierTraffic,
    /// Memory of other accelerators.
    pub peer: TierTraffic,
    /// Host memory.
    pub host: TierTraffic,
    /// Files.
    pub disk: TierTraffic,
    /// Other machines.
    pub remote: TierTraffic,
}

impl Traffic {
    /// Sum over all tiers.
    pub fn total(&self) -> TierTraffic {
        let mut total = TierTraffic::default();
        self.tiers().into_iter().for_each(|(_, tier)| total += tier);
        total
    }

    /// Tiers with their names, from the nearest to the farthest.
    pub fn tiers(&self) -> [(&'static str, TierTraffic); 5] {
        let Self { device, peer, host, disk, remote } = *self;
        [("device", device), ("peer", peer), ("host", host), ("disk", disk), ("remote", remote)]
    }

    /// Number of rows read from all tiers.
    pub fn rows(&self) -> u64 {
        self.tiers().iter().map(|(_, tier)| tier.rows).sum()
    }

    /// Share of the rows served by the nearest tier (all devices if the run has some, otherwise
    /// `host`); `None` if no rows were read.
    pub fn hit_rate(&self, has_device: bool) -> Option<f64> {
        let nearest = if has_device { self.device.rows + self.peer.rows } else { self.host.rows };
        (self.rows() > 0).then(|| nearest as f64 / self.rows() as f64)
    }
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        self.device += other.device;
        self.peer += other.peer;
        self.host += other.host;
        self.disk += other.disk;
        self.remote += other.remote;
    }
}
