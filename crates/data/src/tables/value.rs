//! Texts as numbers, truth values, dates and lists.

use super::{column::Cell, date::time};

/// Words of other programs for a missing value in a column of numbers, dates or truth values.
const MISSING: &[&str] =
    &["NA", "N/A", "NaN", "nan", "NULL", "null", "None", "none", "n/a", "#N/A", "<NA>", "NaT", "-"];

/// Returns true if `text` is a word for a missing value.
pub(super) fn is_missing_word(text: &str) -> bool {
    MISSING.contains(&text)
}

/// Value of a text in its most specific type. A text that is none of them stays a text.
pub(super) fn parse<'a>(text: &'a str, list: &'a mut Vec<f64>) -> Cell<'a> {
    let trimmed = text.trim();
    let Some(&first) = trimmed.as_bytes().first() else { return Cell::Missing };
    match first {
        b'0'..=b'9' | b'+' | b'-' | b'.' => {
            if let Some(value) = integer(trimmed) {
                return Cell::Int(value);
            }
            if let Some(value) = number(trimmed) {
                return Cell::Float(value);
            }
            time(trimmed).map_or(Cell::Text(text), Cell::Time)
        }
        b'[' => {
            if read_list(trimmed, list) {
                return Cell::List(list);
            }
            Cell::Text(text)
        }
        b'i' | b'I' => number(trimmed).map_or(Cell::Text(text), Cell::Float),
        _ => boolean(trimmed).map_or(Cell::Text(text), Cell::Bool),
    }
}

/// Integer in its canonical form: no leading zero or plus sign, which are parts of a code.
fn integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let canonical = digits.len() == 1 || !digits.starts_with('0');
    (canonical && !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
        .then(|| text.parse().ok())?
}

/// Number, also infinite; a number with leading zeros before other digits is a code.
fn number(text: &str) -> Option<f64> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_code = digits.len() > 1 && digits.starts_with('0') && digits.as_bytes()[1].is_ascii_digit();
    (!is_code).then(|| text.parse().ok()).flatten().filter(|x: &f64| !x.is_nan())
}

fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" => Some(true),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" => Some(false),
        _ => None,
    }
}

/// Reads a list of numbers `[0.5, 1]` into `values`.
fn read_list(text: &str, values: &mut Vec<f64>) -> bool {
    values.clear();
    let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) else { return false };
    if inner.trim().is_empty() {
        return true;
    }
    // NumPy separates values by spaces, JSON by commas.
    let separators = |c: char| c == ',' || c.is_ascii_whitespace();
    for word in inner.split(separators).filter(|word| !word.is_empty()) {
        let Ok(value) = word.parse() else { return false };
        values.push(value);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::date::{DAY, format_time};

    #[test]
    fn texts_have_their_most_specific_type() {
        let is = |text: &str, expected: Cell| {
            let mut list = Vec::new();
            assert_eq!(parse(text, &mut list), expected, "{text}");
        };
        is("", Cell::Missing);
        is(" 12 ", Cell::Int(12));
        is("-7", Cell::Int(-7));
        is("007", Cell::Text("007"));
        is("+49 30", Cell::Text("+49 30"));
        is("0.5", Cell::Float(0.5));
        is("1e3", Cell::Float(1000.0));
        is("99999999999999999999", Cell::Float(1e20));
        is("00.5", Cell::Text("00.5"));
        is("inf", Cell::Float(f64::INFINITY));
        is("True", Cell::Bool(true));
        is("no", Cell::Bool(false));
        is("acc-034983", Cell::Text("acc-034983"));
        is("1970-01-02", Cell::Time(DAY));
        is("1970/01/02 00:00:01", Cell::Time(DAY + 1_000_000));
        is("1970-01-01T01:00:00.5+01:00", Cell::Time(500_000));
        is("1970-01-01 02:00:00.5 +0200", Cell::Time(500_000));
        is("1970-01-01 02:00:00+02", Cell::Time(0));
        is("1970-01-01T00:01Z", Cell::Text("1970-01-01T00:01Z"));
        is("1970-01-01T00:01", Cell::Time(60_000_000));
        is("2023-02-30", Cell::Text("2023-02-30"));
        is("[1, 2.5]", Cell::List(&[1.0, 2.5]));
        is("[1. 2.]", Cell::List(&[1.0, 2.0]));
        is("[a]", Cell::Text("[a]"));
    }

    #[test]
    fn times_print_as_they_are_read() {
        for text in ["2024-02-29", "2024-02-29T12:30:00Z", "1969-12-31T23:59:59.250Z"] {
            let micros = time(text).unwrap();
            assert_eq!(time(&format_time(micros)), Some(micros));
        }
        assert_eq!(format_time(0), "1970-01-01");
    }
}
