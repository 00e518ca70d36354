//! Seeds of the importers of typed graphs, links and events: small sources of every format.

use super::{Result, array, numbers};
use crate::input::{join, members};

type Add<'a> = dyn FnMut(&'static str, &str, Vec<u8>) + 'a;

/// Adds the sources of all these importers.
///
/// # Errors
/// A source cannot be packed.
pub(super) fn add(add: &mut impl FnMut(&'static str, &str, Vec<u8>)) -> Result<()> {
    tables(add);
    ogb(add);
    graphs_of_triples(add);
    streams(add);
    matrices(add);
    torch(add);
    frameworks(add);
    Ok(())
}

/// HGB and HNE.
fn tables(add: &mut Add) {
    const INFO: &[u8] = br#"{"node.dat": {"node type": {"0": "a", "1": "b"}},
        "link.dat": {"link type": {"0": {"start": "0", "end": "1", "meaning": "a-b"}}},
        "label.dat": {"node type": {"0": {"0": "x", "1": NaN}}}}"#;
    let files: [(&str, &[u8]); 5] = [
        ("node.dat", b"0\tann\t0\t0,1.5\n1\tbob\t0\t2,0.0\n2\t\t1\n"),
        ("link.dat", b"0\t2\t0\t1.0\n1\t2\t0\t2\n2\t0\t1\t1\n"),
        ("label.dat", b"0\tann\t0\t1\n"),
        ("label.dat.test", b"1\tbob\t0\t0,1\n"),
        ("info.dat", INFO),
    ];
    add("import_hgb", "plain", join("valid-fraction=0.5 add-reverses", &files));
    let packed: Vec<(String, &[u8])> =
        files.iter().map(|(name, bytes)| (format!("A/{name}"), *bytes)).collect();
    let packed: Vec<(&str, &[u8])> = packed.iter().map(|(name, bytes)| (&name[..], *bytes)).collect();
    add("archive", "zip", join("", &[("a.zip", &members(&packed))]));
    add("archive", "tar", join("", &[("a.tar", &tar(&packed))]));
    let files: [(&str, &[u8]); 6] = [
        ("node.dat", b"0\tann\t0\n1\tbob\t0\n2\tcat\t1\n"),
        ("link.dat", b"0\t1\t0\t5\n1\t1\t0\t1\n0\t2\t1\t2\n"),
        ("label.dat", b"0\tann\t0\t1\n"),
        ("label.dat.test", b"1\tbob\t0\t0\n"),
        ("link.dat.test", b"1\t0\t1\n0\t0\t0\n"),
        (
            "info.dat",
            b"TYPE\tMEANING\n0\tA\n1\tB\nLINK\tSTART\tEND\tMEANING\n0\t0\t0\tA-and-A\n\
                Targeting: Link Type (0,0,0)\nTYPE\tCLASS\tMEANING\n0\t0\tx\n",
        ),
    ];
    add("import_hne", "plain", join("no-self-loops", &files));
}

/// OGB's directories.
fn ogb(add: &mut Add) {
    let files: [(&str, &[u8]); 12] = [
        ("raw/num-node-dict.csv", b"a,b\n2,1\n"),
        ("raw/triplet-type-list.csv", b"a,r,b\n"),
        ("raw/relations/a___r___b/edge.csv.gz", b"0,0\n1,0\n1,0\n"),
        ("raw/relations/a___r___b/num-edge-list.csv", b"3\n"),
        ("raw/relations/a___r___b/edge-feat.csv", b"1,2\n0,0\n3,4\n"),
        ("raw/node-feat/a/node-feat.csv", b"1.5,0\n0,-2\n"),
        ("raw/node_year/a/node_year.csv", b"1999\n2001\n"),
        ("raw/node-label/a/node-label.csv", b"1\nnan\n"),
        ("raw/nodetype-has-label.csv", b"a,b\nTrue,False\n"),
        ("split/s/a/train.csv", b"0\n"),
        ("mapping/a.csv", b"idx,name\n0,x\n1,y\n"),
        ("mapping/label2x.csv", b"label,name\n0,p\n1,q\n"),
    ];
    add("import_ogb_hetero", "plain", join("add-reverses", &files));
    let pairs = numbers(&[0i64, 1, 1, 2], &[2, 2]);
    let npz = members(&[("edge.npy", &pairs), ("edge_neg.npy", &pairs)]);
    let negatives = numbers(&[0i32, 1], &[1, 2]);
    let one = numbers(&[1i32], &[1]);
    let ranked =
        members(&[("source_node.npy", &one), ("target_node.npy", &one), ("target_node_neg.npy", &negatives)]);
    let files: [(&str, &[u8]); 7] = [
        ("raw/edge.csv", b"0,1\n1,2\n"),
        ("raw/num-node-list.csv", b"3\n"),
        ("raw/num-edge-list.csv", b"2\n"),
        ("raw/edge_weight.csv", b"1\n2\n"),
        ("raw/edge_year.csv", b"2000\n2001\n"),
        ("split/s/test.npz", &npz),
        ("mapping/nodeidx2x.csv", b"id,name\n0,x\n1,y\n2,z\n"),
    ];
    add("import_ogb_links", "pairs", join("undirected", &files));
    add("import_ogb_links", "ranked", join("", &[files[0], files[1], ("split_npz/test.npz", &ranked)]));
    let files: [(&str, &[u8]); 8] = [
        ("raw/num-node-list.csv", b"3\n"),
        ("raw/num-edge-list.csv", b"2\n"),
        ("raw/edge.csv", b"0,1\n2,1\n"),
        ("raw/edge-feat.csv.gz", b"0.5,0\n0,0.25\n"),
        ("raw/node-feat.csv", b"1,2\n0,0\n3,4\n"),
        ("raw/node-label.csv", b"0,1\n1,1\n0,0\n"),
        ("split/s/train.csv", b"0\n1\n"),
        ("split/s/test.csv", b"2\n"),
    ];
    add("import_ogb_nodes", "plain", join("undirected", &files));
}

/// Knowledge graphs.
fn graphs_of_triples(add: &mut Add) {
    let files: [(&str, &[u8]); 5] = [
        ("train.txt", b"a\tr\tb\nb\ts\tb\na\tr\tc\n"),
        ("valid.txt", b"a\ts\tc\n"),
        ("test.txt", b"d\tr\ta\n"),
        ("test_negatives.txt", b"d\tr\tb\n"),
        ("entity2types.json", br#"{"a": ["t"], "e": ["u"]}"#),
    ];
    add("import_triples", "plain", join("no-self-loops", &files));
    let files: [(&str, &[u8]); 3] = [
        (
            "a.nt",
            b"<http://x/a> <http://x/p> <http://x/b> .\n\
                <http://x/b> <http://x/q> \"1\"^^<http://x/int> .\n# c\n_:b0 <http://y/p> \"t\"@en .\n",
        ),
        ("trainingSet.tsv", b"person\tid\tlabel_x\nhttp://x/a\t1\tc\n"),
        ("testSet.tsv", b"person\tid\tlabel_x\nhttp://x/b\t2\td\n"),
    ];
    add("import_rdf", "plain", join("add-reverses", &files));
    add("import_rdf", "bare", join("no-literals valid-fraction=0", &files));
}

/// Interactions and events.
fn streams(add: &mut Add) {
    let lists: [(&str, &[u8]); 2] = [("train.txt", b"0 1 2\n1 0\n2\n"), ("test.txt", b"0 0\n1 3\n")];
    add("import_interactions", "lists", join("", &lists));
    let matrix = members(&[
        ("indptr.npy", &numbers(&[0i32, 1, 2, 4], &[4])),
        ("indices.npy", &numbers(&[2i32, 2, 0, 1], &[4])),
        ("data.npy", &numbers(&[1f32; 4], &[4])),
        ("shape.npy", &numbers(&[3i64, 3], &[2])),
    ]);
    add("import_interactions", "matrix", join("", &[("s_adj_mat.npz", &matrix), ("test.txt", b"0 0\n")]));
    let lists: [(&str, &[u8]); 2] =
        [("x-a.txt", b"# c\n1 2 30\n1 9 10\n1 2 10\n"), ("x-b.csv", b"1,2,-5,3.25\n2,1,7,4\n")];
    add("import_temporal", "several", join("", &lists));
    add("import_temporal", "one", join("test-fraction=0.4", &[("x-a.txt", b"1 8 0\n2 9 36\n2 9 77\n")]));
    let features = numbers(&[0f32, 0., 1., 2., 3., 4.], &[3, 2]);
    let nodes = numbers(&[0f32, 1., 2., 3.], &[4, 1]);
    let files: [(&str, &[u8]); 3] = [
        ("ml_a.csv", b",u,i,ts,label,idx\n0,1,3,0.5,0.0,1\n1,2,3,2.0,1.0,2\n"),
        ("ml_a.npy", &features),
        ("ml_a_node.npy.gz", &nodes),
    ];
    add("import_events", "ml", join("", &files));
    let log = b"user_id,item_id,timestamp,state_label,f\n0,0,0.0,0,0.1,0.2\n1,0,36.0,1,0,0.5\n";
    add("import_events", "jodie", join("valid-fraction=0.2", &[("ml_a.csv", log)]));
    tgb(add);
}

/// Sets of the Temporal Graph Benchmark.
fn tgb(add: &mut Add) {
    // {(0, 1, 3): [2]} with the numbers of the last event
    let negatives: &[u8] = b"\x80\x02}(K\0K\x01K\x03\x87](K\x02eu.";
    let log: &[u8] = b"user_id,item_id,timestamp,state_label,f\n0,0,1.0,0,0.1\n0,1,2.5,1,0.5\n0,0,3,0,0\n";
    let files = [("tgbl-wiki_edgelist.csv", log), ("tgbl-wiki_test_ns.pkl", negatives)];
    add("import_tgb", "log", join("", &files));
    let list: &[u8] = b"day,src,dst,callsign,typecode\n1,a,b,AB1,A320\n2,b,c,,LONGNAMES\n3,a,b,x,y\n";
    let airports: &[u8] = b"code,type,continent,region,longitude,latitude\na,large,EU,DE-HE,8.5,50\n";
    let files = [
        ("tgbl-flight_edgelist_v2.csv", list),
        ("tgbl-flight_test_ns_v2.pkl", negatives),
        ("airport_node_feat_v2.csv", airports),
    ];
    add("import_tgb", "flights", join("add-reverses", &files));
}

/// Sparse matrices and MATLAB files.
fn matrices(add: &mut Add) {
    let csr = members(&[
        ("indptr.npy", &numbers(&[0i32, 1, 2], &[3])),
        ("indices.npy", &numbers(&[1i32, 0], &[2])),
        ("data.npy", &numbers(&[1f64, 2.], &[2])),
        ("shape.npy", &numbers(&[2i64, 2], &[2])),
        ("format.npy", &array("|S3", false, &[], b"csr")),
    ]);
    let coo = members(&[
        ("row.npy", &numbers(&[1i32, 0], &[2])),
        ("col.npy", &numbers(&[1i32, 0], &[2])),
        ("data.npy", &numbers(&[1f64, 2.], &[2])),
        ("shape.npy", &numbers(&[3i64, 2], &[2])),
    ]);
    let files: [(&str, &[u8]); 8] = [
        ("pa.txt", b"0\t1\n1\t2\n"),
        ("ps.txt", b"0\t0\n1\t0\n"),
        ("p_feat.npz", &csr),
        ("a_feat.npz", &coo),
        ("labels.npy", &numbers(&[0f64, 1.], &[2])),
        ("train_20.npy", &numbers(&[0i64], &[1])),
        ("val_20.npy", &numbers(&[1i64], &[1])),
        ("test_20.npy", &numbers(&[0i64; 0], &[0])),
    ];
    add("import_heco", "plain", join("add-reverses", &files));
    let element = |kind: u32, size: usize, values: &[u64]| {
        let mut data: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()[..size].to_vec()).collect();
        let head = [kind.to_le_bytes(), (data.len() as u32).to_le_bytes()].concat();
        data.resize(data.len().next_multiple_of(8), 0);
        [head, data].concat()
    };
    let file = |class: u64, capacity: u64, shape: &[u64], name: &str, parts: &[Vec<u8>]| {
        let name: Vec<u64> = name.bytes().map(u64::from).collect();
        let head = [element(6, 4, &[class, capacity]), element(5, 4, shape), element(1, 1, &name)].concat();
        let body = [head, parts.concat()].concat();
        let mut out = b"MATLAB 5.0 MAT-file".to_vec();
        out.resize(124, b' ');
        out.extend(b"\x00\x01IM");
        out.extend([14u32.to_le_bytes(), (body.len() as u32).to_le_bytes()].concat());
        out.extend(body);
        out
    };
    let ones = element(9, 8, &[1f64.to_bits(); 6]);
    let net = [element(5, 4, &[1, 2, 0, 2, 0, 1]), element(5, 4, &[0, 2, 4, 6, 6, 6, 6]), ones];
    let net = file(5, 6, &[6, 6], "net", &net);
    add("import_mat_links", "plain", join("test-fraction=0.3", &[("a.mat", &net)]));
    let rating = file(
        6,
        0,
        &[2, 5],
        "rating",
        &[element(9, 8, &[1., 2., 7., 7., 3., 3., 4., 5., 1., 1.].map(f64::to_bits))],
    );
    let trust = file(6, 0, &[1, 2], "trustnetwork", &[element(9, 8, &[2., 9.].map(f64::to_bits))]);
    add(
        "import_ciao",
        "plain",
        join("test-fraction=0.5 add-reverses", &[("rating.mat", &rating), ("trustnetwork.mat", &trust)]),
    );
}

/// Pickle of a dictionary of a tensor of two elements in the storage 0, and a list.
fn program() -> Vec<u8> {
    let text = |s: &str| [&b"X"[..], &(s.len() as u32).to_le_bytes(), s.as_bytes()].concat();
    [
        b"\x80\x02}(".to_vec(),
        text("edge"),
        b"ctorch._utils\n_rebuild_tensor_v2\n((".to_vec(),
        text("storage"),
        b"ctorch\nLongStorage\n".to_vec(),
        text("0"),
        text("cpu"),
        b"K\x02tQK\0K\x02\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR".to_vec(),
        text("n"),
        b"](K\x01K\x02eu.".to_vec(),
    ]
    .concat()
}

/// Files of PyTorch in both forms.
fn torch(add: &mut Add) {
    let data = [1u64.to_le_bytes(), 2u64.to_le_bytes()].concat();
    let zip = crate::pack::zip(&[
        (&b"a/data.pkl"[..], &program()),
        (b"a/byteorder", b"little"),
        (b"a/data/0", &data),
    ]);
    add("torch", "zip", zip);
    let legacy = [
        b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.".to_vec(),
        b"\x80\x02M\xe9\x03.\x80\x02}X\x0d\0\0\0little_endian\x88s.".to_vec(),
        program(),
        b"\x80\x02]X\x01\0\0\x000a.".to_vec(),
        2u64.to_le_bytes().to_vec(),
        data,
    ];
    add("torch", "legacy", legacy.concat());
}

/// Tar archive of these files.
fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, bytes) in files {
        let mut block = [0u8; 512];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[124..135].copy_from_slice(format!("{:011o}", bytes.len()).as_bytes());
        block[148..156].fill(b' ');
        block[156] = b'0';
        block[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = block.iter().map(|&b| u32::from(b)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        out.extend([&block[..], bytes].concat());
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.resize(out.len() + 1024, 0);
    out
}

/// Datasets of GraphBolt, DGL, PyTorch Geometric, MAG240M and IGBH.
fn frameworks(add: &mut Add) {
    let edges = numbers(&[0i64, 1, 2, 1, 2, 0], &[2, 3]);
    let pairs = numbers(&[0i64, 1, 1, 2, 0, 2, 1, 0], &[4, 2]);
    let table = numbers(&[0f32, 1., 2.], &[3, 1]);
    let yaml = b"dataset_name: x
graph:
  nodes: [{type: a, num: 3}]
  edges: [{type: 'a:r:a', format: numpy, path: a.npy}]
feature_data:
  - {domain: node, type: a, name: feat, format: numpy, path: b.npy}
  - {domain: edge, type: 'a:r:a', name: weight, format: numpy, path: b.npy}
tasks:
  - name: t
    num_classes: 2
    train_set: [{type: a, data: [{name: seeds, format: csv, path: d.csv},
      {name: labels, format: csv, path: d.csv}]}]
  - name: links
    train_set: [{type: 'a:r:a', data: [{name: seeds, format: numpy, path: c.npy}]}]
";
    let files: [(&str, &[u8]); 5] = [
        ("metadata.yaml", yaml),
        ("a.npy", &edges),
        ("b.npy", &table),
        ("c.npy", &pairs),
        ("d.csv", b"0\n1\n"),
    ];
    add("import_graphbolt_typed", "plain", join("add-reverses", &files));
    let json =
        br#"{"graph_name": "x", "node_type": ["a"], "num_nodes_per_chunk": [[2, 1]], "edge_type": ["a:r:a"],
        "edges": {"a:r:a": {"format": {"name": "csv", "delimiter": " "}, "data": ["d.csv"]}},
        "node_data": {"a": {"feat": {"format": {"name": "numpy"}, "data": ["b.npy"]},
            "label": {"format": {"name": "numpy"}, "data": ["b.npy"]}}}, "edge_data": {}}"#;
    let files: [(&str, &[u8]); 3] = [("metadata.json", json), ("b.npy", &table), ("d.csv", b"0 1\n1 2\n")];
    add("import_dgl_chunked", "plain", join("", &files));
    let text = |s: &str| [&b"X"[..], &(s.len() as u32).to_le_bytes(), s.as_bytes()].concat();
    let tensor = |key: &str, storage: &str, shape: &[u8]| {
        [
            b"ctorch._utils\n_rebuild_tensor_v2\n((".to_vec(),
            text("storage"),
            format!("ctorch\n{storage}\n").into_bytes(),
            text(key),
            text("cpu"),
            b"K\x04tQK\0".to_vec(),
            shape.to_vec(),
            b"\x89ccollections\nOrderedDict\n)RtR".to_vec(),
        ]
        .concat()
    };
    let ids = tensor("0", "LongStorage", b"K\x02K\x02\x86K\x02K\x01\x86");
    let rows = tensor("1", "FloatStorage", b"K\x02K\x02\x86K\x01K\x02\x86");
    let class = tensor("0", "LongStorage", b"K\x02\x85K\x01\x85");
    let one = [
        b"\x80\x02}(".to_vec(),
        text("edge_index"),
        ids.clone(),
        text("x"),
        rows.clone(),
        text("y"),
        class.clone(),
        b"u.".to_vec(),
    ]
    .concat();
    let several = [
        b"\x80\x02}(".to_vec(),
        text("a"),
        b"}(".to_vec(),
        text("x"),
        rows,
        text("y"),
        class,
        b"u".to_vec(),
        b"(".to_vec(),
        text("a"),
        text("r"),
        text("a"),
        b"t}(".to_vec(),
        text("edge_index"),
        ids,
        b"uu.".to_vec(),
    ]
    .concat();
    let longs: Vec<u8> = [0u64, 1, 1, 0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let floats: Vec<u8> = [0f32, 1., 2., 3.].iter().flat_map(|x| x.to_le_bytes()).collect();
    for (name, program) in [("one", one), ("several", several)] {
        let file = crate::pack::zip(&[
            (&b"a/data.pkl"[..], &program),
            (b"a/data/0", &longs),
            (b"a/data/1", &floats),
        ]);
        add("import_pyg", name, join("", &[("a.pt", &file)]));
    }
    let half = array("<f2", false, &[3, 1], &[0, 60, 0, 64, 0, 0]);
    let files: [(&str, &[u8]); 4] = [
        ("processed/paper/node_feat.npy", &half),
        ("processed/paper/node_label.npy", &numbers(&[0f32, f32::NAN, 1.], &[3])),
        ("processed/paper/node_year.npy", &numbers(&[1999i64, 2000, 2001], &[3])),
        ("processed/author___writes___paper/edge_index.npy", &numbers(&[0i64, 1, 2, 2], &[2, 2])),
    ];
    add("import_mag240m", "plain", join("", &files));
    let files: [(&str, &[u8]); 3] = [
        ("processed/paper/node_feat.npy", &table),
        ("processed/paper/node_label_19.npy", &numbers(&[0f32, 1., f32::NAN], &[3])),
        ("processed/paper__topic__fos/edge_index.npy", &numbers(&[0i32, 0, 2, 1], &[2, 2])),
    ];
    add("import_igbh", "plain", join("valid-fraction=0.5", &files));
}
