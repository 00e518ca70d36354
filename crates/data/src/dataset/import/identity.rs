//! Identity of an import: everything its result depends on.

use std::{fs, path::Path, time::UNIX_EPOCH};

use graphmill_core::{Error, Result};

use super::ImportOptions;

/// Maximum number of files that identify a source; only the first ones of a larger source are used.
const MAX_FILES: usize = 10_000;

/// Computes the identity: the format, the options, and name, size and time of every file of the
/// source.
pub(super) fn of(format: &str, src: &Path, options: &ImportOptions) -> Result<String> {
    let mut text = format!("{} {format} {options:?}", env!("CARGO_PKG_VERSION"));
    let mut files = 0;
    for path in options.paths(src) {
        // A prefix of several files, as for Planetoid, is identified by its directory.
        let there = if path.exists() { Some(path) } else { path.parent() };
        if let Some(path) = there.filter(|path| path.exists()) {
            describe(path, 0, &mut files, &mut text)?;
        }
    }
    Ok(text)
}

/// Appends name, size and time of `path`, and of all files below it.
fn describe(path: &Path, depth: usize, files: &mut usize, text: &mut String) -> Result<()> {
    let data = fs::metadata(path).map_err(|e| Error::io(path, "look at", e))?;
    *files += 1;
    if *files > MAX_FILES {
        return Ok(());
    }
    if data.is_dir() && depth < 4 {
        let entries = fs::read_dir(path).map_err(|e| Error::io(path, "look into", e))?;
        let mut entries: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        entries.sort_unstable();
        return entries.iter().try_for_each(|entry| describe(entry, depth + 1, files, text));
    }
    if data.is_file() {
        let time = data.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let nanos = time.map_or(0, |time| time.as_nanos());
        text.push_str(&format!("\n{} {} {nanos}", path.display(), data.len()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_changes_with_the_source_and_the_options() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("edges.txt");
        fs::write(&file, "0 1\n").unwrap();
        let plain = ImportOptions::default();
        let first = of("edges", dir.path(), &plain).unwrap();
        assert_eq!(of("edges", dir.path(), &plain).unwrap(), first);
        let other = ImportOptions { undirected: true, ..Default::default() };
        assert_ne!(of("edges", dir.path(), &other).unwrap(), first);
        assert_ne!(of("npz", dir.path(), &plain).unwrap(), first);
        fs::write(&file, "0 1\n1 0\n").unwrap();
        assert_ne!(of("edges", dir.path(), &plain).unwrap(), first);
        assert!(of("edges", &dir.path().join("ind.x"), &plain).is_ok());
        let named = ImportOptions { labels: Some(file.clone()), ..Default::default() };
        assert!(of("edges", Path::new("no/such"), &named).unwrap().contains("edges.txt 8"));
    }
}
