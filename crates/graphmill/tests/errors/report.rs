//! `graphmill report`.

use super::{FAILED, USAGE, refused, sandbox_with_run};

#[test]
fn wrong_usage_and_wrong_paths_are_refused() {
    let sandbox = sandbox_with_run();
    sandbox.write("file", "text");
    refused(&sandbox, "report", USAGE, &["<RUN>"], "");
    refused(&sandbox, "report nowhere", FAILED, &["nowhere", "no run here"], "");
    refused(&sandbox, "report file", FAILED, &["file", "no run here"], "");
}

#[test]
fn errors_of_a_damaged_summary_name_the_line() {
    let sandbox = sandbox_with_run();
    let summary = sandbox.read("run/summary.json");
    sandbox.write("run/summary.json", &summary[..summary.len() / 2]);
    refused(&sandbox, "report run", FAILED, &["run/summary.json: line", "--resume"], "");
}
