//! Temporary files of tests in memory.
//!
//! The program waits for the disk after each file, directory and rename. Tests write thousands of
//! small ones, so on a disk that takes a millisecond to answer they wait for most of their time.
//! They get a directory in the system's memory if it has one with enough space. `--soak` leaves
//! them on the disk, and so does `TMPDIR`, if the caller sets it.

use std::{env, fs, path::Path, process};

use tempfile::TempDir;

/// Environment variable of the directory of temporary files.
pub(super) const VARIABLE: &str = "TMPDIR";
/// File system in memory.
const MEMORY: &str = "/dev/shm";
/// Bytes that it must have free, and the machine as well.
const FREE: u64 = 6 << 30;

/// Beginning of the name of a directory; the number of its process follows.
const PREFIX: &str = "graphmill-tests-";

/// A new directory in memory, which is removed when this is dropped; `None` if the caller has
/// chosen a directory, or memory is too small or cannot be written. Removes the directories of
/// processes that were killed.
pub(super) fn directory() -> Option<TempDir> {
    if env::var_os(VARIABLE).is_some() || !is_memory(Path::new(MEMORY)) {
        return None;
    }
    remove_left(Path::new(MEMORY));
    let prefix = format!("{PREFIX}{}-", process::id());
    tempfile::Builder::new().prefix(&prefix).tempdir_in(MEMORY).ok()
}

/// Removes the directories in `root` of processes that no longer exist.
fn remove_left(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new("/proc").join(process.to_string()).exists()) {
            // if it belongs to another user it stays
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Returns true if `path` is a file system in memory with enough space for the tests.
#[cfg(target_os = "linux")]
fn is_memory(path: &Path) -> bool {
    /// Number of the file system tmpfs.
    const TMPFS: u64 = 0x0102_1994;
    let kilobytes = |text: String| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.trim().strip_suffix(" kB")?.parse().ok()
    };
    let available = fs::read_to_string("/proc/meminfo").ok().and_then(kilobytes);
    rustix::fs::statfs(path).is_ok_and(|of| {
        let free = u64::try_from(of.f_bsize).unwrap_or(0).saturating_mul(of.f_bavail);
        u64::try_from(of.f_type) == Ok(TMPFS) && free >= FREE
    }) && available.is_some_and(|available| available >= FREE >> 10)
}

/// Returns false: no such file system is known here.
#[cfg(not(target_os = "linux"))]
fn is_memory(_: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_file_systems_in_memory_are_taken() {
        assert!(!is_memory(Path::new("/proc")));
        assert!(!is_memory(Path::new("/no/such/directory")));
        if let Some(made) = directory() {
            assert!(made.path().starts_with(MEMORY));
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn directories_of_killed_processes_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join(format!("{PREFIX}{}-a", process::id()));
        let others = [root.path().join(format!("{PREFIX}x-b")), root.path().join("c")];
        let dead = root.path().join(format!("{PREFIX}{}-d", u32::MAX));
        [&own, &others[0], &others[1], &dead].into_iter().for_each(|path| fs::create_dir(path).unwrap());
        remove_left(root.path());
        assert!(!dead.exists() && own.exists() && others.iter().all(|path| path.exists()));
    }
}
