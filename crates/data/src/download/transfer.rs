//! Download of one file from one address. `NAME.part` grows across broken connections and killed
//! processes until it is complete; then it is verified, synced and renamed to `NAME`.
//!
//! The record `NAME.part.json` holds the address and the version of the file (entity tag, date,
//! length) to which the partial data belongs. A part without a record, or with that of another
//! address, starts over. The server is asked for the rest with `Range` and `If-Range` (RFC 9110,
//! sections 13.1.5 and 14.2): a server that cannot resume, or has another version, sends the whole
//! file, and the part starts over. The checksum is computed as the bytes arrive; data of an earlier
//! process is read once.

use std::{
    fs::{self, File},
    io::{self, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use graphmill_core::{
    disk,
    progress::{Progress, Unit},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use ureq::BodyReader;

use super::{
    Error, Options, Result,
    checksum::{self, hex},
    http::{self, Client, Reply, Version},
};
use crate::atomic::{self, Disk, Real, suffixed};

/// Longest delay between two attempts.
const MAX_DELAY: Duration = Duration::from_secs(60);

/// File to fetch.
pub(crate) struct Job<'a> {
    pub(crate) url: &'a str,
    /// Destination path; its directory exists.
    pub(crate) path: &'a Path,
    /// Required length, if known.
    pub(crate) bytes: Option<u64>,
    /// Most bytes to accept, if the length is not known.
    pub(crate) limit: Option<u64>,
    /// Required SHA-256, if known, and its origin.
    pub(crate) sha256: Option<(&'a str, &'static str)>,
}

/// Completed download.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
    /// True if an earlier process fetched its beginning.
    pub(crate) resumed: bool,
}

/// Fetches a file. An interruption keeps the partial data, unless its bytes are known to be wrong.
pub(crate) fn fetch(
    client: &Client,
    job: &Job<'_>,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Arrived> {
    let mut part = Part::open(job, progress)?;
    part.keep_if_resumable(job)?;
    let mut resumed = part.length > 0;
    let mut reached = part.length > 0;
    let (mut furthest, mut failures) = (part.length, 0);
    while part.version.total.is_none_or(|total| part.length < total) {
        let reason = match client.get(job.url, part.length, &part.version)? {
            Ok(Reply::Bytes { start, version, body }) => {
                reached = true;
                if part.length > 0 && (start != part.length || !version.agrees(&part.version)) {
                    progress.note(&format!(
                        "{}: starting over, because the server cannot resume the partial file",
                        name(job.path)
                    ));
                    part.restart()?;
                    resumed = false;
                }
                if start == part.length {
                    part.accept(job, version)?;
                    let total = part.version.total.or(job.bytes);
                    progress.stage(&format!("fetching {}", name(job.path)), total, Unit::Bytes);
                    progress.resume(part.length);
                    match part.receive(job, body, progress)? {
                        None => break,
                        Some(reason) => reason,
                    }
                } else {
                    format!("the server began at byte {start}")
                }
            }
            Ok(Reply::Beyond(total)) if total == Some(part.length) => break,
            Ok(Reply::Beyond(_)) => {
                part.restart()?;
                resumed = false;
                "the server's file is shorter than the partial file".to_string()
            }
            Ok(Reply::Later(reason)) => reason,
            Err(error) if http::is_unreachable(&error) && !reached => {
                return Err(Error::refused(job.url, http::format_error(&error)));
            }
            Err(error) => http::format_error(&error),
        };
        if part.length > furthest {
            (furthest, failures) = (part.length, 0);
        }
        failures += 1;
        if failures >= options.attempts.max(1) {
            let message = format!("{reason} ({failures} attempts, {} bytes received)", part.length);
            return Err(Error::Broken { url: job.url.to_string(), message });
        }
        part.keep_if_resumable(job)?;
        let time = MAX_DELAY.min(options.backoff.saturating_mul(1 << (failures - 1).min(16)));
        progress.note(&format!("{}: {reason}; trying again in {} s", name(job.path), time.as_secs_f64()));
        sleep(time, progress)?;
    }
    part.finish(job, resumed)
}

/// Sleeps, unless the download is cancelled.
fn sleep(time: Duration, progress: &dyn Progress) -> Result<()> {
    let mut left = time;
    loop {
        Error::check(progress)?;
        let nap = left.min(Duration::from_millis(50));
        if nap.is_zero() {
            return Ok(());
        }
        thread::sleep(nap);
        left -= nap;
    }
}

/// File name, for messages.
pub(crate) fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Record of a partial download.
#[derive(Serialize, Deserialize)]
struct Note {
    url: String,
    version: Version,
}

/// Returns true if the bytes are a valid record.
#[cfg(feature = "fuzz")]
pub(crate) fn is_note(bytes: &[u8]) -> bool {
    serde_json::from_slice::<Note>(bytes).is_ok()
}

/// Beginning of a file.
struct Part {
    path: PathBuf,
    note: PathBuf,
    /// Locked, because two processes would mix their bytes.
    file: File,
    length: u64,
    /// Hash of the first `length` bytes.
    hash: Sha256,
    version: Version,
}

impl Part {
    fn open(job: &Job<'_>, progress: &dyn Progress) -> Result<Self> {
        let (path, note) = (suffixed(job.path, ".part"), suffixed(job.path, ".part.json"));
        let Some(file) = atomic::lock(&path).map_err(|e| Error::io(&path, "create", e))? else {
            return Err(Error::wrong(&path, "another process is fetching it; wait for it, or stop it"));
        };
        let known = fs::read(&note).ok().and_then(|bytes| serde_json::from_slice::<Note>(&bytes).ok());
        let version = known.filter(|known| known.url == job.url).map(|known| known.version);
        let length = file.metadata().map_err(|e| Error::io(&path, "examine", e))?.len();
        let mut part = Self { path, note, file, length: 0, hash: Sha256::new(), version: Version::default() };
        match version {
            Some(version) if length > 0 && version.total.is_none_or(|total| length <= total) => {
                progress.stage(&format!("reading {}", name(&part.path)), Some(length), Unit::Bytes);
                (part.hash, part.length) = checksum::of_file(&part.path, progress)?;
                part.version = version;
                part.file.seek(SeekFrom::End(0)).map_err(|e| Error::io(&part.path, "read", e))?;
            }
            _ => part.restart()?,
        }
        Ok(part)
    }

    /// Discards partial data that a server may complete with the end of another file: its version
    /// is not known, and there is no checksum to find that out.
    fn keep_if_resumable(&mut self, job: &Job<'_>) -> Result<()> {
        let is_complete = self.version.total == Some(self.length);
        if self.length == 0 || is_complete || self.version.can_resume() || job.sha256.is_some() {
            return Ok(());
        }
        self.restart()
    }

    /// Discards the partial data.
    fn restart(&mut self) -> Result<()> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.rewind());
        emptied.map_err(|e| Error::io(&self.path, "empty", e))?;
        (self.length, self.hash, self.version) = (0, Sha256::new(), Version::default());
        Ok(())
    }

    /// Adopts the server's version of the file, if its length is right and the disk has space.
    fn accept(&mut self, job: &Job<'_>, version: Version) -> Result<()> {
        if let (Some(expected), Some(total)) = (job.bytes, version.total)
            && expected != total
        {
            let message = format!(
                "the server's file has {total} bytes, the known one has {expected}: it has changed, or is \
                 not the \
                 file. Take it all the same with --no-verify"
            );
            return Err(Error::refused(job.url, message));
        }
        if let (Some(limit), Some(total)) = (job.limit, version.total)
            && total > limit
        {
            return Err(Error::refused(job.url, too_long(total, limit)));
        }
        if let Some(total) = version.total.or(job.bytes) {
            check_space(&self.path, total.saturating_sub(self.length))?;
        }
        // A field missing from one response may be present in another.
        self.version = Version {
            etag: version.etag.or(self.version.etag.take()),
            modified: version.modified.or(self.version.modified.take()),
            total: version.total.or(self.version.total),
        };
        let note = Note { url: job.url.to_string(), version: self.version.clone() };
        let bytes = serde_json::to_vec(&note).map_err(|e| Error::io(&self.note, "write", e.into()))?;
        Ok(atomic::write(&self.note, |out| out.write_all(&bytes))?)
    }

    /// Appends arriving data; returns `None` when the file is complete, or else the reason why it
    /// is not.
    fn receive(
        &mut self,
        job: &Job<'_>,
        mut body: BodyReader<'static>,
        progress: &dyn Progress,
    ) -> Result<Option<String>> {
        let whole = self.version.total.or(job.bytes);
        let mut buffer = vec![0; 1 << 17];
        loop {
            Error::check(progress)?;
            let n = match http::read(&mut body, &mut buffer) {
                Ok(0) if whole.is_none_or(|whole| self.length == whole) => return Ok(None),
                Ok(0) => return Ok(Some(format!("the connection ended after {} bytes", self.length))),
                Ok(n) => n,
                Err(e) => return Ok(Some(format!("the connection broke after {} bytes: {e}", self.length))),
            };
            if whole.is_some_and(|whole| self.length + n as u64 > whole) {
                self.discard();
                let message =
                    format!("more than the {} bytes it has to have arrived", whole.unwrap_or_default());
                return Err(Error::refused(job.url, message));
            }
            if let Some(limit) = job.limit.filter(|&limit| self.length + n as u64 > limit) {
                self.discard();
                return Err(Error::refused(job.url, too_long(self.length + n as u64, limit)));
            }
            self.file.write_all(&buffer[..n]).map_err(|e| Error::io(&self.path, "write", e))?;
            self.hash.update(&buffer[..n]);
            self.length += n as u64;
            progress.done(self.length);
        }
    }

    /// Removes the part and its record; a failure must not hide the error that led here.
    fn discard(&self) {
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_file(&self.note);
    }

    /// Verifies the complete file and renames it.
    fn finish(self, job: &Job<'_>, resumed: bool) -> Result<Arrived> {
        if let Some(expected) = job.bytes.filter(|&expected| expected != self.length) {
            self.discard();
            let message = format!(
                "{} bytes arrived, the known file has {expected}; they were removed. Run the command again, \
                 or take \
                 the file as it is with --no-verify",
                self.length
            );
            return Err(Error::refused(job.url, message));
        }
        let sha256 = hex(self.hash.clone());
        if let Some((expected, who)) = job.sha256.filter(|(expected, _)| *expected != sha256) {
            self.discard();
            let message = format!(
                "what arrived has the SHA-256 {sha256}, {who} is {expected}; it was removed. The transfer \
                 was damaged or the \
                 source has changed: run the command again, or take the file as it is with --no-verify"
            );
            return Err(Error::refused(job.url, message));
        }
        let Self { path, note, file, length, .. } = self;
        atomic::sync(&file, &path).map_err(|e| Error::io(&path, "write", e))?;
        drop(file);
        Real.rename(&path, job.path).map_err(|e| Error::io(job.path, "rename the finished file to", e))?;
        match Real.remove_file(&note) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(Error::io(&note, "remove", e)),
            _ => {}
        }
        atomic::sync_dir(&mut Real, atomic::parent(job.path))?;
        Ok(Arrived { bytes: length, sha256, resumed })
    }
}

/// Message for a file beyond the limit.
fn too_long(bytes: u64, limit: u64) -> String {
    format!(
        "{bytes} bytes or more are offered, but at most {limit} are expected of a file of this name: it is \
         not the file, or has grown; take it all the same with --no-verify"
    )
}

/// Checks the free space on the disk of `path`, if the system reports it.
pub(crate) fn check_space(path: &Path, needed: u64) -> Result<()> {
    let dir = if path.is_dir() { path } else { atomic::parent(path) };
    match disk::free(dir) {
        Ok(free) if free < needed => Err(Error::Space { path: dir.to_path_buf(), needed, free }),
        _ => Ok(()),
    }
}
