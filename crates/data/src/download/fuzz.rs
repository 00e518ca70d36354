//! Ways in for the fuzzer (feature `fuzz`): readers that have no public one.

use std::path::Path;

use graphmill_core::progress::Quiet;

use super::{Error, Result, catalogue, checksum::Sums, http, transfer, unpack};

/// Unpacks `archive` into `dir`; the bytes of its files.
pub fn unpack(archive: &Path, dir: &Path) -> Result<u64> {
    unpack::unpack(archive, dir, &Quiet)
}

/// Reads the checksums of the directory `dir`, sets one, and reads them again; whether it is there then.
pub fn sums(dir: &Path, name: &str) -> Result<bool> {
    let sum = "0123456789abcdef".repeat(4);
    Sums::read(dir)?.set(name, &sum)?;
    Ok(Sums::read(dir)?.get(name) == Some(&sum))
}

/// Reads a collection of the catalogue.
pub fn catalogue(text: &str) -> Result<()> {
    catalogue::parse(text).map(drop).map_err(|message| Error::wrong("catalogue", message))
}

/// Reads the note beside a part, and what a server says of a range; whether both mean something.
pub fn transfer(note: &[u8], range: &str) -> bool {
    transfer::is_note(note) && http::parse_range(range).is_some()
}
