//! `graphmill partition`.

use super::*;

#[test]
fn methods_numbers_and_targets_are_checked() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    let known = ["unknown method 'best'", "known: random, hash, ldg, fennel, gminer, pagraph, metis, bgl"];
    refused(&sandbox, "partition data new --method best", USAGE, &known, "new");
    refused(&sandbox, "partition data new --method random,bgl", USAGE, &["one method"], "new");
    refused(&sandbox, "partition data new --parts 0", USAGE, &["--parts 0", "1 to 65535"], "new");
    refused(&sandbox, "partition data new --parts 70000", USAGE, &["--parts 70000"], "new");
    refused(&sandbox, "partition data new --slack -1", USAGE, &["--slack -1"], "new");
    for (method, limit) in
        [("hash", "slack"), ("ldg", "slack"), ("random", "train-slack"), ("fennel", "train-slack")]
    {
        let args = format!("partition data new --method {method} --{limit} 0.3");
        let says = format!("--{limit}: --method {method} does not use it; use --method ");
        refused(&sandbox, &args, USAGE, &[&says, "or leave it out"], "new");
    }
    refused(
        &sandbox,
        "partition data new --sampler saint-rw",
        USAGE,
        &["saint-rw", "whole subgraphs"],
        "new",
    );
    refused(&sandbox, "partition data new --parts 65535", FAILED, &["65535 parts"], "new");
    refused(&sandbox, "partition none new", FAILED, &["none", "graphmill.json"], "new");
    refused(&sandbox, "partition data data", FAILED, &["data", "not empty"], "");
    refused(&sandbox, "info data/nothing", FAILED, &["graphmill.json"], "");
}
