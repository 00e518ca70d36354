//! The program for other machines: an archive, and the checksums of all files.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

/// Bytes that the stripped program may have.
const MAX_BYTES: u64 = 20 << 20;
/// Features beyond the default ones: `graphmill.serve` of the wheel starts the service.
pub(super) const FEATURES: &str = "graphmill/serve";
/// Words of cargo that build the program with line tables for debuggers; without these settings,
/// the profile `dist` has no debug information.
pub(super) const BUILD: [&str; 11] = [
    "--locked",
    "--profile",
    "dist",
    "-p",
    "graphmill",
    "--features",
    FEATURES,
    "--config",
    "profile.dist.debug=\"line-tables-only\"",
    "--config",
    "profile.dist.strip=\"none\"",
];
/// Shells with the path of their completions.
pub(super) const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/graphmill"),
    ("zsh", "share/zsh/site-functions/_graphmill"),
    ("fish", "share/fish/vendor_completions.d/graphmill.fish"),
];

/// Runs a program and fails if it does.
pub(super) fn succeed(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}");
    if !command.status().with_context(|| shown.clone())?.success() {
        bail!("{shown} failed");
    }
    Ok(())
}

/// Runs a program and returns its output as text.
pub(super) fn output(command: &mut Command) -> Result<String> {
    let shown = format!("{command:?}");
    let output = command.stderr(Stdio::inherit()).output().with_context(|| shown.clone())?;
    if !output.status.success() {
        bail!("{shown} failed");
    }
    String::from_utf8(output.stdout).with_context(|| format!("the output of {shown}"))
}

/// Runs git in a repository of a test.
#[cfg(test)]
pub(super) fn git(root: &Path, words: &[&str]) {
    let user = ["-c", "user.name=a", "-c", "user.email=a@example.org"];
    succeed(Command::new("git").args(user).args(words).current_dir(root)).unwrap();
}

/// Builds the program for this machine; returns its path.
pub(super) fn build() -> Result<PathBuf> {
    succeed(crate::cargo().arg("build").args(BUILD))?;
    Ok(crate::target_dir().join("dist/graphmill"))
}

/// Lays out the files of an installation below `prefix`: the program, completions, manual pages and
/// licences. Returns the bytes of the program.
pub(super) fn lay_out(root: &Path, program: &Path, prefix: &Path) -> Result<u64> {
    let own = prefix.join("bin/graphmill");
    let documents = prefix.join("share/doc/graphmill");
    for directory in [prefix.join("bin"), prefix.join("share/man/man1"), documents.clone()] {
        fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    }
    fs::copy(program, &own)?;
    fs::set_permissions(&own, fs::Permissions::from_mode(0o755))?;
    for (shell, path) in COMPLETIONS {
        let written = output(Command::new(&own).args(["completions", shell]))?;
        let path = prefix.join(path);
        fs::create_dir_all(path.parent().unwrap_or(prefix))?;
        fs::write(path, written)?;
    }
    succeed(Command::new(&own).arg("man").arg(prefix.join("share/man/man1")).stdout(Stdio::null()))?;
    for name in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        fs::copy(root.join(name), documents.join(name)).with_context(|| name.to_string())?;
    }
    Ok(fs::metadata(&own)?.len())
}

/// Fails if the program is too large.
pub(super) fn check_size(bytes: u64) -> Result<()> {
    eprintln!("── release: the program has {:.1} MB", bytes as f64 / 1e6);
    if bytes > MAX_BYTES {
        bail!("the program has {bytes} bytes; at most {MAX_BYTES} are allowed");
    }
    Ok(())
}

/// Packs `prefix` as `NAME.tar.gz`.
pub(super) fn tarball(prefix: &Path, out: &Path, name: &str) -> Result<PathBuf> {
    let path = out.join(format!("{name}.tar.gz"));
    let (parent, folder) = (prefix.parent().unwrap_or(prefix), prefix.file_name().unwrap_or_default());
    let fixed = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=2026-01-01"];
    succeed(Command::new("tar").args(fixed).arg("-C").arg(parent).arg("-czf").arg(&path).arg(folder))?;
    Ok(path)
}

/// Checksum of a file in hexadecimal digits.
pub(super) fn sha256(path: &Path) -> Result<String> {
    let digest = Sha256::digest(fs::read(path).with_context(|| path.display().to_string())?);
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Writes `SHA256SUMS` of the files in `out`.
pub(super) fn checksums(out: &Path) -> Result<()> {
    let mut files: Vec<PathBuf> = fs::read_dir(out)?.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.is_file());
    files.sort();
    let mut sums = String::new();
    for path in files {
        sums += &format!("{}  {}\n", sha256(&path)?, path.file_name().unwrap_or_default().to_string_lossy());
    }
    fs::write(out.join("SHA256SUMS"), sums)?;
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Program with the two commands that the layout needs.
    pub(in super::super) const PROGRAM: &str = "#!/bin/sh\ncase $1 in\ncompletions) echo complete -c $2;;\n\
                           man) echo page > \"$2/graphmill.1\";;\nesac\n";

    #[test]
    fn installations_are_laid_out_packed_and_summed() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let (program, out) = (directory.path().join("program"), directory.path().join("out"));
        fs::write(&program, PROGRAM).unwrap();
        let prefix = out.join("graphmill-1.0");
        assert_eq!(lay_out(root, &program, &prefix).unwrap(), PROGRAM.len() as u64);
        for (shell, path) in COMPLETIONS {
            assert_eq!(fs::read_to_string(prefix.join(path)).unwrap(), format!("complete -c {shell}\n"));
        }
        assert!(prefix.join("share/man/man1/graphmill.1").is_file());
        assert!(prefix.join("share/doc/graphmill/LICENSE-MIT").is_file());

        let packed = tarball(&prefix, &out, "graphmill-1.0").unwrap();
        let listing = Command::new("tar").arg("-tzf").arg(&packed).output().unwrap();
        let listing = String::from_utf8(listing.stdout).unwrap();
        assert!(listing.lines().any(|line| line == "graphmill-1.0/bin/graphmill"), "{listing}");
        let bytes = fs::read(&packed).unwrap();
        assert_eq!(bytes, fs::read(tarball(&prefix, &out, "graphmill-1.0").unwrap()).unwrap());
        fs::remove_dir_all(&prefix).unwrap();
        checksums(&out).unwrap();
        let sums = fs::read_to_string(out.join("SHA256SUMS")).unwrap();
        assert_eq!(sums.lines().count(), 1, "{sums}");

        assert!(check_size(1 << 20).is_ok() && check_size(1 << 30).is_err());
    }
}
