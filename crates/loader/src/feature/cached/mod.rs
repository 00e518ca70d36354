//! Caches: tiers that keep some rows near and ask the tier behind them for the others.
//!
//! - [`Pinned`]: the hottest rows, loaded once. Its map never changes, so readers need no lock.
//! - [`Dynamic`]: rows come and go as a [policy](crate::policy) says.
//!
//! Either is a [`Feature`](super::Feature) around another, so they nest: a device's cache over the
//! host's over a file.

mod dynamic;
mod near;
mod pinned;
mod place;

pub use dynamic::Dynamic;
pub use pinned::Pinned;
pub use place::{Placed, Placement, placed};

use super::{TierTraffic, Traffic};

/// Which memory a cache is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Host memory.
    Host,
    /// The memory of devices: how many share it, and which of them reads.
    Device {
        /// How many.
        devices: usize,
        /// Which one reads.
        reader: usize,
    },
}

impl Level {
    /// Devices that share the cache.
    fn devices(self) -> usize {
        match self {
            Self::Host => 1,
            Self::Device { devices, .. } => devices,
        }
    }

    /// Whether a row of that device is in the reader's own memory.
    fn is_own(self, owner: usize) -> bool {
        match self {
            Self::Host => true,
            Self::Device { reader, .. } => reader == owner,
        }
    }

    /// The traffic of rows from the reader's own memory, and from its peers'.
    fn traffic(self, own: TierTraffic, peers: TierTraffic) -> Traffic {
        match self {
            Self::Host => Traffic { host: own, ..Traffic::default() },
            Self::Device { .. } => Traffic { device: own, peer: peers, ..Traffic::default() },
        }
    }
}

#[cfg(test)]
mod tests;
