//! The runner as a command, on a tiny graph.

use std::{
    fs,
    process::{Command, Output},
};

use serde_json::Value;

/// Runs the runner. Only the kernels, which are of this package, take part.
fn bench(words: &[&str]) -> Output {
    let kernels = env!("CARGO_BIN_EXE_graphmill-kernels");
    let mut command = Command::new(env!("CARGO_BIN_EXE_graphmill-benchmarks"));
    command.args(words).args(["--binary", kernels]).output().expect("the runner starts")
}

#[test]
fn quick_runs_write_records_and_tables() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("gather.json");
    let output = bench(&[
        "gather",
        "--quick",
        "--rounds",
        "2",
        "--sides",
        "graphmill",
        "--out",
        out.to_str().unwrap(),
    ]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("| fresh | 2 | graphmill |"), "{table}");
    assert!(errors.contains("gather 2/2: kernels gather"), "both rounds ran: {errors}");

    let record: Value = serde_json::from_str(&fs::read_to_string(&out).unwrap()).unwrap();
    assert_eq!(record["rounds"], 2);
    assert_eq!(record["variant"], "quick");
    for field in ["commit", "date", "command"] {
        assert!(record[field].as_str().is_some_and(|text| !text.is_empty()), "{field}");
    }
    assert!(record["machine"]["cores"].as_u64() > Some(0));
    let points = record["points"].as_array().unwrap();
    assert_eq!(points.len(), 2, "a fresh and a reused result");
    for point in points {
        let rounds = point["sides"][0]["values"]["million rows/s"].as_array().unwrap();
        assert!(rounds.len() == 2 && rounds.iter().all(|round| round[0].as_f64() > Some(0.0)));
    }
}

#[test]
fn samplers_with_times_have_speeds_and_the_share_of_the_speed_without() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("times.json");
    let words = ["sampling-times", "--quick", "--sides", "graphmill", "--out", out.to_str().unwrap()];
    let output = bench(&words);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let record: Value = serde_json::from_str(&fs::read_to_string(&out).unwrap()).unwrap();
    let points = record["points"].as_array().unwrap();
    assert_eq!(points.len(), 6, "three draws, of seeds of one time and of a time each");
    for point in points {
        let values = &point["sides"][0]["values"];
        let value = |name: &str| values[name][0][0].as_f64().unwrap();
        assert!(value("with times, seeds") > 0.0);
        let share = value("with times") / value("without times");
        assert!((value("share") - share).abs() < 1e-9 * share, "{values}");
    }
}

#[test]
fn unknown_names_are_refused_with_a_hint() {
    for words in [&["gathr", "--quick"][..], &["gather", "--quick", "--only", "threads=7"]] {
        let output = bench(words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.starts_with("error: gath"), "{errors}");
    }
}

#[cfg(unix)]
#[test]
fn a_closed_pipe_ends_the_list_without_a_message() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_graphmill-benchmarks"));
    let output = command.arg("list").stdout(writer).output().unwrap();
    assert!(!output.status.success() && output.stderr.is_empty(), "{output:?}");
}
