//! Files of a source: a directory, a zip archive or a tar archive (`.tar`, `.tar.gz`, `.tgz`),
//! each file gzipped or not.
//!
//! Files are found by their path below the source. A folder that holds everything in an archive is
//! left out of the paths, and so are hidden files and those that macOS adds (`__MACOSX`).

use std::{
    borrow::Cow,
    fs::{self, File},
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use flate2::bufread::MultiGzDecoder;
use graphmill_core::{Error, Result, location::Location};
use zip::ZipArchive;

use super::tar;

/// Bytes read at a time.
const BUFFER_LEN: usize = 1 << 18;
/// Maximum depth of directories that are searched for files.
const MAX_DEPTH: usize = 8;
/// Maximum number of files that are listed.
const MAX_FILES: usize = 100_000;

/// Source as a collection of files.
#[derive(Debug)]
pub(crate) struct Files {
    path: PathBuf,
    kind: Kind,
    /// Paths below the source, with `/`, ascending.
    names: Vec<String>,
    /// Folder of all files of an archive, with its `/`.
    top: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Directory,
    Zip,
    Tar,
    /// A single file that is not an archive.
    File,
}

impl Files {
    /// Lists the files of the directory, the archive or the file at `path`.
    ///
    /// # Errors
    /// The source cannot be read, or an archive is damaged.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let data = fs::metadata(path).map_err(|e| Error::io(path, "open", e))?;
        let ending = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let is_tar = [".tar", ".tar.gz", ".tgz"].iter().any(|known| ending.ends_with(known));
        let (kind, mut names) = if data.is_dir() {
            let mut names = Vec::new();
            list(path, "", MAX_DEPTH, &mut names)?;
            (Kind::Directory, names)
        } else if is_tar {
            (Kind::Tar, tar::names(unpacked(open(path)?, path)?, &Location::new(path, "archive"))?)
        } else if ending.ends_with(".zip") {
            let names = zip_archive(path)?.file_names().map(str::to_string).collect();
            (Kind::Zip, names)
        } else {
            (Kind::File, vec![path.file_name().unwrap_or_default().to_string_lossy().into_owned()])
        };
        names.retain(|name| !is_noise(name));
        names.sort_unstable();
        let mut top = String::new();
        if let (Kind::Zip | Kind::Tar, Some(first)) = (kind, names.first())
            && let Some((folder, _)) = first.split_once('/')
            && names.iter().all(|name| name.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')))
        {
            top = format!("{folder}/");
            names.iter_mut().for_each(|name| drop(name.drain(..top.len())));
        }
        Ok(Self { path: path.to_path_buf(), kind, names, top })
    }

    /// Path of the source.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Name of the source: its file name without endings.
    pub(crate) fn title(&self) -> String {
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let endings = [".gz", ".tar", ".tgz", ".zip", ".txt", ".csv", ".nt", ".mat", ".npz", ".pt"];
        let mut name = name.as_str();
        if !path.is_dir() {
            while let Some(stem) = endings.iter().find_map(|ending| name.strip_suffix(ending)) {
                name = stem;
            }
        }
        name.to_string()
    }

    /// Paths of all files below the source, ascending.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// Path of the file `name`, or of `name.gz`.
    pub(crate) fn find(&self, name: &str) -> Option<&str> {
        let at = |name: &str| self.names.binary_search_by(|known| known.as_str().cmp(name)).ok();
        at(name).or_else(|| at(&format!("{name}.gz"))).map(|i| self.names[i].as_str())
    }

    /// Path of the file `name`, as by [`Files::find`].
    ///
    /// # Errors
    /// There is no such file.
    pub(crate) fn required(&self, name: &str) -> Result<&str> {
        self.find(name).ok_or_else(|| {
            let mut known: Vec<&str> = self.names.iter().map(String::as_str).take(12).collect();
            if self.names.len() > known.len() {
                known.push("...");
            }
            let message = format!("there is no file {name}; found: {}", known.join(", "));
            Error::format(&self.path, self.kind.name(), message)
        })
    }

    /// File on disk, if the source is not an archive.
    pub(crate) fn on_disk(&self, name: &str) -> Option<PathBuf> {
        match self.kind {
            Kind::Directory => Some(self.path.join(name)),
            Kind::File => Some(self.path.clone()),
            Kind::Zip | Kind::Tar => None,
        }
    }

    /// Location `place` in the file `name`, for messages.
    pub(crate) fn error(
        &self,
        name: &str,
        place: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Error {
        let place = place.into();
        match self.on_disk(name) {
            Some(path) => Error::format(path, place, message),
            None => Error::format(&self.path, format!("{}{name}, {place}", self.top), message),
        }
    }

    /// Passes the bytes of the file `name`, unpacked, to `work`.
    ///
    /// # Errors
    /// The file cannot be read, or `work` fails.
    pub(crate) fn read<R>(&self, name: &str, work: impl FnOnce(&mut dyn BufRead) -> Result<R>) -> Result<R> {
        let (mut work, mut result) = (Some(work), None);
        self.open_member(name, &mut |reader| {
            result = work.take().map(|work| work(reader));
            Ok(())
        })?;
        result.unwrap_or_else(|| Err(self.error(name, "contents", "nothing was read")))
    }

    /// Opens the file `name` and calls `work` with its unpacked bytes, once.
    fn open_member(&self, name: &str, work: &mut dyn FnMut(&mut dyn BufRead) -> Result<()>) -> Result<()> {
        match self.kind {
            Kind::Directory => {
                let path = self.path.join(name);
                work(&mut *unpacked(open(&path)?, &path)?)
            }
            Kind::File => work(&mut *unpacked(open(&self.path)?, &self.path)?),
            Kind::Zip => {
                let mut archive = zip_archive(&self.path)?;
                let member = archive.by_name(&format!("{}{name}", self.top));
                let member = member.map_err(|e| self.error(name, "archive", e.to_string()))?;
                work(&mut *unpacked(BufReader::with_capacity(BUFFER_LEN, member), &self.path)?)
            }
            Kind::Tar => {
                let archive = unpacked(open(&self.path)?, &self.path)?;
                let at = Location::new(&self.path, "archive");
                let member = tar::member(archive, &format!("{}{name}", self.top), &at)?;
                work(&mut *unpacked(BufReader::with_capacity(BUFFER_LEN, member), &self.path)?)
            }
        }
    }

    /// Reads all bytes of the file `name`.
    ///
    /// # Errors
    /// The file cannot be read, or takes more than `most` bytes.
    pub(crate) fn bytes(&self, name: &str, most: u64) -> Result<Vec<u8>> {
        self.read(name, |reader| {
            let mut bytes = Vec::new();
            let read = reader.take(most.saturating_add(1)).read_to_end(&mut bytes);
            read.map_err(|e| self.error(name, "contents", format!("cannot be read: {e}")))?;
            if bytes.len() as u64 > most {
                return Err(self.error(name, "contents", format!("more than {most} bytes")));
            }
            Ok(bytes)
        })
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::Zip | Self::Tar => "archive",
            Self::File => "file",
        }
    }
}

/// Returns true for directories of archives and files that systems add.
fn is_noise(name: &str) -> bool {
    name.ends_with('/')
        || name.split('/').any(|part| part.starts_with('.') && part != "." || part == "__MACOSX")
}

/// Lists the files below `dir`.
fn list(dir: &Path, prefix: &str, depth: usize, names: &mut Vec<String>) -> Result<()> {
    let fault = |e| Error::io(dir, "look into", e);
    for entry in fs::read_dir(dir).map_err(fault)? {
        let entry = entry.map_err(fault)?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let path = entry.path();
        if is_noise(&name) || names.len() >= MAX_FILES {
            continue;
        }
        if path.is_dir() {
            if depth > 1 {
                list(&path, &format!("{name}/"), depth - 1, names)?;
            }
        } else {
            names.push(name);
        }
    }
    Ok(())
}

fn open(path: &Path) -> Result<BufReader<File>> {
    let file = File::open(path).map_err(|e| Error::io(path, "open", e))?;
    Ok(BufReader::with_capacity(BUFFER_LEN, file))
}

fn zip_archive(path: &Path) -> Result<ZipArchive<BufReader<File>>> {
    ZipArchive::new(open(path)?)
        .map_err(|e| Error::format(path, "archive", format!("not a readable zip archive: {e}")))
}

/// Unpacks gzip, which is recognized by its first bytes.
fn unpacked<'a>(mut reader: impl BufRead + 'a, path: &Path) -> Result<Box<dyn BufRead + 'a>> {
    let head = reader.fill_buf().map_err(|e| Error::io(path, "read", e))?;
    Ok(if head.starts_with(&[0x1f, 0x8b]) {
        Box::new(BufReader::with_capacity(BUFFER_LEN, MultiGzDecoder::new(reader)))
    } else {
        Box::new(reader)
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};
    use zip::{ZipWriter, write::SimpleFileOptions};

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
        gz.write_all(bytes).unwrap();
        gz.finish().unwrap()
    }

    fn text(files: &Files, name: &str) -> String {
        let name = files.required(name).unwrap();
        String::from_utf8(files.bytes(name, 100).unwrap()).unwrap()
    }

    #[test]
    fn directories_and_archives_hold_the_same_files() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("A");
        fs::create_dir_all(folder.join("sub")).unwrap();
        fs::write(folder.join("node.dat"), "1\n").unwrap();
        fs::write(folder.join(".DS_Store"), "x").unwrap();
        fs::write(folder.join("sub/link.dat.gz"), gzip(b"2\n")).unwrap();
        let zip_path = dir.path().join("A.zip");
        let mut zip = ZipWriter::new(File::create(&zip_path).unwrap());
        for (name, bytes) in [
            ("A/node.dat", &b"1\n"[..]),
            ("__MACOSX/A/._node.dat", b"x"),
            ("A/.DS_Store", b"x"),
            ("A/sub/link.dat.gz", &gzip(b"2\n")),
        ] {
            zip.start_file(name, SimpleFileOptions::default()).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap();
        let tar_path = dir.path().join("A.tar.gz");
        let members = [("A/node.dat", &b"1\n"[..]), ("A/sub/link.dat.gz", &gzip(b"2\n"))];
        fs::write(&tar_path, gzip(&tar::testing::archive(&members))).unwrap();
        for path in [folder, zip_path, tar_path] {
            let files = Files::open(&path).unwrap();
            assert_eq!(files.names(), ["node.dat", "sub/link.dat.gz"], "{}", path.display());
            assert_eq!(
                (text(&files, "node.dat"), text(&files, "sub/link.dat")),
                ("1\n".into(), "2\n".into())
            );
            assert_eq!(files.title(), "A");
            let error = files.required("label.dat").unwrap_err().to_string();
            assert!(error.contains("no file label.dat; found: node.dat"), "{error}");
            assert!(files.bytes("node.dat", 1).unwrap_err().to_string().contains("more than 1 bytes"));
            assert!(files.error("node.dat", "line 1", "x").to_string().contains("node.dat"));
        }
    }
}
