//! Download of a dataset's files into a directory.

use std::{fs, path::Path};

use graphmill_core::progress::{Progress, Unit};
use serde::Serialize;

use super::{
    Entry, Error, Options, Result,
    catalogue::File,
    checksum::{self, Sums, hex},
    http::Client,
    transfer::{self, Job},
    unpack,
};
use crate::atomic;

/// Reference that a file was verified against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Check {
    /// Checksum in the catalogue.
    Published,
    /// Checksum recorded when the file was first fetched.
    Recorded,
    /// None: no checksum is published, or verification is disabled.
    Nothing,
}

/// Origin of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The file existed.
    Present,
    /// The beginning of the file existed.
    Resumed,
    /// The server sent the whole file.
    Fetched,
}

/// File of the dataset that is now in the directory.
#[derive(Clone, Debug, Serialize)]
pub struct Got {
    /// File name in the directory.
    pub name: String,
    /// Length of the file.
    pub bytes: u64,
    /// Checksum of the file.
    pub sha256: String,
    /// Origin of the file.
    pub origin: Origin,
    /// Reference that it was verified against.
    pub checked: Check,
}

/// Summary of a download.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Files of the dataset.
    pub files: Vec<Got>,
    /// Bytes of the unpacked archives.
    pub unpacked_bytes: u64,
}

/// Times the approximate length of a file that are accepted.
const MAX_FACTOR: u64 = 4;

/// Fetches the files of `entry` into the directory `dir`, which is created if it is missing, and
/// unpacks its archives there. Existing valid files are skipped. `SHA256SUMS` in the directory
/// records every file's checksum.
///
/// # Errors
/// The server cannot be reached or refuses, a length or checksum differs, the disk is full, or
/// `progress` cancels. Received data stays; the same call resumes.
pub fn download(entry: &Entry, dir: &Path, options: &Options, progress: &dyn Progress) -> Result<Report> {
    if let Some(how) = &entry.manual {
        return Err(Error::Manual { name: entry.name.clone(), how: how.clone() });
    }
    atomic::create_dirs(&mut atomic::Real, dir)?;
    let mut sums = Sums::read(dir)?;
    check_free_space(entry, dir)?;
    let client = Client::new(options.idle, options.proxy);
    let mut files = Vec::new();
    for file in &entry.files {
        files.push(one(&client, entry, file, dir, options, &mut sums, progress)?);
    }
    let mut unpacked_bytes = 0;
    for file in entry.files.iter().filter(|file| file.is_archive()) {
        unpacked_bytes += unpack::unpack(&dir.join(&file.name), dir, progress)?;
    }
    Ok(Report { files, unpacked_bytes })
}

/// Checks the free space before the first byte is fetched.
fn check_free_space(entry: &Entry, dir: &Path) -> Result<()> {
    let there = |name: &str| fs::metadata(dir.join(name)).map_or(0, |meta| meta.len());
    let missing = |file: &File| {
        let have = there(&file.name).max(there(&format!("{}.part", file.name)));
        file.size().unwrap_or(0).saturating_sub(have)
    };
    transfer::check_space(dir, entry.files.iter().map(missing).sum())
}

/// Fetches one file unless a valid copy exists.
fn one(
    client: &Client,
    entry: &Entry,
    file: &File,
    dir: &Path,
    options: &Options,
    sums: &mut Sums,
    progress: &dyn Progress,
) -> Result<Got> {
    let path = dir.join(&file.name);
    let recorded = sums.get(&file.name).map(str::to_string);
    let expected = match (&file.sha256, &recorded) {
        _ if !options.verify => None,
        (Some(sum), _) => Some((sum.as_str(), "the published one", Check::Published)),
        (None, Some(sum)) => Some((sum.as_str(), "the one recorded in SHA256SUMS", Check::Recorded)),
        (None, None) => None,
    };
    let bytes = file.bytes.filter(|_| options.verify);
    let (bytes, sha256, origin) = if path.exists() {
        let length = fs::metadata(&path).map_err(|e| Error::io(&path, "examine", e))?.len();
        progress.stage(&format!("checking {}", file.name), Some(length), Unit::Bytes);
        let (hash, length) = checksum::of_file(&path, progress)?;
        let sum = hex(hash);
        if let Some((known, who, _)) = expected.filter(|(known, ..)| *known != sum) {
            let message = format!(
                "its SHA-256 is {sum}, but {who} is {known}; delete the file and run the command again"
            );
            return Err(Error::wrong(&path, message));
        }
        if let Some(known) = bytes.filter(|&known| known != length) {
            let message = format!(
                "its length is {length} bytes, but {known} are expected; delete the file and run the command \
                 again"
            );
            return Err(Error::wrong(&path, message));
        }
        (length, sum, Origin::Present)
    } else {
        let url = file.address(&entry.name, options.mirror.as_deref());
        let sha256 = expected.map(|(sum, who, _)| (sum, who));
        let about = file.about.filter(|_| options.verify);
        let limit = about.map(|about| about.saturating_mul(MAX_FACTOR));
        let job = Job { url: &url, path: &path, bytes, limit, sha256 };
        let arrived = transfer::fetch(client, &job, options, progress)?;
        let origin = if arrived.resumed { Origin::Resumed } else { Origin::Fetched };
        (arrived.bytes, arrived.sha256, origin)
    };
    sums.set(&file.name, &sha256)?;
    let checked = expected.map_or(Check::Nothing, |(.., check)| check);
    if checked == Check::Nothing {
        let why = if options.verify { "no checksum is published" } else { "as requested" };
        progress.note(&format!("{}: not verified, {why}; recorded {sha256}", file.name));
    }
    Ok(Got { name: file.name.clone(), bytes, sha256, origin, checked })
}
