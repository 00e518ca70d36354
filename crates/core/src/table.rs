//! Registries: every axis of choice (importers, generators, samplers, layers, ...) is one `TABLE`
//! of rows that a reader can take in top to bottom. Command-line choices and error messages follow
//! from it. Another crate adds a row of its own to a [`Table`] with [`Table::register`].

#![forbid(unsafe_code)]

use std::{
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
    vec,
};

#[cfg(feature = "options")]
use crate::options::OptionGroup;
use crate::{Error, Result};

/// Number of rows that were registered in all tables.
static REGISTERED: AtomicUsize = AtomicUsize::new(0);

/// Number of rows registered in all tables of the process. What was derived from the rows is up to
/// date as long as it stays the same.
pub fn registrations() -> usize {
    REGISTERED.load(Ordering::Acquire)
}

/// Options of a row, which are empty for a crate without options of its own.
#[cfg(not(feature = "options"))]
#[derive(Debug, Clone, Copy)]
pub enum OptionGroup {}

/// One registered implementation.
#[derive(Debug, Clone, Copy)]
pub struct Entry<C: 'static> {
    /// Name that users type.
    pub name: &'static str,
    /// Description in one line.
    pub summary: &'static str,
    /// Origin: paper and section, or the home of a file format.
    pub source: &'static str,
    /// Option groups of the row, one for each struct; several rows may share a group.
    pub options: &'static [OptionGroup],
    /// Constructor of the implementation, or its function.
    pub make: C,
}

/// Rows of an axis: the built-in ones, and those that other crates registered.
///
/// ```
/// use graphmill_core::table::{Entry, Table};
///
/// static TABLE: Table<fn(f64) -> f64> = Table::new(
///     "scale",
///     &[Entry { name: "linear", summary: "unchanged", source: "", options: &[], make: |x| x }],
/// );
///
/// TABLE.register(Entry { name: "log", summary: "the logarithm", source: "", options: &[], make: f64::ln })?;
/// assert_eq!(TABLE.names(), "linear, log");
/// assert_eq!((TABLE.find("log")?.make)(1.0), 0.0);
/// assert!(TABLE.find("cubic").is_err_and(|e| e.to_string() == "unknown scale 'cubic'; known: linear, log"));
/// # Ok::<(), graphmill_core::Error>(())
/// ```
pub struct Table<C: 'static> {
    axis: &'static str,
    built_in: &'static [Entry<C>],
    registered: RwLock<Vec<&'static Entry<C>>>,
}

impl<C> Table<C> {
    /// Creates a table of the built-in rows; `axis` is the name of a row in messages.
    pub const fn new(axis: &'static str, built_in: &'static [Entry<C>]) -> Self {
        Self { axis, built_in, registered: RwLock::new(Vec::new()) }
    }

    /// The word for one row in messages: `sampler`, `order`, ...
    pub fn axis(&self) -> &'static str {
        self.axis
    }

    /// Adds a row for the rest of the process. Register before the first run that uses the name.
    ///
    /// # Errors
    /// The name is empty, has other characters than letters, digits and `-`, or is taken.
    pub fn register(&self, entry: Entry<C>) -> Result<()> {
        let (axis, name) = (self.axis, entry.name);
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return Err(Error::invalid(format!("{axis} '{name}': a name has letters, digits and '-' alone")));
        }
        let mut registered = self.registered.write().unwrap_or_else(PoisonError::into_inner);
        if self.built_in.iter().chain(registered.iter().copied()).any(|row| row.name == name) {
            return Err(Error::invalid(format!(
                "{axis} '{name}' is already registered; choose another name"
            )));
        }
        registered.push(Box::leak(Box::new(entry)));
        REGISTERED.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// The rows: those built in, then those registered, in the order of their registration.
    pub fn iter(&self) -> vec::IntoIter<&'static Entry<C>> {
        let registered = self.registered.read().unwrap_or_else(PoisonError::into_inner);
        self.built_in.iter().chain(registered.iter().copied()).collect::<Vec<_>>().into_iter()
    }

    /// The row called `name`, if there is one.
    pub fn get(&self, name: &str) -> Option<&'static Entry<C>> {
        self.iter().find(|entry| entry.name == name)
    }

    /// The row called `name`.
    ///
    /// # Errors
    /// No row has that name; the message lists the known names.
    pub fn find(&self, name: &str) -> Result<&'static Entry<C>> {
        self.get(name).ok_or_else(|| Error::Unknown {
            axis: self.axis,
            name: name.to_string(),
            known: self.names(),
        })
    }

    /// The name of each row, with its options.
    #[cfg(feature = "options")]
    pub fn groups(&self) -> Vec<(&'static str, &'static [OptionGroup])> {
        self.iter().map(|entry| (entry.name, entry.options)).collect()
    }

    /// The names, joined by ", ".
    pub fn names(&self) -> String {
        self.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ")
    }
}

impl<C> IntoIterator for &Table<C> {
    type Item = &'static Entry<C>;
    type IntoIter = vec::IntoIter<&'static Entry<C>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The entry called `name` of a table that only its own crate extends, or an error that lists the
/// known names.
pub fn find<'a, C>(axis: &'static str, table: &'a [Entry<C>], name: &str) -> Result<&'a Entry<C>> {
    table.iter().find(|entry| entry.name == name).ok_or_else(|| Error::Unknown {
        axis,
        name: name.to_string(),
        known: names(table),
    })
}

/// The names of such a table, joined by ", ".
pub fn names<C>(table: &[Entry<C>]) -> String {
    table.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &[Entry<u8>] = &[
        Entry { name: "one", summary: "", source: "", options: &[], make: 1 },
        Entry { name: "two", summary: "", source: "", options: &[], make: 2 },
    ];

    #[test]
    fn unknown_names_list_the_known_ones() {
        assert_eq!(find("number", ROWS, "two").unwrap().make, 2);
        let message = find("number", ROWS, "three").unwrap_err().to_string();
        assert_eq!(message, "unknown number 'three'; known: one, two");
    }

    #[test]
    fn registered_rows_follow_the_built_in_ones() {
        static TABLE: Table<u8> = Table::new("number", ROWS);
        let row = |name, make| Entry { name, summary: "", source: "", options: &[], make };
        let before = registrations();
        TABLE.register(row("nine", 9)).unwrap();
        assert!(registrations() > before);
        TABLE.register(row("three", 3)).unwrap();
        assert_eq!(TABLE.names(), "one, two, nine, three");
        assert_eq!(TABLE.find("nine").unwrap().make, 9);
        let message = TABLE.find("four").unwrap_err().to_string();
        assert_eq!(message, "unknown number 'four'; known: one, two, nine, three");
    }

    #[test]
    fn duplicate_and_invalid_names_are_rejected() {
        static TABLE: Table<u8> = Table::new("number", ROWS);
        let register = |name| TABLE.register(Entry { name, summary: "", source: "", options: &[], make: 0 });
        register("three").unwrap();
        for taken in ["one", "three"] {
            let message = register(taken).unwrap_err().to_string();
            assert!(message.contains(&format!("number '{taken}' is already registered")), "{message}");
        }
        for name in ["", "a b", "presc:2", "a,b"] {
            assert!(register(name).is_err(), "{name:?}");
        }
        assert_eq!(TABLE.iter().len(), 3);
    }
}
