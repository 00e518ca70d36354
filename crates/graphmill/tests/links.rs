//! Links on the command line: training, scores, recommendations, embeddings and error messages.

use graphmill_core::{NodeId, Split};
use graphmill_data::{
    TypedDataset,
    typed::{CandidateLists, EdgeType, Keys, Negatives, Seeds, Task, TaskOn},
};

use crate::common::Sandbox;

/// Message of a command that is used wrongly.
pub(crate) fn fails(sandbox: &Sandbox, args: &str) -> String {
    let outcome = sandbox.run(args);
    assert_eq!(outcome.status, Some(2), "{args}: {}", outcome.stderr);
    outcome.stderr
}

const OPTIONS: &str = "--hidden 8 --fanout 3,3 --epochs 2 --batch-size 512 --seed 3";

#[test]
fn links_are_learned_scored_recommended_and_embedded() {
    let sandbox = Sandbox::new();
    let dataset = sandbox.dataset("data");
    let summary = sandbox.ok_json(&format!("train data --task link {OPTIONS} --out run"));
    assert_eq!(summary["test"]["metric"], "auc");
    let test = summary["test"]["score"].as_f64().unwrap();
    assert!(test > 0.4 && summary["config"]["decoder"] == "dot", "{test}");
    // scores of the saved run are those of training
    let scores = sandbox.ok_json("eval run");
    assert_eq!(scores["test"], summary["test"]["score"]);
    let parts = scores["parts"].as_array().unwrap();
    assert_eq!(
        parts.iter().map(|part| part["part"].as_str().unwrap()).collect::<Vec<_>>(),
        ["train", "valid", "test"]
    );
    for metric in ["auc", "average-precision", "mrr", "hits@10", "hits@50"] {
        assert!(parts[2]["scores"][metric].is_number(), "{metric}: {}", parts[2]);
    }
    assert!(sandbox.ok("eval run --last").contains("edges"));
    // the best candidates have no edge with their source
    sandbox.write("nodes.txt", "0\n7\n");
    sandbox.ok("predict run --top-k 5 --nodes nodes.txt --out top.csv");
    let text = String::from_utf8(sandbox.read("top.csv")).unwrap();
    let rows: Vec<(NodeId, NodeId, f32)> = text
        .lines()
        .skip(1)
        .map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            (fields[0].parse().unwrap(), fields[1].parse().unwrap(), fields[2].parse().unwrap())
        })
        .collect();
    assert_eq!((text.lines().next(), rows.len()), (Some("source,candidate,score"), 10));
    for (source, candidate, _) in &rows {
        assert!(source != candidate && !dataset.graph.in_neighbors(*candidate).contains(source));
    }
    assert!(rows[..5].is_sorted_by(|a, b| a.2 >= b.2) && rows[0].0 == 0 && rows[5].0 == 7);
    // the score of a pair is the product of its embeddings
    sandbox.ok("embed run --out rows.npy");
    sandbox.ok("embed run --out rows.csv --nodes nodes.txt");
    let csv = String::from_utf8(sandbox.read("rows.csv")).unwrap();
    assert!(csv.starts_with("node,embedding_0,") && csv.lines().count() == 3, "{csv}");
    let bytes = sandbox.read("rows.npy");
    let values: Vec<f32> = bytes[bytes.len() - dataset.num_nodes() * 8 * 4..]
        .chunks_exact(4)
        .map(|x| f32::from_le_bytes(x.try_into().unwrap()))
        .collect();
    let row = |v: NodeId| &values[v as usize * 8..][..8];
    for (source, candidate, score) in rows {
        let product: f32 = row(source).iter().zip(row(candidate)).map(|(a, b)| a * b).sum();
        assert!((product - score).abs() < 1e-3 * (1.0 + score.abs()), "{source}, {candidate}");
    }
    // reading all edges changes embeddings
    sandbox.ok("embed run --out all.npy --all-edges");
    assert!(sandbox.read("all.npy") != bytes);
    sandbox.ok("predict run --top-k 2 --all-edges --nodes nodes.txt --out all.parquet");
}

#[test]
fn runs_have_the_same_bits_for_any_number_of_threads_and_resume() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    for threads in [1, 3] {
        sandbox.ok(&format!("train data --task link {OPTIONS} --threads {threads} --out run-{threads}"));
    }
    sandbox.results("run-1").assert_same(&sandbox.results("run-3"), "threads");
    let longer = OPTIONS.replace("--epochs 2", "--epochs 3");
    sandbox.ok(&format!("train data --task link {longer} --out whole"));
    sandbox.ok("train --resume --out run-1 --epochs 3 --strategy sequential");
    sandbox.results("run-1").assert_same(&sandbox.results("whole"), "resumed");
    let message = fails(&sandbox, "train --resume --out run-1 --epochs 4 --decoder cosine");
    assert!(message.contains("--decoder is \"dot\" in the run to resume"), "{message}");
}

/// Four candidates of each of 30 edges.
fn candidates() -> Vec<NodeId> {
    (0..120).collect()
}

/// A dataset of format 2 with keys and two link tasks: `friends` with these negatives of 30
/// validation and 30 test edges, and `seen`.
fn with_tasks(sandbox: &Sandbox, valid: Negatives, test: Negatives) {
    let data = sandbox.dataset("old");
    let mut typed = TypedDataset::from_dataset(&data);
    typed.nodes[0].keys = Some(Keys::texts((0..data.num_nodes()).map(|v| format!("n{v}"))));
    let edge = EdgeType::new("node", "edge", "node");
    let pairs: Vec<NodeId> =
        (0..300).flat_map(|v| data.graph.in_neighbors(v).iter().take(1).flat_map(move |&u| [u, v])).collect();
    let rows = (pairs.len() / 2) as NodeId;
    let split = Split {
        train: (0..rows - 60).collect::<Vec<_>>().into(),
        valid: (rows - 60..rows - 30).collect::<Vec<_>>().into(),
        test: (rows - 30..rows).collect::<Vec<_>>().into(),
    };
    let task = |name: &str| Task {
        seeds: Some(Seeds::Pairs(pairs.clone().into())),
        split: split.clone(),
        ..Task::new(name, TaskOn::Edges(edge.clone()))
    };
    typed.tasks.push(Task { negatives: [None, Some(valid), Some(test)], ..task("friends") });
    typed.tasks.push(Task { metric: Some("recall@20".into()), ..task("seen") });
    typed.save(sandbox.path("data")).unwrap();
}

#[test]
fn tasks_of_the_dataset_have_their_own_splits_negatives_and_metrics() {
    let sandbox = Sandbox::new();
    let negatives = || Negatives::Destinations { each: 4, nodes: candidates().into() };
    with_tasks(&sandbox, negatives(), negatives());
    let options = OPTIONS.replace("512", "64");
    let summary = sandbox.ok_json(&format!("train data --task friends {options} --out friends"));
    assert_eq!((&summary["test"]["metric"], &summary["dataset"]["classes"]), (&"mrr".into(), &8.into()));
    let parts = sandbox.ok_json("eval friends")["parts"].clone();
    assert_eq!((&parts[1]["nodes"], &parts[2]["nodes"]), (&30.into(), &30.into()));
    let summary = sandbox.ok_json(&format!("train data --task seen {options} --out seen"));
    assert_eq!(summary["test"]["metric"], "recall@20");
    // rows have the keys of both ends
    sandbox.write("keys.txt", "n5\nn1\n");
    sandbox.ok("predict friends --top-k 2 --keys keys.txt --out top.csv");
    let text = String::from_utf8(sandbox.read("top.csv")).unwrap();
    assert!(text.starts_with("source,candidate,score\nn5,n") && text.contains("\nn1,n"), "{text}");
    let message = fails(&sandbox, &format!("train data --task link {options} --out x"));
    assert!(message.contains("has several link tasks; name one of friends, seen"), "{message}");
}

#[test]
fn lists_of_candidates_are_ranked_as_equal_numbers_of_them() {
    let options = OPTIONS.replace("512", "64").replace("--epochs 2", "--epochs 1");
    let scores = |valid: Negatives, test: Negatives| {
        let sandbox = Sandbox::new();
        with_tasks(&sandbox, valid, test);
        sandbox.ok(&format!("train data --task friends {options} --out run"));
        let parts = sandbox.ok_json("eval run")["parts"].clone();
        [1, 2].map(|part: usize| parts[part]["scores"]["mrr"].as_f64().unwrap())
    };
    let equal = || Negatives::Destinations { each: 4, nodes: candidates().into() };
    let [valid, test] = scores(equal(), equal());
    assert!(valid < 1.0 && test < 1.0, "{valid} {test}");
    let lists = Negatives::Lists(CandidateLists::equal(30, 4, candidates().into()));
    let none = Negatives::Lists(CandidateLists::new(vec![Vec::new(); 30]));
    assert_eq!(scores(none, lists), [1.0, test]);
    // the first half has candidates
    let half = |i: usize| candidates()[i * 4..][..if i < 15 { 4 } else { 0 }].to_vec();
    let [_, first] = scores(equal(), Negatives::Lists(CandidateLists::new((0..30).map(half))));
    let half = |i: usize| candidates()[i * 4..][..if i < 15 { 0 } else { 4 }].to_vec();
    let [_, second] = scores(equal(), Negatives::Lists(CandidateLists::new((0..30).map(half))));
    assert!((first + second - 1.0 - test).abs() < 1e-9, "{first} {second} {test}");
}

#[test]
fn errors_state_the_remedy() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    for (args, why) in [
        ("train data --decoder dot --out x", "use --task link, or leave it out"),
        ("train data --task venue --out x", "use --task link"),
        ("train data --task link --margin 2 --out x", "--loss bce does not use it; use --loss margin"),
        (
            "train data --task link --decoder-hidden 8 --out x",
            "use --decoder mlp or structure, or leave it out",
        ),
        ("train data --task link --sampler saint-node --out x", "use --sampler neighbor"),
        ("train data --task link --metric f1-macro --out x", "unknown rank metric 'f1-macro'"),
        ("train data --task link --split-edges 50 --out x", "such as 85,5,10"),
    ] {
        let message = fails(&sandbox, args);
        assert!(message.contains(why), "{args}: {message}");
    }
    sandbox.ok(&format!("train data --task link {OPTIONS} --out run"));
    sandbox.ok(&format!("train data {OPTIONS} --out labels"));
    for (args, why) in [
        ("predict run --out x.csv", "pass --top-k K"),
        ("predict run --top-k 0 --out x.csv", "pass an integer above 0"),
        ("predict run --top-k 3 --out x.npy", "write .csv, .json, .jsonl or .parquet"),
        ("predict run --embeddings --out x.npy", "use graphmill embed"),
        ("predict run --on x.csv --edges y.csv --out x.csv", "pass --top-k K"),
        ("predict labels --top-k 3 --out x.csv", "train with --task link"),
        ("embed labels --all-edges --out x.csv", "only runs on links leave out edges"),
    ] {
        let message = fails(&sandbox, args);
        assert!(message.contains(why), "{args}: {message}");
    }
    // without links, embeddings are the last hidden rows
    sandbox.ok("embed labels --out a.npy");
    sandbox.ok("predict labels --embeddings --out b.npy");
    assert!(sandbox.read("a.npy") == sandbox.read("b.npy"));
}
