//! What can be wrong with a reordering.

use graphmill_data::Dataset;

use super::*;

#[test]
fn orders_targets_and_seeds_are_checked() {
    let room = Room::new();
    room.dataset("data");
    room.dataset("other");
    let known = ["unknown order 'hilbert'", "known: degree, bfs, rcm, random"];
    refused(&room, "reorder data new --by hilbert", USAGE, &known, "new");
    refused(&room, "reorder data new", USAGE, &["--by"], "new");
    refused(&room, "reorder data new --by random --seed -1", USAGE, &["--seed", "'-1'"], "new");
    for by in ["degree", "bfs", "rcm", "reverse-pagerank"] {
        let args = format!("reorder data new --by {by} --seed 3");
        refused(&room, &args, USAGE, &["--seed: ", by, "random", "or leave it out"], "new");
    }
    let args = "reorder data new --by presc:1 --sampler saint-node --layers 3";
    refused(&room, args, USAGE, &["--layers 3: --sampler saint-node does not use it"], "new");
    refused(&room, "reorder data other --by bfs", FAILED, &["already holds a dataset", "--force"], "");
    refused(&room, "reorder none new --by bfs", FAILED, &["none", "graphmill.json"], "new");
    Dataset::default().save(room.path("empty")).unwrap();
    refused(&room, "reorder empty new --by bfs", FAILED, &["empty", "no nodes"], "new");
    assert!(!room.path("new.reordering").exists());
}

#[test]
fn damaged_original_ids_are_found() {
    let room = Room::new();
    room.dataset("data");
    room.ok("reorder data new --by bfs");
    let mut ids = room.read("new/original_ids.npy");
    let last = ids.len() - 1;
    ids[last] ^= 1;
    room.write("new/original_ids.npy", ids);
    refused(&room, "info new", FAILED, &["original_ids.npy", "checksum"], "");
}
