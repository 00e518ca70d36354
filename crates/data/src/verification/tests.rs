use std::{
    fs,
    ops::Range,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use graphmill_core::{Features, Graph, Labels, NodeId, Result, SparseRows, progress::Quiet};
use half::f16;
use tempfile::TempDir;

use super::*;
use crate::{
    Dataset, TypedDataset,
    external::Scratch,
    npy,
    typed::{self, TypedBuilder},
};

/// Nodes and columns of 2.5 chunks.
const NODES: usize = 655;
const DIM: usize = 1000;

fn of(features: Features) -> Dataset {
    let nodes = features.len() / features.dim;
    Dataset {
        graph: Graph::new(vec![0; nodes + 1].into(), Vec::new().into()).unwrap(),
        features,
        labels: Labels::Single { class: vec![0; nodes].into(), classes: 1 },
        ..Dataset::default()
    }
}

fn values() -> Vec<f32> {
    (0..NODES * DIM).map(|i| (i % 1013) as f32).collect()
}

/// Dataset in the directory `data` of a temporary one, and that directory.
fn saved() -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("data");
    of(Features::f32(DIM, values())).save(&dir).unwrap();
    (root, dir)
}

/// Flips a bit of the file at `path`.
fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

fn verifier(data: &Dataset) -> &ChunkVerifier {
    data.features.verifier().expect("features that are verified later")
}

fn error<T>(result: Result<T>) -> String {
    result.err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn first_reads_refuse_a_damaged_chunk_and_no_other() {
    let (_root, dir) = saved();
    let file = dir.join("features.npy");
    flip(&file, CHUNK + 77);
    let row = 4 * DIM;
    for threads in [1, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let data = Dataset::open_with(&dir, Verify::FirstRead).unwrap();
            let verifier = verifier(&data);
            verifier.verify_rows(&[7, 0, 654, 7], row).unwrap();
            assert_eq!(verifier.bytes_verified(), (CHUNK - 4096 + (4096 + NODES * row) % CHUNK) as u64);
            // a row in two chunks
            let first = ((CHUNK - 4096) / row) as NodeId;
            for ids in [[300, 0], [first, 5]] {
                let found = error(verifier.verify_rows(&ids, row));
                let place = format!("features.npy: bytes {CHUNK} to {}: the features are damaged", 2 * CHUNK);
                assert!(found.contains(&place) && found.contains("import the data again"), "{found}");
            }
            assert_eq!(error(verifier.verify_all()), error(verifier.verify_rows(&[300], row)));
            assert!(!verifier.is_done());
        });
    }
    assert!(error(Dataset::open_verified(&dir)).contains("the file is damaged"));
    let skipped = Dataset::open_with(&dir, Verify::NoFeatures).unwrap();
    verifier(&skipped).verify_rows(&[300], row).unwrap();
    assert!(verifier(&skipped).is_off() && verifier(&skipped).bytes_verified() == 0);
}

#[test]
fn each_chunk_is_read_once_by_any_number_of_threads() {
    let (_root, dir) = saved();
    let data = Dataset::open_with(&dir, Verify::FirstRead).unwrap();
    let (verifier, reads) = (verifier(&data), AtomicUsize::new(0));
    let bytes = fs::read(dir.join("features.npy")).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (reads, bytes) = (&reads, &bytes);
            scope.spawn(move || {
                for i in 0..200 {
                    let at = (thread * 7919 + i * 104_729) % (bytes.len() as u64 - 9);
                    let read = |range: Range<u64>, see: &mut dyn FnMut(&[u8])| {
                        reads.fetch_add(1, Relaxed);
                        see(&bytes[range.start as usize..range.end as usize]);
                        Ok(())
                    };
                    verifier.verify_ranges(std::iter::once(at..at + 9), &read).unwrap();
                }
            });
        }
    });
    assert_eq!((reads.load(Relaxed), verifier.is_done()), (3, true));
    assert_eq!(verifier.bytes_verified(), (4 * NODES * DIM) as u64);
}

#[test]
fn forged_chunk_checksums_are_refused() {
    let (_root, dir) = saved();
    let path = dir.join(leaves::FILE_NAME);
    let good = npy::open(&path).unwrap().read_as::<u8>().unwrap();
    // damage that the forged checksums would hide
    flip(&dir.join("features.npy"), 2 * CHUNK + 1);
    let forged = checksum::leaves(&fs::read(dir.join("features.npy")).unwrap());
    let forged: Vec<u8> = forged.iter().flat_map(|leaf| leaf.to_le_bytes()).collect();
    assert_ne!(good, forged);
    for (bytes, shape, message) in [
        (&forged[..], [3, 16], "these chunk checksums are damaged"),
        (&good[..32], [2, 16], "shape [2, 16] of |u1 found"),
        (&good[..], [6, 8], "shape [6, 8]"),
    ] {
        npy::write(&path, bytes, &shape).unwrap();
        let found = error(Dataset::open_with(&dir, Verify::FirstRead));
        assert!(found.contains(message) && found.contains("info --verify"), "{found}");
    }
    flip(&dir.join("features.npy"), 2 * CHUNK + 1);
    assert!(error(Dataset::open_verified(&dir)).contains("shape [6, 8]"));
    fs::remove_file(&path).unwrap();
    Dataset::open_verified(&dir).unwrap();
    assert_eq!(npy::open(&path).unwrap().read_as::<u8>().unwrap(), good);
}

#[test]
fn datasets_without_chunk_checksums_open_and_are_verified_whole() {
    let (_root, dir) = saved();
    let path = dir.join(leaves::FILE_NAME);
    fs::remove_file(&path).unwrap();
    let open = || Dataset::open_with(&dir, Verify::FirstRead).unwrap();
    let data = open();
    assert!(!verifier(&data).has_checksums() && verifier(&data).is_done());
    verifier(&data).verify_at_opening().unwrap();
    assert_eq!(verifier(&data).bytes_at_opening(), verifier(&data).bytes());
    flip(&dir.join("features.npy"), CHUNK + 77);
    let data = open();
    verifier(&data).verify_rows(&[300], 4 * DIM).unwrap();
    assert!(error(verifier(&data).verify_all()).contains("features.npy: checksum: the features are damaged"));
    // neither is the damage copied to another dataset
    assert!(error(data.save(dir.with_extension("copy"))).contains("damaged"));
    assert!(!path.exists());
}

#[test]
fn every_writer_stores_the_checksums_of_large_features() {
    let root = tempfile::tempdir().unwrap();
    let stored = |dir: &Path, features: &str| {
        let bytes = fs::read(dir.join(features)).unwrap();
        let path = dir.join(features.replace("features.npy", leaves::FILE_NAME));
        let found = npy::open(path).unwrap().read_as::<u8>().unwrap();
        let expected: Vec<u8> = checksum::leaves(&bytes).iter().flat_map(|leaf| leaf.to_le_bytes()).collect();
        assert_eq!(found, expected, "{features}");
    };
    // from memory, in either format
    let data = of(Features::f32(DIM, values()));
    let path = |name: &str| root.path().join(name);
    data.save(path("memory")).unwrap();
    stored(&path("memory"), "features.npy");
    TypedDataset::from_dataset(&data).save(path("typed")).unwrap();
    stored(&path("typed"), "nodes/node/features.npy");
    // again, over a dataset that has the file
    data.save_replacing(path("memory")).unwrap();
    data.save_replacing(path("typed")).unwrap();
    // from a file of a scratch, whose checksums this process or an earlier one knows
    let scratch = Scratch::open(&path("scratch"), "test", 0, Box::new(Quiet)).unwrap();
    let mut rows = scratch.rows::<f32>("features", DIM).unwrap();
    rows.extend(&values()).unwrap();
    rows.spill().unwrap();
    let buffer = rows.finish().unwrap();
    let written = npy::written(&buffer).unwrap();
    let later = npy::map_written::<f32>(written.path.clone(), written.entry.clone(), None).unwrap();
    for (name, buffer) in [("linked", buffer), ("resumed", later)] {
        of(Features::f32(DIM, buffer)).save(path(name)).unwrap();
        stored(&path(name), "features.npy");
        let identity = Dataset::open(path(name)).unwrap().checksum;
        assert_eq!(identity, Dataset::open(path("memory")).unwrap().checksum);
    }
    // small features have none
    of(Features::f32(2, vec![1.0; 4])).save(path("small")).unwrap();
    assert!(!path("small").join(leaves::FILE_NAME).exists());
}

#[test]
fn tables_of_typed_datasets_are_verified_by_first_reads() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("data");
    let mut builder = TypedBuilder::new("types");
    let half: Vec<f16> = values().iter().map(|&x| f16::from_f32(x)).collect();
    builder.node_type("half", NODES).features(DIM, half);
    builder.node_type("whole", NODES).features(DIM, (0..NODES * DIM).map(|i| i as i32).collect::<Vec<_>>());
    builder.node_type("small", 2).features(2, vec![1.0f32, 2.0, 3.0, 4.0]);
    builder.node_type("learned", 3);
    builder.build().unwrap().save(&dir).unwrap();
    let open = || typed::open(&dir, Verify::FirstRead).unwrap();
    let damaged = |name: &str, at: usize| {
        flip(&dir.join(format!("nodes/{name}/features.npy")), at);
        let data = open();
        let faults: Vec<String> = data.feature_tables().map(|table| error(table.verify())).collect();
        flip(&dir.join(format!("nodes/{name}/features.npy")), at);
        faults
    };
    for (t, (name, at)) in
        [("half", CHUNK + 5), ("whole", 2 * CHUNK), ("small", 4097)].into_iter().enumerate()
    {
        let faults = damaged(name, at);
        assert_eq!(faults.len(), 3);
        assert!(faults[t].contains(&format!("{name}/features.npy: bytes")), "{faults:?}");
        assert!(faults.iter().enumerate().all(|(other, fault)| other == t || fault.is_empty()));
    }
    let data = open();
    let verifier = data.nodes[0].features.as_ref().unwrap().verifier().unwrap();
    verifier.verify_rows(&[0], 2 * DIM).unwrap();
    assert_eq!(verifier.bytes_verified(), (CHUNK - 4096) as u64);
}

/// Sparse rows are read whole at every opening, because their columns are checked.
#[test]
fn sparse_features_of_any_size_are_verified_at_opening() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("data");
    of(Features::csr(SparseRows::from_dense(2, &[0.0, 1.0, 2.0, 0.0]).unwrap())).save(&dir).unwrap();
    for name in ["features_indptr.npy", "features_indices.npy", "features_values.npy"] {
        flip(&dir.join(name), 4096);
        for verify in [Verify::Once, Verify::FirstRead, Verify::NoFeatures] {
            let found = error(Dataset::open_with(&dir, verify));
            assert!(found.contains(&format!("{name}: checksum")), "{found}");
        }
        flip(&dir.join(name), 4096);
    }
}

#[test]
fn values_that_are_not_finite_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("features.npy");
    let mut values = values();
    values[400_000] = f32::NAN;
    npy::write_new(&path, &values, &[NODES, DIM]).unwrap();
    let bytes = fs::read(&path).unwrap();
    let leaves = checksum::leaves(&bytes);
    let sum = checksum::root(bytes.len() as u64, &leaves);
    for leaves in [Some(leaves), None] {
        let bytes: Buffer<u8> = bytes.clone().into();
        let verifier = super::verifier::<f32>(path.clone(), bytes, 4096, &sum, leaves);
        let found = error(verifier.verify_all());
        assert!(found.contains("value 138880 from byte 1048576 on is not a finite number"), "{found}");
    }
}
