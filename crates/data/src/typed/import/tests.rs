//! Importers on small sources made by the tests: contents, keys, splits and error messages.

use std::{fs, path::Path};

use graphmill_core::Labels;

use super::*;
use crate::{
    npy,
    npz::testing::{archive, member},
    typed::{EdgeData, Negatives, Seeds, TableData, Targets, Values, Verify, open},
};

/// Directory of these text files.
fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

fn run(format: &str, dir: &tempfile::TempDir) -> TypedImported {
    import(format, dir.path(), &TypedOptions::default()).unwrap()
}

fn fault(format: &str, path: &Path) -> String {
    import(format, path, &TypedOptions::default()).unwrap_err().to_string()
}

/// Fault after one file of a good source is replaced.
fn fault_with(format: &str, files: &[(&str, &str)], name: &str, text: &str) -> String {
    let dir = directory(files);
    fs::write(dir.path().join(name), text).unwrap();
    fault(format, dir.path())
}

fn keys(data: &TypedDataset, node_type: usize) -> Vec<String> {
    let nodes = &data.nodes[node_type];
    (0..nodes.count).map(|v| nodes.keys.as_ref().unwrap().get(v).to_string()).collect()
}

/// Edges as pairs of a source and a destination, by destination.
fn pairs(edges: &EdgeData) -> Vec<(u32, u32)> {
    let rows = edges.indptr.len() as u32 - 1;
    (0..rows).flat_map(|v| edges.in_neighbors(v).iter().map(move |&u| (u, v))).collect()
}

fn parts(data: &TypedDataset, task: usize) -> [Vec<u32>; 3] {
    data.tasks[task].split.parts().map(|(_, rows)| rows.to_vec())
}

const HGB: &[(&str, &str)] = &[
    ("node.dat", "0\tann\t0\t0,1.5\n1\tbob, \"b\"\t0\t2,0.0\n2\t\t1\n3\t\t1\n"),
    ("link.dat", "0\t2\t0\t1.0\n1\t2\t0\t1\n2\t0\t1\t1\n2\t1\t1\t1\n0\t2\t0\t1\n"),
    ("label.dat", "0\tann\t0\t1\n"),
    ("label.dat.test", "1\tbob\t0\t0\n"),
    (
        "info.dat",
        r#"{"node.dat": {"node type": {"0": "author", "1": "paper"}},
        "link.dat": {"link type": {"0": {"start": "0",
        "end": "1", "meaning": "writes"}, "1": {"start": 1, "end": 0, "meaning": "by"}}}, "x": NaN,
        "label.dat": {"node type": {"0": {"0": "DB", "1": "AI"}}}}"#,
    ),
];

#[test]
fn hgb_names_types_and_keeps_names_as_keys() {
    let TypedImported { dataset: data, report } = run("hgb", &directory(HGB));
    assert_eq!(
        (keys(&data, 0), keys(&data, 1)),
        (vec!["ann".into(), "bob, \"b\"".into()], vec!["2".into(), "3".into()])
    );
    assert_eq!(data.edges[0].edge_type.to_string(), "author:writes:paper");
    assert_eq!((pairs(&data.edges[0]), data.edges[0].reverse.as_deref()), (vec![(0, 0), (1, 0)], Some("by")));
    assert_eq!(report.edges["author:writes:paper"].duplicates_merged, 1);
    assert_eq!(data.tasks[0].names, ["DB", "AI"]);
    assert_eq!(parts(&data, 0), [vec![0], vec![], vec![1]]);
    let mut row = [0.0; 2];
    data.nodes[0].features.as_ref().unwrap().copy_row(1, &mut row);
    assert_eq!(row, [2.0, 0.0]);
    // The whole dataset is written and opened again.
    let (dir, out) = (directory(HGB), tempfile::tempdir().unwrap());
    let target = out.path().join("hgb");
    import_to("hgb", dir.path(), &target, &TypedOptions::default(), Work::default()).unwrap();
    let stored = open(&target, Verify::All).unwrap();
    assert_eq!(keys(&stored, 0), keys(&data, 0));
    let again = import_to("hgb", dir.path(), &target, &TypedOptions::default(), Work::default());
    assert!(again.is_err(), "the directory is not empty");
}

#[test]
fn faults_of_hgb_name_every_line() {
    let error = fault_with("hgb", HGB, "link.dat", "0\t9\t0\t1\n0\t2\tx\t1\n0\t2\t0\t-1\n1\t0\t0\t1\n");
    for part in [
        "link.dat: line 1: destination 9 is not in node.dat",
        "line 2: link type 'x'",
        "line 3: the weight -1",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let error = fault_with("hgb", HGB, "link.dat", "0\t2\t0\t1\n2\t0\t0\t1\n");
    assert!(
        error.contains("line 2: link type 0 runs from author to paper, but this one from paper to author"),
        "{error}"
    );
    let error = fault_with("hgb", HGB, "node.dat", "0\ta\t0\t1,2\n0\tb\t0\t1\n1\tc\t0\t1\n2\tc\t1\n");
    assert!(
        error.contains("line 2: node id 0 occurs twice")
            && error.contains("line 3: 1 features, but the first row has 2"),
        "{error}"
    );
    let error = fault_with("hgb", HGB, "label.dat", "0\tann\t1\t1\n2\t\t1\t0\n2\t\t1\t0\n");
    assert!(error.contains("not of type 1") && error.contains("line 3: node 2 has two lines"), "{error}");
    let error = fault_with("hgb", HGB, "label.dat.test", "0\tann\t0\t1\n");
    assert!(error.contains("node 0 of type 'author' is also in label.dat"), "{error}");
    assert!(fault("hgb", Path::new("does-not-exist")).contains("does-not-exist: cannot open"));
}

#[test]
fn hne_links_have_given_negatives() {
    let dir = directory(&[
        ("node.dat", "0\tann\t0\n1\tbob\t0\n2\tcat\t1\n"),
        ("link.dat", "0\t1\t0\t5\n1\t1\t0\t1\n0\t2\t1\t2\n"),
        ("link.dat.test", "1\t0\t1\n0\t0\t0\n"),
        (
            "info.dat",
            "TYPE\tMEANING\n0\tA\n1\tB\nLINK\tSTART\tEND\tMEANING\n\
             0\t0\t0\tA-and-A\nTargeting: Link Type (0,0,0)\n",
        ),
    ]);
    let TypedImported { dataset: data, report } = run("hne", &dir);
    assert_eq!(data.edges[0].edge_type.to_string(), "A:A-and-A:A");
    assert_eq!(data.edges[0].weights.as_deref(), Some(&[5.0, 1.0][..]));
    assert_eq!(report.edges["A:A-and-A:A"].self_loops_kept, 1);
    let Some(Seeds::Pairs(seeds)) = &data.tasks[0].seeds else { panic!() };
    assert_eq!((&seeds[..], parts(&data, 0)), (&[0, 1, 1, 1, 1, 0][..], [vec![0, 1], vec![], vec![2]]));
    assert!(matches!(&data.tasks[0].negatives[2], Some(Negatives::Pairs(pairs)) if pairs[..] == [0, 0]));
}

const MAG: &[(&str, &str)] = &[
    ("raw/num-node-dict.csv", "a,b\n2,1\n"),
    ("raw/triplet-type-list.csv", "a,r,b\n"),
    ("raw/relations/a___r___b/edge.csv", "0,0\n1,0\n"),
    ("raw/relations/a___r___b/num-edge-list.csv", "2\n"),
    ("raw/relations/a___r___b/edge-feat.csv", "1,2\n3,4\n"),
    ("raw/node-feat/a/node-feat.csv", "1.5,0\n0,-2\n"),
    ("raw/node_year/a/node_year.csv", "1999\n2001\n"),
    ("raw/node-label/a/node-label.csv", "1\nnan\n"),
    ("raw/nodetype-has-label.csv", "a,b\nTrue,False\n"),
    ("split/time/a/train.csv", "0\n"),
    ("mapping/a.csv", "idx,name\n1,y\n0,x\n"),
    ("mapping/label2x.csv", "label,name\n0,p\n1,q\n"),
];

#[test]
fn ogb_hetero_reads_columns_of_types() {
    let TypedImported { dataset: data, report } = run("ogb-hetero", &directory(MAG));
    assert_eq!(keys(&data, 0), ["x", "y"]);
    assert_eq!(data.nodes[0].time.as_deref(), Some(&[1999, 2001][..]));
    assert_eq!(data.edges[0].features.as_ref().map(|table| table.width), Some(2));
    assert_eq!(
        (&data.tasks[0].names[..], parts(&data, 0)),
        (&["p".into(), "q".into()][..], [vec![0], vec![], vec![]])
    );
    assert_eq!(report.other["nodes of 'a' without a label in the task 'a'"], 1);
    let error = fault_with("ogb-hetero", MAG, "raw/relations/a___r___b/edge.csv", "0,1\n5,0\n0 0\n");
    for part in ["line 1: destination 1, but there are 1 nodes", "line 2: source 5", "line 3: two ids"] {
        assert!(error.contains(part), "{error}");
    }
    let error = fault_with("ogb-hetero", MAG, "raw/relations/a___r___b/num-edge-list.csv", "3\n");
    assert!(error.contains("2 edges, but num-edge-list says 3"), "{error}");
    let error = fault_with("ogb-hetero", MAG, "split/time/a/train.csv", "1\n1\n");
    assert!(error.contains("node 1 occurs twice"), "{error}");
}

#[test]
fn ogb_links_keep_negatives_of_each_positive() {
    let dir = directory(&[
        ("ogbl_x/raw/edge.csv", "0,1\n1,2\n"),
        ("ogbl_x/raw/num-node-list.csv", "3\n"),
        ("ogbl_x/raw/edge_year.csv", "2001\n2000\n"),
        ("ogbl_x/split/time/x", ""),
    ]);
    let one = member("source_node", &[1], &[2i32]);
    let parts_of_test =
        [one, member("target_node", &[1], &[0i32]), member("target_node_neg", &[1, 2], &[1i32, 2])];
    fs::write(dir.path().join("ogbl_x/split/time/test.npz"), archive(&parts_of_test, true)).unwrap();
    let data = import("ogb-links", dir.path().join("ogbl_x"), &TypedOptions::default()).unwrap().dataset;
    assert_eq!((&*data.name, parts(&data, 0)), ("ogbl-x", [vec![0, 1], vec![], vec![2]]));
    let negatives = &data.tasks[0].negatives[2];
    assert!(
        matches!(negatives, Some(Negatives::Destinations { each: 2, nodes }) if nodes[..] == [1, 2]),
        "{negatives:?}"
    );
    let both = TypedOptions { undirected: true, ..Default::default() };
    let data = import("ogb-links", dir.path().join("ogbl_x"), &both).unwrap().dataset;
    assert_eq!((data.num_edges(), data.edges[0].reverse.as_deref()), (4, Some("link")));
    // directories of OGB's archives, whose loader makes the edges of ppa undirected
    for (archive, metric, edges) in [("ppassoc", "hits@100", 4), ("citation-v2", "mrr", 2)] {
        fs::rename(dir.path().join("ogbl_x"), dir.path().join(archive)).unwrap();
        let data = import("ogb-links", dir.path().join(archive), &TypedOptions::default()).unwrap().dataset;
        assert_eq!((data.tasks[0].metric.as_deref(), data.num_edges()), (Some(metric), edges));
        fs::rename(dir.path().join(archive), dir.path().join("ogbl_x")).unwrap();
    }
}

#[test]
fn triples_become_edge_types_with_tasks() {
    let files = [
        ("train.txt", "a\tr\tb\nb\ts\tb\na\tr\tc\n"),
        ("valid.txt", "a\ts\tc\n"),
        ("test.txt", "d\tr\ta\n"),
        ("test_negatives.txt", "d\tr\tb\n"),
        ("entity2types.json", r#"{"a": ["t"], "e": ["u"]}"#),
    ];
    let TypedImported { dataset: data, report } = run("triples", &directory(&files));
    assert_eq!(
        (keys(&data, 0), keys(&data, 1)),
        (["a", "b", "c", "d"].map(String::from).to_vec(), vec!["t".into()])
    );
    assert_eq!(pairs(&data.edges[0]), [(0, 1), (0, 2)]);
    assert_eq!(
        (parts(&data, 0), parts(&data, 1)),
        ([vec![0, 1], vec![], vec![2]], [vec![0], vec![1], vec![]])
    );
    assert_eq!(report.other["entities that only test names"], 1);
    assert_eq!(report.other["entities with types that no triple names"], 1);
    let error = fault_with("triples", &files, "test.txt", "a\tr\na\t\tb\n");
    assert!(
        error.contains("line 1: three fields expected") && error.contains("line 2: a field is empty"),
        "{error}"
    );
}

#[test]
fn reverses_of_triples_are_edges_without_a_task() {
    // s is the inverse of r in the source, t is symmetric, and the name of u's reverse is taken
    let files = [
        (
            "train.txt",
            "a\tr\tb\nb\ts\ta\na\tt\tc\nc\tt\ta\na\tu\tb\na\tu\tb\nb\tu\tb\nc\trev_u\ta\nb\tv\tc\n",
        ),
        ("test.txt", "c\tu\ta\n"),
    ];
    let dir = directory(&files);
    let plain = run("triples", &dir).dataset;
    let add = TypedOptions { add_reverses: true, ..Default::default() };
    let TypedImported { dataset: data, report } = import("triples", dir.path(), &add).unwrap();
    let reverses: Vec<(&str, Option<&str>)> =
        data.edges.iter().map(|edges| (&edges.edge_type.name[..], edges.reverse.as_deref())).collect();
    let of = |name: &str| reverses.iter().find(|(own, _)| *own == name).unwrap().1;
    for (name, reverse) in
        [("r", "s"), ("t", "t"), ("u", "rev_rev_u"), ("rev_u", "rev_rev_rev_u"), ("v", "rev_v")]
    {
        assert_eq!((of(name), of(reverse)), (Some(reverse), Some(name)), "{reverses:?}");
    }
    assert_eq!((plain.edges.len(), data.edges.len()), (6, 9));
    let edges = |name: &str| {
        let found = data.edges.iter().find(|edges| edges.edge_type.name == name).unwrap();
        let mut pairs = pairs(found);
        pairs.sort_unstable();
        pairs
    };
    // a repeated triple is one edge, and a triple of the test is none
    assert_eq!((edges("u"), edges("rev_rev_u")), (vec![(0, 1), (1, 1)], vec![(1, 0), (1, 1)]));
    assert_eq!(report.edges["entity:u:entity"].reverse_added, 2);
    assert_eq!(format!("{:?}", data.tasks), format!("{:?}", plain.tasks));
}

#[test]
fn rdf_literals_are_nodes_unless_left_out() {
    let files = [
        (
            "a.nt",
            "<http://x/a> <http://x/p> <http://x/b> .\n# c\n\
             <http://x/b> <http://y/p> \"1\"^^<http://x/int> .\n\
             _:n <http://x/q#r> \"t\"@en .\n",
        ),
        ("trainingSet.tsv", "person\tid\tlabel_x\nhttp://x/a\t1\tc\n"),
        ("testSet.tsv", "person\tid\tlabel_x\nhttp://x/b\t2\td\n"),
    ];
    let dir = directory(&files);
    let data = run("rdf", &dir).dataset;
    assert_eq!(keys(&data, 0), ["http://x/a", "http://x/b", "\"1\"^^<http://x/int>", "_:n", "\"t\"@en"]);
    let names: Vec<_> = data.edges.iter().map(|edges| edges.edge_type.name.as_str()).collect();
    assert_eq!(names, ["http://x/p", "http://y/p", "r"], "ends that are not unique are whole IRIs");
    assert_eq!((&*data.tasks[0].name, parts(&data, 0)), ("x", [vec![0], vec![], vec![1]]));
    let bare = TypedOptions { no_literals: true, add_reverses: true, ..Default::default() };
    let data = import("rdf", dir.path(), &bare).unwrap().dataset;
    assert_eq!((data.num_nodes(), data.edges.len(), data.edges[1].edge_type.name.as_str()), (2, 2, "rev_p"));
    let error = fault_with("rdf", &files, "a.nt", "<http://x/a> <http://x/p> .\n<http://x/a b> <p> <q> .\n");
    assert!(error.contains("a.nt: line 1:") && error.contains("line 2:"), "{error}");
    let error = fault_with("rdf", &files, "testSet.tsv", "person\tid\tlabel_x\nhttp://x/a\t2\td\n");
    assert!(error.contains("'http://x/a' is also in the test set"), "{error}");
}

#[test]
fn interactions_keep_whole_ids_and_name_others() {
    let files = [("train.txt", "0 1 2\n1 0\n2\n"), ("test.txt", "0 0 1\n1 3\n")];
    let TypedImported { dataset: data, report } = run("interactions", &directory(&files));
    assert_eq!((data.nodes[0].count, data.nodes[1].count, data.nodes[0].keys.is_none()), (3, 4, true));
    assert_eq!(data.edges[1].edge_type.to_string(), "item:interacted-by:user");
    assert_eq!(parts(&data, 0), [vec![0, 1, 2], vec![], vec![3, 4, 5]]);
    assert_eq!(report.other["test pairs that are also training pairs"], 1);
    let data = run("interactions", &directory(&[("train.txt", "ann x y\nbob y\n"), ("test.txt", "bob z\n")]))
        .dataset;
    assert_eq!(
        (keys(&data, 0), keys(&data, 1)),
        (vec!["ann".into(), "bob".into()], ["x", "y", "z"].map(String::from).to_vec())
    );
    let error = fault_with("interactions", &files, "train.txt", "0 1\n0 2\n");
    assert!(error.contains("line 2: the user has two lines"), "{error}");
}

#[test]
fn temporal_lists_are_ordered_by_time() {
    let dir =
        directory(&[("x-a.txt", "# c\n1 2 30\n1 9 10\n1 2 10\n"), ("x-b.csv", "1,2,-5,3.25\n2,1,7,4\n")]);
    let TypedImported { dataset: data, report } = run("temporal", &dir);
    let names: Vec<_> = data.edges.iter().map(|edges| edges.edge_type.to_string()).collect();
    assert_eq!(
        (names, keys(&data, 0)),
        (vec!["node:a:node".into(), "node:b:node".into()], ["1", "2", "9"].map(String::from).to_vec())
    );
    // Both files share a unit: microseconds, because one time has a fraction.
    assert_eq!(data.edges[0].time.as_deref(), Some(&[10_000_000, 30_000_000, 10_000_000][..]));
    assert!(report.notes.iter().any(|note| note.contains("microseconds")));
    assert_eq!(report.other["a: events before an earlier line, put in order"], 1);
    let rating = data.tasks.iter().find(|task| task.name == "b-rating").unwrap();
    assert!(matches!(&rating.targets, Targets::Values { width: 1, values } if values[..] == [-5.0, 7.0]));
    assert!(rating.time.as_ref().unwrap().is_sorted());
    let dir = directory(&[("list.txt", "1 8 0\n2 9 36\n2 9 77\n1 9 80\n")]);
    let data = run("temporal", &dir).dataset;
    assert_eq!(
        (&*data.nodes[0].name, keys(&data, 0), keys(&data, 1)),
        ("user", vec!["1".into(), "2".into()], vec!["8".into(), "9".into()])
    );
    assert_eq!(parts(&data, 0).map(|rows| rows.len()), [3, 0, 1], "events up to a quantile train");
    let error = fault("temporal", directory(&[("list.txt", "1 8\n")]).path());
    assert!(error.contains("line 1: 2 fields; source, destination and time expected"), "{error}");
    let error = fault("temporal", directory(&[("list.txt", "1 8 x\n1 8 3 4\n")]).path());
    assert!(
        error.contains("line 1: the time 'x'")
            && error.contains("line 2: 4 fields, but the first line has 3"),
        "{error}"
    );
}

#[test]
fn event_features_skip_the_row_of_padding() {
    let dir = directory(&[("ml_a.csv", ",u,i,ts,label,idx\n0,1,3,0.5,0.0,1\n1,2,3,2.0,1.0,2\n")]);
    npy::write(dir.path().join("ml_a.npy"), &[0f64, 0., 1., 2., 3., 4.], &[3, 2]).unwrap();
    npy::write(dir.path().join("ml_a_node.npy"), &[0f64, 1., 2., 3.], &[4, 1]).unwrap();
    let data = run("events", &dir).dataset;
    let mut row = [0.0; 2];
    data.edges[0].features.as_ref().unwrap().copy_row(1, &mut row);
    assert_eq!((row, &*data.name, data.nodes.len()), ([3.0, 4.0], "a", 2));
    assert_eq!(data.nodes[1].features.as_ref().map(|table| table.width), Some(1));
    assert_eq!(data.tasks[1].name, "links-label");
    let log = "user_id,item_id,timestamp,state_label,f\n0,0,0.0,0,0.1,0.2\n1,0,36.0,1,0,0.5\n";
    let data = run("events", &directory(&[("log.csv", log)])).dataset;
    assert_eq!((keys(&data, 0), keys(&data, 1)), (vec!["0".into(), "1".into()], vec!["0".into()]));
    let error =
        fault("events", directory(&[("ml_a.csv", "u,i,ts,label,idx\n0,1,3,0,1\n1,2,x,0,2\n")]).path());
    assert!(
        error.contains("line 2: u '0' is not a whole number from 1")
            && error.contains("line 3: the time 'x'"),
        "{error}"
    );
    assert!(fault("events", directory(&[("a.csv", "a,b\n")]).path()).contains("the header is 'a,b'"));
}

#[test]
fn heco_reads_both_forms_of_matrices() {
    let dir = directory(&[("pa.txt", "0\t1\n1\t2\n"), ("ps.txt", "0 0\n1 0\n")]);
    let write = |name: &str, members: &[(String, Vec<u8>)]| {
        fs::write(dir.path().join(name), archive(members, true)).unwrap()
    };
    let shape = |rows: i64| member("shape", &[2], &[rows, 2]);
    let data = || member("data", &[2], &[1f64, 2.]);
    write(
        "p_feat.npz",
        &[member("indptr", &[3], &[0i32, 1, 2]), member("indices", &[2], &[1i32, 0]), data(), shape(2)],
    );
    write(
        "a_feat.npz",
        &[member("row", &[2], &[3i32, 0]), member("col", &[2], &[1i32, 0]), data(), shape(4)],
    );
    npy::write(dir.path().join("labels.npy"), &[0f64, 1.], &[2]).unwrap();
    npy::write(dir.path().join("train_20.npy"), &[1i64], &[1]).unwrap();
    npy::write(dir.path().join("val_20.npy"), &[0i64], &[1]).unwrap();
    let data = run("heco", &dir).dataset;
    let counts: Vec<_> = data.nodes.iter().map(|nodes| (&*nodes.name, nodes.count)).collect();
    assert_eq!(counts, [("author", 4), ("paper", 2), ("subject", 1)]);
    let mut row = [0.0; 2];
    data.nodes[0].features.as_ref().unwrap().copy_row(3, &mut row);
    assert_eq!((row, parts(&data, 0)), ([0.0, 1.0], [vec![1], vec![0], vec![]]));
    npy::write(dir.path().join("labels.npy"), &[0f64, 1., 1.], &[3]).unwrap();
    assert!(fault("heco", dir.path()).contains("the nodes are 4 author, 2 paper, 1 subject"));
}

#[test]
fn mat_links_are_held_out_with_negatives() {
    use crate::dataset::import::facebook100::testing::Style;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ring.mat");
    let rows: Vec<u64> = (0..10).flat_map(|i: u64| [(i + 9) % 10, (i + 1) % 10]).collect();
    let starts: Vec<u64> = (0..=10).map(|i| 2 * i).collect();
    for style in [Style::default(), Style { packed: true, big_endian: true }] {
        fs::write(&path, style.file(&[style.sparse([10, 10], "net", &rows, &starts)])).unwrap();
        let options =
            TypedOptions { test_fraction: Some(0.2), valid_fraction: Some(0.1), ..Default::default() };
        let data = import("mat-links", &path, &options).unwrap().dataset;
        assert_eq!((data.num_edges(), parts(&data, 0).map(|rows| rows.len())), (14, [7, 1, 2]));
        let Some(Negatives::Pairs(pairs)) = &data.tasks[0].negatives[2] else { panic!() };
        assert!(pairs.chunks(2).all(|pair| (pair[1] - pair[0]) % 9 > 1), "{pairs:?}");
        let again = import("mat-links", &path, &options).unwrap().dataset;
        assert!(
            matches!(&again.tasks[0].negatives[2], Some(Negatives::Pairs(same)) if same[..] == pairs[..])
        );
        let other = TypedOptions { split_seed: 1, ..options };
        let other = import("mat-links", &path, &other).unwrap().dataset;
        assert_ne!(pairs_of(&other), pairs_of(&data));
    }
    let ratio = TypedOptions { test_fraction: Some(0.9), valid_fraction: Some(0.1), ..Default::default() };
    assert!(
        import("mat-links", &path, &ratio).unwrap_err().to_string().contains("their sum must be below 1")
    );
}

fn pairs_of(data: &TypedDataset) -> Vec<u32> {
    let Some(Seeds::Pairs(seeds)) = &data.tasks[0].seeds else { panic!() };
    seeds.to_vec()
}

#[test]
fn graphbolt_types_and_links_are_read() {
    let yaml = "graph:
  nodes: [{type: user, num: 3}, {type: item, num: 2}]
  edges: [{type: 'user:buys:item', format: csv, path: edges.csv}]
feature_data: [{domain: node, type: user, name: feat, format: numpy, path: x.npy}]
tasks:
  - name: churn
    num_classes: 4
    train_set: [{type: user, data: [{name: seeds, format: csv, path: s.csv},
      {name: labels, format: csv, path: s.csv}]}]
  - name: links
    test_set: [{type: 'user:buys:item', data: [{name: seeds, format: csv, path: pairs.csv},
      {name: labels, format: csv, path: y.csv}, {name: indexes, format: csv, path: i.csv}]}]
";
    let dir = directory(&[
        ("metadata.yaml", yaml),
        ("edges.csv", "0,1\n2,0\n"),
        ("s.csv", "2\n0\n"),
        ("pairs.csv", "0,1\n2,0\n0,0\n2,1\n"),
        ("y.csv", "1\n1\n0\n0\n"),
        ("i.csv", "0\n1\n0\n1\n"),
    ]);
    npy::write(dir.path().join("x.npy"), &[half::f16::ONE; 6], &[3, 2]).unwrap();
    let data = run("graphbolt-typed", &dir).dataset;
    assert_eq!(pairs(&data.edges[0]), [(2, 0), (0, 1)]);
    let table = data.nodes[0].features.as_ref().unwrap();
    assert!(matches!(&table.data, TableData::Dense(Values::F16(values)) if values.is_mapped()));
    let task = &data.tasks[0];
    assert!(matches!(&task.seeds, Some(Seeds::Nodes(seeds)) if seeds[..] == [2, 0]));
    assert!(
        matches!(&task.targets, Targets::Classes(Labels::Single { class, classes: 4 }) if class[..] == [2, 0])
    );
    let Some(Negatives::Destinations { each: 1, nodes }) = &data.tasks[1].negatives[2] else { panic!() };
    assert_eq!(nodes[..], [0, 1]);
    assert_eq!(parts(&data, 1), [vec![], vec![], vec![0, 1]]);
    fs::write(dir.path().join("edges.csv"), "0,x\n").unwrap();
    assert!(
        fault("graphbolt-typed", dir.path()).contains("edges.csv: line 1: value 'x' is not a finite number")
    );
}

#[test]
fn dgl_chunks_are_joined() {
    let json = r#"{"graph_name": "g", "node_type": ["a", "b"], "num_nodes_per_chunk": [[2, 1], [1]],
        "edge_type": ["a:r:b"], "num_edges_per_chunk": [[1, 1]],
        "edges": {"a:r:b": {"format": {"name": "csv", "delimiter": " "}, "data": ["e0.txt", "e1.txt"]}},
        "node_data": {"a": {"feat": {"format": {"name": "numpy"}, "data": ["x0.npy", "x1.npy"]},
            "label": {"format": {"name": "csv"}, "data": ["y.csv"]},
            "train_mask": {"format": {"name": "csv"}, "data": ["m.csv"]}}},
        "edge_data": {"a:r:b": {"year": {"format": {"name": "csv"}, "data": ["t.csv"]}}}}"#;
    let dir = directory(&[
        ("metadata.json", json),
        ("e0.txt", "0 0\n"),
        ("e1.txt", "2 0\n"),
        ("y.csv", "1\n0\n-1\n"),
        ("m.csv", "1\n0\n0\n"),
        ("t.csv", "2000\n1999\n"),
    ]);
    npy::write(dir.path().join("x0.npy"), &[1f32, 2., 3., 4.], &[2, 2]).unwrap();
    npy::write(dir.path().join("x1.npy"), &[5f32, 6.], &[1, 2]).unwrap();
    let data = run("dgl-chunked", &dir).dataset;
    let mut row = [0.0; 2];
    data.nodes[0].features.as_ref().unwrap().copy_row(2, &mut row);
    assert_eq!(
        (row, pairs(&data.edges[0]), parts(&data, 0)),
        ([5.0, 6.0], vec![(2, 0), (0, 0)], [vec![0], vec![], vec![]])
    );
    let error = fault_with(
        "dgl-chunked",
        &[("x", "")],
        "metadata.json",
        &json.replace("\"csv\", \"delimiter\"", "\"orc\", \"delimiter\""),
    );
    assert!(error.contains("edges of a:r:b: the format 'orc' is not read"), "{error}");
}

#[test]
fn mag240m_and_igbh_map_their_features() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| {
        let path = dir.path().join("processed").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    };
    npy::write(path("paper/node_feat.npy"), &[half::f16::ONE; 6], &[3, 2]).unwrap();
    npy::write(path("paper/node_label.npy"), &[0f32, f32::NAN, 1.], &[3]).unwrap();
    npy::write(path("paper/node_year.npy"), &[1999i64, 2000, 2001], &[3]).unwrap();
    npy::write(path("author___writes___paper/edge_index.npy"), &[0i64, 1, 2, 2], &[2, 2]).unwrap();
    let data = run("mag240m", &dir).dataset;
    assert_eq!((pairs(&data.edges[0]), data.nodes[0].count), (vec![(0, 2), (1, 2)], 2));
    let table = data.nodes[1].features.as_ref().unwrap();
    assert!(matches!(&table.data, TableData::Dense(Values::F16(values)) if values.is_mapped()));
    fs::remove_dir_all(dir.path().join("processed")).unwrap();
    npy::write(path("paper/node_feat.npy"), &[1f32; 10], &[10, 1]).unwrap();
    npy::write(path("paper/node_label_19.npy"), &[1f32; 10], &[10]).unwrap();
    npy::write(path("paper__topic__fos/edge_index.npy"), &[0i32, 0, 9, 1], &[2, 2]).unwrap();
    let data = run("igbh", &dir).dataset;
    assert_eq!((pairs(&data.edges[0]), &*data.tasks[0].name), (vec![(0, 0), (9, 1)], "paper-19"));
    assert_eq!(parts(&data, 0).map(|rows| rows.len()), [6, 2, 2]);
}

#[test]
fn igbh_reads_arrays_without_a_header() {
    let dir = tempfile::tempdir().unwrap();
    let paper = dir.path().join("processed/paper");
    let topic = dir.path().join("processed/paper__topic__fos");
    fs::create_dir_all(&paper).unwrap();
    fs::create_dir_all(&topic).unwrap();
    let raw = |values: &[f32]| values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>();
    let rows: Vec<f32> = (0..10 * 1024).map(|x| (x / 1024) as f32).collect();
    fs::write(paper.join("node_feat.npy"), raw(&rows)).unwrap();
    let classes = [0., 1., 2., 0., 1., 2., 0., 1., f32::NAN, -1.];
    fs::write(paper.join("node_label_2K.npy"), raw(&classes)).unwrap();
    npy::write(topic.join("edge_index.npy"), &[0i32, 0, 9, 1], &[2, 2]).unwrap();
    let data = run("igbh", &dir).dataset;
    let nodes = data.nodes.iter().find(|nodes| nodes.name == "paper").unwrap();
    let table = nodes.features.as_ref().unwrap();
    assert_eq!((nodes.count, table.width), (10, 1024));
    let TableData::Dense(Values::F32(values)) = &table.data else { panic!("32-bit floats are expected") };
    assert!(values.is_mapped() && values[..] == rows[..]);
    assert_eq!(parts(&data, 0).map(|rows| rows.len()), [4, 1, 3]);
    fs::write(paper.join("node_feat.npy"), raw(&rows[1..])).unwrap();
    let error = import("igbh", dir.path(), &TypedOptions::default()).unwrap_err().to_string();
    assert!(error.contains("not a .npy array, and its 40956 bytes are not rows of 1024"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_source_that_can_be_read_once_is_refused() {
    let (dir, device) = (tempfile::tempdir().unwrap(), Path::new("/dev/null"));
    let (options, work) = (TypedOptions::default(), Work::default());
    let typed = import_to("temporal", device, dir.path().join("typed"), &options, work).unwrap_err();
    let (options, work) = (Default::default(), Work::default());
    let one = crate::dataset::import::import_to("edges", device, dir.path().join("one"), &options, work);
    for error in [typed, one.unwrap_err()] {
        assert!(error.to_string().contains("a pipe or a device can be read only once"), "{error}");
    }
}

#[test]
fn options_without_effect_are_rejected() {
    let options = TypedOptions { no_literals: true, ..Default::default() };
    let error = import("hgb", "x", &options).unwrap_err().to_string();
    assert!(
        error.contains("'no-literals' has no effect on the format 'hgb', whose options are: valid-fraction"),
        "{error}"
    );
    let options = TypedOptions { valid_fraction: Some(1.0), ..Default::default() };
    assert!(import("hgb", "x", &options).unwrap_err().to_string().contains("below 1"));
    assert!(import("none", "x", &options).unwrap_err().to_string().contains("known: hgb, ogb-hetero"));
}

#[test]
fn pyg_dictionaries_of_both_kinds_are_read() {
    use crate::dataset::import::torch::testing::{dict, tensor, text, zipped};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pt");
    let ids = tensor("0", "LongStorage", 4, 0, &[2, 2], &[2, 1]);
    let rows = tensor("1", "FloatStorage", 4, 0, &[2, 2], &[2, 1]);
    let class = tensor("0", "LongStorage", 4, 0, &[2], &[1]);
    let mask = tensor("0", "LongStorage", 4, 1, &[2], &[2]);
    let storages = [
        ("0", [0i64, 1, 1, 0].iter().flat_map(|x| x.to_le_bytes()).collect()),
        ("1", [0f32, 1., 2., 3.].iter().flat_map(|x| x.to_le_bytes()).collect()),
    ];
    let one = [
        ("edge_index", ids.clone()),
        ("x", rows.clone()),
        ("y", class.clone()),
        ("train_mask", mask),
        ("extra", class.clone()),
    ];
    fs::write(&path, zipped(&dict(&one), &storages)).unwrap();
    let TypedImported { dataset: data, report } = import("pyg", &path, &TypedOptions::default()).unwrap();
    assert_eq!((pairs(&data.edges[0]), parts(&data, 0)), (vec![(1, 0), (0, 1)], [vec![0], vec![], vec![]]));
    assert!(report.ignored_parts.iter().any(|part| part == "extra of node"), "{report:?}");
    let key = [b"(".to_vec(), text("a"), text("r"), text("a"), b"t".to_vec()].concat();
    let nodes = dict(&[("x", rows)]);
    let several =
        [b"}(".to_vec(), text("a"), nodes, key, dict(&[("edge_index", ids)]), b"u".to_vec()].concat();
    fs::write(&path, zipped(&several, &storages)).unwrap();
    let data = import("pyg", &path, &TypedOptions::default()).unwrap().dataset;
    assert_eq!((data.edges[0].edge_type.to_string(), data.nodes[0].count), ("a:r:a".into(), 2));
    fs::write(&path, zipped(&class, &storages)).unwrap();
    assert!(fault("pyg", &path).contains("a tensor found, a dictionary expected; save data.to_dict()"));
}

#[cfg(feature = "parquet")]
#[test]
fn dgl_chunks_may_be_parquet_tables() {
    use std::sync::Arc;

    use parquet::{
        data_type::Int64Type, file::writer::SerializedFileWriter, schema::parser::parse_message_type,
    };

    let json = r#"{"node_type": ["a"], "num_nodes_per_chunk": [[3]], "edge_type": ["a:r:a"],
        "edges": {"a:r:a": {"format": {"name": "parquet"}, "data": ["e.parquet"]}}}"#;
    let dir = directory(&[("metadata.json", json)]);
    let schema = parse_message_type("message m { required int64 s; required int64 d; }").unwrap();
    let file = fs::File::create(dir.path().join("e.parquet")).unwrap();
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for column in [[0i64, 2], [1, 1]] {
        let mut next = group.next_column().unwrap().unwrap();
        next.typed::<Int64Type>().write_batch(&column, None, None).unwrap();
        next.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
    let data = run("dgl-chunked", &dir).dataset;
    assert_eq!(pairs(&data.edges[0]), [(0, 1), (2, 1)]);
}
