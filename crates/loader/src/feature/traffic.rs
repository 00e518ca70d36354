//! Rows and bytes that reads cost, tier by tier: counted by the tiers, and written to records.

use std::{ops::AddAssign, time::Instant};

use serde::{Deserialize, Serialize};

/// Rows and bytes read from one tier.
///
/// In JSON the time is `seconds`, a fraction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TierTraffic {
    /// Rows.
    pub rows: u64,
    /// Bytes that were read for them: more than the rows hold where a tier reads whole blocks.
    pub bytes: u64,
    /// Nanoseconds that batches waited in the tier itself, those behind it not counted; 0 where
    /// layers read rows in place.
    #[serde(rename = "seconds", with = "as_seconds")]
    pub nanos: u64,
}

impl TierTraffic {
    /// These rows and bytes, read since `began`.
    pub fn since(began: Instant, rows: u64, bytes: u64) -> Self {
        Self { rows, bytes, nanos: u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX) }
    }

    /// The time in seconds.
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

/// Nanoseconds as seconds.
mod as_seconds {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(nanos: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(*nanos as f64 * 1e-9)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        // negative and very large numbers of a damaged record saturate
        f64::deserialize(from).map(|seconds| (seconds * 1e9).round() as u64)
    }
}

/// Rows and bytes that a read cost, tier by tier from the nearest to the farthest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Traffic {
    /// Accelerator memory.
    pub device: TierTraffic,
    /// The memory of other accelerators beside it.
    pub peer: TierTraffic,
    /// Host memory.
    pub host: TierTraffic,
    /// Files.
    pub disk: TierTraffic,
    /// Other machines.
    pub remote: TierTraffic,
}

impl Traffic {
    /// All tiers together.
    pub fn total(&self) -> TierTraffic {
        let mut total = TierTraffic::default();
        self.tiers().into_iter().for_each(|(_, tier)| total += tier);
        total
    }

    /// The tiers with their names, from the nearest to the farthest.
    pub fn tiers(&self) -> [(&'static str, TierTraffic); 5] {
        let Self { device, peer, host, disk, remote } = *self;
        [("device", device), ("peer", peer), ("host", host), ("disk", disk), ("remote", remote)]
    }

    /// Rows read from any tier.
    pub fn rows(&self) -> u64 {
        self.tiers().iter().map(|(_, tier)| tier.rows).sum()
    }

    /// Rows served by the nearest tier (devices where the run has some, whichever of them, else
    /// `host`) out of all; `None` where none was read.
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
