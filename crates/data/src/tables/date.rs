//! Dates and times as microseconds since 1970.

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime};

/// Maximum number of characters of a date.
const MAX_DATE_LEN: usize = 40;

/// Microseconds of a day.
pub(super) const DAY: i64 = 86_400_000_000;

/// Microseconds since 1970 of an ISO 8601 date, with or without a time and an offset.
pub(super) fn time(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let is_date = (10..=MAX_DATE_LEN).contains(&bytes.len())
        && bytes[..4].iter().all(u8::is_ascii_digit)
        && matches!((bytes[4], bytes[7]), (b'-', b'-') | (b'/', b'/'));
    if !is_date || !text.is_ascii() {
        return None;
    }
    let mut date = text[..10].replace('/', "-");
    let rest = &text[10..];
    if rest.is_empty() {
        let date: NaiveDate = date.parse().ok()?;
        return Some(date.and_hms_opt(0, 0, 0)?.and_utc().timestamp_micros());
    }
    date.push('T');
    date.push_str(rest.strip_prefix(['T', 't', ' '])?.trim_start());
    if let Ok(time) = DateTime::parse_from_rfc3339(&date.replace(" UTC", "Z")) {
        return Some(time.timestamp_micros());
    }
    // such as +0200 or +02, also behind a space
    if let Ok(time) = DateTime::parse_from_str(&date, "%Y-%m-%dT%H:%M:%S%.f %#z") {
        return Some(time.timestamp_micros());
    }
    let formats = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M"];
    let naive = formats.iter().find_map(|format| NaiveDateTime::parse_from_str(&date, format).ok());
    naive.map(|time| time.and_utc().timestamp_micros())
}

/// Date and time of microseconds since 1970, as text.
pub(super) fn format_time(micros: i64) -> String {
    match DateTime::from_timestamp_micros(micros) {
        Some(time) if micros.rem_euclid(DAY) == 0 => time.format("%Y-%m-%d").to_string(),
        Some(time) => time.format("%Y-%m-%dT%H:%M:%S%.fZ").to_string(),
        None => micros.to_string(),
    }
}

/// Days from a time to the last time.
pub(super) fn age_of(micros: i64, last: i64) -> f64 {
    (last as f64 - micros as f64) / DAY as f64
}

/// Year of a time.
pub(super) fn year_of(micros: i64) -> i32 {
    DateTime::from_timestamp_micros(micros).map_or(1970, |time| time.year())
}
