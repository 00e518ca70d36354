//! Rows of feature files that were not verified when their dataset was opened: every tier verifies
//! them when it reads them for the first time.

use std::{fs, path::Path, sync::Arc};

use graphmill_core::{FeatureData, Features, Graph, Labels, NodeId, matrix::TableType};
use graphmill_data::{Dataset, TypedDataset, dataset::StoredTable, typed, verification::Verify};
use graphmill_loader::{
    Feature,
    feature::{
        Disk, DiskOptions, Host,
        cached::{CacheLayout, Dynamic, Level, Pinned, Placement},
        disk::{Direct, ReaderKind},
    },
    policy::{Make, fifo::Fifo},
};
use half::f16;

/// Columns, and rows of 2.5 MiB of 16-bit values or 5 MiB of 32-bit ones.
const DIM: usize = 500;
const ROWS: usize = 2621;
const MIB: usize = 1 << 20;

fn dataset(is_half: bool) -> Dataset {
    let values: Vec<f32> = (0..ROWS * DIM).map(|i| (i % 1013) as f32).collect();
    let data = match is_half {
        true => FeatureData::F16(values.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>().into()),
        false => FeatureData::F32(values.into()),
    };
    Dataset {
        graph: Graph::new(vec![0; ROWS + 1].into(), Vec::new().into()).unwrap(),
        features: Features { dim: DIM, data },
        labels: Labels::Single { class: vec![0; ROWS].into(), classes: 1 },
        ..Dataset::default()
    }
}

/// A tier over the rows of a dataset.
type Tier = Box<dyn Fn(&Dataset, &StoredTable) -> graphmill_core::Result<Box<dyn Feature>>>;

fn disk(data: &Dataset, table: &StoredTable, options: &DiskOptions) -> graphmill_core::Result<Disk> {
    let disk = Disk::open(&table.path, table.offset, table.dim, table.kind, table.rows, options)?;
    Ok(disk.verified_by(data.features.verifier()))
}

/// Every way of reading the rows of a file.
fn tiers() -> Vec<(String, Tier)> {
    let mut tiers: Vec<(String, Tier)> = Vec::new();
    for (name, reader) in ReaderKind::ALL {
        for (mode, direct) in [("direct", Direct::Auto), ("page cache", Direct::Off)] {
            for threads in [0, 3] {
                let options = DiskOptions { reader, direct, threads, ..DiskOptions::default() };
                let tier = move |data: &Dataset, table: &StoredTable| {
                    Ok(Box::new(disk(data, table, &options)?) as Box<dyn Feature>)
                };
                tiers.push((format!("{name}, {mode}, {threads} threads"), Box::new(tier)));
            }
        }
    }
    let behind =
        |data: &Dataset, table: &StoredTable| disk(data, table, &DiskOptions::default()).map(Arc::new);
    tiers.push(("mapped".into(), Box::new(|data, _| Ok(Box::new(Host::new(&data.features))))));
    tiers.push((
        "pinned".into(),
        Box::new(move |data, table| {
            let layout = CacheLayout::new(&[0, 1], 2, 1, Placement::Shard);
            Ok(Box::new(Pinned::new(layout, TableType::F32, behind(data, table)?, Level::Host)?))
        }),
    ));
    tiers.push((
        "dynamic".into(),
        Box::new(move |data, table| {
            let make: Make = |nodes, slots| Box::new(Fifo::new(nodes, slots));
            Ok(Box::new(Dynamic::new(make, 64, TableType::F32, behind(data, table)?, Level::Host)?))
        }),
    ));
    tiers
}

/// Reads rows and compares them with those that were written.
fn check(tier: &dyn Feature, ids: &[NodeId]) -> Result<u64, String> {
    let mut out = vec![-1.0; ids.len() * DIM];
    let traffic = tier.read(ids, &mut out).map_err(|error| error.to_string())?;
    for (&v, row) in ids.iter().zip(out.chunks_exact(DIM)) {
        let start = v as usize * DIM;
        assert!(row.iter().enumerate().all(|(j, &x)| x == ((start + j) % 1013) as f32), "row {v}");
    }
    Ok(traffic.disk.bytes)
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn every_tier_refuses_a_damaged_chunk_and_reads_the_others() {
    let root = tempfile::tempdir().unwrap();
    for is_half in [true, false] {
        for is_typed in [false, true] {
            let dir = root.path().join(format!("{is_half} {is_typed}"));
            let data = dataset(is_half);
            match is_typed {
                true => TypedDataset::from_dataset(&data).save(&dir).unwrap(),
                false => data.save(&dir).unwrap(),
            }
            assert_eq!(typed::is_typed(&dir), is_typed);
            let table = StoredTable::features(&dir).unwrap();
            let row = DIM * table.kind.width();
            let damaged = (MIB + 500 - 4096) / row;
            flip(&table.path, MIB + 500);
            for (name, tier) in tiers() {
                let data = Dataset::open_with(&dir, Verify::FirstRead).unwrap();
                // systems without io_uring refuse its reader
                let Ok(tier) = tier(&data, &table) else { continue };
                check(&*tier, &[5, 9, 5, 0]).unwrap();
                check(&*tier, &[ROWS as NodeId - 1, 7]).unwrap();
                // the rows of the damaged chunk, among others
                for ids in [[damaged as NodeId, 2], [2, damaged as NodeId + 7]] {
                    let error = check(&*tier, &ids).expect_err(&name);
                    let place = format!("features.npy: bytes {MIB} to {}: the features are damaged", 2 * MIB);
                    assert!(error.contains(&place), "{name}: {error}");
                }
                check(&*tier, &[6, 3]).unwrap();
            }
            flip(&table.path, MIB + 500);
        }
    }
}

#[test]
fn chunks_are_read_once_and_rows_alone_afterwards() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("data");
    dataset(false).save(&dir).unwrap();
    let (table, data) =
        (StoredTable::features(&dir).unwrap(), Dataset::open_with(&dir, Verify::FirstRead).unwrap());
    let options = DiskOptions { direct: Direct::Off, ..DiskOptions::default() };
    let tier = disk(&data, &table, &options).unwrap();
    // the rows lie in one chunk
    assert_eq!(check(&tier, &[3, 80]).unwrap(), (MIB + 2 * 4 * DIM) as u64);
    assert_eq!(check(&tier, &[3, 100]).unwrap(), (2 * 4 * DIM) as u64);
    // a second tier over the same dataset reads no chunk again
    assert_eq!(check(&disk(&data, &table, &options).unwrap(), &[9]).unwrap(), (4 * DIM) as u64);
    let verifier = data.features.verifier().unwrap();
    assert_eq!(verifier.bytes_verified(), (MIB - 4096) as u64);
    check(&tier, &(0..ROWS as NodeId).collect::<Vec<_>>()).unwrap();
    assert!(verifier.is_done());
}

#[test]
fn copies_in_memory_are_verified_whole() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("data");
    dataset(true).save(&dir).unwrap();
    let copy = || {
        let data = Dataset::open_with(&dir, Verify::FirstRead).unwrap();
        Host::resident(&data.features, TableType::F32).map(|host| check(&host, &[3]))
    };
    copy().unwrap().unwrap();
    flip(&dir.join("features.npy"), 2 * MIB + 1);
    assert!(copy().unwrap_err().to_string().contains("the features are damaged"));
}
