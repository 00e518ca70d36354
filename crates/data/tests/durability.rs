//! Every kind of writer on a disk that forgets: a loss of power leaves what was there before or
//! what is there afterwards, and never a part of it.

use std::path::Path;

use graphmill_core::progress::Quiet;
use graphmill_data::{
    Dataset, TypedDataset,
    atomic::ForgettingDisk,
    dataset::{
        Work,
        export::{ExportOptions, export, export_typed},
    },
    generate::{GenerateOptions, generate, generate_to, generate_typed, generate_typed_to},
    partition::{Description, PartitionBook, write, write_types},
};

/// Does `first` and then `work` below a directory, and checks that every loss of power during or
/// after `work` leaves `place` whole, and that without syncs of directories it would not.
fn assert_atomic(place: &str, first: impl FnOnce(&Path), work: impl FnOnce(&Path)) {
    let root = tempfile::tempdir().unwrap();
    first(root.path());
    let disk = ForgettingDisk::record(root.path(), || work(root.path())).unwrap();
    // readers record in it what they verified
    let disk = disk.without("verified.json");
    assert_eq!(disk.mixture(place).unwrap(), None, "{place}");
    assert!(disk.ignoring_syncs().mixture(place).unwrap().is_some(), "{place}: no sync was missed");
}

fn options(seed: u64) -> GenerateOptions {
    GenerateOptions { nodes: 60, classes: 3, dim: 3, seed, ..GenerateOptions::default() }
}

fn one_type() -> Dataset {
    generate("sbm", &options(1)).unwrap()
}

fn typed() -> TypedDataset {
    generate_typed("typed", &options(1)).unwrap()
}

fn replacing() -> Work {
    Work { replace: true, ..Work::default() }
}

#[test]
fn datasets_of_one_type() {
    let save = |root: &Path| one_type().save(root.join("data")).unwrap();
    // its parents are made durable as well
    assert_atomic("new/place/data", |_| {}, |root| one_type().save(root.join("new/place/data")).unwrap());
    let replace =
        |root: &Path| generate("sbm", &options(2)).unwrap().save_replacing(root.join("data")).unwrap();
    assert_atomic("data", save, replace);
    // files of the scratch are linked
    let generate =
        |root: &Path| drop(generate_to("sbm", root.join("data"), &options(2), replacing()).unwrap());
    assert_atomic("data", save, generate);
}

#[test]
fn typed_datasets() {
    let save = |root: &Path| typed().save(root.join("data")).unwrap();
    assert_atomic("data", |_| {}, save);
    let generate =
        |root: &Path| drop(generate_typed_to("typed", root.join("data"), &options(2), replacing()).unwrap());
    assert_atomic("data", save, generate);
}

/// Even and odd nodes.
fn book(nodes: usize) -> PartitionBook {
    PartitionBook::new(2, (0..nodes).map(|v| (v % 2) as u16).collect::<Vec<_>>()).unwrap()
}

#[test]
fn partitions_of_both_formats() {
    let what = Description { method: "by hand", ..Description::default() };
    let data = one_type();
    let one = |root: &Path| {
        write(&data, &book(data.num_nodes()), &what, &root.join("parts"), &Quiet).map(drop).unwrap();
    };
    assert_atomic("parts", |_| {}, one);
    let data = typed();
    let several = |root: &Path| {
        write_types(&data, &book(data.num_nodes()), &what, &root.join("parts"), &Quiet).map(drop).unwrap();
    };
    assert_atomic("parts", |_| {}, several);
}

#[test]
fn exports() {
    let replace = ExportOptions { replace: true, ..ExportOptions::default() };
    let smaller = generate("sbm", &GenerateOptions { nodes: 50, ..options(3) }).unwrap();
    for (format, place) in [("edges", "d"), ("edges", "list.csv"), ("npz", "a.npz"), ("csv", "tables")] {
        let first = |root: &Path| drop(export(format, &smaller, root.join(place), &replace).unwrap());
        let work = |root: &Path| drop(export(format, &one_type(), root.join(place), &replace).unwrap());
        assert_atomic(place, first, work);
    }
    let tables = |root: &Path| drop(export_typed("csv", &typed(), root.join("tables"), &replace).unwrap());
    assert_atomic("tables", |_| {}, tables);
}

#[cfg(feature = "download")]
#[test]
fn downloads() {
    use crate::{
        download::{SHA, bytes, entry, get},
        server::{Reply, Server},
    };
    let root = tempfile::tempdir().unwrap();
    let server = Server::start(|request, _| Reply::file(request, &bytes(10_000), "\"a\""));
    let work = || drop(get(&entry("f.bin", Some(SHA)), &root.path().join("new/set"), &server).unwrap());
    let disk = ForgettingDisk::record(root.path(), work).unwrap();
    // the file has its name only once it is whole
    assert_eq!(disk.mixture("new/set/f.bin").unwrap(), None);
    assert!(disk.is_durable("new").unwrap());
    assert!(!disk.ignoring_syncs().is_durable("new").unwrap());
}
