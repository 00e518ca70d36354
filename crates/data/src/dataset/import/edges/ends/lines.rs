//! Edges on lines of text: a fast parser for the lines that nearly all files hold, and a complete one for the others.

use super::{
    super::{
        text::{fields, is_header, whole},
        weights,
    },
    id::{Id, not_an_id, outside},
};

/// How many bytes come before the first line of data: a byte order mark, comments, empty lines and a line that names
/// the columns. (They are counted as lines by [`Parsed::new`].)
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

/// What a chunk holds.
pub(super) struct Parsed<T> {
    pub(super) from: Vec<T>,
    pub(super) to: Vec<T>,
    /// A weight per edge where they are asked for.
    pub(super) weight: Vec<f32>,
    /// Lines up to the end, or to the faulty one.
    pub(super) lines: u64,
    pub(super) fault: Option<String>,
}

impl<T: Id> Parsed<T> {
    /// Parses the lines from byte `start` on, with the weight in `column` where there is one. `plain` reads the lines that it
    /// knows; [`any_line`] reads the others.
    #[inline(always)]
    pub(super) fn new(
        chunk: &[u8],
        start: usize,
        limit: u128,
        column: Option<usize>,
        plain: impl Fn(&[u8]) -> Option<Plain<'_>>,
    ) -> Self {
        let skipped = chunk[..start].iter().filter(|&&b| b == b'\n').count() as u64;
        let room = (chunk.len() - start) / 8;
        let mut parsed = Self {
            from: Vec::with_capacity(room),
            to: Vec::with_capacity(room),
            weight: Vec::with_capacity(if column.is_some() { room } else { 0 }),
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

/// The ends of an edge, its weight, and what follows its line.
pub(super) type Plain<'a> = (u64, u64, f32, &'a [u8]);

/// An edge as nearly all lines write it: two numbers of digits with blanks or a comma between them, and what follows the
/// line. Further columns are passed over. `None` for every other line, which [`any_line`] knows more of.
#[inline(always)]
pub(super) fn plain(bytes: &[u8]) -> Option<Plain<'_>> {
    let (u, at) = digits(bytes, 0)?;
    let comma = bytes.get(at)? == &b',';
    let (v, at) = digits(bytes, separated(bytes, at, comma)?)?;
    Some((u, v, 1.0, end_of_line(bytes, at, comma)?))
}

/// As [`plain`], with the weight in `column`.
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

/// Where the next field begins: behind a comma, or behind blanks.
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

/// What follows the line of which all was read that is wanted: it ends here, or further columns follow, which have nothing
/// that would change what columns are.
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

/// One to eighteen digits from `start` on, and where they end. Eight bytes are looked at together (Lemire's way of
/// parsing eight digits, "Quickly parsing eight digits", 2018): digits are what is below 10 after `0` is taken away.
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

/// The number whose eight digits are the bytes of `values`, the first in the lowest.
#[inline(always)]
fn eight(values: u64) -> u64 {
    const MASK: u64 = 0x0000_00ff_0000_00ff;
    let pairs = values.wrapping_mul(10).wrapping_add(values >> 8);
    let high = (pairs & MASK).wrapping_mul(100 + (1_000_000 << 32));
    let low = (pairs >> 16 & MASK).wrapping_mul(1 + (10_000 << 32));
    high.wrapping_add(low) >> 32
}

/// The edge on a line of data, and the weight in `column`.
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
                let missing = || format!("there is no column {} for the edge's weight", column + 1);
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
