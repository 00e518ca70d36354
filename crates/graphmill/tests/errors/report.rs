//! `graphmill report`.

use crate::{FAILED, USAGE, furnished, refused};

#[test]
fn wrong_usage_and_wrong_paths() {
    let sandbox = furnished();
    sandbox.write("file", "text");
    refused(&sandbox, "report", USAGE, &["<RUN>"], "");
    refused(&sandbox, "report nowhere", FAILED, &["nowhere", "no run here"], "");
    refused(&sandbox, "report file", FAILED, &["file", "no run here"], "");
}

#[test]
fn a_damaged_summary_names_the_line() {
    let sandbox = furnished();
    let summary = sandbox.read("run/summary.json");
    sandbox.write("run/summary.json", &summary[..summary.len() / 2]);
    refused(&sandbox, "report run", FAILED, &["run/summary.json: line", "--resume"], "");
}
