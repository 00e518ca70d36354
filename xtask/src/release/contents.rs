//! Contents that the files of a release must have, read from the files themselves.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{
    archive::{COMPLETIONS, output, sha256},
    bundle::{Bundle, Packed},
    metadata::Package,
};
use crate::target_dir;

/// Directories of every installation.
const DIRECTORIES: [&str; 2] = ["bin/", "share/"];
/// Files of every installation, besides completions.
const FILES: [&str; 6] = [
    "bin/graphmill",
    "share/doc/graphmill/README.md",
    "share/doc/graphmill/LICENSE-APACHE",
    "share/doc/graphmill/LICENSE-MIT",
    "share/man/man1/graphmill.1",
    "share/man/man1/graphmill-train.1",
];
/// Files of a Debian package, which has other directories, and compresses pages and changelogs.
const DEBIAN_FILES: [&str; 7] = [
    "usr/bin/graphmill",
    "usr/share/bash-completion/completions/graphmill",
    "usr/share/fish/vendor_completions.d/graphmill.fish",
    "usr/share/zsh/vendor-completions/_graphmill",
    "usr/share/man/man1/graphmill-train.1.gz",
    "usr/share/doc/graphmill/changelog.gz",
    "usr/share/doc/graphmill/copyright",
];

/// Checks the archive of the program, its debug information, the Debian package and the list of
/// parts.
///
/// # Errors
/// A file lacks something, or does not work.
pub(super) fn check(bundle: &Bundle, packed: &Packed) -> Result<()> {
    check_archive(bundle, &packed.archive)?;
    let debug = listed(&packed.debug)?;
    let has_information = debug.iter().any(|path| path.contains("/bin/.debug/") && !path.ends_with('/'));
    ensure!(has_information, "{} has no debug information: {debug:?}", packed.debug.display());
    if let Some(package) = &packed.package {
        check_package(bundle, package)?;
    }
    check_parts(bundle)
}

/// Checks the archive of the program: its files, their owners and paths, and that the program
/// starts from where a newcomer unpacks it.
///
/// # Errors
/// Something is missing, or the program does not start.
pub(super) fn check_archive(bundle: &Bundle, archive: &Path) -> Result<()> {
    let name = stem(archive);
    let paths = listed(archive)?;
    check_paths(&name, &DIRECTORIES, &paths).with_context(|| archive.display().to_string())?;
    let completions = COMPLETIONS.iter().map(|(_, path)| *path);
    for path in FILES.into_iter().chain(completions) {
        ensure!(paths.contains(&format!("{name}/{path}")), "{} has no {path}", archive.display());
    }
    let unpacked = tempfile::tempdir()?;
    output(Command::new("tar").arg("-C").arg(unpacked.path()).arg("-xzf").arg(archive))?;
    let prefix = unpacked.path().join(name);
    let version = output(Command::new(prefix.join("bin/graphmill")).arg("--version").env_clear())?;
    ensure!(version.trim() == format!("graphmill {}", bundle.version), "the program prints '{version}'");
    for (shell, path) in COMPLETIONS {
        let text = fs::read_to_string(prefix.join(path))?;
        ensure!(text.contains("graphmill"), "the completions of {shell} do not name the program: '{text}'");
    }
    for path in FILES.iter().filter(|path| path.ends_with(".1")) {
        let page = fs::read_to_string(prefix.join(path))?;
        ensure!(page.contains("\n.TH "), "{path} is not a manual page: '{page}'");
    }
    Ok(())
}

/// Checks that all paths lie in the directory `name`, in one of these directories of it: no path is
/// one of the machine that packed them.
fn check_paths(name: &str, directories: &[&str], paths: &[String]) -> Result<()> {
    for path in paths {
        let inside = path.strip_prefix(name).and_then(|rest| rest.strip_prefix('/'));
        let is_expected = |inside: &str| directories.iter().any(|of| inside.starts_with(of));
        let is_expected = inside.is_some_and(|inside| inside.is_empty() || is_expected(inside));
        let goes_up = path.split('/').any(|part| part == "..");
        ensure!(is_expected && !goes_up, "the path {path} is not in {name} below {directories:?}");
    }
    Ok(())
}

/// Checks the Debian package: version, and files with their owner.
fn check_package(bundle: &Bundle, package: &Path) -> Result<()> {
    let fields = output(Command::new("dpkg-deb").arg("--field").arg(package))?;
    for field in ["Package: graphmill", &format!("Version: {}-", bundle.version), "Depends: libc6"] {
        let has_field = fields.lines().any(|line| line.starts_with(field));
        ensure!(has_field, "{} has no field '{field}': {fields}", package.display());
    }
    let listing = output(Command::new("dpkg-deb").arg("--contents").arg(package))?;
    let mut paths = Vec::new();
    for line in listing.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let path = words.get(5).and_then(|path| path.strip_prefix("./")).unwrap_or_default();
        let is_of_root = words.get(1) == Some(&"root/root");
        ensure!(is_of_root && (path.is_empty() || path.starts_with("usr/")), "unexpected file: {line}");
        paths.push(path);
    }
    for path in DEBIAN_FILES {
        ensure!(paths.contains(&path), "{} has no {path}", package.display());
    }
    Ok(())
}

/// Checks the list of the program's parts.
fn check_parts(bundle: &Bundle) -> Result<()> {
    let path = bundle.parts_path();
    let parts: Value = serde_json::from_str(&fs::read_to_string(&path)?).context("the list of parts")?;
    ensure!(parts["metadata"]["component"]["version"] == bundle.version, "{}: version", path.display());
    let components = parts["components"].as_array().map_or(&[][..], Vec::as_slice);
    let has_address = |part: &Value| part["purl"].as_str().is_some_and(|url| url.starts_with("pkg:cargo/"));
    let is_whole = !components.is_empty() && components.iter().all(has_address);
    ensure!(is_whole, "{}: a part has no address, or there is no part", path.display());
    Ok(())
}

/// Checks the archive of the sources, and that the formula of Homebrew has its name and checksum.
///
/// # Errors
/// A file is missing, or the formula names another archive.
pub(super) fn check_sources(bundle: &Bundle, archive: &Path) -> Result<()> {
    let name = format!("graphmill-{}", bundle.version);
    let paths = listed(archive)?;
    check_paths(&name, &[""], &paths).with_context(|| archive.display().to_string())?;
    for path in ["Cargo.toml", "Cargo.lock", "LICENSE-MIT", "crates/graphmill/Cargo.toml"] {
        ensure!(paths.contains(&format!("{name}/{path}")), "{} has no {path}", archive.display());
    }
    let formula = fs::read_to_string(bundle.formula_path())?;
    let file = archive.file_name().unwrap_or_default().to_string_lossy();
    for text in [format!("/v{}/{file}\"", bundle.version), format!("sha256 \"{}\"", sha256(archive)?)] {
        ensure!(formula.contains(&text), "the formula does not name '{text}': {formula}");
    }
    Ok(())
}

/// Checks that every package that cargo has packed has sources, README and licences.
///
/// # Errors
/// A package or a file of it is missing.
pub(super) fn check_crates(packages: &[&Package]) -> Result<()> {
    for package in packages {
        let name = format!("{}-{}", package.name, package.version);
        let path = target_dir().join("package").join(format!("{name}.crate"));
        let paths = listed(&path)?;
        for file in ["Cargo.toml", "README.md", "LICENSE-APACHE", "LICENSE-MIT"] {
            ensure!(paths.contains(&format!("{name}/{file}")), "{} has no {file}", path.display());
        }
        let sources = format!("{name}/src/");
        ensure!(paths.iter().any(|path| path.starts_with(&sources)), "{} has no sources", path.display());
    }
    Ok(())
}

/// Checks that `SHA256SUMS` has the checksum of every other file in `out`.
///
/// # Errors
/// A file is missing from the list, or has another checksum.
pub(super) fn check_sums(out: &Path) -> Result<()> {
    let sums = fs::read_to_string(out.join("SHA256SUMS"))?;
    let mut left: Vec<PathBuf> = fs::read_dir(out)?.flatten().map(|entry| entry.path()).collect();
    left.retain(|path| path.is_file() && !path.ends_with("SHA256SUMS"));
    for line in sums.lines() {
        let (sum, name) = line.split_once("  ").with_context(|| format!("the line '{line}'"))?;
        ensure!(sha256(&out.join(name))? == sum, "SHA256SUMS has another checksum of {name}");
        left.retain(|path| !path.ends_with(name));
    }
    ensure!(left.is_empty(), "SHA256SUMS has no line of {left:?}");
    Ok(())
}

/// Name of an archive without `.tar.gz`.
fn stem(archive: &Path) -> String {
    let name = archive.file_name().unwrap_or_default().to_string_lossy();
    name.trim_end_matches(".tar.gz").to_owned()
}

/// Paths of a compressed archive.
fn listed(archive: &Path) -> Result<Vec<String>> {
    let listing = output(Command::new("tar").arg("-tzf").arg(archive))?;
    Ok(listing.lines().map(String::from).collect())
}

#[cfg(test)]
mod tests {
    use super::{
        super::archive::{checksums, lay_out, tarball},
        *,
    };

    /// Program with the commands that an installation needs; `version` is what it prints.
    fn program(version: &str) -> String {
        format!(
            "#!/bin/sh\ncase $1 in\n--version) echo graphmill {version};;\n\
             completions) echo complete -c graphmill;;\n\
             man) printf '\\n.TH graphmill 1\\n' >\"$2/graphmill.1\"\n\
             cp \"$2/graphmill.1\" \"$2/graphmill-train.1\";;\nesac\n"
        )
    }

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
    }

    /// Checks an archive of a program that prints `version`, after `change` of its directory.
    fn checked(version: &str, change: impl FnOnce(&Path)) -> Result<()> {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path();
        let path = out.join("program");
        fs::write(&path, program(version)).unwrap();
        let prefix = out.join("graphmill-1.0-linux");
        lay_out(root(), &path, &prefix).unwrap();
        change(&prefix);
        let archive = tarball(&prefix, out, "graphmill-1.0-linux").unwrap();
        check_archive(&Bundle { root: root(), out, version: "1.0" }, &archive)
    }

    #[test]
    fn archives_have_a_program_that_starts_with_pages_and_completions() {
        checked("1.0", |_| ()).unwrap();
        let fault = |version: &str, change: fn(&Path)| checked(version, change).unwrap_err().to_string();
        assert!(fault("0.9", |_| ()).contains("prints 'graphmill 0.9"));
        let without_page = |prefix: &Path| fs::remove_file(prefix.join(FILES[5])).unwrap();
        assert!(fault("1.0", without_page).ends_with("has no share/man/man1/graphmill-train.1"));
        let other_page = |prefix: &Path| fs::write(prefix.join(FILES[5]), "text").unwrap();
        assert!(fault("1.0", other_page).contains("is not a manual page"));
        let empty = |prefix: &Path| fs::write(prefix.join(COMPLETIONS[1].1), "").unwrap();
        assert!(fault("1.0", empty).starts_with("the completions of zsh"));
    }

    #[test]
    fn archives_have_no_path_of_the_machine_that_packs_them() {
        let check = |path: &str| check_paths("a", &DIRECTORIES, &[path.to_owned()]);
        check("a/").unwrap();
        check("a/bin/graphmill").unwrap();
        for path in ["/a/bin/", "ab/bin/", "bin/", "a/bin/../b", "a/root/target", "a/binary"] {
            assert!(check(path).is_err(), "{path}");
        }
        check_paths("a", &[""], &["a/Cargo.toml".to_owned()]).unwrap();
    }

    #[test]
    fn checksums_are_those_of_all_files() {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path();
        fs::write(out.join("a"), "first").unwrap();
        checksums(out).unwrap();
        check_sums(out).unwrap();
        fs::write(out.join("b"), "second").unwrap();
        assert!(check_sums(out).unwrap_err().to_string().contains("has no line of"));
        fs::remove_file(out.join("b")).unwrap();
        fs::write(out.join("a"), "other").unwrap();
        assert!(check_sums(out).unwrap_err().to_string().contains("another checksum of a"));
    }
}
