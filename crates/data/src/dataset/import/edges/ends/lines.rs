//! Edges on lines of text: a fast parser for common lines, and a complete one for all others.
//!
//! # Algorithm
//!
//! The fast parser reads eight digits at a time; it accepts two decimal numbers and, if requested,
//! a weight, and rejects every other line, which the complete parser reads.
//!
//! # Source
//!
//! Lemire, *Quickly parsing eight digits*, 2018.
//!
//! # Cost
//!
//! Linear in the bytes.

use super::{
    super::{
        text::{fields, is_header, whole},
        weights,
    },
    id::{Id, not_an_id, outside},
};

/// Bytes before the first line of data: a byte order mark, comments, empty lines and a header.
/// ([`Parsed::new`] counts them as lines.)
pub(super) fn before_data(chunk: &[u8]) -> usize {
    let mut at = if chunk.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    while at < chunk.len() {
        let end = chunk[at..].iter().position(|&b| b == b'\n').map_or(chunk.len(), |i| at + i + 1);
        let line = chunk[at..end].trim_ascii();
        if is_data(line) {
            let names = std::str::from_utf8(line).is_ok_and(|line| is_header(fields(line).take(2)));
            return if names { end } else { at };
        }
        at = end;
    }
    at
}

pub(super) fn is_data(line: &[u8]) -> bool {
    !line.is_empty() && !matches!(line[0], b'#' | b'%')
}

/// Contents of a chunk.
pub(super) struct Parsed<T> {
    pub(super) from: Vec<T>,
    pub(super) to: Vec<T>,
    /// Weight of each edge in a weighted import.
    pub(super) weight: Vec<f32>,
    /// Number of lines up to the end, or to the faulty one.
    pub(super) lines: u64,
    pub(super) fault: Option<String>,
}

impl<T: Id> Parsed<T> {
    /// Parses the lines from byte `start` on, with the weight in `column` if one is given. `plain`
    /// parses common lines, [`any_line`] the others.
    #[inline(always)]
    pub(super) fn new(
        chunk: &[u8],
        start: usize,
        limit: u128,
        column: Option<usize>,
        plain: impl Fn(&[u8]) -> Option<Plain<'_>>,
    ) -> Self {
        let skipped = chunk[..start].iter().filter(|&&b| b == b'\n').count() as u64;
        let capacity = (chunk.len() - start) / 8;
        let mut parsed = Self {
            from: Vec::with_capacity(capacity),
            to: Vec::with_capacity(capacity),
            weight: Vec::with_capacity(if column.is_some() { capacity } else { 0 }),
            lines: skipped,
            fault: None,
        };
        let mut rest = &chunk[start..];
        while !rest.is_empty() {
            parsed.lines += 1;
            if let Some((u, v, weight, after)) = plain(rest) {
                let (a, b) = (T::from_id(u), T::from_id(v));
                if let (Some(a), Some(b), true) = (a, b, u128::from(u.max(v)) < limit) {
                    parsed.from.push(a);
                    parsed.to.push(b);
                    if column.is_some() {
                        parsed.weight.push(weight);
                    }
                    rest = after;
                    continue;
                }
            }
            let end = rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
            let line = rest[..end].trim_ascii();
            rest = rest.get(end + 1..).unwrap_or_default();
            if !is_data(line) {
                continue;
            }
            match any_line::<T>(line, limit, column) {
                Ok((u, v, weight)) => {
                    parsed.from.push(u);
                    parsed.to.push(v);
                    parsed.weight.extend(weight);
                }
                Err(message) => {
                    parsed.fault = Some(message);
                    break;
                }
            }
        }
        parsed
    }
}

/// Ends of an edge, its weight, and the text after its line.
pub(super) type Plain<'a> = (u64, u64, f32, &'a [u8]);

/// Parses an edge in the common form: two decimal numbers separated by blanks or a comma. Further
/// columns are skipped. `None` for every other line, which [`any_line`] parses.
#[inline(always)]
pub(super) fn plain(bytes: &[u8]) -> Option<Plain<'_>> {
    let (u, at) = digits(bytes, 0)?;
    let comma = bytes.get(at)? == &b',';
    let (v, at) = digits(bytes, separated(bytes, at, comma)?)?;
    Some((u, v, 1.0, end_of_line(bytes, at, comma)?))
}

/// Variant of [`plain`] with the weight in `column`.
#[inline(always)]
pub(super) fn plain_weighted(bytes: &[u8], column: usize) -> Option<Plain<'_>> {
    let (u, at) = digits(bytes, 0)?;
    let comma = bytes.get(at)? == &b',';
    let (v, mut at) = digits(bytes, separated(bytes, at, comma)?)?;
    for _ in 2..column {
        at = separated(bytes, at, comma)?;
        let ends = |b: &u8| {
            matches!(b, b'\n' | b'\r' | b',' | b';' | 128..) || (!comma && matches!(b, b' ' | b'\t'))
        };
        at += bytes[at..].iter().position(ends)?;
    }
    let (weight, at) = weights::plain(bytes, separated(bytes, at, comma)?)?;
    Some((u, v, weight, end_of_line(bytes, at, comma)?))
}

/// Position of the next field: after a comma, or after blanks.
#[inline(always)]
fn separated(bytes: &[u8], mut at: usize, comma: bool) -> Option<usize> {
    if comma {
        return (bytes.get(at)? == &b',').then_some(at + 1);
    }
    let first = at;
    while matches!(bytes.get(at)?, b' ' | b'\t') {
        at += 1;
    }
    (at > first).then_some(at)
}

/// Text after the line, all needed fields of which have been parsed: either the line ends here, or
/// further columns follow that cannot change the separation of the fields.
#[inline(always)]
fn end_of_line(bytes: &[u8], mut at: usize, comma: bool) -> Option<&[u8]> {
    match bytes.get(at) {
        None => return Some(&[]),
        Some(b'\n') => return Some(&bytes[at + 1..]),
        Some(b'\r') if bytes.get(at + 1).is_none_or(|&b| b == b'\n') => {
            return Some(bytes.get(at + 2..).unwrap_or_default());
        }
        Some(b',') if comma => {}
        Some(b' ' | b'\t') if !comma => {}
        Some(_) => return None,
    }
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'\n' => return Some(&bytes[at..]),
            b',' if !comma => return None,
            b';' if !comma => return None,
            128.. => return None,
            _ => {}
        }
    }
    Some(&[])
}

/// Parses one to eighteen digits from `start` on, and returns their end. Eight bytes are processed
/// together: a byte is a digit if it is below 10 after subtracting `0`.
#[inline(always)]
pub(super) fn digits(bytes: &[u8], start: usize) -> Option<(u64, usize)> {
    if let Some(word) = bytes.get(start..).and_then(|rest| rest.first_chunk::<8>()) {
        let values = u64::from_le_bytes(*word) ^ 0x3030_3030_3030_3030;
        let others = (values.wrapping_add(0x7676_7676_7676_7676) | values) & 0x8080_8080_8080_8080;
        let count = others.trailing_zeros() / 8;
        let ends = count < 8 || bytes.get(start + 8).is_none_or(|b| !b.is_ascii_digit());
        if count > 0 && ends {
            return Some((eight(values << (64 - 8 * count)), start + count as usize));
        }
    }
    let mut value = 0u64;
    let mut at = start;
    while let Some(digit) = bytes.get(at).map(|b| b.wrapping_sub(b'0')).filter(|&d| d < 10) {
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        at += 1;
    }
    (at > start && at - start <= 18).then_some((value, at))
}

/// Number whose eight digits are the bytes of `values`, the first in the lowest byte.
#[inline(always)]
fn eight(values: u64) -> u64 {
    const MASK: u64 = 0x0000_00ff_0000_00ff;
    let pairs = values.wrapping_mul(10).wrapping_add(values >> 8);
    let high = (pairs & MASK).wrapping_mul(100 + (1_000_000 << 32));
    let low = (pairs >> 16 & MASK).wrapping_mul(1 + (10_000 << 32));
    high.wrapping_add(low) >> 32
}

/// Parses the edge on a line of data, and the weight in `column`.
pub(super) fn any_line<T: Id>(
    line: &[u8],
    limit: u128,
    column: Option<usize>,
) -> Result<(T, T, Option<f32>), String> {
    let line = std::str::from_utf8(line).map_err(|_| "the line is not text (UTF-8)".to_string())?;
    let mut ends = fields(line);
    let (a, b) = (ends.next().unwrap_or_default(), ends.next());
    match (whole::<T>(a), b.map(whole::<T>)) {
        (Some(u), Some(Some(v))) if u128::from(u.max(v).into()) < limit => {
            let weight = column.map(|column| {
                let missing = || format!("the line has no column {} for the edge's weight", column + 1);
                ends.nth(column - 2).ok_or_else(missing).and_then(weights::parse)
            });
            Ok((u, v, weight.transpose()?))
        }
        (Some(u), Some(Some(v))) => Err(outside(u, v, limit)),
        (_, None) => Err(format!("two node ids expected, '{}' found", line.escape_debug())),
        (None, _) => Err(not_an_id::<T>(a)),
        (_, Some(None)) => Err(not_an_id::<T>(b.unwrap_or_default())),
    }
}
