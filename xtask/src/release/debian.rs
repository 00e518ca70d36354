//! The program as a Debian package.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use super::archive::{output, succeed};

/// Maintainer as control files name it.
const MAINTAINER: &str = "Graphmill maintainers <graphmill@users.noreply.github.com>";
/// Address of the project.
const HOMEPAGE: &str = "https://github.com/graphmill/graphmill";
/// Number of the package among those of one version.
const REVISION: &str = "1";

/// Compression of a package.
#[derive(Clone, Copy)]
pub(super) enum Compression {
    /// That of the distribution, for a release.
    Usual,
    /// The fastest, for tests.
    Fast,
}

impl Compression {
    /// Words of `dpkg-deb`.
    fn words(self) -> &'static [&'static str] {
        match self {
            Self::Usual => &[],
            Self::Fast => &["-Zgzip", "-z1"],
        }
    }
}

/// Builds a Debian package of an installation below `prefix`, if `dpkg-deb` is installed.
///
/// # Errors
/// A program fails, or a file cannot be written.
pub(super) fn build(
    root: &Path,
    prefix: &Path,
    out: &Path,
    version: &str,
    compression: Compression,
) -> Result<Option<PathBuf>> {
    let output = Command::new("dpkg").arg("--print-architecture").output();
    let Some(architecture) = output.ok().filter(|output| output.status.success()) else { return Ok(None) };
    let architecture = String::from_utf8(architecture.stdout)?.trim().to_owned();
    let version = format!("{version}-{REVISION}");
    let tree = out.join("debian");
    let usr = tree.join("usr");
    fs::create_dir_all(tree.join("DEBIAN"))?;
    succeed(Command::new("cp").arg("-a").arg(prefix).arg(&usr))?;
    // completions of packages have another directory than those of administrators
    let functions = usr.join("share/zsh/site-functions");
    if functions.is_dir() {
        fs::rename(&functions, usr.join("share/zsh/vendor-completions"))?;
    }
    compress_pages(&usr.join("share/man/man1"))?;
    documents(root, &usr.join("share/doc/graphmill"), &version)?;
    succeed(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(&tree))?;

    let program = fs::read(usr.join("bin/graphmill"))?;
    let libc = newest_libc(&program).map_or_else(|| "libc6".into(), |needed| format!("libc6 (>= {needed})"));
    let control = format!(
        "Package: graphmill\nVersion: {version}\nArchitecture: {architecture}\nSection: science\n\
         Priority: optional\nInstalled-Size: {}\nDepends: {libc}, libgcc-s1 (>= 3.0)\n\
         Maintainer: {MAINTAINER}\nHomepage: {HOMEPAGE}\n\
         Description: trains graph neural networks on graphs larger than memory\n \
         One command imports tables, trains and predicts. The results of a run repeat\n \
         bit for bit, for any number of threads.\n",
        kibibytes(&usr)?
    );
    fs::write(tree.join("DEBIAN/control"), control)?;
    let sums = "find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum > DEBIAN/md5sums";
    succeed(Command::new("sh").args(["-c", sums]).current_dir(&tree))?;
    let path = out.join(format!("graphmill_{version}_{architecture}.deb"));
    let mut pack = Command::new("dpkg-deb");
    pack.args(compression.words()).args(["--build", "--root-owner-group"]);
    pack.arg(&tree).arg(&path).stdout(Stdio::null());
    succeed(&mut pack)?;
    fs::remove_dir_all(&tree)?;
    Ok(Some(path))
}

/// Compresses the manual pages.
fn compress_pages(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        compress(&entry?.path())?;
    }
    Ok(())
}

/// Replaces a file by `FILE.gz`, without its name and time.
fn compress(path: &Path) -> Result<()> {
    succeed(Command::new("gzip").args(["-9nf"]).arg(path))
}

/// Replaces the documents of other systems by those of Debian: changelogs and the licences.
fn documents(root: &Path, directory: &Path, version: &str) -> Result<()> {
    let notes = directory.join("CHANGELOG.md");
    fs::rename(&notes, directory.join("changelog"))?;
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        fs::remove_file(directory.join(name))?;
    }
    let license = fs::read_to_string(root.join("LICENSE-MIT")).context("LICENSE-MIT")?;
    fs::write(directory.join("copyright"), copyright(&license)?)?;
    let date = Command::new("git").args(["log", "-1", "--format=%aD"]).current_dir(root).output();
    let date = date.ok().filter(|output| output.status.success() && !output.stdout.is_empty());
    let date = date.map_or_else(|| "Thu, 01 Jan 1970 00:00:00 +0000\n".into(), |output| output.stdout);
    let date = String::from_utf8(date)?;
    let changes = format!(
        "graphmill ({version}) unstable; urgency=medium\n\n  * Upstream release; changelog.gz lists its \
         changes.\n\n -- {MAINTAINER}  {}\n",
        date.trim()
    );
    fs::write(directory.join("changelog.Debian"), changes)?;
    compress(&directory.join("changelog"))?;
    compress(&directory.join("changelog.Debian"))
}

/// File with the copyright and both licences, from the text of the MIT licence.
fn copyright(license: &str) -> Result<String> {
    let owner = license.lines().find_map(|line| line.strip_prefix("Copyright (c) "));
    let owner = owner.context("LICENSE-MIT names no owner")?;
    let (_, terms) = license.split_once(owner).unwrap_or_default();
    let lines =
        terms.trim().lines().map(|line| if line.is_empty() { " .".into() } else { format!(" {line}") });
    let terms: Vec<String> = lines.collect();
    Ok(format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: graphmill\nSource: {HOMEPAGE}\n\n\
         Files: *\nCopyright: {owner}\nLicense: Expat or Apache-2.0\n\n\
         License: Expat\n{}\n\n\
         License: Apache-2.0\n On Debian systems, the text of this licence is in\n \
         /usr/share/common-licenses/Apache-2.0.\n",
        terms.join("\n")
    ))
}

/// Size of a directory in KiB.
fn kibibytes(directory: &Path) -> Result<u64> {
    let text = output(Command::new("du").args(["-sk", "--apparent-size"]).arg(directory))?;
    let Some(size) = text.split_whitespace().next().and_then(|word| word.parse().ok()) else {
        bail!("du printed '{text}'");
    };
    Ok(size)
}

/// Newest version of the C library that a program names, such as `2.34`.
fn newest_libc(program: &[u8]) -> Option<String> {
    const PREFIX: &[u8] = b"GLIBC_";
    let positions = program.windows(PREFIX.len()).enumerate().filter(|(_, window)| *window == PREFIX);
    let versions = positions.filter_map(|(at, _)| {
        let rest = &program[at + PREFIX.len()..];
        let end = rest.iter().position(|byte| *byte == 0)?;
        let (major, minor) = std::str::from_utf8(&rest[..end]).ok()?.split_once('.')?;
        // older versions have a third number, which is never the newest
        let minor = minor.split('.').next()?;
        Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
    });
    versions.max().map(|(major, minor)| format!("{major}.{minor}"))
}

#[cfg(test)]
mod tests {
    use super::{super::archive, *};

    #[test]
    fn packages_name_the_c_library_that_the_program_needs() {
        let names = b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0GLIBC_PRIVATE\0GLIBC_2.40";
        assert_eq!(newest_libc(names).as_deref(), Some("2.34"));
        assert_eq!(newest_libc(b"static"), None);
    }

    #[test]
    fn packages_have_the_files_that_debian_expects() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        fs::write(&program, archive::tests::PROGRAM).unwrap();
        let prefix = directory.path().join("graphmill-1.0");
        archive::lay_out(root, &program, &prefix).unwrap();
        let Some(package) = build(root, &prefix, directory.path(), "1.0", Compression::Fast).unwrap() else {
            return;
        };
        assert!(package.file_name().unwrap().to_str().unwrap().starts_with("graphmill_1.0-1_"));
        assert!(!directory.path().join("debian").exists());

        let unpacked = directory.path().join("unpacked");
        succeed(Command::new("dpkg-deb").arg("-R").arg(&package).arg(&unpacked)).unwrap();
        let documents = unpacked.join("usr/share/doc/graphmill");
        for path in [
            "usr/bin/graphmill",
            "usr/share/man/man1/graphmill.1.gz",
            "usr/share/zsh/vendor-completions/_graphmill",
            "usr/share/doc/graphmill/changelog.gz",
            "usr/share/doc/graphmill/changelog.Debian.gz",
            "DEBIAN/md5sums",
        ] {
            assert!(unpacked.join(path).is_file(), "{path}");
        }
        assert!(
            !documents.join("LICENSE-MIT").exists()
                && !unpacked.join("usr/share/zsh/site-functions").exists()
        );
        let text = fs::read_to_string(documents.join("copyright")).unwrap();
        assert!(text.contains("License: Expat or Apache-2.0") && text.contains("\n .\n"), "{text}");
        let control = fs::read_to_string(unpacked.join("DEBIAN/control")).unwrap();
        assert!(control.contains("Version: 1.0-1\n") && control.contains("Depends: libc6, "), "{control}");
    }
}
