//! The program at a terminal: groups of commands, completions, manual pages, and the table of what
//! works on the machine.

use std::{fs, process::Command};

use crate::common::Sandbox;

#[test]
fn the_help_lists_commands_by_purpose() {
    let help = Sandbox::new().ok("-h");
    let at = |text: &str| help.find(text).unwrap_or_else(|| panic!("'{text}' not in {help}"));
    let order = ["Data commands:", "  import  ", "Training commands:", "  train  ", "  predict  "]
        .into_iter()
        .chain(["Inspection commands:", "  doctor  ", "Planning commands:", "  plan  ", "Start with:"]);
    assert!(order.map(at).is_sorted(), "{help}");
}

#[test]
fn completions_know_commands_and_options() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = sandbox.ok(&format!("completions {shell}"));
        assert!(script.contains("export-model") && script.contains("cache-ratio"), "{shell}");
    }
    let refused = sandbox.run("completions csh");
    assert_eq!(refused.status, Some(2), "{}", refused.stderr);
    fs::write(sandbox.path("g"), sandbox.ok("completions bash")).unwrap();
    let script = "source ./g; COMP_WORDS=(graphmill expo); COMP_CWORD=1; \
                  _graphmill graphmill expo graphmill; echo ${COMPREPLY[@]}";
    let Ok(output) = Command::new("bash").args(["-c", script]).current_dir(sandbox.path("")).output() else {
        return; // without a bash
    };
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), "export export-model");
}

#[test]
fn every_command_has_a_manual_page() {
    let sandbox = Sandbox::new();
    let written = sandbox.ok("man pages");
    for name in [
        "graphmill",
        "graphmill-train",
        "graphmill-import",
        "graphmill-import-tables",
        "graphmill-datasets-download",
        "graphmill-doctor",
    ] {
        assert!(written.lines().any(|line| line == format!("pages/{name}.1")), "{written}");
        let page = String::from_utf8(sandbox.read(format!("pages/{name}.1"))).unwrap();
        assert!(page.contains(".TH ") && page.contains(".SH SYNOPSIS"), "{page}");
    }
    let page = String::from_utf8(sandbox.read("pages/graphmill-train.1")).unwrap();
    assert!(page.contains("fanout") && page.contains("Examples"), "{page}");
    // a page is replaced in one step, not written in place
    let old = sandbox.path("pages/graphmill.1");
    fs::write(&old, "old").unwrap();
    fs::hard_link(&old, sandbox.path("old")).unwrap();
    sandbox.ok("man pages");
    assert!(sandbox.read("old") == b"old" && sandbox.read("pages/graphmill.1") != b"old");
}

#[test]
fn the_version_has_the_lines_of_the_doctor() {
    let sandbox = Sandbox::new();
    let (version, doctor) = (sandbox.ok_json("version"), sandbox.ok_json("doctor"));
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    let [version, doctor] = [&version, &doctor].map(|of| of["findings"].as_array().unwrap());
    let parts: Vec<&str> = version.iter().filter_map(|of| of["part"].as_str()).collect();
    assert_eq!(parts, ["version", "processor"]);
    assert!(version.iter().all(|of| doctor.contains(of)), "{version:?} {doctor:?}");
    assert!(sandbox.ok("version").contains(&format!("graphmill {} for ", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn the_doctor_reports_each_part_with_a_remedy() {
    let sandbox = Sandbox::new();
    let document = sandbox.ok_json("doctor");
    let findings = document["findings"].as_array().unwrap();
    for part in ["version", "MPI", "processor", "memory", "disk", "reads from disk", "NVIDIA devices"] {
        let found = findings.iter().find(|of| of["part"] == part);
        let found = found.unwrap_or_else(|| panic!("{part} not in {document}"));
        assert!(found["state"] != "fault" && !found["found"].as_str().unwrap().is_empty(), "{found}");
    }
    let text = sandbox.ok("doctor");
    assert!(text.contains("processor") && text.contains("GRAPHMILL_PROGRESS=none"), "{text}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_fault_of_the_machine_is_the_exit_status() {
    let sandbox = Sandbox::new();
    let gone = sandbox.path("gone");
    fs::create_dir(&gone).unwrap();
    // the working directory is removed after the program's shell has entered it
    let script =
        format!("rmdir {0}; exec {1} doctor --json", gone.display(), env!("CARGO_BIN_EXE_graphmill"));
    let output = Command::new("sh").args(["-c", &script]).current_dir(&gone).output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{document}");
    let findings = document["findings"].as_array().unwrap();
    let disk = findings.iter().find(|of| of["part"] == "disk").unwrap();
    assert!(disk["state"] == "fault" && disk["remedy"].is_string(), "{disk}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("error: runs will fail: disk"));
}
