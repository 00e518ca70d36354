//! `cargo xtask release --check|--files PROGRAM|--static|--dry-run`: everything of a release but
//! the upload.
//!
//! `--check` needs no build and is a step of `cargo xtask test`: manifests, READMEs, versions,
//! licences, the table of dependencies and the workflows. `--files` builds the files around a ready
//! program offline, checks what they contain and installs one; the tests run it with their own
//! program. `--static` builds a program without shared libraries. `--dry-run` also runs the gates
//! of other tools, builds each crate from its package, the program, the wheel and the source
//! distribution, installs each, and leaves all files in `target/release-files`. With `--offline`,
//! it skips what it cannot do without the network.

mod archive;
mod bundle;
mod contents;
mod debian;
mod debug;
mod files;
mod first_day;
mod gates;
mod licences;
mod metadata;
mod musl;
mod packages;
mod sbom;
mod source;
mod wheel;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};

use self::{
    bundle::{Bundle, Packed},
    debian::Compression,
    metadata::{Metadata, Package},
    wheel::Tools,
};
use crate::target_dir;

/// Runs the command with its words.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    match words {
        ["--check"] => check(),
        ["--files", program] => files_around(Path::new(program)),
        ["--static"] => static_program(),
        ["--dry-run"] => dry_run(true),
        ["--dry-run", "--offline"] => dry_run(false),
        _ => bail!("usage: cargo xtask release --check|--files PROGRAM|--static|--dry-run [--offline]"),
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
    let out = emptied("release-files")?;
    let metadata = Metadata::read(&["--features", archive::FEATURES])?;
    let own = program(&metadata)?;
    let version = own.version.clone();

    gates::compatibility(root(), &metadata, &version, is_online)?;
    gates::deny(root(), is_online)?;
    let advisories = if is_online { gates::advisories(root()) } else { Ok(()) };
    let features = own.documented_features().unwrap_or_default();
    gates::minimal_rust(own.rust_version.as_deref().unwrap_or_default(), &features, is_online)?;
    gates::publish(&metadata, is_online)?;
    let bundle = Bundle { root: root(), out: &out, version: &version };
    bundle.parts(&metadata)?;
    bundle.sources()?;

    let tools = is_online.then(Tools::install).transpose()?;
    let built = match &tools {
        Some(tools) => tools.build(&archive::BUILD, "dist")?,
        None => archive::build()?,
    };
    let stripped = out.join("graphmill");
    let packed = bundle.program(&crate::host()?, &built, &stripped, Some(Compression::Usual))?;
    let bytes = packed.bytes;
    contents::check(&bundle, &packed)?;
    first_day::run(root(), &["--archive".as_ref(), packed.archive.as_os_str()])?;
    install_package(&packed)?;
    if let Some(tools) = &tools {
        let wheel = tools.wheel(root(), &stripped, &out)?;
        tools.check_wheel(&wheel)?;
        first_day::run(root(), &["--wheel".as_ref(), wheel.as_os_str()])?;
        wheel::check_sources(&tools.sources(root(), &out)?)?;
        first_day::run(root(), &["--cargo".as_ref()])?;
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

/// Runs the first day with the Debian package, if there is one and it can be installed here.
fn install_package(packed: &Packed) -> Result<()> {
    match &packed.package {
        None => eprintln!("── release: dpkg-deb is not installed, so no Debian package is built"),
        Some(package) if first_day::can_install_package() => {
            first_day::run(root(), &["--deb".as_ref(), package.as_os_str()])?;
        }
        Some(_) => {}
    }
    Ok(())
}

/// Builds the files of a release around a ready program in `target/xtask/release-files`, without
/// the network, and checks what they contain. A newcomer installs the archive.
fn files_around(program_path: &Path) -> Result<()> {
    ensure!(program_path.is_file(), "{} does not exist; build the program first", program_path.display());
    let out = emptied("xtask/release-files")?;
    let metadata = Metadata::read(&["--offline"])?;
    let version = program(&metadata)?.version.clone();
    let bundle = Bundle { root: root(), out: &out, version: &version };

    gates::publish(&metadata, false)?;
    contents::check_crates(&metadata.in_order()?)?;
    bundle.parts(&metadata)?;
    if root().join(".git").exists() {
        contents::check_sources(&bundle, &bundle.sources()?)?;
    } else {
        eprintln!("── release: this is not a clone, so the sources are not packed");
    }
    let stripped = out.join("graphmill");
    let packed = bundle.program(&crate::host()?, program_path, &stripped, Some(Compression::Fast))?;
    contents::check(&bundle, &packed)?;
    // the packages of the machine that runs the tests stay as they are
    first_day::run(root(), &["--archive".as_ref(), packed.archive.as_os_str()])?;
    fs::remove_file(&stripped)?;
    archive::checksums(&out)?;
    contents::check_sums(&out)?;
    list(&out)
}

/// Builds the program without shared libraries, and packs it in `target/release-static`.
fn static_program() -> Result<()> {
    let out = emptied("release-static")?;
    let metadata = Metadata::read(&[])?;
    let version = program(&metadata)?.version.clone();
    let bundle = Bundle { root: root(), out: &out, version: &version };
    let built = musl::build()?;
    musl::check(&built)?;
    let stripped = out.join("graphmill");
    let packed = bundle.program(musl::PLATFORM, &built, &stripped, None)?;
    musl::check(&stripped)?;
    fs::remove_file(&stripped)?;
    contents::check_archive(&bundle, &packed.archive)?;
    first_day::run(root(), &["--archive".as_ref(), packed.archive.as_os_str()])?;
    archive::checksums(&out)?;
    list(&out)
}

/// Empty directory below that of all build outputs.
fn emptied(name: &str) -> Result<PathBuf> {
    let path = target_dir().join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).with_context(|| format!("{} cannot be made", path.display()))?;
    Ok(path)
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
