//! Statistics of a dataset, as printed by `graphmill info`.

mod display;
mod homophily;

pub(crate) use display::{grouped, sizes};
pub use homophily::Homophily;

use std::collections::HashMap;

use graphmill_core::{
    ClassColumn, Graph, Labels, NodeId,
    features::FeatureData,
    keyed::key,
    traverse::{Components, Forest, summarize_with},
};
use homophily::Tally;
use rayon::prelude::*;
use serde::Serialize;

use crate::{
    Dataset,
    dataset::{NamedGraph, Normalization},
};

/// Edges that are processed before their pages are released.
const EDGES: usize = 16 << 20;

/// Nodes whose edges are processed by one statistic after the other.
const BLOCK: usize = 256;

/// Statistics of a dataset; `Display` prints the table, [`Serialize`] the JSON document.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Info {
    /// Name of the dataset.
    pub name: String,
    /// Number of nodes, `V`.
    pub nodes: usize,
    /// Number of edges, `E`, counting every stored direction.
    pub edges: usize,
    /// Number of features, `F`.
    pub feature_dim: usize,
    /// Storage type: `f32`, `f16`, or `csr` if only nonzero values are stored.
    pub feature_type: &'static str,
    /// Number of stored feature values.
    pub feature_values: usize,
    /// Normalization applied to the features on import ("rows" or "standard").
    pub normalize: Option<&'static str>,
    /// Number of classes, `C`.
    pub classes: usize,
    /// True if a node may have several classes.
    pub multilabel: bool,
    /// Columns of classes, if a node has a class in each of several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<ClassColumn>,
    /// True if nodes have values in the place of classes.
    pub values: bool,
    /// Number of training nodes.
    pub train: usize,
    /// Number of validation nodes.
    pub valid: usize,
    /// Number of test nodes.
    pub test: usize,
    /// Customary metric of the dataset, if known.
    pub metric: Option<String>,
    /// True if every edge is stored in both directions (equally often): an undirected graph.
    pub symmetric: bool,
    /// True if edges have weights.
    pub weighted: bool,
    /// Number of nodes without an edge in either direction.
    pub isolated: usize,
    /// Number of self-loops.
    pub self_loops: usize,
    /// In-degrees of the nodes.
    pub degree: Degree,
    /// Graphs of a disjoint union; empty for a single graph.
    pub graphs: Vec<Part>,
    /// Weakly connected components.
    pub components: Components,
    /// Homophily of the labels; only if labels are single and an edge connects two labelled nodes.
    pub homophily: Option<Homophily>,
    /// Nodes of each class, `C`; with several labels per node, a node counts in each of its
    /// classes.
    pub class_counts: Vec<usize>,
    /// Number of nodes without a label.
    pub unlabelled: usize,
    /// True if the nodes were renumbered and their original ids are recorded.
    pub reordered: bool,
    /// Size at rest.
    pub bytes: Bytes,
}

/// Summary of the in-degrees. Percentiles between two nodes are interpolated, as by NumPy.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Degree {
    /// Mean, `E / V`; 0 in an empty graph.
    pub mean: f64,
    /// Median.
    pub median: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Maximum.
    pub max: u64,
    /// Nodes by degree: 0, 1, 2 to 3, 4 to 7, and so on up to the maximum.
    pub histogram: Vec<Bin>,
}

/// Bar of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bin {
    /// Smallest degree of the bar.
    pub from: u64,
    /// Largest degree of the bar.
    pub to: u64,
    /// Number of nodes with such a degree.
    pub nodes: usize,
}

/// One graph of a disjoint union.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// Name of the graph.
    pub name: String,
    /// Number of its nodes.
    pub nodes: usize,
    /// Number of its edges, counting every stored direction.
    pub edges: usize,
}

impl Part {
    fn new(part: &NamedGraph, graph: &Graph) -> Self {
        let indptr = graph.indptr();
        let starts = |v: usize| indptr.get(v).copied().unwrap_or(0);
        let edges = starts(part.nodes.end) - starts(part.nodes.start);
        Self { name: part.name.clone(), nodes: part.nodes.len(), edges: edges as usize }
    }
}

/// Bytes at rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bytes {
    /// `indptr`, `indices` and edge weights.
    pub topology: usize,
    /// Feature rows.
    pub features: usize,
    /// Labels.
    pub labels: usize,
}

/// Computes the statistics of `dataset`. Almost O(E + V C) (see
/// [`weak_components`](graphmill_core::traverse::weak_components)), parallel, with the same result
/// for any number of threads. Reads the edges once and takes `12 V` bytes of working memory in
/// addition to mapped data; pages of the edges are released on the way.
///
/// ```
/// use graphmill_data::{generate::demo, stats::info};
/// let info = info(&demo()?);
/// assert_eq!((info.nodes, info.classes, info.symmetric), (50_000, 10, true));
/// println!("{info}");
/// # Ok::<(), graphmill_core::Error>(())
/// ```
pub fn info(dataset: &Dataset) -> Info {
    let graph = &dataset.graph;
    let Edges { self_loops, symmetric, tally, components } = edges(graph, &dataset.labels);
    let (class_counts, unlabelled) = count_classes(&dataset.labels);
    // A node with an in-neighbour or another edge is not isolated; a self-loop is an in-neighbour.
    let (components, isolated) = summarize_with(&components, |v| graph.in_degree(v) == 0);
    Info {
        name: dataset.name.clone(),
        nodes: graph.num_nodes(),
        edges: graph.num_edges(),
        feature_dim: dataset.features.dim,
        feature_type: match dataset.features.data {
            FeatureData::F32(_) => "f32",
            FeatureData::F16(_) => "f16",
            FeatureData::Csr(_) => "csr",
        },
        feature_values: dataset.features.stored(),
        normalize: dataset.normalization.as_ref().map(Normalization::name),
        classes: dataset.labels.classes(),
        multilabel: dataset.labels.is_multi(),
        columns: dataset.labels.columns().to_vec(),
        values: dataset.labels.is_values(),
        train: dataset.split.train.len(),
        valid: dataset.split.valid.len(),
        test: dataset.split.test.len(),
        metric: dataset.metric.clone(),
        symmetric,
        weighted: graph.edge_weight().is_some(),
        isolated,
        self_loops,
        degree: degree(graph),
        graphs: dataset.graphs.iter().map(|part| Part::new(part, graph)).collect(),
        components,
        homophily: tally.homophily(&class_counts),
        class_counts,
        unlabelled,
        reordered: dataset.original_ids.is_some(),
        bytes: Bytes {
            topology: size_of_val(graph.indptr())
                + size_of_val(graph.indices())
                + graph.edge_weight().map_or(0, size_of_val),
            features: dataset.features.bytes(),
            labels: match &dataset.labels {
                Labels::Single { class, .. } => size_of_val(&class[..]),
                Labels::Multi { member, .. } => member.len(),
                Labels::Columns { class, .. } => size_of_val(&class[..]),
                Labels::Values { values, .. } => size_of_val(&values[..]),
            },
        },
    }
}

/// Results of one pass over the edges.
struct Edges {
    self_loops: usize,
    symmetric: bool,
    tally: Tally,
    /// Component of each node: see [`graphmill_core::traverse::weak_components`].
    components: Vec<NodeId>,
}

/// Computes all edge statistics in one pass, so that a graph on disk is read once.
///
/// Symmetry needs neither sorted rows nor random reads: over all edges, the hashes of `(u, v)` and
/// those of `(v, u)` have equal sums exactly when the two multisets of pairs are equal, up to a
/// probability of about 2^-64.
fn edges(graph: &Graph, labels: &Labels) -> Edges {
    let (class, classes): (&[i32], usize) = match labels {
        Labels::Single { class, classes } if class.len() == graph.num_nodes() => (class, *classes),
        _ => (&[], 0),
    };
    let forest = Forest::new(graph.num_nodes());
    let (mut self_loops, mut imbalance, mut tally) = (0, 0u64, Tally::new(classes));
    graph.scan(EDGES, |nodes| {
        // Few long ranges: each holds a table of C rows.
        let blocks = nodes.len().div_ceil(BLOCK);
        let run = blocks.div_ceil(64).max(16);
        let parts = (0..blocks).into_par_iter().with_min_len(run).fold(
            || (0, 0u64, Tally::new(classes)),
            |(mut loops, mut sum, mut tally), block| {
                let start = nodes.start + (block * BLOCK) as NodeId;
                let block = start..nodes.end.min(start.saturating_add(BLOCK as NodeId));
                // One loop per statistic, over edges that are in the caches by then: the random
                // reads of one overlap with each other, not with the arithmetic of the next.
                for v in block.clone() {
                    graph.in_neighbors(v).iter().for_each(|&u| forest.join(u, v));
                }
                for v in block.clone() {
                    for &u in graph.in_neighbors(v) {
                        loops += usize::from(u == v);
                        let (there, back) = (key(&[u.into(), v.into()]), key(&[v.into(), u.into()]));
                        sum = sum.wrapping_add(there).wrapping_sub(back);
                    }
                }
                if classes > 0 {
                    block.for_each(|v| tally.add(class, v, graph.in_neighbors(v)));
                }
                (loops, sum, tally)
            },
        );
        let none = || (0, 0, Tally::default());
        let (loops, sum, counted) = parts.reduce(none, |mut a, mut b| {
            if a.2.is_empty() {
                std::mem::swap(&mut a.2, &mut b.2);
            } else {
                a.2.merge(&b.2);
            }
            (a.0 + b.0, a.1.wrapping_add(b.1), a.2)
        });
        self_loops += loops;
        imbalance = imbalance.wrapping_add(sum);
        tally.merge(&counted);
    });
    Edges { self_loops, symmetric: imbalance == 0, tally, components: forest.roots() }
}

/// All nodes, split over threads in ranges of a useful length.
fn nodes(graph: &Graph) -> impl IndexedParallelIterator<Item = NodeId> {
    (0..graph.num_nodes() as NodeId).into_par_iter().with_min_len(1 << 10)
}

/// Summarizes the degrees by their frequencies: there are at most sqrt(2 E) distinct ones.
fn degree(graph: &Graph) -> Degree {
    if graph.num_nodes() == 0 {
        return Degree::default();
    }
    let counts = nodes(graph)
        .with_min_len(graph.num_nodes().div_ceil(64).max(1 << 12))
        .fold(HashMap::<u64, usize>::new, |mut counts, v| {
            *counts.entry(graph.in_degree(v) as u64).or_default() += 1;
            counts
        })
        .reduce(HashMap::new, |mut a, b| {
            b.into_iter().for_each(|(degree, nodes)| *a.entry(degree).or_default() += nodes);
            a
        });
    let mut counts: Vec<(u64, usize)> = counts.into_iter().collect();
    counts.sort_unstable();
    // Number of nodes of that degree or less.
    let ends: Vec<usize> = counts
        .iter()
        .scan(0, |sum, (_, nodes)| {
            *sum += nodes;
            Some(*sum)
        })
        .collect();
    let at = |place: usize| counts[ends.partition_point(|&end| end <= place)].0 as f64;
    let percentile = |share: f64| {
        let place = share * (graph.num_nodes() - 1) as f64;
        let (low, high) = (at(place.floor() as usize), at(place.ceil() as usize));
        low + (high - low) * place.fract()
    };
    let max = counts[counts.len() - 1].0;
    let mut histogram = Vec::new();
    let mut from = 0;
    while from <= max {
        let to = if from == 0 { 0 } else { from.saturating_mul(2) - 1 };
        let of = counts.iter().filter(|(degree, _)| (from..=to).contains(degree));
        histogram.push(Bin { from, to, nodes: of.map(|(_, nodes)| nodes).sum() });
        from = to + 1;
    }
    Degree {
        mean: graph.num_edges() as f64 / graph.num_nodes() as f64,
        median: percentile(0.5),
        p90: percentile(0.9),
        p99: percentile(0.99),
        max,
        histogram,
    }
}

/// Nodes per class, and nodes without a label.
fn count_classes(labels: &Labels) -> (Vec<usize>, usize) {
    let mut counts = vec![0; if labels.is_values() { 0 } else { labels.classes() }];
    let mut unlabelled = 0;
    match labels {
        Labels::Single { class, .. } => {
            for &c in class.iter() {
                match counts.get_mut(c as usize) {
                    Some(count) => *count += 1,
                    None => unlabelled += 1,
                }
            }
        }
        Labels::Multi { member, classes } if *classes > 0 => {
            for row in member.chunks_exact(*classes) {
                counts.iter_mut().zip(row).for_each(|(count, &m)| *count += usize::from(m));
            }
        }
        Labels::Multi { .. } => {}
        Labels::Columns { class, columns } => {
            let starts: Vec<usize> = ClassColumn::ranges(columns).map(|range| range.start).collect();
            for row in class.chunks(columns.len().max(1)) {
                let known = row.iter().zip(&starts).filter(|(c, _)| **c >= 0);
                known.for_each(|(&c, start)| counts[start + c as usize] += 1);
                unlabelled += usize::from(row.iter().all(|&c| c < 0));
            }
        }
        Labels::Values { values, width } => {
            let rows = values.chunks((*width).max(1));
            unlabelled = rows.filter(|row| row.iter().all(|x| x.is_nan())).count();
        }
    }
    (counts, unlabelled)
}

#[cfg(test)]
mod tests {
    use graphmill_core::{EdgeOptions, Features, Split, build};

    use super::*;

    /// ```text
    ///   0 --- 1        classes: 0 0 0 1 1 ?
    ///    \   /
    ///      2 --- 3 --- 4     5
    /// ```
    pub(super) fn small() -> Dataset {
        let graph = build(6, &[0, 0, 1, 2, 3], &[1, 2, 2, 3, 4], EdgeOptions::UNDIRECTED).unwrap();
        Dataset {
            name: "small".into(),
            graph,
            features: Features::f32(2, vec![0.0; 12]),
            labels: Labels::Single { class: vec![0, 0, 0, 1, 1, -1].into(), classes: 2 },
            split: Split { train: vec![0, 3].into(), valid: vec![1].into(), test: vec![2, 4].into() },
            graphs: Vec::new(),
            metric: Some("accuracy".into()),
            checksum: None,
            normalization: None,
            directory: None,
            original_ids: None,
            keys: None,
        }
    }

    #[test]
    fn statistics_of_a_small_graph_match_a_manual_calculation() {
        let dataset = small();
        dataset.validate().unwrap();
        let info = info(&dataset);
        assert_eq!((info.nodes, info.edges, info.feature_dim, info.classes), (6, 10, 2, 2));
        assert_eq!((info.train, info.valid, info.test), (2, 1, 2));
        assert_eq!((info.isolated, info.self_loops, info.symmetric, info.weighted), (1, 0, true, false));
        assert_eq!((info.components.count, info.components.largest), (2, 5));
        assert_eq!((&info.class_counts[..], info.unlabelled), (&[3, 2][..], 1));
        assert_eq!(info.bytes, Bytes { topology: 7 * 8 + 10 * 4, features: 48, labels: 24 });
        // Degrees 0 1 2 2 2 3 in order; position 4.5 of 0..=5 is halfway between 2 and 3.
        let d = &info.degree;
        assert_eq!((d.mean, d.median, d.p90, d.max), (10.0 / 6.0, 2.0, 2.5, 3));
        assert!((d.p99 - 2.95).abs() < 1e-12);
        let bins = [(0, 0, 1), (1, 1, 1), (2, 3, 4)].map(|(from, to, nodes)| Bin { from, to, nodes });
        assert_eq!(d.histogram, bins);
        // Of 5 edges only 2-3 connects two classes; 7 of 10 ends are in class 0, 3 in class 1. Of
        // the 7 edges into class 0 six come from it, of the 3 into class 1 two.
        let h = info.homophily.unwrap();
        assert!((h.edge - 0.8).abs() < 1e-12);
        assert!((h.adjusted.unwrap() - (0.8 - 0.58) / 0.42).abs() < 1e-12);
        assert!((h.class_insensitive.unwrap() - ((6.0 / 7.0 - 0.6) + (2.0 / 3.0 - 0.4))).abs() < 1e-12);
    }

    #[test]
    fn direction_self_loops_and_duplicates_are_counted() {
        let with = |src: &[u32], dst: &[u32], options| {
            info(&Dataset { graph: build(4, src, dst, options).unwrap(), ..Default::default() })
        };
        let one_way = with(&[0, 1, 1], &[1, 1, 2], EdgeOptions::DIRECTED);
        assert_eq!((one_way.symmetric, one_way.self_loops, one_way.isolated), (false, 1, 1));
        let cycle = with(&[0, 1, 2], &[1, 2, 0], EdgeOptions::DIRECTED);
        assert!(!cycle.symmetric, "every degree is 1 both ways, yet no edge goes back");
        assert!(with(&[0, 1, 3], &[1, 0, 3], EdgeOptions::DIRECTED).symmetric);
        let keep = EdgeOptions { keep_duplicates: true, ..EdgeOptions::DIRECTED };
        assert!(!with(&[0, 0, 1], &[1, 1, 0], keep).symmetric, "twice there, once back");
        assert_eq!(one_way.homophily, None);
    }

    #[test]
    fn multiple_labels_are_counted_per_class() {
        let labels = Labels::Multi { member: vec![1, 0, 1, 1, 0, 0].into(), classes: 3 };
        let graph = build(2, &[0], &[1], EdgeOptions::DIRECTED).unwrap();
        let info = info(&Dataset { graph, labels, ..Default::default() });
        assert_eq!((info.multilabel, &info.class_counts[..], info.homophily), (true, &[2, 0, 1][..], None));
        assert!(info.to_string().contains("several a node, 0 to 2 nodes each"));
    }

    #[test]
    fn empty_datasets_have_statistics() {
        let info = info(&Dataset::default());
        assert_eq!((info.nodes, info.degree.max, info.components.count, info.symmetric), (0, 0, 0, true));
        assert!(info.to_string().contains("nodes"));
    }

    #[test]
    fn graphs_are_counted_separately() {
        let graph = build(6, &[0, 0, 1, 3], &[1, 2, 2, 4], EdgeOptions::UNDIRECTED).unwrap();
        let graphs = vec![NamedGraph::new("left", 0..3), NamedGraph::new("right", 3..6)];
        let info = info(&Dataset { graph, graphs, ..small() });
        let part = |name: &str, nodes, edges| Part { name: name.into(), nodes, edges };
        assert_eq!(info.graphs, [part("left", 3, 6), part("right", 3, 2)]);
        assert!(
            info.to_string()
                .contains("  graphs                  2   left 3 nodes, 6 edges; right 3 nodes, 2 edges\n"),
            "{info}"
        );
    }

    #[test]
    fn the_json_document_has_the_documented_fields() {
        let json = serde_json::to_value(info(&small())).unwrap();
        for (field, value) in [
            ("nodes", 6),
            ("edges", 10),
            ("feature_dim", 2),
            ("classes", 2),
            ("train", 2),
            ("valid", 1),
            ("test", 2),
        ] {
            assert_eq!(json[field], value, "{field}");
        }
        assert_eq!(json["multilabel"], false);
        assert_eq!(json["degree"]["histogram"][2]["nodes"], 4);
    }

    #[test]
    fn statistics_ignore_the_number_of_threads() {
        let dataset = crate::generate::demo().unwrap();
        let with = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| info(&dataset))
        };
        assert_eq!(with(1), with(3));
    }
}
