//! Times in seconds, whole or with decimals, as 64-bit integers.

use super::raw::TypedReport;

pub(super) const MICROS: i64 = 1_000_000;

/// Parses a time in seconds; returns microseconds. Further decimals are rounded.
///
/// # Errors
/// A message: the field is not a number, or out of range.
pub(super) fn micros(field: &str) -> Result<i64, String> {
    let field = field.trim();
    let wrong = || format!("the time '{}' is not a number of seconds in range", field.escape_debug());
    let (whole, decimals) = field.split_once('.').unwrap_or((field, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let unsigned = whole.strip_prefix('-').unwrap_or(whole);
    if !digits(unsigned) || !digits(decimals) || unsigned.is_empty() {
        // Numbers with an exponent.
        let seconds: f64 = field.parse().map_err(|_| wrong())?;
        let micros = (seconds * MICROS as f64).round();
        return if micros.abs() < 9e18 { Ok(micros as i64) } else { Err(wrong()) };
    }
    let seconds: i64 = whole.parse().map_err(|_| wrong())?;
    let padded: String = decimals.chars().chain("0000000".chars()).take(7).collect();
    let tenths: i64 = padded.parse().map_err(|_| wrong())?;
    let part = (tenths + 5) / 10;
    let part = if whole.starts_with('-') { -part } else { part };
    seconds.checked_mul(MICROS).and_then(|micros| micros.checked_add(part)).ok_or_else(wrong)
}

/// Converts times in microseconds to seconds if all of them are whole; reports the unit otherwise.
pub(super) fn to_unit<'a>(times: impl Iterator<Item = &'a mut Vec<i64>>, report: &mut TypedReport) {
    let times: Vec<&mut Vec<i64>> = times.collect();
    if times.iter().any(|times| times.iter().any(|t| t % MICROS != 0)) {
        report.note("times have fractions of a second: they are stored in microseconds");
    } else {
        times.into_iter().for_each(|times| times.iter_mut().for_each(|t| *t /= MICROS));
    }
}

/// Quantile `q` of sorted times, interpolated as by NumPy.
pub(super) fn quantile(sorted: &[i64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let position = q * last as f64;
    let low = position.floor() as usize;
    let (a, b) = (sorted[low] as f64, sorted[(low + 1).min(last)] as f64);
    // in the order of NumPy's operations, so that times on the bounds fall to the same side
    match position - low as f64 {
        part if part < 0.5 => a + (b - a) * part,
        part => b - (b - a) * (1.0 - part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact_to_a_microsecond() {
        assert_eq!(micros("1289241911.72836"), Ok(1_289_241_911_728_360));
        assert_eq!(
            [micros("0"), micros("258552.0"), micros("-1.5"), micros("1e3")],
            [Ok(0), Ok(258_552_000_000), Ok(-1_500_000), Ok(1_000_000_000)]
        );
        assert_eq!(micros("0.0000004"), Ok(0));
        for bad in ["", "x", "1.2.3", "nan", "1e300", "99999999999999999999"] {
            assert!(micros(bad).is_err(), "{bad}");
        }
        let mut times = [vec![2_000_000], vec![4_000_000]];
        to_unit(times.iter_mut(), &mut TypedReport::default());
        assert_eq!(times, [[2], [4]]);
        assert_eq!((quantile(&[0, 10, 20], 0.75), quantile(&[], 0.5)), (15.0, 0.0));
        // np.quantile([0, 10, 20, 21], [0.7, 0.85])
        assert_eq!([0.7, 0.85].map(|q| quantile(&[0, 10, 20, 21], q)), [20.1, 20.55]);
    }
}
