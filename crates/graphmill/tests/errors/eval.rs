//! `graphmill eval`, and the errors of every command that opens a run.

use std::fs;

use graphmill_core::Features;
use graphmill_data::Dataset;

use super::{FAILED, USAGE, common::copy_dir, refused, sandbox_with_run};

#[test]
fn wrong_arguments_are_wrong_usage() {
    let sandbox = sandbox_with_run();
    refused(&sandbox, "eval", USAGE, &["<RUN>"], "");
    refused(&sandbox, "eval run --threads -1", USAGE, &["--threads"], "");
    refused(&sandbox, "eval run --threads x", USAGE, &["--threads"], "");
}

#[test]
fn wrong_paths_are_refused() {
    let sandbox = sandbox_with_run();
    for (args, says) in [
        ("eval nowhere", vec!["nowhere", "not a run directory"]),
        ("eval data", vec!["data", "not a run directory"]),
        ("eval run --dataset nowhere", vec!["nowhere"]),
    ] {
        refused(&sandbox, args, FAILED, &says, "");
    }
}

#[cfg(unix)]
#[test]
fn unreadable_models_are_reported() {
    let Some(sandbox) = super::sandbox_with_locked_dir() else { return };
    super::set_mode(&sandbox, "run/best.safetensors", 0o000);
    refused(&sandbox, "eval run", FAILED, &["best.safetensors"], "");
    super::set_mode(&sandbox, "locked", 0o755);
}

#[test]
fn another_dataset_must_fit_the_model() {
    let sandbox = sandbox_with_run();
    let base = Dataset::open(sandbox.path("data")).unwrap();
    let save = |name: &str, features: Features| {
        Dataset { name: name.to_string(), features, ..base.clone() }.save(sandbox.path(name)).unwrap();
    };
    save("bare", Features::default());
    save("narrow", Features::f32(7, vec![1.0; base.num_nodes() * 7]));
    for command in ["eval run", "predict run --out new.npy"] {
        let says = [
            "dataset narrow: its features have 7 columns, but the model was trained on 24",
            "pass a dataset with the shape of sbm",
        ];
        refused(&sandbox, &format!("{command} --dataset narrow"), FAILED, &says, "new");
        refused(&sandbox, &format!("{command} --dataset bare"), FAILED, &["bare", "no features"], "new");
    }
}

#[test]
fn errors_of_a_damaged_run_name_the_file() {
    let sandbox = sandbox_with_run();
    let bad = |name: &str, file: &str, change: fn(&mut Vec<u8>)| {
        copy_dir(&sandbox.path("run"), &sandbox.path(name));
        let mut bytes = sandbox.read(format!("run/{file}"));
        change(&mut bytes);
        sandbox.write(&format!("{name}/{file}"), bytes);
    };
    bad("cut", "best.safetensors", |bytes| bytes.truncate(60));
    bad("empty", "best.safetensors", Vec::clear);
    bad("huge", "best.safetensors", |bytes| bytes[..8].copy_from_slice(&u64::MAX.to_le_bytes()));
    bad("text", "best.safetensors", |bytes| *bytes = b"not a file of weights".to_vec());
    bad("long", "best.safetensors", |bytes| bytes.push(0));
    for run in ["cut", "empty", "huge", "text", "long"] {
        let says = format!("{run}/best.safetensors: ");
        refused(&sandbox, &format!("eval {run}"), FAILED, &[&says], "");
        refused(&sandbox, &format!("predict {run} --out new.npy"), FAILED, &[&says], "new");
    }
    bad("wider", "config.toml", |bytes| {
        *bytes = String::from_utf8(bytes.clone()).unwrap().replace("hidden = 8", "hidden = 9").into();
    });
    let says = ["wider: ", "hidden = 8, but its configuration now says hidden = 9"];
    refused(&sandbox, "eval wider", FAILED, &says, "");
    // without a checkpoint, which binds the options, shapes are compared
    fs::remove_dir_all(sandbox.path("wider/checkpoint")).unwrap();
    refused(&sandbox, "eval wider", FAILED, &["wider/best.safetensors", "shape"], "");
    bad("unknown", "config.toml", |bytes| {
        *bytes = String::from_utf8(bytes.clone()).unwrap().replace("\"sage\"", "\"sago\"").into();
    });
    refused(&sandbox, "eval unknown", FAILED, &["unknown: ", "model = \"sage\"", "\"sago\""], "");
    fs::remove_dir_all(sandbox.path("unknown/checkpoint")).unwrap();
    refused(&sandbox, "eval unknown", FAILED, &["unknown/config.toml", "sago", "sage, gcn"], "");
    bad("torn", "config.toml", |bytes| {
        bytes.truncate(bytes.len() - 1 - "checkpoint_seconds = 60.0".len() / 2)
    });
    refused(&sandbox, "eval torn", FAILED, &["torn/config.toml"], "");
    fs::remove_file(sandbox.path("cut/best.safetensors")).unwrap();
    refused(&sandbox, "eval cut", FAILED, &["cut/best.safetensors", "no best model yet"], "");
    fs::remove_dir_all(sandbox.path("cut/checkpoint")).unwrap();
    refused(&sandbox, "eval cut --last", FAILED, &["cut", "no checkpoint yet"], "");
}
