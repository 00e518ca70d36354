//! `graphmill predict`.

use graphmill_data::npy;

use super::{FAILED, USAGE, refused, sandbox_with_run};

#[test]
fn wrong_arguments_are_wrong_usage() {
    let sandbox = sandbox_with_run();
    refused(&sandbox, "predict run", USAGE, &["--out"], "");
    let args = "predict run --out new.npy --embeddings --probabilities";
    refused(&sandbox, args, USAGE, &["--probabilities"], "new.npy");
    refused(&sandbox, "predict run --out new.npy --threads -1", USAGE, &["--threads"], "new.npy");
    for out in ["new", "new.txt", "new.npy.gz", "new.yaml"] {
        let says = [
            &format!("--out {out}: unknown file ending")[..],
            ".npy",
            ".csv",
            ".json",
            ".parquet",
            "- for CSV",
        ];
        // before anything else: there is no such run
        refused(&sandbox, &format!("predict nowhere --out {out}"), USAGE, &says, out);
    }
    let outcome = sandbox.run("predict run --out - --json");
    assert_eq!(outcome.status, Some(2), "{}", outcome.stderr);
    assert!(outcome.json()["error"].as_str().unwrap().contains("name a file"), "{}", outcome.stdout);
    let unknown = ["'nowhere' is neither a file nor an id below", "0,7"];
    refused(&sandbox, "predict run --out new.npy --nodes nowhere", USAGE, &unknown, "new.npy");
    refused(&sandbox, "predict run --out new.npy --threads x", USAGE, &["--threads"], "new.npy");
}

#[test]
fn wrong_paths_are_refused() {
    let sandbox = sandbox_with_run();
    std::fs::create_dir(sandbox.path("data.npy")).unwrap();
    for (args, says) in [
        ("nowhere --out new.npy", vec!["nowhere", "not a run directory"]),
        ("run --out new/deeper.npy", vec!["new/deeper.npy"]),
        ("run --out data.npy", vec!["data.npy"]),
        ("run --out new.npy --nodes nowhere.txt", vec!["nowhere.txt: cannot read"]),
        ("run --out new.npy --dataset nowhere", vec!["nowhere"]),
    ] {
        refused(&sandbox, &format!("predict {args}"), FAILED, &says, "new.npy");
    }
    sandbox.ok("info data");
}

#[cfg(unix)]
#[test]
fn missing_permissions_leave_everything_unchanged() {
    let Some(sandbox) = super::sandbox_with_locked_dir() else { return };
    let args = "predict run --out locked/new.npy";
    refused(&sandbox, args, FAILED, &["locked/new.npy: cannot write"], "locked/new.npy");
    super::set_mode(&sandbox, "locked", 0o755);
}

#[test]
fn errors_of_a_list_of_nodes_name_the_line() {
    let sandbox = sandbox_with_run();
    npy::write(sandbox.path("out.npy"), &[0i64, 3000], &[2]).unwrap();
    npy::write(sandbox.path("negative.npy"), &[0i64, -1], &[2]).unwrap();
    npy::write(sandbox.path("real.npy"), &[0.5f32], &[1]).unwrap();
    sandbox.write("out.txt", "0\n1\n3000\n");
    sandbox.write("negative.txt", "# ids\n-1\n");
    sandbox.write("words.txt", "0\nzero\n");
    sandbox.write("cut.npy", &sandbox.read("out.npy")[..100]);
    for (file, says) in [
        ("out.npy", ["out.npy: entry 1", "node 3000", "3000 nodes"]),
        ("negative.npy", ["negative.npy: entry 1", "node -1", ""]),
        ("real.npy", ["real.npy", "0.5", ""]),
        ("out.txt", ["out.txt: line 3", "node 3000", "3000 nodes"]),
        ("negative.txt", ["negative.txt: line 2", "node -1", ""]),
        ("words.txt", ["words.txt: line 2", "'zero'", ""]),
        ("cut.npy", ["cut.npy", "", ""]),
        ("nowhere.npy", ["nowhere.npy: cannot open", "", ""]),
    ] {
        refused(&sandbox, &format!("predict run --nodes {file} --out new.npy"), FAILED, &says, "new.npy");
    }
}
