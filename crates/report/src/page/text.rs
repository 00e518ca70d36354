//! Formatting of numbers for readers.

use std::fmt::Write;

pub(super) use graphmill_chart::escape;
use graphmill_core::units::digits;

/// Formats a duration: `870 µs`, `12.3 ms`, `4.56 s`, `3 min 20 s`, `2 h 3 min`.
pub(super) fn seconds(x: f64) -> String {
    match x {
        x if x <= 0.0 => "0 s".to_string(),
        x if x < 9.995e-4 => format!("{} µs", digits(x * 1e6)),
        x if x < 0.9995 => format!("{} ms", digits(x * 1e3)),
        x if x < 119.5 => format!("{} s", digits(x)),
        x if x < 7170.0 => {
            let whole = x.round() as u64;
            format!("{} min {} s", whole / 60, whole % 60)
        }
        x => {
            let minutes = (x / 60.0).round() as u64;
            format!("{} h {} min", minutes / 60, minutes % 60)
        }
    }
}

/// Formats a large number briefly: `945`, `12.3 k`, `4.56 M`.
pub(super) fn short(x: f64) -> String {
    let units = ["", " k", " M", " G", " T"];
    let mut value = x;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 && value.fract() == 0.0 {
        format!("{value}")
    } else {
        format!("{}{}", digits(value), units[unit])
    }
}

/// Formats a share: `12.3 %`, `100 %`.
pub(super) fn percent(x: f64) -> String {
    let x = x * 100.0;
    if x == 0.0 || x >= 99.995 {
        format!("{x:.0} %")
    } else {
        format!("{x:.*} %", if x < 99.95 { 1 } else { 2 })
    }
}

/// Formats a score.
pub(super) fn score(x: f64) -> String {
    format!("{x:.4}")
}

/// Formats a value of the configuration.
pub(super) fn value(json: &serde_json::Value) -> String {
    match json {
        serde_json::Value::String(word) if word.is_empty() => "–".to_string(),
        serde_json::Value::String(word) => word.clone(),
        serde_json::Value::Array(items) => {
            let mut out = String::new();
            for (i, item) in items.iter().enumerate() {
                let _ = write!(out, "{}{}", if i > 0 { "," } else { "" }, value(item));
            }
            out
        }
        serde_json::Value::Null => "–".to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let got = [0.0, 8.7e-4, 0.0123, 0.9999, 4.5678, 59.96, 119.0, 200.0, 7323.0].map(seconds);
        assert_eq!(
            got,
            ["0 s", "870 µs", "12.3 ms", "1.00 s", "4.57 s", "60.0 s", "119 s", "3 min 20 s", "2 h 2 min"]
        );
    }

    #[test]
    fn speeds_and_shares() {
        assert_eq!([945.0, 12_345.0, 4_560_000.0, 0.5].map(short), ["945", "12.3 k", "4.56 M", "0.500"]);
        assert_eq!([0.0, 0.123, 0.9996, 1.0].map(percent), ["0 %", "12.3 %", "99.96 %", "100 %"]);
    }

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escape("<b a=\"1\">&"), "&lt;b a=&quot;1&quot;&gt;&amp;");
        assert_eq!(escape("a\u{1b}b\n"), "a\u{fffd}b\n");
    }
}
