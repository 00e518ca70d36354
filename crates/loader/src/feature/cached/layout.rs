//! Layout of a cache over several devices: its rows, and the device that holds each.

use std::str::FromStr;

use graphmill_core::NodeId;

/// Distribution of rows over devices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Placement {
    /// Node `v` belongs to device `v mod N`; each device holds the hottest of its nodes.
    Shard,
    /// The `r`-th hottest row is on device `r mod N`, so that all devices serve equally many reads
    /// (Data Tiering, section 4.3).
    Interleave,
    /// This share of every device's memory holds the very hottest rows, on all devices; the others
    /// are interleaved.
    Replicate(f64),
}

impl FromStr for Placement {
    type Err = String;

    /// Parses `shard`, `interleave`, `replicate` (all of the memory), or `replicate:R`.
    fn from_str(word: &str) -> Result<Self, String> {
        match word.split_once(':') {
            None if word == "shard" => Ok(Self::Shard),
            None if word == "interleave" => Ok(Self::Interleave),
            None if word == "replicate" => Ok(Self::Replicate(1.0)),
            Some(("replicate", part)) => {
                let part = part.parse().ok().filter(|part| (0.0..=1.0).contains(part));
                part.map(Self::Replicate).ok_or_else(|| {
                    format!("'{word}': replicate takes a share from 0 to 1; use replicate:0.5, for example")
                })
            }
            _ => Err(format!("'{word}': not a placement; use shard, interleave, replicate or replicate:R")),
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
    /// Smallest and largest number of rows on one of `devices` devices. O(rows).
    pub fn rows_per_device(&self, devices: usize) -> (usize, usize) {
        let all = if self.owners.is_empty() { self.ids.len() } else { self.replicated };
        let mut rows = vec![all; devices];
        for &owner in self.owners.iter().skip(self.replicated) {
            rows[usize::from(owner)] += 1;
        }
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
        assert_eq!((all.ids, all.replicated), (vec![6, 0], 2));
        let half = layout(2, Placement::Replicate(0.5));
        assert_eq!((half.ids, half.replicated, half.owners), (vec![6, 0, 2], 1, vec![0, 0, 1]));
        // more slots than rows
        for placement in [Placement::Shard, Placement::Interleave, Placement::Replicate(0.3)] {
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
        assert_eq!("shard".parse(), Ok(Placement::Shard));
        for word in ["replicate:2", "replicate:x", "shard:1", "spread"] {
            assert!(word.parse::<Placement>().unwrap_err().contains(word));
        }
    }
}
