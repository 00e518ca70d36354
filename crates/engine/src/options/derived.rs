//! Values that options derive from the rows of all tables, made again when a row is registered.

use std::sync::{Mutex, PoisonError};

use graphmill_core::table::registrations;

/// A value made from the rows of all tables.
pub(super) struct Derived<T> {
    make: fn() -> T,
    /// The value, and the number of registered rows before it was made.
    known: Mutex<Option<(usize, T)>>,
}

impl<T: Clone> Derived<T> {
    /// A value that `make` makes on first use.
    pub(super) const fn new(make: fn() -> T) -> Self {
        Self { make, known: Mutex::new(None) }
    }

    /// The value for the rows registered before the call.
    pub(super) fn get(&self) -> T {
        let rows = registrations();
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, value)) = &*known()
            && *of == rows
        {
            return value.clone();
        }
        // made without the lock, because it may ask for another value of this kind
        let value = (self.make)();
        *known() = Some((rows, value.clone()));
        value
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::table::{Entry, Table};

    use super::*;

    #[test]
    fn a_new_row_changes_the_value() {
        static TABLE: Table<u8> = Table::new("number", &[]);
        static NAMES: Derived<String> = Derived::new(|| TABLE.names());
        assert_eq!([NAMES.get(), NAMES.get()], ["", ""]);
        TABLE.register(Entry { name: "one", summary: "", source: "", options: &[], make: 1 }).unwrap();
        assert_eq!([NAMES.get(), NAMES.get()], ["one", "one"]);
    }
}
