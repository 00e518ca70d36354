//! Shares of one memory budget among the tables of several types.
//!
//! # Algorithm
//!
//! Rows of all types are ranked by expected reads per byte, and taken in that order until the
//! budget is full. Wide rows need more reads to be chosen than narrow ones.
//!
//! # Source
//!
//! Dantzig, *Discrete-variable extremum problems*, Operations Research 5 (1957): items by value per
//! weight fill a knapsack optimally, up to the last item. Values are the counts of Yang et al.,
//! *GNNLab*, EuroSys 2022, section 6.
//!
//! # Cost
//!
//! O(V log V).
//!
//! # Memory
//!
//! `24 V` bytes while the shares are computed.

use graphmill_core::{node_order::by_scores, typed::Schema};

use crate::Result;

/// Rows of a type that compete for memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Competing {
    /// Number of rows.
    pub(super) rows: usize,
    /// Bytes of a row in a cache, with its entry in the maps.
    pub(super) bytes: f64,
}

impl Competing {
    /// Bytes of all rows.
    pub(super) fn all(self) -> f64 {
        self.rows as f64 * self.bytes
    }
}

/// Number of rows of each type within `budget` bytes: the rows with the highest score per byte.
/// `scores` has a score for each node by global id, negative infinity for a row that is not cached.
/// A type that is `None` does not compete.
///
/// # Errors
/// The allocation fails.
pub(super) fn by_score(
    types: &[Option<Competing>],
    schema: &Schema,
    scores: &[f64],
    budget: f64,
) -> Result<Vec<usize>> {
    let mut density = vec![f64::NEG_INFINITY; scores.len()];
    for (t, of) in types.iter().enumerate() {
        if let Some(of) = of {
            let range = schema.range(t).start as usize..schema.range(t).end as usize;
            let pairs = density[range.clone()].iter_mut().zip(&scores[range]);
            pairs.for_each(|(density, score)| *density = score / of.bytes);
        }
    }
    let (mut shares, mut free) = (vec![0; types.len()], budget);
    for v in by_scores(&density)? {
        let Some((t, _)) = schema.local(v) else { break };
        let Some(of) = types[t].filter(|_| density[v as usize] > f64::NEG_INFINITY) else { break };
        free -= of.bytes;
        if free < 0.0 {
            break;
        }
        shares[t] += 1;
    }
    Ok(shares)
}

/// Number of rows of each type within `budget` bytes: the same fraction of every type's rows.
pub(super) fn in_proportion(types: &[Option<Competing>], budget: f64) -> Vec<usize> {
    let whole: f64 = types.iter().flatten().map(|of| of.all()).sum();
    let fraction = if whole > 0.0 { (budget / whole).clamp(0.0, 1.0) } else { 0.0 };
    types.iter().map(|of| of.map_or(0, |of| (fraction * of.rows as f64) as usize)).collect()
}

#[cfg(test)]
mod tests {
    use graphmill_core::typed::NodeType;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rows_with_the_most_reads_per_byte_are_taken() {
        let types = vec![NodeType::new("wide", 3), NodeType::new("none", 2), NodeType::new("narrow", 2)];
        let schema = Schema::new(types, vec![]).unwrap();
        let of = |rows, bytes| Some(Competing { rows, bytes });
        let types = [of(3, 100.0), None, of(2, 10.0)];
        // per byte: 0.5, 0.1, 0.02 of wide rows, 0.3 and 0 of narrow ones
        let scores = [50.0, 10.0, 2.0, 99.0, 99.0, 3.0, 0.0];
        let shares = |budget| by_score(&types, &schema, &scores, budget).unwrap();
        assert_eq!(shares(99.0), [0, 0, 0]);
        assert_eq!(shares(110.0), [1, 0, 1]);
        assert_eq!(shares(210.0), [2, 0, 1]);
        assert_eq!(shares(310.0), [3, 0, 1]);
        assert_eq!(shares(1e9), [3, 0, 2]);
        let without = [50.0, f64::NEG_INFINITY, 2.0, 99.0, 99.0, 3.0, f64::NEG_INFINITY];
        assert_eq!(by_score(&types, &schema, &without, 1e9).unwrap(), [2, 0, 1]);
        assert_eq!(in_proportion(&types, 160.0), [1, 0, 1]);
        assert_eq!(in_proportion(&types, 1e9), [3, 0, 2]);
        assert_eq!(in_proportion(&[None], 1e9), [0]);
    }

    proptest! {
        #[test]
        fn shares_fit_into_the_budget(
            sizes in prop::collection::vec((0usize..20, 1u32..50), 1..4),
            seed in prop::collection::vec(0u32..9, 80),
            budget in 0u32..2000,
        ) {
            let node_type = |(t, of): (usize, &(usize, u32))| NodeType::new(format!("t{t}"), of.0);
            let types = sizes.iter().enumerate().map(node_type).collect();
            let schema = Schema::new(types, vec![]).unwrap();
            let types: Vec<_> =
                sizes.iter().map(|&(rows, bytes)| Some(Competing { rows, bytes: bytes.into() })).collect();
            let scores: Vec<f64> = (0..schema.num_nodes()).map(|v| seed[v].into()).collect();
            let of_scores = by_score(&types, &schema, &scores, budget.into()).unwrap();
            for shares in [of_scores, in_proportion(&types, budget.into())] {
                let used: f64 = shares.iter().zip(&sizes).map(|(&n, of)| n as f64 * f64::from(of.1)).sum();
                prop_assert!(used <= f64::from(budget));
                prop_assert!(shares.iter().zip(&sizes).all(|(&n, of)| n <= of.0));
            }
        }
    }
}
