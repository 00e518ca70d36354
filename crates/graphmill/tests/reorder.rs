//! `graphmill reorder`: the dataset stays the same graph and keeps the original node ids.

use graphmill_core::Labels;
use graphmill_data::{
    Dataset, npy,
    typed::{self, NodeData, Verify},
};

use crate::common::Sandbox;

/// Class of every node.
fn classes(dataset: &Dataset) -> &[i32] {
    let Labels::Single { class, .. } = &dataset.labels else { panic!("the dataset has one class per node") };
    class
}

#[test]
fn a_reordered_dataset_keeps_its_graph_and_its_original_ids() {
    let sandbox = Sandbox::new();
    let data = sandbox.dataset("data");
    let report = sandbox.ok_json("reorder data new --by degree");
    assert_eq!(
        (report["by"].as_str(), report["nodes"].as_u64()),
        (Some("degree"), Some(data.num_nodes() as u64))
    );
    for stage in ["open", "order", "topology", "features", "labels", "finish"] {
        assert!(report["stages"][stage].as_f64().is_some_and(|s| s >= 0.0), "{stage}: {report}");
    }
    let new = Dataset::open(sandbox.path("new")).unwrap();
    let ids = new.original_ids.as_ref().unwrap();
    assert!(classes(&new).iter().zip(&ids[..]).all(|(&c, &v)| c == classes(&data)[v as usize]));
    // reordered again in place: the original ids are still those of the first dataset
    sandbox.ok("reorder new new --by random --seed 5 --force");
    let newer = Dataset::open(sandbox.path("new")).unwrap();
    let again = newer.original_ids.as_ref().unwrap();
    assert_ne!(ids[..], again[..]);
    assert!(classes(&newer).iter().zip(&again[..]).all(|(&c, &v)| c == classes(&data)[v as usize]));

    let info = [sandbox.ok_json("info data"), sandbox.ok_json("info new")];
    assert_eq!((info[0]["reordered"].as_bool(), info[1]["reordered"].as_bool()), (Some(false), Some(true)));
    assert!(sandbox.ok("info new").contains("original ids kept"));
    for figure in ["edges", "degree", "class_counts", "train", "isolated", "symmetric"] {
        assert_eq!(info[0][figure], info[1][figure], "{figure}");
    }
    let exported = sandbox.ok_json("export new npz new.npz");
    assert!(exported["left_out"].to_string().contains("before they were reordered"));
    sandbox.ok("train new --hidden 8 --fanout 3,3 --epochs 1 --out run");
    // predictions by the dataset's ids, or by the original ones
    let predicted = |args: &str| {
        sandbox.ok(&format!("predict run --out classes.npy --force {args}"));
        npy::open(sandbox.path("classes.npy")).unwrap().read_as_i64().unwrap()
    };
    let (by_new, by_original) = (predicted(""), predicted("--original-ids"));
    assert!(again.iter().zip(&by_new).all(|(&original, &class)| by_original[original as usize] == class));
    sandbox.write("some", format!("7\n{}\n", again[3]));
    assert_eq!(predicted("--original-ids --nodes some"), [by_original[7], by_new[3]]);
    sandbox.ok("train data --hidden 8 --fanout 3,3 --epochs 1 --out plain");
    let refused = sandbox.run("predict plain --out none.npy --original-ids");
    assert!(refused.status == Some(1) && refused.stderr.contains("was not reordered"), "{}", refused.stderr);
}

/// A cache of the first rows serves the same reads as one by the hotness that ordered them. It
/// holds more rows in the same memory because it needs no map.
#[test]
fn a_cache_of_the_first_rows_follows_the_order_of_the_dataset() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    sandbox.ok("reorder data new --by degree");
    let hits = |cache: &str, size: &str| {
        let options = "--hidden 8 --fanout 3,3 --batch-size 300 --epochs 1 --devices virtual:1";
        let run = format!("{cache}-{}", size.split(' ').next().unwrap_or(""));
        sandbox.ok(&format!("train new {options} --cache {cache} {size} --out {run}"));
        sandbox.json(format!("{run}/summary.json"))["epochs"][0]["hit_rate"].as_f64().unwrap()
    };
    assert_eq!(hits("stored-order", "--cache-ratio 0.2"), hits("degree", "--cache-ratio 0.2"));

    // the map takes 8 bytes for each of 40,000 nodes
    sandbox.ok("generate sbm large --nodes 40000 --feature-dim 8 --degree 4");
    sandbox.ok("reorder large new --by degree --force");
    let options = "--hidden 8 --fanout 3,3 --batch-size 300 --epochs 1 --devices virtual:1";
    let refused = sandbox.run(&format!("train new {options} --device-budget 10KB --out none")).stderr;
    let step = refused.split("step takes ").nth(1).and_then(|rest| rest.split(' ').next());
    let step: usize = step.unwrap_or_else(|| panic!("{refused}")).parse().unwrap();
    let budget = format!("--device-budget {}", step + 700_000);
    let [with_map, without] = [hits("degree", &budget), hits("stored-order", &budget)];
    assert!(with_map > 0.0 && without > with_map && without < 1.0, "{with_map} with a map, {without}");
}

#[test]
fn orders_do_not_depend_on_the_number_of_threads() {
    let sandbox = Sandbox::new();
    sandbox.sparse_dataset("data");
    sandbox.ok("generate typed papers --nodes 600 --feature-dim 4");
    for (data, orders) in
        [("data", &["degree", "bfs", "rcm", "random"][..]), ("papers", &["bfs", "presc:1 --fanout 3,2"])]
    {
        for (i, by) in orders.iter().enumerate() {
            let [one, two] = [1, 3].map(|threads| {
                sandbox.ok(&format!("reorder {data} {data}-{i}-{threads} --by {by} --threads {threads}"));
                sandbox.read(format!("{data}-{i}-{threads}/graphmill.json"))
            });
            assert!(one == two, "{data} by {by}");
        }
    }
}

#[test]
fn reordered_types_keep_their_places_keys_and_predictions() {
    let sandbox = Sandbox::new();
    sandbox
        .ok("generate typed papers --nodes 1200 --classes 4 --feature-dim 8 --p-in 0.9 --signal 1 --seed 3");
    let report = sandbox.ok_json("reorder papers new --by presc:1 --fanout 4,2 --batch-size 16 --task area");
    assert_eq!((&report["by"], &report["nodes"]), (&"presc:1".into(), &1200.into()));
    assert_eq!(report["node_types"][0], serde_json::json!({ "name": "paper", "count": 600 }));
    let [old, new] = ["papers", "new"].map(|name| typed::open(sandbox.path(name), Verify::All).unwrap());
    for (old, new) in old.nodes.iter().zip(&new.nodes) {
        let ids = new.original_ids.as_ref().unwrap();
        assert_eq!((&old.name, old.count), (&new.name, ids.len()));
        let key = |nodes: &NodeData, v: usize| nodes.keys.as_ref().map(|keys| keys.get(v).to_string());
        assert!((0..new.count).all(|v| key(new, v) == key(old, ids[v] as usize)), "{}", new.name);
    }
    // an order by hotness is that of its scores: the first papers are read most
    let hits = |data: &str, cache: &str| {
        let options = format!("--policies {cache} --ratios 0.1 --fanout 4,2 --batch-size 16");
        sandbox.ok_json(&format!("hotness {data} {options}"))["results"][0]["hit_rate"].as_f64().unwrap()
    };
    assert!(hits("new", "stored-order") > hits("papers", "stored-order"));

    let options = "--hidden 8 --fanout 4,2 --batch-size 128 --lr 0.01 --epochs 3";
    sandbox.ok(&format!("train new {options} --out run"));
    let predicted = |args: &str| {
        sandbox.ok(&format!("predict run --out classes.npy --force {args}"));
        npy::open(sandbox.path("classes.npy")).unwrap().read_as_i64().unwrap()
    };
    let (by_new, by_original) = (predicted(""), predicted("--original-ids"));
    let ids = new.nodes[0].original_ids.as_ref().unwrap();
    assert_ne!(by_new, by_original);
    assert!(ids.iter().zip(&by_new).all(|(&v, &class)| by_original[v as usize] == class));
    sandbox.write("some", format!("7\n{}\n", ids[3]));
    assert_eq!(predicted("--original-ids --nodes some"), [by_original[7], by_new[3]]);
    sandbox.ok(&format!("train papers {options} --out plain"));
    let refused = sandbox.run("predict plain --original-ids --out none.npy");
    assert!(refused.status == Some(1) && refused.stderr.contains("was not reordered"), "{}", refused.stderr);
    let exported = sandbox.ok_json("export new csv tables");
    assert!(exported["left_out"].to_string().contains("type 'topic' had before they were reordered"));
    for (args, part) in [
        ("reorder papers none --by analytic", "one fanout for all neighbours"),
        ("reorder papers none --by degree --fanout 2,2", "--by degree does not use it"),
        ("reorder papers none --by presc:1 --task price", "known: area"),
    ] {
        let refused = sandbox.run(args);
        assert!(refused.status != Some(0) && refused.stderr.contains(part), "{args}: {}", refused.stderr);
        assert!(!sandbox.path("none").exists());
    }
}
