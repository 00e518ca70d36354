//! Imports that are killed, run out of disk space or cannot write to their target: nothing is half
//! written, and the next import resumes or starts clean.

use std::{
    fmt::Write as _,
    fs,
    process::Stdio,
    sync::OnceLock,
    time::{Duration, Instant},
};

use graphmill_core::keyed::Stream;
use serde_json::Value;

use crate::common::Sandbox;

/// Edges of three writes to disk: 64 MiB, the smallest memory budget, holds 700,000 in both
/// directions, and the others are written 2^20 at a time.
const EDGES: usize = 2_000_000;

const COMMAND: &str = "import edges edges.txt data --memory 1M --undirected";

/// Writes a random edge list of [`EDGES`] edges.
fn edges(sandbox: &Sandbox) {
    // made once in a process
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = TEXT.get_or_init(|| {
        let mut stream = Stream::new(11);
        let mut text = String::with_capacity(14 * EDGES);
        for _ in 0..EDGES {
            writeln!(text, "{}\t{}", stream.below(200_000), stream.below(200_000)).unwrap();
        }
        text
    });
    sandbox.write("edges.txt", text);
}

/// Names in the sandbox, except the source and the expected dataset.
fn names(sandbox: &Sandbox) -> Vec<String> {
    let entries = fs::read_dir(sandbox.path("")).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != "edges.txt" && name != "expected");
    names.sort_unstable();
    names
}

/// Runs the import and kills it as soon as `when` returns true.
fn kill(sandbox: &Sandbox, command: &str, when: impl Fn() -> bool) {
    let mut child = sandbox.command(command).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    while !when() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_micros(100));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_killed_import_resumes_to_the_same_bytes() {
    let sandbox = Sandbox::new();
    edges(&sandbox);
    sandbox.ok("import edges edges.txt expected --undirected --name edges");
    let began = Instant::now();
    sandbox.ok(COMMAND);
    let whole = began.elapsed();
    fs::remove_dir_all(sandbox.path("data")).unwrap();
    for sixth in 1..6 {
        let began = Instant::now();
        kill(&sandbox, COMMAND, || began.elapsed() > whole * sixth / 6);
        let there = names(&sandbox);
        let both = there == ["data", "data.importing"];
        assert!(both || there.is_empty() || there == ["data.importing"] || there == ["data"], "{there:?}");
        if sandbox.path("data").exists() {
            // finished before it was killed, except perhaps for removing the scratch directory
            assert_same(&sandbox, "data", "expected");
            break;
        }
    }
    if !sandbox.path("data").exists() {
        sandbox.ok(COMMAND);
    } else if sandbox.path("data.importing").exists() {
        sandbox.ok(&format!("{COMMAND} --force"));
    }
    assert_eq!(names(&sandbox), ["data"]);
    assert_same(&sandbox, "data", "expected");
}

#[test]
fn an_import_killed_while_writing_the_dataset_resumes() {
    let sandbox = Sandbox::new();
    edges(&sandbox);
    sandbox.ok("import edges edges.txt expected --undirected --name edges");
    for finished in ["", "/indices.npy", "/graphmill.json"] {
        let begun = sandbox.path(format!("data.importing/scratch-finished{finished}"));
        kill(&sandbox, COMMAND, || begun.exists());
        let there = names(&sandbox);
        assert!(there == ["data.importing"] || there == ["data"] || there.len() == 2, "{there:?}");
        if !sandbox.path("data").exists() {
            let stderr = sandbox.run(COMMAND).succeeded().stderr;
            assert!(stderr.contains("resuming"), "{stderr}");
        } else if sandbox.path("data.importing").exists() {
            // finished before it was killed, except for removing the scratch directory
            sandbox.ok(&format!("{COMMAND} --force"));
        }
        assert_eq!(names(&sandbox), ["data"]);
        assert_same(&sandbox, "data", "expected");
        fs::remove_dir_all(sandbox.path("data")).unwrap();
    }
    // a dataset to be replaced exists at every moment, either the old one or the new one
    sandbox.ok("import edges edges.txt data --no-self-loops");
    for part in ["finished", "replaced.json", "replaced"] {
        let part = sandbox.path(format!("data.importing/scratch-{part}"));
        kill(&sandbox, &format!("{COMMAND} --force"), || part.exists());
        let moved = !sandbox.path("data").exists();
        assert!(!moved || sandbox.path("data.importing/scratch-replaced/graphmill.json").exists());
        let again = sandbox.run(&format!("{COMMAND} --force")).succeeded();
        assert_eq!(names(&sandbox), ["data"], "{}", again.stderr);
    }
    assert_same(&sandbox, "data", "expected");
}

/// Weights of duplicate edges are summed, even if a killed import read some of them.
#[test]
fn a_killed_import_of_weights_resumes_to_the_same_bytes() {
    let sandbox = Sandbox::new();
    let mut stream = Stream::new(12);
    let lines: String = (0..700_000)
        .map(|_| format!("{}\t{}\t{}\n", stream.below(2000), stream.below(2000), stream.uniform() as f32))
        .collect();
    sandbox.write("edges.txt", lines);
    let options = "--undirected --weights 3 --name edges";
    let expected = sandbox.ok_json(&format!("import edges edges.txt expected {options}"));
    let command = format!("import edges edges.txt data --memory 1M {options}");
    let mut stopped = 0;
    assert_eq!(expected["report"]["source_edges"], 700_000);
    for stage in ["edges.bin", "edge-weight.npy", "finished", "finished/edge_weight.npy"] {
        let begun = sandbox.path(format!("data.importing/scratch-{stage}"));
        kill(&sandbox, &command, || begun.exists());
        if !sandbox.path("data").exists() {
            stopped += 1;
            let resumed = sandbox.run(&command).succeeded();
            assert!(resumed.stderr.contains("resuming"), "{stage}: {}", resumed.stderr);
            assert_eq!(report_lines(&resumed.stdout), lines_of(&expected["report"]), "{stage}");
        } else if sandbox.path("data.importing").exists() {
            sandbox.ok(&format!("{command} --force"));
        }
        assert_eq!(names(&sandbox), ["data"], "{stage}");
        assert!(sandbox.path("data/edge_weight.npy").exists());
        assert_same(&sandbox, "data", "expected");
        fs::remove_dir_all(sandbox.path("data")).unwrap();
    }
    assert!(stopped > 0, "every import finished before it was killed");
}

/// The lines of the report: all but the first, which describes the dataset.
fn report_lines(stdout: &str) -> Vec<&str> {
    stdout.lines().skip(1).collect()
}

/// Lines that the command prints for a report with summed weights.
fn lines_of(report: &Value) -> Vec<String> {
    vec![
        format!("edges of the source: {}", report["source_edges"]),
        format!("reverse edges added: {}", report["reverse_edges_added"]),
        format!("self-loops kept: {} (no-self-loops removes them)", report["self_loops_kept"]),
        format!(
            "duplicate edges summed: {} (keep-duplicates keeps them, each with its weight)",
            report["duplicate_edges_summed"]
        ),
        format!("nodes without a label: {}", report["missing_labels"]),
    ]
}

/// Reports do not depend on the memory budget, on threads, or on kills and resumes.
#[test]
fn reports_do_not_depend_on_memory_threads_or_kills() {
    let sandbox = Sandbox::new();
    edges(&sandbox);
    let import = |to: &str, options: &str| {
        let command = format!("import edges edges.txt {to} --undirected --no-self-loops {options}");
        sandbox.ok_json(&command)["report"].clone()
    };
    let expected = import("one", "--threads 1");
    let count = |name: &str| expected[name].as_u64().unwrap();
    assert_eq!((count("source_edges"), count("missing_labels")), (EDGES as u64, 200_000));
    let removed = count("self_loops_removed");
    assert!(removed > 0 && count("duplicate_edges_merged") > 0, "{expected}");
    assert_eq!(count("reverse_edges_added"), EDGES as u64 - removed);
    let edges = sandbox.ok_json("info one")["edges"].as_u64().unwrap();
    let all = count("source_edges") + count("reverse_edges_added") - removed;
    assert_eq!(all - count("duplicate_edges_merged"), edges);
    assert_eq!(import("three", "--threads 3"), expected);
    assert_eq!(import("disk", "--memory 1M --threads 2"), expected);
    let command = "import edges edges.txt killed --undirected --no-self-loops --memory 1M";
    let begun = sandbox.path("killed.importing/scratch-finished");
    kill(&sandbox, command, || begun.exists());
    if !sandbox.path("killed").exists() {
        assert_eq!(import("killed", "--memory 1M"), expected);
    }
}

#[test]
fn merged_and_ignored_rows_are_printed() {
    let sandbox = Sandbox::new();
    sandbox.write("e/edges.csv", "from,to,amount\n0,1,5\n0,1,5\n\n1,2,3\n2,2,1\n3,3,1\n");
    sandbox.write("e/labels.csv", "label\n0\n\n1\n0\n");
    let stdout = sandbox.ok("import edges e data --largest-component");
    assert_eq!(
        report_lines(&stdout),
        [
            "edges of the source: 5",
            "self-loops kept: 2 (no-self-loops removes them)",
            "duplicate edges merged: 1 (keep-duplicates keeps them)",
            "nodes dropped: 1",
            "edges dropped: 1",
            "nodes without a label: 1",
            "columns not read: edges.amount",
        ]
    );
    let report = &sandbox.ok_json("import edges e again --weights amount")["report"];
    assert_eq!(report["duplicate_edges_summed"], 1);
    assert_eq!(report["ignored_columns"], serde_json::json!([]));
    sandbox.write("clean.txt", "0 1\n");
    sandbox.write("clean.csv", "0\n1\n");
    let stdout = sandbox.ok("import edges clean.txt clean --labels clean.csv");
    assert_eq!(stdout.lines().count(), 1, "{stdout}");
    // a training node without a label is refused
    sandbox.write("train.txt", "0\n1\n");
    let refused = sandbox.run("import edges e third --train train.txt");
    assert!(refused.stderr.contains("node 1 is in 'train' but has no label; label it"), "{}", refused.stderr);
}

/// Asserts that two datasets have the same files with the same bytes.
fn assert_same(sandbox: &Sandbox, data: &str, expected: &str) {
    let list = |dir: &str| {
        let entries = fs::read_dir(sandbox.path(dir)).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name != "verified.json");
        names.sort_unstable();
        names
    };
    assert_eq!(list(data), list(expected));
    for name in list(expected) {
        assert!(
            sandbox.read(format!("{data}/{name}")) == sandbox.read(format!("{expected}/{name}")),
            "{name}"
        );
    }
}

#[test]
fn an_import_with_other_options_starts_clean() {
    let sandbox = Sandbox::new();
    edges(&sandbox);
    let mut child = sandbox.command(COMMAND).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !sandbox.path("data.importing/scratch-edges.bin").exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    // a second process cannot work in the same directory
    let second = sandbox.run(COMMAND);
    assert!(
        second.status == Some(0) || second.stderr.contains("another process is working"),
        "{}",
        second.stderr
    );
    child.kill().unwrap();
    child.wait().unwrap();
    sandbox.ok("import edges edges.txt other --no-self-loops");
    let directed = sandbox.run("import edges edges.txt data --no-self-loops --force").succeeded();
    assert!(!directed.stderr.contains("resuming"), "other options must not resume: {}", directed.stderr);
    assert!(sandbox.read("data/indices.npy") == sandbox.read("other/indices.npy"));
    assert_eq!(names(&sandbox), ["data", "other"]);
}

/// A limit on the size of files stands in for a full disk.
#[cfg(unix)]
#[test]
fn a_full_disk_is_reported_and_leaves_no_files() {
    let sandbox = Sandbox::new();
    edges(&sandbox);
    let program = env!("CARGO_BIN_EXE_graphmill");
    // blocks of 512 or 1024 bytes: the spill fails, or the labels of the finished dataset do
    for limit in [4_000, 24_000] {
        let script = format!("trap '' XFSZ; ulimit -f {limit}; exec {program} {COMMAND}");
        let output = std::process::Command::new("sh")
            .args(["-c", &script])
            .current_dir(sandbox.path(""))
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("error: data") && stderr.contains("cannot write"), "{stderr}");
        assert!(names(&sandbox).is_empty(), "{stderr}");
    }
    sandbox.ok(COMMAND);
}

#[test]
fn unwritable_targets_are_reported_before_reading() {
    let sandbox = Sandbox::new();
    sandbox.write("edges.txt", "0 1\n");
    sandbox.write("file", "");
    let outcome = sandbox.run("import edges edges.txt file/data");
    assert_eq!(outcome.status, Some(1));
    assert!(outcome.stderr.contains("file/data"), "{}", outcome.stderr);
    sandbox.write("data.importing/mine.txt", "");
    let outcome = sandbox.run("import edges edges.txt data");
    assert!(outcome.stderr.contains("'mine.txt', which no import wrote"), "{}", outcome.stderr);
    let outcome = sandbox.run("import edges edges.txt data2 --memory lots");
    assert_eq!(outcome.status, Some(2));
    assert!(outcome.stderr.contains("--memory: 'lots' is not a size"), "{}", outcome.stderr);
    assert!(!sandbox.path("data2").exists() && !sandbox.path("data2.importing").exists());
}

/// Targets that not even the superuser can write to.
#[cfg(target_os = "linux")]
#[test]
fn read_only_targets_are_reported_before_reading() {
    let sandbox = Sandbox::new();
    sandbox.write("edges.txt", "0 1\n");
    let outcome = sandbox.run("import edges edges.txt /proc/data");
    assert_eq!(outcome.status, Some(1));
    assert!(
        outcome.stderr.contains("/proc/data.importing: cannot create the directory"),
        "{}",
        outcome.stderr
    );
    assert_eq!(names(&sandbox), Vec::<String>::new());
    // a read-only mount, if this machine allows tests to mount
    fs::create_dir(sandbox.path("mount")).unwrap();
    let mount = "mount --bind mount mount && mount -o remount,bind,ro mount && ! touch mount/probe";
    let program = env!("CARGO_BIN_EXE_graphmill");
    for (import, directory) in [
        ("import edges edges.txt mount/data", "mount/data.importing"),
        ("generate sbm mount/data", "mount/data.generating"),
    ] {
        let script = format!("({mount}) 2> mount.txt || exit 77; exec {program} {import}");
        let output = std::process::Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
            .current_dir(sandbox.path(""))
            .output();
        let Ok(output) = output else { return };
        let text = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(77) => return,
            _ if text.starts_with("unshare:") => return,
            code => assert_eq!(code, Some(1), "{text}"),
        }
        assert!(text.contains(directory) && text.contains("Read-only file system"), "{text}");
        assert_eq!(fs::read_dir(sandbox.path("mount")).unwrap().count(), 0);
    }
}

#[test]
fn imports_larger_than_the_disk_are_refused_before_reading() {
    let sandbox = Sandbox::new();
    // an array of 2^46 edges in a sparse file
    let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (70368744177664, 2), }";
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((118u16).to_le_bytes());
    bytes.extend(format!("{header:<117}\n").as_bytes());
    sandbox.write("edges.npy", &bytes);
    let file = fs::File::options().write(true).open(sandbox.path("edges.npy")).unwrap();
    if file.set_len(bytes.len() as u64 + (1 << 47)).is_err() {
        return; // the file system does not support files of that size
    }
    let outcome = sandbox.run("import edges edges.npy data --num-nodes 200");
    assert_eq!(outcome.status, Some(1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("are free") && outcome.stderr.contains("disk"), "{}", outcome.stderr);
    assert!(!sandbox.path("data").exists() && !sandbox.path("data.importing").exists());
}

#[test]
fn an_import_killed_in_its_first_milliseconds_resumes() {
    let sandbox = Sandbox::new();
    sandbox.write("edges.txt", (0..2000).map(|v| format!("{v}\t{}\n", v * 7 % 2000)).collect::<String>());
    let command = "import edges edges.txt data --undirected --name edges";
    sandbox.ok(&command.replace(" data ", " expected "));
    for twentieth in 0..20 {
        let began = Instant::now();
        kill(&sandbox, command, || began.elapsed() > Duration::from_millis(twentieth));
        let force = if sandbox.path("data").exists() { " --force" } else { "" };
        sandbox.ok(&format!("{command}{force}"));
        assert_eq!(names(&sandbox), ["data"], "killed after {twentieth} ms");
        assert_same(&sandbox, "data", "expected");
        fs::remove_dir_all(sandbox.path("data")).unwrap();
    }
}

#[test]
fn one_of_several_simultaneous_imports_works_and_the_others_are_refused() {
    let sandbox = Sandbox::new();
    sandbox.write("edges.txt", (0..2000).map(|v| format!("{v}\t{}\n", v * 7 % 2000)).collect::<String>());
    for _ in 0..5 {
        let start = |_| {
            let mut command = sandbox.command("import edges edges.txt data");
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let processes: Vec<_> = (0..4).map(start).collect();
        let mut done = 0;
        for process in processes {
            let outcome = process.wait_with_output().unwrap();
            let stderr = String::from_utf8(outcome.stderr).unwrap();
            let late = stderr.contains("data: directory: ") && stderr.contains("--force");
            match outcome.status.code() {
                Some(0) => done += 1,
                Some(1) if stderr.contains("another process is working here") || late => {}
                status => panic!("{status:?}: {stderr}"),
            }
        }
        assert_eq!((done, names(&sandbox)), (1, vec!["data".to_string()]));
        fs::remove_dir_all(sandbox.path("data")).unwrap();
    }
}

/// Without the statistics, `predict` would normalize an export that is imported again twice.
#[test]
fn normalized_datasets_survive_export_and_import() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    sandbox.ok("export data npz raw.npz");
    sandbox.ok("import npz raw.npz own --normalize standard");
    sandbox.ok("train own --hidden 8 --epochs 1 --out run");
    sandbox.ok("predict run --probabilities --out own.npy");
    for (format, file) in [("npz", "again.npz"), ("edges", "again.dir")] {
        let left_out = sandbox.ok_json(&format!("export own {format} {file}"))["left_out"].to_string();
        assert!(left_out.contains("exported as they are stored, standardized"), "{left_out}");
        sandbox.ok(&format!("import {format} {file} {format}"));
        let outcome =
            sandbox.run(&format!("predict run --dataset {format} --probabilities --out {format}.npy"));
        let outcome = outcome.succeeded();
        assert!(!outcome.stderr.contains("features of"), "{}", outcome.stderr);
        assert_eq!(sandbox.floats(&format!("{format}.npy")), sandbox.floats("own.npy"), "{format}");
    }
}
