//! `cargo xtask cuda compile`: compiles the CUDA kernels to PTX and packs it into the bundle of the
//! repository; `cargo xtask cuda check` compares the bundle with a fresh compilation of
//! the kernels.
//!
//! The compiler is NVRTC of one version, from a Python package of 88 MB whose hash is checked
//! (`xtask/nvrtc-VERSION.txt`). It is fetched once, into the target directory, and needs no device.

mod bundle;

use std::{
    collections::BTreeSet,
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use self::bundle::Modules;
use super::python;

/// Pinned compiler, relative to the workspace.
const NVRTC: &str = "xtask/nvrtc-12.8.93.txt";
/// Bundle of the kernels' PTX, in the directory of the crate.
const BUNDLE: &str = "ptx.zip";
/// Checksums of the bundle and of its contents, in the same directory.
const CHECKSUMS: &str = "ptx.sha256";
/// Advice that ends every failed check.
const FIX: &str = "run cargo xtask cuda compile and commit crates/cuda/ptx.zip and crates/cuda/ptx.sha256";

/// Compiles all kernels and writes the bundle with its checksums.
pub(super) fn compile() -> Result<()> {
    let python =
        python::find_python().context("compiling kernels needs python3 of 3.10 or later on the PATH")?;
    let fresh = compile_kernels(&python)?;
    let packed = bundle::pack(&fresh)?;
    let directory = directory()?;
    fs::write(directory.join(BUNDLE), &packed)?;
    fs::write(directory.join(CHECKSUMS), bundle::checksums(BUNDLE, &packed, &fresh)?)?;
    let bytes: usize = fresh.values().map(Vec::len).sum();
    eprintln!("── {}: {} files, {bytes} bytes of PTX in {}", BUNDLE, fresh.len(), packed.len());
    Ok(())
}

/// Fails if the bundle or its checksums differ from a fresh compilation of the kernels, or, with
/// `devices`, if a kernel does not compile to the code of a device.
pub(super) fn check() -> Result<()> {
    let Some(python) = python::find_python() else {
        eprintln!("── kernels: not compiled: there is no python3 of 3.10 or later on the PATH");
        return Ok(());
    };
    let fresh = compile_kernels(&python)?;
    let directory = directory()?;
    let read = |name: &str| {
        let path = directory.join(name);
        fs::read(&path).with_context(|| format!("{} cannot be read; {FIX}", path.display()))
    };
    compare(&fresh, &read(BUNDLE)?, &read(CHECKSUMS)?)
}

/// Compares compiled kernels with a bundle and its checksums.
fn compare(fresh: &Modules, bundle: &[u8], checksums: &[u8]) -> Result<()> {
    let packed = bundle::unpack(bundle).with_context(|| format!("{BUNDLE} cannot be unpacked; {FIX}"))?;
    let names: BTreeSet<_> = fresh.keys().chain(packed.keys()).collect();
    let differing: Vec<_> =
        names.into_iter().filter(|&name| fresh.get(name) != packed.get(name)).map(String::as_str).collect();
    if !differing.is_empty() {
        bail!("{} in {BUNDLE} differ from a fresh compilation of the kernels; {FIX}", differing.join(", "));
    }
    // equal PTX in a different archive: another compressor, or bytes besides the PTX
    let expected = bundle::pack(fresh)?;
    if bundle != expected {
        bail!("{BUNDLE} holds the kernels' PTX, but not in the bytes that packing gives; {FIX}");
    }
    if checksums != bundle::checksums(BUNDLE, &expected, fresh)?.as_bytes() {
        bail!("{CHECKSUMS} does not match {BUNDLE}; {FIX}");
    }
    Ok(())
}

/// Locates the crate that has the kernels and their bundle.
fn directory() -> Result<PathBuf> {
    Ok(fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/cuda"))?)
}

/// Locates the compiler and its last output, which stay between runs.
fn home() -> Result<PathBuf> {
    let root = fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))?;
    Ok(env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from).join("nvrtc"))
}

/// Lists a directory's files with this extension, by name.
fn files(directory: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|of| of == extension) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Compiles all kernels to PTX. The files stay in `nvrtc/ptx` of the target directory for reading.
fn compile_kernels(python: &Path) -> Result<Modules> {
    let root = fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))?;
    let to = home()?.join("ptx");
    // files of an earlier run would be packed, too
    let _ = fs::remove_dir_all(&to);
    fs::create_dir_all(&to)?;
    let pinned = root.join(NVRTC);
    let packages = ["--no-deps", "--require-hashes", "-r", pinned.to_str().context("the path is not UTF-8")?];
    let own = python::prepare(python, &home()?, &packages, None).with_context(|| {
        format!(
            "NVRTC could not be installed as {NVRTC} says: it is fetched once, needs a network, x86-64 \
            and Linux"
        )
    })?;
    let script = root.join("xtask/nvrtc.py");
    let sources = files(&directory()?.join("kernels"), "cu")?;
    let mut arguments: Vec<&OsStr> = vec![script.as_os_str(), to.as_os_str()];
    arguments.extend(sources.iter().map(|source| source.as_os_str()));
    python::step("kernels", own.as_os_str(), &arguments, &root)?;
    let mut modules = Modules::new();
    for path in files(&to, "ptx")? {
        let name = path.file_name().and_then(OsStr::to_str).context("the path is not UTF-8")?;
        modules.insert(name.to_owned(), fs::read(&path)?);
    }
    Ok(modules)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(text: &str) -> Modules {
        [("walk.ptx".to_owned(), text.as_bytes().to_vec())].into()
    }

    fn refusal(bundle: &[u8], checksums: &[u8]) -> String {
        format!("{:#}", compare(&modules(".target sm_80\n"), bundle, checksums).unwrap_err())
    }

    #[test]
    fn only_the_bundle_of_the_kernels_passes_the_check() {
        let fresh = modules(".target sm_80\n");
        let packed = bundle::pack(&fresh).unwrap();
        let sums = bundle::checksums(BUNDLE, &packed, &fresh).unwrap();
        compare(&fresh, &packed, sums.as_bytes()).unwrap();

        let stale = bundle::pack(&modules(".target sm_90\n")).unwrap();
        assert!(refusal(&stale, sums.as_bytes()).starts_with("walk.ptx in ptx.zip differ"));
        assert!(refusal(&packed, b"").starts_with("ptx.sha256 does not match"));
        assert!(refusal(&packed[..40], sums.as_bytes()).starts_with("ptx.zip cannot be unpacked"));
        // ZIP allows bytes in front of an archive
        let padded = [b"hidden", &packed[..]].concat();
        assert!(refusal(&padded, sums.as_bytes()).contains("not in the bytes that packing gives"));
        assert!(refusal(&padded, sums.as_bytes()).ends_with(FIX));
    }
}
