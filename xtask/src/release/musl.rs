//! Program without shared libraries, for every Linux on x86-64: its C library is musl.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use super::archive::{self, succeed};
use crate::target_dir;

/// Platform of the program, which is in the name of its archive.
pub(super) const PLATFORM: &str = "x86_64-unknown-linux-musl";
/// Features of the program: all but `cuda` and `mpi`, which load shared libraries while they run. A
/// static program cannot.
const FEATURES: &str = "cli,tables,object-storage,serve";
/// Tools with the words by which they name a static program.
const TOOLS: [(&str, [&str; 2]); 2] = [
    ("file", ["statically linked", "static-pie linked"]),
    ("ldd", ["statically linked", "not a dynamic executable"]),
];

/// Builds the program; returns its path.
///
/// # Errors
/// The target of Rust or `musl-gcc` is not installed, or the build fails.
pub(super) fn build() -> Result<PathBuf> {
    let words = ["--target", PLATFORM, "--no-default-features", "--features", FEATURES];
    let needs = format!("it needs `rustup target add {PLATFORM}` and, on Debian, the package musl-tools");
    succeed(crate::cargo().arg("build").args(archive::BUILD).args(words)).context(needs)?;
    Ok(target_dir().join(PLATFORM).join("dist/graphmill"))
}

/// Checks by `file` and `ldd` that a program needs no shared library.
///
/// # Errors
/// It needs one, or a tool is not installed.
pub(super) fn check(program: &Path) -> Result<()> {
    for (tool, words) in TOOLS {
        let output = Command::new(tool).arg(program).env("LC_ALL", "C").output();
        let output = output.with_context(|| format!("{tool} is needed to check the program"))?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        if !words.iter().any(|word| text.contains(word)) {
            bail!("{} is not static: {tool} prints '{}'", program.display(), text.trim());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use super::*;

    /// Features that some features of a manifest enable, with themselves.
    fn enabled(features: &toml::Table, names: &mut Vec<String>) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        while let Some(name) = names.pop() {
            if found.insert(name.clone())
                && let Some(list) = features.get(&name).and_then(toml::Value::as_array)
            {
                names.extend(list.iter().filter_map(toml::Value::as_str).map(String::from));
            }
        }
        found
    }

    #[test]
    fn features_are_all_but_those_that_load_libraries() {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/graphmill/Cargo.toml");
        let manifest: toml::Table = fs::read_to_string(manifest).unwrap().parse().unwrap();
        let features = manifest["features"].as_table().unwrap();
        let enabled = enabled(features, &mut FEATURES.split(',').map(String::from).collect());
        let all: BTreeSet<String> = features.keys().cloned().collect();
        let left: Vec<&String> = all.difference(&enabled).collect();
        assert_eq!(left, ["cuda", "default", "mpi", "testing"]);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn programs_with_shared_libraries_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("program.c");
        fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        let build = |name: &str, words: &[&str]| {
            let program = directory.path().join(name);
            let status = Command::new("cc").args(words).arg("-o").arg(&program).arg(&source).status();
            status.is_ok_and(|status| status.success()).then_some(program)
        };
        let has_tools = TOOLS.iter().all(|(tool, _)| Command::new(tool).arg("--version").output().is_ok());
        if !has_tools {
            return;
        }
        let shared = build("shared", &[]).unwrap();
        let error = check(&shared).unwrap_err().to_string();
        assert!(error.contains("shared is not static: file prints '"), "{error}");
        // the static C library is a package of its own on some systems
        if let Some(program) = build("static", &["-static"]) {
            check(&program).unwrap();
        }
    }
}
