//! `cargo xtask cuda compile`: compiles the CUDA kernels to the PTX that is checked in; `cargo xtask cuda
//! check` holds that against what the kernels compile to.
//!
//! The compiler is NVRTC of one version, from a Python package of 88 MB whose hash is checked
//! (`xtask/nvrtc-VERSION.txt`). It is fetched once, into the target directory, and needs no device.

use std::{
    collections::BTreeSet,
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use super::python;

/// What is installed, relative to the workspace.
const NVRTC: &str = "xtask/nvrtc-12.8.93.txt";

/// Compiles all kernels anew.
pub(super) fn compile() -> Result<()> {
    let (kernels, checked_in) = directories()?;
    let python =
        python::find_python().context("compiling kernels needs python3 of 3.10 or later on the PATH")?;
    for stale in stems(&checked_in, "ptx")?.difference(&stems(&kernels, "cu")?) {
        fs::remove_file(checked_in.join(format!("{stale}.ptx")))?;
    }
    compile_to(&python, &kernels, &checked_in)
}

/// Fails where the PTX that is checked in is not what the kernels compile to.
pub(super) fn check() -> Result<()> {
    let (kernels, checked_in) = directories()?;
    let Some(python) = python::find_python() else {
        eprintln!("── kernels: not compiled: there is no python3 of 3.10 or later on the PATH");
        return Ok(());
    };
    let fresh = home()?.join("ptx");
    // what earlier checks left would be found, too
    let _ = fs::remove_dir_all(&fresh);
    fs::create_dir_all(&fresh)?;
    compile_to(&python, &kernels, &fresh)?;
    let names = &stems(&fresh, "ptx")? | &stems(&checked_in, "ptx")?;
    let differ = |name: &&String| {
        let read = |directory: &Path| fs::read(directory.join(format!("{name}.ptx"))).ok();
        read(&fresh) != read(&checked_in)
    };
    let differing: Vec<_> = names.iter().filter(differ).map(|name| format!("{name}.ptx")).collect();
    if !differing.is_empty() {
        bail!(
            "{} in {} is not what the kernels compile to: run cargo xtask cuda compile, and check the result in",
            differing.join(", "),
            checked_in.display()
        );
    }
    Ok(())
}

/// Where the kernels are, and where their PTX.
fn directories() -> Result<(PathBuf, PathBuf)> {
    let room = fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/cuda"))?;
    Ok((room.join("kernels"), room.join("ptx")))
}

/// Where the compiler is kept between runs.
fn home() -> Result<PathBuf> {
    let root = fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))?;
    Ok(env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from).join("nvrtc"))
}

/// The names of a directory's files with this extension.
fn stems(directory: &Path, extension: &str) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|of| of == extension) {
            found.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    Ok(found)
}

fn compile_to(python: &Path, kernels: &Path, to: &Path) -> Result<()> {
    let root = fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))?;
    let pinned = root.join(NVRTC);
    let packages = ["--no-deps", "--require-hashes", "-r", pinned.to_str().context("the path is not UTF-8")?];
    let own = python::prepare(python, &home()?, &packages, None).with_context(|| {
        format!("NVRTC could not be installed as {NVRTC} says: it is fetched once, needs a network, x86-64 and Linux")
    })?;
    let script = root.join("xtask/nvrtc.py");
    let sources: Vec<_> =
        stems(kernels, "cu")?.iter().map(|name| kernels.join(format!("{name}.cu"))).collect();
    let mut arguments: Vec<&OsStr> = vec![script.as_os_str(), to.as_os_str()];
    arguments.extend(sources.iter().map(|source| source.as_os_str()));
    python::step("kernels", own.as_os_str(), &arguments, &root)
}
