//! Written forms of numbers and dates other than those that every program reads: `1.234,56 €`,
//! `31.12.2024`, milliseconds since 1970.
//!
//! A format belongs to a column, and applies to its texts; numbers and dates of a typed file stay
//! as they are. A text that the format does not read is a fault, so that no value is read in two
//! ways.
#![forbid(unsafe_code)]

use std::{
    fmt::{self, Write as _},
    ops::Range,
    str::FromStr,
};

use chrono::{
    NaiveDate, NaiveTime,
    format::{Fixed, Item, Numeric, Parsed, StrftimeItems, parse},
};
use graphmill_core::{Error, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    column::{Cell, Column},
    value::{self, is_missing_word},
};

/// Names of the formats of numbers, with their decimal separator.
const NUMBERS: &[(&str, char)] = &[("decimal-comma", ','), ("decimal-point", '.')];
/// Names of the units of Unix times, with their number in a second.
const UNITS: &[(&str, i64)] =
    &[("unix-s", 1), ("unix-ms", 1_000), ("unix-us", 1_000_000), ("unix-ns", 1_000_000_000)];
/// Years that a date may have: a year of two digits is not one of the first century.
const YEARS: std::ops::RangeInclusive<i32> = 1000..=9999;

/// Microseconds since 1970 of these years.
const MICROS: Range<i64> = -30_610_224_000_000_000..253_402_300_800_000_000;

/// Written form of the numbers or dates of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Format {
    /// Numbers with groups of three digits.
    Number(NumberFormat),
    /// Numbers of a unit of time since 1970, UTC, of which a second has this many: 1 for `unix-s`,
    /// 1000 for `unix-ms`.
    Unix(i64),
    /// Dates by a pattern of strftime, such as `%d.%m.%Y`.
    Time(TimePattern),
}

/// Numbers of one decimal separator and one sign.
///
/// Groups of three digits before it may be divided by the other one of comma and point, by spaces,
/// or by apostrophes: one kind in a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberFormat {
    /// Comma or point.
    decimal: char,
    /// Sign before or behind every number, such as `€` or `%`; empty for none. It is left out, so
    /// that `12 %` is 12.
    sign: String,
}

/// Pattern of dates, as strftime has it.
#[derive(Clone, Debug, PartialEq)]
pub struct TimePattern {
    pattern: String,
    items: Vec<Item<'static>>,
}

impl Format {
    /// Numbers with the decimal separator `decimal` and the sign `sign`.
    pub(super) fn number(decimal: char, sign: &str) -> Self {
        Self::Number(NumberFormat { decimal, sign: sign.into() })
    }

    /// Returns true for a format of dates.
    pub(super) fn is_time(&self) -> bool {
        !matches!(self, Self::Number(_))
    }

    /// Returns true if every number has a sign of its unit.
    pub(super) fn has_sign(&self) -> bool {
        matches!(self, Self::Number(format) if !format.sign.is_empty())
    }

    /// Number of characters, other than letters, digits and spaces, that every text of a date has:
    /// those between the parts of its pattern. Spaces may be absent, as in `31Dec2024`. 0 for other
    /// formats.
    pub(super) fn min_separators(&self) -> usize {
        let Self::Time(TimePattern { items, .. }) = self else { return 0 };
        let of_item = |item: &Item| {
            let text: &str = match item {
                Item::Literal(text) => text,
                Item::OwnedLiteral(text) => text,
                _ => "",
            };
            text.chars().filter(|c| !c.is_alphanumeric() && !c.is_whitespace()).count()
        };
        items.iter().map(of_item).sum()
    }

    /// Value of a cell: a number or a time; `None` if the format does not read it. Typed numbers,
    /// and typed dates under a format of dates, stay as they are.
    pub(super) fn read<'a>(&self, cell: Cell<'a>) -> Option<Cell<'a>> {
        match (self, cell) {
            (_, Cell::Missing) => Some(Cell::Missing),
            (_, Cell::Text(text)) if text.trim().is_empty() || is_missing_word(text.trim()) => {
                Some(Cell::Missing)
            }
            (Self::Number(_), Cell::Int(_) | Cell::Float(_))
            | (Self::Unix(_) | Self::Time(_), Cell::Time(_)) => Some(cell),
            (Self::Number(format), Cell::Text(text)) => format.read(text.trim()),
            (Self::Time(pattern), Cell::Text(text)) => pattern.read(text.trim()).map(Cell::Time),
            // such as 20241231; a short year may have lost a zero before it
            (Self::Time(pattern), Cell::Int(_)) if !pattern.has_short_year() => {
                pattern.read(&cell.text()).map(Cell::Time)
            }
            (Self::Unix(unit), Cell::Text(text)) => {
                unix(value::parse(text, &mut Vec::new()), *unit).map(Cell::Time)
            }
            (Self::Unix(unit), number) => unix(number, *unit).map(Cell::Time),
            _ => None,
        }
    }

    /// Column of the values; those that the format does not read are missing, and passed to
    /// `wrong` with their row.
    pub(super) fn convert(&self, column: &Column, mut wrong: impl FnMut(usize, Cell)) -> Column {
        let mut read = |row: usize| {
            let cell = column.get(row);
            self.read(cell).unwrap_or_else(|| {
                wrong(row, cell);
                Cell::Missing
            })
        };
        let rows = column.len();
        if self.is_time() {
            return Column::Time((0..rows).map(|row| read(row).time()).collect());
        }
        let cells: Vec<Cell> = (0..rows).map(&mut read).collect();
        if cells.iter().any(|cell| matches!(cell, Cell::Float(_))) {
            let float = |cell: &Cell| match *cell {
                Cell::Int(x) => Some(x as f64),
                Cell::Float(x) => Some(x),
                _ => None,
            };
            return Column::Float(cells.iter().map(float).collect());
        }
        let integer = |cell: &Cell| if let Cell::Int(x) = *cell { Some(x) } else { None };
        Column::Int(cells.iter().map(integer).collect())
    }

    /// Values that the format reads, for messages.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Number(NumberFormat { decimal: ',', .. }) => {
                format!("a number with a decimal comma ({self})")
            }
            Self::Number(_) => format!("a number with a decimal point ({self})"),
            Self::Unix(_) | Self::Time(_) => format!("a date of the format {self}"),
        }
    }
}

/// Microseconds of a number of units since 1970, of which a second has `unit`.
fn unix(number: Cell, unit: i64) -> Option<i64> {
    let micros = match number {
        Cell::Int(x) if unit <= 1_000_000 => x.checked_mul(1_000_000 / unit),
        Cell::Int(x) => Some(x.div_euclid(unit / 1_000_000)),
        Cell::Float(x) => super::column::integral((x * (1e6 / unit as f64)).round()),
        _ => None,
    };
    micros.filter(|micros| MICROS.contains(micros))
}

/// Sign of a currency or of percent in a text.
pub(super) fn sign_of(text: &str) -> &str {
    let is_sign = |c: char| matches!(c, '$' | '¢' | '£' | '¤' | '¥' | '%' | '\u{20a0}'..='\u{20cf}');
    text.find(is_sign).map_or("", |at| &text[at..at + text[at..].chars().next().map_or(0, char::len_utf8)])
}

impl NumberFormat {
    /// Number of a trimmed text: an integer if it has no fraction and no exponent.
    pub(super) fn read<'a>(&self, text: &str) -> Option<Cell<'a>> {
        let (mut rest, mut is_negative) = (text, false);
        let mut has_sign = self.sign.is_empty();
        // the minus stands before or behind the sign of the unit
        for _ in 0..2 {
            if !has_sign {
                let inner = rest.strip_prefix(&self.sign).or_else(|| rest.strip_suffix(&self.sign));
                (rest, has_sign) = (inner.unwrap_or(rest).trim(), inner.is_some());
            }
            if !is_negative && let Some(inner) = rest.strip_prefix(['-', '\u{2212}']) {
                (rest, is_negative) = (inner.trim_start(), true);
            }
        }
        if !has_sign {
            return None;
        }
        let rest = if is_negative { rest } else { rest.strip_prefix('+').unwrap_or(rest) };
        let (mantissa, exponent) = match rest.find(['e', 'E']) {
            Some(at) => (&rest[..at], &rest[at..]),
            None => (rest, ""),
        };
        let (whole, fraction) = match mantissa.split_once(self.decimal) {
            Some((whole, fraction)) => (whole, Some(fraction)),
            None => (mantissa, None),
        };
        let is_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        if !fraction.is_none_or(is_digits) || (whole.is_empty() && fraction.is_none_or(str::is_empty)) {
            return None;
        }
        let mut digits = if is_negative { "-".to_string() } else { String::new() };
        self.push_groups(whole, &mut digits)?;
        if fraction.is_none() && exponent.is_empty() {
            return match digits.parse() {
                Ok(value) => Some(Cell::Int(value)),
                Err(_) => digits.parse().ok().map(Cell::Float),
            };
        }
        digits.push('.');
        digits.push_str(fraction.unwrap_or_default());
        digits.push_str(exponent);
        digits.parse().ok().map(Cell::Float)
    }

    /// Appends the digits of the part before the decimal separator, whose groups have three digits
    /// and one separator. A number with a leading zero is a code.
    fn push_groups(&self, whole: &str, digits: &mut String) -> Option<()> {
        if whole.len() > 1 && whole.starts_with('0') {
            return None;
        }
        let separator = whole.chars().find(|c| !c.is_ascii_digit());
        let is_separator = |c: char| {
            matches!(c, ' ' | '\u{a0}' | '\u{2009}' | '\u{202f}' | '\'' | '\u{2019}')
                || (matches!(c, '.' | ',') && c != self.decimal)
        };
        let Some(separator) = separator else {
            digits.push_str(whole);
            return Some(());
        };
        if !is_separator(separator) {
            return None;
        }
        for (i, group) in whole.split(separator).enumerate() {
            let fits = if i == 0 { (1..=3).contains(&group.len()) } else { group.len() == 3 };
            if !fits || !group.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            digits.push_str(group);
        }
        Some(())
    }
}

impl TimePattern {
    /// Creates the pattern of dates.
    ///
    /// # Errors
    /// It is not a pattern, or leaves the date open.
    fn new(pattern: &str) -> Result<Self, String> {
        let items = StrftimeItems::new(pattern).parse_to_owned();
        let items = items.map_err(|_| "it is not a pattern of strftime".to_string())?;
        if items.contains(&Item::Fixed(Fixed::TimezoneName)) {
            return Err("%Z names are not read; use %z".into());
        }
        let has = |is: fn(&Numeric) -> bool| {
            items.iter().any(|item| matches!(item, Item::Numeric(part, _) if is(part)))
        };
        let has_hour = has(|part| matches!(part, Numeric::Hour | Numeric::Hour12 | Numeric::Timestamp));
        if !has_hour && has(|part| matches!(part, Numeric::Minute | Numeric::Second)) {
            return Err("it has minutes or seconds, but no hour".into());
        }
        let this = Self { pattern: pattern.into(), items };
        // A date that the pattern writes is one that it reads.
        let sample = NaiveDate::from_ymd_opt(2024, 12, 31).and_then(|date| date.and_hms_opt(14, 0, 0));
        let sample = sample.ok_or("there is no sample of a date")?.and_utc().fixed_offset();
        let mut text = String::new();
        write!(text, "{}", sample.format_with_items(this.items.iter()))
            .map_err(|_| "it has a part that cannot be written, such as %#z; use %z".to_string())?;
        let day = |micros: i64| micros.div_euclid(super::date::DAY);
        match this.read(&text) {
            Some(micros) if day(micros) == day(sample.timestamp_micros()) => Ok(this),
            _ => Err("it does not give year, month and day".into()),
        }
    }

    /// Returns true if the year has two digits.
    fn has_short_year(&self) -> bool {
        self.items.iter().any(|item| matches!(item, Item::Numeric(Numeric::YearMod100, _)))
    }

    /// Microseconds since 1970 of a text. Without an offset the time is UTC, and without a time it
    /// is midnight.
    fn read(&self, text: &str) -> Option<i64> {
        let mut parsed = Parsed::new();
        parse(&mut parsed, text, self.items.iter()).ok()?;
        if parsed.timestamp().is_some() {
            return Some(parsed.to_naive_datetime_with_offset(0).ok()?.and_utc().timestamp_micros());
        }
        let date =
            parsed.to_naive_date().ok().filter(|date| YEARS.contains(&chrono::Datelike::year(date)))?;
        if parsed.hour_mod_12().is_some() && parsed.minute().is_none() {
            parsed.set_minute(0).ok()?;
        }
        let time = match parsed.hour_mod_12() {
            Some(_) => parsed.to_naive_time().ok()?,
            None => NaiveTime::MIN,
        };
        let offset = i64::from(parsed.offset().unwrap_or(0)) * 1_000_000;
        Some(date.and_time(time).and_utc().timestamp_micros() - offset)
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim();
        let wrong = |why: &str| {
            Error::invalid(format!(
                "format '{text}': {why}; write decimal-comma or decimal-point, with a sign as in \
                 'decimal-comma €', unix-s, unix-ms, unix-us or unix-ns, or a pattern of dates such as \
                 %d.%m.%Y or '%m/%d/%Y %H:%M'"
            ))
        };
        let (name, sign) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        if let Some((_, decimal)) = NUMBERS.iter().find(|(known, _)| *known == name) {
            let sign = sign.trim();
            let is_part = |c: char| c.is_ascii_digit() || c.is_whitespace() || "+-.,'".contains(c);
            if sign.contains(is_part) {
                return Err(wrong("the sign has digits, spaces or separators"));
            }
            return Ok(Self::number(*decimal, sign));
        }
        if let Some((_, unit)) = UNITS.iter().find(|(known, _)| *known == text) {
            return Ok(Self::Unix(*unit));
        }
        if !text.contains('%') {
            return Err(wrong("it is unknown"));
        }
        TimePattern::new(text).map(Self::Time).map_err(|why| wrong(&why))
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(NumberFormat { decimal, sign }) => {
                let name = NUMBERS.iter().find(|(_, known)| known == decimal).map_or("", |(name, _)| name);
                f.write_str(name)?;
                if sign.is_empty() { Ok(()) } else { write!(f, " {sign}") }
            }
            Self::Unix(unit) => {
                f.write_str(UNITS.iter().find(|(_, known)| known == unit).map_or("", |(name, _)| name))
            }
            Self::Time(pattern) => f.write_str(&pattern.pattern),
        }
    }
}

impl Serialize for Format {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Format {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|e: Error| serde::de::Error::custom(e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::date::{DAY, time};

    fn read<'a>(format: &str, text: &'a str) -> Option<Cell<'a>> {
        format.parse::<Format>().unwrap().read(Cell::Text(text))
    }

    #[test]
    fn numbers_have_one_decimal_separator_and_whole_groups() {
        for (format, text, value) in [
            ("decimal-comma", "1.234,56", 1234.56),
            ("decimal-comma", "1 234,5", 1234.5),
            ("decimal-comma", "1\u{a0}234\u{a0}567,5", 1_234_567.5),
            ("decimal-comma", "-0,25", -0.25),
            ("decimal-comma", ",5", 0.5),
            ("decimal-comma", "1,5e3", 1500.0),
            ("decimal-point", "1,234.5", 1234.5),
            ("decimal-point", "12'345.6", 12345.6),
            ("decimal-point", "12\u{2019}345.5", 12345.5),
            ("decimal-point", "\u{2212}1.5", -1.5),
            ("decimal-comma €", "1.234,50 €", 1234.5),
            ("decimal-comma €", "-€1,5", -1.5),
            ("decimal-point $", "$-1.5", -1.5),
            ("decimal-point CHF", "CHF 1'234.50", 1234.5),
            ("decimal-comma %", "12,5 %", 12.5),
        ] {
            assert_eq!(read(format, text), Some(Cell::Float(value)), "{text}");
        }
        assert_eq!(read("decimal-comma", "1.234"), Some(Cell::Int(1234)));
        assert_eq!(read("decimal-point", "1,234,567"), Some(Cell::Int(1_234_567)));
        assert_eq!(read("decimal-point", "1.234"), Some(Cell::Float(1.234)));
        assert_eq!(read("decimal-comma", "NA"), Some(Cell::Missing));
        for (format, text) in [
            ("decimal-comma", "1.5"),
            ("decimal-comma", "1,234,567"),
            ("decimal-comma", "1.234 567"),
            ("decimal-comma", "12.34,5"),
            ("decimal-comma", "0.123"),
            ("decimal-comma", "007"),
            ("decimal-comma", "1,5 €"),
            ("decimal-comma €", "1,5"),
            ("decimal-comma €", "1,5 $"),
            ("decimal-point", "1,23"),
            ("decimal-point", "1.2.3"),
            ("decimal-point", "."),
            ("decimal-point", "x"),
        ] {
            assert_eq!(read(format, text), None, "{format}: {text}");
        }
    }

    #[test]
    fn dates_are_read_by_their_pattern_and_units() {
        for (format, text, iso) in [
            ("%d.%m.%Y", "31.12.2024", "2024-12-31"),
            ("%d.%m.%Y", "1.2.2024", "2024-02-01"),
            ("%m/%d/%Y", "12/31/2024", "2024-12-31"),
            ("%d/%m/%Y %H:%M", "31/12/2024 14:05", "2024-12-31T14:05:00Z"),
            ("%d/%m/%Y %H", "31/12/2024 14", "2024-12-31T14:00:00Z"),
            ("%m/%d/%Y, %I:%M:%S %p", "12/31/2024, 2:05:06 PM", "2024-12-31T14:05:06Z"),
            ("%B %d, %Y", "Dec 31, 2024", "2024-12-31"),
            ("%B %d, %Y", "December 31, 2024", "2024-12-31"),
            ("%d.%m.%y", "31.12.24", "2024-12-31"),
            ("%Y%m%d", "20241231", "2024-12-31"),
            ("%d.%m.%Y %H:%M:%S%.f %z", "31.12.2024 14:05:06.5 +0200", "2024-12-31T12:05:06.5Z"),
            ("unix-s", "1735653906", "2024-12-31T14:05:06Z"),
            ("unix-ms", "1735653906500", "2024-12-31T14:05:06.5Z"),
            ("unix-s", "1735653906.5", "2024-12-31T14:05:06.5Z"),
            ("unix-ns", "1735653906500000000", "2024-12-31T14:05:06.5Z"),
        ] {
            let expected = time(iso).unwrap();
            assert_eq!(read(format, text), Some(Cell::Time(expected)), "{format}: {text}");
        }
        for (format, text) in [
            ("%d.%m.%Y", "31.13.2024"),
            ("%d.%m.%Y", "31.12.24"),
            ("%d.%m.%Y", "31.12.2024 14:05"),
            ("%d.%m.%Y", "2024-12-31"),
            ("unix-s", "31.12.2024"),
            ("unix-s", "1735653906500"),
        ] {
            assert_eq!(read(format, text), None, "{format}: {text}");
        }
        let pattern: Format = "%Y%m%d".parse().unwrap();
        assert_eq!(pattern.read(Cell::Int(19_700_102)), Some(Cell::Time(DAY)));
        assert_eq!(pattern.read(Cell::Time(5)), Some(Cell::Time(5)), "typed dates stay");
        let short: Format = "%d%m%y".parse().unwrap();
        assert_eq!(short.read(Cell::Int(10_124)), None, "the zero before it is lost");
        assert!(short.read(Cell::Text("010124")).is_some());
        let unix: Format = "unix-ms".parse().unwrap();
        assert_eq!(unix.read(Cell::Int(1500)), Some(Cell::Time(1_500_000)));
    }

    #[test]
    fn years_of_two_digits_are_those_from_1970_to_2069() {
        for short in 0..100 {
            let year = if short < 70 { 2000 + short } else { 1900 + short };
            let expected = time(&format!("{year}-03-01")).unwrap();
            for (format, text) in
                [("%d.%m.%y", format!("01.03.{short:02}")), ("%y%m%d", format!("{short:02}0301"))]
            {
                assert_eq!(read(format, &text), Some(Cell::Time(expected)), "{format}: {text}");
            }
        }
        assert_eq!(read("%d.%m.%y", "01.03.1969"), None, "four digits need %Y");
    }

    #[test]
    fn formats_parse_and_print() {
        for text in ["decimal-comma", "decimal-point %", "decimal-comma €", "unix-ms", "%d/%m/%Y %H:%M"] {
            assert_eq!(text.parse::<Format>().unwrap().to_string(), text);
        }
        for (text, why) in [
            ("decimal", "it is unknown"),
            ("decimal-comma 5", "the sign has digits"),
            ("%Q", "not a pattern"),
            ("%d.%m.%Y %H:%M %Z", "use %z"),
            ("%d.%m.%Y %H:%M %#z", "use %z"),
            ("%d.%m.%Y %M:%S", "no hour"),
            ("%H:%M", "does not give year, month and day"),
            ("%m/%Y", "does not give year, month and day"),
            ("", "it is unknown"),
        ] {
            let error = text.parse::<Format>().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
