//! The newcomer's first day: a script in a new home, with nothing but the program.

use std::{path::Path, process::Command};

#[test]
fn a_newcomer_installs_trains_imports_resumes_serves_and_uninstalls() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/first-day");
    let output = Command::new("bash").arg(script).arg(env!("CARGO_BIN_EXE_graphmill")).output();
    let output = output.expect("there is a bash");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.ends_with("first-day: done\n"), "{text}\n{errors}");
}
