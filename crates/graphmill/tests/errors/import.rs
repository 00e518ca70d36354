//! `graphmill import`.

use std::fs;

use graphmill_data::npy;

use super::{
    FAILED, USAGE,
    common::Sandbox,
    files::{archive, cycle, declare, edge_list, member},
    refused, sandbox_with_run,
};

#[test]
fn unknown_names_list_the_known_ones() {
    let sandbox = sandbox_with_run();
    refused(&sandbox, "import nonsense data new", USAGE, &["npz, graphsaint", "planetoid", "edges"], "new");
    let args = "import edges data new --metric nonsense";
    refused(&sandbox, args, USAGE, &["nonsense", "accuracy, f1-micro"], "new");
    refused(&sandbox, "import edges data new --normalize nonsense", USAGE, &["none, rows, standard"], "new");
    refused(&sandbox, "import edges data new --split nonsense", USAGE, &["given:K", "random:A,B,C"], "new");
    refused(&sandbox, "import edges data new --split graphs:a", USAGE, &["graphs:TRAIN/VALID/TEST"], "new");
}

#[test]
fn missing_and_clashing_arguments_are_wrong_usage() {
    let sandbox = sandbox_with_run();
    for (args, says) in [
        ("import edges data", "<DST>"),
        ("import npz data new --num-nodes 3", "num-nodes"),
        ("import npz data new --compact-ids", "compact-ids"),
    ] {
        refused(&sandbox, args, USAGE, &[says], "new");
    }
}

#[test]
fn wrong_paths_are_refused() {
    let sandbox = sandbox_with_run();
    sandbox.write("file", "text");
    let before = sandbox.results("run");
    refused(&sandbox, "import edges file data", FAILED, &["data", "--force"], "new");
    refused(&sandbox, "import edges file run", FAILED, &["run", "nothing was written"], "new");
    for format in ["npz", "graphsaint", "planetoid", "ogb", "graphsage", "graphbolt", "facebook100", "edges"]
    {
        refused(&sandbox, &format!("import {format} nowhere new"), FAILED, &["nowhere"], "new");
        refused(&sandbox, &format!("import {format} run new"), FAILED, &["run"], "new");
    }
    before.assert_same(&sandbox.results("run"), "the run is unchanged");
    assert_eq!(sandbox.read("file"), b"text");
    sandbox.ok("info data");
}

#[test]
fn errors_of_an_edge_list_name_the_line() {
    let sandbox = Sandbox::new();
    edge_list(&sandbox);
    sandbox.ok("import edges edges good");
    let cases: &[(&str, &str, &[&str])] = &[
        ("edges.csv", "0,1\n1\n", &["edges.csv: line 2"]),
        ("edges.csv", "0,1\nx,2\n", &["edges.csv: line 2", "'x'"]),
        ("edges.csv", "0,1\n-1,2\n", &["edges.csv: line 2", "-1"]),
        ("edges.csv", "0,1\n1,3\n", &["edges.csv: line 2", "3 nodes"]),
        ("edges.csv", "0,1\n1,99999999999999999999\n", &["edges.csv: line 2"]),
        ("features.csv", "1,0\n0\n1,1\n", &["features.csv: line 2", "the first row has 2"]),
        ("features.csv", "1,0\n0,nan\n1,1\n", &["features.csv: line 2", "'nan'"]),
        ("features.csv", "1,0\n0,inf\n1,1\n", &["features.csv: line 2", "'inf'"]),
        ("features.csv", "1,0\n0,one\n1,1\n", &["features.csv: line 2", "'one'"]),
        ("features.csv", "1,0\n0,1\n", &["labels.csv", "3 nodes", "2"]),
        ("labels.csv", "0\n1\n", &["labels.csv", "2 nodes", "3"]),
        ("labels.csv", "0\n1.5\n0\n", &["labels.csv", "1.5"]),
        ("labels.csv", "0\n-7\n0\n", &["labels.csv", "-7"]),
        ("labels.csv", "0\n1,0\n0\n", &["labels.csv: line 2"]),
        ("labels.csv", "0\n999999999999\n0\n", &["labels.csv", "999999999999"]),
        ("train.txt", "3\n", &["train.txt", "3"]),
        ("train.txt", "-1\n", &["train.txt: line 1", "-1"]),
        ("train.txt", "0\nx\n", &["train.txt: line 2", "'x'"]),
        ("train.txt", "", &["train.txt", "no rows"]),
        ("train.txt", "1\n", &["node 1 is in 'valid' and in 'train'"]),
    ];
    for (file, text, says) in cases {
        edge_list(&sandbox);
        sandbox.write(&format!("edges/{file}"), text);
        refused(&sandbox, "import edges edges new", FAILED, says, "new");
    }
    for file in ["features", "labels"] {
        edge_list(&sandbox);
        fs::remove_file(sandbox.path(format!("edges/{file}.csv"))).unwrap();
        npy::write(sandbox.path("array.npy"), &[1f32, 2.0], &[2]).unwrap();
        let whole = sandbox.read("array.npy");
        for bytes in [&whole[..40], &whole[..whole.len() - 1], b"no array", b""] {
            sandbox.write(&format!("edges/{file}.npy"), bytes);
            refused(&sandbox, "import edges edges new", FAILED, &[&format!("{file}.npy: ")], "new");
        }
        fs::remove_file(sandbox.path(format!("edges/{file}.npy"))).unwrap();
    }
    edge_list(&sandbox);
    let args = "import edges edges new --split random:0.1,0.1,0.1";
    refused(&sandbox, args, FAILED, &["0.1", "leave none to train on"], "new");
    refused(&sandbox, "import edges edges new --split given:4", FAILED, &["given:4"], "new");
    refused(&sandbox, "import edges edges new --num-nodes 2", FAILED, &["2"], "new");
}

#[test]
fn a_header_with_a_huge_shape_is_refused_at_once() {
    let sandbox = Sandbox::new();
    edge_list(&sandbox);
    fs::remove_file(sandbox.path("edges/features.csv")).unwrap();
    for huge in
        ["(9223372036854775807, 2)", "(9223372036854775807, 9223372036854775807)", "(1000000000, 1000)"]
    {
        npy::write(sandbox.path("edges/features.npy"), &[0f32; 6], &[3, 2]).unwrap();
        let mut bytes = sandbox.read("edges/features.npy");
        declare(&mut bytes, "(3, 2)", huge);
        sandbox.write("edges/features.npy", &bytes);
        refused(&sandbox, "import edges edges new", FAILED, &["edges/features.npy"], "new");
    }
}

#[test]
fn errors_of_an_npz_name_the_member() {
    let sandbox = Sandbox::new();
    let with = |indices, indptr, shape, labels: &[i64], features: &[f32]| {
        let mut members = cycle(&sandbox, "adj_", indices, indptr, shape);
        members.push(member(&sandbox, "labels", &[labels.len()], labels));
        members.push(member(&sandbox, "attr_matrix", &[features.len() / 2, 2], features));
        archive(&members)
    };
    let (to, starts, square) = ([1, 2, 0], [0, 1, 2, 3], [3i64, 3]);
    let (labels, features) = ([0i64, 1, 1], [1f32, 0.0, 0.0, 1.0, 1.0, 1.0]);
    let good = with(to, starts, square, &labels, &features);
    sandbox.write("a.npz", &good);
    sandbox.ok("import npz a.npz good --split random:0.4,0.3,0.3");
    let nan = [1f32, 0.0, 0.0, f32::NAN, 1.0, 1.0];
    let cases: Vec<(Vec<u8>, &[&str])> = vec![
        (with([1, 3, 0], starts, square, &labels, &features), &["adj_indices", "3"]),
        (with([1, -1, 0], starts, square, &labels, &features), &["adj_indices", "-1"]),
        (with(to, [0, 2, 1, 3], square, &labels, &features), &["adj_indptr"]),
        (with(to, [0, 1, 2, 9], square, &labels, &features), &["adj_indptr"]),
        (with(to, starts, [3, 4], &labels, &features), &["adj_shape"]),
        (with(to, starts, [i64::MAX, i64::MAX], &labels, &features), &["adj_"]),
        (with(to, starts, [-3, -3], &labels, &features), &["adj_shape"]),
        (with(to, starts, square, &labels[..2], &features), &["labels", "2 rows for 3 nodes"]),
        (with(to, starts, square, &[0, -5, 1], &features), &["labels", "-5"]),
        (with(to, starts, square, &[0, i64::MAX, 1], &features), &["labels", "9223372036854775807"]),
        (with(to, starts, square, &labels, &features[..4]), &["attr_matrix"]),
        (with(to, starts, square, &labels, &nan), &["attr_matrix", "node 1", "NaN"]),
        (archive(&cycle(&sandbox, "matrix_", to, starts, square)), &["adj_indptr", "matrix_indptr"]),
        (archive(&cycle(&sandbox, "adj_", to, starts, square)[..3]), &["adj_shape"]),
        (b"PK no archive".to_vec(), &["zip"]),
        (vec![], &["zip"]),
        (good[..good.len() / 2].to_vec(), &["zip"]),
    ];
    for (bytes, says) in cases {
        sandbox.write("a.npz", &bytes);
        let says = [&["a.npz"], says].concat();
        refused(&sandbox, "import npz a.npz new", FAILED, &says, "new");
    }
    // a flipped bit is an error, or lies in bytes that are not read
    for at in (0..good.len()).step_by(97) {
        let mut bad = good.clone();
        bad[at] ^= 1;
        sandbox.write("a.npz", &bad);
        let outcome = sandbox.run("import npz a.npz maybe --force");
        assert!(matches!(outcome.status, Some(0 | 1)), "byte {at}: {}", outcome.stderr);
        assert!(!outcome.stderr.contains("panicked"), "byte {at}: {}", outcome.stderr);
    }
}

#[test]
fn errors_of_a_graphsaint_directory_name_the_file() {
    let sandbox = Sandbox::new();
    let write_source = || {
        sandbox.write("saint/adj_full.npz", archive(&cycle(&sandbox, "", [1, 2, 0], [0, 1, 2, 3], [3, 3])));
        npy::write(sandbox.path("saint/feats.npy"), &[1f64, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2]).unwrap();
        sandbox.write("saint/class_map.json", r#"{"0": 1, "1": 0, "2": 1}"#);
        sandbox.write("saint/role.json", r#"{"tr": [0], "va": [1], "te": [2]}"#);
    };
    write_source();
    sandbox.ok("import graphsaint saint good");
    let cases: &[(&str, &[u8], &[&str])] = &[
        ("adj_full.npz", b"PK", &["adj_full.npz"]),
        ("feats.npy", b"\x93NUMPY\x09\x00", &["feats.npy"]),
        ("feats.npy", b"not an array", &["feats.npy"]),
        ("class_map.json", b"{\"0\": 1", &["class_map.json: line 1"]),
        ("class_map.json", b"{\"7\": 1}", &["class_map.json: line 1", "node 7", "3 nodes"]),
        ("class_map.json", b"{\"0\": -4}", &["class_map.json", "-4"]),
        ("class_map.json", b"\xff", &["class_map.json: line 1"]),
        ("role.json", b"{\"tr\": [3]}", &["role.json", "node 3"]),
        ("role.json", b"{\"tr\": []}", &["role.json", "empty"]),
        ("role.json", b"[]", &["role.json: line 1"]),
        ("role.json", b"{\"tr\": [0], \"va\": [0]}", &["node 0 is in 'valid' and in 'train'"]),
    ];
    for (file, bytes, says) in cases {
        write_source();
        sandbox.write(&format!("saint/{file}"), bytes);
        refused(&sandbox, "import graphsaint saint new", FAILED, says, "new");
    }
    for (shape, data) in [([2, 2], vec![1f32; 4]), ([3, 1], vec![1.0, f32::NAN, 0.0])] {
        write_source();
        npy::write(sandbox.path("saint/feats.npy"), &data, &shape).unwrap();
        refused(&sandbox, "import graphsaint saint new", FAILED, &["feats.npy"], "new");
    }
    for file in ["adj_full.npz", "feats.npy", "class_map.json", "role.json"] {
        write_source();
        fs::remove_file(sandbox.path(format!("saint/{file}"))).unwrap();
        refused(&sandbox, "import graphsaint saint new", FAILED, &[file, "cannot open"], "new");
    }
}

#[test]
fn errors_of_a_planetoid_directory_name_the_file() {
    let sandbox = Sandbox::new();
    let parts = ["x", "tx", "allx", "y", "ty", "ally", "graph"];
    for bytes in
        [&b"no pickle"[..], b"", b"\x80\x02.", b"\x80\x02}q\x00(K\x00]q\x01K", b"(lp0\nI99999999999\n"]
    {
        for part in parts {
            sandbox.write(&format!("planetoid/ind.toy.{part}"), bytes);
        }
        sandbox.write("planetoid/ind.toy.test.index", "x\n");
        refused(&sandbox, "import planetoid planetoid new", FAILED, &["planetoid/ind.toy."], "new");
    }
}

#[test]
fn errors_of_an_ogb_directory_name_the_file_and_the_line() {
    let sandbox = Sandbox::new();
    let write_source = || {
        sandbox.write("ogbn_toy/raw/num-node-list.csv", "3\n");
        sandbox.write("ogbn_toy/raw/num-edge-list.csv", "2\n");
        sandbox.write("ogbn_toy/raw/edge.csv", "0,1\n1,2\n");
        sandbox.write("ogbn_toy/raw/node-feat.csv", "1,0\n0,1\n1,1\n");
        sandbox.write("ogbn_toy/raw/node-label.csv", "0\n1\n1\n");
        sandbox.write("ogbn_toy/split/time/train.csv", "0\n");
    };
    write_source();
    sandbox.ok("import ogb ogbn_toy good");
    let cases: &[(&str, &str, &[&str])] = &[
        ("raw/edge.csv", "0,1\n1,3\n", &["edge.csv: line 2", "3 nodes"]),
        ("raw/edge.csv", "0,1\n", &["edge.csv: rows: 1 edges", "num-edge-list.csv says 2"]),
        ("raw/num-node-list.csv", "3\n3\n", &["num-node-list.csv", "2 graphs"]),
        ("raw/num-node-list.csv", "9999999999999\n", &["disk", "the work needs"]),
        ("raw/node-feat.csv", "1,0\n0,x\n1,1\n", &["node-feat.csv: line 2", "'x'"]),
        ("raw/node-label.csv", "0\n1\n", &["node-label.csv", "2 rows of labels, but there are 3 nodes"]),
        ("split/time/train.csv", "7\n", &["train.csv", "node 7"]),
    ];
    for (file, text, says) in cases {
        write_source();
        sandbox.write(&format!("ogbn_toy/{file}"), text);
        refused(&sandbox, "import ogb ogbn_toy new", FAILED, says, "new");
    }
    refused(&sandbox, "import ogb ogbn_toy/raw new", FAILED, &["ogbn_toy/raw", "no 'raw' directory"], "new");
}

#[test]
fn errors_of_graphsage_files_name_the_file_and_the_line() {
    let sandbox = Sandbox::new();
    let write_source = || {
        let nodes =
            r#""nodes": [{"id": "a", "val": false, "test": false}, {"id": "b", "val": true, "test": false}]"#;
        sandbox.write("sage/x-G.json", format!("{{{nodes}, \"links\": [{{\"source\": 0, \"target\": 1}}]}}"));
        sandbox.write("sage/x-id_map.json", r#"{"a": 1, "b": 0}"#);
        sandbox.write("sage/x-class_map.json", r#"{"a": 0, "b": 1}"#);
    };
    write_source();
    sandbox.ok("import graphsage sage/x good");
    let cases: &[(&str, &str, &[&str])] = &[
        ("x-G.json", "{\"nodes\": [\n{}], \"links\": []}", &["x-G.json: line 2", "id"]),
        (
            "x-G.json",
            "{\"nodes\": [], \"links\": [{\"source\": 0, \"target\": 1}]}",
            &["x-G.json: line 1", "a link ends at 0, which is not a node"],
        ),
        ("x-id_map.json", r#"{"a": 1, "b": 2}"#, &["x-id_map.json", "the row 2"]),
        ("x-class_map.json", r#"{"q": 1}"#, &["x-class_map.json: line 1", "'q' is not a node"]),
    ];
    for (file, text, says) in cases {
        write_source();
        sandbox.write(&format!("sage/{file}"), text);
        refused(&sandbox, "import graphsage sage new", FAILED, says, "new");
    }
}

#[test]
fn errors_of_a_graphbolt_description_name_the_line_and_the_field() {
    let sandbox = Sandbox::new();
    let yaml = "graph:\n  nodes: [{num: 3}]\n  edges: [{format: csv, path: edges.csv}]\n";
    let features = "feature_data: [{domain: node, name: feat, format: torch, path: feat.pt}]\n";
    sandbox.write("bolt/edges.csv", "0,1\n1,2\n");
    sandbox.write("bolt/metadata.yaml", yaml);
    sandbox.ok("import graphbolt bolt good");
    for (text, says) in [
        (yaml.replace("num: 3", "num: x"), &["metadata.yaml: line 2"][..]),
        (yaml.replace("num: 3", "num: 2"), &["edges.csv: line 2", "2 nodes"]),
        (yaml.replace("{num: 3}", "{num: 3}, {num: 4}"), &["metadata.yaml: graph", "2 types of nodes"]),
        (yaml.replace("edges.csv", "absent.csv"), &["absent.csv", "cannot open"]),
        (format!("{yaml}{features}"), &["metadata.yaml: feature_data", "torch", "save it as numpy"]),
        ("[".into(), &["metadata.yaml"]),
    ] {
        sandbox.write("bolt/metadata.yaml", text);
        refused(&sandbox, "import graphbolt bolt new", FAILED, says, "new");
    }
}

#[test]
fn splits_by_graph_use_the_graphs_names() {
    let sandbox = Sandbox::new();
    for (part, id) in [("train", 1i64), ("valid", 2), ("test", 3)] {
        sandbox.write(&format!("ppi/{part}_graph.json"), r#"{"nodes": [{"id": 0}, {"id": 1}], "links": []}"#);
        npy::write(sandbox.path(format!("ppi/{part}_graph_id.npy")), &[id; 2], &[2]).unwrap();
        npy::write(sandbox.path(format!("ppi/{part}_labels.npy")), &[1i64, 0, 0, 1], &[2, 2]).unwrap();
    }
    sandbox.ok("import graphsage ppi good --split graphs:3/1/");
    let info = sandbox.ok_json("info good");
    assert_eq!(info["graphs"][2], serde_json::json!({"name": "3", "nodes": 2, "edges": 0}));
    assert_eq!(
        (info["train"].as_u64(), info["valid"].as_u64(), info["test"].as_u64()),
        (Some(2), Some(2), Some(0))
    );
    let says = &["unknown graph '4'", "1, 2, 3"];
    refused(&sandbox, "import graphsage ppi new --split graphs:1/2/4", FAILED, says, "new");
    refused(&sandbox, "import graphsage ppi new --split graphs:1/1/2", FAILED, &["'1' occurs twice"], "new");
}
