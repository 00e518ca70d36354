//! Several columns of classes in directories of format 2: round trips, damage and other formats.

use std::{fs, path::Path};

use graphmill_core::{ClassColumn, Labels};

use super::{Targets, TypedBuilder, TypedDataset, Verify, manifest::Manifest, open};
use crate::{
    Dataset,
    dataset::export::{self, ExportOptions},
    external::Scratch,
    reorder::relabel,
    signed::SignedManifest,
    stats,
};

const NAMES: [&str; 5] = ["bank", "shop", "north", "south", "west"];

/// Two columns of classes of four nodes, one of which has no class at all.
fn data() -> TypedDataset {
    let mut builder = TypedBuilder::new("accounts");
    builder.node_type("node", 4).text_keys(["a", "b", "c", "d"]).features(1, vec![1.0f32, 2.0, 3.0, 4.0]);
    builder.edge_type("node", "edge", "node").edges(vec![0, 1, 2], vec![1, 2, 3]);
    let columns = [("sector", 2), ("region", 3)];
    let columns = columns.map(|(name, classes)| ClassColumn { name: name.into(), classes });
    builder
        .task("sector-region")
        .on_nodes("node")
        .class_columns(columns.to_vec(), vec![0, 2, 1, -1, -1, -1, -1, 0])
        .names(NAMES)
        .split([0], [1], [3]);
    builder.build().unwrap()
}

fn labels(data: &Dataset) -> (&[i32], &[ClassColumn]) {
    let Labels::Columns { class, columns } = &data.labels else { panic!("columns") };
    (class, columns)
}

/// Changes the manifest in `dir` and signs it again.
fn edit(dir: &Path, change: impl Fn(&mut Manifest)) {
    let mut manifest = Manifest::read(dir).unwrap();
    change(&mut manifest);
    fs::write(dir.join("graphmill.json"), manifest.signed().unwrap().1).unwrap();
}

#[test]
fn columns_are_read_back_and_rearranged_with_their_nodes() {
    let dir = tempfile::tempdir().unwrap();
    let [stored, again, moved] = ["stored", "again", "moved"].map(|name| dir.path().join(name));
    data().save(&stored).unwrap();
    let one = Dataset::open(&stored).unwrap();
    let (class, columns) = labels(&one);
    assert_eq!((class, one.labels.classes()), (&[0, 2, 1, -1, -1, -1, -1, 0][..], 5));
    assert_eq!((&columns[1].name[..], columns[1].classes), ("region", 3));
    assert_eq!([0, 1, 2, 3].map(|v| one.labels.is_labelled(v)), [true, true, false, true]);
    assert!(one.to_string().contains("5 classes (several columns)"), "{one}");
    let info = stats::info(&one);
    assert_eq!((&info.class_counts[..], info.unlabelled), (&[1, 1, 1, 0, 1][..], 1));
    assert!(info.to_string().contains("sector: 2, region: 3"), "{info}");
    assert!(super::info(&data()).to_string().contains("5 classes in columns (sector: 2, region: 3)"));
    // a dataset in memory is written in the format that holds columns
    Dataset { keys: None, checksum: None, ..one.clone() }.save(&again).unwrap();
    assert_eq!(labels(&Dataset::open(&again).unwrap()), labels(&one));
    relabel(&one, &[3, 1, 0, 2], &Scratch::in_memory()).unwrap().0.save(&moved).unwrap();
    // the rows of nodes 3, 1, 0 and 2
    assert_eq!(labels(&Dataset::open(&moved).unwrap()).0, [-1, 0, 1, -1, 0, 2, -1, -1]);
}

#[test]
fn damaged_columns_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    type Change = fn(&mut Manifest);
    let cases: [(Change, &str); 6] = [
        (|m| m.tasks[0].columns[1].classes = 2, "5 classes, but its columns have 4"),
        (|m| m.tasks[0].multilabel = true, "5 classes, but its columns have 5"),
        (|m| drop(m.tasks[0].columns.pop()), "shape"),
        (|m| m.tasks[0].columns.clear(), "shape"),
        (|m| m.tasks[0].columns[1].name = "sector".into(), "column 1 is called 'sector': names are unique"),
        (
            |m| {
                m.tasks[0].columns[0].classes = 1;
                m.tasks[0].columns[1].classes = 4;
            },
            "the class of row 1 in column 'sector' is 1, outside its 1 classes",
        ),
    ];
    for (i, (change, message)) in cases.into_iter().enumerate() {
        let path = dir.path().join(i.to_string());
        data().save(&path).unwrap();
        edit(&path, change);
        let error = open(&path, Verify::All).unwrap_err().to_string();
        assert!(error.contains(message), "{i}: {error}");
    }
    let mut several = data();
    several.tasks[0].targets = Targets::Classes(Labels::Columns {
        class: vec![0; 7].into(),
        columns: several.tasks[0].columns().to_vec(),
    });
    let error = several.validate().unwrap_err().to_string();
    assert!(error.contains("7 classes for 4 rows x 2 columns"), "{error}");
}

#[test]
fn exports_hold_the_columns_or_refuse_them() {
    let dir = tempfile::tempdir().unwrap();
    let options = ExportOptions::default();
    let table = dir.path().join("tables");
    export::export_typed("csv", &data(), &table, &options).unwrap();
    let entries = |dir: &Path| fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let files = entries(&table).filter(|path| path.is_dir()).flat_map(|dir| entries(&dir));
    let texts: Vec<String> = files.map(|file| fs::read_to_string(file).unwrap()).collect();
    let nodes = texts.iter().find(|text| text.contains("_region")).unwrap();
    assert!(nodes.contains("bank,west") && nodes.contains("shop,,"), "{nodes}");
    for (format, name) in [("npz", "data.npz"), ("edges", "edges")] {
        let error = export::export_typed(format, &data(), dir.path().join(name), &options).unwrap_err();
        assert!(error.to_string().contains("use csv or graphmill"), "{format}: {error}");
    }
}
