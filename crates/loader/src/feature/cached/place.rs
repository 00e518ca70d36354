//! Which rows several devices hold, and which of them holds each.

use std::str::FromStr;

use graphmill_core::NodeId;

/// How rows are spread over devices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Placement {
    /// Node `v` belongs to device `v mod N`; each holds the hottest of its own.
    Shard,
    /// The `r`-th hottest row is on device `r mod N`, so that all are asked for alike (Data
    /// Tiering, section 4.3).
    Interleave,
    /// This part of every device's memory holds the very hottest rows, on all devices alike; the
    /// others are interleaved.
    Replicate(f64),
}

impl FromStr for Placement {
    type Err = String;

    /// From `shard`, `interleave`, `replicate` (all of the memory), or `replicate:R`.
    fn from_str(word: &str) -> Result<Self, String> {
        match word.split_once(':') {
            None if word == "shard" => Ok(Self::Shard),
            None if word == "interleave" => Ok(Self::Interleave),
            None if word == "replicate" => Ok(Self::Replicate(1.0)),
            Some(("replicate", part)) => {
                let part = part.parse().ok().filter(|part| (0.0..=1.0).contains(part));
                part.map(Self::Replicate)
                    .ok_or_else(|| format!("'{word}': a part from 0 to 1 behind the colon"))
            }
            _ => Err(format!("'{word}': shard, interleave, replicate or replicate:R")),
        }
    }
}

/// The rows of a cache, by slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// The row in each slot.
    pub ids: Vec<NodeId>,
    /// Slots up to here are on every device.
    pub everywhere: usize,
    /// The device that holds each slot's row; empty where there is one.
    pub owners: Vec<u16>,
}

impl Placed {
    /// The fewest and the most rows that one of `devices` holds. O(rows).
    pub fn held(&self, devices: usize) -> (usize, usize) {
        let mut held = vec![if self.owners.is_empty() { self.ids.len() } else { self.everywhere }; devices];
        for &owner in self.owners.iter().skip(self.everywhere) {
            held[usize::from(owner)] += 1;
        }
        let fewest = held.iter().copied().min().unwrap_or(0);
        (fewest, held.into_iter().max().unwrap_or(0))
    }
}

/// The rows that `devices` of `slots` rows each hold of `ranking` (hottest first). O(V).
pub fn placed(ranking: &[NodeId], slots: usize, devices: usize, placement: Placement) -> Placed {
    if devices == 1 {
        let ids = ranking[..slots.min(ranking.len())].to_vec();
        return Placed { ids, ..Placed::default() };
    }
    let interleave = |everywhere: usize| {
        let rows = everywhere.saturating_add((slots - everywhere).saturating_mul(devices)).min(ranking.len());
        let everywhere = everywhere.min(rows);
        let owners = (0..rows).map(|slot| (slot.saturating_sub(everywhere) % devices) as u16).collect();
        Placed { ids: ranking[..rows].to_vec(), everywhere, owners }
    };
    match placement {
        Placement::Interleave => interleave(0),
        Placement::Replicate(part) => interleave(((slots as f64 * part) as usize).min(slots)),
        Placement::Shard => {
            let mut held = vec![0; devices];
            let mut room = |v: &&NodeId| {
                let held = &mut held[**v as usize % devices];
                *held += 1;
                *held <= slots
            };
            let ids: Vec<NodeId> = ranking.iter().filter(|v| room(v)).copied().collect();
            let owners = ids.iter().map(|&v| (v as usize % devices) as u16).collect();
            Placed { ids, everywhere: 0, owners }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_share_the_hottest_rows() {
        let ranking = [6, 0, 2, 5, 1, 4, 3];
        let of = |slots, placement| placed(&ranking, slots, 2, placement);
        let shard = of(2, Placement::Shard);
        assert_eq!((shard.ids, shard.owners), (vec![6, 0, 5, 1], vec![0, 0, 1, 1]));
        let interleaved = of(2, Placement::Interleave);
        assert_eq!((interleaved.ids, interleaved.owners), (vec![6, 0, 2, 5], vec![0, 1, 0, 1]));
        let all = of(2, Placement::Replicate(1.0));
        assert_eq!((all.ids, all.everywhere), (vec![6, 0], 2));
        let half = of(2, Placement::Replicate(0.5));
        assert_eq!((half.ids, half.everywhere, half.owners), (vec![6, 0, 2], 1, vec![0, 0, 1]));
        // more room than rows
        for placement in [Placement::Shard, Placement::Interleave, Placement::Replicate(0.3)] {
            let mut ids = of(50, placement).ids;
            ids.sort_unstable();
            assert_eq!(ids, [0, 1, 2, 3, 4, 5, 6]);
            assert!(of(0, placement).ids.is_empty());
        }
        assert_eq!(placed(&ranking, 3, 1, Placement::Shard).ids, [6, 0, 2]);
    }

    #[test]
    fn held_rows_are_counted_by_device() {
        let ranking = [6, 0, 2, 5, 1, 4, 3];
        let held = |slots, devices, placement| placed(&ranking, slots, devices, placement).held(devices);
        assert_eq!(held(7, 2, Placement::Interleave), (3, 4), "all rows are held once");
        assert_eq!(held(2, 3, Placement::Interleave), (2, 2));
        assert_eq!(held(7, 2, Placement::Replicate(1.0)), (7, 7));
        assert_eq!(held(2, 2, Placement::Replicate(0.5)), (2, 2));
        assert_eq!(held(4, 2, Placement::Replicate(0.25)), (4, 4));
        // of the even nodes there are four, of the odd ones three
        assert_eq!(held(4, 2, Placement::Shard), (3, 4));
        assert_eq!(held(5, 1, Placement::Shard), (5, 5));
        assert_eq!(held(0, 4, Placement::Interleave), (0, 0));
    }

    #[test]
    fn words_are_checked() {
        assert_eq!("replicate:0.25".parse(), Ok(Placement::Replicate(0.25)));
        assert_eq!("shard".parse(), Ok(Placement::Shard));
        for word in ["replicate:2", "replicate:x", "shard:1", "spread"] {
            assert!(word.parse::<Placement>().unwrap_err().contains(word));
        }
    }
}
