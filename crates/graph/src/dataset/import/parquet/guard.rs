//! Panics of the reader beneath, as errors. Some decoders assert what a damaged page does not keep.

use std::{
    cell::Cell,
    panic::{self, AssertUnwindSafe},
    sync::Once,
};

use parquet::errors::ParquetError;

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Does `work`, and turns a panic in it into an error. Whatever a panic leaves half done has to be dropped with the error.
///
/// A panic is announced before it is caught, by the process's hook, and a user would take the announcement for a fault of
/// the program. So the first call puts a hook before the one that is there; it keeps quiet about this thread's panics
/// while it is in here, and hands on all others.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !GUARDED.get() {
                hook(info);
            }
        }));
    });
    let before = GUARDED.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(before);
    result
        .unwrap_or_else(|_| Err(ParquetError::General("the data is damaged, and its reader gave up".into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error() {
        assert_eq!(guarded(|| Ok(1)).unwrap(), 1);
        let error = guarded::<()>(|| panic!("this is not to be seen")).unwrap_err();
        assert!(error.to_string().contains("its reader gave up"));
        assert!(!GUARDED.get());
    }
}
