//! Number of neighbours drawn per node and hop.

#![forbid(unsafe_code)]

use std::{fmt, ops::Deref, str::FromStr};

use graphmill_core::by_word;
use serde::Serialize;

/// Number of neighbours drawn per node at each hop, from the seeds outward; [`Fanout::ALL`] takes
/// all. Written `15,10` or `15,-1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Fanout(pub Vec<i64>);

impl Fanout {
    /// Takes all neighbours of a hop's nodes.
    pub const ALL: i64 = -1;
    /// Maximum number of hops.
    pub const MAX_HOPS: usize = 64;
    /// Maximum number of neighbours per node and hop, unless all are taken.
    const MAX_NEIGHBORS: i64 = 1_000_000;

    /// Returns true if `k` is valid for a hop.
    fn is_count(k: i64) -> bool {
        k == Self::ALL || (1..=Self::MAX_NEIGHBORS).contains(&k)
    }

    /// Maximum number of neighbours at each hop; [`usize::MAX`] takes all.
    ///
    /// # Errors
    /// The number of hops, or of neighbours of a hop, is out of range.
    pub fn bounds(&self) -> Result<Vec<usize>, String> {
        if self.is_empty() || self.len() > Self::MAX_HOPS {
            return Err(format!("a fanout has 1 to {} hops, not {}", Self::MAX_HOPS, self.len()));
        }
        if let Some(k) = self.iter().find(|&&k| !Self::is_count(k)) {
            return Err(format!("fanout {k}: use a number of neighbours from 1 to 1000000, or -1 for all"));
        }
        Ok(self.iter().map(|&k| usize::try_from(k).unwrap_or(usize::MAX)).collect())
    }
}

impl Deref for Fanout {
    type Target = [i64];

    fn deref(&self) -> &[i64] {
        &self.0
    }
}

impl From<&[i64]> for Fanout {
    fn from(hops: &[i64]) -> Self {
        Self(hops.to_vec())
    }
}

impl<const L: usize> From<[i64; L]> for Fanout {
    fn from(hops: [i64; L]) -> Self {
        Self(hops.to_vec())
    }
}

impl<const L: usize> From<&[i64; L]> for Fanout {
    fn from(hops: &[i64; L]) -> Self {
        Self(hops.to_vec())
    }
}

impl From<Vec<i64>> for Fanout {
    fn from(hops: Vec<i64>) -> Self {
        Self(hops)
    }
}

impl From<&Vec<i64>> for Fanout {
    fn from(hops: &Vec<i64>) -> Self {
        Self(hops.clone())
    }
}

impl From<&Fanout> for Fanout {
    fn from(fanout: &Fanout) -> Self {
        fanout.clone()
    }
}

impl FromStr for Fanout {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let hop = |k: &str| match k.trim().parse::<i64>() {
            Ok(k) if Self::is_count(k) => Ok(k),
            _ => Err(format!(
                "'{k}' is not a fanout; use a number from 1 to 1000000, or -1 for all neighbours"
            )),
        };
        word.split(',').map(hop).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Fanout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hops: Vec<String> = self.iter().map(i64::to_string).collect();
        f.write_str(&hops.join(","))
    }
}

by_word!(Fanout);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fanouts_round_trip_and_invalid_ones_are_rejected() {
        let fanout: Fanout = "15, -1".parse().unwrap();
        assert_eq!((fanout.to_string(), fanout.bounds()), ("15,-1".into(), Ok(vec![15, usize::MAX])));
        for wrong in ["", "5,,5", "0", "-2", "5,x", "1000001"] {
            assert!(wrong.parse::<Fanout>().unwrap_err().contains("is not a fanout"), "{wrong}");
        }
        assert!(Fanout::default().bounds().unwrap_err().contains("1 to 64 hops"));
        assert!(Fanout::from([3, 0]).bounds().unwrap_err().starts_with("fanout 0"));
    }
}
