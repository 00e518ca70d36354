//! Bad input to every command: one error that names the file and the position, exit status 1 (2
//! for wrong usage), nothing half-written, no panic; with `--json` one document and nothing else. A
//! file per command; damaged datasets are in `info`, damaged runs in `eval`.

mod damage;
mod datasets;
mod eval;
mod export;
mod files;
mod generate;
mod import;
mod info;
mod partition;
mod plan;
mod predict;
mod reorder;
mod report;
mod train;

use crate::common::{self, Outcome, Sandbox};

const FAILED: i32 = 1;
const USAGE: i32 = 2;

/// Runs the program with and without `--json`, and asserts the exit `status`, that the error
/// contains all of `says`, and that it is the only output. `absent` must not exist afterwards.
fn refused(sandbox: &Sandbox, args: &str, status: i32, says: &[&str], absent: &str) {
    let check = |outcome: &Outcome, text: &str| {
        assert_eq!(outcome.status, Some(status), "graphmill {args}\n{}{}", outcome.stdout, outcome.stderr);
        for word in says {
            assert!(text.contains(word), "graphmill {args}\n'{word}' is not in: {text}");
        }
        for no in ["panicked", "RUST_BACKTRACE", "\u{1b}"] {
            assert!(!outcome.stderr.contains(no), "graphmill {args}\n{}", outcome.stderr);
        }
        assert!(
            absent.is_empty() || !sandbox.path(absent).exists(),
            "graphmill {args}\nleft {absent} behind"
        );
    };
    let outcome = sandbox.run(args);
    assert_eq!(outcome.stdout, "", "graphmill {args}");
    assert!(outcome.stderr.starts_with("error: "), "graphmill {args}\n{}", outcome.stderr);
    let errors = outcome.stderr.lines().filter(|line| line.starts_with("error: ")).count();
    assert_eq!(errors, 1, "graphmill {args}\n{}", outcome.stderr);
    check(&outcome, &outcome.stderr);

    let outcome = sandbox.run(&format!("{args} --json"));
    let document = outcome.json();
    let fields = document.as_object().expect("an object");
    assert_eq!(fields.keys().collect::<Vec<_>>(), ["error"], "graphmill {args}");
    check(&outcome, document["error"].as_str().expect("a text"));
}

/// A sandbox with the dataset `data` and the finished run `run`.
fn sandbox_with_run() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    sandbox.ok("train data --hidden 8 --fanout 3,3 --epochs 1 --out run");
    sandbox
}

/// A sandbox with a read-only directory `locked`; `None` if this user ignores permissions.
#[cfg(unix)]
fn sandbox_with_locked_dir() -> Option<Sandbox> {
    let sandbox = sandbox_with_run();
    std::fs::create_dir(sandbox.path("locked")).unwrap();
    set_mode(&sandbox, "locked", 0o555);
    std::fs::write(sandbox.path("locked/probe"), "").is_err().then_some(sandbox)
}

/// Sets the permissions of a file.
#[cfg(unix)]
fn set_mode(sandbox: &Sandbox, name: &str, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(sandbox.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn an_unknown_command_is_wrong_usage() {
    refused(&Sandbox::new(), "nonsense", USAGE, &["unrecognized subcommand 'nonsense'"], "");
}
