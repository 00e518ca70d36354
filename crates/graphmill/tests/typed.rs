//! Datasets of format 2 on the command line: those of one type work with every command, as those of
//! format 1 do, and those of several types are shown, exported and otherwise refused.

mod common;

use common::Sandbox;
use graphmill_data::{TypedBuilder, TypedDataset};

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
fn several_types_are_shown_exported_and_otherwise_refused() {
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

    for args in [
        "train shop --out new",
        "hotness shop",
        "partition shop new --parts 2",
        "reorder shop new --by degree",
        "export shop npz new",
        "bench all shop",
    ] {
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
