//! `graphmill reorder`: the dataset stays the same graph and keeps the original node ids.

mod common;

use common::Sandbox;
use graphmill_core::Labels;
use graphmill_data::{Dataset, npy};

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

    // maps that take more memory than the measurement of a step varies
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
    for by in ["degree", "bfs", "rcm", "random"] {
        sandbox.ok(&format!("reorder data one-{by} --by {by} --threads 1"));
        sandbox.ok(&format!("reorder data two-{by} --by {by} --threads 3"));
        assert!(
            sandbox.read(format!("one-{by}/graphmill.json"))
                == sandbox.read(format!("two-{by}/graphmill.json"))
        );
    }
}
