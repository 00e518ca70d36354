//! Layout of a cache over several devices: its rows, and the device that holds each.

use std::str::FromStr;

use graphmill_core::{
    NodeId,
    options::suggestion,
    table::{Entry, Table},
};

/// Distribution of rows over devices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Placement {
    /// Node `v` belongs to device `v mod N`; each device holds the hottest of its nodes.
    Shard,
    /// The `r`-th hottest row is on device `r mod N`, so that all devices serve equally many reads
    /// (Data Tiering, section 4.3).
    Interleave,
    /// Device 0 holds the hottest rows, device 1 the next, and so on, so that device 0 serves most
    /// reads (Data Tiering, Figure 6).
    Blocked,
    /// This share of every device's memory holds the very hottest rows, on all devices; the others
    /// are interleaved.
    Replicate(f64),
    /// Each device has a cache of its own and reads no other device's rows. Static caches hold the
    /// same rows as replicated ones.
    Private,
}

/// Placements by name.
pub static PLACEMENTS: Table<Placement> = Table::new(
    "placement",
    &[
        Entry {
            name: "shard",
            summary: "row v on device v mod N",
            source: "",
            options: &[],
            make: Placement::Shard,
        },
        Entry {
            name: "interleave",
            summary: "the r-th hottest row on device r mod N",
            source: "Data Tiering, section 4.3",
            options: &[],
            make: Placement::Interleave,
        },
        Entry {
            name: "blocked",
            summary: "successive ranges of the hottest rows, for comparison",
            source: "Data Tiering, Figure 6",
            options: &[],
            make: Placement::Blocked,
        },
        Entry {
            name: "replicate",
            summary: "the hottest rows, or with replicate:R a share of them, on every device",
            source: "Data Tiering, section 4.3",
            options: &[],
            make: Placement::Replicate(1.0),
        },
        Entry {
            name: "private",
            summary: "a separate cache on every device",
            source: "",
            options: &[],
            make: Placement::Private,
        },
    ],
);

impl Placement {
    /// Returns true if a device can read rows of another.
    pub fn has_peer_rows(self) -> bool {
        match self {
            Self::Shard | Self::Interleave | Self::Blocked => true,
            Self::Replicate(share) => share < 1.0,
            Self::Private => false,
        }
    }
}

impl FromStr for Placement {
    type Err = String;

    /// Parses a name of [`PLACEMENTS`], or `replicate:R`.
    fn from_str(word: &str) -> Result<Self, String> {
        let (name, share) = word.split_once(':').map_or((word, None), |(name, share)| (name, Some(share)));
        match (PLACEMENTS.get(name).map(|entry| entry.make), share) {
            (Some(placement), None) => Ok(placement),
            (Some(Self::Replicate(_)), Some(share)) => {
                let share = share.parse().ok().filter(|share| (0.0..=1.0).contains(share));
                share.map(Self::Replicate).ok_or_else(|| {
                    format!("'{word}': replicate takes a share from 0 to 1; use replicate:0.5, for example")
                })
            }
            _ => {
                let names: Vec<&str> = PLACEMENTS.iter().map(|entry| entry.name).collect();
                let near = suggestion(name, &names);
                Err(format!("'{word}': not a placement; use {}, or replicate:R{near}", names.join(", ")))
            }
        }
    }
}

/// Rows of a cache by slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheLayout {
    /// Row in each slot.
    pub ids: Vec<NodeId>,
    /// Number of leading slots that every device holds.
    pub replicated: usize,
    /// Device that holds each slot's row; empty for a single device.
    pub owners: Vec<u16>,
}

impl CacheLayout {
    /// Number of rows on each of `devices` devices. O(rows).
    pub fn rows_by_device(&self, devices: usize) -> Vec<usize> {
        let all = if self.owners.is_empty() { self.ids.len() } else { self.replicated };
        let mut rows = vec![all; devices];
        for &owner in self.owners.iter().skip(self.replicated) {
            rows[usize::from(owner)] += 1;
        }
        rows
    }

    /// Smallest and largest number of rows on one of `devices` devices. O(rows).
    pub fn rows_per_device(&self, devices: usize) -> (usize, usize) {
        let rows = self.rows_by_device(devices);
        let smallest = rows.iter().copied().min().unwrap_or(0);
        (smallest, rows.into_iter().max().unwrap_or(0))
    }

    /// Assigns the rows of `ranking` (hottest first) to `devices` devices of `slots` rows each.
    /// O(V).
    pub fn new(ranking: &[NodeId], slots: usize, devices: usize, placement: Placement) -> Self {
        if devices == 1 {
            let ids = ranking[..slots.min(ranking.len())].to_vec();
            return Self { ids, ..Self::default() };
        }
        match placement {
            Placement::Interleave => Self::interleaved(ranking, slots, devices, 0),
            Placement::Replicate(share) => {
                let replicated = ((slots as f64 * share) as usize).min(slots);
                Self::interleaved(ranking, slots, devices, replicated)
            }
            Placement::Private => Self::interleaved(ranking, slots, devices, slots),
            Placement::Blocked => {
                let rows = slots.saturating_mul(devices).min(ranking.len());
                let each = rows.div_ceil(devices).max(1);
                let owners = (0..rows).map(|slot| (slot / each) as u16).collect();
                Self { ids: ranking[..rows].to_vec(), replicated: 0, owners }
            }
            Placement::Shard => {
                let mut rows = vec![0; devices];
                let mut fits = |v: &&NodeId| {
                    let rows = &mut rows[**v as usize % devices];
                    *rows += 1;
                    *rows <= slots
                };
                let ids: Vec<NodeId> = ranking.iter().filter(|v| fits(v)).copied().collect();
                let owners = ids.iter().map(|&v| (v as usize % devices) as u16).collect();
                Self { ids, replicated: 0, owners }
            }
        }
    }

    /// Replicates the hottest `replicated` rows and interleaves the others.
    fn interleaved(ranking: &[NodeId], slots: usize, devices: usize, replicated: usize) -> Self {
        let interleaved = (slots - replicated).saturating_mul(devices);
        let rows = replicated.saturating_add(interleaved).min(ranking.len());
        let replicated = replicated.min(rows);
        let owners = (0..rows).map(|slot| (slot.saturating_sub(replicated) % devices) as u16).collect();
        Self { ids: ranking[..rows].to_vec(), replicated, owners }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_share_the_hottest_rows() {
        let ranking = [6, 0, 2, 5, 1, 4, 3];
        let layout = |slots, placement| CacheLayout::new(&ranking, slots, 2, placement);
        let shard = layout(2, Placement::Shard);
        assert_eq!((shard.ids, shard.owners), (vec![6, 0, 5, 1], vec![0, 0, 1, 1]));
        let interleaved = layout(2, Placement::Interleave);
        assert_eq!((interleaved.ids, interleaved.owners), (vec![6, 0, 2, 5], vec![0, 1, 0, 1]));
        let all = layout(2, Placement::Replicate(1.0));
        assert_eq!(layout(2, Placement::Private), all);
        assert_eq!((all.ids, all.replicated), (vec![6, 0], 2));
        let half = layout(2, Placement::Replicate(0.5));
        assert_eq!((half.ids, half.replicated, half.owners), (vec![6, 0, 2], 1, vec![0, 0, 1]));
        let blocked = layout(2, Placement::Blocked);
        assert_eq!((blocked.ids, blocked.owners), (vec![6, 0, 2, 5], vec![0, 0, 1, 1]));
        // more slots than rows
        for Entry { make: placement, .. } in PLACEMENTS.iter().copied() {
            let placement =
                if placement == Placement::Replicate(1.0) { Placement::Replicate(0.3) } else { placement };
            let mut ids = layout(50, placement).ids;
            ids.sort_unstable();
            assert_eq!(ids, [0, 1, 2, 3, 4, 5, 6]);
            assert!(layout(0, placement).ids.is_empty());
        }
        assert_eq!(CacheLayout::new(&ranking, 3, 1, Placement::Shard).ids, [6, 0, 2]);
    }

    #[test]
    fn rows_are_counted_per_device() {
        let ranking = [6, 0, 2, 5, 1, 4, 3];
        let rows = |slots, devices, placement| {
            CacheLayout::new(&ranking, slots, devices, placement).rows_per_device(devices)
        };
        assert_eq!(rows(7, 2, Placement::Interleave), (3, 4), "each row is on one device");
        assert_eq!(rows(2, 3, Placement::Interleave), (2, 2));
        assert_eq!(rows(7, 2, Placement::Blocked), (3, 4), "devices share the rows evenly");
        assert_eq!(rows(4, 2, Placement::Private), (4, 4));
        assert_eq!(rows(7, 2, Placement::Replicate(1.0)), (7, 7));
        assert_eq!(rows(2, 2, Placement::Replicate(0.5)), (2, 2));
        assert_eq!(rows(4, 2, Placement::Replicate(0.25)), (4, 4));
        // four nodes are even and three odd
        assert_eq!(rows(4, 2, Placement::Shard), (3, 4));
        assert_eq!(rows(5, 1, Placement::Shard), (5, 5));
        assert_eq!(rows(0, 4, Placement::Interleave), (0, 0));
    }

    #[test]
    fn invalid_placements_are_rejected() {
        assert_eq!("replicate:0.25".parse(), Ok(Placement::Replicate(0.25)));
        for Entry { name, make, .. } in PLACEMENTS.iter() {
            assert_eq!(name.parse(), Ok(*make));
        }
        assert_eq!("shard".parse(), Ok(Placement::Shard));
        for word in ["replicate:2", "replicate:x", "shard:1", "private:1", "spread"] {
            assert!(word.parse::<Placement>().unwrap_err().contains(word));
        }
    }
}
