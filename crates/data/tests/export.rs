//! Round trips of exports and imports, for datasets of every kind.

use std::{fs, path::Path};

use graphmill_core::{
    EdgeOptions, Features, Labels, NodeId, Split, build, build_weighted, features::FeatureData,
};
use graphmill_data::{
    Dataset,
    dataset::{
        NamedGraph, Normalization,
        export::{ExportOptions, export},
        import::{ImportOptions, Normalize, import},
    },
    typed::Keys,
};
use proptest::prelude::*;

/// Everything that both formats hold, for comparison; features by their bits.
fn parts(dataset: &Dataset) -> String {
    let Dataset { graph, features, labels, split, .. } = dataset;
    let bits: Vec<u32> = match &features.data {
        FeatureData::F32(data) => data.iter().map(|x| x.to_bits()).collect(),
        FeatureData::F16(data) => data.iter().map(|x| x.to_f32().to_bits()).collect(),
        FeatureData::Csr(rows) => rows.to_dense().unwrap().iter().map(|x| x.to_bits()).collect(),
    };
    let (indptr, indices, dim) = (graph.indptr(), graph.indices(), features.dim);
    let labels = match labels {
        Labels::Single { class, classes } => format!("{:?} of {classes}", class.to_vec()),
        Labels::Multi { member, classes } => format!("{:?} sets of {classes}", member.to_vec()),
        Labels::Columns { class, columns } => format!("{:?} of {columns:?}", class.to_vec()),
        Labels::Values { values, width } => format!("{:?} values of {width}", values.to_vec()),
    };
    let split = split.parts().map(|(_, ids)| ids.to_vec());
    format!("{indptr:?} {indices:?} {dim} {bits:?} {labels} {split:?}")
}

/// Contents of an exported directory beyond [`parts`].
fn more(dataset: &Dataset) -> String {
    format!("{} {:?} {:?}", dataset.name, dataset.metric, dataset.graphs)
}

/// Feature value; zeros and negative values occur.
fn value() -> impl Strategy<Value = f32> {
    prop_oneof![Just(0.0f32), -3.0f32..3.0, Just(f32::MIN_POSITIVE), Just(f32::MAX)]
}

fn labels(nodes: usize) -> BoxedStrategy<Labels> {
    let single = (0..4usize)
        .prop_flat_map(move |classes| (prop::collection::vec(-1..classes as i32, nodes), Just(classes)))
        .prop_map(|(class, classes)| Labels::Single { class: class.into(), classes });
    let multi = (1..4usize)
        .prop_flat_map(move |classes| (prop::collection::vec(0..2u8, nodes * classes), Just(classes)))
        .prop_map(|(member, classes)| Labels::Multi { member: member.into(), classes });
    prop_oneof![single, multi].boxed()
}

prop_compose! {
    fn dataset()(nodes in 1..12usize)(
        nodes in Just(nodes),
        edges in prop::collection::vec((0..nodes as NodeId, 0..nodes as NodeId), 0..30),
        undirected in any::<bool>(),
        dim in 0..4usize,
        values in prop::collection::vec(value(), nodes * 3),
        labels in labels(nodes),
        owner in prop::collection::vec(0..4u8, nodes),
        cut in prop::option::of(0..=nodes),
    ) -> Dataset {
        let (mut src, mut dst): (Vec<NodeId>, Vec<NodeId>) = edges.into_iter().unzip();
        // Graphs have no edge between them.
        let graphs = match cut {
            Some(cut) => {
                let same = |(u, v): &(NodeId, NodeId)| (*u < cut as NodeId) == (*v < cut as NodeId);
                (src, dst) = src.into_iter().zip(dst).filter(same).unzip();
                vec![NamedGraph::new("A", 0..cut), NamedGraph::new("B", cut..nodes)]
            }
            None => Vec::new(),
        };
        let options = EdgeOptions { undirected, drop_self_loops: false, keep_duplicates: true };
        let part = |which: u8| -> Vec<NodeId> {
            let ids = (0..nodes).filter(|&v| owner[v] == which && labels.is_labelled(v as NodeId));
            ids.map(|v| v as NodeId).collect()
        };
        let split = Split { train: part(0).into(), valid: part(1).into(), test: part(2).into() };
        Dataset {
            name: "a name with \"quotes\"".into(),
            graph: build(nodes, &src, &dst, options).unwrap(),
            features: Features::f32(dim, values[..nodes * dim].to_vec()),
            labels,
            split,
            metric: Some("f1-macro".into()),
            graphs,
            checksum: None,
            normalization: None,
            directory: None,
            original_ids: None,
            keys: None,
        }
    }
}

fn duplicates() -> ImportOptions {
    ImportOptions { keep_duplicates: true, ..Default::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn npz_exports_round_trip(dataset in dataset(), compress in any::<bool>()) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npz");
        let options = ExportOptions { compress, ..Default::default() };
        let lost = export("npz", &dataset, &path, &options).unwrap();
        prop_assert_eq!(lost.len(), 1 + usize::from(!dataset.graphs.is_empty()), "the metric; graphs: \
            {:?}", lost);
        let again = import("npz", &path, &duplicates()).unwrap().dataset;
        prop_assert_eq!(parts(&again), parts(&dataset));
    }

    #[test]
    fn edge_list_exports_round_trip(dataset in dataset(), compress in any::<bool>()) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let options = ExportOptions { compress, ..Default::default() };
        prop_assert!(export("edges", &dataset, &path, &options).unwrap().is_empty());
        let again = import("edges", &path, &duplicates()).unwrap().dataset;
        prop_assert_eq!(parts(&again), parts(&dataset));
        prop_assert_eq!(more(&again), more(&dataset));
    }

    #[test]
    fn symmetric_edges_written_once_round_trip(dataset in dataset()) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let options = ExportOptions { undirected_once: true, ..Default::default() };
        let undirected = ImportOptions { undirected: true, ..duplicates() };
        match export("edges", &dataset, &path, &options) {
            Ok(_) => {
                let again = import("edges", &path, &undirected).unwrap().dataset;
                prop_assert_eq!(parts(&again), parts(&dataset));
            }
            Err(error) => {
                prop_assert!(error.to_string().contains("one way only"), "{}", error);
                let (mut forth, mut back) = (Vec::new(), Vec::new());
                for v in 0..dataset.num_nodes() as NodeId {
                    forth.extend(dataset.graph.in_neighbors(v).iter().map(|&u| (u, v)));
                    back.extend(dataset.graph.in_neighbors(v).iter().map(|&u| (v, u)));
                }
                forth.sort_unstable();
                back.sort_unstable();
                prop_assert_ne!(forth, back);
                prop_assert!(!path.exists());
            }
        }
    }
}

/// The same dataset with edge weights derived from the edge number or, if `mirrored`, from its
/// ends.
fn weighted(dataset: Dataset, mirrored: bool) -> Dataset {
    let graph = &dataset.graph;
    let rows =
        (0..dataset.num_nodes() as NodeId).flat_map(|v| graph.in_neighbors(v).iter().map(move |&u| (u, v)));
    let weight = |(e, (u, v)): (usize, (NodeId, NodeId))| {
        if mirrored {
            (1 + u * v) as f32 / 7.0
        } else {
            (e as f32 - 1.0).abs() * 1.1e-3f32.powi(e as i32 % 9)
        }
    };
    let weights: Vec<f32> = rows.enumerate().map(weight).collect();
    Dataset { graph: dataset.graph.clone().with_edge_weight(weights.into()).unwrap(), ..dataset }
}

/// Edges of a dataset with the bits of their weights, by destination or, stable among equals, by
/// source.
fn weighted_edges(dataset: &Dataset, by_source: bool) -> Vec<(NodeId, NodeId, u32)> {
    let (graph, mut e) = (&dataset.graph, 0);
    let mut edges = Vec::new();
    for v in 0..dataset.num_nodes() as NodeId {
        for &u in graph.in_neighbors(v) {
            edges.push((u, v, graph.edge_weight().unwrap()[e].to_bits()));
            e += 1;
        }
    }
    if by_source {
        edges.sort_by_key(|&(u, ..)| u);
    }
    edges
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn weights_are_exported_bit_for_bit(dataset in dataset(), mirrored in any::<bool>()) {
        let dataset = weighted(dataset, mirrored);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.csv");
        export("edges", &dataset, &path, &ExportOptions::default()).unwrap();
        let read = |list: &str| -> Vec<(NodeId, NodeId, u32)> {
            let lines = list.lines().skip(1);
            lines.map(|line| {
                let fields: Vec<&str> = line.split(',').collect();
                let weight: f32 = fields[2].parse().unwrap();
                (fields[0].parse().unwrap(), fields[1].parse().unwrap(), weight.to_bits())
            }).collect()
        };
        prop_assert_eq!(read(&text(&path)), weighted_edges(&dataset, false));
        // The output is imported again; parallel edges are ordered by ascending weight.
        let ordered = |dataset: &Dataset| {
            let mut edges = weighted_edges(dataset, false);
            edges.sort_unstable_by_key(|&(u, v, weight)| (v, u, weight));
            edges
        };
        if dataset.graph.num_edges() > 0 {
            let options = ImportOptions { num_nodes: Some(dataset.num_nodes()), ..duplicates() };
            let again = import("edges", &path, &options).unwrap().dataset;
            prop_assert_eq!(ordered(&again), ordered(&dataset));
        }
        // Readers of two columns still succeed.
        if dataset.graph.num_edges() > 0 {
            let options = ImportOptions { num_nodes: Some(dataset.num_nodes()), ..duplicates() };
            let again = import("edges", &path, &options).unwrap().dataset;
            prop_assert_eq!(again.graph.indices(), dataset.graph.indices());
        }
        let path = dir.path().join("a.npz");
        export("npz", &dataset, &path, &ExportOptions::default()).unwrap();
        let again = import("npz", &path, &duplicates()).unwrap().dataset;
        if again.graph.edge_weight().is_some() {
            prop_assert_eq!(ordered(&again), ordered(&dataset));
        } else {
            prop_assert!(dataset.graph.edge_weight().unwrap().iter().all(|&weight| weight == 1.0));
        }
        let mut npz = graphmill_data::npz::Npz::open(&path).unwrap();
        let mut ends = npz.read_as::<u32>("adj_indices").unwrap().data.into_iter();
        let mut weights = npz.read_as::<f32>("adj_data").unwrap().data.into_iter();
        let starts = npz.read_as::<u64>("adj_indptr").unwrap().data;
        let mut edges = Vec::new();
        for (u, row) in starts.windows(2).enumerate() {
            let row = (row[0]..row[1]).zip(ends.by_ref().zip(weights.by_ref()));
            edges.extend(row.map(|(_, (v, weight))| (u as NodeId, v, weight.to_bits())));
        }
        prop_assert_eq!(edges, weighted_edges(&dataset, true));
        let once = ExportOptions { undirected_once: true, replace: true, ..Default::default() };
        let path = dir.path().join("a.csv");
        match export("edges", &dataset, &path, &once) {
            Ok(_) => {
                let mut both = read(&text(&path));
                let reversed = both.iter().filter(|(u, v, _)| u != v).map(|&(u, v, w)| (v, u, w));
                let back: Vec<_> = reversed.collect();
                both.extend(back);
                both.sort_unstable();
                let mut expected = weighted_edges(&dataset, false);
                expected.sort_unstable();
                prop_assert_eq!(both, expected);
            }
            Err(error) => prop_assert!(error.to_string().starts_with("undirected-once: "), "{}", error),
        }
    }
}

/// 0 -> 1, 1 -> 2, 2 -> 2.
fn tiny() -> Dataset {
    Dataset {
        name: "tiny".into(),
        graph: build(4, &[0, 1, 2], &[1, 2, 2], EdgeOptions::DIRECTED).unwrap(),
        features: Features::f32(2, vec![0., 1., 2., 0., 0., 0., 0., 3.]),
        labels: Labels::Single { class: vec![0, 1, -1, 1].into(), classes: 2 },
        split: Split { train: vec![0, 3].into(), ..Split::default() },
        ..Dataset::default()
    }
}

fn text(path: &Path) -> String {
    String::from_utf8(fs::read(path).unwrap()).unwrap()
}

#[test]
fn exported_files_match_the_formats_of_other_programs() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let export = |format: &str, name: &str, options: &ExportOptions| {
        export(format, &tiny(), path(name), options).unwrap_or_else(|e| panic!("{e}"))
    };
    export("edges", "d", &ExportOptions::default());
    let head = "# Directed graph: tiny\n# Nodes: 4 Edges: 3\n# FromNodeId\tToNodeId\n";
    assert_eq!(text(&path("d/edges.txt")), format!("{head}0\t1\n1\t2\n2\t2\n"));
    assert_eq!(text(&path("d/split.json")), "{\"train\":[0,3]}\n");
    let lost = export("edges", "list.csv", &ExportOptions::default());
    assert!(lost[0].contains("list of edges alone"));
    // pandas and others take the first line for the names of the columns
    assert_eq!(text(&path("list.csv")), "source,target\n0,1\n1,2\n2,2\n");
    assert!(lost[1].contains("import the list with --num-nodes 4"), "{lost:?}");
    // lists of earlier versions had comments
    fs::write(path("old.csv"), format!("{head}0,1\n1,2\n2,2\n")).unwrap();
    export("edges", "list.tsv.gz", &ExportOptions::default());
    assert_eq!(fs::read(path("list.tsv.gz")).unwrap()[..2], [0x1f, 0x8b]);
    for list in ["list.csv", "old.csv", "list.tsv.gz"] {
        assert_eq!(
            import("edges", path(list), &ImportOptions::default()).unwrap().dataset.graph.indices(),
            [0, 1, 2]
        );
    }

    export("npz", "a.npz", &ExportOptions::default());
    let mut npz = graphmill_data::npz::Npz::open(path("a.npz")).unwrap();
    let expected = [
        ("adj_data", "<f4", vec![3]),
        ("adj_indices", "<i4", vec![3]),
        ("adj_indptr", "<i4", vec![5]),
        ("adj_shape", "<i8", vec![2]),
        ("attr_data", "<f4", vec![3]),
        ("attr_indices", "<i4", vec![3]),
        ("attr_indptr", "<i4", vec![5]),
        ("attr_shape", "<i8", vec![2]),
        ("labels", "<i4", vec![4]),
        ("class_names", "<U1", vec![2]),
        ("train_mask", "|b1", vec![4]),
    ];
    assert_eq!(npz.names(), expected.iter().map(|(name, ..)| *name).collect::<Vec<_>>());
    for (name, dtype, shape) in expected {
        let header = npz.header(name).unwrap();
        assert_eq!((header.dtype.to_string().as_str(), header.shape), (dtype, shape), "{name}");
    }
    // Rows by source: 0 -> 1, 1 -> 2, 2 -> 2.
    assert_eq!(npz.read_as::<u32>("adj_indptr").unwrap().data, [0, 1, 2, 3, 3]);
    assert_eq!(npz.read_as::<u32>("adj_indices").unwrap().data, [1, 2, 2]);
    assert_eq!(npz.read_as::<u32>("attr_indptr").unwrap().data, [0, 1, 2, 2, 3]);
    assert_eq!(npz.read_as::<f32>("attr_data").unwrap().data, [1., 2., 3.]);
}

#[test]
fn weights_of_a_csv_list_have_a_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("list.csv");
    let weighted = build_weighted(4, &[0, 1], &[1, 3], &[0.5, 2.0], EdgeOptions::DIRECTED).unwrap();
    let dataset = Dataset { graph: weighted, ..tiny() };
    let lost = export("edges", &dataset, &path, &ExportOptions::default()).unwrap();
    assert_eq!(lost.len(), 1, "the last node has an edge: {lost:?}");
    assert_eq!(text(&path), "source,target,weight\n0,1,0.5\n1,3,2.0\n");
    let again = import("edges", &path, &ImportOptions::default()).unwrap().dataset;
    assert_eq!(again.graph.edge_weight(), dataset.graph.edge_weight());
}

#[test]
fn keys_that_an_edge_list_leaves_out_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let keys = Keys::texts((0..tiny().num_nodes()).map(|v| format!("acc-{v}")));
    let dataset = Dataset { keys: Some(keys), ..tiny() };
    for name in ["d", "list.txt"] {
        let lost = export("edges", &dataset, dir.path().join(name), &ExportOptions::default()).unwrap();
        let message = "the keys of the nodes, which are numbered here; the format csv keeps them";
        assert!(lost.iter().any(|what| what == message), "{lost:?}");
    }
}

#[test]
fn only_exports_are_replaced_and_only_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let plain = ExportOptions::default();
    let force = ExportOptions { replace: true, ..Default::default() };
    let fails = |format: &str, name: &str, options: &ExportOptions, why: &str| {
        let error = export(format, &tiny(), path(name), options).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains(name), "{error}");
    };
    for (format, name) in [("npz", "a.npz"), ("edges", "a.txt"), ("edges", "d")] {
        export(format, &tiny(), path(name), &plain).unwrap();
        fails(format, name, &plain, "replace it with --force");
        export(format, &tiny(), path(name), &force).unwrap();
    }
    let packed = ExportOptions { compress: true, ..force.clone() };
    export("edges", &tiny(), path("d"), &packed).unwrap();
    assert!(path("d/edges.txt.gz").exists() && !path("d/edges.txt").exists());
    fails("npz", "d", &force, "this is a directory");
    fails("edges", "a.npz", &force, "this is a file");
    fs::write(path("d/thesis.tex"), "mine").unwrap();
    fails("edges", "d", &force, "'thesis.tex'");
    fs::create_dir(path("empty")).unwrap();
    export("edges", &tiny(), path("empty"), &plain).unwrap();
    fails("npz", "absent/a.npz", &plain, "parent directory does not exist");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4, "nothing temporary is left");

    let once = ExportOptions { undirected_once: true, ..Default::default() };
    let error = export("npz", &tiny(), path("b.npz"), &once).unwrap_err().to_string();
    assert!(error.contains("'undirected-once' belongs to the format 'edges'"), "{error}");
    let error = export("gml", &tiny(), path("b"), &plain).unwrap_err().to_string();
    assert!(error.contains("unknown format 'gml'; known: npz, edges"), "{error}");
    let broken = Dataset { labels: Labels::default(), ..tiny() };
    assert!(
        export("edges", &broken, path("b"), &plain).unwrap_err().to_string().contains("0 labels for 4 nodes")
    );
    assert!(!path("b").exists() && !path("b.npz").exists());
}

#[test]
fn chunk_boundaries_do_not_matter() {
    // More edges than a chunk, hubs among them, for any number of threads.
    let edges = 700_000u32;
    let src: Vec<NodeId> = (0..edges).map(|e| e.wrapping_mul(2_654_435_761) % 5000).collect();
    let dst: Vec<NodeId> = (0..edges).map(|e| if e % 2 == 0 { 7 } else { e % 4999 }).collect();
    let options = EdgeOptions { keep_duplicates: true, ..EdgeOptions::DIRECTED };
    let graph = build(5000, &src, &dst, options).unwrap();
    let labels = Labels::Single { class: vec![-1; 5000].into(), classes: 0 };
    let dataset = Dataset { graph, labels, ..Dataset::default() };
    let dir = tempfile::tempdir().unwrap();
    let mut sizes = Vec::new();
    for threads in [1, 3] {
        let path = dir.path().join(format!("{threads}"));
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let options = ExportOptions { compress: true, ..Default::default() };
        pool.install(|| export("edges", &dataset, &path, &options)).unwrap();
        sizes.push(fs::read(path.join("edges.txt.gz")).unwrap());
        let again = import("edges", &path, &duplicates()).unwrap().dataset;
        assert!(again.graph.indices() == dataset.graph.indices());
    }
    assert!(sizes[0] == sizes[1]);
    let path = dir.path().join("a.npz");
    export("npz", &dataset, &path, &ExportOptions::default()).unwrap();
    let again = import("npz", &path, &duplicates()).unwrap().dataset;
    assert!(again.graph.indices() == dataset.graph.indices());
}

/// Without the statistics a run would normalize the features of a re-imported export a second time.
#[test]
fn normalized_features_round_trip_with_their_statistics() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let standard = |mean: Option<Vec<f64>>| Normalization::Standard { mean, deviation: vec![0.1, 4.0] };
    let scales = [Normalization::Rows, standard(None), standard(Some(vec![-1.0 / 3.0, 7.0]))];
    for (i, how) in scales.into_iter().enumerate() {
        let dataset = Dataset { normalization: Some(how.clone()), ..tiny() };
        for (format, name) in [("npz", format!("{i}.npz")), ("edges", format!("{i}"))] {
            let lost = export(format, &dataset, path(&name), &ExportOptions::default()).unwrap();
            assert!(lost[0].contains("exported as they are stored"), "{lost:?}");
            assert!(lost[0].contains(&format!("--normalize {}", how.name())), "{lost:?}");
            let again = import(format, path(&name), &ImportOptions::default()).unwrap();
            assert_eq!(again.dataset.normalization.as_ref(), Some(&how), "{format}");
            assert_eq!(parts(&again.dataset), parts(&dataset));
            assert!(again.report.ignored_parts.is_empty(), "{:?}", again.report.ignored_parts);
            let twice = ImportOptions { normalize: Normalize::Standard, ..ImportOptions::default() };
            let message = import(format, path(&name), &twice).unwrap_err().to_string();
            assert!(message.contains("are normalized already"), "{message}");
        }
    }
    // Features other than those of the directory have a scale of their own.
    let raw = dir.path().join("raw.npy");
    graphmill_data::npy::write(&raw, &[1f32; 8], &[4, 2]).unwrap();
    let options = ImportOptions { features: Some(raw), ..ImportOptions::default() };
    let again = import("edges", path("2"), &options).unwrap();
    assert_eq!(again.dataset.normalization, None);
    assert_eq!(again.report.ignored_parts, ["feature_deviation.npy", "feature_mean.npy", "features.npy"]);
}

#[test]
fn unread_files_of_a_directory_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    export("edges", &tiny(), path("d"), &ExportOptions::default()).unwrap();
    for name in ["junk.csv", "extra.txt", "edge_weight.npy", ".hidden"] {
        fs::write(path("d").join(name), "0\n").unwrap();
    }
    fs::create_dir(path("d/sub")).unwrap();
    let report = import("edges", path("d"), &ImportOptions::default()).unwrap().report;
    assert_eq!(report.ignored_parts, ["edge_weight.npy", "extra.txt", "junk.csv", "sub"]);
    assert!(report.to_string().contains("parts not read: edge_weight.npy, extra.txt, junk.csv, sub"));
    // A file named by an option is read, regardless of its format.
    fs::write(path("d/mine.csv"), "0\n1\n1\n0\n").unwrap();
    let labels = Some(path("d/../d/mine.csv"));
    let options = ImportOptions { labels, ..ImportOptions::default() };
    let report = import("edges", path("d"), &options).unwrap().report;
    assert_eq!(report.ignored_parts, ["edge_weight.npy", "extra.txt", "junk.csv", "labels.npy", "sub"]);
}
