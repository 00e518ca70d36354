//! Entry points of the fuzzer (feature `fuzz`) to private parsers.

use std::path::Path;

use graphmill_core::progress::Quiet;

use super::{Error, Result, catalogue, checksum::Sums, http, transfer, unpack};

/// Unpacks `archive` into `dir`; returns the bytes of its files.
pub fn unpack(archive: &Path, dir: &Path) -> Result<u64> {
    unpack::unpack(archive, dir, &Quiet)
}

/// Reads the checksums of the directory `dir`, sets one, and reads them again; returns whether it
/// is present.
pub fn sums(dir: &Path, name: &str) -> Result<bool> {
    let sum = "0123456789abcdef".repeat(4);
    Sums::read(dir)?.set(name, &sum)?;
    Ok(Sums::read(dir)?.get(name) == Some(&sum))
}

/// Parses a collection of the catalogue.
pub fn catalogue(text: &str) -> Result<()> {
    catalogue::parse(text).map(drop).map_err(|message| Error::wrong("catalogue", message))
}

/// Parses the record of a partial download and a server's range; returns whether both are valid.
pub fn transfer(note: &[u8], range: &str) -> bool {
    transfer::is_note(note) && http::parse_range(range).is_some()
}
