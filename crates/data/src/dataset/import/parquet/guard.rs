//! Panics of the Parquet decoder, as errors.
//!
//! Version 60 of the `parquet` crate panics where a damaged page breaks what its decoders assert (the regressions
//! `no-dictionary` and `delta-nothing` of `import_parquet`), and an import of a damaged file must end in an error. The panic
//! is caught and no more: its message still goes to standard error, because a library must not replace the process's
//! panic hook.

use std::panic::{AssertUnwindSafe, catch_unwind};

use parquet::errors::ParquetError;

/// Does `work` and turns a panic in it into an error. The caller drops what a panic leaves half done.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(ParquetError::General("the data is damaged, and its reader gave up".into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error() {
        assert_eq!(guarded(|| Ok(1)).unwrap(), 1);
        let error = guarded::<()>(|| panic!("expected in this test")).unwrap_err();
        assert!(error.to_string().contains("its reader gave up"));
    }
}
