//! `graphmill partition`: statistics by method, and parts that other commands open as datasets.

use std::path::Path;

use graphmill_data::{
    partition::{PartitionDir, TypedPartitionDir},
    typed::Verify,
};
use graphmill_engine::checkpoint::{Checkpoint, save_tensors, tensors::Tensor};

use crate::{
    common::Sandbox,
    new_nodes::{ACCOUNTS, bank},
};

const RUN: &str = "--parts 3 --fanout 5,5 --batch-size 64";

#[test]
fn parts_are_reported_and_open_as_datasets() {
    let sandbox = Sandbox::new();
    let data = sandbox.dataset("data");
    let report = sandbox.ok_json(&format!("partition data new --method bgl {RUN}"));
    assert_eq!((report["method"].as_str(), report["parts"].as_u64()), (Some("bgl"), Some(3)));
    for field in ["/edge_cut", "/balance/nodes", "/balance/train", "/cross_requests/per_epoch", "/seconds"] {
        assert!(report.pointer(field).is_some_and(serde_json::Value::is_number), "{field}: {report}");
    }
    let dir = PartitionDir::open(sandbox.path("new")).unwrap();
    assert_eq!((dir.parts(), dir.num_nodes(), dir.method()), (3, data.num_nodes(), "bgl"));
    assert_eq!(dir.statistics()["edge_cut"], report["edge_cut"]);
    for part in 0..3 {
        let nodes = dir.part(part).unwrap().dataset.num_nodes();
        let info = sandbox.ok_json(&format!("info new/part-000{part}"));
        assert_eq!(info["nodes"].as_u64(), Some(nodes as u64));
    }
    // the same bytes for any number of threads
    sandbox.ok(&format!("partition data again --method bgl --threads 1 {RUN}"));
    assert_eq!(sandbox.read("new/book.npy"), sandbox.read("again/book.npy"));
}

#[test]
fn grown_datasets_keep_the_parts_of_known_nodes() {
    let sandbox = Sandbox::new();
    let edges = |from: u32, to: u32| -> String {
        (from..to).flat_map(|v| (1..4).map(move |k| format!("n{v},n{}\n", (v + k) % to))).collect()
    };
    sandbox.write("old.csv", format!("a,b\n{}", edges(0, 40)));
    sandbox.write("new.csv", format!("a,b\n{}", edges(40, 50)));
    sandbox.ok("import tables ring --edges old.csv --src a --dst b --undirected");
    sandbox.ok("append ring longer --edges new.csv");
    sandbox.ok("partition ring parts --parts 3 --method hash");
    let report = sandbox.ok_json("partition longer more --like parts");
    assert_eq!((&report["method"], &report["parts"]), (&"like".into(), &3.into()));
    let book = |dir: &str| PartitionDir::open(sandbox.path(dir)).unwrap().book.of().to_vec();
    let (before, now) = (book("parts"), book("more"));
    assert_eq!((&now[..40], now.len()), (&before[..], 50));
    // the partition of the longer dataset can be extended, too
    sandbox.ok("partition longer again --like more");
    assert_eq!(book("again"), now);
    let refused = sandbox.run("partition ring other --like more");
    assert!(refused.stderr.contains("does not extend"), "{}", refused.stderr);
    let refused = sandbox.run("partition longer other --like parts --parts 3");
    assert!(refused.status == Some(2) && refused.stderr.contains("--parts: --like"), "{}", refused.stderr);
}

#[test]
fn grown_datasets_of_several_types_keep_the_parts_of_known_nodes() {
    let sandbox = Sandbox::new();
    bank(&sandbox);
    sandbox.ok("import tables bank known.toml");
    let tables = "--nodes account=new-accounts.csv --nodes branch=new-branches.csv --edges \
                  transfer=new-transfers.csv";
    sandbox.ok(&format!("append bank longer {tables}"));
    let run = "--batches 1 --fanout 3,2 --batch-size 32";
    sandbox.ok(&format!("partition bank parts --parts 2 --method hash {run}"));
    sandbox.ok(&format!("partition longer more --like parts {run}"));
    let [before, now] = ["parts", "more"].map(|dir| TypedPartitionDir::open(sandbox.path(dir)).unwrap());
    assert_eq!((now.parts(), now.method()), (2, "like"));
    for t in 0..3 {
        let (before, now) = (before.book_of(t).unwrap(), now.book_of(t).unwrap());
        assert_eq!(now.of()[..before.num_nodes()], *before.of(), "type {t}");
    }
    assert_eq!(now.schema().types()[0].count, ACCOUNTS);
    sandbox.ok("reorder longer shuffled --by random");
    for data in ["bank", "shuffled"] {
        let like = if data == "bank" { "more" } else { "parts" };
        let refused = sandbox.run(&format!("partition {data} other --like {like} {run}"));
        assert!(refused.stderr.contains("does not extend"), "{}", refused.stderr);
    }
}

#[test]
fn all_methods_are_compared_and_plotted() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    let report = sandbox.ok_json(&format!("partition data --method all --batches 2 --plot plot.svg {RUN}"));
    let results = report["results"].as_array().unwrap();
    let names: Vec<&str> = results.iter().filter_map(|result| result["method"].as_str()).collect();
    assert_eq!(names, ["random", "hash", "ldg", "fennel", "gminer", "pagraph", "metis", "bgl"]);
    assert!(String::from_utf8(sandbox.read("plot.svg")).unwrap().starts_with("<svg"));
    assert!(sandbox.ok(&format!("partition data --method ldg,bgl {RUN}")).contains("edge cut"));
}

#[test]
fn parts_of_several_types_are_reported_by_type_and_trained_on() {
    let sandbox = Sandbox::new();
    sandbox
        .ok("generate typed papers --nodes 1200 --classes 4 --feature-dim 8 --p-in 0.9 --signal 1 --seed 3");
    let run = "--parts 3 --fanout 4,2 --batch-size 64 --task area";
    let report = sandbox.ok_json(&format!("partition papers new {run}"));
    assert_eq!((&report["method"], &report["parts"]), (&"bgl".into(), &3.into()));
    for field in [
        "/edge_cut",
        "/balance/train",
        "/cross_requests/per_epoch",
        "/seconds",
        "/node_types/0/balance",
        "/node_types/2/remote_rows",
        "/edge_types/7/edge_cut",
    ] {
        assert!(report.pointer(field).is_some_and(serde_json::Value::is_number), "{field}: {report}");
    }
    let dir = TypedPartitionDir::open(sandbox.path("new")).unwrap();
    assert_eq!((dir.parts(), dir.method(), dir.schema().num_types()), (3, "bgl", 4));
    assert_eq!(dir.statistics()["edge_types"], report["edge_types"]);
    for part in 0..3 {
        let nodes = dir.part(part, Verify::All).unwrap().dataset.num_nodes();
        assert_eq!(
            sandbox.ok_json(&format!("info new/part-000{part}"))["nodes"].as_u64(),
            Some(nodes as u64)
        );
    }
    sandbox.ok(&format!("partition papers again --threads 1 {run}"));
    assert_eq!(sandbox.read("new/book.npy"), sandbox.read("again/book.npy"));
    let text = sandbox.ok(&format!("partition papers --method hash,ldg --plot plot.svg {run}"));
    assert!(text.contains("author:writes:paper") && text.contains("remote rows"), "{text}");

    // one process trains on all parts to the bits of the whole dataset
    let options = "--hidden 8 --fanout 4,2 --batch-size 128 --lr 0.01 --epochs 2 --dropout 0";
    let [whole, parts] = ["papers", "new"]
        .map(|data| sandbox.ok_json(&format!("train {data} {options} --out run-{data}"))["epochs"].clone());
    for field in ["loss", "valid_score", "sampled_edges", "node_types", "edge_types"] {
        assert_eq!(whole[1][field], parts[1][field], "{field}");
    }
    let scores = sandbox.ok_json("eval run-new --dataset papers");
    assert_eq!(scores["same_dataset"], true);
    for (args, status, part) in [
        ("eval run-new", 1, "it was trained on the parts in"),
        ("train papers --resume --epochs 3 --out run-new", 1, "another partition"),
        ("train new --graph-stores 1", 2, "each rank holds a part"),
        ("train new --strategy factored", 2, "--strategy factored"),
        ("train new --sampler saint-node --shuffle-parts 2", 2, "--shuffle-parts 2"),
        ("train new --model gcn", 2, "use --model rsage"),
    ] {
        let refused = sandbox.run(args);
        assert!(
            refused.status == Some(status) && refused.stderr.contains(part),
            "{args}: {:?} {}",
            refused.status,
            refused.stderr
        );
    }
    sandbox.ok("train new --resume --epochs 3 --out run-new");
    sandbox.ok("train new --sampler saint-node --hidden 8 --batch-size 128 --epochs 1 --out run-subgraphs");
}

#[test]
fn links_of_parts_are_those_of_the_dataset() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    sandbox.ok("partition data parts --method random --parts 2");
    let train = |dataset: &str, out: &str| {
        let how = "--task link --hidden 8 --fanout 4,3 --batch-size 1024 --epochs 2 --dropout 0 --fused off";
        let summary = sandbox.ok_json(&format!("train {dataset} {how} --out {out}"));
        let epochs = summary["epochs"].as_array().unwrap();
        epochs.iter().map(|epoch| epoch["loss"].as_f64().unwrap()).collect::<Vec<f64>>()
    };
    let (whole, parts) = (train("data", "whole"), train("parts", "divided"));
    assert!(whole.iter().zip(&parts).all(|(a, b)| (a - b).abs() < 1e-4), "{whole:?} and {parts:?}");
    assert_eq!(sandbox.ok_json("eval divided --dataset data")["same_dataset"], true);
    sandbox.ok("train parts --resume --epochs 3 --out divided");
    let refused = sandbox.run("train parts --task link --split-edges time:80,10,10 --out timed");
    assert!(refused.stderr.contains("split at random"), "{}", refused.stderr);
}

/// A partitioned dataset draws other batches than the whole one or another partition of it.
#[test]
fn runs_resume_only_on_their_own_partition() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    for (name, seed) in [("parts", 1), ("others", 2)] {
        sandbox.ok(&format!("partition data {name} --method random --parts 2 --seed {seed}"));
    }
    let how = "--sampler saint-node --batch-size 200 --hidden 8 --max-batches 2";
    sandbox.ok(&format!("train parts {how} --epochs 1 --out divided"));
    sandbox.ok(&format!("train data {how} --epochs 1 --out whole"));
    let refused = |args: &str, words: [&str; 2]| {
        let record = format!("{}/dataset.json", args.rsplit(' ').next().unwrap());
        let before = sandbox.read(&record);
        let outcome = sandbox.run(&format!("train {args}"));
        assert_eq!(outcome.status, Some(1), "{args}: {}", outcome.stderr);
        for word in words.into_iter().chain(["because its batches would differ"]) {
            assert!(outcome.stderr.contains(word), "'{word}' not in: {}", outcome.stderr);
        }
        assert_eq!(sandbox.read(&record), before);
    };
    refused(
        "data --resume --epochs 2 --out divided",
        [", partition ", "cannot continue with the unpartitioned dataset"],
    );
    refused("others --resume --epochs 2 --out divided", [", partition ", "cannot continue with partition "]);
    refused(
        "parts --resume --epochs 2 --out whole",
        [", the unpartitioned dataset,", "cannot continue with partition "],
    );
    sandbox.ok("eval whole");
    assert_eq!(sandbox.ok_json("eval divided --dataset data")["same_dataset"], true);
    // the partition may have moved
    std::fs::rename(sandbox.path("parts"), sandbox.path("moved")).unwrap();
    sandbox.ok("train moved --resume --epochs 2 --out divided");
    // checkpoints of older versions do not name the partition, but their options do
    strip_partition(&sandbox.path("divided/checkpoint"));
    refused(
        "data --resume --epochs 3 --out divided",
        [", partition ", "cannot continue with the unpartitioned dataset"],
    );
    sandbox.ok("train --resume --epochs 3 --out divided");
}

/// Removes the partition from a run's checkpoint, as older versions wrote it.
fn strip_partition(dir: &Path) {
    let saved = Checkpoint::<serde_json::Value>::load(dir).unwrap().unwrap();
    let Checkpoint { model, best, optimizer, optimizer_steps, history, mut state, .. } = saved;
    assert!(state.as_object_mut().unwrap().remove("partition").unwrap().is_string());
    let [model, best, optimizer, history] = [&model, &best, &optimizer, &history]
        .map(|tensors| tensors.iter().map(Tensor::borrow).collect::<Vec<_>>());
    save_tensors(dir, &model, &best, &optimizer, optimizer_steps, &history, &state).unwrap();
}
