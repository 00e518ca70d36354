//! Debug information of the program, in an archive of its own: a crash can be read without an
//! installation that carries it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use super::archive::{succeed, tarball};

/// Directory beside a program where debuggers look for its debug information.
const DIRECTORY: &str = "bin/.debug";

/// Splits `built` into a program without debug information, `stripped`, and the archive
/// `NAME-debug.tar.gz` in `out`. Unpacked over the archive `NAME.tar.gz`, debuggers find it: the
/// program has its name and checksum in the section `.gnu_debuglink`.
///
/// # Errors
/// objcopy is not installed, or fails.
pub(super) fn split(built: &Path, stripped: &Path, out: &Path, name: &str) -> Result<PathBuf> {
    let (root, program) = (out.join("debug"), built.file_name().context("the program has no name")?);
    let directory = root.join(name).join(DIRECTORY);
    fs::create_dir_all(&directory)?;
    let information = directory.join(program).with_extension("debug");
    let objcopy = || Command::new("objcopy");
    let keep = ["--only-keep-debug", "--compress-debug-sections"];
    succeed(objcopy().args(keep).arg(built).arg(&information)).context("binutils are needed")?;
    let mut link = std::ffi::OsString::from("--add-gnu-debuglink=");
    link.push(&information);
    succeed(objcopy().arg("--strip-all").arg(link).arg(built).arg(stripped))?;
    let packed = tarball(&root.join(name), out, &format!("{name}-debug"))?;
    fs::remove_dir_all(&root)?;
    Ok(packed)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::{super::archive, *};

    fn output(command: &mut Command) -> String {
        archive::output(command).unwrap()
    }

    #[test]
    fn debuggers_find_lines_of_a_program_whose_information_was_split_off() {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path();
        let [source, built] = ["stand-in.c", "graphmill"].map(|name| out.join(name));
        fs::write(&source, "int answer(void)\n{\n    return 42;\n}\nint main(void) { return answer(); }\n")
            .unwrap();
        succeed(Command::new("cc").args(["-g", "-O0", "-o"]).arg(&built).arg(&source)).unwrap();
        let symbols = output(Command::new("nm").arg(&built));
        let address = symbols.lines().find_map(|line| line.strip_suffix(" T answer")).unwrap();

        let prefix = out.join("graphmill-1.0");
        fs::create_dir_all(prefix.join("bin")).unwrap();
        let stripped = prefix.join("bin/graphmill");
        let packed = split(&built, &stripped, out, "graphmill-1.0").unwrap();
        assert_eq!(packed, out.join("graphmill-1.0-debug.tar.gz"));
        assert_eq!(Command::new(&stripped).status().unwrap().code(), Some(42));
        let sections = output(Command::new("readelf").arg("-SW").arg(&stripped));
        assert!(sections.contains(".gnu_debuglink"), "{sections}");
        assert!([".debug_line", ".symtab"].iter().all(|name| !sections.contains(name)), "{sections}");

        let line = || output(Command::new("addr2line").arg("-e").arg(&stripped).arg(address));
        assert!(line().starts_with("??"), "{}", line());
        succeed(Command::new("tar").arg("-C").arg(out).arg("-xzf").arg(&packed)).unwrap();
        assert!(line().contains("stand-in.c:"), "{}", line());
    }
}
