//! `graphmill info`, and the errors of every command that opens a dataset.

use std::fs;

use serde_json::{Value, json};

use super::{
    FAILED, USAGE,
    common::{Sandbox, copy_dir},
    files::{declare, forge, last},
    refused, sandbox_with_run,
};

#[test]
fn wrong_arguments_are_wrong_usage() {
    let sandbox = sandbox_with_run();
    refused(&sandbox, "info", USAGE, &["<DATASET>"], "");
    refused(&sandbox, "info data --threads -1", USAGE, &["--threads"], "");
    refused(&sandbox, "info data --threads x", USAGE, &["--threads"], "");
}

#[test]
fn wrong_paths_are_refused() {
    let sandbox = sandbox_with_run();
    sandbox.write("file", "text");
    for (args, says) in [
        ("info nowhere", vec!["nowhere"]),
        ("info file", vec!["file", "directory"]),
        ("info run", vec!["run/graphmill.json"]),
    ] {
        refused(&sandbox, args, FAILED, &says, "");
    }
}

#[cfg(unix)]
#[test]
fn unreadable_files_are_reported() {
    let Some(sandbox) = super::sandbox_with_locked_dir() else { return };
    super::set_mode(&sandbox, "data/features.npy", 0o000);
    refused(&sandbox, "info data", FAILED, &["features.npy: cannot open"], "");
    super::set_mode(&sandbox, "locked", 0o755);
}

#[test]
fn a_damaged_dataset_names_the_file() {
    let sandbox = sandbox_with_run();
    let names: Vec<_> = fs::read_dir(sandbox.path("data")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(names.len() >= 8);
    for name in names {
        let name = name.to_str().unwrap();
        if name == "verified.json" {
            continue;
        }
        let good = sandbox.read(format!("data/{name}"));
        let bit = |at: usize| {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            bad
        };
        let longer = [&good[..], b"x"].concat();
        let cut = good[..good.len() / 2].to_vec();
        for bad in [cut, vec![], bit(0), bit(good.len() / 2), bit(good.len() - 1), longer] {
            sandbox.write(&format!("data/{name}"), bad);
            refused(&sandbox, "info data", FAILED, &[&format!("data/{name}: ")], "");
        }
        refused(&sandbox, "train data --out new", FAILED, &[&format!("data/{name}: ")], "new");
        refused(&sandbox, "eval run", FAILED, &[&format!("data/{name}: ")], "");
        refused(&sandbox, "predict run --out new.npy", FAILED, &[&format!("data/{name}: ")], "new");
        fs::remove_file(sandbox.path(format!("data/{name}"))).unwrap();
        refused(&sandbox, "info data", FAILED, &[&format!("data/{name}: ")], "");
        sandbox.write(&format!("data/{name}"), good);
    }
    sandbox.ok("info data");
}

#[test]
fn errors_of_an_inconsistent_dataset_name_the_position() {
    let sandbox = Sandbox::new();
    let data = sandbox.dataset("data");
    let nodes = data.num_nodes();
    type Change = Box<dyn Fn(&mut Vec<u8>)>;
    let same = || -> Change { Box::new(|_| {}) };
    type Describe = fn(&mut Value);
    let nothing: Describe = |_| {};
    let cases: Vec<(&str, Change, Describe, Vec<&str>)> = vec![
        (
            "indices.npy",
            Box::new(last(u32::MAX.to_le_bytes())),
            nothing,
            vec!["indices.npy", "4294967295", "3000"],
        ),
        ("indices.npy", Box::new(last(3000u32.to_le_bytes())), nothing, vec!["indices.npy", "3000"]),
        ("indptr.npy", Box::new(last([0, 0, 0, 1])), nothing, vec!["ind"]),
        (
            "labels.npy",
            Box::new(last(5i32.to_le_bytes())),
            nothing,
            vec!["labels.npy: contents: the label of node 2999 is 5", "5 classes"],
        ),
        (
            "labels.npy",
            Box::new(last((-2i32).to_le_bytes())),
            nothing,
            vec!["labels.npy", "label of node 2999 is -2"],
        ),
        (
            "features.npy",
            Box::new(last(f32::NAN.to_le_bytes())),
            nothing,
            vec!["features.npy", "feature 23 of node 2999"],
        ),
        (
            "features.npy",
            Box::new(last(f32::INFINITY.to_le_bytes())),
            nothing,
            vec!["features.npy", "feature 23 of node 2999"],
        ),
        ("train.npy", Box::new(last(3000u32.to_le_bytes())), nothing, vec!["train[1499] is node 3000"]),
        (
            "valid.npy",
            Box::new(last(0u32.to_le_bytes())),
            nothing,
            vec!["node 0 is in 'valid' and in 'train'"],
        ),
        ("graphmill.json", same(), |m| m["nodes"] = json!(1u64 << 60), vec!["indptr.npy"]),
        ("graphmill.json", same(), |m| m["nodes"] = json!(u64::MAX), vec!["graphmill.json", "nodes"]),
        ("graphmill.json", same(), |m| m["edges"] = json!(3), vec!["indices.npy"]),
        ("graphmill.json", same(), |m| m["feature_dim"] = json!(1u64 << 62), vec!["features.npy"]),
        ("graphmill.json", same(), |m| m["feature_dim"] = json!(0), vec!["features"]),
        ("graphmill.json", same(), |m| m["classes"] = json!(2), vec!["label of node", "2 classes"]),
        ("graphmill.json", same(), |m| m["multilabel"] = json!(true), vec!["labels.npy"]),
        ("graphmill.json", same(), |m| m["version"] = json!(3), vec!["graphmill.json", "version 3"]),
        ("graphmill.json", same(), |m| m["format"] = json!("gml"), vec!["graphmill.json", "gml"]),
        ("graphmill.json", same(), |m| m["nodes"] = json!(-1), vec!["graphmill.json: line"]),
        ("graphmill.json", same(), |m| m["colour"] = json!("red"), vec!["graphmill.json", "colour"]),
    ];
    assert_eq!(nodes, 3000);
    for (i, (file, change, describe, mut says)) in cases.into_iter().enumerate() {
        let name = format!("bad{i}");
        copy_dir(&sandbox.path("data"), &sandbox.path(&name));
        if file == "graphmill.json" {
            // only the manifest changes; the array named here stays the same
            forge(&sandbox.path(&name), "train.npy", |_| {}, describe);
        } else {
            forge(&sandbox.path(&name), file, change, describe);
        }
        says.push(&name);
        refused(&sandbox, &format!("info {name}"), FAILED, &says, "");
        refused(&sandbox, &format!("train {name} --out new"), FAILED, &says, "new");
    }
}

#[test]
fn a_header_with_a_huge_shape_is_refused_at_once() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    let lie = |bytes: &mut Vec<u8>| declare(bytes, "(3000,)", "(9223372036854775807,)");
    forge(&sandbox.path("data"), "labels.npy", lie, |_| {});
    refused(&sandbox, "info data", FAILED, &["data/labels.npy"], "");
}
