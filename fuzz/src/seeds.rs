//! Seeds that are generated rather than cut from real files: small inputs that their readers
//! accept.

#[cfg(feature = "fetch")]
mod downloads;
#[cfg(feature = "parquet")]
mod tables;

use std::{fs, io::Write, path::Path};

use flate2::{Compression, write::ZlibEncoder};
use graphmill_core::{
    Buffer, EdgeOptions, Features, Labels, SparseRows, Split, build, features::FeatureData,
};
use graphmill_data::{
    Dataset,
    dataset::{NamedGraph, Normalization},
    npy,
};
use half::f16;

use crate::input::{join, members};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Seed: its target, its name, its bytes.
pub type Seed = (&'static str, String, Vec<u8>);

/// Generates all seeds; files are written to the empty directory `dir` on the way.
///
/// # Errors
/// `dir` cannot be written.
pub fn all(dir: &Path) -> Result<Vec<Seed>> {
    let mut seeds = Vec::new();
    let mut add = |target: &'static str, name: &str, bytes: Vec<u8>| {
        seeds.push((target, format!("made-{name}"), bytes));
    };
    let arrays = [
        ("f4", array("<f4", false, &[3, 2], &[0; 24])),
        ("f2", array("<f2", false, &[2], &[0, 60, 0, 64])),
        ("big", array(">i8", false, &[1], &[0, 0, 0, 0, 0, 0, 0, 5])),
        ("fortran", array("<i4", true, &[2, 2], &[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0])),
        ("bool", array("|b1", false, &[3], &[1, 0, 1])),
        ("single", array("<f8", false, &[], &[0; 8])),
        ("empty", array("|u1", false, &[0, 7], &[])),
    ];
    for (name, bytes) in &arrays {
        add("npy_header", name, bytes.clone());
        add("npy", name, bytes.clone());
        add("npz", name, join("", &[("a.npz", &members(&[("a.npy", bytes), ("b.npy", &arrays[4].1)]))]));
    }
    let text = [("narrow", array("|S3", false, &[], b"csr")), ("wide", array("<U1", false, &[], b"c\0\0\0"))];
    for (name, bytes) in &text {
        add("npz", name, join("", &[("a.npz", &members(&[("format.npy", bytes)]))]));
    }
    native(dir, &mut add)?;
    import(&mut add);
    import_directories(&mut add);
    import_schools(&mut add)?;
    resume(&mut add);
    for (i, rule) in ["given:0", "planetoid:20,30", "random:0.5,0.25,0.25", "standard", "graphs:a/b,c/"]
        .into_iter()
        .enumerate()
    {
        add("rules", &i.to_string(), rule.as_bytes().to_vec());
    }
    #[cfg(feature = "parquet")]
    tables::add(&mut add)?;
    #[cfg(feature = "fetch")]
    downloads::add(&mut add)?;
    #[cfg(feature = "engine")]
    engine(dir, &mut add)?;
    Ok(seeds)
}

/// `.npy` file.
fn array(descr: &str, fortran: bool, shape: &[usize], data: &[u8]) -> Vec<u8> {
    let axes: String = shape.iter().map(|n| format!("{n},")).collect();
    let fortran = if fortran { "True" } else { "False" };
    let text = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': ({axes}), }}");
    let aligned = (10 + text.len() + 1).next_multiple_of(16); // as NumPy before 1.14; later ones align to 64
    let text = format!("{text:width$}\n", width = aligned - 11);
    [b"\x93NUMPY\x01\0", &(text.len() as u16).to_le_bytes()[..], text.as_bytes(), data].concat()
}

fn numbers<T: npy::Element>(data: &[T], shape: &[usize]) -> Vec<u8> {
    array(&T::DTYPE.to_string(), false, shape, bytemuck::cast_slice(data))
}

/// Files of a directory, by their paths in `root`.
fn files(root: &Path, dir: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            all.extend(files(root, &path)?);
        } else {
            all.push((path.strip_prefix(root)?.to_string_lossy().into_owned(), fs::read(&path)?));
        }
    }
    all.sort();
    Ok(all)
}

fn joined(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (&name[..], &bytes[..])).collect();
    join("", &files)
}

/// Three nodes; single labels, then several, weights and 16-bit features.
fn native(dir: &Path, add: &mut impl FnMut(&'static str, &str, Vec<u8>)) -> Result<()> {
    let ids = |ids: &[u32]| -> Buffer<u32> { ids.to_vec().into() };
    let graph = build(3, &[0, 1, 2], &[1, 2, 2], EdgeOptions::DIRECTED)?;
    let single = Dataset {
        name: "tiny".into(),
        graph: graph.clone(),
        features: Features::f32(2, vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
        labels: Labels::Single { class: vec![0, 1, -1].into(), classes: 2 },
        split: Split { train: ids(&[0]), valid: ids(&[1]), test: ids(&[]) },
        metric: Some("accuracy".into()),
        ..Dataset::default()
    };
    let several = Dataset {
        graph: graph.with_edge_weight(vec![0.5f32, 1.0, 2.0].into())?,
        labels: Labels::Multi { member: vec![0, 1, 1, 1, 0, 0].into(), classes: 2 },
        features: Features::default(),
        metric: None,
        ..single.clone()
    };
    let union = Dataset {
        graph: build(3, &[0], &[1], EdgeOptions::DIRECTED)?,
        graphs: vec![NamedGraph::new("a", 0..2), NamedGraph::new("b", 2..3)],
        features: Features { dim: 1, data: FeatureData::F16(vec![f16::ONE; 3].into()) },
        ..single.clone()
    };
    let table = SparseRows::from_dense(2, &[0.0, 1.0, 0.0, 0.0, 2.5, 3.0])?;
    let sparse = Dataset { features: Features { dim: 2, data: FeatureData::Csr(table) }, ..single.clone() };
    let scaled = Dataset {
        features: Features::f32(1, vec![0.5, -0.5, 2.0]),
        normalization: Some(Normalization::Standard { mean: Some(vec![1.5]), deviation: vec![0.25] }),
        ..single.clone()
    };
    let all =
        [("single", single), ("several", several), ("union", union), ("sparse", sparse), ("scaled", scaled)];
    for (name, dataset) in all {
        let place = dir.join(name);
        dataset.save(&place)?;
        let files = files(&place, &place)?;
        add("native", name, joined(&files));
        let manifest = files.iter().find(|(name, _)| name == "graphmill.json").ok_or("no manifest")?;
        add("manifest", name, manifest.1.clone());
        let text = String::from_utf8(manifest.1.clone())?;
        let at = text.rfind("\"checksum\": \"").ok_or("no checksum")? + 13;
        let unsigned = [&text[..at], super::targets::manifest::UNSIGNED, &text[at + 32..]].concat();
        add("manifest", &format!("{name}-unsigned"), unsigned.into_bytes());
    }
    Ok(())
}

/// Sources of the importers.
// Reason for its length: a table, one row per seed.
fn import(add: &mut impl FnMut(&'static str, &str, Vec<u8>)) {
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
    let words = |words: &[u32]| -> Vec<u8> { bytemuck::cast_slice(words).to_vec() };
    let gnnlab: [(&str, &[u8]); 8] = [
        (
            "meta.txt",
            b"NUM_NODE 3\nNUM_EDGE 3\nFEAT_DIM 1\nNUM_CLASS 2\nNUM_TRAIN_SET 1\nNUM_VALID_SET \
            1\nNUM_TEST_SET 1\n",
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

/// Sources of ogb, graphsage and graphbolt.
// Reason for its length: a table, one row per seed.
fn import_directories(add: &mut impl FnMut(&'static str, &str, Vec<u8>)) {
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

    let yaml = b"dataset_name: tiny\ngraph:\n  nodes:\n    - num: 3\n  edges:\n    - format: csv\n      \
        path: edges.csv\n\
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
    let yaml = b"graph:\n  nodes: [{num: 3}]\n  edges: [{format: numpy, path: edges.npy}]\n\
        feature_data:\n  - {domain: node, name: label, format: numpy, path: label.npy}\n";
    let files: [(&str, &[u8]); 3] = [
        ("metadata.yaml", yaml),
        ("edges.npy", &edges),
        ("label.npy", &numbers(&[0u8, 1, 1, 1, 0, 0], &[3, 2])),
    ];
    add("import_graphbolt", "arrays", join("normalize=none", &files));
}

/// Sources of facebook100: two schools of two people, one compressed.
fn import_schools(add: &mut impl FnMut(&'static str, &str, Vec<u8>)) -> Result<()> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let element = |kind: u32, data: &[u8]| {
        let mut out = [&words(&[kind, data.len() as u32]), data].concat();
        out.resize(out.len().next_multiple_of(8), 0);
        out
    };
    // Class, capacity for entries, shape, name, and the rest.
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

/// Three edges in two parts, collected but not sorted yet, and then with the first part sorted.
fn resume(add: &mut impl FnMut(&'static str, &str, Vec<u8>)) {
    let keys: Vec<u8> =
        [(0u64, 1u64), (3, 0), (2, 5)].iter().flat_map(|(u, v)| (v << 32 | u).to_le_bytes()).collect();
    let edges = br#"{"splitters":[8589934592],"symmetric":false,"weighted":false,"drop_self_loops":false,"blocks":[[0,2],[1,1]],"edges":3,"largest":5,"complete":true,"counts":{"self_loops":0,"dropped":0}}"#;
    let mut files: Vec<(&str, &[u8])> = vec![
        ("work/work.json", br#"{"format":"graphmill-scratch-1","work":"fuzz"}"#),
        ("work/scratch-edges.json", edges),
        ("work/scratch-edges.bin", &keys),
    ];
    add("resume", "collected", join("", &files));
    let indptr = array("<u8", false, &[2], &[0u64.to_le_bytes(), 1u64.to_le_bytes()].concat());
    let indices = array("<u4", false, &[2], &[3u32.to_le_bytes(), 0u32.to_le_bytes()].concat());
    let padded = |array: &[u8], data: usize| -> Vec<u8> {
        let (head, data) = array.split_at(array.len() - data);
        let mut head = head.to_vec();
        head.resize(128, 0); // the writer's header, which is filled in at the end
        [&head, data].concat()
    };
    let (indptr, indices) = (padded(&indptr, 16), padded(&indices, 8));
    files.extend([
        ("work/scratch-csc.json", &br#"{"parts":1,"edges":2,"rows":2}"#[..]),
        ("work/scratch-indptr.npy", &indptr),
        ("work/scratch-indptr.json", br#"{"columns":null,"dtype":"<u8","values":2}"#),
        ("work/scratch-indices.npy", &indices),
        ("work/scratch-indices.json", br#"{"columns":null,"dtype":"<u4","values":2}"#),
    ]);
    add("resume", "sorting", join("", &files));
}

/// Inputs of the engine: options, files of a run, lists of nodes.
#[cfg(feature = "engine")]
fn engine(dir: &Path, add: &mut impl FnMut(&'static str, &str, Vec<u8>)) -> Result<()> {
    use graphmill_engine::{
        TrainConfig,
        checkpoint::{save_model, save_tensors},
        record::{EpochRecord, RunDir, Summary},
    };

    use crate::targets::safetensors::model;

    add(
        "options",
        "train",
        b"layers=3\nlr=0.01\nseed=18446744073709551615\nmodel=gat\ninput-layer=on".to_vec(),
    );
    add("options", "fanout", b"fanout=15,10,-1\ndropout=0.25\nbatch-size=0".to_vec());
    let nodes = array("<i8", false, &[2], &[[7, 0, 0, 0, 0, 0, 0, 0], [0; 8]].concat());
    add("nodes", "text", join("", &[("a.txt", b"3\n# none\n 99\n\n")]));
    add("nodes", "array", join("", &[("a.npy", &nodes)]));
    let toml = TrainConfig::default().to_toml();
    add("config", "default", toml.clone().into_bytes());
    add("config", "short", b"fanout = [5, 5, 5]\nmodel = \"gat\"\nlr = 1e-2\ninput_layer = true\n".to_vec());
    let file = dir.join("model.safetensors");
    save_model(&file, &model())?;
    add("safetensors", "model", fs::read(&file)?);

    let place = dir.join("saved");
    fs::create_dir(&place)?;
    let tensor = ("w".to_string(), [1, 2], &[1.0f32, 2.0][..]);
    let state = serde_json::json!({ "epoch": 3, "best": null });
    save_tensors(
        &place.join("checkpoint"),
        std::slice::from_ref(&tensor),
        &[],
        std::slice::from_ref(&tensor),
        7,
        &[("3.0".to_string(), [1, 2], &[0.5, -1.0][..])],
        &state,
    )?;
    add("checkpoint", "state", joined(&files(&place, &place)?));

    let place = dir.join("run");
    let run = RunDir::create(&place)?;
    run.write_config(&TrainConfig::default())?;
    let epochs: Vec<EpochRecord> = (1..=2)
        .map(|epoch| EpochRecord {
            epoch,
            loss: 0.5,
            valid_score: Some(0.25),
            seconds: 1.0,
            ..Default::default()
        })
        .collect();
    for epoch in &epochs {
        run.append_epoch(epoch)?;
    }
    let short = |all: Vec<(String, Vec<u8>)>| -> Vec<(String, Vec<u8>)> {
        let known = |name: &str| ["config.toml", "metrics.jsonl", "summary.json"].contains(&name);
        all.into_iter()
            .filter(|(name, _)| known(name))
            .map(
                |(name, bytes)| {
                    if name == "config.toml" { (name, b"hidden = 8\n".to_vec()) } else { (name, bytes) }
                },
            )
            .collect()
    };
    add("run_dir", "going", joined(&short(files(&place, &place)?)));
    run.write_summary(&Summary { epochs, ..Summary::default() })?;
    add("run_dir", "finished", joined(&short(files(&place, &place)?)));
    Ok(())
}
