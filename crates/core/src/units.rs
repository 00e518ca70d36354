//! Formatting of numbers: `1,234,567`, `1.21 GiB`, `12.3`.

#![forbid(unsafe_code)]

/// Formats a count with a comma between thousands: `1,234,567`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a number with its noun: `1 batch`, `2 batches`.
pub fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// Formats bytes in binary units: `512 B`, `1.21 GiB`.
pub fn bytes(n: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", digits(value), units[unit])
}

/// Formats bytes in decimal units: `512 B`, `1.2 GB`.
pub fn decimal_bytes(n: u64) -> String {
    let mut value = n as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 999.5 {
            return if unit == "B" { format!("{n} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1000.0;
    }
    format!("{value:.1} TB")
}

/// Formats three significant digits, and more where the integer part has more: `0.00123`, `1.23`,
/// `12.3`, `1230`.
pub fn digits(x: f64) -> String {
    // Exponent after rounding: 0.9999 is 1.00.
    let magnitude = format!("{x:.2e}").rsplit('e').next().and_then(|e| e.parse().ok()).unwrap_or(0);
    if magnitude < -4 {
        return format!("{x:.1e}");
    }
    format!("{x:.*}", (2i32 - magnitude).clamp(0, 6) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_separate_thousands() {
        assert_eq!([0, 999, 1000, 28_072_756].map(count), ["0", "999", "1,000", "28,072,756"]);
    }

    #[test]
    fn decimal_bytes_have_one_digit_after_the_point() {
        let texts = [999, 1_000, 999_960, 12_340_000_000].map(decimal_bytes);
        assert_eq!(texts, ["999 B", "1.0 kB", "1.0 MB", "12.3 GB"]);
    }

    #[test]
    fn bytes_have_binary_units() {
        assert_eq!([0, 1023, 1024, 1_300_000_000].map(bytes), ["0 B", "1023 B", "1.00 KiB", "1.21 GiB"]);
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
    }

    #[test]
    fn three_digits_are_significant() {
        assert_eq!(
            [0.00123, 1.234, 12.34, 1234.0, 0.0, 1.5e-7].map(digits),
            ["0.00123", "1.23", "12.3", "1234", "0.00", "1.5e-7"]
        );
    }
}
