use std::{
    fs::{self, File},
    io::{Seek, SeekFrom, Write},
};

use graphmill_core::{Labels, disk, keyed::Stream};
use half::f16;

use super::{
    file::{TAIL, fits, is_bottom_file},
    *,
};
use crate::Dataset;

const NODES: usize = 120;
const DIM: usize = 5;
const KINDS: [Aggregation; 3] = [Aggregation::Mean, Aggregation::Sum, Aggregation::Symmetric];

/// Graph whose node `v` has `v % 7` in-neighbours; the same edge may repeat.
fn graph(seed: u64) -> Graph {
    let mut stream = Stream::new(seed);
    let (mut indptr, mut indices) = (vec![0], Vec::new());
    for v in 0..NODES {
        indices.extend((0..v % 7).map(|_| stream.below(NODES as u64) as u32));
        indptr.push(indices.len() as u64);
    }
    Graph::new(indptr.into(), indices.into()).unwrap()
}

fn values(seed: u64) -> Vec<f32> {
    let mut stream = Stream::new(seed);
    (0..NODES * DIM).map(|_| stream.uniform() as f32 - 0.5).collect()
}

fn half(values: &[f32]) -> Features {
    let data: Vec<f16> = values.iter().map(|&x| f16::from_f32(x)).collect();
    Features { dim: DIM, data: FeatureData::F16(data.into()) }
}

fn widened(features: &Features) -> Vec<f64> {
    match &features.data {
        FeatureData::F32(x) => x.iter().map(|&x| x.widen()).collect(),
        FeatureData::F16(x) => x.iter().map(|&x| x.widen()).collect(),
        FeatureData::Csr(_) => unreachable!("no test has sparse rows"),
    }
}

/// `A X` with a dense matrix.
fn dense(graph: &Graph, x: &[f64], kind: Aggregation) -> Vec<f64> {
    let degree = |v: usize| graph.in_degree(v as u32) as f64;
    let mut a = vec![0.0; NODES * NODES];
    for v in 0..NODES {
        for &u in graph.in_neighbors(v as u32) {
            a[v * NODES + u as usize] += match kind {
                Aggregation::Mean => 1.0 / degree(v),
                Aggregation::Symmetric => ((degree(v) + 1.0) * (degree(u as usize) + 1.0)).sqrt().recip(),
                _ => 1.0,
            };
        }
        if kind == Aggregation::Symmetric {
            a[v * NODES + v] += 1.0 / (degree(v) + 1.0);
        }
    }
    let cell = |i: usize| (0..NODES).map(|u| a[i / DIM * NODES + u] * x[u * DIM + i % DIM]).sum();
    (0..NODES * DIM).map(cell).collect()
}

#[test]
fn aggregates_match_a_dense_product_in_memory_and_in_a_file() {
    let (graph, values) = (graph(1), values(2));
    for (features, tolerance) in [(Features::f32(DIM, values.clone()), 1e-6), (half(&values), 2e-3)] {
        for kind in KINDS {
            let dir = tempfile::tempdir().unwrap();
            let x = widened(&features);
            let in_memory = widened(&stacked(&graph, &features, kind, None, Verify::Once).unwrap());
            assert_eq!(in_memory[..x.len()], x, "{kind:?}");
            for (found, expected) in in_memory[x.len()..].iter().zip(dense(&graph, &x, kind)) {
                assert!((found - expected).abs() <= tolerance, "{kind:?}: {found}, {expected}");
            }
            for _ in 0..2 {
                let mapped = stacked(&graph, &features, kind, Some(dir.path()), Verify::Once).unwrap();
                assert_eq!(widened(&mapped), in_memory);
            }
            for file in fs::read_dir(dir.path()).unwrap() {
                assert!(is_bottom_file(file.unwrap().file_name().to_str().unwrap()));
            }
        }
    }
}

#[test]
fn files_do_not_depend_on_the_number_of_threads() {
    let (graph, features) = (graph(1), Features::f32(DIM, values(2)));
    let file = |threads: usize| {
        let dir = tempfile::tempdir().unwrap();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let path = Some(dir.path());
        pool.install(|| stacked(&graph, &features, Aggregation::Symmetric, path, Verify::Once).unwrap());
        fs::read(dir.path().join("bottom_symmetric.bin")).unwrap()
    };
    assert!(file(1) == file(3));
}

#[test]
fn files_of_other_graphs_or_features_are_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let of = |graph: &Graph, features: &Features, dir| {
        widened(&stacked(graph, features, Aggregation::Mean, dir, Verify::Once).unwrap())
    };
    let (one, x) = (graph(1), Features::f32(DIM, values(2)));
    of(&one, &x, Some(dir.path()));
    for (graph, features) in [(graph(3), x.clone()), (one, Features::f32(DIM, values(4)))] {
        assert_eq!(of(&graph, &features, Some(dir.path())), of(&graph, &features, None));
    }
}

#[test]
fn damage_anywhere_is_detected_and_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let (graph, features) = (graph(1), half(&values(2)));
    let make = || stacked(&graph, &features, Aggregation::Sum, Some(dir.path()), Verify::Once).map(|_| ());
    make().unwrap();
    let path = dir.path().join("bottom_sum.bin");
    let good = fs::read(&path).unwrap();
    let check = |bad: &[u8]| {
        fs::write(&path, bad).unwrap();
        make().unwrap();
        assert!(fs::read(&path).unwrap() == good);
    };
    for length in [0, HEAD, good.len() - 1] {
        check(&good[..length]);
    }
    check(&[&good[..], &[0]].concat());
    for byte in (0..good.len()).step_by(97).chain([good.len() - 1]) {
        let mut bad = good.clone();
        bad[byte] ^= 4;
        check(&bad);
    }
}

/// Sets the modification time of a file to a minute ago, so that its verification is recorded.
fn age(path: &Path) {
    let time = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
    File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn a_dataset_on_disk_gives_its_checksums_and_a_file_is_verified_once() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("data");
    let of_memory = Dataset {
        graph: graph(1),
        features: Features::f32(DIM, values(2)),
        labels: Labels::Single { class: vec![0; NODES].into(), classes: 1 },
        ..Dataset::default()
    };
    of_memory.save(&place).unwrap();
    for verify in [Verify::Once, Verify::All, Verify::FirstRead, Verify::NoFeatures] {
        let data = Dataset::open_with(&place, verify).unwrap();
        assert!(
            data.features.verifier().is_some() == matches!(verify, Verify::FirstRead | Verify::NoFeatures)
        );
        let file = |data: &Dataset| {
            let FeatureData::F32(x) = &data.features.data else { panic!("f32") };
            Rows { graph: &data.graph, x, dim: DIM, aggregation: Aggregation::Mean }.file()
        };
        assert!(file(&data) == file(&of_memory), "{verify:?}: the checksums are those of the files");
    }

    let data = Dataset::open(&place).unwrap();
    let make = |verify| {
        let made = stacked(&data.graph, &data.features, Aggregation::Mean, Some(&place), verify);
        widened(&made.unwrap())
    };
    let whole = make(Verify::Once);
    let path = place.join("bottom_mean.bin");
    age(&path);
    assert_eq!(make(Verify::Once), whole);
    assert!(place.join("bottom_mean.verified.json").is_file());
    // a change that leaves size, time and inode is found by a complete verification only
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    let mut file = File::options().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(HEAD as u64)).unwrap();
    file.write_all(&9f32.to_le_bytes()).unwrap();
    file.set_modified(time).unwrap();
    drop(file);
    assert_eq!(make(Verify::Once)[0], 9.0, "not read");
    assert_eq!(make(Verify::All), whole, "made again");
    assert!(opened(&data.graph, &data.features, Aggregation::Sum, &place, Verify::Once).is_none());
    let found = opened(&data.graph, &data.features, Aggregation::Mean, &place, Verify::Once);
    assert_eq!(widened(&found.unwrap()), whole);
    assert!(opened(&graph(3), &data.features, Aggregation::Mean, &place, Verify::Once).is_none());
    assert_eq!(
        widened(&opened(&data.graph, &data.features, Aggregation::Mean, &place, Verify::All).unwrap()),
        whole
    );
}

#[test]
fn directories_without_space_or_that_are_missing_store_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let small = Features::f32(DIM, values(2));
    can_store(&small, Aggregation::Mean, dir.path()).unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
    let why = can_store(&small, Aggregation::Mean, &dir.path().join("missing")).unwrap_err();
    assert!(why.contains("cannot be stored in") && why.contains("missing"), "{why}");
    if disk::free(dir.path()).is_ok() {
        let why = fits(u64::MAX, dir.path()).unwrap_err();
        assert!(why.contains("bytes free"), "{why}");
    }
    // a file of the right length takes no more space
    let length = 2 * small.bytes() as u64 + (HEAD + TAIL) as u64;
    File::create(dir.path().join("bottom_sum.bin")).unwrap().set_len(length).unwrap();
    can_store(&small, Aggregation::Sum, dir.path()).unwrap();
}

#[test]
fn finished_and_temporary_files_are_known_by_name() {
    let records = ["bottom_sum.verified.json", ".bottom_mean.verified.json.12-0.tmp"];
    let files = ["bottom_mean.bin", ".bottom_sum.bin.12-0.tmp", "bottom_symmetric.bin"];
    let of_parts = [
        "bottom_mean_part-0003.bin",
        "bottom_sum_part-12345.verified.json",
        ".bottom_mean_part-0000.bin.1.tmp",
    ];
    for name in files.into_iter().chain(records).chain(of_parts) {
        assert!(is_bottom_file(name), "{name}");
    }
    let others = ["bottom_mean_part-.bin", "bottom_mean_part-3.bin.old", "bottom_mean_0003.bin"];
    for name in
        ["bottom_other.bin", "bottom_mean.bin.old", "mean.bin", ".bottom_sum.bin"].into_iter().chain(others)
    {
        assert!(!is_bottom_file(name), "{name}");
    }
}

#[test]
fn unsuitable_input_is_refused() {
    let graph = graph(1);
    let fault = |features: &Features, kind, dir: Option<&Path>| {
        stacked(&graph, features, kind, dir, Verify::Once).unwrap_err().to_string()
    };
    let x = Features::f32(DIM, values(2));
    assert!(fault(&x, Aggregation::Other, None).contains("depends on parameters"));
    assert!(fault(&Features::f32(3, vec![0.0; 3]), Aggregation::Mean, None).contains("do not fill"));
    let large = half(&vec![60_000.0; NODES * DIM]);
    assert!(fault(&large, Aggregation::Sum, None).contains("exceeds the range of f16"));
    let dir = tempfile::tempdir().unwrap();
    assert!(fault(&large, Aggregation::Sum, Some(dir.path())).contains("exceeds the range of f16"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "no file is left");
    fault(&x, Aggregation::Mean, Some(&dir.path().join("missing")));
}
