//! `graphmill export`.

use super::{FAILED, USAGE, common::Sandbox, refused, sandbox_with_run};

#[test]
fn wrong_arguments_are_wrong_usage() {
    let sandbox = sandbox_with_run();
    refused(&sandbox, "export", USAGE, &["<DATASET>"], "");
    refused(&sandbox, "export data npz", USAGE, &["<DST>"], "");
    refused(&sandbox, "export data gml new", USAGE, &["gml", "npz", "edges", "csv", "graphmill"], "new");
    refused(&sandbox, "export data npz new --undirected-once", USAGE, &["undirected-once", "edges"], "new");
    refused(&sandbox, "export data npz new --threads x", USAGE, &["--threads"], "new");
    refused(&sandbox, "export data npz new --colour red", USAGE, &["--colour"], "new");
}

#[test]
fn wrong_paths_are_refused() {
    let sandbox = sandbox_with_run();
    sandbox.write("file", "text");
    sandbox.write("dir/thesis.tex", "mine");
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
        refused(&sandbox, args, FAILED, &says, "new");
    }
    assert_eq!(sandbox.read("file"), b"text");
    assert_eq!(sandbox.read("dir/thesis.tex"), b"mine");
}

#[test]
fn damaged_datasets_are_not_exported() {
    let sandbox = sandbox_with_run();
    let mut bytes = sandbox.read("data/indices.npy");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    sandbox.write("data/indices.npy", bytes);
    for format in ["npz", "edges"] {
        refused(&sandbox, &format!("export data {format} new"), FAILED, &["data/indices.npy: "], "new");
    }
}

#[test]
fn exports_import_to_the_same_bytes() {
    let sandbox = Sandbox::new();
    let dataset = sandbox.multi_label_dataset("data");
    let report = sandbox.ok_json("export data npz a.npz --compress");
    assert_eq!(report["edges"], dataset.graph.num_edges());
    sandbox.ok("export data edges list --undirected-once --compress");
    let outcome = sandbox.run("export data edges list.txt.gz").succeeded();
    assert!(outcome.stderr.contains("left out: features"), "{}", outcome.stderr);
    refused(&sandbox, "export data edges list", FAILED, &["list: ", "--force"], "");
    sandbox.ok("export data edges list --force");
    sandbox.ok("import npz a.npz again");
    sandbox.ok("import edges list again2");
    for again in ["again", "again2"] {
        for file in ["indices", "indptr", "features", "labels", "train", "valid", "test"] {
            let file = format!("{file}.npy");
            assert_eq!(
                sandbox.read(format!("{again}/{file}")),
                sandbox.read(format!("data/{file}")),
                "{again}/{file}"
            );
        }
    }
}
