//! Conversion of panics of the Parquet decoder to errors.
//!
//! Version 60 of the `parquet` crate panics if a damaged page violates the assertions of its
//! decoders (the regressions `no-dictionary` and `delta-nothing` of `import_parquet`), but
//! importing a damaged file must end in an error. The panic is only caught: its message still goes
//! to standard error, because a library must not replace the process's panic hook.

use std::panic::{AssertUnwindSafe, catch_unwind};

use parquet::errors::ParquetError;

/// Runs `work` and converts a panic to an error. The caller drops unfinished state.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(ParquetError::General("the data is damaged: its decoder panicked".into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error() {
        assert_eq!(guarded(|| Ok(1)).unwrap(), 1);
        let error = guarded::<()>(|| panic!("expected in this test")).unwrap_err();
        assert!(error.to_string().contains("its decoder panicked"));
    }
}
