//! Runs on several types with `--devices cuda:0` on the shim: models, caches of rows, links.

use serde_json::Value;

use crate::{
    common::Sandbox,
    cuda::{SMALL, agrees, number, on_shim},
};

/// Topics have no features, so a row is learned for each.
#[test]
fn models_of_several_types_agree_with_the_processor() {
    let sandbox = Sandbox::new();
    sandbox.ok("generate typed data --nodes 600 --classes 4 --feature-dim 8 --p-in 0.9 --signal 1 --seed 3");
    let rows = format!("--host-budget {}", 600 * 8);
    for options in [
        "rsage --strategy pipelined",
        "rgcn --bases 2 --norm layer",
        "rgat --heads 2",
        "hgt --heads 2 --head-layers 1",
        "simple-hgn --heads 2",
        &format!("rgcn --blocks 4 --head-layers 1 {rows}"),
    ] {
        agrees(&sandbox, "cuda:0", &format!("--model {options}"));
    }
    let args = format!("train data {SMALL} --model rgcn --devices cuda:0");
    on_shim(&sandbox, &format!("{args} --epochs 2 --out one")).succeeded();
    on_shim(&sandbox, &format!("{args} --epochs 1 --out two")).succeeded();
    on_shim(&sandbox, &format!("{args} --epochs 2 --out two --resume")).succeeded();
    sandbox.results("one").assert_same(&sandbox.results("two"), "resumed");
    // the processor scores the model as the device did, up to rounding
    let summary = String::from_utf8(sandbox.read("one/summary.json")).expect("text");
    let summary: Value = serde_json::from_str(&summary).expect("JSON");
    let (a, b) = (number(&sandbox.ok_json("eval one")["test"]), number(&summary["test"]["score"]));
    assert!((a - b).abs() < 0.02, "{a} on the processor, {b} on the device");
}

/// Batches have the same rows, and so the same losses, whatever the device caches of each type.
#[test]
fn caches_of_several_types_change_no_result() {
    let sandbox = Sandbox::new();
    sandbox.ok("generate typed data --nodes 600 --classes 4 --feature-dim 8 --p-in 0.9 --signal 1 --seed 3");
    let run = |options: &str, out: &str| {
        let args = format!("train data {SMALL} --model rsage --devices cuda:0 --epochs 2 {options}");
        on_shim(&sandbox, &format!("{args} --out {out} --json")).succeeded().json()
    };
    let none = run("--cache-ratio 0", "none");
    let expected = sandbox.results("none");
    assert_eq!(number(&none["epochs"][1]["traffic"]["device"]["rows"]), 0.0);
    let budget = "--host-budget 9600";
    for (i, (options, tiers)) in [
        ("--cache-ratio 0.25 --strategy pipelined", &["device", "host"][..]),
        ("--cache-ratio 0.25 --cache stored-order", &["device", "host"]),
        ("--cache-ratio 0.25 --cache sieve", &["device", "host"]),
        ("--cache-ratio 0.25 --cache lru", &["device", "host"]),
        ("--device-budget 1G", &["device"]),
        (&format!("{budget} --cache-ratio 0.25 --cache degree --host-cache lru"), &["device", "disk"]),
    ]
    .iter()
    .enumerate()
    {
        let out = format!("cached-{i}");
        let summary = run(options, &out);
        assert!(sandbox.results(&out).weights == expected.weights, "{options}: the weights");
        let epoch = &summary["epochs"][1];
        assert_eq!(epoch["loss"], none["epochs"][1]["loss"], "{options}");
        assert_eq!(epoch["valid_score"], none["epochs"][1]["valid_score"], "{options}");
        for tier in *tiers {
            let rows = |traffic: &Value| number(&traffic[tier]["rows"]);
            let of_types = epoch["type_traffic"].as_array().expect("types");
            assert_eq!(of_types.iter().map(|of| rows(&of["traffic"])).sum::<f64>(), rows(&epoch["traffic"]));
            assert!(rows(&epoch["traffic"]) > 0.0, "{options}: {tier} in {}", epoch["traffic"]);
        }
        assert_eq!(tiers.len() > 1, number(&epoch["hit_rate"]) < 1.0, "{options}: {}", epoch["hit_rate"]);
        assert!(number(&summary["nvidia"][0]["cache_bytes"]) > 0.0, "{options}: {}", summary["nvidia"]);
    }
    let args = format!("train data {SMALL} --model rsage --devices cuda:0 --epochs 1");
    let failed = sandbox.run(&format!("{args} --host-cache lru"));
    assert_eq!(failed.status, Some(2), "{}", failed.stderr);
    assert!(failed.stderr.contains("host memory without a budget holds all rows"), "{}", failed.stderr);
    // refused although all rows fit, so that none has to be chosen
    let failed = on_shim(&sandbox, &format!("{args} --device-budget 1G --cache posterior:2"));
    assert_eq!(failed.status, Some(2), "{}", failed.stderr);
    assert!(failed.stderr.contains("--cache posterior:2: ") && failed.stderr.contains("use presc:2"));
}

/// Batches of links have the same rows, whatever the device caches of each type.
#[test]
fn caches_of_links_of_several_types_change_no_result() {
    let sandbox = Sandbox::new();
    sandbox.ok("generate typed data --nodes 300 --classes 4 --feature-dim 8 --p-in 0.9 --signal 1 --seed 3");
    let links = "--task author:writes:paper --num-negatives 2 --eval-nodes 40 --max-batches 2";
    let run = |options: &str, out: &str| {
        let args = format!("train data {SMALL} --model rsage --devices cuda:0 --epochs 2 {links} {options}");
        on_shim(&sandbox, &format!("{args} --out {out} --json")).succeeded().json()
    };
    let none = run("--cache-ratio 0", "none");
    let expected = sandbox.results("none");
    for (i, options) in
        ["--cache-ratio 0.25", "--cache-ratio 0.25 --cache lru", "--device-budget 1G"].iter().enumerate()
    {
        let out = format!("cached-{i}");
        let summary = run(options, &out);
        assert!(sandbox.results(&out).weights == expected.weights, "{options}: the weights");
        let epoch = &summary["epochs"][1];
        assert_eq!(epoch["loss"], none["epochs"][1]["loss"], "{options}");
        assert_eq!(epoch["valid_score"], none["epochs"][1]["valid_score"], "{options}");
        let rows = |traffic: &Value| number(&traffic["device"]["rows"]);
        let of_types = epoch["type_traffic"].as_array().expect("types");
        assert_eq!(of_types.iter().map(|of| rows(&of["traffic"])).sum::<f64>(), rows(&epoch["traffic"]));
        assert!(rows(&epoch["traffic"]) > 0.0, "{options}: {}", epoch["traffic"]);
    }
}

/// The encoder and the decoder run on the device; links of all relations, and rows without features
/// that are learned.
#[test]
fn links_of_several_types_agree_with_the_processor() {
    let sandbox = Sandbox::new();
    sandbox.ok("generate typed data --nodes 300 --classes 4 --feature-dim 8 --p-in 0.9 --signal 1 --seed 3");
    let links = "--task author:writes:paper --num-negatives 2 --eval-nodes 40 --max-batches 2";
    for options in ["rsage --decoder distmult", "rgcn --decoder transe --strategy pipelined"] {
        agrees(&sandbox, "cuda:0", &format!("--model {options} {links}"));
    }
}
