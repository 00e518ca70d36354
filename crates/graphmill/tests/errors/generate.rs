//! `graphmill generate`.

use super::{FAILED, USAGE, common::Sandbox, refused, sandbox_with_run};

#[test]
fn unknown_names_list_the_known_ones() {
    refused(&Sandbox::new(), "generate nonsense new", USAGE, &["kronecker, sbm"], "new");
    refused(&Sandbox::new(), "generate sbm", USAGE, &["<DST>"], "new");
}

#[test]
fn impossible_numbers_are_wrong_usage() {
    let sandbox = Sandbox::new();
    for option in [
        "--nodes 0",
        "--nodes -1",
        "--nodes x",
        "--nodes 99999999999",
        "--classes 0",
        "--degree -1",
        "--degree nan",
        "--degree 1e9",
        "--edges -5",
        "--p-in 2",
        "--feature-dim -1",
        "--feature-dim 99999999999",
        "--signal nan",
        "--signal 1e4 --feature-type f16",
        "--feature-type f64",
        "--label-noise 2",
        "--split 1,1,1",
        "--split 0.5,0.5",
        "--split a,b,c",
        "--seed -1",
        "--degree-exponent 0",
    ] {
        refused(&sandbox, &format!("generate sbm new {option}"), USAGE, &[], "new");
    }
    for option in
        ["--scale 40", "--scale -1", "--initiator 1,2,3", "--initiator 0,0,0,0", "--initiator 1,x,0,1"]
    {
        refused(&sandbox, &format!("generate kronecker new {option}"), USAGE, &[], "new");
    }
    for (options, message) in [
        ("kronecker new --scale 4 --nodes 9", "--nodes: the generator kronecker does not read it"),
        ("sbm new --nodes 9 --ordered-ids", "--ordered-ids: the generator sbm does not read it"),
        ("typed new --communities 3", "leave it out, or use sbm"),
    ] {
        refused(&sandbox, &format!("generate {options}"), USAGE, &[message], "new");
    }
}

#[test]
fn wrong_paths_are_refused() {
    let sandbox = sandbox_with_run();
    sandbox.write("file", "text");
    let before = sandbox.results("run");
    for (args, says) in [
        ("data --nodes 100", vec!["data", "--force"]),
        ("run --nodes 100 --force", vec!["run", "nothing was written"]),
        ("file --nodes 100", vec!["file"]),
        ("file/new --nodes 100", vec!["file/new"]),
    ] {
        refused(&sandbox, &format!("generate sbm {args}"), FAILED, &says, "new");
    }
    before.assert_same(&sandbox.results("run"), "the run is unchanged");
    assert_eq!(sandbox.read("file"), b"text");
    sandbox.ok("info data");
}

#[cfg(unix)]
#[test]
fn missing_permissions_leave_everything_unchanged() {
    let Some(sandbox) = super::sandbox_with_locked_dir() else { return };
    refused(&sandbox, "generate sbm locked/new --nodes 100", FAILED, &["locked/new"], "locked/new");
    super::set_mode(&sandbox, "locked", 0o755);
}
