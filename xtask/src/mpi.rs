//! Build dependencies of MPI, and `cargo xtask setup`, which installs them and the C++ compiler of
//! the kernels' tests on Debian and its derivatives.

use std::{env, fs, path::Path, process::Command};

use anyhow::{Result, bail};

/// Debian packages: the library with its compiler wrapper, the launcher, the parser of its headers,
/// and the compiler.
const PACKAGES: [&str; 4] = ["libopenmpi-dev", "openmpi-bin", "libclang-dev", "g++"];

/// Returns true if the feature `mpi` can be built and tested.
pub(super) fn is_there() -> bool {
    has("mpicc") && has("mpirun") && has_libclang()
}

/// Returns true if a program is on the path.
fn has(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|dir| dir.join(program).is_file())
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

/// Installs missing packages. Needs root, and Debian or a derivative.
pub(super) fn setup() -> Result<()> {
    if is_there() && has("c++") {
        eprintln!("MPI and a C++ compiler are there");
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
