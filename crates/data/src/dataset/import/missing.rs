//! Tests of missing labels, for all importers: allowed for nodes outside the split, an error inside
//! it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{pickle::testing as pickled, testing::import, *};
use crate::{
    npy,
    npz::testing::{archive, member},
};

const NAN: f64 = f64::NAN;

/// Writes a source of `format` to `dir`. Node 3 is unlabelled; with `in_split` it is in the split
/// nevertheless. Labels are classes, or with `sets` sets of two classes. Returns `None` if the
/// format has no such labels or no split.
// Reason for its length: one arm per format, each a source in full.
fn write(format: &str, dir: &Path, in_split: bool, sets: bool) -> Option<PathBuf> {
    let put = |name: &str, bytes: &[u8]| {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    let text = |name: &str, text: &str| put(name, text.as_bytes());
    let (labels, shape): (&[f64], &[usize]) = match sets {
        true => (&[0., 1., 1., 1., 0., 0., NAN, NAN], &[4, 2]),
        false => (&[0., 1., 0., NAN], &[4]),
    };
    let map = if sets { r#"{"0": [0, 1], "1": [1, 1], "2": [0, 0]}"# } else { r#"{"0": 0, "1": 1, "2": 0}"# };
    match format {
        "npz" => {
            let members = [
                member("adj_data", &[1], &[1f32]),
                member("adj_indices", &[1], &[1i32]),
                member("adj_indptr", &[5], &[0i32, 1, 1, 1, 1]),
                member("adj_shape", &[2], &[4i64, 4]),
                member("labels", shape, labels),
                member("train_mask", &[4], &[1u8, 0, 0, u8::from(in_split)]),
            ];
            put("a.npz", &archive(&members, true));
            return Some(dir.join("a.npz"));
        }
        "graphsaint" => {
            let members = [
                member("data", &[1], &[1f32]),
                member("indices", &[1], &[1i32]),
                member("indptr", &[5], &[0i32, 1, 1, 1, 1]),
                member("shape", &[2], &[4i64, 4]),
            ];
            put("adj_full.npz", &archive(&members, true));
            npy::write(dir.join("feats.npy"), &[0f32; 4], &[4, 1]).unwrap();
            text("class_map.json", &map.replace('}', r#", "3": null}"#));
            text("role.json", if in_split { r#"{"tr": [0, 3]}"# } else { r#"{"tr": [0]}"# });
        }
        "planetoid" if sets => return None,
        "planetoid" => {
            let hot = |rows: &[[i32; 2]]| {
                pickled::pickle(&pickled::array("i4", &[rows.len(), 2], bytemuck::cast_slice(rows)))
            };
            put("ind.a.allx", &pickled::pickle(&pickled::csr(&[&[1.], &[1.], &[1.]])));
            put("ind.a.ally", &hot(&[[1, 0], [0, 1], [1, 0]]));
            put("ind.a.y", &hot(&[[1, 0]]));
            put("ind.a.graph", &pickled::pickle(&pickled::lists(&[(0, &[1])])));
            // Node 3 is a test node without a class, or one without a row.
            let rows: &[&[f32]] = if in_split { &[&[1.], &[1.]] } else { &[&[1.]] };
            put("ind.a.tx", &pickled::pickle(&pickled::csr(rows)));
            put("ind.a.ty", &if in_split { hot(&[[0, 0], [1, 0]]) } else { hot(&[[1, 0]]) });
            text("ind.a.test.index", if in_split { "3\n4\n" } else { "4\n" });
        }
        "ogb" => {
            text("raw/num-node-list.csv", "4\n");
            text("raw/num-edge-list.csv", "1\n");
            text("raw/edge.csv", "0,1\n");
            text("raw/node-label.csv", if sets { "0,1\n1,1\n0,0\nnan,nan\n" } else { "0\n1\n0\n\n" });
            text("split/one/train.csv", if in_split { "0\n3\n" } else { "0\n" });
        }
        "graphsage" => {
            let marks = if in_split { r#", "val": false, "test": false"# } else { "" };
            let graph = r#"{"nodes": [{"id": 0, "val": false, "test": false}, {"id": 1}, {"id": 2}, {"id": 3MARKS}],
                "links": [{"source": 0, "target": 1}]}"#;
            text("a-G.json", &graph.replace("MARKS", marks));
            text("a-class_map.json", map);
        }
        "graphbolt" => {
            text(
                "metadata.yaml",
                "graph: {nodes: [{num: 4}], edges: [{format: csv, path: edges.csv}]}\n\
                 feature_data: [{domain: node, name: label, format: numpy, path: labels.npy}]\n\
                 tasks: [{train_set: [{data: [{name: seeds, format: numpy, path: seeds.npy}]}]}]\n",
            );
            text("edges.csv", "0,1\n");
            npy::write(dir.join("labels.npy"), labels, shape).unwrap();
            let seeds: &[i64] = if in_split { &[0, 3] } else { &[0] };
            npy::write(dir.join("seeds.npy"), seeds, &[seeds.len()]).unwrap();
        }
        "musae" | "facebook100" if sets => return None,
        "musae" => {
            text("musae_a_edges.csv", "id_1,id_2\n0,1\n");
            text("musae_a_features.json", "{}");
            text("musae_a_target.csv", "id,ml_target\n0,0\n1,1\n2,0\n3,\n");
            text("splits.json", if in_split { r#"[{"train": [0, 3]}]"# } else { r#"[{"train": [0]}]"# });
        }
        "facebook100" if in_split => return None, // it has no split
        "facebook100" => {
            use facebook100::testing::Style;
            let style = Style::default();
            let adjacency = style.sparse([4, 4], "A", &[1], &[0, 1, 1, 1, 1]);
            let mut info = [[1u64; 4]; 7];
            info[1] = [1, 2, 1, (-1i16) as u16 as u64];
            let info = style.element(3, 2, info.as_flattened()); // 16 bits with a sign
            let info = style.matrix(10, 0, &[4, 7], "local_info", &[info]);
            put("a.mat", &style.file(&[adjacency, info]));
            return Some(dir.join("a.mat"));
        }
        "edges" => {
            text("edges.txt", "0 1\n");
            text("labels.csv", if sets { "0,1\n1,1\n0,0\n,\n" } else { "label\n0\n1\n0\n\n" });
            text("train.csv", if in_split { "0\n3\n" } else { "0\n" });
        }
        #[cfg(feature = "parquet")]
        "parquet" => parquet::tests::write_missing_label(dir, in_split, sets),
        other => panic!("no source with missing labels for the format '{other}'"),
    }
    Some(dir.to_path_buf())
}

#[test]
fn every_importer_allows_missing_labels_outside_the_split() {
    for entry in TABLE {
        for sets in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let Some(src) = write(entry.name, dir.path(), false, sets) else { continue };
            let imported = super::import(entry.name, &src, &ImportOptions::default());
            let Imported { dataset, report } = imported.unwrap_or_else(|e| panic!("{}: {e}", entry.name));
            assert_eq!(report.missing_labels, 1, "{}", entry.name);
            match &dataset.labels {
                Labels::Single { class, .. } => assert_eq!(class[3], -1, "{}", entry.name),
                Labels::Multi { member, .. } => {
                    assert_eq!(member[..], [0, 1, 1, 1, 0, 0, 0, 0], "{}", entry.name)
                }
                Labels::Columns { .. } | Labels::Values { .. } => panic!("{}: other targets", entry.name),
            }
            // A random split omits the unlabelled node.
            let split = Some("random:1,0,0".parse().unwrap());
            let options = ImportOptions { split, ..ImportOptions::default() };
            let train = import(entry.name, &src, &options).unwrap().split.train;
            assert!(train.len() >= 3 && !train.contains(&3), "{}: {train:?}", entry.name);
        }
    }
}

#[test]
fn every_importer_rejects_missing_labels_in_the_split() {
    for entry in TABLE {
        for sets in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let Some(src) = write(entry.name, dir.path(), true, sets) else { continue };
            let error = import(entry.name, &src, &ImportOptions::default()).unwrap_err().to_string();
            let part = if entry.name == "planetoid" { "test" } else { "train" };
            let expected =
                format!("node 3 is in '{part}' but has no label; label it or remove it from '{part}'");
            assert!(error.contains(&expected), "{}: {error}", entry.name);
        }
    }
}

#[test]
fn the_largest_component_keeps_unlabelled_sets() {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    put("edges.txt", "0 1\n2 3\n3 4\n");
    put("labels.csv", "0,1\nnan,nan\n1,0\nnan,nan\n0,0\n");
    let split = Some("random:1,0,0".parse().unwrap());
    let options = ImportOptions { split, largest_component: true, ..ImportOptions::default() };
    let Imported { dataset, report } = super::import("edges", dir.path(), &options).unwrap();
    assert_eq!(dataset.split.train[..], [0, 2]);
    assert_eq!((report.missing_labels, report.nodes_dropped, report.edges_dropped), (1, 2, 1));
}
