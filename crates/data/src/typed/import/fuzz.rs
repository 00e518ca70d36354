//! Entry points of the fuzzer (feature `fuzz`) to private readers.

use std::path::Path;

use graphmill_core::Result;

use super::files::Files;

/// Maximum length of a file that is read.
const MAX_LENGTH: u64 = 1 << 20;

/// Lists the files of the archive at `path`, and reads them.
///
/// # Errors
/// The archive or a file cannot be read, or a file is too long.
pub fn archive(path: &Path) -> Result<()> {
    let files = Files::open(path)?;
    files.names().iter().try_for_each(|name| files.bytes(name, MAX_LENGTH).map(drop))
}
