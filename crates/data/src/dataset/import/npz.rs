//! Import of an `.npz` file, recognized by its keys:
//!
//! - `adj_data, adj_indices, adj_indptr, adj_shape` (CSR), `attr_*` (CSR) or `attr_matrix` (dense),
//!   `labels` or `labels_*` (CSR): the Shchur benchmark datasets, also PyG's and DGL's copies.
//!   `train_mask`, `val_mask` and `test_mask` may hold a split; `class_names` may name classes
//!   without nodes, and `feature_normalization`, `feature_mean` and `feature_deviation` describe
//!   the normalization of our own export. Other keys (names, metadata) are ignored. Attributes are
//!   kept unchanged (PyG sets those above 0 to 1); values of the adjacency that are not all 1 are
//!   the edges' weights.
//! - `node_features, node_labels, edges, train_masks, val_masks, test_masks`: the heterophilous
//!   datasets, one split per row of the masks. Datasets of two classes are scored by ROC-AUC
//!   (Platonov et al. 2023, section 4). Edges are stored once each: pass `undirected`.
//!   `edge_weight` (`[E]`) is PyG's.
//! - `format, shape, data`: a sparse matrix of SciPy, see `scipy.rs`.

use std::path::Path;

use graphmill_core::{Features, Labels, Result, Split, location::Location};

use super::{
    ImportOptions, ImportReport, Raw, WeightColumn,
    adjacency::{self, Matrix},
    csr::Csr,
    feature_rows, features, label_rows, labels,
    pairs::{Shape, Sink},
    scipy, splits,
};
use crate::{dataset::Normalization, external::Scratch, npz::Npz};

/// Reads the file `src`.
pub(super) fn read(src: &Path, options: &ImportOptions, scratch: &Scratch) -> Result<Raw> {
    let mut npz = Npz::open(src)?;
    let mut raw = if npz.contains("adj_indptr") {
        shchur(&mut npz, options, scratch)?
    } else if npz.contains("node_features") {
        heterophilous(&mut npz, options, scratch)?
    } else if scipy::is_matrix(&npz) {
        scipy::read(&mut npz, options, scratch)?
    } else {
        return Err(Location::new(src, "archive").error(format!(
            "neither 'adj_indptr' (Shchur, PyG) nor 'node_features' (heterophilous datasets) nor 'format' \
             (scipy.sparse.save_npz) is present; the archive holds: {}",
            npz.names().join(", ")
        )));
    };
    raw.name = src.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(raw)
}

fn shchur(npz: &mut Npz, options: &ImportOptions, scratch: &Scratch) -> Result<Raw> {
    let path = npz.path().to_path_buf();
    let at = |member: &str| Location::new(&path, format!("member {member}.npy"));
    let mut report = ImportReport::default();
    let mut edges = adjacency::edges(npz, "adj_", options, scratch)?;
    let dense =
        if npz.contains("attr_matrix") { feature_rows::bytes(&npz.header("attr_matrix")?.shape) } else { 0 };
    let num_nodes = adjacency::read(npz, Matrix::of_rows("adj_"), dense, &mut edges, scratch)?;
    let features = if npz.contains("attr_indptr") {
        let attributes = Csr::from_npz(npz, "attr_")?;
        let dense = options.dense_features;
        features::from_csr(attributes, num_nodes, dense, &at("attr_shape"), &at("attr_data"), &mut report)?
    } else if npz.contains("attr_matrix") {
        feature_rows::from_npz(npz, "attr_matrix", num_nodes, scratch)?
    } else {
        Features::default()
    };
    let labels = if npz.contains("labels") {
        read_labels(npz, "labels", num_nodes)?
    } else if npz.contains("labels_indptr") {
        let sets = Csr::from_npz(npz, "labels_")?;
        expect_rows(sets.rows, num_nodes, &at("labels_shape"))?;
        let dense = sets.to_dense(&at("labels_shape"))?;
        let member = dense.into_iter().map(|x| if x == 0.0 || x == 1.0 { x as u8 } else { 2 }).collect();
        labels::multi(member, sets.columns, &at("labels_data"))?
    } else {
        labels::unknown(num_nodes)?
    };
    let labels = match labels {
        Labels::Single { class, classes } if npz.contains("class_names") => {
            let named = npz.header("class_names")?.shape.first().copied().unwrap_or(0);
            Labels::Single { class, classes: classes.max(named.min(i32::MAX as usize)) }
        }
        labels => labels,
    };
    let normalization = normalization(npz)?;
    let splits = own_split(npz, num_nodes)?.into_iter().collect();
    let unread = |name: &str| match name {
        "labels" | "class_names" | "train_mask" | "val_mask" | "test_mask" | NORMALIZATION => false,
        "feature_mean" | "feature_deviation" => {
            !matches!(normalization, Some(Normalization::Standard { .. }))
        }
        "attr_matrix" => npz.contains("attr_indptr"),
        _ => {
            !name.starts_with("adj_")
                && (name == "attr_names" || !name.starts_with("attr_"))
                && (npz.contains("labels") || !name.starts_with("labels_"))
        }
    };
    ignore_members(npz, unread, &mut report);
    Ok(Raw { num_nodes, edges, features, normalization, labels, splits, report, ..Raw::default() })
}

/// Key of the normalization of the features.
const NORMALIZATION: &str = "feature_normalization";

/// Reads the normalization recorded by our own export.
fn normalization(npz: &mut Npz) -> Result<Option<Normalization>> {
    if !npz.contains(NORMALIZATION) {
        return Ok(None);
    }
    let name = npz.text(NORMALIZATION)?;
    let mean = npz.contains("feature_mean").then(|| npz.read_as::<f64>("feature_mean")).transpose()?;
    let deviation = match name.as_str() {
        "standard" => npz.read_as::<f64>("feature_deviation")?.data,
        _ => Vec::new(),
    };
    let found = Normalization::of_parts(&name, mean.map(|mean| mean.data), deviation);
    let unknown = || {
        let at = Location::new(npz.path(), format!("member {NORMALIZATION}.npy"));
        at.error(format!("'{}' found, rows or standard expected", name.escape_debug()))
    };
    found.ok_or_else(unknown).map(Some)
}

/// Reads the split of `train_mask`, `val_mask` and `test_mask`, if one of them exists.
fn own_split(npz: &mut Npz, nodes: usize) -> Result<Option<Split>> {
    let mut part = |name: &str| -> Result<Option<graphmill_core::Buffer<u32>>> {
        if !npz.contains(name) {
            return Ok(None);
        }
        let mut rows = masks(npz, name, nodes)?;
        if rows.len() != 1 {
            let at = Location::new(npz.path(), format!("member {name}.npy"));
            return Err(at.error(format!("one mask expected, {} found", rows.len())));
        }
        Ok(rows.pop())
    };
    let parts = [part("train_mask")?, part("val_mask")?, part("test_mask")?];
    if parts.iter().all(Option::is_none) {
        return Ok(None);
    }
    let [train, valid, test] = parts.map(Option::unwrap_or_default);
    Ok(Some(Split { train, valid, test }))
}

fn heterophilous(npz: &mut Npz, options: &ImportOptions, scratch: &Scratch) -> Result<Raw> {
    let path = npz.path().to_path_buf();
    let at = |member: &str| Location::new(&path, format!("member {member}.npy"));
    let num_nodes = npz.header("node_features")?.shape.first().copied().unwrap_or(0);
    let features = feature_rows::from_npz(npz, "node_features", num_nodes, scratch)?;
    let labels = read_labels(npz, "node_labels", num_nodes)?;
    let weights =
        (options.weights != WeightColumn::None && npz.contains("edge_weight")).then_some("edge_weight");
    let mut edges = scratch.maybe_weighted_edges(options.edge_options(false), weights.is_some());
    Sink { edges: &mut edges, nodes: num_nodes, scratch }.npz(npz, "edges", Shape::TwoColumns, weights)?;
    let mut parts = Vec::new();
    for name in ["train_masks", "val_masks", "test_masks"] {
        if npz.contains(name) {
            parts.push(masks(npz, name, num_nodes)?);
        }
    }
    let splits = match <[_; 3]>::try_from(parts) {
        Ok([train, valid, test]) if train.len() == valid.len() && valid.len() == test.len() => {
            let both = train.into_iter().zip(valid).zip(test);
            both.map(|((train, valid), test)| Split { train, valid, test }).collect()
        }
        Ok(_) => return Err(at("val_masks").error("the three masks hold different numbers of splits")),
        Err(parts) if parts.is_empty() => Vec::new(),
        Err(_) => {
            return Err(at("train_masks").error("'train_masks', 'val_masks' and 'test_masks' go together"));
        }
    };
    let metric = match &labels {
        Labels::Single { classes: 2, .. } => Some("roc-auc".into()),
        _ => None,
    };
    const READ: [&str; 6] =
        ["node_features", "node_labels", "edges", "train_masks", "val_masks", "test_masks"];
    let mut report = ImportReport::default();
    let unread = |name: &str| !READ.contains(&name) && weights != Some(name);
    ignore_members(npz, unread, &mut report);
    Ok(Raw { num_nodes, edges, features, labels, splits, metric, report, ..Raw::default() })
}

/// Reports the members of the archive for which `unread` holds as ignored.
fn ignore_members(npz: &Npz, unread: impl Fn(&str) -> bool, report: &mut ImportReport) {
    let mut names = npz.names();
    names.sort_unstable();
    names.iter().filter(|name| unread(name)).for_each(|name| report.ignore(*name));
}

fn expect_rows(rows: usize, nodes: usize, at: &Location) -> Result<()> {
    if rows == nodes { Ok(()) } else { Err(at.error(format!("{rows} rows for {nodes} nodes"))) }
}

fn read_labels(npz: &mut Npz, name: &str, nodes: usize) -> Result<Labels> {
    let path = npz.path().to_path_buf();
    let at = Location::new(&path, format!("member {name}.npy"));
    let shape = npz.header(name)?.shape;
    expect_rows(shape.first().copied().unwrap_or(0), nodes, &at)?;
    label_rows::from_npz(npz, name, nodes)
}

/// Reads one part of every split: the rows of a `[splits, nodes]` mask, or the single row of
/// `[nodes]`.
fn masks(npz: &mut Npz, name: &str, nodes: usize) -> Result<Vec<graphmill_core::Buffer<u32>>> {
    let array = npz.read_as::<u8>(name)?;
    let at = Location::new(npz.path(), format!("member {name}.npy"));
    let width = array.shape.last().copied().unwrap_or(0);
    if !(1..=2).contains(&array.shape.len()) || width != nodes {
        let message = format!("shape [splits, {nodes}] expected, {:?} found", array.shape);
        return Err(at.error(message));
    }
    array
        .data
        .chunks(width.max(1))
        .enumerate()
        .map(|(k, mask)| {
            splits::from_mask(mask, nodes, &Location::new(npz.path(), format!("member {name}.npy, row {k}")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use graphmill_core::features::FeatureData;

    use super::*;
    use crate::{
        dataset::import::testing::import,
        npz::testing::{archive, member, member_of},
    };

    type Members = Vec<(String, Vec<u8>)>;

    /// 0 -> 1, 1 -> 2 (twice in the sparse features, once in the graph), 2 -> 2.
    fn shchur_members() -> Members {
        vec![
            member("adj_data", &[3], &[1f32, 1., 1.]),
            member("adj_indices", &[3], &[1i32, 2, 2]),
            member("adj_indptr", &[4], &[0i32, 1, 2, 3]),
            member("adj_shape", &[2], &[3i64, 3]),
            member("attr_data", &[2], &[0.5f32, 2.]),
            member("attr_indices", &[2], &[1i32, 0]),
            member("attr_indptr", &[4], &[0i32, 1, 1, 2]),
            member("attr_shape", &[2], &[3i64, 2]),
            member("labels", &[3], &[0i8, 2, -1]),
            member_of("node_names", "<U1", &[3], &[0; 12]),
        ]
    }

    fn heterophilous_members() -> Members {
        vec![
            member("node_features", &[3, 2], &[1f32, 2., 3., 4., 5., 6.]),
            member("node_labels", &[3], &[0i64, 1, 1]),
            member("edges", &[2, 2], &[0i64, 1, 2, 1]),
            member_of("train_masks", "|b1", &[2, 3], &[1, 0, 0, 0, 1, 0]),
            member_of("val_masks", "|b1", &[2, 3], &[0, 1, 0, 1, 0, 0]),
            member_of("test_masks", "|b1", &[2, 3], &[0, 0, 1, 0, 0, 1]),
        ]
    }

    fn run(members: &[(String, Vec<u8>)]) -> Result<crate::Dataset> {
        run_bytes(&archive(members, true))
    }

    fn run_bytes(bytes: &[u8]) -> Result<crate::Dataset> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tiny.npz");
        std::fs::write(&path, bytes).unwrap();
        import("npz", path, &ImportOptions::default())
    }

    fn features(dataset: &crate::Dataset) -> &[f32] {
        let FeatureData::F32(data) = &dataset.features.data else { panic!() };
        data
    }

    fn replaced(mut members: Members, with: (String, Vec<u8>)) -> Members {
        members.iter_mut().find(|(name, _)| *name == with.0).unwrap().1 = with.1;
        members
    }

    #[test]
    fn shchur_keys() {
        let dataset = run(&shchur_members()).unwrap();
        assert_eq!(dataset.name, "tiny");
        assert_eq!(dataset.graph.in_neighbors(1), [0]);
        assert_eq!(dataset.graph.in_neighbors(2), [1, 2]);
        assert_eq!(features(&dataset), [0., 0.5, 0., 0., 2., 0.]);
        let Labels::Single { class, classes: 3 } = &dataset.labels else { panic!() };
        assert_eq!(class[..], [0, 2, -1]);
        assert!(dataset.split.train.is_empty() && dataset.metric.is_none());
        let mut dense = shchur_members();
        dense.retain(|(name, _)| !name.starts_with("attr") && !name.starts_with("labels"));
        dense.push(member("attr_matrix", &[3, 1], &[1f64, 2., 3.]));
        dense.extend([
            member("labels_data", &[2], &[1i64, 1]),
            member("labels_indices", &[2], &[0i32, 1]),
            member("labels_indptr", &[4], &[0i32, 2, 2, 2]),
            member("labels_shape", &[2], &[3i64, 2]),
        ]);
        let dataset = run(&dense).unwrap();
        assert_eq!(features(&dataset), [1., 2., 3.]);
        let Labels::Multi { member, classes: 2 } = &dataset.labels else { panic!() };
        assert_eq!(member[..], [1, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn heterophilous_keys() {
        let dataset = run(&heterophilous_members()).unwrap();
        assert_eq!(dataset.graph.in_neighbors(1), [0, 2]);
        assert_eq!(dataset.metric.as_deref(), Some("roc-auc"));
        assert_eq!((dataset.split.train[0], dataset.split.test[0]), (0, 2));
        let three = replaced(heterophilous_members(), member("node_labels", &[3], &[0i64, 1, 2]));
        assert_eq!(run(&three).unwrap().metric, None);
    }

    #[test]
    fn adjacency_values_and_weight_members_are_weights() {
        assert_eq!(run(&shchur_members()).unwrap().graph.edge_weight(), None, "all are 1");
        let values = replaced(shchur_members(), member("adj_data", &[3], &[1f64, 0.5, 0.]));
        assert_eq!(run(&values).unwrap().graph.edge_weight(), Some(&[1.0, 0.5, 0.0][..]));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tiny.npz");
        let none = ImportOptions { weights: WeightColumn::None, ..Default::default() };
        let bad = replaced(shchur_members(), member("adj_data", &[3], &[1f64, -0.5, 0.]));
        std::fs::write(&path, archive(&bad, false)).unwrap();
        assert_eq!(import("npz", &path, &none).unwrap().graph.edge_weight(), None);
        let error = run(&bad).unwrap_err().to_string();
        assert!(error.contains("adj_data.npy: element 1: the edge weighs -0.5"), "{error}");
        let mut other = heterophilous_members();
        other.push(member("edge_weight", &[2], &[3f32, 0.5]));
        let undirected = ImportOptions { undirected: true, ..Default::default() };
        std::fs::write(&path, archive(&other, true)).unwrap();
        let graph = import("npz", &path, &undirected).unwrap().graph;
        assert_eq!(
            (graph.indices(), graph.edge_weight()),
            (&[1, 0, 2, 1][..], Some(&[3., 3., 0.5, 0.5][..]))
        );
        for (weights, why) in
            [(&[1f32][..], "shape [2] expected"), (&[1., f32::NAN], "element 1: the edge weighs NaN")]
        {
            let other = replaced(other.clone(), member("edge_weight", &[weights.len()], weights));
            let error = run(&other).unwrap_err().to_string();
            assert!(error.contains("edge_weight.npy") && error.contains(why), "{error}");
        }
    }

    #[test]
    fn inconsistencies_are_reported_with_the_member() {
        let fails = |members: Members, why: &[&str]| {
            let error = run(&members).unwrap_err().to_string();
            assert!(why.iter().all(|why| error.contains(why)) && error.contains("tiny.npz"), "{error}");
        };
        let shchur = |with| replaced(shchur_members(), with);
        fails(shchur(member("labels", &[2], &[0i8, 1])), &["member labels.npy", "2 rows for 3"]);
        fails(
            shchur(member("labels", &[3], &[0.5f32, 1., 0.])),
            &["member labels.npy", "label of node 0 is 0.5"],
        );
        fails(shchur(member("labels", &[3], &[0i8, -2, 1])), &["node 1 is -2"]);
        fails(shchur(member("adj_shape", &[2], &[3i64, 4])), &["adj_shape", "not square"]);
        fails(shchur(member("adj_indices", &[3], &[1i32, 3, 2])), &["adj_indices", "column 3"]);
        fails(shchur(member("adj_indices", &[3], &[1i32, -1, 2])), &["adj_indices", "element 1 is -1"]);
        fails(shchur(member("adj_data", &[2], &[1f32, 1.])), &["adj_data", "2 values for the 3"]);
        fails(
            shchur(member("attr_data", &[2], &[f32::NAN, 2.])),
            &["attr_data", "feature 1 of node 0 is NaN"],
        );
        fails(shchur(member("attr_shape", &[2], &[3i64, 1 << 40])), &["attr_shape", "claims"]);
        let other = |with| replaced(heterophilous_members(), with);
        fails(other(member("edges", &[1, 2], &[0i64, 3])), &["edges", "names node 3"]);
        fails(other(member("edges", &[2], &[0i64, 1])), &["edges", "shape"]);
        fails(other(member_of("val_masks", "|b1", &[1, 3], &[0, 1, 0])), &["different numbers"]);
        fails(other(member_of("val_masks", "|b1", &[2, 3], &[0; 6])), &["val_masks.npy, row 0", "empty"]);
        fails(other(member_of("val_masks", "|b1", &[2, 3], &[1, 0, 0, 1, 0, 0])), &["node 0 is in"]);
        fails(vec![member("x", &[1], &[0i8])], &["the archive holds: x"]);
    }

    #[test]
    fn damage_is_an_error_or_harmless() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tiny.npz");
        let run = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            import("npz", &path, &ImportOptions::default())
        };
        for members in [shchur_members(), heterophilous_members()] {
            let good = archive(&members, true);
            for length in (0..good.len()).step_by(3) {
                assert!(run(&good[..length]).is_err());
            }
            for bit in (0..good.len() * 8).step_by(17) {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                let _ = run(&bad); // no panic; member checksums catch the rest
            }
        }
    }
}
