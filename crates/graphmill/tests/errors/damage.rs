//! Features that are damaged after their dataset was opened, or that no opening reads.

use std::fs;

use serde_json::json;

use super::{FAILED, refused};
use crate::common::Sandbox;

const TRAIN: &str = "--hidden 8 --fanout 3,3 --batch-size 500 --host-budget 1M";

/// A sandbox with the datasets `wide` and `typed`, of formats 1 and 2, whose features are 4 MB.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.ok("generate sbm wide --nodes 4000 --classes 4 --feature-dim 256");
    sandbox.ok("export wide graphmill typed");
    sandbox
}

fn flip(sandbox: &Sandbox, name: &str, at: usize) {
    let mut bytes = sandbox.read(name);
    bytes[at] ^= 1;
    sandbox.write(name, bytes);
}

#[test]
fn a_damaged_part_of_the_features_ends_a_run_that_resumes_once_it_is_restored() {
    let sandbox = sandbox();
    for (data, features) in [("wide", "wide/features.npy"), ("typed", "typed/nodes/node/features.npy")] {
        let out = |name: &str| format!("{data}-{name}");
        sandbox.ok(&format!("train {data} {TRAIN} --epochs 2 --out {}", out("whole")));
        let run = out("run");
        sandbox.ok(&format!("train {data} {TRAIN} --verify first-read --epochs 1 --out {run}"));
        let checkpoint = sandbox.read(format!("{run}/checkpoint/state.json"));
        flip(&sandbox, features, (1 << 20) + 7);
        let place = format!("{features}: bytes 1048576 to 2097152: the features are damaged");
        let resume = format!("train --resume --epochs 2 --out {run}");
        refused(&sandbox, &resume, FAILED, &[&place, "restore the file or import the data again"], "");
        assert_eq!(sandbox.read(format!("{run}/checkpoint/state.json")), checkpoint);
        // without verification, nothing finds a changed mantissa
        let off = out("off");
        sandbox.ok(&format!("train {data} {TRAIN} --verify none --epochs 1 --out {off}"));
        let record = &sandbox.json(format!("{off}/summary.json"))["verification"];
        assert_eq!((&record["is_off"], &record["unverified"]), (&json!(true), &record["bytes"]));
        flip(&sandbox, features, (1 << 20) + 7);
        sandbox.ok(&resume);
        assert!(sandbox.results(&run) == sandbox.results(&out("whole")), "{data}");
        let record = &sandbox.json(format!("{run}/summary.json"))["verification"];
        assert_eq!((&record["at_opening"], &record["at_first_read"]), (&json!(0), &json!(4_096_000)));
    }
}

#[test]
fn forged_checksums_are_refused_and_missing_ones_are_added() {
    let sandbox = sandbox();
    for (data, place) in [("wide", "wide"), ("typed", "typed/nodes/node")] {
        let checksums = format!("{place}/features_checksums.npy");
        let good = sandbox.read(&checksums);
        flip(&sandbox, &checksums, good.len() - 1);
        let says: &[&str] =
            &[&checksums, "these chunk checksums are damaged", "info --verify writes it again"];
        let train = format!("train {data} {TRAIN} --verify first-read --epochs 1 --out new");
        refused(&sandbox, &train, FAILED, says, "new");
        refused(&sandbox, &format!("info {data} --verify"), FAILED, says, "");
        fs::remove_file(sandbox.path(&checksums)).unwrap();
        sandbox.ok(&train.replace("--out new", &format!("--out {data}-old")));
        let record = &sandbox.json(format!("{data}-old/summary.json"))["verification"];
        assert_eq!(record["lacks_checksums"], json!(true));
        sandbox.ok(&format!("info {data} --verify"));
        assert_eq!(sandbox.read(&checksums), good);
    }
}
