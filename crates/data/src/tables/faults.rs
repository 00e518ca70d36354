//! Faults of tables, collected so that one message lists all of them.

use std::fmt::Write as _;

use graphmill_core::{Error, Result};

/// Maximum number of faults listed of each table.
pub(super) const MAX_LISTED: usize = 20;

/// Faults of one table or several.
#[derive(Debug, Default)]
pub(super) struct Faults {
    tables: Vec<(String, Vec<String>, u64)>,
}

impl Faults {
    /// Adds a fault: position and cause, such as "line 7: column 'age': 'x' is not a number".
    pub(super) fn add(&mut self, table: &str, message: impl Into<String>) {
        self.add_many(table, 1, || message.into());
    }

    /// Adds `count` faults of a kind, described together by `message`.
    pub(super) fn add_many(&mut self, table: &str, count: u64, message: impl FnOnce() -> String) {
        let at = self.tables.iter().position(|(name, ..)| name == table).unwrap_or_else(|| {
            self.tables.push((table.into(), Vec::new(), 0));
            self.tables.len() - 1
        });
        let (_, list, total) = &mut self.tables[at];
        *total += count;
        if list.len() < MAX_LISTED {
            list.push(message());
        }
    }

    /// Adds the message of a failed `result`; returns its value otherwise.
    pub(super) fn take<T>(&mut self, table: &str, result: Result<T, String>) -> Option<T> {
        result.map_err(|message| self.add(table, message)).ok()
    }

    /// Number of faults.
    pub(super) fn total(&self) -> u64 {
        self.tables.iter().map(|(_, _, count)| count).sum()
    }

    /// Returns true if there are faults.
    pub(super) fn any(&self) -> bool {
        !self.tables.is_empty()
    }

    /// Ends with one error that lists all faults, if there are any.
    ///
    /// # Errors
    /// The faults.
    pub(super) fn check(&self) -> Result<()> {
        if !self.any() {
            return Ok(());
        }
        let total = self.total();
        let mut text = format!("the tables have {total} fault{}:", if total == 1 { "" } else { "s" });
        for (table, list, count) in &self.tables {
            for message in list {
                let _ = write!(text, "\n  {table}: {message}");
            }
            let described = list.len() as u64;
            if list.len() == MAX_LISTED && *count > described {
                let _ = write!(text, "\n  {table}: and {} more", count - described);
            }
        }
        Err(Error::invalid(text))
    }
}

/// Maximum number of positions listed of rows with one fault.
const MAX_PLACES: usize = 5;

/// Rows with a fault of one kind.
#[derive(Debug, Default)]
pub(super) struct FaultyRows {
    /// Number of rows.
    pub(super) count: u64,
    /// Positions of the first rows.
    pub(super) places: Vec<String>,
}

impl FaultyRows {
    /// Adds a row at the position that `place` returns.
    pub(super) fn add(&mut self, place: impl FnOnce() -> String) {
        self.count += 1;
        if self.places.len() < MAX_PLACES {
            self.places.push(place());
        }
    }

    /// Adds one fault of all rows of `table`, if there are any: `1 row` or `2 rows`, the `what`
    /// that they have in common, their positions, and the `fix`.
    pub(super) fn report(&self, table: &str, what: &str, fix: &str, faults: &mut Faults) {
        if self.count == 0 {
            return;
        }
        let noun = if self.count == 1 { "row" } else { "rows" };
        faults.add_many(table, self.count, || {
            format!("{} {noun} {what}: {}; {fix}", self.count, self.places.join(", "))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_faults_are_listed_and_long_lists_are_cut() {
        let mut faults = Faults::default();
        assert!(faults.check().is_ok());
        faults.add("a.csv", "line 2: wrong");
        let text = faults.check().unwrap_err().to_string();
        assert_eq!(text, "the tables have 1 fault:\n  a.csv: line 2: wrong");
        for line in 0..30 {
            faults.add("b.csv", format!("line {line}: wrong"));
        }
        let text = faults.check().unwrap_err().to_string();
        assert!(text.starts_with("the tables have 31 faults:"), "{text}");
        assert!(text.ends_with("b.csv: line 19: wrong\n  b.csv: and 10 more"), "{text}");
    }
}
