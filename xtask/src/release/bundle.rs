//! Files of a release that need no compiler: those of the sources, and those around a program.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::{
    archive,
    debian::{self, Compression},
    debug,
    metadata::Metadata,
    sbom, source,
};

/// Formula of Homebrew, without the address of the sources.
const FORMULA: &str = "packaging/homebrew/graphmill.rb";

/// Directory of a release's files, with the repository and the version from which they are built.
pub(super) struct Bundle<'a> {
    pub(super) root: &'a Path,
    pub(super) out: &'a Path,
    pub(super) version: &'a str,
}

/// Files around a program.
pub(super) struct Packed {
    /// Archive of the program, whose directory has its name.
    pub(super) archive: PathBuf,
    /// Archive of the debug information.
    pub(super) debug: PathBuf,
    /// Debian package, if one was wanted and `dpkg-deb` is installed.
    pub(super) package: Option<PathBuf>,
    /// Bytes of the program.
    pub(super) bytes: u64,
}

impl Bundle<'_> {
    /// Path of the list of the program's parts.
    pub(super) fn parts_path(&self) -> PathBuf {
        self.out.join(format!("graphmill-{}.cdx.json", self.version))
    }

    /// Path of the formula of Homebrew.
    pub(super) fn formula_path(&self) -> PathBuf {
        self.out.join("graphmill.rb")
    }

    /// Writes the list of the program's parts.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn parts(&self, metadata: &Metadata) -> Result<()> {
        let parts = sbom::document(metadata, "graphmill", self.version);
        Ok(fs::write(self.parts_path(), serde_json::to_string_pretty(&parts)?)?)
    }

    /// Packs the sources, and completes the formula of Homebrew by their checksum. Returns the path
    /// of the archive.
    ///
    /// # Errors
    /// Git fails, or a file cannot be written.
    pub(super) fn sources(&self) -> Result<PathBuf> {
        let packed = source::archive(self.root, self.out, self.version)?;
        let name = packed.file_name().unwrap_or_default().to_string_lossy();
        let formula = fs::read_to_string(self.root.join(FORMULA)).context(FORMULA)?;
        let formula = source::formula(&formula, self.version, &name, &archive::sha256(&packed)?)?;
        fs::write(self.formula_path(), formula)?;
        Ok(packed)
    }

    /// Splits the debug information of the program `built` for `platform` off and packs both, and a
    /// Debian package, if one is wanted, with its compression. `stripped` becomes the program
    /// without the information.
    ///
    /// # Errors
    /// A tool is missing or fails.
    pub(super) fn program(
        &self,
        platform: &str,
        built: &Path,
        stripped: &Path,
        package: Option<Compression>,
    ) -> Result<Packed> {
        let name = format!("graphmill-{}-{platform}", self.version);
        let prefix = self.out.join(&name);
        let debug = debug::split(built, stripped, self.out, &name)?;
        let bytes = archive::lay_out(self.root, stripped, &prefix)?;
        let archive = archive::tarball(&prefix, self.out, &name)?;
        let package = match package {
            Some(compression) => debian::build(self.root, &prefix, self.out, self.version, compression)?,
            None => None,
        };
        fs::remove_dir_all(&prefix)?;
        Ok(Packed { archive, debug, package, bytes })
    }
}
