//! `cargo xtask release --check|--dry-run`: everything of a release but the upload.
//!
//! `--check` needs no build and is a step of `cargo xtask test`: manifests, READMEs, versions,
//! licences, the table of dependencies and the workflows. `--dry-run` also runs the gates of other
//! tools, builds each crate from its package, the program, the wheel and the source distribution,
//! and leaves all files in `target/release-files`. With `--offline`, it skips what it cannot do
//! without the network.

mod archive;
mod debian;
mod debug;
mod files;
mod gates;
mod licences;
mod metadata;
mod packages;
mod sbom;
mod source;
mod wheel;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use self::{
    metadata::{Metadata, Package},
    wheel::Tools,
};
use crate::target_dir;

/// Formula of Homebrew, without the address of the sources.
const FORMULA: &str = "packaging/homebrew/graphmill.rb";

/// Runs the command with its words.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    match words {
        ["--check"] => check(),
        ["--dry-run"] => dry_run(true),
        ["--dry-run", "--offline"] => dry_run(false),
        _ => bail!("usage: cargo xtask release --check|--dry-run [--offline]"),
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

/// Builds and checks every file of a release. Without the network, missing tools are skipped, and
/// Python's files are not built. Advisories and the size of the program stop nothing: they are
/// printed after all files are built.
fn dry_run(is_online: bool) -> Result<()> {
    check()?;
    let out = target_dir().join("release-files");
    let _ = fs::remove_dir_all(&out);
    fs::create_dir_all(&out)?;
    let metadata = Metadata::read(&[])?;
    let own = program(&metadata)?;
    let version = own.version.clone();

    gates::compatibility(root(), &metadata, &version, is_online)?;
    gates::deny(root(), is_online)?;
    let advisories = if is_online { gates::advisories(root()) } else { Ok(()) };
    let features = own.documented_features().unwrap_or_default();
    gates::minimal_rust(own.rust_version.as_deref().unwrap_or_default(), &features, is_online)?;
    gates::publish(&metadata, is_online)?;
    let parts = sbom::document(&metadata, "graphmill", &version);
    fs::write(out.join(format!("graphmill-{version}.cdx.json")), serde_json::to_string_pretty(&parts)?)?;
    formula(&out, &version)?;

    let tools = is_online.then(Tools::install).transpose()?;
    let built = match &tools {
        Some(tools) => tools.build(&archive::BUILD, "dist")?,
        None => archive::build()?,
    };
    let stripped = out.join("graphmill");
    let bytes = pack_program(&built, &stripped, &out, &version)?;
    if let Some(tools) = &tools {
        tools.check_wheel(&tools.wheel(root(), &stripped, &out)?)?;
        wheel::check_sources(&tools.sources(root(), &out)?)?;
    }
    fs::remove_file(&stripped)?;
    archive::checksums(&out)?;
    list(&out)?;
    all([advisories, archive::check_size(bytes)])
}

/// Prints every fault.
///
/// # Errors
/// There is one.
fn all(results: impl IntoIterator<Item = Result<()>>) -> Result<()> {
    let faults: Vec<anyhow::Error> = results.into_iter().filter_map(Result::err).collect();
    faults.iter().for_each(|fault| eprintln!("error: {fault:#}"));
    anyhow::ensure!(faults.is_empty(), "{} faults of the release; its files are built", faults.len());
    Ok(())
}

/// Packs the sources, and completes the formula of Homebrew by their checksum.
fn formula(out: &Path, version: &str) -> Result<()> {
    let source = source::archive(root(), out, version)?;
    let name = source.file_name().unwrap_or_default().to_string_lossy();
    let formula = fs::read_to_string(root().join(FORMULA)).context(FORMULA)?;
    let formula = source::formula(&formula, version, &name, &archive::sha256(&source)?)?;
    Ok(fs::write(out.join("graphmill.rb"), formula)?)
}

/// Splits the program's debug information off and packs both, and a Debian package. Returns the
/// bytes of the program without it, which is `stripped`.
fn pack_program(built: &Path, stripped: &Path, out: &Path, version: &str) -> Result<u64> {
    let name = format!("graphmill-{version}-{}", metadata::host()?);
    let prefix = out.join(&name);
    debug::split(built, stripped, out, &name)?;
    let bytes = archive::lay_out(root(), stripped, &prefix)?;
    archive::tarball(&prefix, out, &name)?;
    if debian::build(root(), &prefix, out, version)?.is_none() {
        eprintln!("── release: dpkg-deb is not installed, so no Debian package is built");
    }
    fs::remove_dir_all(&prefix)?;
    Ok(bytes)
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
