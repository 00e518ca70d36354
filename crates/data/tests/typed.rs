//! Datasets of format 2: what is written is read back, damage is detected, and faults are listed.

use std::{fs, path::Path};

use graphmill_core::{FeatureData, Labels, NodeId, SparseRows};
use graphmill_data::typed::{
    self, EdgeType, FeatureTable, Negatives, TableData, Targets, Task, TypedBuilder, TypedDataset, Verify,
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
    assert!(path.join("nodes/no%20such%2Fthing%5F%5F").exists() || again.nodes[2].features.is_none());
}
