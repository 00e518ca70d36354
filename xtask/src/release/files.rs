//! Files that name the version, and the workflow of a release.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Files with the version of the workspace, and the words before and after it.
const VERSIONS: &[(&str, &str, &str)] = &[
    ("CITATION.cff", "\nversion: ", "\n"),
    ("packaging/conda/meta.yaml", "set version = \"", "\""),
    ("book/src/install.md", "graphmill ", "\n```"),
    ("book/src/install.md", "graphmill-", "-x86_64-unknown-linux-musl.tar.gz"),
];
/// Files with the minimal version of Rust.
const RUST_VERSIONS: &[(&str, &str, &str)] = &[
    ("packaging/Dockerfile", "FROM rust:", "-"),
    (".github/workflows/test.yml", "cargo +", ".0 check"),
    (".github/workflows/release.yml", "toolchain install ", ".0 "),
    ("README.md", "Rust ", " and a C compiler"),
    ("book/src/install.md", "It needs Rust ", " or later"),
];
/// Workflows of the repository.
const WORKFLOWS: &str = ".github/workflows";
/// Actions that workflows may use: those of GitHub itself.
const ACTIONS: &str = "actions/";
/// Words that begin a command of a workflow, whose next word is checked.
const OWN_COMMAND: &str = "cargo xtask ";

/// Faults of the files.
///
/// # Errors
/// A file cannot be read.
pub(super) fn faults(root: &Path, version: &str, rust_version: &str) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for (places, wanted) in [(VERSIONS, version), (RUST_VERSIONS, rust_version)] {
        for (path, before, after) in places {
            let text = fs::read_to_string(root.join(path)).with_context(|| (*path).to_string())?;
            if !text.contains(&format!("{before}{wanted}{after}")) {
                let shown = before.trim();
                faults.push(format!("{path}: '{shown}' is not followed by the version {wanted}"));
            }
        }
    }
    let short = version.rsplit_once('.').map_or(version, |(short, _)| short);
    let notes = format!("book/src/releases/{short}.md");
    if !root.join(&notes).is_file() {
        faults.push(format!("{notes}: there are no release notes of {version}"));
    }
    for entry in fs::read_dir(root.join(WORKFLOWS)).context(WORKFLOWS)? {
        let path = entry?.path();
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        faults.extend(faults_of_workflow(root, &text).into_iter().map(|fault| format!("{name}: {fault}")));
    }
    Ok(faults)
}

/// Commands and paths of a workflow that do not exist, and rights that it does not need.
fn faults_of_workflow(root: &Path, text: &str) -> Vec<String> {
    let mut faults = match serde_saphyr::from_str::<Value>(text) {
        Ok(workflow) => faults_of_rights(&workflow),
        Err(error) => vec![format!("not valid YAML: {error}")],
    };
    for (at, _) in text.match_indices(OWN_COMMAND) {
        let command = text[at + OWN_COMMAND.len()..].split_whitespace().next().unwrap_or_default();
        let is_known = crate::USAGE.iter().any(|usage| usage.split_whitespace().next() == Some(command));
        if !is_known {
            faults.push(format!("`cargo xtask {command}` does not exist"));
        }
    }
    let words = text.split(|c: char| c.is_whitespace() || "'\"".contains(c));
    for word in
        words.filter(|word| ["crates/", "scripts/", "packaging/"].iter().any(|dir| word.starts_with(dir)))
    {
        if !root.join(word).exists() {
            faults.push(format!("{word} does not exist"));
        }
    }
    faults
}

/// Rights of a workflow that are wider than those to read the repository: GitHub's token, the
/// credentials that a checkout leaves for later steps, and actions of other people.
fn faults_of_rights(workflow: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    if workflow["permissions"] != json!({ "contents": "read" }) {
        faults.push("it has no `permissions: contents: read` for all jobs".into());
    }
    let jobs = workflow["jobs"].as_object().into_iter().flat_map(|jobs| jobs.values());
    for step in jobs.filter_map(|job| job["steps"].as_array()).flatten() {
        let Some(action) = step["uses"].as_str() else { continue };
        if !action.starts_with(ACTIONS) {
            faults.push(format!("the action {action} is not one of GitHub's; install its program instead"));
        }
        if action.starts_with("actions/checkout@") && step["with"]["persist-credentials"] != json!(false) {
            faults.push("a checkout leaves its credentials: set `persist-credentials: false`".into());
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workflows_name_commands_and_files_that_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let good = "on: push\npermissions: { contents: read }\njobs:\n  a:\n    steps:\n      \
                    - run: cargo xtask test\n      - run: cat crates/core/Cargo.toml\n";
        assert_eq!(faults_of_workflow(root, good), [""; 0]);
        let bad = "a: [\n  - run: cargo xtask dance crates/none\n";
        assert_eq!(faults_of_workflow(root, bad).len(), 3);
    }

    #[test]
    fn workflows_have_the_right_to_read_and_no_foreign_actions() {
        let with = |step: Value, permissions: Value| {
            faults_of_rights(&json!({ "permissions": permissions, "jobs": { "a": { "steps": [step] } } }))
        };
        let read = || json!({ "contents": "read" });
        let checkout =
            |keep: bool| json!({ "uses": "actions/checkout@v4", "with": { "persist-credentials": keep } });
        assert_eq!(with(checkout(false), read()), [""; 0]);
        assert_eq!(with(json!({ "run": "true" }), read()), [""; 0]);
        assert!(with(checkout(true), read())[0].contains("persist-credentials: false"));
        assert!(with(json!({ "uses": "actions/checkout@v4" }), read())[0].contains("credentials"));
        assert!(with(json!({ "uses": "other/tool@v1" }), read())[0].contains("the action other/tool@v1"));
        assert!(with(checkout(false), json!("write-all"))[0].contains("contents: read"));
        assert_eq!(with(checkout(false), Value::Null).len(), 1);
    }
}
