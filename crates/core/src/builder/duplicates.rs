//! Merging of sorted duplicate edges.

use super::{item::Item, radix};
use crate::{Error, NodeId, Result};

/// Sorts the edges of a part and merges parallel edges, unless they are kept. The weight of a
/// merged edge is the sum (in f64, from the smallest), as in PyG's `coalesce`; parallel edges that
/// are kept ascend by weight. The result does not depend on the original order.
///
/// # Errors
/// A sum exceeds 32-bit floats, or memory runs out.
pub fn sort_and_merge<I: Item>(items: &mut Vec<I>, keep_duplicates: bool) -> Result<()> {
    radix::sort(items)?;
    if !I::WEIGHTED {
        if !keep_duplicates {
            items.dedup_by_key(|item| item.key());
        }
        return Ok(());
    }
    // Weights are not negative, so their bits are ordered.
    let order = |run: &mut [I]| run.sort_unstable_by_key(|item| item.weight().to_bits());
    let (mut kept, mut first) = (0, 0);
    while first < items.len() {
        let key = items[first].key();
        let copies = items[first..].iter().take_while(|item| item.key() == key).count();
        let run = first..first + copies;
        first += copies;
        if copies > 1 {
            order(&mut items[run.clone()]);
        }
        if keep_duplicates {
            continue;
        }
        let mut item = items[run.start];
        if copies > 1 {
            let sum = items[run].iter().map(|item| f64::from(item.weight())).sum::<f64>() as f32;
            if !sum.is_finite() {
                return Err(Error::invalid(format!(
                    "the weights of {copies} edges from node {} to node {} sum to more than a 32-bit float \
                     holds; pass keep-duplicates to store them separately",
                    key as NodeId,
                    key >> 32
                )));
            }
            item = I::new(key, sum);
        }
        items[kept] = item;
        kept += 1;
    }
    if !keep_duplicates {
        items.truncate(kept);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::item::Weighted;

    #[test]
    fn weights_of_the_same_edge_are_summed_in_any_order() {
        let edges = [(7, 0.5), (3, 1.0), (7, 0.25), (9, 0.0), (7, 4.0), (3, f32::MIN_POSITIVE)];
        for turn in 0..edges.len() {
            let mut items: Vec<Weighted> = edges.iter().map(|&(key, w)| Item::new(key << 31, w)).collect();
            items.rotate_left(turn);
            let mut apart = items.clone();
            sort_and_merge(&mut apart, true).unwrap();
            let weights = |items: &[Weighted]| items.iter().map(|item| item.weight()).collect::<Vec<_>>();
            assert_eq!(weights(&apart), [f32::MIN_POSITIVE, 1.0, 0.25, 0.5, 4.0, 0.0]);
            sort_and_merge(&mut items, false).unwrap();
            let keys: Vec<u64> = items.iter().map(|item| item.key() >> 31).collect();
            assert_eq!((keys, weights(&items)), (vec![3, 7, 9], vec![1.0, 4.75, 0.0]));
        }
        let mut large = vec![Weighted::new(1, f32::MAX); 2];
        let error = sort_and_merge(&mut large, false).unwrap_err().to_string();
        assert!(error.contains("2 edges from node 1 to node 0 sum to more"), "{error}");
        assert_eq!(sort_and_merge(&mut vec![5u64, 5, 4], false).map_err(|e| e.to_string()), Ok(()));
    }
}
