//! Orders of nodes by a number.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rayon::prelude::*;

use crate::{Error, NodeId, Result, memory};

/// Nodes by descending score, ties by ascending id: the hottest first. NaN scores are at the ends.
/// O(V log V), parallel, `16 V` bytes.
///
/// ```
/// use graphmill_core::node_order::by_scores;
/// assert_eq!(by_scores(&[0.1, 0.4, 0.2, 0.3])?, [1, 3, 2, 0]);
/// # Ok::<(), graphmill_core::Error>(())
/// ```
///
/// # Errors
/// The allocation fails.
pub fn by_scores(scores: &[f64]) -> Result<Vec<NodeId>> {
    by_keys(scores.len(), |v| !ascending(scores[v as usize]))
}

/// Word with the order of [`f64::total_cmp`], except that both zeros are equal.
fn ascending(x: f64) -> u64 {
    let bits = (x + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

/// Nodes by ascending key, ties by ascending id.
///
/// # Errors
/// The allocation fails.
pub fn by_keys(nodes: usize, key: impl Fn(NodeId) -> u64 + Sync) -> Result<Vec<NodeId>> {
    ascending_by(nodes, &key)
}

fn ascending_by(nodes: usize, key: &(dyn Fn(NodeId) -> u64 + Sync)) -> Result<Vec<NodeId>> {
    let mut keyed: Vec<(u64, NodeId)> = memory::reserve(nodes)?;
    (0..nodes as NodeId).into_par_iter().map(|v| (key(v), v)).collect_into_vec(&mut keyed);
    keyed.par_sort_unstable();
    let mut order = memory::reserve(nodes)?;
    keyed.par_iter().map(|&(_, v)| v).collect_into_vec(&mut order);
    Ok(order)
}

/// Position of every node in `order`: the rank in the reordering of Min et al. (*Data tiering*,
/// 2021, Algorithm 2). O(V), parallel.
///
/// # Errors
/// An entry is not a node, or occurs twice.
pub fn inverse(order: &[NodeId]) -> Result<Vec<NodeId>> {
    const NONE: u32 = u32::MAX;
    // Relaxed suffices: each entry is written once, or the order is rejected; the join of the loop
    // orders the rest.
    let rank: Vec<AtomicU32> = order.par_iter().map(|_| AtomicU32::new(NONE)).collect();
    let place = |(i, &v): (usize, &NodeId)| match rank.get(v as usize) {
        None => Err(Error::invalid(format!("node {v} in an order of {} nodes", order.len()))),
        Some(place) if place.swap(i as u32, Relaxed) != NONE => {
            Err(Error::invalid(format!("node {v} occurs twice in an order")))
        }
        Some(_) => Ok(()),
    };
    order.par_iter().enumerate().with_min_len(1 << 12).try_for_each(place)?;
    Ok(rank.into_par_iter().map(AtomicU32::into_inner).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn all_kinds_of_scores_are_ordered() {
        let scores = [-1.0, 0.0, f64::INFINITY, -0.0, 1e-300, f64::NEG_INFINITY, -1e-300];
        assert_eq!(by_scores(&scores).unwrap(), [2, 4, 1, 3, 6, 0, 5]);
        assert!(by_scores(&[]).unwrap().is_empty());
        assert_eq!(by_scores(&[1.0, f64::NAN]).unwrap().len(), 2);
    }

    proptest! {
        #[test]
        fn same_as_a_stable_sort(scores in prop::collection::vec(-3i8..3, 0..200)) {
            let scores: Vec<f64> = scores.into_iter().map(f64::from).collect();
            let mut expected: Vec<NodeId> = (0..scores.len() as NodeId).collect();
            expected.sort_by(|&a, &b| scores[b as usize].total_cmp(&scores[a as usize]));
            prop_assert_eq!(by_scores(&scores).unwrap(), expected);
        }
    }
}
