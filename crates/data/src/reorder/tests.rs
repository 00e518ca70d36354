//! Tests of every order on every kind of dataset, against maps from old to new ids.

use std::collections::BTreeMap;

use graphmill_core::{
    Buffer, EdgeOptions, Features, Labels, SparseRows, Split, build_weighted,
    features::FeatureData,
    keyed::{Stream, key},
    node_order::{by_scores, inverse},
    table::find,
};
use half::f16;
use proptest::prelude::*;

use super::*;
use crate::{dataset::NamedGraph, external::Scratch};

const ALL: EdgeOptions = EdgeOptions { keep_duplicates: true, ..EdgeOptions::DIRECTED };

fn graph(nodes: usize, pairs: &[(u32, u32)], options: EdgeOptions) -> Graph {
    let (src, dst): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
    graphmill_core::build(nodes, &src, &dst, options).unwrap()
}

fn order_of(name: &str, graph: &Graph) -> Vec<NodeId> {
    (find("order", TABLE, name).unwrap().make.make)(graph, 7).unwrap()
}

/// Optional arrays of a test dataset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) weighted: bool,
    pub(crate) undirected: bool,
    pub(crate) multi: bool,
    /// 0: none, 1: f32, 2: f16, 3: sparse.
    pub(crate) features: u8,
    pub(crate) named: bool,
    pub(crate) reordered: bool,
}

/// Dataset of up to 40 nodes whose every value identifies its node.
pub(crate) fn dataset(nodes: usize, pairs: &[(u32, u32)], kind: Kind) -> Dataset {
    let half = nodes / 2;
    let apart = |&(u, v): &(u32, u32)| !kind.named || (u as usize >= half) == (v as usize >= half);
    let pairs: Vec<_> =
        pairs.iter().map(|&(u, v)| (u % nodes as u32, v % nodes as u32)).filter(apart).collect();
    let options = EdgeOptions { undirected: kind.undirected, ..ALL };
    let graph = if kind.weighted {
        let (src, dst): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
        let weight: Vec<f32> = (0..pairs.len()).map(|e| e as f32).collect();
        build_weighted(nodes, &src, &dst, &weight, options).unwrap()
    } else {
        graph(nodes, &pairs, options)
    };
    let table: Vec<f32> = (0..3 * nodes).map(|i| if i % 2 == 0 { 0.0 } else { i as f32 }).collect();
    let features = match kind.features {
        0 => Features::default(),
        1 => Features::f32(3, table),
        2 => {
            let table: Vec<f16> = table.into_iter().map(f16::from_f32).collect();
            Features { dim: 3, data: FeatureData::F16(table.into()) }
        }
        _ => Features::csr(SparseRows::from_dense(3, &table).unwrap()),
    };
    let labels = if kind.multi {
        let member: Vec<u8> = (0..2 * nodes).map(|i| (i * 7 / 3 % 2) as u8).collect();
        Labels::Multi { member: member.into(), classes: 2 }
    } else {
        let class: Vec<i32> = (0..nodes as i32).collect();
        Labels::Single { class: class.into(), classes: nodes }
    };
    let part = |rest: u32| (0..nodes as u32).filter(|v| v % 4 == rest).collect::<Vec<_>>().into();
    let graphs = if kind.named {
        vec![
            NamedGraph::new("a", 0..half),
            NamedGraph::new("none", half..half),
            NamedGraph::new("b", half..nodes),
        ]
    } else {
        Vec::new()
    };
    let original = kind.reordered.then(|| (0..nodes as u32).rev().collect::<Vec<_>>().into());
    let dataset = Dataset {
        name: "tiny".into(),
        graph,
        features,
        labels,
        split: Split { train: part(0), valid: part(1), test: part(3) },
        graphs,
        metric: Some("f1-micro".into()),
        checksum: None,
        normalization: None,
        directory: None,
        original_ids: original,
        keys: None,
    };
    dataset.validate().unwrap();
    dataset
}

/// Edges with their weights, by the node names of `name`.
fn edges(graph: &Graph, name: impl Fn(u32) -> u32) -> Vec<(u32, u32, u32)> {
    let mut edges = Vec::new();
    for v in 0..graph.num_nodes() as u32 {
        let start = graph.indptr()[v as usize] as usize;
        for (i, &u) in graph.in_neighbors(v).iter().enumerate() {
            let weight = graph.edge_weight().map_or(0, |weight| weight[start + i].to_bits());
            edges.push((name(v), name(u), weight));
        }
    }
    edges.sort_unstable();
    edges
}

/// Features and labels of a node.
pub(crate) fn attributes(dataset: &Dataset, v: u32) -> (Vec<f32>, Vec<i32>) {
    let (dim, v) = (dataset.features.dim, v as usize);
    let features = match &dataset.features.data {
        FeatureData::F32(data) => data[v * dim..(v + 1) * dim].to_vec(),
        FeatureData::F16(data) => data[v * dim..(v + 1) * dim].iter().map(|x| x.to_f32()).collect(),
        FeatureData::Csr(rows) => rows.to_dense().unwrap()[v * dim..(v + 1) * dim].to_vec(),
    };
    let labels = match &dataset.labels {
        Labels::Single { class, .. } => vec![class[v]],
        Labels::Multi { member, classes } => {
            member[v * classes..(v + 1) * classes].iter().map(|&m| m.into()).collect()
        }
        Labels::Columns { class, columns } => class[v * columns.len()..][..columns.len()].to_vec(),
        Labels::Values { values, width } => {
            values[v * width..(v + 1) * width].iter().map(|x| x.to_bits() as i32).collect()
        }
    };
    (features, labels)
}

/// Asserts that `new` is `old` with renumbered nodes, and returns the old id of every node.
fn same_but_renumbered(old: &Dataset, new: &Dataset) -> Vec<u32> {
    new.validate().unwrap();
    let ids = new.original_ids.as_ref().unwrap();
    // Ids of `old`, which may be original ids themselves.
    let old_ids: Vec<u32> = match &old.original_ids {
        None => ids.to_vec(),
        Some(first) => {
            let of: BTreeMap<u32, u32> = first.iter().zip(0..).map(|(&id, v)| (id, v)).collect();
            ids.iter().map(|id| of[id]).collect()
        }
    };
    assert_eq!(edges(&new.graph, |v| old_ids[v as usize]), edges(&old.graph, |v| v));
    for v in 0..new.num_nodes() as u32 {
        assert_eq!(attributes(new, v), attributes(old, old_ids[v as usize]));
        assert!(new.graph.in_neighbors(v).is_sorted());
    }
    for ((_, new), (_, old)) in new.split.parts().into_iter().zip(old.split.parts()) {
        let mut named: Vec<u32> = new.iter().map(|&v| old_ids[v as usize]).collect();
        named.sort_unstable();
        assert!(named == old[..] && new.is_sorted());
    }
    assert_eq!((&new.graphs, &new.name, &new.metric), (&old.graphs, &old.name, &old.metric));
    for graph in &new.graphs {
        assert!(graph.nodes.clone().all(|v| graph.nodes.contains(&(old_ids[v] as usize))));
    }
    old_ids
}

proptest! {
    #[test]
    fn every_order_preserves_every_kind_of_dataset(
        nodes in 1usize..40,
        pairs in prop::collection::vec((0u32..40, 0u32..40), 0..120),
        flags in prop::array::uniform5(any::<bool>()),
        features in 0u8..4,
    ) {
        let [weighted, undirected, multi, named, reordered] = flags;
        let old = dataset(nodes, &pairs, Kind { weighted, undirected, multi, features, named, reordered });
        for entry in TABLE {
            let order = (entry.make.make)(&old.graph, 3).unwrap();
            let (new, _) = relabel(&old, &order, &Scratch::in_memory()).unwrap();
            let ids = same_but_renumbered(&old, &new);
            if !named {
                prop_assert_eq!(ids, order, "{}", entry.name);
            }
        }
    }
}

#[test]
fn the_papers_example_has_the_papers_ranks() {
    let order = by_scores(&[0.1, 0.4, 0.2, 0.3]).unwrap();
    assert_eq!(inverse(&order).unwrap(), [3, 0, 2, 1]);
}

/// ```text
///   0 --- 1 --- 2 --- 3        4 --- 5      6
///          \   /
///            7
/// ```
fn small() -> Graph {
    graph(8, &[(0, 1), (1, 2), (2, 3), (1, 7), (2, 7), (4, 5)], EdgeOptions::UNDIRECTED)
}

#[test]
fn orders_of_a_small_graph_worked_out_by_hand() {
    assert_eq!(order_of("degree", &small()), [1, 2, 7, 0, 3, 4, 5, 6]);
    assert_eq!(order_of("bfs", &small()), [1, 0, 2, 7, 3, 4, 5, 6]);
    // Cuthill-McKee: 6 alone; 0 and 3 are peripheral, and from 0 the order is 0 1 7 2 3; 4 5.
    assert_eq!(order_of("rcm", &small()), [5, 4, 3, 2, 7, 1, 0, 6]);
    let shuffled = order_of("random", &small());
    assert_ne!(shuffled, (0..8).collect::<Vec<_>>());
    assert_ne!(shuffled, (find("order", TABLE, "random").unwrap().make.make)(&small(), 8).unwrap());
}

#[test]
fn degree_counts_rows_that_list_a_node_and_walks_go_both_ways() {
    // 0 -> 1, 0 -> 2, 3 -> 0
    let directed = graph(4, &[(0, 1), (0, 2), (3, 0)], EdgeOptions::DIRECTED);
    assert_eq!(order_of("degree", &directed), [0, 3, 1, 2]);
    assert_eq!(order_of("bfs", &directed), [0, 1, 2, 3]);
    assert_eq!(order_of("rcm", &graph(4, &[(0, 2), (3, 2), (3, 1)], EdgeOptions::DIRECTED)), [1, 3, 2, 0]);
}

#[test]
fn reverse_cuthill_mckee_narrows_the_band_of_a_shuffled_grid() {
    let side = 30u32;
    let names = order_of("random", &graph((side * side) as usize, &[], EdgeOptions::DIRECTED));
    let at = |x: u32, y: u32| names[(x * side + y) as usize];
    let cells = || (0..side - 1).flat_map(|x| (0..side).map(move |y| (x, y)));
    let pairs: Vec<_> =
        cells().flat_map(|(x, y)| [(at(x, y), at(x + 1, y)), (at(y, x), at(y, x + 1))]).collect();
    let grid = graph((side * side) as usize, &pairs, EdgeOptions::UNDIRECTED);
    let band = |rank: &[u32]| pairs.iter().map(|&(u, v)| rank[u as usize].abs_diff(rank[v as usize])).max();
    assert!(band(&(0..side * side).collect::<Vec<_>>()) > Some(500));
    // The optimum is the side of the grid.
    assert!(band(&inverse(&order_of("rcm", &grid)).unwrap()) <= Some(side + 1));
}

#[test]
fn invalid_orders_are_rejected() {
    let kind =
        Kind { weighted: false, undirected: true, multi: false, features: 1, named: false, reordered: false };
    let named = Kind { named: true, ..kind };
    let fails = |order: &[u32], why: &str| {
        for kind in [kind, named] {
            let old = dataset(4, &[], kind);
            let error = relabel(&old, order, &Scratch::in_memory()).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    };
    fails(&[0, 1, 2], "an order of 3 nodes, but there are 4");
    fails(&[0, 1, 2, 2], "node 2 occurs twice");
    fails(&[3, 3, 3, 3], "node 3 occurs twice");
    assert!(relabel(&dataset(4, &[], kind), &[0, 1, 2, 9], &Scratch::in_memory()).is_err());
    assert!(relabel(&dataset(4, &[], named), &[0, 1, 2, 9], &Scratch::in_memory()).is_err());
}

/// Large enough for several windows, long rows and files.
fn large(weighted: bool) -> Dataset {
    let nodes = 100_000;
    let mut stream = Stream::new(key(&[5]));
    let mut pairs: Vec<(u32, u32)> = (0..3_000_000)
        .map(|e| {
            let hub = if e % 3 == 0 { 0 } else { stream.below(nodes) as u32 };
            (stream.below(nodes) as u32, hub)
        })
        .collect();
    pairs.sort_unstable();
    let (src, dst): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let graph = if weighted {
        let weight: Vec<f32> = (0..src.len()).map(|e| (e % 11) as f32).collect();
        build_weighted(nodes as usize, &src, &dst, &weight, ALL).unwrap()
    } else {
        graphmill_core::build(nodes as usize, &src, &dst, ALL).unwrap()
    };
    let class: Vec<i32> = (0..nodes as i32).collect();
    let features: Vec<f32> = (0..nodes * 30).map(|i| i as f32).collect();
    Dataset {
        name: "large".into(),
        graph,
        features: Features::f32(30, features),
        labels: Labels::Single { class: class.into(), classes: nodes as usize },
        ..Dataset::default()
    }
}

#[test]
fn many_threads_windows_and_files_give_the_same_bytes() {
    let root = tempfile::tempdir().unwrap();
    for weighted in [false, true] {
        let data = large(weighted);
        let mut files = Vec::new();
        for threads in [1, 3] {
            let dir = root.path().join(format!("{weighted}-{threads}"));
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let by = |data: &Dataset| Ok(order_of("degree", &data.graph));
            pool.install(|| reorder_to(&data, &dir, "degree", by, Work::default())).unwrap();
            files.push(std::fs::read(dir.join("graphmill.json")).unwrap());
        }
        // The manifest contains the checksum of every file.
        assert!(files[0] == files[1]);
        let new = Dataset::open(root.path().join(format!("{weighted}-1"))).unwrap();
        let order: &Buffer<u32> = new.original_ids.as_ref().unwrap();
        assert_eq!(order[..], order_of("degree", &data.graph));
        assert_eq!(edges(&new.graph, |v| order[v as usize]), edges(&data.graph, |v| v));
        for (new_id, &v) in order.iter().enumerate().step_by(97) {
            assert_eq!(attributes(&new, new_id as u32), attributes(&data, v));
        }
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 2 + 2 * usize::from(weighted));
    }
}
