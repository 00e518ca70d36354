//! `graphmill export`.

use crate::{FAILED, USAGE, common::Room, furnished, refused};

#[test]
fn wrong_usage() {
    let room = furnished();
    refused(&room, "export", USAGE, &["<DATASET>"], "");
    refused(&room, "export data npz", USAGE, &["<DST>"], "");
    refused(&room, "export data gml new", USAGE, &["gml", "npz", "edges"], "new");
    refused(&room, "export data npz new --undirected-once", USAGE, &["undirected-once", "edges"], "new");
    refused(&room, "export data npz new --threads x", USAGE, &["--threads"], "new");
    refused(&room, "export data npz new --colour red", USAGE, &["--colour"], "new");
}

#[test]
fn paths_that_are_not_what_they_should_be() {
    let room = furnished();
    room.write("file", "text");
    room.write("dir/thesis.tex", "mine");
    for (args, says) in [
        ("export nowhere npz new", vec!["nowhere"]),
        ("export file npz new", vec!["file", "directory"]),
        ("export data npz file", vec!["file: ", "already exists", "--force"]),
        ("export data npz dir", vec!["dir: ", "directory"]),
        ("export data npz dir --force", vec!["dir: ", "directory"]),
        ("export data edges file --force", vec!["file: ", "this is a file"]),
        ("export data edges dir", vec!["dir: ", "'thesis.tex'"]),
        ("export data edges dir --force", vec!["dir: ", "'thesis.tex'"]),
        ("export data edges data --force", vec!["data: ", "choose another directory"]),
        ("export data npz nowhere/a.npz", vec!["nowhere/a.npz: ", "parent directory does not exist"]),
    ] {
        refused(&room, args, FAILED, &says, "new");
    }
    assert_eq!(room.read("file"), b"text");
    assert_eq!(room.read("dir/thesis.tex"), b"mine");
}

#[test]
fn a_damaged_dataset_is_not_exported() {
    let room = furnished();
    let mut bytes = room.read("data/indices.npy");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    room.write("data/indices.npy", bytes);
    for format in ["npz", "edges"] {
        refused(&room, &format!("export data {format} new"), FAILED, &["data/indices.npy: "], "new");
    }
}

#[test]
fn what_is_exported_is_imported_again() {
    let room = Room::new();
    let dataset = room.multi_label_dataset("data");
    let told = room.ok_json("export data npz a.npz --compress");
    assert_eq!(told["edges"], dataset.graph.num_edges());
    room.ok("export data edges list --undirected-once --compress");
    let told = room.run("export data edges list.txt.gz").succeeded();
    assert!(told.stderr.contains("left out: features"), "{}", told.stderr);
    refused(&room, "export data edges list", FAILED, &["list: ", "--force"], "");
    room.ok("export data edges list --force");
    room.ok("import npz a.npz again");
    room.ok("import edges list again2");
    for again in ["again", "again2"] {
        for file in ["indices", "indptr", "features", "labels", "train", "valid", "test"] {
            let file = format!("{file}.npy");
            assert_eq!(
                room.read(format!("{again}/{file}")),
                room.read(format!("data/{file}")),
                "{again}/{file}"
            );
        }
    }
}
