//! Datasets that grow on the command line: `append`, and runs that continue by `--start-from`.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    common::Sandbox,
    new_nodes::{ACCOUNTS, NEW, bank},
};

/// Tables of the new rows of [`bank`].
const NEW_TABLES: &str = "--nodes account=new-accounts.csv --nodes branch=new-branches.csv \
                          --edges transfer=new-transfers.csv --edges branch__in__city=new-places.csv";

/// Options of a run that keeps its parameters: updates are too small to change them.
const STILL: &str = "--model rsage --hidden 8 --fanout 5,5 --batch-size 32 --epochs 1 --lr 1e-30";

/// Rows of a tensor.
type Rows = Vec<Vec<f32>>;

/// Tensors of a file of parameters, by name.
fn tensors(sandbox: &Sandbox, file: &str) -> BTreeMap<String, Rows> {
    let bytes = sandbox.read(file);
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: BTreeMap<String, Value> = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let number = |value: &Value| value.as_u64().unwrap() as usize;
    let rows = |of: &Value| {
        let (start, end) = (number(&of["data_offsets"][0]), number(&of["data_offsets"][1]));
        let width = 4 * number(&of["shape"][1]);
        let value = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
        let row = |row: &[u8]| row.chunks(4).map(value).collect();
        bytes[8 + length..][start..end].chunks(width).map(row).collect()
    };
    let tensors = header.iter().filter(|(name, _)| *name != "__metadata__");
    tensors.map(|(name, of)| (name.clone(), rows(of))).collect()
}

/// Returns true if rows are equal but for updates of a run of [`STILL`].
fn is_same(one: &[Vec<f32>], other: &[Vec<f32>]) -> bool {
    let mut pairs = one.iter().flatten().zip(other.iter().flatten());
    one.len() == other.len() && pairs.all(|(a, b)| (a - b).abs() < 1e-20)
}

#[test]
fn a_run_continues_on_appended_rows() {
    let sandbox = Sandbox::new();
    bank(&sandbox);
    // cities have no features, so models learn a row for each
    sandbox.write("cities.csv", "name\nBerlin\nParis\nRome\n");
    sandbox.write("new-cities.csv", "name\nOslo\n");
    sandbox.ok("import tables bank known.toml");
    // records that the files are verified
    sandbox.ok("info bank");
    let before = sandbox.tree("bank");
    let document = sandbox.ok_json(&format!("append bank longer {NEW_TABLES} --nodes city=new-cities.csv"));
    let counts = |kind: &str, name: &str| document["appended"][kind][name].clone();
    assert_eq!(counts("nodes", "account"), serde_json::json!([NEW[0], ACCOUNTS - NEW[0]]), "{document}");
    assert_eq!(counts("nodes", "city"), serde_json::json!([3, 1]));
    assert_eq!(document["nodes"], ACCOUNTS + 10 + 4);
    assert!(sandbox.tree("bank") == before, "the base does not change");
    let info = sandbox.ok("info longer");
    let listed = ["appended", "to bank (", "account +20", "city +1"];
    assert!(listed.iter().all(|part| info.contains(part)), "{info}");

    let learning = STILL.replace("--epochs 1 --lr 1e-30", "--epochs 2 --lr 0.02");
    sandbox.ok(&format!("train bank {learning} --out run"));
    sandbox.ok(&format!("train longer {STILL} --seed 5 --start-from run --out continued"));
    sandbox.ok(&format!("train longer {STILL} --seed 5 --out fresh"));
    let [run, continued, fresh] =
        ["run", "continued", "fresh"].map(|run| tensors(&sandbox, &format!("{run}/best.safetensors")));
    assert_eq!(run.keys().collect::<Vec<_>>(), continued.keys().collect::<Vec<_>>());
    for (name, rows) in &run {
        let found = &continued[name];
        assert!(is_same(&found[..rows.len()], rows), "{name}");
    }
    let differs = |(name, rows): (&String, &Rows)| !is_same(&fresh[name][..rows.len()], rows);
    assert!(run.iter().any(differs), "a fresh run has other parameters");
    let cities = "input.city.rows";
    assert_eq!((run[cities].len(), continued[cities].len()), (3, 4));
    assert!(is_same(&continued[cities][3..], &fresh[cities][3..]), "a new row is that of a fresh run");

    // a second append extends the first base, too
    sandbox.write("more-cities.csv", "name\nBern\n");
    sandbox.ok("append longer longest --nodes city=more-cities.csv");
    sandbox.ok(&format!("train longest {STILL} --start-from run --out later"));
    assert_eq!(tensors(&sandbox, "later/best.safetensors")[cities].len(), 5);
    // but not another dataset
    sandbox.ok("import tables other whole.toml --like bank");
    let refused = sandbox.run(&format!("train other {STILL} --start-from run --out refused"));
    let parts = ["a row for each node of bank", "is not that dataset with appended rows", "graphmill append"];
    assert!(parts.iter().all(|part| refused.stderr.contains(part)), "{}", refused.stderr);
    let wider = STILL.replace("--hidden 8", "--hidden 16");
    let refused = sandbox.run(&format!("train longer {wider} --start-from run --out refused-too"));
    assert!(refused.stderr.contains("tensor '") && refused.stderr.contains("shape"), "{}", refused.stderr);
    let refused = sandbox.run(&format!("train longer {STILL} --start-from nowhere --out refused-again"));
    assert!(refused.stderr.contains("there is no run here"), "{}", refused.stderr);
}

#[test]
fn a_continued_run_resumes_without_the_run_that_it_started_from() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    let options = "--hidden 8 --fanout 4,4 --batch-size 256 --seed 3";
    sandbox.ok(&format!("train data {options} --epochs 1 --out run"));
    sandbox.ok(&format!("train data {options} --epochs 2 --start-from run --out whole"));
    sandbox.ok(&format!("train data {options} --epochs 2 --out alone"));
    sandbox.ok(&format!("train data {options} --epochs 1 --start-from run --threads 2 --out part"));
    std::fs::rename(sandbox.path("run"), sandbox.path("moved")).unwrap();
    sandbox.ok("train --resume --out part --epochs 2");
    sandbox.results("part").assert_same(&sandbox.results("whole"), "resumed");
    let [whole, alone] = ["whole", "alone"].map(|run| tensors(&sandbox, &format!("{run}/best.safetensors")));
    assert_ne!(whole, alone, "the start matters");
    // an old model scores the new dataset, if the columns agree
    sandbox.ok("eval moved --dataset data");
}

#[test]
fn tables_of_embeddings_keep_the_rows_of_known_nodes() {
    let sandbox = Sandbox::new();
    let edges = |from: u32, to: u32| -> String {
        (from..to).flat_map(|v| (1..4).map(move |k| format!("n{v},n{}\n", (v + k) % to))).collect()
    };
    sandbox.write("old.csv", format!("a,b\n{}", edges(0, 40)));
    sandbox.write("new.csv", format!("a,b\n{}", edges(40, 50)));
    sandbox.ok("import tables ring --edges old.csv --src a --dst b --undirected");
    sandbox.ok("append ring longer --edges new.csv");
    let options = "--model embedding --hidden 4 --batch-size 32 --epochs 1";
    sandbox.ok(&format!("train ring {options} --out run"));
    sandbox.ok(&format!("train longer {options} --lr 1e-30 --start-from run --out continued"));
    let [run, continued] =
        ["run", "continued"].map(|run| tensors(&sandbox, &format!("{run}/best.safetensors")));
    let (rows, found) = (&run["embedding.rows"], &continued["embedding.rows"]);
    assert_eq!((rows.len(), found.len()), (40, 50));
    assert!(is_same(&found[..40], rows));
}

#[test]
fn a_run_that_starts_from_another_split_says_so() {
    let sandbox = Sandbox::new();
    let edges: String = (0..120).map(|e| format!("n{},n{}\n", e / 3, (e / 3 + e % 3 + 1) % 40)).collect();
    sandbox.write("edges.csv", format!("a,b\n{edges}"));
    sandbox.ok("import tables ring --edges edges.csv --src a --dst b --undirected");
    let options = "--model embedding --hidden 4 --batch-size 32 --epochs 1 --start-from";
    sandbox.ok(&format!("train ring {} --out run", options.replace(" --start-from", "")));
    let says = |words: &str| {
        let run = sandbox.run(&format!("train ring {options} run {words} --progress plain"));
        assert_eq!(run.status, Some(0), "{words}: {}", run.stderr);
        format!("{}{}", run.stdout, run.stderr).contains("run drew other edges to validate and test")
    };
    assert!(!says("--out same"));
    assert!(says("--seed 9 --out reseeded"));
    assert!(says("--split-edges 80,10,10 --out other"));
}

#[test]
fn rows_change_and_end_while_learned_rows_keep_their_nodes() {
    let sandbox = Sandbox::new();
    bank(&sandbox);
    sandbox.write("cities.csv", "name\nBerlin\nParis\nRome\n");
    sandbox.ok("import tables bank known.toml");
    sandbox.ok("info bank");
    let before = sandbox.tree("bank");
    let learning = STILL.replace("--epochs 1 --lr 1e-30", "--epochs 2 --lr 0.02");
    sandbox.ok(&format!("train bank {learning} --out run"));
    let columns = "account_id,country,age,branch_id,segment";
    sandbox.write("changed.csv", format!("{columns}\nacc-001,FR,70,b3,\nacc-010,DE,,,mule\n"));
    sandbox.write("closed.csv", "account_id\nacc-005\n");
    sandbox.write("gone.csv", "name\nParis\n");
    sandbox.write("moved.csv", "branch,city\nb0,Berlin\n");
    let document = sandbox.ok_json(
        "append bank later --nodes account=changed.csv --changed replace --end-nodes account=closed.csv \
         --end-nodes city=gone.csv --end-edges in=moved.csv",
    );
    assert!(sandbox.tree("bank") == before, "the base does not change");
    let appended = &document["appended"];
    assert_eq!(appended["changed"], serde_json::json!({"account": 2}), "{document}");
    assert_eq!(appended["ended_nodes"], serde_json::json!({"account": 1, "city": 1}));
    assert_eq!(document["report"]["ends"].as_array().unwrap().len(), 3);
    assert_eq!(document["nodes"], NEW[0] + NEW[1] + 3, "ended nodes stay");
    // Paris has the branches 1, 4 and 7
    assert_eq!(appended["ended_edges"]["branch:in:city"], 4);
    let info = sandbox.ok("info later");
    let listed = ["account 2 changed", "account 1 ended", "city 1 ended", "branch:in:city 4 ended"];
    assert!(listed.iter().all(|part| info.contains(part)), "{info}");

    sandbox.ok(&format!("train later {STILL} --start-from run --out continued"));
    let [run, continued] =
        ["run", "continued"].map(|run| tensors(&sandbox, &format!("{run}/best.safetensors")));
    let cities = "input.city.rows";
    assert_eq!(continued[cities].len(), 3);
    assert!(is_same(&run[cities], &continued[cities]), "rows keep their nodes");
    // predictions keep their ids
    let scores = sandbox.ok("predict continued --dataset later --out -");
    assert!(scores.contains("acc-005,") && scores.lines().count() == 1 + NEW[0], "{scores}");

    // what ended is unknown to a second end, unless it is dropped
    let again = "append later latest --end-edges in=moved.csv";
    let refused = sandbox.run(again);
    let message = "1 row with an edge that the dataset does not have: line 2 'b0' -> 'Berlin'";
    assert!(refused.status == Some(1) && refused.stderr.contains(message), "{}", refused.stderr);
    let dropped = sandbox.ok(&format!("{again} --dangling drop"));
    assert!(dropped.contains("1 row dropped, because the dataset does not have it"), "{dropped}");
    // known rows are kept as they are
    let kept = sandbox.ok("append bank kept --nodes account=changed.csv --changed keep");
    assert!(kept.contains("2 rows left out") && !kept.contains("changed"), "{kept}");
}

#[test]
fn wrong_usage_of_append_says_how_to_fix_it() {
    let sandbox = Sandbox::new();
    sandbox.dataset("plain");
    let refused = |args: &str, status: i32, message: &str| {
        let failed = sandbox.run(args);
        assert_eq!(failed.status, Some(status), "{args}: {}", failed.stderr);
        assert!(failed.stderr.contains(message), "{args}: {}", failed.stderr);
    };
    refused("append plain out", 2, "name --nodes FILE, --edges FILE or --targets FILE, or --end-nodes FILE");
    refused("append plain out --nodes x.csv --changed often", 2, "fail, replace, keep");
    refused("append plain out --nodes x.csv", 1, "was not imported from tables");
    refused("append plain out --nodes x.csv --split random:1", 2, "--split random:1");
    sandbox.write("users.csv", "id,age\nann,3\nbob,4\n");
    sandbox.ok("import tables users --nodes users.csv --id id");
    refused("append users users --nodes users.csv", 1, "name another directory");
    refused("append users out --nodes users.csv", 1, "2 rows with a key that the dataset has: line 2 'ann'");
    assert!(!sandbox.path("out").exists());
}

#[test]
fn links_that_may_have_trained_the_earlier_run_are_reported() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    sandbox.ok("generate sbm other --nodes 500 --classes 5 --feature-dim 24");
    let options = "--task link --hidden 8 --fanout 4,4 --batch-size 1024 --epochs 1";
    sandbox.ok(&format!("train data {options} --out run"));
    let says = |data: &str, out: &str| {
        let args = format!("train {data} {options} --start-from run --out {out} --progress plain");
        sandbox.run(&args).succeeded().stderr.contains("run may have trained on some of them")
    };
    assert!(!says("data", "same"), "the same edges are drawn");
    assert!(says("other", "more"));
}
