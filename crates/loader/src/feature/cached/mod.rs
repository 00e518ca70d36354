//! Caches: tiers that store some rows and read the others from the next tier.
//!
//! - [`Pinned`] has the hottest rows, loaded once. Its map never changes, so readers need no lock.
//! - [`Dynamic`] admits and evicts rows by a [policy](crate::policy).
//!
//! [`Late`] holds the place of a cache that is filled later.
//!
//! Both store dense rows of any type, or sparse rows ([`RowFormat`]). Both are a [`Feature`] around
//! another, so they nest: a device's cache over the host's cache over a file.
//!
//! Several devices can share a cache as a pool: each device has a reader of its own
//! ([`Pinned::reader`], [`Dynamic::reader`]), which counts the rows of the other devices as peer
//! rows. They cross the reader's link to its peers, if it has one. A read gathers the device rows,
//! waits for the link, and then reads the misses: transfers from peers and from the host do not
//! overlap. A dynamic cache also writes admitted rows over this link, if their shard is on a peer.
//! No read waits for its own writes, but later reads over the link follow them.

mod dynamic;
mod late;
mod layout;
mod pinned;
mod rows;
mod sparse;

pub use dynamic::Dynamic;
pub use late::Late;
pub use layout::{CacheLayout, PLACEMENTS, Placement};
pub use pinned::Pinned;
pub use rows::RowFormat;
pub use sparse::{CachedRow, SparseCache, sparse_bytes};

use std::{sync::Arc, time::Instant};

use super::{Feature, Link, TierTraffic, Traffic};

/// Memory that holds a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Host memory.
    Host,
    /// Device memory, possibly shared by several devices.
    Device {
        /// Number of devices that share the cache.
        devices: usize,
        /// Device that reads; `devices` or more is a device without rows of its own.
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

    /// Returns true if the reader's own memory is part of the cache.
    fn has_rows(self) -> bool {
        match self {
            Self::Host => true,
            Self::Device { devices, reader } => reader < devices,
        }
    }

    /// The same memory, read by device `reader`.
    fn read_by(self, reader: usize) -> Self {
        match self {
            Self::Host => Self::Host,
            Self::Device { devices, .. } => Self::Device { devices, reader },
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

/// Reader of a cache: its place, the tier of its misses, and its link to peers.
struct Reader {
    behind: Arc<dyn Feature>,
    level: Level,
    peer_link: Option<Arc<Link>>,
}

impl Reader {
    fn new(behind: Arc<dyn Feature>, level: Level) -> Self {
        Self { behind, level, peer_link: None }
    }

    /// Reader of the same cache on device `reader`.
    fn on(&self, reader: usize, behind: Arc<dyn Feature>) -> Self {
        Self::new(behind, self.level.read_by(reader))
    }

    /// Waits until the rows of `peers`, under way since `began`, have crossed the link to the
    /// peers. Returns their traffic with the wait.
    fn cross(&self, mut peers: TierTraffic, began: Instant) -> TierTraffic {
        if let Some(link) = self.peer_link.as_ref().filter(|_| peers.rows > 0) {
            let waiting = Instant::now();
            link.transfer(peers.bytes, began);
            peers += TierTraffic::since(waiting, 0, 0);
        }
        peers
    }

    /// Occupies the link to the peers with `bytes` of rows that are written to them from `began`
    /// on, without waiting.
    fn write_to_peers(&self, bytes: u64, began: Instant) {
        if let Some(link) = self.peer_link.as_ref().filter(|_| bytes > 0) {
            link.occupy(bytes, began);
        }
    }
}

#[cfg(test)]
mod tests;
