//! Graphs of one node type without features on the command line: import, training on links and
//! classes, with and without features of edges, resuming, scores, recommendations, embeddings and
//! exports.

use std::collections::BTreeSet;

use graphmill_core::Features;
use graphmill_data::typed::{self, Verify};

use crate::common::Sandbox;

const OPTIONS: &str = "--model rsage --hidden 8 --fanout 4,4 --epochs 2 --batch-size 64 --seed 3";

/// Edges of a ring of 120 nodes, in which each node knows the next five.
fn ring(sandbox: &Sandbox) -> BTreeSet<(u32, u32)> {
    let pairs = (0..120).flat_map(|v| (1..6).map(move |step| (v, (v + step) % 120)));
    let edges: BTreeSet<(u32, u32)> = pairs.collect();
    let lines: String = edges.iter().map(|(u, v)| format!("{u} {v}\n")).collect();
    sandbox.write("ring.txt", lines);
    sandbox.ok("import edges ring.txt ring --undirected");
    edges
}

#[test]
fn links_of_a_graph_without_features_are_learned_and_recommended() {
    let sandbox = Sandbox::new();
    let edges = ring(&sandbox);
    let refused = sandbox.run("train ring --task link --batch-size 64");
    assert_eq!(refused.status, Some(1));
    assert!(refused.stderr.contains("use --model rsage, which learns a row"), "{}", refused.stderr);
    for threads in [1, 3] {
        sandbox.ok(&format!("train ring --task link {OPTIONS} --threads {threads} --out run-{threads}"));
    }
    sandbox.results("run-1").assert_same(&sandbox.results("run-3"), "threads");
    let longer = OPTIONS.replace("--epochs 2", "--epochs 4");
    let summary = sandbox.ok_json(&format!("train ring --task link {longer} --out whole"));
    sandbox.ok("train --resume --out run-1 --epochs 4");
    sandbox.results("run-1").assert_same(&sandbox.results("whole"), "resumed");
    sandbox.ok("train ring --config whole/config.toml --out again");
    sandbox.results("again").assert_same(&sandbox.results("whole"), "repeated from its options");
    let scores = sandbox.ok_json("eval whole");
    assert_eq!(scores["test"], summary["test"]["score"]);
    sandbox.write("nodes.txt", "0\n7\n");
    sandbox.ok("predict whole --top-k 5 --nodes nodes.txt --out top.csv");
    let text = String::from_utf8(sandbox.read("top.csv")).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("source,candidate,score"));
    let pairs: Vec<(u32, u32)> = lines
        .map(|line| {
            let (source, rest) = line.split_once(',').unwrap();
            (source.parse().unwrap(), rest.split(',').next().unwrap().parse().unwrap())
        })
        .collect();
    assert_eq!(pairs.len(), 10, "{text}");
    for (u, v) in pairs {
        assert!(u != v && !edges.contains(&(u, v)) && !edges.contains(&(v, u)), "{u}, {v} is an edge");
    }
    sandbox.ok("embed whole --out rows.npy");
    assert_eq!(sandbox.floats("rows.npy").0, [120, 8]);
    sandbox.ok("export-model whole --to pyg module");
    let options = sandbox.json("module/model.json");
    assert_eq!(
        (&options["node_types"][0]["width"], &options["node_types"][0]["nodes"]),
        (&0.into(), &120.into())
    );
}

#[test]
fn classes_of_a_graph_without_features_are_learned_and_predicted() {
    let sandbox = Sandbox::new();
    let mut data = sandbox.dataset("full");
    data.features = Features::default();
    data.save(sandbox.path("bare")).unwrap();
    let options = "--model rgat --heads 2 --hidden 8 --fanout 4,4 --batch-size 512 --seed 3";
    sandbox.ok(&format!("train bare {options} --epochs 3 --threads 1 --out whole"));
    sandbox.ok(&format!("train bare {options} --epochs 2 --threads 2 --out part"));
    sandbox.ok("train --resume --out part --epochs 3");
    sandbox.results("whole").assert_same(&sandbox.results("part"), "resumed");
    let scores = sandbox.ok_json("eval whole");
    assert_eq!(scores["test"], sandbox.json("whole/summary.json")["test"]["score"]);
    sandbox.ok("predict whole --out classes.csv");
    let text = String::from_utf8(sandbox.read("classes.csv")).unwrap();
    assert_eq!(text.lines().count(), 1 + data.num_nodes());
    sandbox.ok("export-model whole --to onnx model.onnx");
    // with features, the same models train by types, too
    let summary = sandbox.ok_json(&format!("train full {options} --lr 0.02 --epochs 8 --out full-run"));
    assert!(summary["test"]["score"].as_f64().unwrap() > 0.3, "{}", summary["test"]);
    sandbox.ok("train full --model rsage --hidden 8 --epochs 1 --host-budget 100K --out tiers");
    sandbox.write(
        "cores.toml",
        "devices = { count = 1, memory = '1G', speed = 1.0, shared = true }\nlink = { bandwidth = 1e9 }\n\
         host = { cores = 2, memory = '4G' }\n",
    );
    let plan = sandbox.ok_json("plan bare --hardware cores.toml --model rsage --hidden 8 --fanout 4,4");
    assert_eq!(plan["profile"]["types"][0]["row_bytes"], 0.0, "{}", plan["profile"]["types"]);
    // parts of one type hold no rows of types
    sandbox.ok("partition full parts --parts 2");
    let refused = sandbox.run("train parts --model rsage");
    assert_eq!(refused.status, Some(2));
    assert!(
        refused.stderr.contains("of one type in a directory that is not partitioned"),
        "{}",
        refused.stderr
    );
}

const PROTEINS: &[(&str, &str)] = &[
    ("ogbn_proteins/raw/num-node-list.csv", "4\n"),
    ("ogbn_proteins/raw/num-edge-list.csv", "2\n"),
    ("ogbn_proteins/raw/edge.csv", "0,1\n2,1\n"),
    ("ogbn_proteins/raw/edge-feat.csv", "0.5,0\n0,0.25\n"),
    ("ogbn_proteins/raw/node_species.csv", "7\n7\n9\n9\n"),
    ("ogbn_proteins/raw/node-label.csv", "0,1\n1,1\n0,0\n1,0\n"),
    ("ogbn_proteins/split/species/train.csv", "0\n3\n"),
    ("ogbn_proteins/split/species/valid.csv", "1\n"),
    ("ogbn_proteins/split/species/test.csv", "2\n"),
];

#[test]
fn an_ogb_directory_keeps_the_features_of_its_edges() {
    let sandbox = Sandbox::new();
    PROTEINS.iter().for_each(|(name, text)| sandbox.write(name, text));
    let text = sandbox.ok("import ogb-nodes ogbn_proteins proteins");
    assert!(text.trim_end().ends_with("not read: raw/node_species.csv"), "{text}");
    let data = typed::open(sandbox.path("proteins"), Verify::Once).unwrap();
    assert_eq!((&*data.name, &*data.tasks[0].name), ("ogbn-proteins", "species"));
    assert_eq!(data.tasks[0].metric.as_deref(), Some("roc-auc"));
    assert_eq!(data.tasks[0].split.train[..], [0, 3]);
    // a reverse edge has the features of its edge
    let edges = &data.edges[0];
    assert!(edges.is_undirected());
    assert_eq!(edges.indices[..], [1, 0, 2, 1]);
    let row = |edge: usize| {
        let mut row = [0.0; 2];
        edges.features.as_ref().unwrap().copy_row(edge, &mut row);
        row
    };
    assert_eq!([0, 1, 2, 3].map(row), [[0.5, 0.0], [0.5, 0.0], [0.0, 0.25], [0.0, 0.25]]);
    // the nodes have no features, so a row of each is learned beside those of the edges
    sandbox.ok("train proteins --model gine --hidden 4 --fanout 2,2 --epochs 1 --out run");
    for (name, text, why) in [
        ("raw/edge-feat.csv", "1,2\n", "1 rows, but there are 2"),
        ("raw/num-edge-list.csv", "5\n", "2 edges, but num-edge-list says 5"),
        ("raw/node-label.csv", "0,1\n1,2\n0,0\n1,1\n", "the label of node 1 is 2"),
        ("split/species/test.csv", "2\n4\n", "node 4, but there are 4 nodes"),
    ] {
        PROTEINS.iter().for_each(|(name, text)| sandbox.write(name, text));
        sandbox.write(&format!("ogbn_proteins/{name}"), text);
        let outcome = sandbox.run("import ogb-nodes ogbn_proteins broken");
        assert_eq!(outcome.status, Some(1));
        assert!(outcome.stderr.contains(why), "{name}: {}", outcome.stderr);
    }
}
