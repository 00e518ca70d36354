//! What MPI needs, and `cargo xtask setup`, which installs it on Debian and what is made of it.

use std::{env, fs, path::Path, process::Command};

use anyhow::{Result, bail};

/// Debian's packages: the library with its compiler wrapper, the launcher, and what reads its headers.
const PACKAGES: [&str; 3] = ["libopenmpi-dev", "openmpi-bin", "libclang-dev"];

/// Whether the feature `mpi` can be built, and its tests run.
pub(super) fn is_there() -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let has = |program: &str| env::split_paths(&path).any(|dir| dir.join(program).is_file());
    has("mpicc") && has("mpirun") && has_libclang()
}

fn has_libclang() -> bool {
    let holds = |dir: &Path| {
        let names = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name());
        names
            .filter_map(|name| name.into_string().ok())
            .any(|name| name.starts_with("libclang.so") || name.starts_with("libclang-"))
    };
    let llvms =
        fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path().join("lib"));
    env::var_os("LIBCLANG_PATH").is_some() || llvms.into_iter().any(|dir| holds(&dir))
}

/// Installs what is missing. Needs root, and Debian or a system that is made of it.
pub(super) fn setup() -> Result<()> {
    if is_there() {
        eprintln!("MPI is there");
        return Ok(());
    }
    for arguments in
        [&["update"][..], &[&["install", "-y", "--no-install-recommends"][..], &PACKAGES].concat()]
    {
        let status =
            Command::new("apt-get").args(arguments).env("DEBIAN_FRONTEND", "noninteractive").status();
        if !status.is_ok_and(|status| status.success()) {
            bail!("apt-get {} failed: install {} by hand", arguments.join(" "), PACKAGES.join(", "));
        }
    }
    Ok(())
}
