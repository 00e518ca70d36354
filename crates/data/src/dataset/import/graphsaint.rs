//! Import of a GraphSAINT directory (README of the GraphSAINT repository; PyG's Flickr, Yelp and
//! AmazonProducts use the same files):
//!
//! - `adj_full.npz`: the whole graph in the CSR layout of `scipy.sparse.save_npz`; every stored
//!   entry is an edge, regardless of its value and type. (`adj_train.npz` follows from `role.json`
//!   and is not read.)
//! - `feats.npy`: `V x F` floats, unscaled (`normalize: standard` fits the scaler of GraphSAINT).
//! - `class_map.json`: node id to class, or to a list of zeros and ones. Missing nodes are
//!   unlabelled.
//! - `role.json`: ids under `tr`, `va`, `te`.

use std::path::Path;

use graphmill_core::{Buffer, Result, Split, location::Location};
use serde::Deserialize;

use super::{
    ImportOptions, ImportReport, Raw,
    adjacency::{self, Matrix},
    class_map, feature_rows, json, splits,
};
use crate::{external::Scratch, npy, npz::Npz};

/// Files that are read.
const FILES: [&str; 4] = ["adj_full.npz", "feats.npy", "class_map.json", "role.json"];

/// Reads the directory `src`.
pub(super) fn read(src: &Path, options: &ImportOptions, scratch: &Scratch) -> Result<Raw> {
    let adjacency_path = src.join("adj_full.npz");
    let mut npz = Npz::open(&adjacency_path)?;
    if npz.contains("format") {
        let format = npz.text("format")?;
        if format != "csr" {
            let at = Location::new(&adjacency_path, "member format.npy");
            return Err(at.error(format!("'{format}' found, 'csr' expected; save matrix.tocsr()")));
        }
    }
    let mut edges = adjacency::edges(&mut npz, "", options, scratch)?;
    let features = npy::open(src.join("feats.npy"))?;
    let (matrix, bytes) = (Matrix::of_rows(""), feature_rows::bytes(&features.shape));
    let num_nodes = adjacency::read(&mut npz, matrix, bytes, &mut edges, scratch)?;
    let features = feature_rows::from_npy(&features, num_nodes, scratch)?;
    let labels = class_map::read(&src.join("class_map.json"), num_nodes, |key| number(key, num_nodes))?;
    let split = read_roles(&src.join("role.json"), num_nodes)?;
    let name = src.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut report = ImportReport::default();
    report.ignore_unread(src, |name| FILES.contains(&name))?;
    Ok(Raw { name, num_nodes, edges, features, labels, splits: vec![split], report, ..Raw::default() })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Roles {
    tr: Vec<u64>,
    #[serde(default)]
    va: Option<Vec<u64>>,
    #[serde(default)]
    te: Option<Vec<u64>>,
}

fn read_roles(path: &Path, nodes: usize) -> Result<Split> {
    let text = json::map(path)?;
    let roles: Roles = serde_json::from_slice(&text).map_err(|e| json::error(path, &e))?;
    let part = |name: &'static str, ids: Option<Vec<u64>>| match ids {
        Some(ids) => splits::from_ids(ids, nodes, &Location::new(path, format!("'{name}'"))),
        None => Ok(Buffer::default()),
    };
    Ok(Split {
        train: part("tr", Some(roles.tr))?,
        valid: part("va", roles.va)?,
        test: part("te", roles.te)?,
    })
}

/// Node of a key: ids are numbers.
fn number(key: &str, nodes: usize) -> Result<Option<usize>, String> {
    match key.parse::<usize>() {
        Ok(v) if v < nodes => Ok(Some(v)),
        Ok(v) => Err(format!("node {v}, but there are {nodes} nodes")),
        Err(_) => Err(format!("'{}' is not a node id", key.escape_debug())),
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::{Labels, features::FeatureData};

    use super::*;
    use crate::{
        Dataset,
        dataset::import::testing::import,
        npz::testing::{archive, member, member_of},
    };

    const CLASSES: &str = r#"{"0": 1, "2": 0, "1": -1}"#;
    const ROLES: &str = r#"{"tr": [2], "va": [0]}"#;

    /// 0 -> 1 with the value 0 (still an edge), 2 -> 0
    fn adjacency(data: (String, Vec<u8>)) -> Vec<u8> {
        archive(
            &[
                member("indices", &[2], &[1i32, 0]),
                member("indptr", &[4], &[0i32, 1, 1, 2]),
                member_of("format", "|S3", &[], b"csr"),
                member("shape", &[2], &[3i64, 3]),
                data,
            ],
            true,
        )
    }

    fn directory(classes: &str, roles: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("adj_full.npz"), adjacency(member_of("data", "|b1", &[2], &[0, 1]))).unwrap();
        npy::write(path("feats.npy"), &[1f64, 2., 3.], &[3, 1]).unwrap();
        std::fs::write(path("class_map.json"), classes).unwrap();
        std::fs::write(path("role.json"), roles).unwrap();
        dir
    }

    fn run(dir: &tempfile::TempDir) -> Result<Dataset, String> {
        import("graphsaint", dir.path(), &ImportOptions::default()).map_err(|e| e.to_string())
    }

    #[test]
    fn classes_and_class_sets_are_imported() {
        let dataset = run(&directory(CLASSES, ROLES)).unwrap();
        assert_eq!((dataset.graph.in_neighbors(1), dataset.graph.in_neighbors(0)), (&[0][..], &[2][..]));
        let FeatureData::F32(data) = &dataset.features.data else { panic!() };
        assert_eq!(data[..], [1., 2., 3.]);
        let Labels::Single { class, classes: 2 } = &dataset.labels else { panic!() };
        assert_eq!(class[..], [1, -1, 0]);
        assert_eq!((dataset.split.train[..].to_vec(), dataset.split.test.len()), (vec![2], 0));
        let dataset = run(&directory(r#"{"0":[1,0],"2":[0.0,1.0],"1":[0,0]}"#, ROLES)).unwrap();
        let Labels::Multi { member, classes: 2 } = &dataset.labels else { panic!() };
        assert_eq!(member[..], [1, 0, 0, 0, 0, 1]);
        // Missing nodes have no class.
        let dataset = run(&directory(r#"{"2": 0, "0": 0}"#, ROLES)).unwrap();
        assert!(!dataset.labels.is_labelled(1));
    }

    #[test]
    fn adjacency_values_may_have_any_numeric_type() {
        for data in [
            member("data", &[2], &[1f32, 1.]),
            member("data", &[2], &[1f64, 1.]),
            member("data", &[2], &[1i64, 1]),
            member("data", &[2], &[1u8, 1]),
        ] {
            let dir = directory(CLASSES, ROLES);
            std::fs::write(dir.path().join("adj_full.npz"), adjacency(data)).unwrap();
            assert_eq!(run(&dir).unwrap().graph.num_edges(), 2);
        }
    }

    #[test]
    fn errors_contain_the_file_and_the_position() {
        let fails = |classes: &str, roles: &str, why: &[&str]| {
            let error = run(&directory(classes, roles)).unwrap_err();
            assert!(why.iter().all(|why| error.contains(why)), "{error}");
        };
        fails(r#"{"3": 1}"#, ROLES, &["class_map.json: line 1 column", "node 3, but there are 3"]);
        fails(r#"{"0": 1, "0": 1}"#, ROLES, &["class_map.json", "node 0 occurs twice"]);
        fails(r#"{"x": 1}"#, ROLES, &["'x' is not a node id"]);
        fails(r#"{"0": 0.5}"#, ROLES, &["class_map.json", "0.5 is not a whole number"]);
        fails(r#"{"0": -2}"#, ROLES, &["class_map.json", "node 0 is -2"]);
        fails(r#"{"0": [1, 2]}"#, ROLES, &["2 in a list of zeros and ones"]);
        fails(r#"{"0": [1], "1": [1, 0]}"#, ROLES, &["node 1 has a list of 2"]);
        fails(r#"{"0": [1], "1": 1}"#, ROLES, &["mixed"]);
        fails(r#"{"0": [1]}"#, ROLES, &["node 2 is in 'train' but has no label; label it or remove it"]);
        fails(r#"{"0": [1, null], "2": [0, 1]}"#, ROLES, &["1 values of a list of 2 are missing"]);
        fails(r#"{"0": 1"#, ROLES, &["class_map.json: line 1"]);
        fails(CLASSES, r#"{"tr": [3]}"#, &["role.json: 'tr'", "node 3"]);
        fails(CLASSES, r#"{"tr": [0], "va": []}"#, &["role.json: 'va'", "empty"]);
        fails(CLASSES, r#"{"tr": [-1]}"#, &["role.json: line 1"]);
        fails(CLASSES, r#"{"train": [0]}"#, &["role.json", "train"]);
        fails(CLASSES, r#"{"tr": [1]}"#, &["node 1 is in 'train' but has no label"]);
        fails(CLASSES, r#"{"tr": [0], "te": [0]}"#, &["node 0 is in 'test' and in 'train'"]);
        let dir = directory(CLASSES, ROLES);
        npy::write(dir.path().join("feats.npy"), &[1f64, 2.], &[2, 1]).unwrap();
        assert!(run(&dir).unwrap_err().contains("feats.npy: features: shape [3, features]"));
        npy::write(dir.path().join("feats.npy"), &[1., f64::NAN, 3.], &[3, 1]).unwrap();
        assert!(run(&dir).unwrap_err().contains("feats.npy: features: feature 0 of node 1 is NaN"));
        std::fs::remove_file(dir.path().join("feats.npy")).unwrap();
        assert!(run(&dir).unwrap_err().contains("feats.npy: cannot open"));
    }

    #[test]
    fn damage_is_an_error_or_harmless() {
        for name in ["adj_full.npz", "feats.npy", "class_map.json", "role.json"] {
            let dir = directory(CLASSES, ROLES);
            let path = dir.path().join(name);
            let good = std::fs::read(&path).unwrap();
            for length in (0..good.len()).step_by(if good.len() > 100 { 7 } else { 1 }) {
                std::fs::write(&path, &good[..length]).unwrap();
                assert!(run(&dir).is_err(), "{name} truncated to {length}");
            }
            for bit in (0..good.len() * 8).step_by(11) {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                std::fs::write(&path, &bad).unwrap();
                let _ = run(&dir); // no panic
            }
        }
    }
}
