//! Caches: tiers that store some rows and read the others from the next tier.
//!
//! - [`Pinned`] has the hottest rows, loaded once. Its map never changes, so readers need no lock.
//! - [`Dynamic`] admits and evicts rows by a [policy](crate::policy).
//!
//! Both are a [`Feature`](super::Feature) around another, so they nest: a device's cache over the
//! host's cache over a file.

mod dynamic;
mod layout;
mod pinned;
mod rows;

pub use dynamic::Dynamic;
pub use layout::{CacheLayout, Placement};
pub use pinned::Pinned;

use super::{TierTraffic, Traffic};

/// Memory that holds a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Host memory.
    Host,
    /// Device memory, possibly shared by several devices.
    Device {
        /// Number of devices that share the cache.
        devices: usize,
        /// Device that reads.
        reader: usize,
    },
}

impl Level {
    /// Number of devices that share the cache.
    fn devices(self) -> usize {
        match self {
            Self::Host => 1,
            Self::Device { devices, .. } => devices,
        }
    }

    /// Returns true if a row of device `owner` is in the reader's own memory.
    fn is_own(self, owner: usize) -> bool {
        match self {
            Self::Host => true,
            Self::Device { reader, .. } => reader == owner,
        }
    }

    /// Traffic of rows from the reader's own memory, and from its peers'.
    fn traffic(self, own: TierTraffic, peers: TierTraffic) -> Traffic {
        match self {
            Self::Host => Traffic { host: own, ..Traffic::default() },
            Self::Device { .. } => Traffic { device: own, peer: peers, ..Traffic::default() },
        }
    }
}

#[cfg(test)]
mod tests;
