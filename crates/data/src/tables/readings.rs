//! Formats that the texts of a column agree with.
//!
//! # Algorithm
//! Every value of a column is read by every format that is left of a fixed list: both decimal
//! separators without a sign and with each sign of a value, and the orders of day, month and year
//! with their times. A format counts if it reads all values. One such format is that of the column;
//! of several, which differ in the values that they give, none is chosen. Formats that fail for
//! 1000 values and 5 % of all are left out early; up to then the order of rows has no effect.
//!
//! # Source
//! Own: `read_csv` of pandas and of DuckDB take the first format that reads a sample.
//!
//! # Cost
//! One or two formats for each value; for the first thousand texts of a column, those of about 130
//! that have no more separators than the text: two without a separator, eight with one.
//!
//! # Memory
//! The formats, and five values that each of them does not read.
#![forbid(unsafe_code)]

use std::{borrow::Cow, sync::LazyLock};

use super::{
    column::Cell,
    format::{Format, sign_of},
};

/// Values that a format does not read that are kept as examples.
const EXAMPLES: usize = 5;

/// Values for which every format may fail before it is left out.
const FAILURES: u64 = 1000;

/// Orders of day, month and year. Names of months may be short.
const DATES: &[&str] = &[
    "%d.%m.%Y",
    "%m.%d.%Y",
    "%Y.%m.%d",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%d-%m-%Y",
    "%m-%d-%Y",
    "%B %d, %Y",
    "%B %d %Y",
    "%d %B %Y",
    "%d. %B %Y",
    "%d-%B-%Y",
];
/// Times behind a date.
const TIMES: &[&str] = &["%H:%M", "%H:%M:%S%.f", "%I:%M %p", "%I:%M:%S%.f %p", "%H:%M:%S%.f %z"];
/// Characters between a date and its time.
const BETWEEN: &[&str] = &[" ", ", "];

/// Formats of dates that are recognized.
static RECOGNIZED: LazyLock<Vec<Format>> = LazyLock::new(|| {
    let with_times = |date: &&str| {
        let timed =
            BETWEEN.iter().flat_map(move |between| TIMES.iter().map(move |time| [*between, *time].concat()));
        let date = date.to_string();
        std::iter::once(date.clone())
            .chain(timed.map(move |time| format!("{date}{time}")))
            .collect::<Vec<_>>()
    };
    DATES.iter().flat_map(with_times).filter_map(|pattern| pattern.parse().ok()).collect()
});

/// Formats that may be found in a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sought {
    /// None: keys, categories, and columns that are not read.
    #[default]
    None,
    /// Numbers.
    Numbers,
    /// Dates.
    Times,
    /// Both.
    All,
}

/// Format that may be that of a column.
#[derive(Clone, Debug)]
struct Candidate {
    format: Cow<'static, Format>,
    /// Least number of separators of a date.
    min_separators: usize,
    /// Number of values that it does not read.
    failed: u64,
    /// Position and text of the first of them.
    examples: Vec<(String, String)>,
}

/// Formats that may be those of a column, while its values are read.
#[derive(Clone, Debug, Default)]
pub(super) struct Readings {
    sought: Sought,
    /// `None` before the first value.
    candidates: Option<Vec<Candidate>>,
    /// Signs of the candidates.
    signs: Vec<String>,
    /// Number of values.
    seen: u64,
    /// Position and text of the first of them.
    first: Vec<(String, String)>,
    /// True if a value differs between both decimal separators, which both read it.
    differ: bool,
    /// True if a value has a sign or a separator that codes do not have: all but digits and spaces.
    is_number: bool,
    /// True if a value is a written number beyond doubt: it has a sign, or several separators.
    is_proven: bool,
    /// The first value, or the first that differs.
    example: String,
}

/// Result for a column.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Found {
    /// No format.
    None,
    /// The only format that reads all values.
    One(Format),
    /// Several formats read all values: this one, which each of them reads differently.
    Several(String, Vec<Format>),
    /// A format reads nearly all values: the number of the others, with positions and texts of the
    /// first of them.
    Nearly(Format, u64, Vec<(String, String)>),
}

impl Readings {
    /// Creates the readings of a column without rows.
    pub(super) fn new(sought: Sought) -> Self {
        Self { sought, ..Self::default() }
    }

    /// Adds a value `cell`, which is not missing, and is `plain` without a format, at the position
    /// that `place` returns.
    pub(super) fn add(&mut self, cell: Cell, plain: Cell, place: impl Fn() -> String) {
        if self.sought == Sought::None || self.candidates.as_ref().is_some_and(Vec::is_empty) {
            return;
        }
        let text = if let Cell::Text(text) = cell { text } else { "" };
        let sign = sign_of(text);
        let mut candidates = self.candidates.take().unwrap_or_else(|| self.candidates());
        let is_new =
            self.sought != Sought::Times && !sign.is_empty() && !self.signs.iter().any(|of| of == sign);
        if is_new && self.seen <= FAILURES {
            // none of the values so far has the sign
            self.signs.push(sign.into());
            candidates.extend([',', '.'].map(|decimal| Candidate {
                format: Cow::Owned(Format::number(decimal, sign)),
                min_separators: 0,
                failed: self.seen,
                examples: self.first.clone(),
            }));
        }
        self.seen += 1;
        if self.first.len() < EXAMPLES {
            self.first.push((place(), cell.text().into_owned()));
        }
        let is_written = !sign.is_empty() || text.contains([',', '.', '\'', '\u{2019}']);
        let (mut separators, mut signs) = (0, 0);
        for c in text.trim().chars().filter(|c| !c.is_alphanumeric()) {
            separators += 1;
            signs += usize::from(matches!(c, '-' | '+'));
        }
        self.is_proven |= !sign.is_empty() || separators - signs >= 2;
        self.is_number |= is_written || matches!(plain, Cell::Float(_));
        let (mut read_by, mut first, mut differs) = (0, 0, false);
        for candidate in &mut candidates {
            // A plain integer is read by both decimal separators.
            let read = match (&*candidate.format, plain) {
                (Format::Number(_), Cell::Int(_)) if text.is_empty() || !candidate.format.has_sign() => {
                    Some(plain)
                }
                // a typed date has no text
                _ if separators < candidate.min_separators && !matches!(cell, Cell::Time(_)) => None,
                _ => candidate.format.read(cell),
            };
            match read {
                Some(value) if !candidate.format.is_time() => {
                    let bits = number(value);
                    differs |= read_by > 0 && bits != first;
                    (read_by, first) = (read_by + 1, bits);
                }
                Some(_) => {}
                None => {
                    candidate.failed += 1;
                    if candidate.examples.len() < EXAMPLES {
                        candidate.examples.push((place(), cell.text().into_owned()));
                    }
                }
            }
        }
        if self.example.is_empty() || (differs && !self.differ) {
            self.example = cell.text().into_owned();
        }
        self.differ |= differs;
        candidates.retain(|candidate| candidate.failed <= FAILURES + self.seen / 20);
        self.candidates = Some(candidates);
    }

    /// Returns true if a value is a written number beyond doubt, and no slip among plain numbers.
    pub(super) fn is_proven(&self) -> bool {
        self.is_proven
    }

    fn candidates(&self) -> Vec<Candidate> {
        let numbers = [Format::number(',', ""), Format::number('.', "")];
        let numbers = numbers.into_iter().filter(|_| self.sought != Sought::Times).map(Cow::<Format>::Owned);
        let times = RECOGNIZED.iter().filter(|_| self.sought != Sought::Numbers).map(Cow::<Format>::Borrowed);
        let candidate = |format: Cow<'static, Format>| {
            let min_separators = format.min_separators();
            Candidate { format, min_separators, failed: 0, examples: Vec::new() }
        };
        numbers.chain(times).map(candidate).collect()
    }

    /// Format of the column, whose values are texts; `few` is the number of values below which no
    /// format reads nearly all.
    pub(super) fn find(&self, few: u64) -> Found {
        let Some(candidates) = &self.candidates else { return Found::None };
        let is_code = |format: &Format| !format.is_time() && !self.is_number;
        let mut all: Vec<&Candidate> = candidates.iter().filter(|candidate| candidate.failed == 0).collect();
        if !self.differ && all.iter().filter(|candidate| !candidate.format.is_time()).count() == 2 {
            // both read the same numbers: the comma, which is first, is not needed
            all.remove(0);
        }
        match &all[..] {
            [] => {
                let nearest = candidates.iter().min_by_key(|candidate| candidate.failed);
                let nearly = |of: &&Candidate| self.seen >= few && of.failed * 20 <= self.seen;
                match nearest.filter(nearly).filter(|of| !is_code(&of.format)) {
                    Some(of) => Found::Nearly(of.format.clone().into_owned(), of.failed, of.examples.clone()),
                    None => Found::None,
                }
            }
            [one] if is_code(&one.format) => Found::None,
            [one] => Found::One(one.format.clone().into_owned()),
            several => {
                let formats = several.iter().map(|candidate| candidate.format.clone().into_owned());
                Found::Several(self.example.clone(), formats.collect())
            }
        }
    }
}

/// Bits of a number, equal for integers and floats.
fn number(cell: Cell) -> u64 {
    match cell {
        Cell::Int(x) => (x as f64).to_bits(),
        Cell::Float(x) => x.to_bits(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::value::parse;

    fn found(sought: Sought, texts: &[&str]) -> Found {
        let mut readings = Readings::new(sought);
        for (row, text) in texts.iter().enumerate() {
            let mut list = Vec::new();
            readings.add(Cell::Text(text), parse(text, &mut list), || format!("line {}", row + 2));
        }
        readings.find(20)
    }

    fn is(texts: &[&str], format: &str) {
        let one = format.parse().unwrap();
        assert_eq!(found(Sought::All, texts), Found::One(one), "{texts:?}");
    }

    #[test]
    fn one_format_reads_all_values() {
        is(&["1.234,56", "7"], "decimal-comma");
        is(&["12", "1,5"], "decimal-comma");
        is(&["1 234,56", "1.234"], "decimal-comma");
        is(&["1,234.56", "0.5"], "decimal-point");
        is(&["1,234", "0.5"], "decimal-point");
        is(&["12'345.6"], "decimal-point");
        is(&["12'345", "7"], "decimal-point");
        is(&["1.234.567", "1.000"], "decimal-comma");
        is(&["3,5 €", "4 €"], "decimal-comma €");
        is(&["$5", "$10"], "decimal-point $");
        is(&["12 %", "7.5 %"], "decimal-point %");
        is(&["31.12.2024", "1.2.2024"], "%d.%m.%Y");
        is(&["12/31/2024", "01/02/2024"], "%m/%d/%Y");
        is(&["31/12/2024 14:05", "01/02/2024 00:00"], "%d/%m/%Y %H:%M");
        is(&["12/31/2024, 2:05:06 PM"], "%m/%d/%Y, %I:%M:%S%.f %p");
        is(&["Dec 31, 2024", "May 1, 2023"], "%B %d, %Y");
        is(&["31-Dec-2024"], "%d-%B-%Y");
        is(&["2024.12.31", "2024.01.02"], "%Y.%m.%d");
        is(&["31.12.2024 14:05:06.123 +02:00"], "%d.%m.%Y %H:%M:%S%.f %z");
    }

    #[test]
    fn several_formats_are_ambiguous() {
        for (texts, formats) in [
            (&["01/02/2024", "03/04/2024"][..], &["%d/%m/%Y", "%m/%d/%Y"][..]),
            (&["01.02.2024"][..], &["%d.%m.%Y", "%m.%d.%Y"][..]),
            (&["05-05-2024"][..], &["%d-%m-%Y", "%m-%d-%Y"][..]),
            (&["1,234", "2,500"][..], &["decimal-comma", "decimal-point"][..]),
        ] {
            let Found::Several(_, found) = found(Sought::All, texts) else { panic!("{texts:?}") };
            let found: Vec<String> = found.iter().map(Format::to_string).collect();
            assert_eq!(found, formats, "{texts:?}");
        }
        // a value that only one of them reads decides, however late it comes
        let mut texts = vec!["01/02/2024"; 500];
        texts.push("13/02/2024");
        is(&texts, "%d/%m/%Y");
        // the formats that are not sought do not count
        assert_eq!(found(Sought::Numbers, &["01/02/2024"]), Found::None);
        assert_eq!(found(Sought::Times, &["1,5"]), Found::None);
        assert_eq!(found(Sought::None, &["1,5"]), Found::None);
    }

    /// Texts of a date by each format, with and without the spaces between their parts.
    fn texts_of_all_formats() -> Vec<String> {
        let at = chrono::DateTime::from_timestamp(1_735_653_906, 500_000_000).unwrap().fixed_offset();
        let written = RECOGNIZED.iter().map(|format| at.format(&format.to_string()).to_string());
        written.flat_map(|text| [text.replace(' ', ""), text.replace(' ', "\u{a0}"), text]).collect()
    }

    #[test]
    fn every_format_that_reads_a_value_is_tried() {
        assert_eq!(RECOGNIZED.len(), DATES.len() * (1 + BETWEEN.len() * TIMES.len()));
        let texts = texts_of_all_formats();
        for (format, own) in RECOGNIZED.iter().zip(texts.chunks(3)) {
            assert!(own.iter().all(|text| format.read(Cell::Text(text)).is_some()), "{format}: {own:?}");
        }
        let others =
            ["5", "-5", "1,5", "1 234.5", "$3", "red", "May", "2024-12-31", "10:30", "a.b, c: d/e-f"];
        let texts = texts.iter().map(|text| Cell::Text(text)).chain(others.map(Cell::Text));
        for cell in texts.chain([Cell::Int(-20_241_231), Cell::Float(1.5), Cell::Time(5), Cell::Bool(true)]) {
            let mut readings = Readings::new(Sought::Times);
            readings.add(cell, cell, String::new);
            let failed = readings.candidates.iter().flatten().map(|candidate| candidate.failed);
            let unread = RECOGNIZED.iter().map(|format| u64::from(format.read(cell).is_none()));
            assert!(failed.eq(unread), "{cell:?}");
        }
    }

    #[test]
    fn texts_with_few_separators_are_read_by_few_formats() {
        let count = |separators| RECOGNIZED.iter().filter(|of| of.min_separators() <= separators).count();
        assert_eq!([0, 1].map(count), [2, 8]);
    }

    #[test]
    fn the_order_of_rows_has_no_effect() {
        for (many, other, format) in [("1,5", "x", "decimal-comma"), ("1,5 €", "x", "decimal-comma €")] {
            for at in [0, 20, 60] {
                let mut texts = vec![many; 60];
                texts.splice(at..at, [other; 3]);
                let Found::Nearly(found, 3, examples) = found(Sought::All, &texts) else {
                    panic!("{many} at {at}")
                };
                assert_eq!((found.to_string(), examples.len()), (format.into(), 3));
            }
        }
    }

    #[test]
    fn mixed_columns_and_codes_have_no_format() {
        for texts in [
            &["1,5", "1.5"][..],
            &["3 €", "3 $"],
            &["3 €", "3"],
            &["31.12.2024", "2024-12-31"],
            &["31.12.2024", "12/31/2024"],
            &["31.12.24", "30.11.24"],
            &["555 123 456", "555 123 457"],
            &["007", "008"],
            &["192.168.1.1"],
            &["red", "blue"],
        ] {
            assert_eq!(found(Sought::All, texts), Found::None, "{texts:?}");
        }
        let mut texts = vec!["1,5"; 39];
        texts.insert(30, "1.5");
        let wrong = vec![("line 32".to_string(), "1.5".to_string())];
        assert_eq!(found(Sought::All, &texts), Found::Nearly(Format::number(',', ""), 1, wrong));
        texts.insert(30, "2.5");
        texts.insert(30, "3.5");
        assert_eq!(found(Sought::All, &texts), Found::None, "3 of 42");
    }
}
