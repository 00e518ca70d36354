//! Datasets of format 2: what is written is read back, damage is detected, and faults are listed.

use std::{
    fs,
    path::{Path, PathBuf},
};

use graphmill_core::{Labels, SparseRows};
use graphmill_data::{
    Dataset,
    dataset::{
        StoredTable, Work,
        export::{self, ExportOptions},
    },
    generate::{GenerateOptions, generate},
    reorder, stats,
    typed::{
        self, CandidateLists, EdgeType, FeatureTable, Keys, Negatives, Targets, TypedBuilder, TypedDataset,
        Verify,
    },
};
use half::f16;
use proptest::prelude::*;

/// Dataset with every kind of column and task.
fn everything() -> TypedDataset {
    let mut builder = TypedBuilder::new("every kind");
    builder.node_type("author", 3).text_keys(["ann", "bób", ""]).sparse_features(
        SparseRows::from_dense(4, &[0.0, 1.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0]).unwrap(),
    );
    builder
        .node_type("paper", 4)
        .integer_keys(vec![70, -1, i64::MAX, i64::MIN])
        .feature_table(FeatureTable {
            names: vec!["length".into(), "year".into()],
            ..FeatureTable::dense(2, vec![1i16, 2, 3, 4, 5, 6, 7, 8])
        })
        .time(vec![4, 3, 2, i64::MIN]);
    builder.node_type("no such/thing__", 0);
    builder
        .edge_type("author", "writes", "paper")
        .edges(vec![2, 0, 1, 0, 2], vec![3, 0, 3, 0, 0])
        .weights(vec![0.5, 1.0, 1.5, 2.0, 2.5])
        .time(vec![50, 40, 30, 20, 10])
        .features(2, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0].map(f16::from_f32).to_vec())
        .with_reverse("written by");
    builder.edge_type("paper", "cites", "paper").edges(vec![0, 1], vec![1, 0]).reverse_of("cites");
    builder.edge_type("paper", "about", "no such/thing__");
    builder
        .task("venue")
        .on_nodes("paper")
        .classes(3, vec![0, 2, -1, 1])
        .names(["KDD", "VLDB", "NeurIPS"])
        .metric("accuracy")
        .split([3, 0], [1], []);
    builder.task("topics").on_nodes("author").class_sets(2, vec![0, 1, 1, 1, 0, 0]).split([0], [1], [2]);
    builder
        .task("pages at a time")
        .on_nodes("paper")
        .node_seeds(vec![1, 1, 2])
        .time(vec![5, 6, 7])
        .values(2, vec![0.5, 1.0, f32::NAN, 2.0, 3.0, 4.0])
        .split([0], [], [2]);
    let writes = EdgeType::new("author", "writes", "paper");
    builder.task("first").on_edges(writes.clone()).classes(2, vec![0, 1, 0, 1, 1]).split([0], [3], [4]);
    builder.task("share").on_edges(writes.clone()).values(1, vec![0.0, 0.1, 0.2, 0.3, 0.4]).split(
        [4, 1],
        [2],
        [0],
    );
    builder.task("link").on_edges(writes).positives([vec![0, 1, 2, 3], vec![1, 1], vec![2, 2]]).negatives([
        Some(Negatives::Pairs(vec![0, 2, 1, 2, 2, 1].into())),
        Some(Negatives::Destinations { each: 2, nodes: vec![0, 2].into() }),
        Some(Negatives::Sources { each: 1, nodes: vec![0].into() }),
    ]);
    let writes = EdgeType::new("author", "writes", "paper");
    let lists = CandidateLists::new([vec![3, 0], vec![], vec![1]]);
    builder
        .task("ranked")
        .on_edges(writes)
        .positives([vec![0, 1], vec![1, 1, 2, 2, 0, 0], vec![]])
        .negatives([
            None,
            Some(Negatives::Lists(lists)),
            Some(Negatives::Lists(CandidateLists::new([[0; 0]; 0]))),
        ]);
    builder.preprocessing(serde_json::json!({"version": 1, "columns": {"year": {"mean": 0.25}}}));
    builder.build().unwrap()
}

fn saved(data: &TypedDataset, dir: &Path) -> TypedDataset {
    data.save(dir).unwrap();
    typed::open(dir, Verify::Once).unwrap()
}

/// Compares all that identifies a dataset.
fn assert_same(a: &TypedDataset, b: &TypedDataset) {
    assert_eq!(a.to_string(), b.to_string());
    let of_arrays = |data: &TypedDataset| TypedDataset { checksum: None, ..data.clone() }.identity().unwrap();
    assert_eq!(of_arrays(a), of_arrays(b));
    assert_eq!(a.preprocessing, b.preprocessing);
}

#[test]
fn every_kind_of_column_and_task_round_trips() {
    let dir = tempfile::tempdir().unwrap();
    let data = everything();
    let path = dir.path().join("d");
    let first = saved(&data, &path);
    assert_same(&data, &first);
    let again = typed::open(&path, Verify::Once).unwrap();
    assert_same(&data, &again);
    assert_eq!(again.identity().unwrap(), data.identity().unwrap());
    let edges = again.edge_type(&EdgeType::new("author", "writes", "paper")).unwrap();
    assert_eq!(&edges.indptr[..], [0, 3, 3, 3, 5]);
    assert_eq!(&edges.indices[..], [0, 0, 2, 2, 1]);
    assert_eq!(edges.weights.as_deref(), Some(&[1.0, 2.0, 2.5, 0.5, 1.5][..]));
    assert_eq!(edges.time.as_deref(), Some(&[40, 20, 10, 50, 30][..]));
    let reverse = again.edge_type(&EdgeType::new("paper", "written by", "author")).unwrap();
    assert_eq!((&reverse.indptr[..], &reverse.indices[..]), (&[0, 2, 3, 5][..], &[0, 0, 3, 0, 3][..]));
    let task = again.task("first").unwrap();
    let Targets::Classes(Labels::Single { class, .. }) = &task.targets else { panic!("classes") };
    assert_eq!(&class[..], [1, 1, 1, 0, 0]);
    // Edge 0 of the input is edge 3 of the rows, edge 3 is 1, and edge 4 is 2.
    let rows = task.split.parts().map(|(_, rows)| rows.to_vec());
    assert_eq!(rows, [vec![3], vec![1], vec![2]]);
    assert_eq!(again.nodes[1].keys.as_ref().unwrap().get(2).to_string(), i64::MAX.to_string());
    assert_eq!(again.nodes[0].keys.as_ref().unwrap().get(1).to_string(), "bób");
    let names = |kind: &str| {
        let entries = fs::read_dir(path.join(kind)).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names("nodes"), ["author", "paper"]); // a type without columns needs no directory
    let edges = ["author__writes__paper", "paper__about__no%20such%2Fthing%5F%5F", "paper__cites__paper"];
    assert_eq!(names("edges")[..3], edges);
}

/// Files of a dataset, relative to its directory, but not the record of verified files.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.file_name().unwrap() != "verified.json" {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn flipped_bytes_are_detected_when_all_is_verified() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d");
    everything().save(&path).unwrap();
    typed::open(&path, Verify::Once).unwrap();
    let mut checked = 0;
    for file in files(&path) {
        let good = fs::read(&file).unwrap();
        // Some bytes of the header and of its padding, and of the data.
        let header = (0..good.len().min(4096)).step_by(149).chain([9, 20, 4095]);
        let data = (4096..good.len()).step_by(good.len().saturating_sub(4096) / 8 + 1);
        for at in header.chain(data).filter(|&at| at < good.len()) {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            fs::write(&file, bad).unwrap();
            assert!(typed::open(&path, Verify::All).is_err(), "{} byte {at}", file.display());
            checked += 1;
        }
        // The file has another time of modification, so it is verified again.
        let mut bad = good.clone();
        *bad.last_mut().unwrap() ^= 1;
        fs::write(&file, bad).unwrap();
        assert!(typed::open(&path, Verify::Once).is_err(), "{}", file.display());
        fs::write(&file, good).unwrap();
    }
    assert!(checked > 1000, "{checked}");
    typed::open(&path, Verify::All).unwrap();
}

#[test]
fn cut_and_missing_files_are_detected_when_a_dataset_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d");
    everything().save(&path).unwrap();
    typed::open(&path, Verify::Once).unwrap();
    for file in files(&path) {
        let good = fs::read(&file).unwrap();
        let time = fs::metadata(&file).unwrap().modified().unwrap();
        for length in [0, 1, good.len() / 2, good.len() - 1] {
            fs::write(&file, &good[..length]).unwrap();
            // The record of verified files does not matter.
            fs::File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
            let error = typed::open(&path, Verify::Once).unwrap_err().to_string();
            assert!(error.contains(file.file_name().unwrap().to_str().unwrap()), "{error}");
        }
        fs::remove_file(&file).unwrap();
        assert!(typed::open(&path, Verify::Once).is_err());
        fs::write(&file, good).unwrap();
    }
    typed::open(&path, Verify::Once).unwrap();
}

#[test]
fn verified_files_are_not_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d");
    everything().save(&path).unwrap();
    let file = path.join("edges/author__writes__paper/indices.npy");
    // Files that were just written are not recorded.
    std::thread::sleep(std::time::Duration::from_millis(25));
    let state = |file: &Path| fs::metadata(file).unwrap().modified().unwrap();
    let time = state(&file);
    typed::open(&path, Verify::Once).unwrap();
    let record = fs::read(path.join("verified.json")).unwrap();
    // Damage that keeps size, time and inode passes, until everything is read.
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, &bytes).unwrap();
    fs::File::options().write(true).open(&file).unwrap().set_modified(time).unwrap();
    typed::open(&path, Verify::Once).unwrap();
    let error = typed::open(&path, Verify::All).unwrap_err().to_string();
    assert!(error.contains("indices.npy: checksum: the file is damaged"), "{error}");
    // A copy is verified again.
    assert_eq!(fs::read(path.join("verified.json")).unwrap(), record);
    fs::remove_file(path.join("verified.json")).unwrap();
    assert!(typed::open(&path, Verify::Once).is_err());
}

#[test]
fn any_number_of_threads_writes_the_same_bytes() {
    let mut stream = graphmill_core::keyed::Stream::new(3);
    let mut ids =
        |count: usize, below: u64| (0..count).map(|_| stream.below(below) as u32).collect::<Vec<_>>();
    let (sources, destinations) = (ids(200_000, 5000), ids(200_000, 3000));
    let build = || {
        let mut builder = TypedBuilder::new("random");
        builder.node_type("a", 5000).integer_keys((0..5000).rev().collect::<Vec<_>>());
        builder.node_type("b", 3000);
        let edges = builder.edge_type("a", "to", "b");
        edges.edges(sources.clone(), destinations.clone()).time((0..200_000).collect::<Vec<_>>());
        edges.features(3, (0..600_000).map(|x| x as u32).collect::<Vec<_>>()).with_reverse("from");
        builder.build().unwrap()
    };
    let with = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let dir = tempfile::tempdir().unwrap();
            build().save(dir.path().join("d")).unwrap();
            let root = dir.path().join("d");
            let read =
                |file: PathBuf| (file.strip_prefix(&root).unwrap().to_path_buf(), fs::read(&file).unwrap());
            files(&root).into_iter().map(read).collect::<Vec<_>>()
        })
    };
    let one = with(1);
    assert!(one == with(2) && one == with(5));
}

#[test]
fn datasets_are_replaced_but_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d");
    let data = everything();
    data.save(&path).unwrap();
    typed::open(&path, Verify::Once).unwrap();
    assert!(data.save(&path).unwrap_err().to_string().contains("already holds a dataset"));
    data.save_replacing(&path).unwrap();
    // Datasets of either format replace each other.
    let plain = generate("sbm", &GenerateOptions { nodes: 50, classes: 2, ..Default::default() }).unwrap();
    plain.save_replacing(&path).unwrap();
    data.save_replacing(&path).unwrap();
    assert!(!path.join("indptr.npy").exists());
    for name in ["mine.txt", "nodes/mine", "tasks/venue/mine.npy"] {
        fs::write(path.join(name), "mine").unwrap();
        let error = data.save_replacing(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("'{name}'")), "{error}");
        fs::remove_file(path.join(name)).unwrap();
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporaries");
}

#[test]
fn all_faults_are_listed_at_once() {
    let mut builder = TypedBuilder::new("faulty");
    builder
        .node_type("a", 3)
        .features(2, vec![1.0f32, 2.0, f32::NAN, 4.0, 5.0, 6.0])
        .text_keys(["x", "y", "x"]);
    builder.node_type("b", 2).time(vec![1]).features(2, vec![1u8; 3]);
    builder.edge_type("a", "to", "b").csc(vec![0, 1, 2], vec![0, 3]).weights(vec![1.0, -1.0]);
    builder.task("t").on_nodes("a").classes(2, vec![0, 1, 2]).split([0], [0], []);
    builder.task("t").on_nodes("c").values(1, vec![1.0]);
    let error = builder.build().unwrap_err().to_string();
    for part in [
        "node type 'a': features: column 0 of row 1 is not a finite number",
        "node type 'a': nodes 0 and 2 have the same key 'x'; keys are unique",
        "node type 'b': features: 3 values are not 2 rows of 2 columns",
        "node type 'b': 1 times for 2 nodes",
        "edge type a:to:b: edge 1 has the source 3, but there are 3 nodes of type 'a'",
        "edge type a:to:b: edge 1 weighs -1: weights are finite and at least 0",
        "task 't': the class of row 2 is 2, outside the 2 classes (-1 means unknown)",
        "task 't': row 0 is in 'train' and in 'valid': the parts of a split are disjoint",
        "two tasks are called 't'; names are unique",
        "task 't': unknown node type 'c'; known: a, b",
    ] {
        assert!(error.contains(part), "{part} is missing in:\n{error}");
    }
    let mut builder = TypedBuilder::new("faulty");
    builder.node_type("a", 2);
    builder.edge_type("a", "to", "b").edges(vec![0], vec![0]);
    builder.edge_type("a", "self", "a").edges(vec![0, 1], vec![0]);
    builder.edge_type("a", "far", "a").edges(vec![0, 2], vec![0, 0]);
    builder.edge_type("a", "light", "a").edges(vec![0], vec![0]).weights(vec![]);
    builder.task("none");
    let error = builder.build().unwrap_err().to_string();
    for part in [
        "edge type a:to:b: 'b' is not a node type; the node types are: a",
        "edge type a:self:a: 2 edge sources for 1 destinations",
        "edge type a:far:a: edge 1 has the source 2, but there are 2 nodes of type 'a'",
        "edge type a:light:a: 0 weights for 1 edges",
        "task 'none': it has no type; call on_nodes or on_edges",
    ] {
        assert!(error.contains(part), "{part} is missing in:\n{error}");
    }
}

#[test]
fn reverse_edge_types_hold_the_same_edges() {
    let build = |back: [Vec<u32>; 2], of_back: Option<&str>| {
        let mut builder = TypedBuilder::new("reverse");
        builder.node_type("a", 2);
        builder.node_type("b", 3);
        builder.edge_type("a", "to", "b").edges(vec![0, 1, 1], vec![2, 0, 2]).reverse_of("from");
        let [sources, destinations] = back;
        let edges = builder.edge_type("b", "from", "a").edges(sources, destinations);
        if let Some(name) = of_back {
            edges.reverse_of(name);
        }
        builder.build().map_err(|e| e.to_string())
    };
    build([vec![0, 2, 2], vec![1, 0, 1]], Some("to")).unwrap();
    let error = |back, of| build(back, of).unwrap_err();
    assert!(error([vec![0, 2, 2], vec![1, 1, 1]], Some("to")).contains("with the ends exchanged"));
    assert!(error([vec![0, 2], vec![1, 0]], Some("to")).contains("3 edges, but its reverse b:from:a has 2"));
    assert!(error([vec![0, 2, 2], vec![1, 0, 1]], None).contains("whose reverse is not set"));
    let mut builder = TypedBuilder::new("reverse");
    builder.node_type("a", 2);
    builder.edge_type("a", "to", "a").edges(vec![0], vec![1]).reverse_of("to");
    assert!(builder.build().unwrap_err().to_string().contains("with the ends exchanged"));
}

#[test]
fn datasets_of_one_type_open_as_today() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let options = GenerateOptions { nodes: 300, classes: 3, ..Default::default() };
    let data = generate("sbm", &options).unwrap();
    data.save(&old).unwrap();
    let typed = TypedDataset::from_dataset(&Dataset::open(&old).unwrap());
    typed.save(&new).unwrap();
    // A second time with the record of verified files.
    for _ in 0..2 {
        let (a, b) = (Dataset::open(&old).unwrap(), Dataset::open(&new).unwrap());
        b.validate().unwrap();
        assert_eq!((a.graph.indptr(), a.graph.indices()), (b.graph.indptr(), b.graph.indices()));
        assert_eq!(format!("{:?}{:?}", a.labels, a.split), format!("{:?}{:?}", b.labels, b.split));
        assert_eq!(a.features.bytes(), b.features.bytes());
        assert_eq!(stats::info(&a).bytes, stats::info(&b).bytes);
        assert_eq!(b.checksum, Some(typed.identity().unwrap()));
        let (a, b) = (StoredTable::features(&old).unwrap(), StoredTable::features(&new).unwrap());
        assert_eq!((a.offset, a.rows, a.dim, a.kind), (b.offset, b.rows, b.dim, b.kind));
    }
    // Back to format 1: the same directory.
    let back = typed::open(&new, Verify::Once).unwrap().to_dataset().unwrap();
    assert_eq!(Dataset { checksum: None, ..back }.identity().unwrap(), data.identity().unwrap());
}

#[test]
fn keys_follow_the_nodes_of_a_dataset() {
    let dir = tempfile::tempdir().unwrap();
    let options = GenerateOptions { nodes: 60, classes: 3, ..Default::default() };
    let data = generate("sbm", &options).unwrap();
    for keys in
        [Keys::texts((0..60).map(|v| format!("k{v}"))), Keys::Integers((100..160).collect::<Vec<_>>().into())]
    {
        let path = dir.path().join(keys.kind());
        Dataset { keys: Some(keys.clone()), ..data.clone() }.save(&path).unwrap();
        let open = Dataset::open(&path).unwrap();
        assert_eq!(open.keys.as_ref().unwrap().get(7), keys.get(7));
        let order: Vec<u32> = (0..60).rev().collect();
        let dst = dir.path().join(format!("{}-reversed", keys.kind()));
        reorder::reorder_to(&open, &dst, "reversed", |_| Ok(order), Work::default()).unwrap();
        let reversed = Dataset::open(&dst).unwrap();
        assert_eq!(reversed.keys.as_ref().unwrap().get(7), keys.get(52));
        assert_eq!(reversed.original_ids.as_ref().unwrap()[7], 52);
    }
    let short = Dataset { keys: Some(Keys::texts(["a"])), ..data };
    assert!(short.save(dir.path().join("short")).unwrap_err().to_string().contains("1 keys for 60 nodes"));
}

#[test]
fn several_types_or_tasks_are_refused_with_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d");
    everything().save(&path).unwrap();
    let error = Dataset::open(&path).unwrap_err().to_string();
    for part in [
        "it has several types",
        "node types: author, paper, no such/thing__",
        "edge types: author:writes:paper, paper:written by:author",
        "tasks: venue (node-classification)",
        "'graphmill info' and 'graphmill export' read the whole dataset",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let one = |build: &dyn Fn(&mut TypedBuilder)| {
        let mut builder = TypedBuilder::new("one");
        builder.node_type("n", 2).features(1, vec![1i64, 2]);
        builder.edge_type("n", "e", "n");
        build(&mut builder);
        builder.build().unwrap().to_dataset().unwrap_err().to_string()
    };
    let error = one(&|_| ());
    assert!(error.contains("its features have the type <i8") && error.contains("astype('f4')"), "{error}");
    let error = one(&|builder| {
        builder.task("r").on_nodes("n").values(1, vec![1.0, 2.0]);
        builder.task("s").on_nodes("n").values(1, vec![1.0, 2.0]);
    });
    assert!(error.contains("tasks: r (node-regression), s (node-regression)"), "{error}");
    let error = TypedBuilder::new("none").build().unwrap().to_dataset().unwrap_err().to_string();
    assert!(error.contains("no node type or no edge type") && error.contains("node types: none"), "{error}");
}

#[test]
fn a_failed_creation_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dst = dir.path().join("d");
    let fails = typed::create(Work::default(), &dst, "work", |_| Err(graphmill_core::Error::invalid("no")));
    assert!(fails.is_err() && fs::read_dir(dir.path()).unwrap().count() == 0);
    let made = typed::create(Work::default(), &dst, "work", |scratch| {
        // Larger than a sixteenth of the smallest budget: the file is written once and linked.
        let mut rows = scratch.rows::<f32>("features", 4)?;
        for first in 0..400 {
            rows.extend(&(0..4000).map(|i| (first * 4000 + i) as f32).collect::<Vec<_>>())?;
        }
        let mut builder = TypedBuilder::new("");
        builder.node_type("n", rows.len()).features(4, rows.finish()?);
        builder.build()
    });
    let made = made.unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    let stored = typed::open(&dst, Verify::All).unwrap();
    assert_eq!(stored.name, "d");
    assert_eq!(stored.nodes[0].features.as_ref().unwrap().dtype().to_string(), "<f4");
    assert_eq!(TypedDataset { checksum: None, ..made }.identity().unwrap(), stored.identity().unwrap());
}

#[test]
fn tables_hold_keys_columns_targets_and_splits() {
    let dir = tempfile::tempdir().unwrap();
    let dst = dir.path().join("tables");
    let data = everything();
    let options = ExportOptions::default();
    assert!(export::export_typed("csv", &data, &dst, &options).unwrap().is_empty());
    let read = |name: &str| fs::read_to_string(dst.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(
        read("nodes/paper.csv"),
        "key,time,length,year,venue,venue_split\n\
         70,4,1,2,KDD,train\n\
         -1,3,3,4,NeurIPS,valid\n\
         9223372036854775807,2,5,6,,\n\
         -9223372036854775808,-9223372036854775808,7,8,VLDB,train\n"
    );
    assert_eq!(
        read("nodes/author.csv"),
        "key,topics_0,topics_1,topics_split\nann,0,1,train\nbób,1,1,valid\n,0,0,test\n"
    );
    assert_eq!(read("features/nodes-author.csv"), "row,column,value\n0,1,1\n0,3,2\n2,0,3\n");
    assert_eq!(
        read("edges/author__writes__paper.csv").lines().take(3).collect::<Vec<_>>(),
        [
            "source,destination,weight,time,feature_0,feature_1,first,first_split,share,share_split",
            "ann,70,1,40,3,4,1,,0.1,train",
            "ann,70,2,20,7,8,1,valid,0.3,",
        ]
    );
    assert_eq!(
        read("tasks/pages%20at%20a%20time.csv"),
        "key,time,pages at a time_0,pages at a time_1,pages at a time_split\n-1,5,0.5,1,train\n-1,6,,2,\n\
         9223372036854775807,7,3,4,test\n"
    );
    assert_eq!(read("tasks/link.csv").lines().nth(1), Some("ann,-1,train"));
    assert_eq!(
        read("negatives/link.csv").lines().skip(3).collect::<Vec<_>>(),
        ["train,,,-1", "valid,0,,70", "valid,0,,9223372036854775807", "test,0,ann,"]
    );
    let schema: serde_json::Value = serde_json::from_str(&read("schema.json")).unwrap();
    assert_eq!(schema["node_types"][1]["file"], "nodes/paper.csv");
    assert_eq!(schema["edge_types"][0]["reverse"], "written by");
    assert_eq!(schema["tasks"][0]["names"][2], "NeurIPS");
    assert_eq!(schema["preprocessing"]["version"], 1);

    let again = export::export_typed("csv", &data, &dst, &options).unwrap_err().to_string();
    assert!(again.contains("already holds an export"), "{again}");
    let replace = ExportOptions { replace: true, ..options };
    export::export_typed("csv", &data, &dst, &replace).unwrap();
    fs::write(dst.join("nodes/mine.txt"), "mine").unwrap();
    let mine = export::export_typed("csv", &data, &dst, &replace).unwrap_err().to_string();
    assert!(mine.contains("'nodes/mine.txt'"), "{mine}");
    let edges = export::export_typed("edges", &data, dir.path().join("a"), &options).unwrap_err().to_string();
    assert!(edges.contains("it has several types") && edges.contains("author:writes:paper"), "{edges}");
}

#[test]
fn a_dataset_of_one_type_is_exported_to_format_2_and_tables() {
    let dir = tempfile::tempdir().unwrap();
    let data = generate("sbm", &GenerateOptions { nodes: 40, classes: 2, ..Default::default() }).unwrap();
    let [typed, tables] = ["typed", "tables"].map(|name| dir.path().join(name));
    export::export("graphmill", &data, &typed, &ExportOptions::default()).unwrap();
    let open = Dataset::open(&typed).unwrap();
    assert_eq!((open.num_nodes(), open.graph.indices()), (40, data.graph.indices()));
    assert!(export::export("graphmill", &data, &typed, &ExportOptions::default()).is_err());
    export::export("csv", &data, &tables, &ExportOptions::default()).unwrap();
    let nodes = fs::read_to_string(tables.join("nodes/node.csv")).unwrap();
    assert_eq!(nodes.lines().count(), 41);
    assert!(nodes.lines().next().unwrap().ends_with(",classification,classification_split"));
}

#[test]
fn info_lists_types_columns_and_tasks() {
    let text = typed::info(&everything()).to_string();
    for line in [
        "  node types                              7   3 types",
        "2 features, <i2, 16 B (length, year); keys: integers; times",
        "4 features, <f4 sparse, 3 values",
        "max in-degree 3; weights; times; 2 features, <f2, 20 B; reverse: written by",
        "undirected, stored both ways",
        "node-classification on paper; 3 classes (KDD, VLDB, NeurIPS); 1 without a target; train 2",
        "train 2, valid 1, test 0; metric accuracy",
        "node-classification on author; 2 classes, several a row",
        "node-regression on paper, listed seeds with times; 2 values; train 1",
        "edge-classification on author:writes:paper; 2 classes",
        "link-prediction on author:writes:paper, listed seeds; train 2, valid 1, test 1; negatives 3, 2, 1",
        "version, columns",
    ] {
        assert!(text.contains(line), "{line} is missing in:\n{text}");
    }
    let json = serde_json::to_value(typed::info(&everything())).unwrap();
    assert_eq!((&json["nodes"], &json["edges"]), (&7.into(), &12.into()));
    assert_eq!(json["node_types"][1]["features"]["dtype"], "<i2");
    assert_eq!(json["edge_types"][0]["reverse"], "written by");
    assert_eq!(json["tasks"][0]["train"], 2);
}

/// Features of each number type, by number.
fn table(kind: u8, rows: usize, width: usize) -> FeatureTable {
    let values = || (0..rows * width).map(|i| i % 100);
    match kind {
        0 => FeatureTable::dense(width, values().map(|x| f16::from_f32(x as f32)).collect::<Vec<_>>()),
        1 => FeatureTable::dense(width, values().map(|x| x as f32).collect::<Vec<_>>()),
        2 => FeatureTable::dense(width, values().map(|x| x as f64).collect::<Vec<_>>()),
        3 => FeatureTable::dense(width, values().map(|x| x as i8).collect::<Vec<_>>()),
        4 => FeatureTable::dense(width, values().map(|x| x as u16).collect::<Vec<_>>()),
        5 => FeatureTable::dense(width, values().map(|x| x as i64).collect::<Vec<_>>()),
        _ => {
            let dense: Vec<f32> = values().map(|x| if x % 3 == 0 { x as f32 } else { 0.0 }).collect();
            FeatureTable::sparse(SparseRows::from_dense(width, &dense).unwrap())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn what_is_built_and_saved_is_opened(
        counts in prop::collection::vec(0usize..8, 1..4),
        kinds in prop::collection::vec((0u8..8, 1usize..4), 4),
        edges in prop::collection::vec(
            (0usize..4, 0usize..4, 0u8..16, prop::collection::vec((0u32..8, 0u32..8), 0..30)), 0..4,
        ),
        name in "[a-zA-Z_./é ]{1,12}",
    ) {
        let type_name = |t: usize| format!("{name}{t}");
        let mut builder = TypedBuilder::new(&name);
        for (t, &count) in counts.iter().enumerate() {
            let nodes = builder.node_type(type_name(t), count);
            let (kind, width) = kinds[t];
            if kind < 7 {
                nodes.feature_table(table(kind, count, width));
            }
            match kind % 3 {
                0 => { nodes.text_keys((0..count).map(|v| format!("{name}{v}"))); }
                1 => { nodes.integer_keys((0..count as i64).map(|v| v * 7 - 3).collect::<Vec<_>>()); }
                _ => { nodes.time(vec![i64::MIN; count]); }
            }
        }
        for (i, (source, destination, columns, pairs)) in edges.iter().enumerate() {
            let (s, d) = (source % counts.len(), destination % counts.len());
            let pairs = pairs.iter().filter(|p| (p.0 as usize) < counts[s] && (p.1 as usize) < counts[d]);
            let (sources, destinations): (Vec<u32>, Vec<u32>) = pairs.copied().unzip();
            let count = sources.len();
            let edges = builder.edge_type(type_name(s), format!("{name}{i}"), type_name(d));
            edges.edges(sources, destinations);
            if columns & 1 > 0 { edges.weights((0..count).map(|e| e as f32).collect::<Vec<_>>()); }
            if columns & 2 > 0 { edges.time((0..count as i64).collect::<Vec<_>>()); }
            if columns & 4 > 0 { edges.feature_table(table(columns % 7, count, 2)); }
            if columns & 8 > 0 { edges.with_reverse(format!("back{i}")); }
        }
        let data = builder.build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d");
        let stored = saved(&data, &path);
        assert_same(&data, &stored);
        assert_same(&data, &typed::open(&path, Verify::Once).unwrap());
        for (a, b) in data.edges.iter().zip(&stored.edges) {
            prop_assert_eq!(&a.indptr[..], &b.indptr[..]);
            prop_assert_eq!(&a.indices[..], &b.indices[..]);
            prop_assert_eq!(a.weights.as_deref(), b.weights.as_deref());
            prop_assert_eq!(a.time.as_deref(), b.time.as_deref());
        }
        for (a, b) in data.nodes.iter().zip(&stored.nodes) {
            prop_assert_eq!((&a.name, a.count), (&b.name, b.count));
            prop_assert_eq!(format!("{:?}", a.features), format!("{:?}", b.features));
            if let (Some(a), Some(b)) = (&a.keys, &b.keys) {
                prop_assert!((0..a.len()).all(|v| a.get(v) == b.get(v)));
            }
        }
    }
}

/// The archive holds the arrays of the directory, byte for byte; NumPy reads it by these names.
#[test]
fn npz_exports_of_several_types_hold_all_arrays() {
    let dir = tempfile::tempdir().unwrap();
    let (stored, path) = (dir.path().join("data"), dir.path().join("data.npz"));
    let data = saved(&everything(), &stored);
    for compress in [false, true] {
        let options = ExportOptions { compress, replace: true, ..ExportOptions::default() };
        let lost = export::export_typed("npz", &data, &path, &options).unwrap();
        assert_eq!(lost, ["how columns were encoded, preprocessing.json"]);
        let mut archive = zip::ZipArchive::new(fs::File::open(&path).unwrap()).unwrap();
        let arrays =
            files(&stored).into_iter().filter(|file| file.extension().is_some_and(|end| end == "npy"));
        let mut count = 0;
        for file in arrays {
            let name = file.strip_prefix(&stored).unwrap().display().to_string();
            let mut member = Vec::new();
            std::io::Read::read_to_end(&mut archive.by_name(&name).unwrap(), &mut member).unwrap();
            // The headers differ in their padding only.
            let data = |bytes: &[u8]| {
                let header = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
                bytes[header..].to_vec()
            };
            assert!(data(&member) == data(&fs::read(&file).unwrap()), "{name}");
            count += 1;
        }
        assert_eq!(archive.len(), count + 1);
        let schema: serde_json::Value =
            serde_json::from_reader(archive.by_name("schema.json").unwrap()).unwrap();
        assert_eq!(schema["node_types"].as_array().unwrap().len(), 3);
        assert_eq!(schema["tasks"][0]["names"][1], "VLDB");
    }
    // One type keeps the form of the field.
    let mut builder = TypedBuilder::new("one");
    builder.node_type("v", 2);
    builder.edge_type("v", "e", "v").edges(vec![0], vec![1]);
    let one = builder.build().unwrap();
    export::export_typed("npz", &one, dir.path().join("one.npz"), &ExportOptions::default()).unwrap();
    let npz = graphmill_data::npz::Npz::open(dir.path().join("one.npz")).unwrap();
    assert!(npz.names().contains(&"adj_indptr"));
}

#[test]
fn rows_of_a_split_have_at_least_one_of_several_values() {
    let of = |values: [f32; 4]| {
        let mut builder = TypedBuilder::new("values");
        builder.node_type("node", 2);
        builder.task("both").on_nodes("node").values(2, values.to_vec()).split([0], [1], []);
        builder.build()
    };
    let data = of([f32::NAN, 1.0, 2.0, f32::NAN]).unwrap();
    assert_eq!(typed::info(&data).tasks[0].with_target, 2);
    let message = of([f32::NAN, 1.0, f32::NAN, f32::NAN]).unwrap_err().to_string();
    assert!(message.contains("row 1 is in 'valid' but has no target; give it one"), "{message}");
}
