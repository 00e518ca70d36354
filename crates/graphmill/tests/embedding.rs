//! Tables of embeddings on the command line: import, training, scores, best candidates, embeddings.

use crate::common::Sandbox;

#[test]
fn a_knowledge_graph_is_imported_trained_scored_and_completed() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("from")).unwrap();
    // days of a month: each is before the next, and after the one before
    let lines = |keep: fn(u32) -> bool| {
        let days = (0..30).filter(|day| keep(day % 10));
        days.map(|d| format!("d{d}\tbefore\td{}\nd{}\tafter\td{d}\n", (d + 1) % 30, (d + 1) % 30))
            .collect::<String>()
    };
    sandbox.write("from/train.txt", lines(|day| day > 1));
    sandbox.write("from/valid.txt", lines(|day| day == 0));
    sandbox.write("from/test.txt", lines(|day| day == 1));
    sandbox.ok("import triples from days");
    let options = "--model embedding --decoder complex --hidden 16 --one-vs-all --row-optimizer adagrad \
                   --lr 0.1 --epochs 5 --batch-size 16 --seed 3";
    let summary = sandbox.ok_json(&format!("train days {options} --out run"));
    assert_eq!((&summary["test"]["metric"], &summary["dataset"]["test"]), (&"mrr".into(), &6.into()));
    let scores = sandbox.ok_json("eval run");
    assert_eq!(scores["test"], summary["test"]["score"]);
    assert!(scores["parts"][1]["scores"]["hits@10"].is_number(), "{scores}");
    sandbox.write("keys.txt", "d4\nd7\n");
    sandbox.ok("predict run --top-k 3 --relation before --keys keys.txt --out top.csv");
    let text = String::from_utf8(sandbox.read("top.csv")).unwrap();
    let rows: Vec<&str> = text.lines().collect();
    assert_eq!((rows[0], rows.len()), ("source,candidate,score", 7));
    assert!(rows[1].starts_with("d4,d") && rows[4].starts_with("d7,d"), "{text}");
    // a known edge is not predicted
    assert!(!text.contains("d4,d5,"), "{text}");
    sandbox.ok("embed run --out rows.csv --keys keys.txt");
    let text = String::from_utf8(sandbox.read("rows.csv")).unwrap();
    assert!(text.contains("\nd4,") && text.lines().next().unwrap().ends_with("embedding_15"), "{text}");
    for (args, why) in [
        ("predict run --top-k 3 --out none.csv", "it has several relations; choose one of before, after"),
        ("predict run --out none.csv", "pass --top-k K"),
        ("embed run --node-type day --out days.csv", "node type 'day' has no embeddings; known: entity"),
        ("train --model lightgcn", "import one with graphmill import"),
    ] {
        let outcome = sandbox.run(args);
        assert!(outcome.status != Some(0) && outcome.stderr.contains(why), "{args}: {}", outcome.stderr);
    }
}

#[test]
fn recommendations_have_the_keys_of_users_and_items() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("from")).unwrap();
    sandbox.write("from/train.txt", "ann tea milk\nbob tea cake\neve milk cake\nzed tea\n");
    sandbox.write("from/test.txt", "ann cake\nbob milk\n");
    sandbox.ok("import interactions from shop");
    let options = "--model lightgcn --hidden 8 --epochs 2 --batch-size 4 --seed 1";
    let summary = sandbox.ok_json(&format!("train shop {options} --out run"));
    assert_eq!((&summary["test"]["metric"], &summary["config"]["layers"]), (&"ndcg@20".into(), &3.into()));
    // each user has one item left
    assert_eq!(summary["test"]["score"], 1.0);
    // the test edges are known, so no candidate is left for ann and bob
    sandbox.ok("predict run --top-k 5 --out top.csv");
    let text = String::from_utf8(sandbox.read("top.csv")).unwrap();
    let rows: std::collections::BTreeSet<&str> =
        text.lines().skip(1).map(|line| line.rsplit_once(',').unwrap().0).collect();
    assert_eq!(rows.into_iter().collect::<Vec<_>>(), ["eve,tea", "zed,cake", "zed,milk"]);
    let outcome = sandbox.ok("embed run --node-type item --out items.csv");
    assert!(outcome.contains("3 x 8 embeddings"), "{outcome}");
}
