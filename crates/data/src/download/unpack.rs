//! Extraction of zip archives: member by member, each written to a temporary sibling, checked,
//! synced and renamed, so that a second run resumes after the last complete one.
//!
//! An archive is untrusted: names that leave the directory, links and duplicate names are rejected
//! before the first byte is written, and no member exceeds its declared size.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::{self, BufReader, Read},
    path::{Component, Path, PathBuf},
};

use graphmill_core::progress::{Progress, Unit};
use zip::{ZipArchive, result::ZipError};

use super::{
    Error, Result, checksum,
    transfer::{check_space, name},
};
use crate::atomic;

/// Maximum number of members; no dataset has more.
const MAX_MEMBERS: usize = 1 << 20;

/// File of an archive that is not yet unpacked.
struct Member {
    index: usize,
    path: PathBuf,
    bytes: u64,
}

/// Unpacks `archive` into `dir`; returns the bytes of all its files.
///
/// Existing files of the right size and CRC-32 are skipped; other files of the same name are
/// replaced.
pub(crate) fn unpack(archive: &Path, dir: &Path, progress: &dyn Progress) -> Result<u64> {
    let file = File::open(archive).map_err(|e| Error::io(archive, "open", e))?;
    let mut zip = ZipArchive::new(BufReader::new(file)).map_err(|e| damaged(archive, "its directory", e))?;
    let members = examine(archive, dir, &mut zip)?;
    let total = bytes(&members);
    progress.stage(&format!("unpacking {}", name(archive)), Some(total), Unit::Bytes);
    let (mut done, mut missing) = (0, Vec::new());
    for member in members {
        if is_unpacked(&member, &mut zip, archive, progress)? {
            done += member.bytes;
            progress.resume(done);
        } else {
            missing.push(member);
        }
    }
    check_space(dir, bytes(&missing))?;
    for member in missing {
        write(archive, &mut zip, &member, &mut done, progress)?;
    }
    Ok(total)
}

/// Total size that the members declare, which may be any number.
fn bytes(members: &[Member]) -> u64 {
    members.iter().fold(0, |sum, member| sum.saturating_add(member.bytes))
}

/// Lists the files of the archive, if all names are allowed.
fn examine(archive: &Path, dir: &Path, zip: &mut ZipArchive<BufReader<File>>) -> Result<Vec<Member>> {
    if zip.len() > MAX_MEMBERS {
        return Err(Error::wrong(archive, format!("{} members: more than any dataset has", zip.len())));
    }
    let (mut members, mut seen) = (Vec::new(), HashSet::new());
    let ours = [archive.to_path_buf(), dir.join(checksum::NAME)];
    for index in 0..zip.len() {
        let entry = zip.by_index_raw(index).map_err(|e| damaged(archive, &format!("member {index}"), e))?;
        let refuse = |why: &str| {
            Error::wrong(
                archive,
                format!("member '{}' {why}: nothing was unpacked", entry.name().escape_debug()),
            )
        };
        let inside = Path::new(entry.name());
        let plain = inside.components().all(|part| matches!(part, Component::Normal(_)));
        if !plain || entry.name().contains(['\\', ':', '\0']) {
            return Err(refuse("leads out of the directory"));
        }
        if entry.is_symlink() {
            return Err(refuse("is a link"));
        }
        if entry.encrypted() {
            return Err(refuse("is encrypted"));
        }
        if entry.is_dir() {
            continue;
        }
        let mut place = dir.to_path_buf();
        for part in atomic::parent(inside).components() {
            place.push(part);
            if place.is_symlink() {
                return Err(refuse("would be written through a link in its directory"));
            }
        }
        let path = dir.join(inside);
        if ours.contains(&path) || !seen.insert(path.clone()) {
            return Err(refuse("has the name of another file"));
        }
        members.push(Member { index, path, bytes: entry.size() });
    }
    Ok(members)
}

/// Returns true if a member is on disk, by size and CRC-32.
fn is_unpacked(
    member: &Member,
    zip: &mut ZipArchive<BufReader<File>>,
    archive: &Path,
    progress: &dyn Progress,
) -> Result<bool> {
    let same_size = fs::metadata(&member.path).is_ok_and(|meta| meta.is_file() && meta.len() == member.bytes);
    if !same_size {
        return Ok(false);
    }
    let expected = zip.by_index_raw(member.index).map_err(|e| damaged(archive, "its directory", e))?.crc32();
    let mut file = File::open(&member.path).map_err(|e| Error::io(&member.path, "open", e))?;
    let (mut crc, mut buffer) = (crc32fast::Hasher::new(), vec![0; 1 << 20]);
    loop {
        Error::check(progress)?;
        match file.read(&mut buffer).map_err(|e| Error::io(&member.path, "read", e))? {
            0 => return Ok(crc.finalize() == expected),
            n => crc.update(&buffer[..n]),
        }
    }
}

fn write(
    archive: &Path,
    zip: &mut ZipArchive<BufReader<File>>,
    member: &Member,
    done: &mut u64,
    progress: &dyn Progress,
) -> Result<()> {
    let place = format!("member '{}'", name(&member.path));
    let mut entry = zip.by_index(member.index).map_err(|e| damaged(archive, &place, e))?;
    let parent = atomic::parent(&member.path);
    atomic::create_dirs(&mut atomic::Real, parent)?;
    // A read error belongs to the archive, a write error to the disk; only here can they be
    // distinguished.
    let (mut broken, mut stopped) = (None, false);
    let written = atomic::write(&member.path, |out| {
        let (mut left, mut buffer) = (member.bytes, vec![0; 1 << 17]);
        loop {
            if progress.is_stopped() {
                stopped = true;
                return Err(io::Error::other("interrupted"));
            }
            let n = match entry.read(&mut buffer) {
                Ok(0) if left == 0 => return Ok(()),
                Ok(n) if n > 0 && n as u64 <= left => n,
                Ok(_) => {
                    broken = Some("differs from its declared size".to_string());
                    return Err(io::Error::other("damaged"));
                }
                Err(e) => {
                    broken = Some(e.to_string());
                    return Err(io::Error::other("damaged"));
                }
            };
            out.write_all(&buffer[..n])?;
            left -= n as u64;
            *done += n as u64;
            progress.done(*done);
        }
    });
    match (broken, stopped) {
        (_, true) => Err(Error::Interrupted),
        (Some(why), _) => Err(Error::wrong(
            archive,
            format!("{place}: {why}; delete the archive and run the command again"),
        )),
        (None, _) => Ok(written?),
    }
}

fn damaged(archive: &Path, place: &str, error: ZipError) -> Error {
    match error {
        ZipError::UnsupportedArchive(what) => {
            Error::wrong(archive, format!("{place}: {what}: unpack it by hand, into its own directory"))
        }
        ZipError::Io(e) if e.kind() != io::ErrorKind::UnexpectedEof && e.raw_os_error().is_some() => {
            Error::io(archive, "read", e)
        }
        error => {
            Error::wrong(archive, format!("{place}: {error}; delete the archive and run the command again"))
        }
    }
}
