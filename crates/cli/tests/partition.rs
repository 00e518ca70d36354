//! Partitioning as users meet it: figures by method, and parts that open alone in other commands.

mod common;

use common::Room;
use graphmill_graph::partition::PartitionDir;

const RUN: &str = "--parts 3 --fanout 5,5 --batch-size 64";

#[test]
fn a_partition_is_told_of_and_its_parts_are_datasets() {
    let room = Room::new();
    let data = room.dataset("data");
    let told = room.ok_json(&format!("partition data new --method bgl {RUN}"));
    assert_eq!((told["method"].as_str(), told["parts"].as_u64()), (Some("bgl"), Some(3)));
    for place in ["/edge_cut", "/balance/nodes", "/balance/train", "/cross_requests/per_epoch", "/seconds"] {
        assert!(told.pointer(place).is_some_and(serde_json::Value::is_number), "{place}: {told}");
    }
    let dir = PartitionDir::open(room.path("new")).unwrap();
    assert_eq!((dir.parts(), dir.num_nodes(), dir.method()), (3, data.num_nodes(), "bgl"));
    assert_eq!(dir.statistics()["edge_cut"], told["edge_cut"]);
    for part in 0..3 {
        let nodes = dir.part(part).unwrap().dataset.num_nodes();
        let info = room.ok_json(&format!("info new/part-000{part}"));
        assert_eq!(info["nodes"].as_u64(), Some(nodes as u64));
    }
    // the same bytes again, whatever the threads
    room.ok(&format!("partition data again --method bgl --threads 1 {RUN}"));
    assert_eq!(room.read("new/book.npy"), room.read("again/book.npy"));
}

#[test]
fn all_methods_are_compared_and_drawn() {
    let room = Room::new();
    room.dataset("data");
    let told = room.ok_json(&format!("partition data --method all --batches 2 --plot plot.svg {RUN}"));
    let results = told["results"].as_array().unwrap();
    let names: Vec<&str> = results.iter().filter_map(|result| result["method"].as_str()).collect();
    assert_eq!(names, ["random", "hash", "ldg", "fennel", "metis", "bgl"]);
    assert!(String::from_utf8(room.read("plot.svg")).unwrap().starts_with("<svg"));
    assert!(room.ok(&format!("partition data --method ldg,bgl {RUN}")).contains("edge cut"));
}
