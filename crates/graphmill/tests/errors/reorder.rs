//! `graphmill reorder`.

use graphmill_data::Dataset;

use super::*;

#[test]
fn orders_targets_and_seeds_are_checked() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    sandbox.dataset("other");
    let known = ["unknown order 'hilbert'", "known: degree, bfs, rcm, random"];
    refused(&sandbox, "reorder data new --by hilbert", USAGE, &known, "new");
    refused(&sandbox, "reorder data new", USAGE, &["--by"], "new");
    refused(&sandbox, "reorder data new --by random --seed -1", USAGE, &["--seed", "'-1'"], "new");
    for by in ["degree", "bfs", "rcm", "reverse-pagerank"] {
        let args = format!("reorder data new --by {by} --seed 3");
        refused(&sandbox, &args, USAGE, &["--seed: ", by, "random", "or leave it out"], "new");
    }
    let args = "reorder data new --by presc:1 --sampler saint-node --layers 3";
    refused(&sandbox, args, USAGE, &["--layers 3: --sampler saint-node does not use it"], "new");
    refused(&sandbox, "reorder data other --by bfs", FAILED, &["already holds a dataset", "--force"], "");
    refused(&sandbox, "reorder none new --by bfs", FAILED, &["none", "graphmill.json"], "new");
    Dataset::default().save(sandbox.path("empty")).unwrap();
    refused(&sandbox, "reorder empty new --by bfs", FAILED, &["empty", "no nodes"], "new");
    assert!(!sandbox.path("new.reordering").exists());
}

#[test]
fn damaged_original_ids_are_found() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    sandbox.ok("reorder data new --by bfs");
    let mut ids = sandbox.read("new/original_ids.npy");
    let last = ids.len() - 1;
    ids[last] ^= 1;
    sandbox.write("new/original_ids.npy", ids);
    refused(&sandbox, "info new", FAILED, &["original_ids.npy", "checksum"], "");
}
