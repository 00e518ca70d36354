//! Free space of file systems.

#![forbid(unsafe_code)]

use std::{io, path::Path};

/// Bytes that this process may still write on the file system of `path`.
///
/// # Errors
/// The path does not exist or cannot be examined. [`io::ErrorKind::Unsupported`] means that the
/// system does not report the space.
pub fn free(path: &Path) -> io::Result<u64> {
    #[cfg(unix)]
    {
        let found = rustix::fs::statvfs(path)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }
    #[cfg(not(unix))]
    {
        path.metadata()?;
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_reported_for_paths_that_exist() {
        assert_eq!(free(Path::new("/nowhere/at/all")).unwrap_err().kind(), io::ErrorKind::NotFound);
        match free(Path::new(".")) {
            Ok(bytes) => assert!(cfg!(unix) && bytes > 0),
            Err(error) => assert!(!cfg!(unix) && error.kind() == io::ErrorKind::Unsupported),
        }
    }
}
