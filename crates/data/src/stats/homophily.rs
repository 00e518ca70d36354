//! Homophily of the labels, by three measures of the literature.
//!
//! # Algorithm
//!
//! One pass over the edges counts their ends by class; each measure is a formula on these counts.
//!
//! # Source
//!
//! Edge homophily: Zhu et al., *Beyond homophily in graph neural networks*, NeurIPS 2020,
//! definition 1. Adjusted homophily: Platonov et al., *Characterizing graph datasets for node
//! classification*, NeurIPS 2023, section 2.2. Class-insensitive homophily: Lim et al., *Large
//! scale learning on non-homophilous graphs*, NeurIPS 2021, section 3.
//!
//! # Cost
//!
//! O(E + C).

use graphmill_core::NodeId;
use serde::Serialize;

/// Homophily over the edges between two different labelled nodes, counting each stored direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Homophily {
    /// Share of edges whose ends have the same class (Zhu et al., definition 1).
    pub edge: f64,
    /// Adjusted homophily `(edge - sum_k p_k^2) / (1 - sum_k p_k^2)`, where `p_k` is the share of
    /// edge ends in class `k`: 0 for random edges and 1 if all edges connect equal classes,
    /// independent of the class sizes (Platonov et al., section 2.2). `None` if all edge ends have
    /// one class.
    pub adjusted: Option<f64>,
    /// Class-insensitive homophily `1 / (C - 1) sum_k max(0, h_k - n_k / n)`, where `h_k` is the
    /// share of the edges into class `k` that come from it and `n_k / n` its share of the labelled
    /// nodes (Lim et al., section 3). `None` for a single class.
    pub class_insensitive: Option<f64>,
}

/// Edges within a class, into it, and out of it.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    within: u64,
    into: u64,
    out: u64,
}

/// Counts of edge ends by class (`C`).
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    ends: Vec<Ends>,
}

impl Tally {
    /// Creates zero counts.
    pub(super) fn new(classes: usize) -> Self {
        Self { ends: vec![Ends::default(); classes] }
    }

    /// Returns true if there are no classes.
    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Adds the edges into node `v` from `sources`. `class` covers all nodes; -1 and any other
    /// value that is not a class is not counted.
    #[inline]
    pub(super) fn add(&mut self, class: &[i32], v: NodeId, sources: &[NodeId]) {
        let count = self.ends.len();
        // An invalid class wraps to an index out of range.
        let class_of = |v: NodeId| Some(class[v as usize] as usize).filter(|&c| c < count);
        let Some(to) = class_of(v) else { return };
        for &u in sources.iter().filter(|&&u| u != v) {
            let Some(from) = class_of(u) else { continue };
            self.ends[to].within += u64::from(from == to);
            self.ends[to].into += 1;
            self.ends[from].out += 1;
        }
    }

    /// Adds the counts of another tally.
    pub(super) fn merge(&mut self, other: &Self) {
        for (a, b) in self.ends.iter_mut().zip(&other.ends) {
            a.within += b.within;
            a.into += b.into;
            a.out += b.out;
        }
    }

    /// Computes the homophily from `class_counts` (`C`), the number of nodes of each class; `None`
    /// if no edge connects two different labelled nodes.
    pub(super) fn homophily(&self, class_counts: &[usize]) -> Option<Homophily> {
        let ends = &self.ends;
        let edges: u64 = ends.iter().map(|e| e.into).sum();
        if edges == 0 {
            return None;
        }
        let edge = ends.iter().map(|e| e.within).sum::<u64>() as f64 / edges as f64;
        let one_class = ends.iter().any(|e| e.into + e.out == 2 * edges);
        let chance: f64 = ends.iter().map(|e| ((e.into + e.out) as f64 / (2 * edges) as f64).powi(2)).sum();
        let labelled: usize = class_counts.iter().sum();
        let excess: f64 = ends
            .iter()
            .zip(class_counts)
            .filter(|(e, _)| e.into > 0)
            .map(|(e, &n)| (e.within as f64 / e.into as f64 - n as f64 / labelled as f64).max(0.0))
            .sum();
        Some(Homophily {
            edge,
            adjusted: (!one_class).then(|| (edge - chance) / (1.0 - chance)),
            class_insensitive: (class_counts.len() > 1).then(|| excess / (class_counts.len() - 1) as f64),
        })
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::{EdgeOptions, Labels, build};

    use super::*;
    use crate::{
        Dataset,
        stats::{info, tests::small},
    };

    #[test]
    fn one_class_has_no_adjusted_homophily() {
        let labels = Labels::Single { class: vec![0; 6].into(), classes: 1 };
        let h = info(&Dataset { labels, ..small() }).homophily.unwrap();
        assert_eq!((h.edge, h.adjusted, h.class_insensitive), (1.0, None, None));
    }

    #[test]
    fn edges_of_unlabelled_nodes_and_self_loops_do_not_count() {
        // 0 -> 0, 0 -> 1, 1 -> 2, 2 -> 1; node 2 is unlabelled: one edge counts, between unequal
        // classes.
        let graph = build(3, &[0, 0, 1, 2], &[0, 1, 2, 1], EdgeOptions::DIRECTED).unwrap();
        let homophily = |class: &[i32], counts: &[usize]| {
            let mut tally = Tally::new(counts.len());
            (0..3).for_each(|v| tally.add(class, v, graph.in_neighbors(v)));
            tally.homophily(counts)
        };
        let found = homophily(&[0, 1, -1], &[1, 1]).unwrap();
        assert_eq!((found.edge, found.adjusted, found.class_insensitive), (0.0, Some(-1.0), Some(0.0)));
        assert_eq!(homophily(&[0, -1, -1], &[1, 0]), None);
    }
}
