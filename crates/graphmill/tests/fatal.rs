//! Ends that the system forces on a process: each gives one error line and exit status 1, and what
//! a run has saved stays.

use std::{
    fs::{self, File},
    process::{Command, Output, Stdio},
    thread,
    time::Duration,
};

use crate::common::Sandbox;

/// Runs `script` by a shell in the sandbox; `$G` is the program.
fn shell(sandbox: &Sandbox, script: &str) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(sandbox.path("")).stdin(Stdio::null());
    command.env("G", env!("CARGO_BIN_EXE_graphmill"));
    command.env("RUST_BACKTRACE", "0").env("GRAPHMILL_PROGRESS", "none").output().expect("sh")
}

#[test]
fn a_mapped_file_that_shrinks_is_named_and_the_run_resumes() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    let labels = sandbox.read("data/labels.npy");
    let options = "train data --hidden 16 --fanout 5,5 --checkpoint-batches 1 --out run --json";
    let mut command = sandbox.command(&format!("{options} --epochs 1000000"));
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    while !sandbox.path("run/checkpoint").exists() {
        thread::sleep(Duration::from_millis(5));
    }
    File::options().write(true).open(sandbox.path("data/labels.npy")).unwrap().set_len(0).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("error: ") && stderr.contains("data/labels.npy: byte "), "{stderr}");
    assert!(stderr.contains("became shorter or its disk cannot be read; restore the file"), "{stderr}");
    fs::write(sandbox.path("data/labels.npy"), labels).unwrap();
    let metrics = fs::read_to_string(sandbox.path("run/metrics.jsonl")).unwrap_or_default();
    let epochs = metrics.lines().count() + 1;
    sandbox.ok(&format!("train --resume --out run --epochs {epochs}"));
}

/// Linux only: reads a hole of a file through a map while its file system is full, so that the
/// system finds no page for it.
#[cfg(target_os = "linux")]
#[test]
fn a_page_that_cannot_be_read_is_named() {
    let sandbox = Sandbox::new();
    sandbox.ok("generate sbm data --nodes 20000 --feature-dim 2 --classes 4");
    let script = "mount -t tmpfs -o size=8m tmpfs full || exit 123
        cp -r data full/data
        size=$(wc -c < data/labels.npy)
        head -c 8192 data/labels.npy > full/data/labels.npy
        truncate -s $size full/data/labels.npy
        cat /dev/zero > full/rest 2>/dev/null
        $G info full/data > /dev/null && $G train full/data --epochs 1 --hidden 8 --fanout 3,3 --out run
        status=$?
        rm full/rest && cp data/labels.npy full/data/labels.npy
        $G train full/data --epochs 1 --hidden 8 --fanout 3,3 --out again || exit 124
        exit $status";
    fs::create_dir(sandbox.path("full")).unwrap();
    // a container may permit neither a namespace nor a mount in it
    let may = |spaces: &&&str| {
        shell(&sandbox, &format!("exec unshare {spaces} mount -t tmpfs tmpfs full")).status.success()
    };
    let Some(spaces) = ["--mount", "--mount --map-root-user"].iter().find(may) else { return };
    let output = shell(&sandbox, &format!("exec unshare {spaces} sh -c '{script}'"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("error: ") && stderr.contains("full/data/labels.npy: byte 8192: "), "{stderr}");
    assert!(stderr.contains("its disk cannot be read; restore the file and run the command"), "{stderr}");
}

#[cfg(debug_assertions)]
#[test]
fn a_refused_allocation_is_an_error_that_names_memory() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    for number in [1, 3, 9] {
        let script = format!("GRAPHMILL_REFUSE_ALLOCATION={number} exec $G export data npz new.npz");
        let output = shell(&sandbox, &script);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{number}: {stderr}");
        assert!(stderr.contains("is refused by GRAPHMILL_REFUSE_ALLOCATION\n"), "{number}: {stderr}");
        assert!(stderr.lines().last().unwrap().contains("memory"), "{number}: {stderr}");
        assert!(!sandbox.path("new.npz").exists());
    }
    // more requests than there are
    let output = shell(&sandbox, "GRAPHMILL_REFUSE_ALLOCATION=1000000 exec $G export data npz new.npz");
    assert!(output.status.success() && sandbox.path("new.npz").exists(), "{output:?}");
}

#[test]
fn refused_memory_is_an_error_and_not_an_abort() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    let mut ends = [0, 0];
    // limits from less than the run's matrices to more than enough
    for limit in [150_000, 260_000, 1_000_000] {
        let run = format!("run-{limit}");
        let output = shell(
            &sandbox,
            &format!(
                "ulimit -v {limit}; exec $G train data --epochs 1 --hidden 1500 --threads 1 --out {run}"
            ),
        );
        let stderr = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => ends[0] += 1,
            Some(1) => {
                ends[1] += 1;
                assert!(stderr.contains("error: "), "{limit}: {stderr}");
            }
            // refused before any is asked for
            Some(2) if stderr.contains("training needs at least") => ends[1] += 1,
            other => panic!("{limit}: {other:?} {stderr}"),
        }
    }
    assert!(ends[0] > 0 && ends[1] > 0, "{ends:?}");
}

#[test]
fn a_full_standard_error_does_not_stop_the_work() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    let output = shell(&sandbox, "exec $G export data npz x.npz 2>/dev/full");
    assert!(output.status.success(), "{output:?}");
    assert!(sandbox.path("x.npz").is_file());
}

#[test]
fn files_beyond_the_limit_of_the_process_are_an_error() {
    let sandbox = Sandbox::new();
    let output = shell(&sandbox, "ulimit -f 64; exec $G generate sbm data --nodes 20000");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("File too large"), "{stderr}");
    assert!(!sandbox.path("data").exists());
}

#[test]
fn a_module_that_cannot_be_written_leaves_no_directory() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    sandbox.ok("train data --epochs 1 --hidden 8 --fanout 3,3 --out run");
    let output = shell(&sandbox, "ulimit -f 0; exec $G export-model run module --to pyg");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("File too large"), "{stderr}");
    assert!(!sandbox.path("module").exists());
    sandbox.ok("export-model run module --to pyg");
    assert_eq!(fs::read_dir(sandbox.path("module")).unwrap().count(), 3);
    // other files of the directory stay
    sandbox.write("module/notes.txt", "mine");
    sandbox.ok("export-model run module --to pyg --force");
    assert_eq!(sandbox.read("module/notes.txt"), b"mine");
}

#[test]
fn an_update_that_leaves_no_finite_parameters_fails_and_saves_nothing() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    let outcome = sandbox.run("train data --epochs 1 --batch-size 0 --hidden 16 --lr 1e38 --out run");
    assert_eq!(outcome.status, Some(1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("training diverged: parameter 'conv."), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("nothing of it is saved; lower --lr"), "{}", outcome.stderr);
    assert!(!sandbox.path("run/best.safetensors").exists() && !sandbox.path("run/checkpoint").exists());
}
