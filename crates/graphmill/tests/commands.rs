//! Every command in the order of a user's work, and the promised fields of its JSON.

use std::collections::BTreeSet;

use graphmill_data::npy;
use serde_json::Value;

use crate::common::Sandbox;

/// Asserts that `value`, found at `path`, has the fields of `shape`, each of the kind that `shape`
/// names. Further fields are allowed.
fn assert_fields(value: &Value, shape: Value, path: &str) {
    match shape {
        Value::Object(fields) => {
            for (name, shape) in fields {
                let field = value.get(&name).unwrap_or_else(|| panic!("{path}.{name} is missing: {value}"));
                assert_fields(field, shape, &format!("{path}.{name}"));
            }
        }
        Value::Array(shapes) => {
            let items = value.as_array().unwrap_or_else(|| panic!("{path} is not a list: {value}"));
            assert!(!items.is_empty(), "{path} is empty");
            for (i, item) in items.iter().enumerate() {
                assert_fields(item, shapes[0].clone(), &format!("{path}[{i}]"));
            }
        }
        Value::String(kind) => {
            let fits = match kind.as_str() {
                "count" => value.is_u64(),
                "number" => value.is_number(),
                "fraction" => value.as_f64().is_some_and(|x| (0.0..=1.0).contains(&x)),
                "text" => value.is_string(),
                "truth" => value.is_boolean(),
                kind => panic!("unknown kind: {kind}"),
            };
            assert!(fits, "{path} is not a {kind}: {value}");
        }
        other => panic!("not a shape: {other}"),
    }
}

/// The promised fields of `summary.json` and of `train --json`.
fn summary() -> Value {
    let tier = || serde_json::json!({"rows": "count", "bytes": "count"});
    serde_json::json!({
        "graphmill": "text",
        "dataset": {"name": "text", "nodes": "count", "edges": "count", "feature_dim": "count",
                    "classes": "count", "multilabel": "truth"},
        "config": {"model": "text", "hidden": "count", "lr": "number", "seed": "count", "fanout": ["number"]},
        "epochs": [{
            "epoch": "count", "loss": "number", "valid_score": "fraction", "seconds": "number",
            "stages": {"order": "number", "sample": "number", "extract": "number", "train": "number"},
            "seeds": "count", "sampled_edges": "count",
            "traffic": {"device": tier(), "host": tier(), "disk": tier(), "remote": tier()},
            "hit_rate": "fraction",
        }],
        "best": {"epoch": "count", "valid_score": "fraction"},
        "test": {"metric": "text", "score": "fraction"},
        "staleness": {"bound": "count", "max": "count"},
        "peak_rss_bytes": "count",
        "seconds": "number",
    })
}

#[test]
fn a_generated_graph_is_trained_scored_and_predicted_on() {
    let sandbox = Sandbox::new();
    let generated = sandbox
        .ok_json("generate sbm data --nodes 2000 --classes 4 --feature-dim 16 --signal 0.4 --p-in 0.8");
    let info = serde_json::json!({
        "name": "text", "nodes": "count", "edges": "count", "feature_dim": "count", "classes": "count",
        "multilabel": "truth", "train": "count", "valid": "count", "test": "count",
    });
    assert_fields(&generated, info.clone(), "generate");
    let shown = sandbox.ok_json("info data");
    assert_fields(&shown, info, "info");
    assert_eq!(shown["nodes"], 2000);
    assert_eq!((&shown["train"], &shown["valid"], &shown["test"]), (&1000.into(), &500.into(), &500.into()));
    assert!(sandbox.ok("info data").contains("homophily"));

    let trained =
        sandbox.ok_json("train data --hidden 32 --fanout 5,5 --epochs 4 --batch-size 200 --out run");
    assert_fields(&trained, summary(), "train");
    assert_eq!(trained["epochs"].as_array().unwrap().len(), 4);
    assert_eq!(trained["epochs"][0]["seeds"], 1000);
    assert!(trained["peak_rss_bytes"].as_u64().unwrap() > 1 << 20);
    let test = trained["test"]["score"].as_f64().unwrap();
    assert!(test > 0.5, "accuracy with four classes and a strong signal: {test}");
    assert_eq!(
        sandbox.json("run/summary.json"),
        trained,
        "standard output and the file hold the same document"
    );
    assert_eq!(sandbox.epochs("run").len(), 4);

    let scores = sandbox.ok_json("eval run");
    assert_eq!((&scores["metric"], &scores["test"]), (&trained["test"]["metric"], &trained["test"]["score"]));
    let parts = serde_json::json!([{"part": "text", "nodes": "count", "scores": {"accuracy": "fraction",
        "f1-micro": "fraction", "f1-macro": "fraction", "roc-auc": "fraction"}}]);
    assert_fields(&scores["parts"], parts, "eval");
    assert_eq!(scores["parts"][1]["scores"]["accuracy"], trained["best"]["valid_score"]);
    assert_eq!(scores["parts"][2]["by_class"], trained["by_class"], "both score the best model");
    let by_class = &trained["by_class"];
    assert_eq!(by_class["classes"].as_array().unwrap().len(), 4);
    assert!((by_class["weighted_average"]["recall"].as_f64().unwrap() - test).abs() < 1e-9);
    let text = sandbox.ok("eval run");
    for part in ["accuracy", "class (test)", "precision", "macro average", "true \\ predicted"] {
        assert!(text.contains(part), "{part} in {text}");
    }

    let written = sandbox.ok_json("predict run --out classes.npy");
    assert_eq!((&written["rows"], &written["kind"]), (&2000.into(), &"classes".into()));
    let classes = npy::open(sandbox.path("classes.npy")).unwrap();
    assert_eq!(classes.shape, [2000]);
    let classes = classes.read_as::<i64>().unwrap();
    assert!(classes.iter().all(|c| (0..4).contains(c)));
    sandbox.ok("predict run --probabilities --out probabilities.npy");
    let (shape, probabilities) = sandbox.floats("probabilities.npy");
    assert_eq!(shape, [2000, 4]);
    for (row, &class) in probabilities.chunks(4).zip(&classes) {
        assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5 && row.iter().all(|&p| p >= 0.0), "{row:?}");
        assert!(row.iter().all(|&p| p <= row[class as usize]), "the class is the likeliest: {row:?}");
    }
    // CSV in a file and on standard output, and Parquet
    let csv = sandbox.ok("predict run --probabilities --out -");
    sandbox.ok("predict run --probabilities --out probabilities.csv");
    assert_eq!(String::from_utf8(sandbox.read("probabilities.csv")).unwrap(), csv);
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("node,probability_0,probability_1,probability_2,probability_3"));
    let rows: Vec<Vec<f32>> =
        lines.map(|line| line.split(',').map(|cell| cell.parse().unwrap()).collect()).collect();
    assert_eq!(rows.len(), 2000);
    for (v, row) in rows.iter().enumerate() {
        assert_eq!(row[0] as usize, v);
        assert_eq!(row[1..], probabilities[v * 4..v * 4 + 4]);
    }
    sandbox.ok("predict run --out classes.parquet");
    assert_eq!(sandbox.read("classes.parquet")[..4], *b"PAR1");
    sandbox.ok("predict run --embeddings --out embeddings.npy");
    let (shape, embeddings) = sandbox.floats("embeddings.npy");
    assert_eq!(shape, [2000, 32]);
    assert!(embeddings.iter().all(|x| x.is_finite()));

    // rows of a list of nodes, as text and as an array, in the list's order
    sandbox.write("nodes.txt", "# three nodes\n7\n1999 # the last\n\n7\n");
    npy::write(sandbox.path("nodes.npy"), &[7u32, 1999, 7], &[3]).unwrap();
    for nodes in ["nodes.txt", "nodes.npy"] {
        sandbox.ok(&format!("predict run --probabilities --nodes {nodes} --out some.npy --force"));
        let (shape, some) = sandbox.floats("some.npy");
        assert_eq!(shape, [3, 4]);
        for (row, v) in some.chunks(4).zip([7, 1999, 7]) {
            assert_eq!(row, &probabilities[v * 4..v * 4 + 4], "node {v} of {nodes}");
        }
    }
    sandbox.write("ids.txt", "7\n1999\n\n7\n");
    let ids = std::fs::File::open(sandbox.path("ids.txt")).unwrap();
    let read = sandbox.command("predict run --nodes - --out -").stdin(ids).output().unwrap();
    assert_eq!(String::from_utf8(read.stdout).unwrap(), sandbox.ok("predict run --nodes 7,1999,7 --out -"));

    let report = sandbox.ok_json("report run");
    assert_eq!(report["report"], "run/report.html");
    let html = String::from_utf8(sandbox.read("run/report.html")).unwrap();
    assert!(html.contains("<svg") && html.contains("data"), "a page with curves");
    assert!(!html.contains("http://") || !html.contains("<script src"), "self-contained");
}

#[test]
fn every_model_trains_on_several_labels_per_node() {
    let sandbox = Sandbox::new();
    sandbox.multi_label_dataset("data");
    for model in ["sage", "gcn", "gat", "gin"] {
        let args = format!("train data --model {model} --hidden 16 --fanout 5,5 --epochs 2 --out {model}");
        let trained = sandbox.ok_json(&args);
        assert_fields(&trained, summary(), model);
        assert_eq!(
            (&trained["dataset"]["multilabel"], &trained["test"]["metric"]),
            (&true.into(), &"f1-micro".into())
        );
        assert_eq!(sandbox.ok_json(&format!("eval {model}"))["test"], trained["test"]["score"]);
    }
    sandbox.ok("predict sage --out sets.npy");
    let sets = npy::open(sandbox.path("sets.npy")).unwrap();
    assert_eq!(sets.shape, [3000, 5]);
    let sets = sets.read_as::<u8>().unwrap();
    assert!(sets.iter().all(|&x| x <= 1));
    sandbox.ok("predict sage --probabilities --out probabilities.npy");
    let (_, probabilities) = sandbox.floats("probabilities.npy");
    for (&p, &member) in probabilities.iter().zip(&sets) {
        assert_eq!(p > 0.5, member == 1, "{p}");
    }
}

#[test]
fn train_without_a_dataset_uses_the_demo_graph() {
    let sandbox = Sandbox::new();
    let trained = sandbox.ok_json("train --epochs 1 --hidden 16 --fanout 3,3");
    assert_fields(&trained, summary(), "demo");
    assert_eq!((&trained["dataset"]["name"], &trained["dataset"]["nodes"]), (&"demo".into(), &50_000.into()));
    sandbox.ok("train --epochs 1 --hidden 16 --fanout 3,3");
    let runs: Vec<_> =
        std::fs::read_dir(sandbox.path("runs")).unwrap().map(|run| run.unwrap().file_name()).collect();
    assert_eq!(runs.len(), 2, "every run gets its own directory: {runs:?}");
    assert!(runs.iter().all(|run| run.to_str().unwrap().starts_with("demo-")), "{runs:?}");
    let run = format!("runs/{}", runs[0].to_str().unwrap());
    assert!(sandbox.ok(&format!("eval {run}")).contains("test"));
}

#[test]
fn config_toml_repeats_a_run_exactly() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    let options = "--model gin --hidden 16 --fanout 4,3 --epochs 2 --lr 0.01 --seed 9 --input-layer";
    sandbox.ok(&format!("train data {options} --out first"));
    sandbox.ok("train --config first/config.toml --out second");
    sandbox.results("first").assert_same(&sandbox.results("second"), "repeated");
    assert_eq!(sandbox.read("first/config.toml"), sandbox.read("second/config.toml"));
}

/// The demo graph must not replace a dataset that was in memory.
#[test]
fn options_of_a_run_in_memory_require_a_dataset() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    sandbox.ok("train data --hidden 8 --epochs 1 --out run");
    let config = String::from_utf8(sandbox.read("run/config.toml")).unwrap();
    let line = config.lines().find(|line| line.starts_with("dataset = ")).unwrap();
    let mut origin = sandbox.json("run/dataset.json");
    (origin["source"], origin["path"]) = ("memory".into(), serde_json::Value::Null);
    sandbox.write("run/dataset.json", origin.to_string());
    let refused = |file: &str| {
        let outcome = sandbox.run(&format!("train --config {file} --out other"));
        assert_eq!(outcome.status, Some(2), "{}", outcome.stderr);
        let remedy = format!("graphmill train DATASET --config {file}");
        assert!(
            outcome.stderr.contains("in memory") && outcome.stderr.contains(&remedy),
            "{}",
            outcome.stderr
        );
        assert!(!sandbox.path("other").exists());
    };
    let memory = config.replace(line, "dataset = \"<in memory>\"");
    sandbox.write("run/config.toml", &memory);
    refused("run/config.toml");
    sandbox.write("elsewhere.toml", &memory);
    refused("elsewhere.toml");
    sandbox.ok("train data --config elsewhere.toml --out again");
    // as older versions wrote it: with the records beside it, and with the checkpoint alone
    sandbox.write("run/config.toml", config.replace(line, "dataset = \"\""));
    refused("run/config.toml");
    std::fs::remove_file(sandbox.path("run/dataset.json")).unwrap();
    refused("run/config.toml");
    std::fs::remove_file(sandbox.path("run/summary.json")).unwrap();
    refused("run/config.toml");
}

#[test]
fn flags_override_the_file_and_the_file_overrides_the_defaults() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    sandbox.write(
        "recipe.toml",
        "hidden = 12\nepochs = 3\nbatch-size = 500\nfanout = [4]\ninput_layer = true\n",
    );
    let config = |args: &str, run: &str| {
        sandbox.ok_json(&format!("train data --config recipe.toml {args} --out {run}"))["config"].clone()
    };
    let from_file = config("", "a");
    assert_eq!(
        (&from_file["hidden"], &from_file["epochs"], &from_file["lr"]),
        (&12.into(), &3.into(), &0.003.into())
    );
    assert_eq!((&from_file["layers"], &from_file["batch_size"]), (&1.into(), &500.into()));
    assert_eq!(from_file["input_layer"], true);
    let overridden = config("--epochs 1 --fanout 5,5 --input-layer=false", "b");
    assert_eq!((&overridden["hidden"], &overridden["epochs"]), (&12.into(), &1.into()));
    assert_eq!((&overridden["layers"], &overridden["input_layer"]), (&2.into(), &false.into()));
}

#[test]
fn an_imported_edge_list_trains() {
    let sandbox = Sandbox::new();
    let (mut edges, mut features, mut labels) = (String::new(), String::new(), String::new());
    for v in 0..60 {
        for step in [2, 4] {
            edges += &format!("{v} {}\n", (v + step) % 60);
        }
        features += &format!("{},{}\n", v % 2, 1 - v % 2);
        labels += &format!("{}\n", v % 2);
    }
    sandbox.write("src/edges.txt", edges);
    sandbox.write("src/features.csv", features);
    sandbox.write("src/labels.csv", labels);
    let imported =
        sandbox.ok_json("import edges src data --undirected --split random:0.5,0.25,0.25 --name rings");
    assert_eq!(
        (&imported["name"], &imported["nodes"], &imported["edges"]),
        (&"rings".into(), &60.into(), &240.into())
    );
    assert_eq!((&imported["train"], &imported["classes"]), (&30.into(), &2.into()));
    let info = sandbox.ok_json("info data");
    for field in
        ["name", "nodes", "edges", "feature_dim", "classes", "multilabel", "train", "valid", "test", "metric"]
    {
        assert_eq!(info[field], imported[field], "{field}");
    }
    let trained =
        sandbox.ok_json("train data --hidden 8 --fanout 2,2 --lr 0.05 --epochs 30 --dropout 0 --out run");
    assert_eq!(trained["test"]["score"], 1.0, "the features are the classes");
    sandbox.ok("import edges src data --undirected --split random:0.5,0.25,0.25 --force");
}

#[test]
fn splits_are_fractions_or_percentages() {
    let sandbox = Sandbox::new();
    let sizes = |made: &Value| ["train", "valid", "test"].map(|part| made[part].as_u64().unwrap());
    for split in ["60,20,20", "0.6,0.2,0.2"] {
        let made = sandbox.ok_json(&format!("generate sbm data --nodes 1000 --split {split} --force"));
        assert_eq!(sizes(&made), [600, 200, 200], "{split}");
    }
    sandbox.ok("export data edges list");
    let made = sandbox.ok_json("import edges list again --split random:60,20,20");
    assert_eq!(sizes(&made), [600, 200, 200]);
}

#[test]
fn the_last_epoch_is_best_without_validation_nodes() {
    let sandbox = Sandbox::new();
    sandbox.ok("generate sbm data --nodes 500 --feature-dim 8 --split 0.5,0,0");
    let trained = sandbox.ok_json("train data --hidden 8 --fanout 3,3 --epochs 3 --out run");
    assert_eq!(trained["best"], serde_json::json!({"epoch": 3, "valid_score": null}));
    assert_eq!(trained["test"]["score"], Value::Null);
    assert_eq!(sandbox.ok_json("eval run")["test"], Value::Null);
    sandbox.ok("predict run --out classes.npy");
}

#[test]
fn standard_output_holds_results_only() {
    let sandbox = Sandbox::new();
    let generated = sandbox.run("generate kronecker data --scale 9 --feature-dim 4 --classes 3").succeeded();
    assert!(generated.stdout.starts_with("data: 512 nodes"), "{}", generated.stdout);
    let trained = sandbox.run("train data --hidden 8 --fanout 3,3 --epochs 2 --out run").succeeded();
    assert!(
        trained.stdout.contains("run: run\n") && trained.stdout.contains("accuracy"),
        "{}",
        trained.stdout
    );
    let predicted = sandbox.run("predict run --out classes.npy").succeeded();
    assert_eq!(predicted.stdout, "classes.npy: 512 x 1 classes\n");
    assert_eq!(sandbox.ok("report run"), "run/report.html\n");
    assert!(sandbox.ok("--version").starts_with("graphmill "));
    for command in ["train", "import", "generate", "info", "eval", "predict", "report"] {
        assert!(sandbox.ok("--help").contains(command));
        assert!(sandbox.ok(&format!("{command} --help")).contains("--json"), "{command}");
    }
    let help = sandbox.ok("train --help").split_whitespace().collect::<Vec<_>>().join(" ");
    for text in ["[default: 15,10]", "Sampler: neighbor, full", "Layer type: sage, gcn, gat, gatv2, gin"] {
        assert!(help.contains(text), "{help}");
    }
}

#[test]
fn short_help_is_one_screen() {
    let sandbox = Sandbox::new();
    let all = sandbox.ok("-h");
    let commands: Vec<String> = all
        .lines()
        .filter(|line| line.starts_with("  ") && line.as_bytes()[2].is_ascii_lowercase())
        .filter_map(|line| line.split_whitespace().next().map(String::from))
        .filter(|name| name != "graphmill" && name != "mpirun")
        .chain(["import tables", "import relbench", "datasets download"].map(String::from))
        .collect();
    assert!(commands.len() > 20, "{commands:?}");
    let mut descriptions = BTreeSet::new();
    for command in &commands {
        let help = sandbox.ok(&format!("{command} -h"));
        let lines: Vec<&str> = help.lines().collect();
        assert!(lines.len() <= 46, "{command}: {} lines\n{help}", lines.len());
        assert!(lines.iter().all(|line| line.chars().count() <= 130), "{command}:\n{help}");
        let examples = help.split("\nExamples:\n").nth(1).unwrap_or_default();
        let count =
            examples.lines().filter(|line| line.starts_with("  ") && !line.starts_with("    ")).count();
        assert!(count >= 2, "{command}: {count} examples\n{help}");
        assert!(
            descriptions.insert(lines[0].to_string()),
            "{command}: described as another one: {}",
            lines[0]
        );
        // the long help begins with the same sentence
        let long = sandbox.ok(&format!("{command} --help"));
        let first = lines[0].split([';', ':', ',']).next().unwrap_or_default();
        assert!(long.starts_with(first.trim_end_matches('.')), "{command}:\n{long}");
    }
    let help = sandbox.ok("train -h");
    assert!(help.ends_with("More options: --help\n") && help.contains("\nExamples:\n"), "{help}");
    assert!(help.contains("--fanout") && !help.contains("--burn-prob"), "{help}");
    let help = sandbox.ok("train --help");
    assert!(help.contains("Options of --sampler forest-fire:") && help.contains("--burn-prob <P>"), "{help}");
}

#[test]
fn bounded_runs_report_what_they_scored_and_eval_agrees() {
    let sandbox = Sandbox::new();
    sandbox.ok("generate sbm data --nodes 3000 --classes 4 --feature-dim 8 --feature-type f16");
    assert_eq!(sandbox.ok_json("info data --verify")["feature_type"], "f16");
    let bounds = "--max-batches 2 --batch-size 100 --eval-nodes 50";
    let text = sandbox.ok(&format!("train data --out run --epochs 2 --hidden 8 {bounds}"));
    assert!(text.contains("scored 50 of 750 validation nodes and 50 of 750 test nodes"), "{text}");
    let summary = sandbox.json("run/summary.json");
    assert!(summary["epochs"].as_array().unwrap().iter().all(|epoch| epoch["seeds"] == 200), "{summary}");
    let scores = sandbox.ok_json("eval run");
    assert_eq!(scores["test"], summary["test"]["score"]);
    assert!(scores["parts"].as_array().unwrap().iter().all(|part| part["nodes"] == 50), "{scores}");
    // a bound of all nodes scores the same as no bound
    let all = |eval: &str, out: &str| {
        sandbox.ok_json(&format!("train data --out {out} --epochs 1 --hidden 8 {eval}"))["test"]["score"]
            .clone()
    };
    assert_eq!(all("", "one"), all("--eval-nodes 750", "two"));
}
