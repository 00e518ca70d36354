//! Batches that have nearly the same share of every class.
//!
//! # Algorithm
//!
//! The nodes of each class are shuffled in every epoch. The `i`-th of the `n` nodes of a class
//! stands at `(i + u) / n`, with an offset `u` below 1 for each class and epoch, and all nodes are
//! sorted by these positions. Any `b` consecutive nodes of `T` then hold `n b / T` nodes of the
//! class, up to one. A node of several labels, or of a class in each of several columns, belongs to
//! the rarest of them; real values are cut into ten classes by the ranks of the first target, and
//! nodes without a label are a class.
//!
//! # Source
//!
//! Proportional allocation of stratified sampling: Cochran, *Sampling Techniques*, 3rd edition,
//! 1977, section 5.5.
//!
//! # Cost
//!
//! O(T log T) per epoch, parallel; 12 bytes for each training node.

use graphmill_core::{ClassColumn, Labels, NodeId, keyed, memory};
use rayon::prelude::*;

use super::SeedOrder;

/// Number of classes that real values are cut into.
const VALUE_CLASSES: usize = 10;

/// Balanced order, new in every epoch.
#[derive(Clone, Debug)]
pub struct Balanced {
    /// Training nodes of each class.
    strata: Vec<Vec<NodeId>>,
    seed: u64,
}

impl Balanced {
    /// Creates the order of the nodes `train` by the `labels` of all nodes.
    pub fn new(train: &[NodeId], labels: &Labels, seed: u64) -> Self {
        let class_of = classes(train, labels);
        let count = class_of.iter().max().map_or(0, |&most| most as usize + 1);
        let mut strata = vec![Vec::new(); count];
        train.iter().zip(&class_of).for_each(|(&v, &class)| strata[class as usize].push(v));
        Self { strata, seed }
    }
}

/// Class of each training node; the class after the last one is that of nodes without a label.
fn classes(train: &[NodeId], labels: &Labels) -> Vec<u32> {
    let unknown = labels.classes() as u32;
    match labels {
        Labels::Single { class, .. } => {
            train.iter().map(|&v| u32::try_from(class[v as usize]).unwrap_or(unknown)).collect()
        }
        Labels::Multi { member, classes } => {
            let row = |v: NodeId| &member[v as usize * classes..][..*classes];
            let mut counts = vec![0u64; *classes];
            for &v in train {
                counts.iter_mut().zip(row(v)).for_each(|(count, &is)| *count += u64::from(is));
            }
            let rarest = |v: NodeId| {
                let own = (0..*classes).filter(|&c| row(v)[c] != 0);
                own.min_by_key(|&c| (counts[c], c)).map_or(unknown, |c| c as u32)
            };
            train.iter().map(|&v| rarest(v)).collect()
        }
        Labels::Columns { class, columns } => {
            let starts: Vec<usize> = ClassColumn::ranges(columns).map(|range| range.start).collect();
            let own = |v: NodeId| {
                let row = class[v as usize * starts.len()..].iter().zip(&starts);
                row.filter(|(c, _)| **c >= 0).map(|(&c, start)| start + c as usize)
            };
            let mut counts = vec![0u64; labels.classes()];
            train.iter().for_each(|&v| own(v).for_each(|c| counts[c] += 1));
            let rarest = |v: NodeId| own(v).min_by_key(|&c| (counts[c], c)).map_or(unknown, |c| c as u32);
            train.iter().map(|&v| rarest(v)).collect()
        }
        Labels::Values { values, width } => {
            let value = |i: &usize| values[train[*i] as usize * width];
            let mut ranked: Vec<usize> = (0..train.len()).filter(|i| !value(i).is_nan()).collect();
            ranked.sort_by(|a, b| value(a).total_cmp(&value(b)).then(a.cmp(b)));
            let mut classes = vec![VALUE_CLASSES as u32; train.len()];
            let known = ranked.len().max(1);
            for (rank, &i) in ranked.iter().enumerate() {
                classes[i] = (rank * VALUE_CLASSES / known) as u32;
            }
            classes
        }
    }
}

impl SeedOrder for Balanced {
    /// Writes the order of `epoch`.
    fn order(&self, epoch: u64, out: &mut Vec<NodeId>) {
        let (mut placed, mut sorted): (Vec<(f64, NodeId)>, Vec<NodeId>) = Default::default();
        memory::demand(&mut placed, self.strata.iter().map(Vec::len).sum());
        for (class, nodes) in self.strata.iter().enumerate() {
            let key = keyed::key(&[self.seed, epoch, class as u64, 0x6261_6c61]);
            memory::demand_copy(&mut sorted, nodes);
            let nodes = &mut sorted;
            // mix is a bijection, so distinct nodes have distinct keys and the order is unique
            nodes.par_sort_unstable_by_key(|&v| keyed::mix(key ^ u64::from(v)));
            let (count, offset) = (nodes.len() as f64, keyed::Stream::new(key).uniform());
            placed.extend(nodes.iter().enumerate().map(|(i, &v)| ((i as f64 + offset) / count, v)));
        }
        placed.par_sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        out.clear();
        memory::demand_extend(out, placed.iter().map(|&(_, v)| v));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::shuffling_error;

    /// Order of the even ones of `count` nodes.
    fn order(labels: &Labels, count: u32, epoch: u64) -> Vec<NodeId> {
        let train: Vec<NodeId> = (0..count).filter(|v| v % 2 == 0).collect();
        let mut out = Vec::new();
        Balanced::new(&train, labels, 7).order(epoch, &mut out);
        let mut sorted = out.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, train, "a permutation");
        out
    }

    #[test]
    fn every_batch_has_the_shares_of_all_classes() {
        // one in forty nodes is of class 1, and some have none
        let class: Vec<i32> = (0..4000)
            .map(|v| {
                if v % 80 == 0 {
                    1
                } else if v % 7 == 0 {
                    -1
                } else {
                    0
                }
            })
            .collect();
        let labels = Labels::Single { class: class.clone().into(), classes: 2 };
        let first = order(&labels, 4000, 0);
        for batch in first.chunks(200) {
            let rare = batch.iter().filter(|&&v| class[v as usize] == 1).count();
            assert!((4..=6).contains(&rare), "{rare} of 5");
        }
        assert!(shuffling_error(&first, 200, &labels) < 0.01);
        let second = order(&labels, 4000, 1);
        assert!(first != second && first == order(&labels, 4000, 0));
        assert_ne!(first[..50].iter().max(), second[..50].iter().max());
    }

    #[test]
    fn several_labels_and_values_are_balanced_too() {
        let member: Vec<u8> = (0..1000).flat_map(|v| [1, u8::from(v % 100 == 0)]).collect();
        let labels = Labels::Multi { member: member.into(), classes: 2 };
        for batch in order(&labels, 1000, 0).chunks(100) {
            assert_eq!(batch.iter().filter(|&&v| v % 100 == 0).count(), 2);
        }
        let values: Vec<f32> =
            (0..1000).map(|v| if v % 10 == 2 { f32::NAN } else { (v * v) as f32 }).collect();
        let labels = Labels::Values { values: values.into(), width: 1 };
        for batch in order(&labels, 1000, 0).chunks(50) {
            let missing = batch.iter().filter(|&&v| v % 10 == 2).count();
            let large = batch.iter().filter(|&&v| v % 10 != 2 && v >= 900).count();
            assert!((9..=11).contains(&missing) && (3..=5).contains(&large), "{missing} {large}");
        }
        assert!(order(&labels, 0, 0).is_empty());
    }
}
