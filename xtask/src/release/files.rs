//! Files that name the version, and the workflow of a release.

use std::{fs, path::Path};

use anyhow::{Context, Result};

/// Files with the version of the workspace, and the words before and after it.
const VERSIONS: &[(&str, &str, &str)] = &[
    ("CITATION.cff", "\nversion: ", "\n"),
    ("packaging/conda/meta.yaml", "set version = \"", "\""),
    ("book/src/install.md", "graphmill ", "\n```"),
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

/// Commands and paths of a workflow that do not exist.
fn faults_of_workflow(root: &Path, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if let Err(error) = serde_saphyr::from_str::<serde_json::Value>(text) {
        faults.push(format!("not valid YAML: {error}"));
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workflows_name_commands_and_files_that_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let good = "on: push\njobs:\n  a:\n    steps:\n      - run: cargo xtask test\n      \
                    - run: cat crates/core/Cargo.toml\n";
        assert_eq!(faults_of_workflow(root, good), [""; 0]);
        let bad = "a: [\n  - run: cargo xtask dance crates/none\n";
        assert_eq!(faults_of_workflow(root, bad).len(), 3);
    }
}
