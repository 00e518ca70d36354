//! Few texts among values of another type, such as `unknown` among numbers.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use super::{
    column::Cell,
    format::{Format, sign_of},
};

/// Different values that are few enough to be listed.
const FEW_VALUES: usize = 5;

/// Texts among values of another type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Others {
    /// Texts with their numbers, the most frequent first.
    values: Vec<(String, u64)>,
}

impl Others {
    /// Creates the list of `counts`; `None` if they are none or many, or if one is a number or a
    /// date in another written form.
    pub(super) fn new<'a>(counts: impl Iterator<Item = (&'a str, u64)>) -> Option<Self> {
        let mut values: BTreeMap<String, u64> = BTreeMap::new();
        for (text, count) in counts {
            *values.entry(text.trim().into()).or_default() += count;
            if values.len() > FEW_VALUES {
                return None;
            }
        }
        let mut values: Vec<(String, u64)> = values.into_iter().collect();
        values.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let is_text = values.iter().all(|(text, _)| !is_written(text));
        (is_text && !values.is_empty()).then_some(Self { values })
    }

    /// Number of values.
    pub(super) fn count(&self) -> u64 {
        self.values.iter().map(|(_, count)| count).sum()
    }

    /// Values with their numbers.
    pub(super) fn list(&self) -> String {
        let one = |(text, count): &(String, u64)| format!("'{text}' ({count})");
        self.values.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    /// Options by which the values of the column `column` count as missing.
    pub(super) fn nulls(&self, column: &str) -> String {
        let one = |(text, _): &(String, u64)| format!("null {column}={text}");
        self.values.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

/// Returns true for a number or a date, in any form that a format may read.
fn is_written(text: &str) -> bool {
    let reads = |decimal| Format::number(decimal, sign_of(text)).read(Cell::Text(text)).is_some();
    let digits = text.chars().filter(char::is_ascii_digit).count();
    // such as 31.12.2024 and 3 July 2024
    let is_date = digits >= 5 && text.chars().any(|c| matches!(c, '.' | '/' | '-' | ' '));
    reads(',') || reads('.') || is_date
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_texts_are_listed_with_their_numbers() {
        let of = |texts: &[&'static str]| Others::new(texts.iter().map(|text| (*text, 2)));
        let found = of(&["?", "unknown", " ? ", "<5"]).unwrap();
        assert_eq!(found.list(), "'?' (4), '<5' (2), 'unknown' (2)");
        assert_eq!(found.nulls("age"), "null age=?, null age=<5, null age=unknown");
        assert_eq!(found.count(), 8);
        for texts in
            [&[][..], &["a", "b", "c", "d", "e", "f"], &["?", "3,5"], &["3 €"], &["31.12.2024"], &["1.234,5"]]
        {
            assert_eq!(of(texts), None, "{texts:?}");
        }
    }
}
