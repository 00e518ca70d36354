//! What can be wrong with a plan.

use super::*;

const PROFILE: &str = "batches = 10\ncores = 2\nseconds = { sample = 1, gather = 1, near = 1, train = 1 }\n\
                       bytes = { topology = 1, features = 8, batch_rows = 1, sample = 1, train = 1 }\n";

#[test]
fn machines_profiles_and_options_are_checked() {
    let room = Room::new();
    room.dataset("data");
    refused(&room, "plan data", USAGE, &["--hardware"], "");
    refused(&room, "plan --hardware laptop", USAGE, &["<DATASET>"], "");
    refused(&room, "plan data --hardware abacus", USAGE, &["unknown machine 'abacus'", "known: a100x4"], "");
    refused(&room, "plan data --hardware none.toml", FAILED, &["none.toml", "cannot read"], "");
    refused(&room, "plan none --hardware laptop", FAILED, &["none", "graphmill.json"], "");
    refused(&room, "plan data --hardware laptop --cache heat", USAGE, &["unknown policy 'heat'"], "");
    refused(&room, "plan data --hardware laptop --strategy factored", USAGE, &["--strategy"], "");
    refused(&room, "plan --paper dgl", USAGE, &["--paper", "fgnn", "bgl"], "");
    refused(&room, "plan data --network 1G --hardware laptop", USAGE, &["--network", "--hardware"], "");
    refused(&room, "plan data --partition data", FAILED, &["partition.json", "graphmill partition"], "");
    refused(&room, "plan data --partition data --network fast", USAGE, &["--network", "fast"], "");
    refused(&room, "plan data --paper fgnn", USAGE, &["cannot be used with"], "");
    room.write(
        "machine.toml",
        "devices = { count = 0, memory = 1 }\nlink = { bandwidth = 1 }\nhost = { cores = 1, memory = 1 }",
    );
    refused(
        &room,
        "plan data --hardware machine.toml",
        FAILED,
        &["machine.toml", "devices.count", "from 1"],
        "",
    );
    room.write("machine.toml", "devices = 8");
    refused(&room, "plan data --hardware machine.toml", FAILED, &["machine.toml", "line 1"], "");
    room.write("profile.toml", PROFILE);
    refused(
        &room,
        "plan --profile profile.toml --hardware laptop",
        USAGE,
        &["devices.speed", "bandwidth"],
        "",
    );
    room.write("profile.toml", PROFILE.replace("train = 1 }\nbytes", "train = -1 }\nbytes"));
    refused(
        &room,
        "plan --profile profile.toml --hardware laptop",
        FAILED,
        &["profile.toml", "seconds.train"],
        "",
    );
}
