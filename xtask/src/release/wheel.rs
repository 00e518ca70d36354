//! The Python package for distribution: a wheel with the command inside, a source distribution, and
//! checks of both in new environments.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use zip::ZipArchive;

use super::archive::succeed;
use crate::{python, target_dir};

/// Tools that build and check the package.
const TOOLS: [&str; 3] = ["maturin>=1.9,<2", "auditwheel>=6", "abi3audit"];
/// Compiler and linker for an older C library than that of the machine.
const ZIG: [&str; 2] = ["ziglang", "cargo-zigbuild"];
/// Oldest C library (glibc) with which the files run if Zig links them.
const GLIBC: (u32, u32) = (2, 28);
/// Files of the wheel, by the ends of their paths.
const FILES: [&str; 6] = [
    "graphmill/__init__.py",
    "graphmill/_graphmill.pyi",
    "graphmill/py.typed",
    ".data/scripts/graphmill",
    ".dist-info/licenses/LICENSE-APACHE",
    ".dist-info/licenses/LICENSE-MIT",
];
/// Beginnings of lines of the wheel's metadata.
const FIELDS: [&str; 10] = [
    "Author: ",
    "Classifier: Programming Language :: Rust",
    "Classifier: Typing :: Typed",
    "Description-Content-Type: text/markdown",
    "Keywords: ",
    "License-Expression: MIT OR Apache-2.0",
    "Project-URL: Documentation, https://",
    "Project-URL: Repository, https://",
    "Requires-Python: >=3.10",
    "# graphmill",
];

/// Environment with the tools.
pub(super) struct Tools {
    /// Directory of its programs.
    programs: PathBuf,
    has_zig: bool,
}

impl Tools {
    /// Creates the environment below the target directory. Without Zig, files need the C library of
    /// this machine.
    ///
    /// # Errors
    /// Python is not installed, or its packages cannot be.
    pub(super) fn install() -> Result<Self> {
        let python = python::find_python().context("python3 of 3.10 or later is not on the PATH")?;
        let home = target_dir().join("release-python");
        let with_zig = [&TOOLS[..], &ZIG].concat();
        let has_zig = cfg!(target_os = "linux") && python::prepare(&python, &home, &with_zig, None).is_ok();
        if !has_zig {
            eprintln!("── release: {} cannot be installed, so files need this machine's C library", ZIG[0]);
            python::prepare(&python, &home, &TOOLS, None)?;
        }
        Ok(Self { programs: home.join("venv/bin"), has_zig })
    }

    /// Program of the environment, which finds the others.
    fn program(&self, name: &str) -> Result<Command> {
        let mut command = Command::new(self.programs.join(name));
        let path = env::var_os("PATH").unwrap_or_default();
        let directories = std::iter::once(self.programs.clone()).chain(env::split_paths(&path));
        command.env("PATH", env::join_paths(directories)?);
        Ok(command)
    }

    /// Builds the package `graphmill` by cargo with these words, for an old C library if Zig is
    /// there; returns the path of the program in the directory of the profile.
    ///
    /// # Errors
    /// The build fails.
    pub(super) fn build(&self, words: &[&str], profile: &str) -> Result<PathBuf> {
        if !self.has_zig {
            succeed(crate::cargo().arg("build").args(words))?;
            return Ok(target_dir().join(profile).join("graphmill"));
        }
        let host = crate::host()?;
        let target = format!("{host}.{}.{}", GLIBC.0, GLIBC.1);
        succeed(self.program("cargo-zigbuild")?.args(["zigbuild", "--target", &target]).args(words))?;
        Ok(target_dir().join(host).join(profile).join("graphmill"))
    }

    /// Builds the wheel with `program` as its command into `out`; returns its path.
    ///
    /// # Errors
    /// The build fails.
    pub(super) fn wheel(&self, root: &Path, program: &Path, out: &Path) -> Result<PathBuf> {
        let package = root.join("crates/python");
        // maturin packs the folder with the name of the module, and pip copies its scripts to where
        // commands are
        let data = package.join("graphmill._graphmill.data");
        let _ = fs::remove_dir_all(&data);
        fs::create_dir_all(data.join("scripts"))?;
        fs::copy(program, data.join("scripts/graphmill"))?;
        let mut command = self.program("maturin")?;
        command.args(["build", "--locked", "--profile", "release"]).current_dir(&package);
        if self.has_zig {
            command.args(["--zig", "--compatibility", &compatibility()]);
        }
        let built = package_of(command, out, ".whl");
        fs::remove_dir_all(&data)?;
        built
    }

    /// Checks the contents of a wheel, its C library and its use of Python's stable interface.
    ///
    /// # Errors
    /// Something is missing.
    pub(super) fn check_wheel(&self, wheel: &Path) -> Result<()> {
        let (names, fields) = contents(wheel)?;
        let name = wheel.file_name().unwrap_or_default().to_string_lossy();
        let faults = faults(&name, &names, &fields);
        if !faults.is_empty() {
            bail!("{name}: {}", faults.join("; "));
        }
        let audit = self.program("auditwheel")?.arg("show").arg(wheel).output().context("auditwheel")?;
        let audit = String::from_utf8_lossy(&audit.stdout).into_owned();
        eprintln!("── release: auditwheel: {}", audit.split_whitespace().collect::<Vec<_>>().join(" "));
        if self.has_zig && !audit.contains(&compatibility()) {
            bail!("{name}: auditwheel does not find it consistent with {}", compatibility());
        }
        succeed(self.program("abi3audit")?.args(["--strict", "--summary"]).arg(wheel))
    }

    /// Builds the source distribution into `out`; returns its path.
    ///
    /// # Errors
    /// The build fails.
    pub(super) fn sources(&self, root: &Path, out: &Path) -> Result<PathBuf> {
        let mut command = self.program("maturin")?;
        command.arg("sdist").current_dir(root.join("crates/python"));
        package_of(command, out, ".tar.gz")
    }
}

/// Builds and installs a source distribution in a new environment, and trains there.
///
/// # Errors
/// It cannot be built or installed, or does not work.
pub(super) fn check_sources(archive: &Path) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let venv = install(archive, directory.path())?;
    let code = "import graphmill; graphmill.train(graphmill.Dataset.demo(), epochs=1, out='run')";
    succeed(Command::new(venv.join("bin/python")).args(["-c", code]).current_dir(directory.path()))
}

/// Creates a new environment in `directory` with a package; returns its path.
fn install(package: &Path, directory: &Path) -> Result<PathBuf> {
    let python = python::find_python().context("python3 of 3.10 or later is not on the PATH")?;
    let venv = directory.join("venv");
    succeed(Command::new(python).args(["-m", "venv"]).arg(&venv))?;
    let pip = [OsStr::new("-m"), "pip".as_ref(), "install".as_ref(), "--quiet".as_ref(), package.as_os_str()];
    // crates of a source distribution are built once for all environments
    let shared = target_dir().join("release-python/sources");
    let mut command = Command::new(venv.join("bin/python"));
    succeed(command.args(pip).env("CARGO_TARGET_DIR", shared).current_dir(directory))?;
    Ok(venv)
}

/// Tag of wheels that run with [`GLIBC`].
fn compatibility() -> String {
    format!("manylinux_{}_{}", GLIBC.0, GLIBC.1)
}

/// Runs maturin with `out` as the directory of its file; returns the path of the file.
fn package_of(mut command: Command, out: &Path, end: &str) -> Result<PathBuf> {
    let fresh = tempfile::tempdir_in(out)?;
    succeed(command.arg("--out").arg(fresh.path()))?;
    let built = fs::read_dir(fresh.path())?.next().context("maturin has built nothing")??;
    let name: OsString = built.file_name();
    if !name.to_string_lossy().ends_with(end) {
        bail!("maturin has built {}", name.display());
    }
    let path = out.join(name);
    fs::rename(built.path(), &path)?;
    Ok(path)
}

/// Names of a wheel's files, and the text of its metadata.
fn contents(wheel: &Path) -> Result<(Vec<String>, String)> {
    let mut archive = ZipArchive::new(fs::File::open(wheel)?)?;
    let names: Vec<String> = archive.file_names().map(String::from).collect();
    let place = names.iter().find(|name| name.ends_with(".dist-info/METADATA"));
    let mut fields = String::new();
    archive.by_name(place.context("the wheel has no metadata")?)?.read_to_string(&mut fields)?;
    Ok((names, fields))
}

/// Faults of a wheel by its name, its files and its metadata.
fn faults(name: &str, files: &[String], fields: &str) -> Vec<String> {
    let has_file = |end: &str| files.iter().any(|file| file.ends_with(end));
    let has_field = |start: &str| fields.lines().any(|line| line.starts_with(start));
    let files = FILES.iter().filter(|end| !has_file(end)).map(|end| format!("it has no file {end}"));
    let fields = FIELDS.iter().filter(|start| !has_field(start));
    let fields = fields.map(|start| format!("its metadata has no line '{start}'"));
    let tag = (!name.contains("-abi3-")).then(|| "it is not for the stable interface (abi3)".to_owned());
    files.chain(fields).chain(tag).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use zip::{ZipWriter, write::SimpleFileOptions};

    use super::*;

    #[test]
    fn wheels_need_their_files_and_metadata() {
        let directory = tempfile::tempdir().unwrap();
        let name = "graphmill-1.0-cp310-abi3-manylinux_2_28_x86_64.whl";
        let wheel = directory.path().join(name);
        let mut writer = ZipWriter::new(fs::File::create(&wheel).unwrap());
        let mut add = |path: &str, text: &str| {
            writer.start_file(path, SimpleFileOptions::default()).unwrap();
            writer.write_all(text.as_bytes()).unwrap();
        };
        for end in FILES {
            add(&format!("graphmill-1.0{end}"), "");
        }
        add("graphmill-1.0.dist-info/METADATA", &FIELDS.join("\n"));
        writer.finish().unwrap();
        let (files, fields) = contents(&wheel).unwrap();
        assert_eq!(faults(name, &files, &fields), [""; 0]);
        let missing = faults(name, &files[1..], &FIELDS[1..].join("\n")).join("\n");
        assert!(missing.contains(FILES[0]) && missing.contains(FIELDS[0]), "{missing}");
        assert_eq!(faults(&name.replace("abi3", "cp310"), &files, &fields).len(), 1);
    }
}
