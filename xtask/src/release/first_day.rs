//! A newcomer's first day with the files of a release, by `scripts/first-day`.

use std::{
    ffi::OsStr,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result};

use super::archive::succeed;
use crate::target_dir;

/// Runs the script with the way of installing and its file.
///
/// # Errors
/// A step of the newcomer fails.
pub(super) fn run(root: &Path, words: &[&OsStr]) -> Result<()> {
    let mut command = Command::new("bash");
    // builds of the sources share the directory of all other builds
    command.arg(root.join("scripts/first-day")).args(words).env("CARGO_TARGET_DIR", target_dir());
    succeed(&mut command).context("the first day of a newcomer")
}

/// Reports whether a Debian package can be installed here for the test: the current user is root,
/// and the package is not installed yet. Otherwise, prints which does not hold.
pub(super) fn can_install_package() -> bool {
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
    let is_installed = is_root && {
        let mut status = Command::new("dpkg");
        status.args(["--status", "graphmill"]).stdout(Stdio::null()).stderr(Stdio::null());
        status.status().is_ok_and(|status| status.success())
    };
    if !is_root {
        eprintln!("── release: the Debian package is built and not installed, which needs root");
    } else if is_installed {
        eprintln!("── release: the Debian package is not tried, because graphmill is installed here by dpkg");
    }
    is_root && !is_installed
}
