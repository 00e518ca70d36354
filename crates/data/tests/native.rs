//! Directory format: saved datasets open again, and damage is detected.

use std::{fs, path::Path};

use graphmill_core::{Features, Graph, Labels, SparseRows, Split, features::FeatureData};
use graphmill_data::{
    Dataset,
    dataset::{NamedGraph, Normalization},
    npy,
};
use half::f16;

/// 0 -> 1, 1 -> 2, 0 -> 2 with weights; two features; three classes, one node unlabelled.
fn single() -> Dataset {
    let graph = Graph::new(vec![0, 0, 1, 3, 3].into(), vec![0, 0, 1].into()).unwrap();
    Dataset {
        name: "tiny".into(),
        graph: graph.with_edge_weight(vec![0.5, 1.0, 2.0].into()).unwrap(),
        features: Features::f32(2, vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]),
        labels: Labels::Single { class: vec![0, 2, 1, -1].into(), classes: 3 },
        split: Split { train: vec![0].into(), valid: vec![2].into(), test: vec![1].into() },
        graphs: Vec::new(),
        metric: Some("accuracy".into()),
        checksum: None,
        normalization: None,
        directory: None,
        original_ids: None,
        keys: None,
    }
}

fn multi() -> Dataset {
    let half: Vec<f16> = [0.5, 1.5, 2.5, 3.5].map(f16::from_f32).to_vec();
    Dataset {
        features: Features { dim: 1, data: FeatureData::F16(half.into()) },
        labels: Labels::Multi { member: vec![1, 0, 0, 0, 1, 1, 0, 1].into(), classes: 2 },
        split: Split { train: vec![1, 3].into(), ..Split::default() },
        graphs: vec![NamedGraph::new("all", 0..3), NamedGraph::new("lone", 3..4)],
        metric: None,
        ..single()
    }
}

fn sparse() -> Dataset {
    let rows = SparseRows::new(9, vec![0, 2, 2, 3, 4].into(), vec![0, 8, 3, 3].into(), vec![1.0; 4].into());
    Dataset { features: Features::csr(rows.unwrap()), ..single() }
}

fn bare() -> Dataset {
    Dataset {
        graph: Graph::new(vec![0, 0].into(), vec![].into()).unwrap(),
        labels: Labels::Single { class: vec![-1].into(), classes: 0 },
        ..Dataset::default()
    }
}

/// Everything a dataset holds, for comparison.
fn parts(dataset: &Dataset) -> String {
    // Without the checksum, which belongs to the files.
    let Dataset {
        name,
        graph,
        features,
        normalization,
        labels,
        split,
        graphs,
        metric,
        checksum: _,
        directory: _,
        original_ids,
        keys,
    } = dataset;
    let features: Vec<f32> = match &features.data {
        FeatureData::F32(data) => data.to_vec(),
        FeatureData::F16(data) => data.iter().map(|x| x.to_f32()).collect(),
        FeatureData::Csr(data) => data.to_dense().unwrap(),
    };
    format!(
        "{name} {:?} {:?} {:?} {features:?} {labels:?} {split:?} {graphs:?} {metric:?} {original_ids:?} \
         {normalization:?} {keys:?}",
        graph.indptr(),
        graph.indices(),
        graph.edge_weight()
    )
}

#[test]
fn saved_datasets_open_again() {
    let dir = tempfile::tempdir().unwrap();
    let standard = |mean: Option<[f64; 2]>| {
        let deviation = vec![0.1, 1.0 / 3.0];
        let normalization = Some(Normalization::Standard { mean: mean.map(Vec::from), deviation });
        Dataset { normalization, ..single() }
    };
    for (name, dataset) in [
        ("single", single()),
        ("multi", multi()),
        ("sparse", sparse()),
        ("rows", Dataset { normalization: Some(Normalization::Rows), ..single() }),
        ("centred", standard(Some([0.7, -1e-9]))),
        ("scaled", standard(None)),
    ] {
        let path = dir.path().join("made/on/the/way").join(name);
        dataset.save(&path).unwrap();
        let opened = Dataset::open(&path).unwrap();
        assert_eq!(parts(&opened), parts(&dataset));
        let mapped = match &opened.features.data {
            FeatureData::F32(data) => data.is_mapped(),
            FeatureData::F16(data) => data.is_mapped(),
            FeatureData::Csr(data) => data.values().is_mapped() && data.indptr().is_mapped(),
        };
        assert!(mapped);
    }
    let path = dir.path().join("bare");
    bare().save(&path).unwrap();
    let opened = Dataset::open(&path).unwrap();
    assert_eq!((opened.name.as_str(), opened.num_nodes(), opened.features.dim), ("bare", 1, 0));
    // The empty dataset has no nodes.
    Dataset::default().save(dir.path().join("empty")).unwrap();
    assert_eq!(Dataset::open(dir.path().join("empty")).unwrap().num_nodes(), 0);
}

#[test]
fn only_datasets_are_replaced_and_only_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    fs::create_dir(&path).unwrap();
    single().save(&path).unwrap(); // an empty directory may be filled
    let error = multi().save(&path).unwrap_err().to_string();
    assert!(error.contains("already holds a dataset"), "{error}");
    let opened = Dataset::open(&path).unwrap();
    multi().save_replacing(&path).unwrap();
    assert_eq!(parts(&Dataset::open(&path).unwrap()), parts(&multi()));
    assert_eq!(parts(&opened), parts(&single()), "open mappings are unchanged");
    // A dataset may be saved over the directory from which it is mapped.
    Dataset::open(&path).unwrap().save_replacing(&path).unwrap();
    assert_eq!(parts(&Dataset::open(&path).unwrap()), parts(&multi()));

    fs::write(path.join("notes.txt"), "mine").unwrap();
    assert!(single().save_replacing(&path).unwrap_err().to_string().contains("'notes.txt'"));
    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("thesis.tex"), "mine").unwrap();
    for result in [single().save(&other), single().save_replacing(&other)] {
        assert!(result.unwrap_err().to_string().contains("does not hold a Graphmill dataset"));
    }
    assert!(single().save(other.join("thesis.tex")).is_err());
    assert_eq!(fs::read_to_string(other.join("thesis.tex")).unwrap(), "mine");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "no temporary directory is left");
}

#[test]
fn manifests_of_single_graphs_omit_the_graphs() {
    let dir = tempfile::tempdir().unwrap();
    single().save(dir.path().join("one")).unwrap();
    assert!(!fs::read_to_string(dir.path().join("one/graphmill.json")).unwrap().contains("graphs"));
    let crossed =
        Dataset { graphs: vec![NamedGraph::new("a", 0..1), NamedGraph::new("b", 1..4)], ..single() };
    assert!(crossed.save(dir.path().join("two")).unwrap_err().to_string().contains("no edge joins two"));
}

#[test]
fn an_invalid_dataset_is_not_saved() {
    let dir = tempfile::tempdir().unwrap();
    let nan = Dataset { features: Features::f32(2, vec![f32::NAN; 8]), ..single() };
    assert!(nan.save(dir.path().join("nan")).unwrap_err().to_string().contains("finite"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

fn files(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Steps coprime with 8 reach every bit of a byte; the manifest's own tests flip all.
#[test]
fn truncations_and_flipped_bits_are_reported_with_the_file() {
    for dataset in [single(), multi(), sparse()] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        dataset.save(&path).unwrap();
        for file in files(&path) {
            let name = file.file_name().unwrap().to_str().unwrap().to_string();
            let good = fs::read(&file).unwrap();
            let check = |bytes: &[u8], what: String| {
                fs::write(&file, bytes).unwrap();
                let error = Dataset::open(&path).expect_err(&format!("{name}, {what}")).to_string();
                assert!(error.contains(&name), "{name}, {what}: {error}");
            };
            for length in (0..good.len()).step_by(37) {
                check(&good[..length], format!("truncated to {length}"));
            }
            check(&good[..good.len() - 1], "one byte short".into());
            check(&[&good[..], b"\n"].concat(), "one byte long".into());
            for bit in (0..good.len() * 8).step_by(if name.ends_with("json") { 151 } else { 31 }) {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                check(&bad, format!("bit {bit}"));
            }
            fs::remove_file(&file).unwrap();
            let error = Dataset::open(&path).unwrap_err().to_string();
            assert!(error.contains(&name), "{name} missing: {error}");
            fs::write(&file, &good).unwrap();
        }
        assert_eq!(parts(&Dataset::open(&path).unwrap()), parts(&dataset));
    }
}

/// Changes a byte of a file without a trace in its size, and sets its modification time.
fn damage(file: &Path, time: std::time::SystemTime) {
    let mut bytes = fs::read(file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(file, bytes).unwrap();
    fs::File::options().write(true).open(file).unwrap().set_modified(time).unwrap();
}

#[test]
fn unchanged_files_are_not_read_again_and_changed_ones_are() {
    for dataset in [single(), sparse()] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        dataset.save(&path).unwrap();
        // files that were just written are not recorded
        std::thread::sleep(std::time::Duration::from_millis(25));
        assert_eq!(parts(&Dataset::open(&path).unwrap()), parts(&dataset));
        let record = fs::read(path.join("verified.json")).unwrap();
        assert_eq!(parts(&Dataset::open(&path).unwrap()), parts(&dataset));
        let changed = |name: &str| {
            let file = path.join(name);
            let time = fs::metadata(&file).unwrap().modified().unwrap();
            // no reader opens the file, unless everything is read
            damage(&file, time);
            Dataset::open(&path).unwrap();
            assert!(fs::read(path.join("verified.json")).unwrap() == record, "nothing was verified");
            let error = Dataset::open_verified(&path).unwrap_err().to_string();
            assert!(error.contains(&format!("{name}: checksum: the file is damaged")), "{error}");
            // the same damage at another time is found, and its repair
            let later = time + std::time::Duration::from_millis(1);
            fs::File::options().write(true).open(&file).unwrap().set_modified(later).unwrap();
            let error = Dataset::open(&path).unwrap_err().to_string();
            assert!(error.contains(&format!("{name}: checksum: the file is damaged")), "{error}");
            damage(&file, time);
        };
        ["indices.npy", "edge_weight.npy", "labels.npy", "train.npy"].into_iter().for_each(changed);
        changed(if dataset.features.data.kind().is_some() { "features.npy" } else { "features_indices.npy" });
        assert_eq!(parts(&Dataset::open_verified(&path).unwrap()), parts(&dataset));
        // the record may be lost, and a dataset with one may be replaced
        fs::remove_file(path.join("verified.json")).unwrap();
        assert_eq!(parts(&Dataset::open(&path).unwrap()), parts(&dataset));
        dataset.save_replacing(&path).unwrap();
        assert!(!path.join("verified.json").exists());
    }
}

#[test]
fn a_whole_file_of_the_wrong_kind_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    single().save(&path).unwrap();
    for file in files(&path).iter().filter(|file| file.extension().unwrap() == "npy") {
        let good = fs::read(file).unwrap();
        npy::write(file, &[7u16; 2], &[2]).unwrap();
        let error = Dataset::open(&path).unwrap_err().to_string();
        assert!(error.contains(file.to_str().unwrap()), "{error}");
        fs::write(file, good).unwrap();
    }
}

/// NumPy must be able to open every part: magic, version 1, and the data at a multiple of 64.
#[test]
fn the_files_are_plain_npy_arrays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    single().save(&path).unwrap();
    let names: Vec<String> =
        files(&path).iter().map(|file| file.file_name().unwrap().to_str().unwrap().into()).collect();
    let expected = [
        "edge_weight.npy",
        "features.npy",
        "graphmill.json",
        "indices.npy",
        "indptr.npy",
        "labels.npy",
        "test.npy",
        "train.npy",
        "valid.npy",
    ];
    assert_eq!(names, expected);
    let types =
        [("features.npy", "<f4"), ("indices.npy", "<u4"), ("indptr.npy", "<u8"), ("labels.npy", "<i4")];
    for (name, dtype) in types {
        let array = npy::open(path.join(name)).unwrap();
        assert_eq!(array.dtype.to_string(), dtype);
        assert_eq!(array.offset() % 64, 0);
        assert!(fs::read(path.join(name)).unwrap().starts_with(b"\x93NUMPY\x01\x00"));
    }
}
