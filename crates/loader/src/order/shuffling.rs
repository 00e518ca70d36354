//! Shuffling error of an order: the distance between label distributions of batches and the whole.

use graphmill_core::{ClassColumn, Labels, NodeId};

/// Mean total variation between the distribution of labels in a batch and in all of `order`, from 0
/// to 1.
///
/// The mean is over batches of `batch_size` nodes (at least 1), weighted by their sizes. For
/// multi-label nodes, distributions are of memberships: a node counts once for each of its classes,
/// and so for several columns of classes.
/// Real values have no classes, and the error 0.
///
/// O(T + T C / b), or O(T C) for multi-label nodes.
pub fn shuffling_error(order: &[NodeId], batch_size: usize, labels: &Labels) -> f64 {
    let classes = labels.classes();
    if classes == 0 || labels.is_values() {
        return 0.0;
    }
    let count = |nodes: &[NodeId], counts: &mut Vec<u64>| {
        counts.clear();
        counts.resize(classes, 0);
        match labels {
            Labels::Single { class, .. } => nodes.iter().for_each(|&v| {
                // -1 is an unknown label
                if let Some(count) = usize::try_from(class[v as usize]).ok().and_then(|c| counts.get_mut(c)) {
                    *count += 1;
                }
            }),
            Labels::Multi { member, .. } => nodes.iter().for_each(|&v| {
                let row = &member[v as usize * classes..][..classes];
                counts.iter_mut().zip(row).for_each(|(count, &is)| *count += u64::from(is));
            }),
            Labels::Columns { class, columns } => {
                for (k, range) in ClassColumn::ranges(columns).enumerate() {
                    let class = |v: &NodeId| usize::try_from(class[*v as usize * columns.len() + k]).ok();
                    nodes.iter().filter_map(class).for_each(|c| counts[range.start + c] += 1);
                }
            }
            Labels::Values { .. } => {}
        }
        counts.iter().sum::<u64>() as f64
    };
    let (mut all, mut here) = (Vec::new(), Vec::new());
    let in_all = count(order, &mut all);
    let (mut error, mut weight) = (0.0, 0.0);
    for batch in order.chunks(batch_size) {
        let in_batch = count(batch, &mut here);
        if in_batch > 0.0 {
            let apart = |(&h, &a): (&u64, &u64)| (h as f64 / in_batch - a as f64 / in_all).abs();
            error += batch.len() as f64 * 0.5 * here.iter().zip(&all).map(apart).sum::<f64>();
            weight += batch.len() as f64;
        }
    }
    if weight > 0.0 { error / weight } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_match_hand_computed_values() {
        let labels = Labels::Single { class: vec![0, 0, 1, 1, -1, -1].into(), classes: 2 };
        assert_eq!(shuffling_error(&[0, 2, 1, 3], 2, &labels), 0.0);
        assert_eq!(shuffling_error(&[0, 1, 2, 3], 2, &labels), 0.5);
        // unknown labels are in no distribution; batches without known labels are skipped
        assert_eq!(shuffling_error(&[0, 2, 4, 5], 2, &labels), 0.0);
        // a short batch has a smaller weight
        let three = shuffling_error(&[0, 2, 1], 2, &labels);
        assert!((three - (2.0 * (2.0 / 3.0 - 0.5) + 1.0 / 3.0) / 3.0).abs() < 1e-12, "{three}");
        let labels = Labels::Multi { member: vec![1, 1, 1, 0, 0, 1, 0, 0].into(), classes: 2 };
        assert_eq!(shuffling_error(&[0, 1, 2, 3], 1, &labels), (0.0 + 0.5 + 0.5) / 3.0);
        assert_eq!(shuffling_error(&[1, 2, 0, 3], 2, &labels), 0.0);
        assert_eq!(shuffling_error(&[], 2, &labels), 0.0);
        assert_eq!(shuffling_error(&[0, 1], 1, &Labels::default()), 0.0);
    }
}
