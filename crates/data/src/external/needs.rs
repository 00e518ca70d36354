//! How much disk an import takes, told before it begins.

use std::path::Path;

use graphmill_core::{Error, Result};

/// What a source will come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// `V`.
    pub nodes: u64,
    /// `E`, every stored direction counted.
    pub edges: u64,
    /// Bytes of feature rows.
    pub features: u64,
    /// Edges have weights.
    pub weighted: bool,
    /// The numbers are estimates, not what the source says.
    pub estimated: bool,
}

impl Needs {
    /// Bytes that the dataset takes on the disk: `8 V + 4 E`, `4 E` for weights, and the features.
    pub fn result(&self) -> u64 {
        8 * self.nodes + if self.weighted { 8 } else { 4 } * self.edges + self.features
    }

    /// Bytes that are taken at the most, before what is temporary goes; `on_disk`: edges are sorted there.
    pub fn peak(&self, on_disk: bool) -> u64 {
        let key = if self.weighted { 12 } else { 8 };
        self.result() + if on_disk { key * self.edges } else { 0 }
    }

    /// Bytes of the whole budget for each edge that is kept in memory, every direction counted: twice what building takes.
    pub(super) fn building(weighted: bool) -> u64 {
        if weighted { 72 } else { 48 }
    }
}

/// Bytes free to us on the file system that holds `path`, where the system tells it.
pub(super) fn free(path: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(path).ok()?;
    found.f_bavail.checked_mul(found.f_frsize)
}

/// What to tell of `needs`, or why it cannot be.
pub(super) fn check(needs: &Needs, on_disk: bool, free: Option<u64>, path: &Path) -> Result<String> {
    let about = if needs.estimated { "about " } else { "" };
    let (peak, result) = (bytes(needs.peak(on_disk)), bytes(needs.result()));
    match free {
        Some(free) if free < needs.peak(on_disk) => Err(Error::format(
            path,
            "disk",
            format!(
                "the work takes {about}{peak} ({result} stay), but {} are free; free some, or write to another disk",
                bytes(free)
            ),
        )),
        Some(free) => Ok(format!("takes {about}{peak} of disk, {result} stay; {} are free", bytes(free))),
        None => Ok(format!("takes {about}{peak} of disk, {result} stay")),
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
    fn what_does_not_fit_is_refused_before_it_begins() {
        let needs =
            Needs { nodes: 1 << 20, edges: 1 << 24, features: 1 << 28, estimated: true, weighted: false };
        assert_eq!(needs.result(), (8 << 20) + (4 << 24) + (1 << 28));
        assert_eq!(needs.peak(true) - needs.peak(false), 8 << 24);
        let weighted = Needs { weighted: true, ..needs };
        assert_eq!(weighted.result() - needs.result(), 4 << 24);
        assert_eq!(weighted.peak(true) - weighted.peak(false), 12 << 24);
        let path = Path::new("d");
        let error = check(&needs, true, Some(1 << 20), path).unwrap_err().to_string();
        assert!(error.contains("about 478.2 MB (343.9 MB stay), but 1.0 MB are free"), "{error}");
        let summary = check(&needs, false, Some(1 << 40), path).unwrap();
        assert!(summary.starts_with("takes about 343.9 MB of disk"), "{summary}");
        assert!(check(&needs, true, None, path).is_ok());
        assert_eq!((bytes(12), bytes(2_000)), ("12 bytes".into(), "2.0 kB".into()));
        if cfg!(target_os = "linux") {
            assert!(free(Path::new(".")).unwrap() > 0);
        }
    }
}
