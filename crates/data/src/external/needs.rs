//! Disk space required by an import, reported before it begins.

use std::path::Path;

use graphmill_core::{Error, Result, disk};

/// Expected size of a dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Number of nodes, `V`.
    pub nodes: u64,
    /// Number of edges, `E`, counting every stored direction.
    pub edges: u64,
    /// Bytes of the feature rows.
    pub features: u64,
    /// True if edges have weights.
    pub weighted: bool,
    /// True if the numbers are estimates rather than declared by the source.
    pub estimated: bool,
}

impl Needs {
    /// Bytes of the dataset on disk: `8 V + 4 E`, `4 E` for weights, and the features.
    pub fn result(&self) -> u64 {
        8 * self.nodes + if self.weighted { 8 } else { 4 } * self.edges + self.features
    }

    /// Peak disk usage in bytes, temporary files included; `on_disk`: edges are sorted on disk.
    pub fn peak(&self, on_disk: bool) -> u64 {
        let key = if self.weighted { 12 } else { 8 };
        self.result() + if on_disk { key * self.edges } else { 0 }
    }

    /// Bytes of the whole budget per edge that is kept in memory, counting every direction: twice
    /// what building takes.
    pub(super) fn building(weighted: bool) -> u64 {
        if weighted { 72 } else { 48 }
    }
}

/// Available bytes on the file system of `path`, if the system reports them.
pub(super) fn free(path: &Path) -> Option<u64> {
    disk::free(path).ok()
}

/// Message about `needs`, or the error that they exceed the free space.
pub(super) fn check(needs: &Needs, on_disk: bool, free: Option<u64>, path: &Path) -> Result<String> {
    let about = if needs.estimated { "about " } else { "" };
    let (peak, result) = (bytes(needs.peak(on_disk)), bytes(needs.result()));
    match free {
        Some(free) if free < needs.peak(on_disk) => Err(Error::format(
            path,
            "disk",
            format!(
                "the work needs {about}{peak} ({result} for the result), but {} are free; free some space, \
                 or write to another disk",
                bytes(free)
            ),
        )),
        Some(free) => {
            Ok(format!("needs {about}{peak} of disk ({result} for the result); {} are free", bytes(free)))
        }
        None => Ok(format!("needs {about}{peak} of disk ({result} for the result)")),
    }
}

/// Message that `what` takes `needed` bytes, or the error that they exceed the free space.
pub(super) fn check_bytes(what: &str, needed: u64, free: Option<u64>, path: &Path) -> Result<String> {
    let takes = format!("{what} takes {} of disk", bytes(needed));
    match free {
        Some(free) if free < needed => Err(Error::format(
            path,
            "disk",
            format!("{takes}, but {} are free; free some space, or write to another disk", bytes(free)),
        )),
        Some(free) => Ok(format!("{takes}; {} are free", bytes(free))),
        None => Ok(takes),
    }
}

/// `1.5 GB`.
fn bytes(count: u64) -> String {
    let (unit, size) = [("GB", 1e9), ("MB", 1e6), ("kB", 1e3)]
        .into_iter()
        .find(|(_, size)| count as f64 >= *size)
        .unwrap_or(("bytes", 1.0));
    if size == 1.0 { format!("{count} bytes") } else { format!("{:.1} {unit}", count as f64 / size) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oversized_work_is_rejected_up_front() {
        let needs =
            Needs { nodes: 1 << 20, edges: 1 << 24, features: 1 << 28, estimated: true, weighted: false };
        assert_eq!(needs.result(), (8 << 20) + (4 << 24) + (1 << 28));
        assert_eq!(needs.peak(true) - needs.peak(false), 8 << 24);
        let weighted = Needs { weighted: true, ..needs };
        assert_eq!(weighted.result() - needs.result(), 4 << 24);
        assert_eq!(weighted.peak(true) - weighted.peak(false), 12 << 24);
        let path = Path::new("d");
        let error = check(&needs, true, Some(1 << 20), path).unwrap_err().to_string();
        assert!(error.contains("about 478.2 MB (343.9 MB for the result), but 1.0 MB are free"), "{error}");
        let summary = check(&needs, false, Some(1 << 40), path).unwrap();
        assert!(summary.starts_with("needs about 343.9 MB of disk"), "{summary}");
        assert!(check(&needs, true, None, path).is_ok());
        let error = check_bytes("the copy", 2_000_000, Some(1_000), path).unwrap_err().to_string();
        assert!(error.starts_with("d: disk: the copy takes 2.0 MB of disk, but 1.0 kB are free;"), "{error}");
        assert_eq!((bytes(12), bytes(2_000)), ("12 bytes".into(), "2.0 kB".into()));
        if cfg!(target_os = "linux") {
            assert!(free(Path::new(".")).unwrap() > 0);
        }
    }
}
