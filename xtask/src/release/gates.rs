//! Checks of the crates by cargo and by other tools: packages, minimal Rust, compatibility with the
//! last release, advisories.

use std::{path::Path, process::Command};

use anyhow::{Context, Result, bail};

use super::{archive::succeed, metadata::Metadata};
use crate::cargo;

/// Reports whether `cargo TOOL` is installed.
///
/// # Errors
/// It is missing, and `is_online`: it can be installed.
fn has_tool(tool: &str, is_online: bool) -> Result<bool> {
    let found = cargo().args([tool, "--version"]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return Ok(true);
    }
    let missing = format!("cargo-{tool} is not installed");
    let install = format!("install it: cargo install --locked cargo-{tool}");
    if is_online {
        bail!("{missing}; {install}");
    }
    eprintln!("── release: {missing}, so its step is skipped; {install}");
    Ok(false)
}

/// Packs every published crate. If `is_online`, each is also built from its package, as its users
/// build it, with those before it in the place of crates of the registry.
///
/// # Errors
/// A crate cannot be packed or built.
pub(super) fn publish(metadata: &Metadata, is_online: bool) -> Result<()> {
    let mut command = cargo();
    if is_online {
        command.args(["publish", "--dry-run"]);
    } else {
        command.args(["package", "--no-verify", "--offline", "--quiet"]);
    }
    command.args(["--locked", "--allow-dirty"]);
    for package in metadata.in_order()? {
        command.args(["-p", &package.name]);
    }
    succeed(&mut command)
}

/// Checks the program and its libraries with the minimal version of Rust.
///
/// # Errors
/// That version is not installed and `is_online`, or refuses the code.
pub(super) fn minimal_rust(version: &str, features: &[&str], is_online: bool) -> Result<()> {
    let toolchain = toolchain(version);
    let rustup = || {
        let mut command = Command::new("rustup");
        command.args(["run", &toolchain, "cargo"]);
        command
    };
    if !rustup().arg("--version").output().is_ok_and(|output| output.status.success()) {
        let install = format!("rustup toolchain install {toolchain} --profile minimal");
        if is_online {
            bail!("Rust {toolchain} is not installed; install it: {install}");
        }
        eprintln!("── release: Rust {toolchain} is not installed, so it checks nothing: {install}");
        return Ok(());
    }
    let check = ["check", "--locked", "-p", "graphmill", "--features", &features.join(",")];
    succeed(rustup().args(check).env_remove("CARGO")).context("the minimal version of Rust")
}

/// Name of the toolchain of a version such as `1.95`.
fn toolchain(version: &str) -> String {
    if version.matches('.').count() == 1 { format!("{version}.0") } else { version.to_owned() }
}

/// Compares the public items of the crates with those of the last release, if there is one.
///
/// # Errors
/// The tool is missing and `is_online`, or an item changed more than the version allows.
pub(super) fn compatibility(root: &Path, metadata: &Metadata, version: &str, is_online: bool) -> Result<()> {
    let Some(baseline) = last_release(root, version) else {
        eprintln!("── release: there is no tag of an earlier version, so public items are not compared");
        return Ok(());
    };
    if !has_tool("semver-checks", is_online)? {
        return Ok(());
    }
    let mut command = cargo();
    command.args(["semver-checks", "--baseline-rev", &baseline]).current_dir(root);
    for package in metadata.in_order()? {
        command.args(["-p", &package.name]);
    }
    succeed(&mut command)
}

/// Tag of the release before `version`, among those that the current commit contains.
fn last_release(root: &Path, version: &str) -> Option<String> {
    let mut git = Command::new("git");
    git.args(["describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "--exclude"]);
    let output = git.arg(format!("v{version}")).current_dir(root).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Checks licences, sources and duplicates by cargo-deny.
///
/// # Errors
/// The tool is missing and `is_online`, or finds a fault.
pub(super) fn deny(root: &Path, is_online: bool) -> Result<()> {
    if !has_tool("deny", is_online)? {
        return Ok(());
    }
    succeed(deny_checks(&["bans", "licenses", "sources"]).current_dir(root))
}

/// Checks the advisories of all dependencies, whose list cargo-deny fetches.
///
/// # Errors
/// The list cannot be fetched, or has an advisory of a dependency.
pub(super) fn advisories(root: &Path) -> Result<()> {
    succeed(deny_checks(&["advisories"]).current_dir(root)).context("advisories of dependencies")
}

/// cargo-deny with some of its checks.
fn deny_checks(checks: &[&str]) -> Command {
    let mut command = cargo();
    command.args(["deny", "--all-features", "check"]).args(checks);
    command
}

#[cfg(test)]
mod tests {
    use super::{super::archive::git, *};

    #[test]
    fn missing_tools_are_errors_unless_offline() {
        let error = has_tool("no-such-tool", true).unwrap_err().to_string();
        assert!(error.ends_with("cargo install --locked cargo-no-such-tool"), "{error}");
        assert!(!has_tool("no-such-tool", false).unwrap());
        assert!(minimal_rust("0.1", &[], false).is_ok());
        let error = minimal_rust("0.1", &[], true).unwrap_err().to_string();
        assert!(error.contains("rustup toolchain install 0.1.0"), "{error}");
        assert_eq!(toolchain("1.95.2"), "1.95.2");
    }

    #[test]
    fn the_last_release_is_the_newest_tag_of_another_version() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let git = |words: &[&str]| git(root, words);
        git(&["init", "--quiet"]);
        assert_eq!(last_release(root, "0.1.0"), None);
        let commit = ["commit", "--quiet", "--allow-empty", "--message", "a"];
        for tag in ["v0.1.0", "v0.2.0", "value", "v0.3.0"] {
            git(&commit);
            git(&["tag", tag]);
        }
        assert_eq!(last_release(root, "0.3.0").as_deref(), Some("v0.2.0"));
        assert_eq!(last_release(root, "0.4.0").as_deref(), Some("v0.3.0"));
    }
}
