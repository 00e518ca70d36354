//! `cargo xtask cuda pack`: writes the programs for `scripts/gpu-check`, which runs on a machine
//! with a device and without Rust, to `target/gpu-check`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Cargo's names of the two programs, and theirs in the directory. Some modules of the tests also
/// run on a device.
const PROGRAMS: [(&str, &str); 2] = [("graphmill", "graphmill"), ("main", "tests")];

/// Builds the command-line program and the tests, and copies them without symbols.
pub(super) fn pack() -> Result<()> {
    let root = fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))?;
    let to = root.join("target/gpu-check");
    fs::create_dir_all(&to)?;
    let mut found = build(&root, &["build", "--release", "-p", "graphmill"])?;
    let of_tests = ["test", "--release", "--no-run", "-p", "graphmill-cuda", "--features", "shim"];
    found.extend(build(&root, &[&of_tests[..], &["--test", "main"]].concat())?);
    for (target, name) in PROGRAMS {
        let (_, program) =
            found.iter().find(|(of, _)| of == target).with_context(|| format!("cargo built no {target}"))?;
        let packed = to.join(name);
        let stripped = Command::new("strip").arg("-o").arg(&packed).arg(program).status();
        if !stripped.is_ok_and(|status| status.success()) {
            fs::copy(program, &packed)?;
        }
        let megabytes = fs::metadata(&packed)?.len() as f64 / 1e6;
        eprintln!("── {} ({megabytes:.1} MB)", packed.display());
    }
    Ok(())
}

/// Runs cargo and returns the programs that it built, by name.
fn build(root: &Path, arguments: &[&str]) -> Result<Vec<(String, PathBuf)>> {
    eprintln!("── cargo {}", arguments.join(" "));
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        bail!("cargo {} failed", arguments.join(" "));
    }
    let programs = String::from_utf8(output.stdout)?;
    let programs = programs.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(programs
        .filter_map(|message| {
            let name = message["target"]["name"].as_str()?.to_string();
            Some((name, PathBuf::from(message["executable"].as_str()?)))
        })
        .collect())
}
