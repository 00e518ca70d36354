//! Copies of sources at addresses, in the scratch directory of an import. Importers read files and
//! directories, so a source in object storage is copied before it is read, under the names that it
//! has there.
//!
//! Objects are copied one after the other, through a buffer. The number of bytes on disk is
//! recorded, so a killed copy resumes within an object. The identity of the import holds sizes and
//! versions of the objects, so a changed object starts a new copy.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use graphmill_core::{Error, Result, progress::Unit};

#[cfg(not(feature = "object-storage"))]
use super::absent::find_source;
#[cfg(feature = "object-storage")]
use super::list::find_source;
use super::{
    Object,
    source::{Source, is_address},
};
use crate::{
    atomic::{self, Real},
    external::Scratch,
};

/// Directory of the copies in the scratch, and the record of their progress.
const DIRECTORY: &str = "source";
const RECORD: &str = "copied";
/// Bytes of a read.
const BUFFER: usize = 1 << 18;
/// Bytes within an object, and time between the ends of objects, after which the progress is
/// recorded.
const RECORDED_BYTES: u64 = 64 << 20;
const RECORDED_TIME: Duration = Duration::from_secs(1);

/// Sources of an import that are addresses.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    /// Path as the caller gave it, and the source.
    sources: Vec<(PathBuf, Source)>,
}

/// Completed copies.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    /// Path as the caller gave it, path of the copy, and address.
    places: Vec<(PathBuf, PathBuf, String)>,
}

impl Copies {
    /// Creates copies of `sources`, each with its path as the caller gave it.
    pub(super) fn of(sources: Vec<(PathBuf, Source)>) -> Self {
        Self { sources }
    }

    /// Lists the objects of all `paths` that are addresses; others need no copy.
    ///
    /// # Errors
    /// No object is found, or a request fails.
    pub(crate) fn find<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<Self> {
        let addresses = paths.into_iter().filter(|path| path.to_str().is_some_and(is_address));
        let source = |path: &Path| Ok((path.to_path_buf(), find_source(path.to_str().unwrap_or_default())?));
        Ok(Self::of(addresses.map(source).collect::<Result<_>>()?))
    }

    /// Rejects addresses among `paths`, for imports without a directory for copies.
    ///
    /// # Errors
    /// A path is an address.
    pub(crate) fn reject<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<()> {
        match paths.into_iter().find(|path| path.to_str().is_some_and(is_address)) {
            Some(path) => Err(Error::format(
                path,
                "address",
                "an import into memory has no directory for the copy; call import_to, which has one",
            )),
            None => Ok(()),
        }
    }

    /// Returns true if no source is an address.
    pub(crate) fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Names, sizes and versions of all objects.
    pub(crate) fn identity(&self) -> String {
        self.objects().map(|(_, _, object)| format!("\n{}", object.identity())).collect()
    }

    /// Number of the source, name of the file, and object.
    fn objects(&self) -> impl Iterator<Item = (usize, String, &Object)> {
        self.sources.iter().enumerate().flat_map(|(number, (_, source))| {
            let name = |rest: &str| format!("{}{rest}", source.title);
            source.objects.iter().map(move |(rest, object)| (number, name(rest), object))
        })
    }

    /// Names of the scratch's files that hold the copies.
    pub(crate) const FILES: [&str; 2] = [DIRECTORY, "copied.json"];

    /// Copies all objects into the directory of the scratch; those that an earlier process has
    /// copied stay.
    ///
    /// # Errors
    /// The disk is too small, a request fails, an object ends early, or the work is cancelled.
    pub(crate) fn copy(&self, scratch: &Scratch) -> Result<Copied> {
        let Some(directory) = scratch.file(DIRECTORY).filter(|_| !self.is_empty()) else {
            return Ok(Copied::default());
        };
        let total = self.objects().map(|(_, _, object)| object.size()).sum::<u64>();
        let recorded = scratch.load::<u64>(RECORD).unwrap_or_default().min(total);
        let count = self.objects().count();
        let from = self.sources.iter().map(|(_, source)| source.address.as_str()).collect::<Vec<_>>();
        let objects = if count == 1 { "object" } else { "objects" };
        let what = format!("the copy of {count} {objects} from {}", from.join(", "));
        scratch.expect_bytes(&what, total - recorded)?;
        unlink_links(&directory)?;
        scratch.stage("copying the source", Some(total), Unit::Bytes);
        scratch.resume(recorded);
        let mut copy = Copy { scratch, before: 0, recorded: None };
        for (number, name, object) in self.objects() {
            let path = directory.join(number.to_string()).join(name);
            let done = recorded.saturating_sub(copy.before).min(object.size());
            copy.object(object, &path, done)?;
        }
        scratch.save(RECORD, &total)?;
        let place = |(number, (given, source)): (usize, &(PathBuf, Source))| {
            let path = directory.join(number.to_string()).join(&source.title);
            (given.clone(), path, source.address.clone())
        };
        Ok(Copied { places: self.sources.iter().enumerate().map(place).collect() })
    }
}

/// Copy in progress.
struct Copy<'a> {
    scratch: &'a Scratch,
    /// Bytes of the objects before the current one.
    before: u64,
    /// Time of the last record.
    recorded: Option<Instant>,
}

impl Copy<'_> {
    /// Copies an object, of which an earlier process has copied `done` bytes.
    fn object(&mut self, object: &Object, path: &Path, done: u64) -> Result<()> {
        let there = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file);
        let there = there.map(|data| data.len());
        let done = done.min(there.unwrap_or_default());
        if there != Some(object.size()) || done < object.size() {
            let copied = self.rest(object, path, done);
            match copied {
                // Servers that do not send parts.
                Err(Error::Io { source, .. }) if done > 0 && source.kind() == io::ErrorKind::Unsupported => {
                    self.rest(object, path, 0)?;
                }
                copied => copied?,
            }
        }
        self.before += object.size();
        self.scratch.done(self.before);
        if self.recorded.is_none_or(|recorded| recorded.elapsed() >= RECORDED_TIME) {
            self.record(self.before)?;
        }
        Ok(())
    }

    /// Copies the bytes of an object from `start` on.
    fn rest(&mut self, object: &Object, path: &Path, start: u64) -> Result<()> {
        let failed = |e| Error::io(path, "write", e);
        if let Some(parent) = path.parent() {
            atomic::create_dirs(&mut Real, parent)?;
        }
        // a link or another file at the name is replaced, unless the copy goes on there
        let mut file = match start {
            0 => atomic::create_fresh(path),
            _ => OpenOptions::new().write(true).open(path),
        }
        .map_err(failed)?;
        if start > 0 {
            file.set_len(start).map_err(failed)?;
            file.seek(SeekFrom::Start(start)).map_err(failed)?;
        }
        let (mut at, mut recorded) = (start, start);
        let mut reader = object.stream_from(start)?;
        let mut buffer = vec![0; BUFFER];
        loop {
            self.scratch.check()?;
            let read = reader.read(&mut buffer).map_err(|e| Error::io(object.address(), "read", e))?;
            if read == 0 {
                break;
            }
            file.write_all(&buffer[..read]).map_err(failed)?;
            at += read as u64;
            self.scratch.done(self.before + at);
            if at - recorded >= RECORDED_BYTES {
                atomic::sync(&file, path).map_err(failed)?;
                self.record(self.before + at)?;
                recorded = at;
            }
        }
        if at != object.size() {
            let message = format!("the server sent {at} of {} bytes; start again", object.size());
            return Err(Error::io(
                object.address(),
                "read",
                io::Error::new(io::ErrorKind::UnexpectedEof, message),
            ));
        }
        atomic::sync(&file, path).map_err(failed)
    }

    fn record(&mut self, bytes: u64) -> Result<()> {
        self.recorded = Some(Instant::now());
        self.scratch.save(RECORD, &bytes)
    }
}

/// Removes symbolic links from a directory and all below it, if it exists. No copy creates links,
/// and one at the name of a copy, or of its directory, would lead its bytes elsewhere.
fn unlink_links(directory: &Path) -> Result<()> {
    let failed = |e| Error::io(directory, "look into", e);
    let entries = match fs::read_dir(directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed)?,
    };
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_symlink() {
            atomic::remove_all(&mut Real, &entry.path())?;
        } else if kind.is_dir() {
            unlink_links(&entry.path())?;
        }
    }
    Ok(())
}

impl Copied {
    /// Path of the copy of `path`; `path` itself if it was not copied.
    pub(crate) fn path(&self, path: &Path) -> PathBuf {
        let place = self.places.iter().find(|(given, ..)| given == path);
        place.map_or_else(|| path.to_path_buf(), |(_, copy, _)| copy.clone())
    }

    /// Error of an importer that names addresses instead of the copies.
    pub(crate) fn name_addresses(&self, error: Error) -> Error {
        let path = |path: PathBuf| match path.to_str() {
            Some(text) => self.rename(text).into(),
            None => path,
        };
        match error {
            Error::Io { path: at, action, source } => Error::Io { path: path(at), action, source },
            Error::Format { path: at, place, message } => {
                Error::Format { path: path(at), place: self.rename(&place), message: self.rename(&message) }
            }
            Error::Invalid(message) => Error::Invalid(self.rename(&message)),
            other => other,
        }
    }

    /// Replaces paths of copies and of their directories by addresses.
    fn rename(&self, text: &str) -> String {
        self.places.iter().fold(text.to_string(), |text, (_, copy, address)| {
            let text = text.replace(&copy.display().to_string(), address);
            match (copy.parent(), address.rsplit_once('/')) {
                (Some(parent), Some((above, _))) => text.replace(&parent.display().to_string(), above),
                _ => text,
            }
        })
    }
}

#[cfg(all(test, not(feature = "object-storage")))]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_the_missing_feature() {
        assert!(Copies::find([Path::new("edges.txt")]).unwrap().is_empty());
        let error = Copies::find([Path::new("s3://bucket/edges.txt")]).unwrap_err().to_string();
        assert!(
            error.starts_with("s3://bucket/edges.txt: address: this program was built without"),
            "{error}"
        );
        assert!(error.contains("--features object-storage"), "{error}");
    }
}
