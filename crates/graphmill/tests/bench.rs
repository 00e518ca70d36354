//! `graphmill bench`: the fields of its JSON, every bench on a generated graph and a dataset, and
//! its errors.

use serde_json::Value;

use crate::common::Sandbox;

/// Options that keep a bench short; the machine's limits take most of its time.
const SMALL: &str = "--scale 10 --repeat 1 --fanout 4,3 --batch-size 64 --hidden 8 --dim 12 --threads 2";

/// Runs `bench` and returns its results, each checked for the promised fields.
fn results(sandbox: &Sandbox, args: &str) -> Vec<Value> {
    let report = sandbox.ok_json(&format!("bench {args}"));
    assert_eq!((&report["threads"], &report["repeat"]), (&2.into(), &1.into()));
    let results = report["results"].as_array().expect("a list").clone();
    for row in &results {
        let text = |name: &str| row[name].as_str().unwrap_or_else(|| panic!("{name} of {row}")).to_string();
        let number = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name} of {row}"));
        assert!(!text("bench").is_empty() && !text("case").is_empty() && !text("unit").is_empty());
        assert!(number("min") <= number("median") && number("median") <= number("max"), "{row}");
        assert!(row.get("limit").is_some_and(|limit| limit.is_null() || limit.is_number()), "{row}");
        assert_eq!(row["limit"].is_null(), row["limit_of"].is_null(), "{row}");
        assert!(row["runs"] == 1 && number("seconds") >= 0.0);
    }
    results
}

/// The results of a bench whose case starts with `begin`.
fn cases<'a>(results: &'a [Value], bench: &str, begin: &str) -> Vec<&'a Value> {
    let begins = |row: &&Value| row["bench"] == bench && row["case"].as_str().unwrap().starts_with(begin);
    results.iter().filter(begins).collect()
}

#[test]
fn every_bench_has_cases_and_limits() {
    let sandbox = Sandbox::new();
    let all = results(&sandbox, &format!("all {SMALL}"));
    for (case, unit) in [("copy", "GB/s"), ("random rows F=12", "GB/s"), ("fused multiply-adds", "GFLOP/s")] {
        assert_eq!(cases(&all, "machine", case)[0]["unit"], unit);
    }
    for form in ["relabelled, one batch per thread", "fused, one batch over all threads"] {
        let units: Vec<&str> =
            cases(&all, "sample", form).iter().map(|row| row["unit"].as_str().unwrap()).collect();
        assert_eq!(units, ["edges/s", "seeds/s"], "{form}");
    }
    for case in ["local f32 F=12", "transposed f32 F=12", "global f32 F=12"] {
        assert_eq!(cases(&all, "aggregate", case).len(), 1, "{case}");
    }
    // 6 more products in bf16 and in tf32 each, if the processor has the instructions
    let narrow = ["bf16 ", "tf32 "].map(|name| cases(&all, "gemm", name).len());
    assert!(narrow.iter().all(|count| [0, 6].contains(count)), "{narrow:?}");
    let products = 6 + narrow.iter().sum::<usize>();
    for (bench, rows) in
        [("gather", 3), ("gemm", products), ("sample", 8), ("frontier", 10), ("aggregate", 5)]
    {
        let rows_of = cases(&all, bench, "");
        assert_eq!(rows_of.len(), rows, "{bench}");
        assert!(rows_of.iter().all(|row| row["of_limit"].as_f64().is_some_and(|share| share > 0.0)));
    }
    let epoch = cases(&all, "epoch", "sage 4,3 hidden 8: ");
    assert_eq!(epoch.len(), 8);
    assert!(epoch[0]["limit"].as_f64().is_some_and(|limit| limit > 0.0), "{}", epoch[0]);
    assert!(!std::fs::read_dir(sandbox.path("")).unwrap().any(|_| true), "a bench leaves no files");
}

#[test]
fn a_dataset_and_any_model_can_be_measured() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    let args = "epoch data --model gat --hidden 8 --heads 2 --fanout 3,2 --repeat 1 --threads 2";
    let gat = results(&sandbox, args);
    assert!(gat.iter().any(|row| row["case"] == "gat 3,2 hidden 8: train"));
    assert!(
        cases(&gat, "epoch", "gat").iter().all(|row| row["limit"].is_null()),
        "a layer without a cost model has no limit"
    );
    let text = sandbox.ok("bench gather --scale 10 --dim 4 --repeat 1 --threads 1");
    for word in ["R-MAT of scale 10: 1024 nodes", "1 threads", "f32 F=4", "GB/s", "limit", "█"] {
        assert!(text.contains(word), "'{word}' is not in\n{text}");
    }
}

#[test]
fn wrong_usage_lists_the_known_names() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    for (args, says) in [
        ("bench", "<BENCH>"),
        (
            "bench nonsense",
            "unknown bench 'nonsense'; known: sample, frontier, gather, aggregate, gemm, epoch, all",
        ),
        ("bench epoch --model nonsense", "sage, gcn, gat, gatv2, gin"),
        ("bench epoch --repeat 0", "--repeat"),
        ("bench epoch --scale 40", "--scale"),
        ("bench epoch --dim -3", "--dim"),
        ("bench epoch --fanout 3,0", "--fanout"),
        ("bench epoch --epochs 3", "--epochs"),
        ("bench epoch data --scale 4", "--scale"),
        ("bench epoch data --dim 3", "a width of 24"),
        ("bench sample data --dim 3", "--dim: bench sample uses no feature rows"),
        ("bench frontier data --dim 3", "--dim: bench frontier uses no feature rows"),
        (
            "bench aggregate data --sampler saint-node --layers 3",
            "--layers 3: --sampler saint-node does not use it",
        ),
    ] {
        for json in ["", " --json"] {
            let outcome = sandbox.run(&format!("{args}{json}"));
            assert_eq!(outcome.status, Some(2), "{args}: {}", outcome.stderr);
            assert!(outcome.stderr.contains(says), "{args}: {}", outcome.stderr);
            assert!(json.is_empty() || outcome.json()["error"].is_string(), "{args}");
        }
    }
    let missing = sandbox.run("bench sample nowhere");
    assert_eq!(missing.status, Some(1));
    assert!(missing.stderr.contains("nowhere"), "{}", missing.stderr);
}
