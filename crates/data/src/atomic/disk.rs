//! File-system operations behind a trait, so that a test can simulate a crash after any of them.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write},
    path::Path,
};

use super::forgetting::note;

/// Creates the file `path` for reading and writing. A stale file or symbolic link of that name is
/// unlinked first, so that no link is followed.
///
/// # Errors
/// The name cannot be freed, or the file cannot be created.
pub fn create_fresh(path: &Path) -> io::Result<File> {
    match Real.remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
    note(path, |disk| disk.opened(path));
    Ok(file)
}

/// Syncs the bytes of `file`, which has the name `path`.
///
/// # Errors
/// As for [`File::sync_all`].
pub fn sync(file: &File, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    note(path, |disk| disk.synced(path));
    Ok(())
}

/// Links the file `from` at the name `to`, which must be free.
///
/// # Errors
/// As for [`std::fs::hard_link`].
pub(crate) fn hard_link(from: &Path, to: &Path) -> io::Result<()> {
    fs::hard_link(from, to)?;
    note(to, |disk| disk.linked(from, to));
    Ok(())
}

/// Parent directory of `path`.
pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// File-system operations needed to create files and directories atomically.
///
/// ```
/// use graphmill_data::atomic::{Disk, Real};
///
/// let dir = tempfile::tempdir()?;
/// let (new, place) = (dir.path().join("new"), dir.path().join("file"));
/// Real.write(&new, |file| file.write_all(b"whole"))?;
/// Real.rename(&new, &place)?;
/// Real.sync_dir(dir.path())?;
/// assert_eq!(std::fs::read(&place)?, b"whole");
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Disk {
    /// Creates a directory.
    ///
    /// # Errors
    /// As for [`std::fs::create_dir`].
    fn create_dir(&mut self, path: &Path) -> io::Result<()>;

    /// Writes the file `path` through `fill` and syncs it. A crash may leave any part of it. A
    /// symbolic link of that name is replaced, not followed.
    ///
    /// # Errors
    /// The file cannot be created or written, or `fill` fails.
    fn write(&mut self, path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()>;

    /// Appends bytes to the file `path`, which is created if it is missing, and syncs the file. A
    /// crash may leave any beginning of them.
    ///
    /// # Errors
    /// The file cannot be created or written.
    fn append(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Syncs the entries of a directory.
    ///
    /// # Errors
    /// The directory cannot be opened or synced.
    fn sync_dir(&mut self, path: &Path) -> io::Result<()>;

    /// Renames a path atomically.
    ///
    /// # Errors
    /// As for [`std::fs::rename`].
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;

    /// Exchanges two existing paths atomically, without following links. The default supports no
    /// exchange.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] if the platform or the file system exchanges no paths;
    /// otherwise as for [`std::fs::rename`].
    fn exchange(&mut self, _one: &Path, _other: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Removes a file.
    ///
    /// # Errors
    /// As for [`std::fs::remove_file`].
    fn remove_file(&mut self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As for [`std::fs::remove_dir`].
    fn remove_dir(&mut self, path: &Path) -> io::Result<()>;
}

/// The operating system's file system. A test may record the changes
/// ([`super::ForgettingDisk::record`]).
#[derive(Clone, Copy, Debug, Default)]
pub struct Real;

impl Disk for Real {
    fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)?;
        note(path, |disk| disk.made(path));
        Ok(())
    }

    fn write(&mut self, path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let file = create_fresh(path)?;
        // so that no other process takes it for what a killed one left
        let _ = file.try_lock();
        let mut file = BufWriter::with_capacity(1 << 20, file);
        fill(&mut file)?;
        file.flush()?;
        sync(file.get_ref(), path)
    }

    fn append(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all(bytes)?;
        sync(&file, path)
    }

    /// Syncs a directory, on systems that support it.
    fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        if cfg!(unix) {
            File::open(path)?.sync_all()?;
        }
        note(path, |disk| disk.synced_dir(path));
        Ok(())
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)?;
        note(to, |disk| disk.renamed(from, to));
        Ok(())
    }

    #[cfg(any(target_os = "linux", target_os = "android", target_os = "macos"))]
    fn exchange(&mut self, one: &Path, other: &Path) -> io::Result<()> {
        use rustix::{
            fs::{CWD, RenameFlags, renameat_with},
            io::Errno,
        };
        renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).map_err(|e| match e {
            // unknown to the system, to the file system, and to that of macOS
            Errno::NOSYS | Errno::INVAL | Errno::NOTSUP => io::Error::new(io::ErrorKind::Unsupported, e),
            e => e.into(),
        })?;
        note(one, |disk| disk.exchanged(one, other));
        Ok(())
    }

    fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)?;
        note(path, |disk| disk.removed(path));
        Ok(())
    }

    fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)?;
        note(path, |disk| disk.removed(path));
        Ok(())
    }
}

/// Test file system that crashes after a given number of steps. A crashing write leaves half of its
/// bytes.
#[derive(Clone, Copy, Debug)]
pub struct CrashingDisk(pub usize);

impl CrashingDisk {
    fn step(&mut self) -> io::Result<()> {
        self.0 = self.0.checked_sub(1).ok_or_else(|| io::Error::other("killed"))?;
        Ok(())
    }
}

impl Disk for CrashingDisk {
    fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        self.step()?;
        fs::create_dir(path)
    }

    fn write(&mut self, path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        self.step()?;
        let mut bytes = Vec::new();
        fill(&mut bytes)?;
        create_fresh(path)?.write_all(&bytes[..bytes.len() / 2])?;
        self.step()?;
        fs::write(path, bytes)
    }

    fn append(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.step()?;
        Real.append(path, &bytes[..bytes.len() / 2])?;
        self.step()?;
        Real.append(path, &bytes[bytes.len() / 2..])
    }

    fn sync_dir(&mut self, _: &Path) -> io::Result<()> {
        self.step()
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        fs::rename(from, to)
    }

    fn exchange(&mut self, one: &Path, other: &Path) -> io::Result<()> {
        self.step()?;
        Real.exchange(one, other)
    }

    fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        self.step()?;
        fs::remove_file(path)
    }

    fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        self.step()?;
        fs::remove_dir(path)
    }
}

/// File system `D` without [`Disk::exchange`], as network file systems are.
#[derive(Debug)]
pub struct WithoutExchange<'d, D>(pub &'d mut D);

impl<D: Disk> Disk for WithoutExchange<'_, D> {
    fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        self.0.create_dir(path)
    }

    fn write(&mut self, path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        self.0.write(path, fill)
    }

    fn append(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.0.append(path, bytes)
    }

    fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        self.0.sync_dir(path)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        self.0.remove_file(path)
    }

    fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        self.0.remove_dir(path)
    }
}
