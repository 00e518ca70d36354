//! Seeds of the importers: small sources of every format.

use std::io::Write;

use flate2::{Compression, write::ZlibEncoder};

use super::{Result, array, numbers};
use crate::input::{join, members};

/// Adds the sources of all importers.
///
/// # Errors
/// A source cannot be packed.
pub(super) fn add(add: &mut impl FnMut(&'static str, &str, Vec<u8>)) -> Result<()> {
    npz(add);
    graphsaint(add);
    edge_lists(add);
    edge_directories(add);
    edge_options(add);
    ogb(add);
    graphsage(add);
    musae(add);
    graphbolt(add);
    facebook100(add)
}

/// Arrays in one archive: the forms of Shchur's datasets and of the heterophilous ones.
fn npz(add: &mut impl FnMut(&'static str, &str, Vec<u8>)) {
    let indptr = numbers(&[0i32, 1, 2, 3], &[4]);
    let indices = numbers(&[1i32, 2, 2], &[3]);
    let ones = numbers(&[1f32, 1., 1.], &[3]);
    let square = numbers(&[3i64, 3], &[2]);
    let shchur = members(&[
        ("adj_data.npy", &ones),
        ("adj_indices.npy", &indices),
        ("adj_indptr.npy", &indptr),
        ("adj_shape.npy", &square),
        ("attr_data.npy", &ones),
        ("attr_indices.npy", &indices),
        ("attr_indptr.npy", &indptr),
        ("attr_shape.npy", &square),
        ("labels.npy", &numbers(&[0i8, 1, -1], &[3])),
    ]);
    add(
        "import_npz",
        "shchur",
        join("split=planetoid:1,0 largest-component undirected", &[("a.npz", &shchur)]),
    );
    let dense = members(&[
        ("adj_data.npy", &ones),
        ("adj_indices.npy", &indices),
        ("adj_indptr.npy", &indptr),
        ("adj_shape.npy", &square),
        ("attr_matrix.npy", &ones_of(3)),
        ("labels_data.npy", &ones),
        ("labels_indices.npy", &indices),
        ("labels_indptr.npy", &indptr),
        ("labels_shape.npy", &square),
    ]);
    add("import_npz", "dense", join("no-self-loops keep-duplicates normalize=rows", &[("a.npz", &dense)]));
    let mask = |bits: [u8; 3]| array("|b1", false, &[1, 3], &bits);
    let heterophilous = members(&[
        ("node_features.npy", &ones_of(3)),
        ("node_labels.npy", &numbers(&[0i64, 1, 1], &[3])),
        ("edges.npy", &numbers(&[0i64, 1, 2, 1], &[2, 2])),
        ("train_masks.npy", &mask([1, 0, 0])),
        ("val_masks.npy", &mask([0, 1, 0])),
        ("test_masks.npy", &mask([0, 0, 1])),
    ]);
    add("import_npz", "masks", join("normalize=standard", &[("a.npz", &heterophilous)]));
}

/// GraphSAINT's files, with one label for each node and with several.
fn graphsaint(add: &mut impl FnMut(&'static str, &str, Vec<u8>)) {
    let indptr = numbers(&[0i32, 1, 2, 3], &[4]);
    let indices = numbers(&[1i32, 2, 2], &[3]);
    let square = numbers(&[3i64, 3], &[2]);
    let adjacency = members(&[
        ("indices.npy", &indices),
        ("indptr.npy", &indptr),
        ("format.npy", &array("|S3", false, &[], b"csr")),
        ("shape.npy", &square),
        ("data.npy", &array("|b1", false, &[3], &[1, 1, 1])),
    ]);
    for (name, classes) in [
        ("single", &b"{\"0\": 1, \"2\": 0}"[..]),
        ("several", b"{\"0\": [1, 0], \"1\": [0, 0], \"2\": [1, 1]}"),
    ] {
        let files: [(&str, &[u8]); 4] = [
            ("adj_full.npz", &adjacency),
            ("feats.npy", &ones_of(3)),
            ("class_map.json", classes),
            ("role.json", b"{\"tr\": [0], \"te\": [2]}"),
        ];
        add("import_graphsaint", name, join("normalize=standard", &files));
    }
}

/// Edge lists as text, arrays and in the formats of other programs.
fn edge_lists(add: &mut impl FnMut(&'static str, &str, Vec<u8>)) {
    let text: [(&str, &[u8]); 4] = [
        ("edges.csv", b"from,to\n0,1\n1,2\n2,2\n"),
        ("features.csv", b"1.0,2.0\n3.0,-4e-3\n0,0\n"),
        ("labels.csv", b"0\n1\n-1\n"),
        ("split.json", b"{\"train\": [0], \"val\": [1]}"),
    ];
    add("import_edges", "text", join("undirected largest-component", &text));
    let packed: [(&str, &[u8]); 3] = [
        ("edges.txt.gz", b"# comment\n7\t90\n90 18446744073709551615\n"),
        ("labels.csv", b"1,0\n0,0\n1,1\n"),
        ("train.txt", b"7\n90\n"),
    ];
    add("import_edges", "compact", join("compact-ids", &packed));
    let arrays: [(&str, &[u8]); 5] = [
        ("edges.npy", &numbers(&[0i64, 1, 2, 1, 2, 2], &[2, 3])),
        ("features.npy", &ones_of(3)),
        ("labels.npy", &numbers(&[0i64, 1, 1], &[3, 1])),
        ("train.npy", &array("|b1", false, &[3], &[1, 0, 1])),
        ("valid.npy", &numbers(&[1i32], &[1])),
    ];
    add("import_edges", "arrays", join("split=random:0.5,0.25,0.25", &arrays));
    add(
        "import_edges",
        "metis",
        join("source=edges.graph", &[("edges.graph", b"% c\n3 2 001\n2 5 3 1\n1 5\n1 1\n")]),
    );
    add("import_edges", "webgraph", join("source=edges.graph-txt", &[("edges.graph-txt", b"3\n1 2\n\n0\n")]));
    add(
        "import_edges",
        "snap",
        join("source=edges.txt", &[("edges.txt", b"# Nodes: 3 Edges: 2\n0\t1\n1\t2\n")]),
    );
}

/// Directories of GNNLab and of social networks.
fn edge_directories(add: &mut impl FnMut(&'static str, &str, Vec<u8>)) {
    let words = |words: &[u32]| -> Vec<u8> { bytemuck::cast_slice(words).to_vec() };
    let gnnlab: [(&str, &[u8]); 8] = [
        (
            "meta.txt",
            b"NUM_NODE 3\nNUM_EDGE 3\nFEAT_DIM 1\nNUM_CLASS 2\nNUM_TRAIN_SET 1\nNUM_VALID_SET 1\n\
              NUM_TEST_SET 1\n",
        ),
        ("indptr.bin", &words(&[0, 1, 2, 3])),
        ("indices.bin", &words(&[1, 2, 2])),
        ("feat.bin", &words(&[0, 0, 0])),
        ("label.bin", &words(&[1, 0, 0, 0, 1, 0])),
        ("train_set.bin", &words(&[0])),
        ("valid_set.bin", &words(&[1])),
        ("test_set.bin", &words(&[2])),
    ];
    add("import_edges", "gnnlab", join("", &gnnlab));
    let social: [(&str, &[u8]); 4] = [
        ("edges.csv", b"1,2\n2,3\n"),
        ("nodes.csv", b"1\n2\n3\n"),
        ("group-edges.csv", b"1,1\n3,2\n"),
        ("meta.json", br#"{"name": "t", "nodes": 3, "edges": 2, "classes": 2, "graphs": [{"name": "a", "nodes": {"start": 0, "end": 3}}]}"#),
    ];
    add("import_edges", "social", join("first-id=1", &social));
}

/// Edge lists with weights, and with a given number of nodes.
fn edge_options(add: &mut impl FnMut(&'static str, &str, Vec<u8>)) {
    add(
        "import_edges",
        "weighted",
        join("undirected", &[("edges.csv", b"from,to,weight\n0,1,0.5\n1,0,2e-3\n2,1,7\n")]),
    );
    add(
        "import_edges",
        "third-column",
        join("weights=3 keep-duplicates", &[("edges.txt", b"0 1 0.5 x\n0\t1 1.25\n")]),
    );
    add("import_edges", "counted", join("num-nodes=9", &[("edges.txt", b"0 1\n8 3\n")]));
}

/// OGB's directories, as text and as arrays.
fn ogb(add: &mut impl FnMut(&'static str, &str, Vec<u8>)) {
    let text: [(&str, &[u8]); 8] = [
        ("raw/num-node-list.csv.gz", b"4\n"),
        ("raw/num-edge-list.csv.gz", b"3\n"),
        ("raw/edge.csv.gz", b"0,1\n1,2\n3,3\n"),
        ("raw/node-feat.csv.gz", b"1,2\n3,4\n5,-6e-1\n7,8\n"),
        ("raw/node-label.csv.gz", b"0\n2\nnan\n1.0\n"),
        ("split/a/train.csv.gz", b"1\n"),
        ("split/a/valid.csv.gz", b"0\n"),
        ("split/b/train.csv.gz", b"3\n0\n"),
    ];
    add("import_ogb", "text", join("split=given:1 undirected", &text));
    let mut several = text;
    several[4].1 = b"1,0\n0,0\n1,1\n0,1\n";
    add("import_ogb", "several", join("", &several));
    let edges = numbers(&[0i64, 1, 2, 1, 2, 2], &[2, 3]);
    let data = members(&[
        ("edge_index.npy", &edges),
        ("num_nodes_list.npy", &numbers(&[3i64], &[1])),
        ("node_feat.npy", &ones_of(3)),
    ]);
    let labels = members(&[("node_label.npy", &numbers(&[0f32, f32::NAN, 1.0], &[3, 1]))]);
    add("import_ogb", "binary", join("", &[("raw/data.npz", &data), ("raw/node-label.npz", &labels)]));
}

/// GraphSAGE's files, by prefix and in parts.
fn graphsage(add: &mut impl FnMut(&'static str, &str, Vec<u8>)) {
    let graph = br#"{"directed": false, "graph": {}, "nodes": [{"id": "a", "test": false, "val": false},
        {"id": "b", "test": false, "val": true}, {"id": "?"}, {"id": "c", "test": true, "val": false}],
        "links": [{"source": 0, "target": 3}, {"source": 1, "target": 1}, {"source": 2, "target": 0}]}"#;
    let prefix: [(&str, &[u8]); 4] = [
        ("x-G.json", graph),
        ("x-id_map.json", br#"{"c": 0, "a": 1, "b": 2}"#),
        ("x-class_map.json", br#"{"a": 1, "b": 0, "c": 2}"#),
        ("x-feats.npy", &ones_of(3)),
    ];
    add("import_graphsage", "prefix", join("", &prefix));
    let sets: [(&str, &[u8]); 2] = [
        (
            "x-G.json",
            br#"{"nodes": [{"id": 7}, {"id": 9}], "edges": [{"source": 7, "target": 9}], "directed": true}"#,
        ),
        ("x-class_map.json", br#"{"7": [1, 0], "9": [0, 0]}"#),
    ];
    add("import_graphsage", "sets", join("", &sets));
    let part = br#"{"nodes": [{"id": 0}, {"id": 1}], "links": [{"source": 0, "target": 1}]}"#;
    let (labels, ids) = (numbers(&[0i64, 1], &[2, 1]), numbers(&[1i64, 1], &[2]));
    let other = numbers(&[2i64, 3], &[2]);
    let lone = br#"{"nodes": [{"id": 0}, {"id": 1}], "links": []}"#;
    let parts: [(&str, &[u8]); 8] = [
        ("train_graph.json", part),
        ("train_graph_id.npy", &ids),
        ("train_feats.npy", &ones_of(2)),
        ("train_labels.npy", &labels),
        ("valid_graph.json", lone),
        ("valid_graph_id.npy", &other),
        ("valid_feats.npy", &ones_of(2)),
        ("valid_labels.npy", &labels),
    ];
    add("import_graphsage", "parts", join("", &parts));
}

/// MUSAE's files of Twitch and Facebook.
fn musae(add: &mut impl FnMut(&'static str, &str, Vec<u8>)) {
    let twitch: [(&str, &[u8]); 4] = [
        ("musae_a_edges.csv", b"from,to\n0,2\n2,1\n"),
        ("musae_a_features.json", br#"{"2": [4, 0, 4], "0": [], "1": [1]}"#),
        (
            "musae_a_target.csv",
            b"id,days,mature,views,partner,new_id\n70,1,True,5,False,2\n\
              71,1,False,5,False,0\n9,1,True,5,False,1\n",
        ),
        ("splits.json", br#"[{"train": [2], "valid": [0], "test": [1]}]"#),
    ];
    add("import_musae", "twitch", join("", &twitch));
    let pages: [(&str, &[u8]); 3] = [
        ("musae_a_edges.csv", b"id_1,id_2\n0,1\n"),
        ("musae_a_features.json", br#"{"0": [2], "1": [0, 1]}"#),
        ("musae_a_target.csv", b"id,facebook_id,page_name,page_type\n0,5,\"a, b\",tvshow\n1,6,c,company\n"),
    ];
    add("import_musae", "pages", join("", &pages));
}

/// GraphBolt's directories.
fn graphbolt(add: &mut impl FnMut(&'static str, &str, Vec<u8>)) {
    let yaml = b"dataset_name: tiny\ngraph:\n  nodes:\n    - num: 3\n  edges:\n    - format: csv\n\
        \x20     path: edges.csv\n\
        feature_data:\n  - domain: node\n    name: feat\n    format: numpy\n    path: feat.npy\n\
        tasks:\n  - name: node_classification\n    num_classes: 2\n    train_set:\n      - data:\n\
        \x20         - {name: seeds, format: numpy, path: train.npy}\n\
        \x20         - {name: labels, format: numpy, path: train_labels.npy}\n";
    let files: [(&str, &[u8]); 5] = [
        ("metadata.yaml", yaml),
        ("edges.csv", b"0,1\n1,2\n"),
        ("feat.npy", &ones_of(3)),
        ("train.npy", &numbers(&[0i64, 2], &[2])),
        ("train_labels.npy", &numbers(&[0i64, 1], &[2])),
    ];
    add("import_graphbolt", "csv", join("", &files));
    let edges = numbers(&[0i64, 1, 2, 1, 2, 2], &[2, 3]);
    let yaml = b"graph:\n  nodes: [{num: 3}]\n  edges: [{format: numpy, path: edges.npy}]\n\
        feature_data:\n  - {domain: node, name: label, format: numpy, path: label.npy}\n";
    let files: [(&str, &[u8]); 3] = [
        ("metadata.yaml", yaml),
        ("edges.npy", &edges),
        ("label.npy", &numbers(&[0u8, 1, 1, 1, 0, 0], &[3, 2])),
    ];
    add("import_graphbolt", "arrays", join("normalize=none", &files));
}

/// Facebook100's files: two schools of two people, one packed.
fn facebook100(add: &mut impl FnMut(&'static str, &str, Vec<u8>)) -> Result<()> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let element = |kind: u32, data: &[u8]| {
        let mut out = [&words(&[kind, data.len() as u32]), data].concat();
        out.resize(out.len().next_multiple_of(8), 0);
        out
    };
    // class, capacity, shape, name, and what follows
    let matrix = |class: u32, capacity: u32, shape: [u32; 2], name: &str, rest: &[Vec<u8>]| {
        let head = [words(&[class, capacity]), words(&shape)].map(|words| element(6, &words)).concat();
        element(14, &[head, element(1, name.as_bytes()), rest.concat()].concat())
    };
    let ones: Vec<u8> = [1f64.to_le_bytes(); 2].concat();
    let parts = [element(5, &words(&[1, 0])), element(5, &words(&[0, 1, 2])), element(9, &ones)];
    let adjacency = matrix(5, 2, [2, 2], "A", &parts);
    let codes: Vec<u8> = [1u16, 2, 1, 2, 9, 0, 0, 0, 5, 6, 2009, 0, 0, 300]
        .iter()
        .flat_map(|code| code.to_le_bytes())
        .collect();
    let info = matrix(11, 0, [2, 7], "local_info", &[element(4, &codes)]);
    let mut header = b"MATLAB 5.0 MAT-file".to_vec();
    header.resize(124, b' ');
    header.extend(b"\0\x01IM");
    let packed = |variable: &[u8]| -> Result<Vec<u8>> {
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
        zlib.write_all(variable)?;
        let data = zlib.finish()?;
        Ok([words(&[15, data.len() as u32]), data].concat())
    };
    let plain = [&header[..], &adjacency, &info].concat();
    let deflated = [&header[..], &packed(&adjacency)?, &packed(&info)?].concat();
    add("import_facebook100", "one", join("split=random:0.5,0.5,0 normalize=rows", &[("a.mat", &plain)]));
    let both: [(&str, &[u8]); 2] = [("a.mat", &plain), ("b.mat", &deflated)];
    add("import_facebook100", "two", join("split=graphs:a/b/", &both));
    Ok(())
}

/// `rows x 1` ones.
fn ones_of(rows: usize) -> Vec<u8> {
    numbers(&vec![1f32; rows], &[rows, 1])
}
