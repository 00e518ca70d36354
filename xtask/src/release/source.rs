//! Archive of the sources, and the Homebrew formula that names it.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use super::archive::succeed;

/// Address below which the files of a release lie.
const RELEASES: &str = "https://github.com/graphmill/graphmill/releases/download";
/// Line of the formula behind which address and checksum stand.
const HOMEPAGE: &str = "  homepage ";

/// Packs the sources of the current commit as `graphmill-VERSION-source.tar.gz`.
///
/// # Errors
/// Git fails.
pub(super) fn archive(root: &Path, out: &Path, version: &str) -> Result<PathBuf> {
    let path = out.join(format!("graphmill-{version}-source.tar.gz"));
    let mut git = Command::new("git");
    git.args(["archive", "--format=tar.gz"]).arg(format!("--prefix=graphmill-{version}/")).arg("--output");
    succeed(git.arg(&path).arg("HEAD").current_dir(root))?;
    Ok(path)
}

/// Completes the text of the formula by the address and the checksum of the archive with this name.
///
/// # Errors
/// The formula names no homepage.
pub(super) fn formula(text: &str, version: &str, name: &str, sha256: &str) -> Result<String> {
    let line = text.lines().find(|line| line.starts_with(HOMEPAGE)).context("the formula has no homepage")?;
    let filled = format!("{line}\n  url \"{RELEASES}/v{version}/{name}\"\n  sha256 \"{sha256}\"");
    Ok(text.replacen(line, &filled, 1))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{super::archive::git, *};

    #[test]
    fn the_formula_names_the_archive_of_the_sources() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let text = fs::read_to_string(root.join("packaging/homebrew/graphmill.rb")).unwrap();
        let filled = formula(&text, "1.0.0", "graphmill-1.0.0-source.tar.gz", "ab").unwrap();
        let url = format!("{RELEASES}/v1.0.0/graphmill-1.0.0-source.tar.gz");
        let expected = format!("graphmill\"\n  url \"{url}\"\n  sha256 \"ab\"\n  license");
        assert!(filled.contains(&expected), "{filled}");
        assert_eq!(filled.lines().count(), text.lines().count() + 2);
        assert!(formula("class Graphmill\n", "1", "a", "b").is_err());
    }

    #[test]
    fn archives_hold_the_committed_files() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let git = |words: &[&str]| git(root, words);
        git(&["init", "--quiet"]);
        fs::write(root.join("a"), "committed").unwrap();
        git(&["add", "a"]);
        git(&["commit", "--quiet", "--message", "a"]);
        fs::write(root.join("b"), "not committed").unwrap();
        let path = archive(root, root, "1.0.0").unwrap();
        let listing = Command::new("tar").arg("-tzf").arg(&path).output().unwrap().stdout;
        assert_eq!(String::from_utf8(listing).unwrap(), "graphmill-1.0.0/\ngraphmill-1.0.0/a\n");
    }
}
