//! `graphmill plan`.

use super::*;

const PROFILE: &str = "batches = 10\ncores = 2\nseconds = { sample = 1, gather = 1, near = 1, train = 1 }\n\
                       bytes = { topology = 1, features = 8, batch_rows = 1, sample = 1, train = 1 }\n";

#[test]
fn machines_profiles_and_options_are_checked() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    refused(&sandbox, "plan data", USAGE, &["--hardware"], "");
    refused(&sandbox, "plan --hardware laptop", USAGE, &["<DATASET>"], "");
    refused(
        &sandbox,
        "plan data --hardware abacus",
        USAGE,
        &["unknown machine 'abacus'", "known: a100x4"],
        "",
    );
    refused(&sandbox, "plan data --hardware none.toml", FAILED, &["none.toml", "cannot read"], "");
    refused(&sandbox, "plan none --hardware laptop", FAILED, &["none", "graphmill.json"], "");
    refused(&sandbox, "plan data --hardware laptop --cache heat", USAGE, &["unknown policy 'heat'"], "");
    refused(&sandbox, "plan data --hardware laptop --strategy factored", USAGE, &["--strategy"], "");
    refused(&sandbox, "plan --paper dgl", USAGE, &["--paper", "fgnn", "bgl"], "");
    refused(&sandbox, "plan data --network 1G --hardware laptop", USAGE, &["--partition"], "");
    refused(&sandbox, "plan data --partition data", FAILED, &["partition.json", "graphmill partition"], "");
    refused(&sandbox, "plan data --partition data --network fast", USAGE, &["--network", "fast"], "");
    refused(&sandbox, "plan data --paper fgnn", USAGE, &["cannot be used with"], "");
    sandbox.write(
        "machine.toml",
        "devices = { count = 0, memory = 1 }\nlink = { bandwidth = 1 }\nhost = { cores = 1, memory = 1 }",
    );
    refused(
        &sandbox,
        "plan data --hardware machine.toml",
        FAILED,
        &["machine.toml", "devices.count", "from 1"],
        "",
    );
    sandbox.write("machine.toml", "devices = 8");
    refused(&sandbox, "plan data --hardware machine.toml", FAILED, &["machine.toml", "line 1"], "");
    sandbox.write("profile.toml", PROFILE);
    refused(
        &sandbox,
        "plan --profile profile.toml --hardware laptop",
        USAGE,
        &["devices.speed", "bandwidth"],
        "",
    );
    sandbox.write("profile.toml", PROFILE.replace("train = 1 }\nbytes", "train = -1 }\nbytes"));
    refused(
        &sandbox,
        "plan --profile profile.toml --hardware laptop",
        FAILED,
        &["profile.toml", "seconds.train"],
        "",
    );
}
