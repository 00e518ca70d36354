//! `graphmill report`.

use crate::{FAILED, USAGE, furnished, refused};

#[test]
fn wrong_usage_and_wrong_paths() {
    let room = furnished();
    room.write("file", "text");
    refused(&room, "report", USAGE, &["<RUN>"], "");
    refused(&room, "report nowhere", FAILED, &["nowhere", "no run here"], "");
    refused(&room, "report file", FAILED, &["file", "no run here"], "");
}

#[test]
fn a_damaged_summary_names_the_line() {
    let room = furnished();
    let summary = room.read("run/summary.json");
    room.write("run/summary.json", &summary[..summary.len() / 2]);
    refused(&room, "report run", FAILED, &["run/summary.json: line", "--resume"], "");
}
