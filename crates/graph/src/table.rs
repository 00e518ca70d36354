//! Explicit registries: every axis of choice (importers, generators, samplers, layers, ...) is one
//! `TABLE` of rows that a reader can take in top to bottom. Command-line choices and error
//! messages follow from it.

use crate::{Error, Result};

/// One registered implementation.
#[derive(Debug, Clone, Copy)]
pub struct Entry<C: 'static> {
    /// The name users type.
    pub name: &'static str,
    /// One line on what it is.
    pub summary: &'static str,
    /// Where it comes from: paper and section, or a file format's home.
    pub source: &'static str,
    /// Makes one, or does it.
    pub make: C,
}

/// The entry called `name`, or an error that lists the known names.
pub fn find<'a, C>(axis: &'static str, table: &'a [Entry<C>], name: &str) -> Result<&'a Entry<C>> {
    table.iter().find(|entry| entry.name == name).ok_or_else(|| Error::Unknown {
        axis,
        name: name.to_string(),
        known: names(table),
    })
}

/// The names of a table, joined by ", ".
pub fn names<C>(table: &[Entry<C>]) -> String {
    table.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Entry<u8>] = &[
        Entry { name: "one", summary: "", source: "", make: 1 },
        Entry { name: "two", summary: "", source: "", make: 2 },
    ];

    #[test]
    fn unknown_names_list_the_known_ones() {
        assert_eq!(find("number", TABLE, "two").unwrap().make, 2);
        let message = find("number", TABLE, "three").unwrap_err().to_string();
        assert_eq!(message, "unknown number 'three'; known: one, two");
    }
}
