//! `cargo xtask release --check|--dry-run`: everything of a release but the upload.
//!
//! `--check` needs no build and is a step of `cargo xtask test`: manifests, versions, licences, the
//! table of dependencies and the workflows. `--dry-run` also packs the crates, builds the program
//! and the wheel, and leaves all files in `target/release-files`.

mod archive;
mod files;
mod licences;
mod metadata;
mod packages;
mod sbom;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use self::metadata::{Metadata, Package};
use crate::{cargo, python, target_dir};

/// Runs the command with its words.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    match words {
        ["--check"] => check(),
        ["--dry-run"] => dry_run(),
        _ => bail!("usage: cargo xtask release --check|--dry-run"),
    }
}

/// Root of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// The package with the program.
fn program(metadata: &Metadata) -> Result<&Package> {
    metadata.members().find(|package| package.name == "graphmill").context("there is no package graphmill")
}

/// Checks what a release needs without building it.
///
/// # Errors
/// Something is missing; all faults are printed.
pub(crate) fn check() -> Result<()> {
    let metadata = Metadata::read(&["--all-features"])?;
    let own = program(&metadata)?;
    let rust_version = own.rust_version.clone().unwrap_or_default();
    let faults = [
        packages::faults(root(), &metadata)?,
        licences::faults(root(), &metadata)?,
        files::faults(root(), &own.version, &rust_version)?,
    ]
    .concat();
    if faults.is_empty() {
        let order: Vec<&str> = metadata.in_order()?.iter().map(|package| package.name.as_str()).collect();
        eprintln!("── release: {} in this order: {}", own.version, order.join(", "));
        return Ok(());
    }
    faults.iter().for_each(|fault| eprintln!("{fault}"));
    bail!("{} faults of the release", faults.len())
}

/// Builds and checks every file of a release.
fn dry_run() -> Result<()> {
    check()?;
    let out = target_dir().join("release-files");
    let _ = fs::remove_dir_all(&out);
    fs::create_dir_all(&out)?;
    let metadata = Metadata::read(&[])?;
    let version = program(&metadata)?.version.clone();

    pack_crates(&metadata)?;
    let parts = sbom::document(&metadata, "graphmill", &version);
    fs::write(out.join(format!("graphmill-{version}.cdx.json")), serde_json::to_string_pretty(&parts)?)?;
    deny()?;

    let name = format!("graphmill-{version}-{}", metadata::host()?);
    let prefix = out.join(&name);
    let built = archive::build()?;
    let bytes = archive::lay_out(root(), &built, &prefix)?;
    archive::tarball(&prefix, &out, &name)?;
    if archive::debian(&prefix, &out, &version)?.is_none() {
        eprintln!("── release: dpkg-deb is not installed, so no Debian package is built");
    }
    fs::remove_dir_all(&prefix)?;
    let wheel = python::build_wheel(&built)?;
    python::check_wheel(&wheel)?;
    fs::copy(&wheel, out.join(wheel.file_name().unwrap_or_default()))?;
    archive::checksums(&out)?;
    list(&out)?;
    archive::check_size(bytes)
}

/// Packs every published crate. Their builds are checked by the tests; the registry cannot verify
/// crates that need each other before the first of them is uploaded.
fn pack_crates(metadata: &Metadata) -> Result<()> {
    let mut command = Command::new(cargo());
    command.args(["package", "--locked", "--no-verify", "--allow-dirty", "--quiet"]);
    for package in metadata.in_order()? {
        command.args(["-p", &package.name]);
    }
    archive::succeed(&mut command)
}

/// Runs cargo-deny, if it is installed: advisories and duplicates, beyond what `--check` covers.
fn deny() -> Result<()> {
    if !Command::new(cargo()).args(["deny", "--version"]).output().is_ok_and(|output| output.status.success())
    {
        eprintln!("── release: cargo-deny is not installed, so advisories are not checked");
        return Ok(());
    }
    archive::succeed(Command::new(cargo()).args(["deny", "check"]).current_dir(root()))
}

/// Prints the files with their sizes.
fn list(out: &Path) -> Result<()> {
    let mut files: Vec<PathBuf> = fs::read_dir(out)?.flatten().map(|entry| entry.path()).collect();
    files.sort();
    for path in files {
        println!("{:>12}  {}", fs::metadata(&path)?.len(), path.display());
    }
    Ok(())
}
