use std::io::Write;

use graphmill_core::{Labels, features::FeatureData};

use super::*;
use crate::{Dataset, dataset::import::testing::import, npy};

fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

fn run(dir: &Path, options: &ImportOptions) -> Result<Dataset, String> {
    import("edges", dir, options).map_err(|e| e.to_string())
}

fn edges(dataset: &Dataset) -> Vec<(u32, u32)> {
    let graph = &dataset.graph;
    (0..graph.num_nodes() as u32).flat_map(|v| graph.in_neighbors(v).iter().map(move |&u| (u, v))).collect()
}

const WHOLE: &[(&str, &str)] = &[
    ("edge_list.csv", "from,to,weight\n0.0,2.0,0.5\n2,1,0.5\n"),
    ("features.csv", "1,2\n3,4\n5,6\n"),
    ("labels.csv", "1.0,0.0\n0.0,0.0\n1.0,1.0\n"),
    ("split.json", r#"{"train": [2], "val": [0], "test": [1]}"#),
    ("train.txt", "Node_idx\n0\n"), // split.json takes precedence
    ("nodes.csv", "name\na\nb\nc\n"),
];

#[test]
fn directories_are_read_by_convention() {
    let dir = directory(WHOLE);
    let dataset = run(dir.path(), &ImportOptions::default()).unwrap();
    assert_eq!(edges(&dataset), [(2, 1), (0, 2)]);
    assert_eq!(dataset.graph.edge_weight(), Some(&[0.5, 0.5][..]), "a column of that name");
    let FeatureData::F32(data) = &dataset.features.data else { panic!() };
    assert_eq!((dataset.features.dim, &data[..]), (2, &[1., 2., 3., 4., 5., 6.][..]));
    let Labels::Multi { member, classes: 2 } = &dataset.labels else { panic!() };
    assert_eq!(member[..], [1, 0, 0, 0, 1, 1]);
    assert_eq!((dataset.split.train[0], dataset.split.valid[0], dataset.split.test[0]), (2, 0, 1));
}

#[test]
fn part_files_arrays_and_several_splits() {
    let dir = directory(&[("edges.txt", "# from to\n0 1\n1\t2\n"), ("val.txt", "1\n")]);
    let path = |name: &str| dir.path().join(name);
    npy::write(path("features.npy"), &[1f32, 2., 3.], &[3, 1]).unwrap();
    npy::write(path("labels.npy"), &[0i64, 1, -1], &[3]).unwrap();
    npy::write(path("train.npy"), &[0i32], &[1]).unwrap();
    let dataset = run(dir.path(), &ImportOptions::default()).unwrap();
    assert_eq!((edges(&dataset), dataset.labels.classes()), (vec![(0, 1), (1, 2)], 2));
    assert_eq!((dataset.split.train[..].to_vec(), dataset.split.valid[..].to_vec()), (vec![0], vec![1]));
    std::fs::write(path("splits.json"), r#"[{"train": [0]}, {"train": [1], "test": [0]}]"#).unwrap();
    let options = ImportOptions { split: Some("given:1".parse().unwrap()), ..Default::default() };
    assert_eq!(run(dir.path(), &options).unwrap().split.train[..], [1]);
    for (shape, data) in [(&[2, 2], [0u64, 1, 2, 1]), (&[2, 2], [0, 1, 2, 1])] {
        let dir = directory(&[]);
        npy::write(dir.path().join("edges.npy"), &data, shape).unwrap();
        assert_eq!(edges(&run(dir.path(), &ImportOptions::default()).unwrap()), [(0, 1), (2, 1)]);
    }
    let dir = directory(&[]);
    npy::write(dir.path().join("edges.npy"), &[0i64, 1, 2, 1, 1, 1], &[2, 3]).unwrap();
    assert_eq!(edges(&run(dir.path(), &ImportOptions::default()).unwrap()), [(0, 1), (1, 1), (2, 1)]);
}

#[test]
fn a_file_with_options() {
    let dir = directory(&[("e.tsv", "0\t1\n"), ("f", "1\n2\n"), ("l", "0\n1\n"), ("s", "1\n")]);
    let path = |name: &str| Some(dir.path().join(name));
    let options =
        ImportOptions { features: path("f"), labels: path("l"), train: path("s"), ..Default::default() };
    let dataset = run(&dir.path().join("e.tsv"), &options).unwrap();
    assert_eq!((dataset.name.as_str(), dataset.split.train[0], dataset.features.dim), ("e", 1, 1));
    let bare = run(&dir.path().join("e.tsv"), &ImportOptions { num_nodes: Some(5), ..Default::default() });
    let bare = bare.unwrap();
    assert_eq!((bare.num_nodes(), bare.labels.classes(), bare.features.dim), (5, 0, 0));
}

#[test]
fn gzip_and_compact_ids() {
    let dir = directory(&[("labels.txt", "0\n1\n2\n"), ("train.txt", "70000000000\n")]);
    let file = std::fs::File::create(dir.path().join("edges.txt.gz")).unwrap();
    let mut gz = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    gz.write_all(b"# sparse\n70000000000 1\n1 12\n").unwrap();
    gz.finish().unwrap();
    let options = ImportOptions { compact_ids: true, ..Default::default() };
    let dataset = run(dir.path(), &options).unwrap();
    assert_eq!((edges(&dataset), dataset.split.train[0]), (vec![(2, 0), (0, 1)], 2));
    let error = run(dir.path(), &ImportOptions::default()).unwrap_err();
    assert!(error.contains("line 2: '70000000000' is not") && error.contains("compact-ids"), "{error}");
    let last = directory(&[("edges.txt", "18446744073709551615 1\n")]);
    assert_eq!(edges(&run(last.path(), &options).unwrap()), [(1, 0)], "every 64-bit id is one");
    std::fs::write(dir.path().join("train.txt"), "5\n").unwrap();
    assert!(run(dir.path(), &options).unwrap_err().contains("no edge names the node 5"));
    std::fs::write(dir.path().join("labels.txt"), "0\n1\n").unwrap();
    assert!(run(dir.path(), &options).unwrap_err().contains("name 3 different ids, but there are 2"));
}

#[test]
fn weights_follow_their_edges() {
    let weights = |dir: &Path, options: &ImportOptions| {
        let dataset = run(dir, options).unwrap();
        let weights = dataset.graph.edge_weight().map(<[f32]>::to_vec);
        edges(&dataset).into_iter().zip(weights.unwrap_or_default()).collect::<Vec<_>>()
    };
    let third = ImportOptions { weights: "3".parse().unwrap(), ..Default::default() };
    // Duplicates are summed, also over both directions of an undirected edge.
    let text = directory(&[("edges.txt", "0 1 0.5 x\n2 1 0\n0\t1 0.25\n1 0 4\n2 2 1.5\n")]);
    let expected = [((1, 0), 4.0), ((0, 1), 0.75), ((2, 1), 0.0), ((2, 2), 1.5)];
    assert_eq!(weights(text.path(), &third), expected);
    let both = ImportOptions { undirected: true, ..third.clone() };
    let expected = [((1, 0), 4.75), ((0, 1), 4.75), ((2, 1), 0.0), ((1, 2), 0.0), ((2, 2), 1.5)];
    assert_eq!(weights(text.path(), &both), expected);
    assert_eq!(weights(text.path(), &ImportOptions::default()), []);
    let kept = ImportOptions { keep_duplicates: true, ..third.clone() };
    assert_eq!(weights(text.path(), &kept)[1..3], [((0, 1), 0.25), ((0, 1), 0.5)]);
    // Renumbered ids.
    let sparse = directory(&[("edges.txt", "90 7 1\n7 70000000000 2\n")]);
    let compact = ImportOptions { compact_ids: true, ..third.clone() };
    assert_eq!(weights(sparse.path(), &compact), [((1, 0), 1.0), ((0, 2), 2.0)]);
    let first = ImportOptions { first_id: 1, ..third.clone() };
    assert_eq!(weights(directory(&[("edges.txt", "1 2 3\n")]).path(), &first), [((0, 1), 3.0)]);
    // Largest component.
    let parts = directory(&[("edges.txt", "4 3 7\n0 1 2\n2 1 3\n")]);
    let largest = ImportOptions { largest_component: true, ..third };
    assert_eq!(weights(parts.path(), &largest), [((0, 1), 2.0), ((2, 1), 3.0)]);
    // Arrays.
    let arrays = directory(&[]);
    npy::write(arrays.path().join("edges.npy"), &[0u32, 1, 2, 1], &[2, 2]).unwrap();
    npy::write(arrays.path().join("edge_weight.npy"), &[0.5f64, 3.0], &[2]).unwrap();
    let expected = [((0, 1), 0.5), ((2, 1), 3.0)];
    assert_eq!(weights(arrays.path(), &ImportOptions::default()), expected);
    let none = ImportOptions { weights: "none".parse().unwrap(), ..Default::default() };
    assert_eq!(weights(arrays.path(), &none), []);
    npy::write(arrays.path().join("edge_weight.npy"), &[0.5f32, -3.0], &[2]).unwrap();
    let error = run(arrays.path(), &ImportOptions::default()).unwrap_err();
    assert!(error.contains("edge_weight.npy: element 1: the edge weighs -3"), "{error}");
    npy::write(arrays.path().join("edge_weight.npy"), &[0.5f32], &[1]).unwrap();
    assert!(run(arrays.path(), &ImportOptions::default()).unwrap_err().contains("shape [2] expected"));
}

#[test]
fn errors_contain_the_file_and_the_line() {
    let fails = |name: &str, text: &str, why: &str| {
        let dir = directory(WHOLE);
        std::fs::write(dir.path().join(name), text).unwrap();
        let error = run(dir.path(), &ImportOptions::default()).unwrap_err();
        assert!(error.contains(why) && error.contains(name), "{error}");
    };
    fails("edge_list.csv", "0,1\n0,3\n", "line 2: the edge joins nodes 0 and 3");
    fails("edge_list.csv", "0,1\n0,-1\n", "line 2: '-1' is not a node id");
    fails("edge_list.csv", "0,1\n0\n", "line 2: two node ids expected");
    fails("edge_list.csv", "a,b,weight\n0,1,1\n1,0\n", "line 3: the line has no column 3");
    for bad in ["x", "-1", "nan", "inf", "1e39", "", "-1e-9"] {
        let why = format!("line 3: the edge weighs '{bad}'");
        fails("edge_list.csv", &format!("a,b,weight\n0,1,1\n1,0,{bad}\n"), &why);
    }
    fails("edge_list.csv", "0,1\nx,1\n", "line 2: 'x' is not");
    fails("edge_list.csv", "0,1\n0.5,1\n", "line 2: '0.5' is not");
    fails("features.csv", "1,2\n3\n5,6\n", "line 2: 1 values");
    fails("features.csv", "1,2\n3,nan\n5,6\n", "line 2: column 2: 'nan'");
    fails("labels.csv", "1\n0\n", "2 nodes, but");
    fails("labels.csv", "1\n0.5\n1\n", "line 2: column 1: '0.5' is not a class");
    fails("labels.csv", "1\n-2\n1\n", "node 1 is -2");
    fails("labels.csv", "1,0\n0,2\n1,0\n", "entry 1 of node 1");
    fails("split.json", r#"{"train": [3]}"#, "split 0, 'train'");
    fails("split.json", r#"{"train": []}"#, "empty");
    fails("split.json", r#"{"train": [0], "trial": [1]}"#, "line 1 column");
    fails("split.json", r#"{"train": [0]"#, "line 1 column");
    fails("edges.csv", "0,1\n", "both 'edge_list.csv' and 'edges.csv'");
    fails("edge_list.csv", "from,to\n", "holds no edges");
    let lone = directory(&[("edges.txt", "0 1\n5 4000000000\n")]);
    let error = run(lone.path(), &ImportOptions::default()).unwrap_err();
    assert!(error.contains("largest id is 4000000000, but there are only 2 edges"), "{error}");
    assert!(run(directory(&[]).path(), &ImportOptions::default()).unwrap_err().contains("no edges.*"));
    assert!(run(Path::new("absent.csv"), &ImportOptions::default()).unwrap_err().contains("cannot open"));
}

#[test]
fn snap_headers_are_checked() {
    let list = |header: &str| format!("# x\n# Nodes: {header}\n# FromNodeId\tToNodeId\n0\t1\n3\t1\n");
    let run_list = |header: &str, options: &ImportOptions| {
        let dir = directory(&[("a.txt", &list(header))]);
        run(&dir.path().join("a.txt"), options)
    };
    let options = ImportOptions::default();
    assert_eq!(run_list("4 Edges: 2", &options).unwrap().num_nodes(), 4);
    assert_eq!(run_list("6 Edges: 2", &options).unwrap().num_nodes(), 6);
    let error = run_list("3 Edges: 2", &options).unwrap_err();
    assert!(error.contains("a.txt: ids: the largest id is 3") && error.contains("compact-ids"), "{error}");
    let error = run_list("4 Edges: 3", &options).unwrap_err();
    assert!(error.contains("a.txt: header: 3 edges, but there are 2 lines"), "{error}");
    let compact = ImportOptions { compact_ids: true, ..Default::default() };
    assert_eq!(run_list("3 Edges: 2", &compact).unwrap().num_nodes(), 3);
    assert!(run_list("4 Edges: 2", &compact).unwrap_err().contains("3 different ids, but there are 4 nodes"));
    let plain = ImportOptions { flavour: Flavour::Plain, ..Default::default() };
    assert_eq!(run_list("9 Edges: 9", &plain).unwrap().num_nodes(), 4);
}

const BLOG: &[(&str, &str)] = &[
    ("nodes.csv", "1\n2\n3\n4\n"),
    ("edges.csv", "1,2\n3,1\n"),
    ("group-edges.csv", "2,1\n2,3\n4,3\n"),
    ("train.txt", "2\n"),
];

#[test]
fn ids_from_1_with_sets_of_classes_as_pairs() {
    let one = ImportOptions { first_id: 1, ..Default::default() };
    let dataset = run(directory(BLOG).path(), &one).unwrap();
    assert_eq!((dataset.num_nodes(), edges(&dataset)), (4, vec![(2, 0), (0, 1)]));
    let Labels::Multi { member, classes: 3 } = &dataset.labels else { panic!() };
    assert_eq!(member[..], [0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 1]);
    assert_eq!(dataset.split.train[..], [1]);
    // The same through options, with sparse ids and sparse classes.
    let dir = directory(&[("e", "10,20\n30,10\n"), ("p", "node,group\n20,7\n20,9\n"), ("n", "30\n10\n20\n")]);
    let path = |name: &str| Some(dir.path().join(name));
    let compact =
        ImportOptions { compact_ids: true, label_pairs: path("p"), nodes: path("n"), ..Default::default() };
    let dataset = run(&dir.path().join("e"), &compact).unwrap();
    let Labels::Multi { member, classes: 2 } = &dataset.labels else { panic!() };
    assert_eq!((edges(&dataset), &member[..]), (vec![(2, 0), (0, 1)], &[0, 0, 1, 1, 0, 0][..]));
}

#[test]
fn faults_of_first_ids_nodes_and_pairs() {
    let fails = |change: (&str, &str), options: ImportOptions, why: &str| {
        let dir = directory(BLOG);
        std::fs::write(dir.path().join(change.0), change.1).unwrap();
        let error = run(dir.path(), &options).unwrap_err();
        assert!(error.contains(why) && error.contains(change.0), "{error}");
    };
    let from = |first_id: u64| ImportOptions { first_id, ..Default::default() };
    fails(
        ("nodes.csv", "1\n2\n3\n4\n"),
        from(0),
        "4 nodes from 1 to 4, but 0 to 3 is expected; pass first-id 1",
    );
    fails(("nodes.csv", "1\n2\n9\n"), from(1), "pass compact-ids");
    fails(("nodes.csv", "1\n1\n"), from(1), "node 1 occurs twice");
    fails(("edges.csv", "1,2\n0,1\n"), from(1), "entry 1 is 0, but ids begin at 1");
    fails(("edges.csv", "1,2\n5,1\n"), from(1), "line 2: the edge joins nodes 5 and 1");
    fails(("group-edges.csv", "1\n"), from(1), "1 columns found");
    fails(("group-edges.csv", "1,x\n"), from(1), "line 1: column 2: 'x'");
    fails(("group-edges.csv", "5,1\n"), from(1), "row 0 names node 5");
    fails(("group-edges.csv", "2,0\n"), from(1), "entry 1 is 0");
    fails(("group-edges.csv", "1,4000000000\n"), from(1), "only 1 are in use");
    fails(("train.txt", "0\n"), from(1), "entry 0 is 0, but ids begin at 1");
    fails(("train.txt", "5\n"), from(1), "node 4");
    let both = ImportOptions { compact_ids: true, ..from(1) };
    assert!(run(directory(BLOG).path(), &both).unwrap_err().contains("leave out first-id"));
    let dir = directory(&[("e", "0,1\n"), ("n", "a\nb\n")]);
    let asked = ImportOptions { nodes: Some(dir.path().join("n")), ..Default::default() };
    assert!(run(&dir.path().join("e"), &asked).unwrap_err().contains("row 0 does not begin with a node id"));
}

#[test]
fn meta_json_supplements_the_tables() {
    let with = |meta: &str| {
        let dir = directory(&[("edges.txt", "0 1\n"), ("labels.txt", "0\n1\n0\n"), ("meta.json", meta)]);
        run(dir.path(), &ImportOptions::default())
    };
    let dataset =
        with(r#"{"name": "x", "nodes": 3, "edges": 1, "classes": 5, "metric": "roc-auc"}"#).unwrap();
    assert_eq!((dataset.name.as_str(), dataset.labels.classes()), ("x", 5));
    assert_eq!(dataset.metric.as_deref(), Some("roc-auc"));
    assert!(with("{}").is_ok());
    for (meta, why) in [
        (r#"{"nodes": 4}"#, "rows: 4 nodes, but"),
        (r#"{"edges": 2}"#, "edges: 2 edges, but"),
        (r#"{"classes": 1}"#, "classes: 1 classes, but the labels have 2"),
        (r#"{"colour": 1}"#, "line 1 column"),
        (r#"{"nodes": -1}"#, "line 1 column"),
    ] {
        let error = with(meta).unwrap_err();
        assert!(error.contains("meta.json") && error.contains(why), "{error}");
    }
}

#[test]
fn damage_is_an_error_or_harmless() {
    let dir = directory(WHOLE);
    for (name, text) in WHOLE {
        let path = dir.path().join(name);
        for length in 0..text.len() {
            std::fs::write(&path, &text[..length]).unwrap();
            let _ = run(dir.path(), &ImportOptions::default()); // a shorter table may be a table
        }
        for bit in 0..text.len() * 8 {
            let mut bad = text.as_bytes().to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, &bad).unwrap();
            let _ = run(dir.path(), &ImportOptions::default()); // no panic
        }
        std::fs::write(&path, text).unwrap();
    }
    assert!(run(dir.path(), &ImportOptions::default()).is_ok());
}
