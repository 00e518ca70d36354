//! Datasets of format 2 on the command line: those of one type work with every command, as those of
//! format 1 do, and those of several types are shown, exported and trained on.

use graphmill_data::{TypedBuilder, TypedDataset};

use crate::common::Sandbox;

/// A sandbox with the same dataset in both formats, `old` and `new`.
fn both() -> Sandbox {
    let sandbox = Sandbox::new();
    let dataset = sandbox.dataset("old");
    TypedDataset::from_dataset(&dataset).save(sandbox.path("new")).unwrap();
    sandbox
}

#[test]
fn a_dataset_of_one_type_trains_to_the_same_bits() {
    let sandbox = both();
    for data in ["old", "new"] {
        sandbox.ok(&format!("train {data} --hidden 8 --fanout 3,3 --epochs 2 --seed 3 --out run-{data}"));
    }
    sandbox.results("run-old").assert_same(&sandbox.results("run-new"), "format 2");
    // Feature rows on disk are read from the file in its directory.
    for data in ["old", "new"] {
        let options = "--hidden 8 --fanout 3,3 --epochs 1 --seed 3 --host-budget 100K";
        sandbox.ok(&format!("train {data} {options} --out disk-{data}"));
    }
    sandbox.results("disk-old").assert_same(&sandbox.results("disk-new"), "format 2 on disk");
    let scores =
        ["old", "new"].map(|data| sandbox.ok_json(&format!("eval run-new --dataset {data}"))["test"].clone());
    assert_eq!(scores[0], scores[1]);
    let classes = ["old", "new"].map(|data| {
        sandbox.ok(&format!("predict run-new --dataset {data} --out {data}.npy"));
        sandbox.read(format!("{data}.npy"))
    });
    assert!(classes[0] == classes[1]);
}

#[test]
fn a_dataset_of_one_type_works_with_every_command() {
    let sandbox = both();
    let same = |args: &str, fields: &[&str]| {
        let [old, new] = ["old", "new"].map(|data| sandbox.ok_json(&args.replace("DATA", data)));
        for field in fields {
            assert!(!old[field].is_null(), "{args}: {field}");
            assert_eq!(old[field], new[field], "{args}: {field}");
        }
    };
    let counts = ["nodes", "edges", "feature_dim", "classes", "multilabel", "train", "valid", "test"];
    same("info DATA", &counts);
    same("info DATA --verify", &["degree", "components", "symmetric", "homophily", "bytes", "class_counts"]);
    let rates = ["old", "new"].map(|data| {
        let report = sandbox.ok_json(&format!("hotness {data} --policies degree --ratios 0.1 --fanout 3,3"));
        report["results"][0]["hit_rate"].as_f64().unwrap()
    });
    assert_eq!(rates[0], rates[1]);
    same("partition DATA DATA-parts --parts 2 --method bgl", &["edge_cut", "balance"]);
    same("reorder DATA DATA-reordered --by degree", &counts);
    same("export DATA npz DATA.npz", &["nodes", "edges", "left_out"]);
    assert_eq!(sandbox.read("old.npz"), sandbox.read("new.npz"));
    for part in ["indptr.npy", "indices.npy", "features.npy", "labels.npy", "train.npy"] {
        let [old, new] = ["old", "new"].map(|data| sandbox.read(format!("{data}-reordered/{part}")));
        assert!(old == new, "{part}");
    }
    let text = sandbox.ok("info new");
    for line in ["undirected, stored both ways", "node-classification on node; 5 classes", "24 features, <f4"]
    {
        assert!(text.contains(line), "{text}");
    }
    let json = sandbox.ok_json("info new");
    assert_eq!((&json["format"], &json["edge_types"][0]["reverse"]), (&2.into(), &"edge".into()));
}

#[test]
fn exports_write_format_2_and_tables() {
    let sandbox = both();
    let line = sandbox.ok("export old graphmill again");
    assert!(line.contains("3000 nodes"), "{line}");
    assert_eq!(sandbox.read("again/graphmill.json"), sandbox.read("new/graphmill.json"));
    sandbox.ok("export new csv tables");
    let nodes = String::from_utf8(sandbox.read("tables/nodes/node.csv")).unwrap();
    assert_eq!(nodes.lines().count(), 3001);
}

#[test]
fn several_types_are_shown_exported_and_refused_by_other_commands() {
    let sandbox = Sandbox::new();
    let mut builder = TypedBuilder::new("shop");
    builder.node_type("user", 3).text_keys(["ann", "bob", "eve"]);
    builder.node_type("item", 2).features(2, vec![1.0f32, 0.0, 0.5, 0.5]);
    builder.edge_type("user", "buys", "item").edges(vec![0, 1, 2], vec![1, 0, 1]).with_reverse("bought-by");
    builder.task("churn").on_nodes("user").classes(2, vec![0, 1, -1]).split([0], [1], []);
    builder.build().unwrap().save(sandbox.path("shop")).unwrap();

    let text = sandbox.ok("info shop");
    assert!(text.starts_with("shop\n") && text.contains("user:buys:item"), "{text}");
    let json = sandbox.ok_json("info shop --verify");
    assert_eq!((&json["nodes"], &json["node_types"][0]["keys"]), (&5.into(), &"texts".into()));
    let json = sandbox.ok_json("export shop csv tables");
    assert_eq!((&json["nodes"], &json["edges"]), (&5.into(), &6.into()));
    let edges = String::from_utf8(sandbox.read("tables/edges/user__buys__item.csv")).unwrap();
    assert_eq!(edges, "source,destination\nbob,0\nann,1\neve,1\n");
    sandbox.ok("export shop graphmill copy");
    assert_eq!(sandbox.read("copy/graphmill.json"), sandbox.read("shop/graphmill.json"));

    sandbox.ok("export shop npz shop.npz");
    assert!(sandbox.path("shop.npz").exists());

    for args in ["export shop edges new", "bench all shop"] {
        let outcome = sandbox.run(args);
        assert_eq!(outcome.status, Some(1), "{args}\n{}{}", outcome.stdout, outcome.stderr);
        for part in [
            "shop: types: it has several types",
            "node types: user, item; edge types: user:buys:item, item:bought-by:user; tasks: churn",
            "'graphmill info'",
        ] {
            assert!(outcome.stderr.contains(part), "{args}\n{}", outcome.stderr);
        }
        assert!(!sandbox.path("new").exists(), "{args}");
    }
}

/// Options of small runs on a generated dataset of several types.
const SMALL: &str = "--hidden 8 --fanout 4,2 --batch-size 128 --lr 0.01 --dropout 0.2";

/// A sandbox with a generated dataset `papers` of several types.
fn papers() -> Sandbox {
    let sandbox = Sandbox::new();
    let line = sandbox
        .ok("generate typed papers --nodes 1200 --classes 4 --feature-dim 8 --p-in 0.9 --signal 1 --seed 3");
    assert!(line.starts_with("papers: 1200 nodes of 4 types, "), "{line}");
    sandbox
}

#[test]
fn several_types_train_score_and_predict_by_keys() {
    let sandbox = papers();
    let text = sandbox.ok(&format!("train papers {SMALL} --epochs 8 --out run"));
    assert!(text.starts_with("papers accuracy: test "), "{text}");
    for file in ["config.toml", "dataset.json", "metrics.jsonl", "report.html", "summary.json"] {
        assert!(sandbox.path("run").join(file).is_file(), "{file}");
    }
    let summary: serde_json::Value = serde_json::from_slice(&sandbox.read("run/summary.json")).unwrap();
    assert!(summary["test"]["score"].as_f64().unwrap() > 0.7, "{}", summary["test"]);
    assert_eq!(summary["dataset"]["node_types"][2]["name"], "topic");
    assert_eq!(summary["epochs"][0]["edge_types"].as_array().unwrap().len(), 8);
    let report = String::from_utf8(sandbox.read("run/report.html")).unwrap();
    assert!(report.contains("author:writes:paper"), "figures by type");
    let scores = sandbox.ok_json("eval run");
    assert_eq!((&scores["test"], &scores["same_dataset"]), (&summary["test"]["score"], &true.into()));

    sandbox.write("keys.txt", b"1000700\n1000007\n");
    sandbox.ok("predict run --keys keys.txt --out some.csv");
    let some = String::from_utf8(sandbox.read("some.csv")).unwrap();
    let lines: Vec<&str> = some.lines().collect();
    assert!(lines[0] == "key,class" && lines[1].starts_with("1000700,area-"), "{some}");
    assert!(lines[2].starts_with("1000007,area-") && lines.len() == 3, "{some}");
    assert!(sandbox.ok("predict run --out all.npy").contains("600 x 1 classes"));
    assert!(sandbox.ok("predict run --out all.parquet --embeddings").contains("600 x 8 embeddings"));
    let refused = sandbox.run("predict run --original-ids --out x.csv");
    assert!(refused.status == Some(1) && refused.stderr.contains("--original-ids"), "{}", refused.stderr);
    sandbox.write("unknown.txt", b"5\n1000000\n");
    let unknown = sandbox.run("predict run --keys unknown.txt --out x.csv");
    assert!(unknown.stderr.contains("1 of 2 keys are not in papers: '5'"), "{}", unknown.stderr);
}

#[test]
fn features_of_several_types_beyond_a_budget_train_to_the_same_bits() {
    let sandbox = papers();
    let summary = |options: &str| -> serde_json::Value {
        sandbox.ok_json(&format!("train papers {SMALL} --epochs 2 {options}"))
    };
    // 1104 rows of 32 bytes
    let (whole, part) = (summary(""), summary("--host-budget 20000 --strategy pipelined"));
    for field in ["loss", "valid_score"] {
        assert_eq!(whole["epochs"][1][field], part["epochs"][1][field]);
    }
    let types = part["epochs"][1]["type_traffic"].as_array().unwrap();
    let rows = |tier: &str| types.iter().map(|of| of["traffic"][tier]["rows"].as_u64().unwrap()).sum::<u64>();
    assert!(types.len() == 3 && rows("host") > 0 && rows("disk") > 0, "{types:?}");
    sandbox.ok(&format!("train papers {SMALL} --epochs 1 --host-budget 20000 --out run"));
    let report = String::from_utf8(sandbox.read("run/report.html")).unwrap();
    assert!(report.contains("features of") && report.contains("<td>author<td>disk"), "traffic by type");

    let json =
        sandbox.ok_json("hotness papers --policies degree,lru --ratios 0.1 --fanout 4,2 --plot hits.svg");
    assert_eq!(json["results"][0]["types"][0]["name"], "paper");
    assert!(json["results"][1]["hit_rate"].as_f64().unwrap() > 0.0, "{json}");
    let text = sandbox.ok("hotness papers --fanout 4,2 --task area");
    assert!(text.contains("presc:2") && !text.contains("posterior"), "{text}");
    let refused = sandbox.run("hotness papers --policies analytic");
    assert!(refused.stderr.contains("use presc:2"), "{}", refused.stderr);
}

#[test]
fn exported_models_of_several_types_name_their_types_and_the_edges_of_each_layer() {
    let sandbox = papers();
    sandbox.ok("train papers --hidden 8 --epochs 1 --model rgcn --fanout 4,2;cites=4,0 --out run");
    sandbox.ok("export-model run --to pyg module");
    let options = sandbox.json("module/model.json");
    let names = |of: &str| options[of].as_array().unwrap().clone();
    assert_eq!(options["predicts"], "paper");
    assert_eq!(names("node_types").len(), 4);
    let cites = names("edge_types").iter().position(|kind| kind[1] == "cites").unwrap();
    assert_eq!(options["edge_types"][cites], serde_json::json!(["paper", "cites", "paper"]));
    let followed = names("followed");
    // the first number of a fanout is that of the last layer
    assert_eq!(
        [&followed[0][cites], &followed[1][cites]],
        [&serde_json::json!(false), &serde_json::json!(true)]
    );
    assert!((0..names("edge_types").len()).all(|r| r == cites || followed[0][r] == true));
    assert!(String::from_utf8(sandbox.read("module/model.py")).unwrap().contains("class RelationSum"));
    sandbox.ok("export-model run --to onnx model.onnx");
    let model = sandbox.read("model.onnx");
    let model = String::from_utf8_lossy(&model);
    assert!(model.contains("edge_index.1.paper:cites:paper"));
    assert!(!model.contains("edge_index.0.paper:cites:paper"));
}

#[test]
fn a_resumed_run_on_several_types_has_the_bits_of_a_whole_one() {
    let sandbox = papers();
    let options = format!("{SMALL} --model rgat --heads 2 --sampler labor --seed 4");
    sandbox.ok(&format!("train papers {options} --epochs 4 --threads 1 --out whole"));
    sandbox.ok(&format!("train papers {options} --epochs 2 --threads 2 --out part"));
    sandbox.ok("train --resume --out part --epochs 4");
    sandbox.results("whole").assert_same(&sandbox.results("part"), "resumed");
    let refused = sandbox.run("train --resume --out part --hidden 16");
    assert_eq!(refused.status, Some(2));
    assert!(refused.stderr.contains("--hidden is 8 in the run to resume"), "{}", refused.stderr);
    sandbox.ok("train papers --config part/config.toml --out again");
    sandbox.results("whole").assert_same(&sandbox.results("again"), "repeated from its options");
}

#[test]
fn unusable_options_and_tasks_of_several_types_are_refused() {
    let sandbox = papers();
    let refused = |args: &str, part: &str| {
        let outcome = sandbox.run(args);
        assert_eq!(outcome.status, Some(2), "{args}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(part), "{args}: {}", outcome.stderr);
    };
    refused("train papers --strategy factored", "--strategy factored: on several types it runs on simulated");
    refused("train papers --devices cuda:0,1", "one NVIDIA device trains; use cuda:0, or leave it out");
    refused("train papers --devices cuda:0 --placement shard", "cuda:0 is a single device");
    refused("train papers --model gcn", "use --model rsage, rgcn");
    refused("train papers --task price", "known: area");
    refused("train papers --fanout 5,5;likes=1,1", "unknown relation 'likes'");
    refused("generate igbh other --scale 31", "scale 31: 2^31 papers");
    refused("train --model rgcn", "--model rgcn: it is for datasets of several node types");
    assert!(!sandbox.path("runs").exists());
    let mut builder = TypedBuilder::new("links");
    builder.node_type("user", 3);
    builder.node_type("item", 2);
    builder.edge_type("user", "buys", "item").edges(vec![0, 1, 2], vec![1, 0, 1]);
    builder.build().unwrap().save(sandbox.path("links")).unwrap();
    let outcome = sandbox.run("train links");
    assert_eq!(outcome.status, Some(1));
    assert!(outcome.stderr.contains("it has no task on nodes"), "{}", outcome.stderr);
}

#[test]
fn damage_is_found_by_info() {
    let sandbox = both();
    let name = "new/nodes/node/features.npy";
    let mut bytes = sandbox.read(name);
    sandbox.ok("info new");
    let at = bytes.len() - 5;
    bytes[at] ^= 1;
    sandbox.write(name, &bytes);
    for args in ["info new", "info new --verify"] {
        let outcome = sandbox.run(args);
        assert_eq!(outcome.status, Some(1), "{args}");
        assert!(
            outcome.stderr.contains("nodes/node/features.npy: checksum: the file is damaged"),
            "{}",
            outcome.stderr
        );
    }
    bytes.truncate(at);
    sandbox.write(name, &bytes);
    assert!(sandbox.run("info new").stderr.contains("features.npy: byte "));
}

#[test]
fn imported_edge_features_are_trained_scored_and_predicted() {
    let sandbox = Sandbox::new();
    let (mut accounts, mut transfers) = (String::from("id,kind,age\n"), String::from("from,to,amount\n"));
    for i in 0..400u32 {
        accounts += &format!("acc-{i},{},{}\n", if i % 2 == 1 { "shop" } else { "person" }, i * 7919 % 50);
        for k in 1..=4 {
            let amount = if i % 2 == 1 { 60 } else { 40 } + (i * 13 + k * 37) % 30;
            transfers += &format!("acc-{},acc-{i},{amount}\n", (i * 31 + k * 101) % 400);
        }
    }
    sandbox.write("accounts.csv", accounts);
    sandbox.write("transfers.csv", transfers);
    let ends = "--nodes accounts.csv --id id --label kind --edges transfers.csv --src from --dst to";
    sandbox.ok(&format!("import tables accounts {ends} --edge-features amount"));
    let options = "--fanout 4,3 --hidden 16 --batch-size 64 --lr 0.01 --epochs 15";
    for model in ["gine", "sage-edge"] {
        let summary = sandbox.ok_json(&format!("train accounts --model {model} {options} --out {model}"));
        assert!(summary["test"]["score"].as_f64().unwrap() > 0.85, "{model}: {}", summary["test"]);
        assert_eq!(sandbox.ok_json(&format!("eval {model}"))["test"], summary["test"]["score"]);
    }
    let summary = sandbox.ok_json(&format!("train accounts {options} --out sage"));
    assert!(summary["test"]["score"].as_f64().unwrap() < 0.7, "{}", summary["test"]);
    sandbox.ok("predict gine --out kinds.csv");
    let kinds = String::from_utf8(sandbox.read("kinds.csv")).unwrap();
    let right = |(i, line): (usize, &str)| line.ends_with(if i % 2 == 1 { "shop" } else { "person" });
    assert!(kinds.lines().skip(1).enumerate().filter(|&line| right(line)).count() > 340, "{kinds}");
    // new accounts with their transfers
    let (mut accounts, mut transfers) = (String::from("id,age\n"), String::from("from,to,amount\n"));
    for i in 0..20u32 {
        accounts += &format!("new-{i},30\n");
        for k in 1..=4 {
            let amount = if i % 2 == 1 { 60 } else { 40 } + (i * 13 + k * 37) % 30;
            transfers += &format!("acc-{},new-{i},{amount}\n", (i * 31 + k * 101) % 400);
        }
    }
    sandbox.write("new.csv", accounts);
    sandbox.write("new-transfers.csv", &transfers);
    sandbox.write("no-amounts.csv", transfers.replace("amount", "sum"));
    let kinds = sandbox.ok("predict gine --on new.csv --edges new-transfers.csv --out -");
    assert!(kinds.lines().skip(1).enumerate().filter(|&line| right(line)).count() > 16, "{kinds}");
    sandbox.dataset("plain");
    for (args, why) in [
        (
            "train accounts --model gine --sampler labor",
            "use --sampler neighbor, full, saint-node, saint-edge or saint-rw",
        ),
        ("train accounts --model gine --time-dim 8", "leave it out"),
        (
            "train plain --model gine",
            "have neither features nor times, and it reads these; use --model rsage, or",
        ),
        ("train plain --model gine", "again with graphmill import tables --edge-features or --edge-time"),
        ("train plain --model tgn", "have no times, and it learns these; use --model rsage, or import"),
        ("train --model gine", "or a task on nodes whose edges have features"),
        ("predict gine --on new.csv --edges no-amounts.csv --out -", "amount"),
    ] {
        let outcome = sandbox.run(args);
        assert!(outcome.status != Some(0) && outcome.stderr.contains(why), "{args}: {}", outcome.stderr);
    }
}
