//! PTX of the kernels, which a machine's driver compiles for its device.
//!
//! The library embeds `ptx.zip`, which has one file for each source in `kernels/`; `ptx.sha256`
//! lists their checksums and their kernels. `cargo xtask cuda compile` writes both.

#![forbid(unsafe_code)]

use std::io::{Cursor, Read as _};

use sha2::{Digest as _, Sha256};
use zip::ZipArchive;

use crate::{Error, Result};

/// Bundle of all modules' PTX.
static BUNDLE: &[u8] = include_bytes!("../ptx.zip");

/// Compiled form of one file of kernels.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    /// Name of the file, without extension.
    pub name: &'static str,
    /// SHA-256 of the PTX, in hexadecimal digits.
    pub sha256: &'static str,
    /// Kernels that the PTX defines.
    pub kernels: &'static [&'static str],
}

/// All modules, sorted by name.
pub static MODULES: &[Module] = include!(concat!(env!("OUT_DIR"), "/ptx_table.rs"));

impl Module {
    /// Unpacks the PTX. A device loads each module once, so the text is not cached.
    ///
    /// # Errors
    /// [`Error::DamagedPtx`] if the embedded bundle is damaged or does not match its checksums.
    pub fn text(&self) -> Result<String> {
        self.unpack(BUNDLE)
    }

    /// Unpacks the PTX from a bundle and compares its checksum.
    fn unpack(&self, bundle: &[u8]) -> Result<String> {
        let damaged = |why: String| Error::DamagedPtx { module: self.name.to_owned(), why };
        let mut zip = ZipArchive::new(Cursor::new(bundle)).map_err(|why| damaged(why.to_string()))?;
        let mut file = zip.by_name(&format!("{}.ptx", self.name)).map_err(|why| damaged(why.to_string()))?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(|why| damaged(why.to_string()))?;
        let found: String = Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
        if found != self.sha256 {
            return Err(damaged(format!("its SHA-256 is {found}, expected {}", self.sha256)));
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(name: &str) -> &'static Module {
        MODULES.iter().find(|module| module.name == name).unwrap()
    }

    #[test]
    fn damaged_bundles_are_errors_with_the_fix() {
        let module = module("selftest");
        let error = module.unpack(&BUNDLE[..BUNDLE.len() / 2]).unwrap_err().to_string();
        assert!(error.starts_with("selftest.ptx cannot be unpacked: "), "{error}");
        assert!(error.contains("cargo xtask cuda compile"), "{error}");
        assert!(matches!(module.unpack(&[]), Err(Error::DamagedPtx { .. })));
    }

    #[test]
    fn modules_of_another_bundle_are_errors() {
        let (selftest, scan) = (module("selftest"), module("scan"));
        let stale = Module { sha256: scan.sha256, ..*selftest };
        let error = stale.text().unwrap_err().to_string();
        assert!(error.contains(selftest.sha256) && error.contains(scan.sha256), "{error}");
        assert!(Module { name: "missing", ..*selftest }.text().is_err());
    }

    #[test]
    fn damaged_bytes_never_change_the_text() {
        let module = module("long_rows");
        let whole = module.text().unwrap();
        let mut bundle = BUNDLE.to_vec();
        for at in (0..bundle.len()).step_by(bundle.len() / 500) {
            bundle[at] ^= 0x55;
            if let Ok(text) = module.unpack(&bundle) {
                assert_eq!(text, whole, "byte {at}");
            }
            bundle[at] ^= 0x55;
        }
    }
}
