//! The two ends of every edge, from text or an array, a piece at a time.

use std::path::Path;

use rayon::prelude::*;

use super::{
    chunks::{self, Chunks},
    is_npy,
    text::{fields, is_header, whole},
    weights::{self, Weights, no_weight},
};
use crate::{
    Result,
    csc::is_no_weight,
    external::{Needs, Scratch, Unit},
    npy,
    place::At,
};

/// Edges of an array that are handled together.
const PIECE: usize = 1 << 20;

/// Takes the two ends of some edges, and their weights where those are asked for (otherwise none).
pub(in super::super) type Sink<'a, T> = dyn FnMut(&[T], &[T], &[f32]) -> Result<()> + 'a;

/// Hands the two ends of every edge to `sink`, as written, in their order, a piece at a time, with its weight where
/// `weights` says where that is; all ends are below `nodes` where that is known.
///
/// # Errors
/// A line that is no edge, or has no weight, with its number; what `sink` reports.
pub(in super::super) fn read<T: Id>(
    path: &Path,
    nodes: Option<usize>,
    weights: &Weights,
    scratch: &Scratch,
    sink: &mut Sink<'_, T>,
) -> Result<()> {
    // wider than an id: where nothing is known, 2^64 - 1 is one as well
    let limit = nodes.map_or(1 << 64, |nodes| nodes as u128);
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if is_npy(path) {
        return read_array(path, limit, weights, &name, scratch, sink);
    }
    let column = if let Weights::Column(column) = weights { Some(*column) } else { None };
    let mut chunks = Chunks::open(path)?;
    let (size, _) = chunks.progress();
    scratch.stage(&format!("reading {name}"), Some(size), Unit::Bytes);
    let failed = |lines: u64, e: std::io::Error| {
        At::new(path, format!("line {}", lines + 1)).error(format!("cannot be read: {e}"))
    };
    let mut lines = 0;
    let mut first = true;
    loop {
        // as many chunks as there are threads are parsed side by side
        let mut group = Vec::new();
        while group.len() < rayon::current_num_threads() {
            match chunks.next() {
                Ok(Some(chunk)) => group.push(chunk),
                Ok(None) => break,
                Err(e) => return Err(failed(lines, e)),
            }
        }
        if group.is_empty() {
            return Ok(());
        }
        let mut start = 0;
        if first {
            start = before_data(&group[0]);
            first = group[0].len() == start;
        }
        let parsed: Vec<Parsed<T>> = group
            .par_iter()
            .enumerate()
            .map(|(i, chunk)| {
                let start = if i == 0 { start } else { 0 };
                match column {
                    None => Parsed::new(chunk, start, limit, None, plain),
                    Some(column) => {
                        Parsed::new(chunk, start, limit, column.into(), |bytes| plain_weighted(bytes, column))
                    }
                }
            })
            .collect();
        for parsed in parsed {
            sink(&parsed.from, &parsed.to, &parsed.weight)?;
            if let Some(message) = parsed.fault {
                let line = lines + parsed.lines;
                return Err(At::new(path, format!("line {line}")).error(message));
            }
            lines += parsed.lines;
        }
        scratch.done(chunks.progress().1);
    }
}

/// Reads the first chunk of a text file and tells what the whole will come to.
pub(in super::super) fn estimate(path: &Path) -> Result<Needs> {
    if is_npy(path) {
        let edges = (npy::open(path)?.len() / 2) as u64;
        return Ok(Needs { edges, ..Needs::default() });
    }
    let (text, whole) = chunks::peek(path)?;
    let lines = text.iter().filter(|&&b| b == b'\n').count() as u64 + 1;
    let edges = (whole as f64 / text.len().max(1) as f64 * lines as f64) as u64;
    Ok(Needs { edges, estimated: true, ..Needs::default() })
}

/// How many bytes come before the first line of data: a byte order mark, comments, empty lines and a line that names
/// the columns. (They are counted as lines by [`Parsed::new`].)
fn before_data(chunk: &[u8]) -> usize {
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

fn is_data(line: &[u8]) -> bool {
    !line.is_empty() && !matches!(line[0], b'#' | b'%')
}

/// What a chunk holds.
struct Parsed<T> {
    from: Vec<T>,
    to: Vec<T>,
    /// A weight per edge where they are asked for.
    weight: Vec<f32>,
    /// Lines up to the end, or to the faulty one.
    lines: u64,
    fault: Option<String>,
}

impl<T: Id> Parsed<T> {
    /// Parses the lines from byte `start` on, with the weight in `column` where there is one. `plain` reads the lines that it
    /// knows; [`any_line`] reads the others.
    #[inline(always)]
    fn new(
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
type Plain<'a> = (u64, u64, f32, &'a [u8]);

/// An edge as nearly all lines write it: two numbers of digits with blanks or a comma between them, and what follows the
/// line. Further columns are passed over. `None` for every other line, which [`any_line`] knows more of.
#[inline(always)]
fn plain(bytes: &[u8]) -> Option<Plain<'_>> {
    let (u, at) = digits(bytes, 0)?;
    let comma = bytes.get(at)? == &b',';
    let (v, at) = digits(bytes, separated(bytes, at, comma)?)?;
    Some((u, v, 1.0, end_of_line(bytes, at, comma)?))
}

/// As [`plain`], with the weight in `column`.
#[inline(always)]
fn plain_weighted(bytes: &[u8], column: usize) -> Option<Plain<'_>> {
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
fn digits(bytes: &[u8], start: usize) -> Option<(u64, usize)> {
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
fn any_line<T: Id>(line: &[u8], limit: u128, column: Option<usize>) -> Result<(T, T, Option<f32>), String> {
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

/// Ids are numbers of 32 bits, or before they are made compact of 64.
pub(in super::super) trait Id:
    npy::Element + std::str::FromStr + std::fmt::Display + Ord + Into<u64>
{
    fn from_id(id: u64) -> Option<Self>;
}

impl Id for u32 {
    #[inline(always)]
    fn from_id(id: u64) -> Option<Self> {
        id.try_into().ok()
    }
}

impl Id for u64 {
    #[inline(always)]
    fn from_id(id: u64) -> Option<Self> {
        Some(id)
    }
}

fn outside<T: Id>(u: T, v: T, limit: u128) -> String {
    format!("the edge joins nodes {u} and {v}, but there are {limit} nodes")
}

fn not_an_id<T: Id>(field: &str) -> String {
    let most = T::DTYPE.size * 8;
    let hint = if most < 64 { "; compact-ids takes larger ones" } else { "" };
    format!(
        "'{}' is not a node id: ids are whole numbers from 0 that fit {most} bits{hint}",
        field.escape_debug()
    )
}

/// Edges as an array `[E, 2]` or, as PyG writes them, `[2, E]`; weights as one of `[E]`.
fn read_array<T: Id>(
    path: &Path,
    limit: u128,
    weights: &Weights,
    name: &str,
    scratch: &Scratch,
    sink: &mut Sink<'_, T>,
) -> Result<()> {
    let mut array = npy::open(path)?;
    let (edges, by_pairs) = match array.shape[..] {
        [edges, 2] if !array.fortran_order => (edges, true),
        [2, edges] if !array.fortran_order => (edges, false),
        [edges, 2] => (edges, false), // in Fortran order its columns lie one behind the other
        [2, edges] => (edges, true),
        _ => {
            let message = format!("shape [edges, 2] or [2, edges] expected, {:?} found", array.shape);
            return Err(At::new(path, "header").error(message));
        }
    };
    let mut weights = match weights {
        Weights::File(path) => {
            let array = npy::open(path)?;
            if array.shape[..] != [edges] && array.shape[..] != [edges, 1] {
                let message = format!("shape [{edges}] expected, a weight per edge; {:?} found", array.shape);
                return Err(At::new(path, "header").error(message));
            }
            Some((array, path))
        }
        _ => None,
    };
    scratch.stage(&format!("reading {name}"), Some(edges as u64), Unit::Edges);
    for start in (0..edges).step_by(PIECE) {
        let count = PIECE.min(edges - start);
        let (from, to): (Vec<T>, Vec<T>) = if by_pairs {
            let pairs = array.values::<T>(start * 2..(start + count) * 2)?;
            pairs.chunks_exact(2).map(|edge| (edge[0], edge[1])).unzip()
        } else {
            (array.values(start..start + count)?, array.values(edges + start..edges + start + count)?)
        };
        if let Some(e) = from.iter().zip(&to).position(|(&u, &v)| u128::from(u.max(v).into()) >= limit) {
            let message = outside(from[e], to[e], limit);
            return Err(At::new(path, format!("edge {}", start + e)).error(message));
        }
        let weight = match &mut weights {
            Some((array, path)) => {
                let weight = array.values::<f32>(start..start + count)?;
                if let Some(e) = weight.iter().position(is_no_weight) {
                    let at = At::new(path, format!("element {}", start + e));
                    return Err(at.error(no_weight(weight[e])));
                }
                weight
            }
            None => Vec::new(),
        };
        sink(&from, &to, &weight)?;
        scratch.done((start + count) as u64);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The plainest possible version.
    fn line_by_line(text: &str, column: Option<usize>) -> Result<Vec<(u32, u32, Option<f32>)>, String> {
        let mut edges = Vec::new();
        let mut first = true;
        for line in text.lines().map(str::trim).filter(|line| is_data(line.as_bytes())) {
            if !(std::mem::take(&mut first) && is_header(fields(line).take(2))) {
                edges.push(any_line::<u32>(line.as_bytes(), 1000, column)?);
            }
        }
        Ok(edges)
    }

    fn parsed(text: &str, column: Option<usize>) -> Result<Vec<(u32, u32, Option<f32>)>, String> {
        let start = before_data(text.as_bytes());
        let parsed = match column {
            None => Parsed::<u32>::new(text.as_bytes(), start, 1000, None, plain),
            Some(c) => Parsed::new(text.as_bytes(), start, 1000, column, |line| plain_weighted(line, c)),
        };
        let weights: Vec<Option<f32>> = match column {
            None => vec![None; parsed.from.len()],
            Some(_) => parsed.weight.iter().copied().map(Some).collect(),
        };
        assert_eq!(weights.len(), parsed.from.len());
        match parsed.fault {
            Some(message) => Err(message),
            None => {
                Ok(parsed.from.into_iter().zip(parsed.to).zip(weights).map(|((u, v), w)| (u, v, w)).collect())
            }
        }
    }

    proptest! {
        #[test]
        fn same_as_line_by_line(text in "([0-9]{1,4}[ ,\t;]{1,2}[0-9.\"]{1,3}[ ,;x]{0,2}[0-9]{0,2}\r?\n|#x\n|a,b\n| ?\n){0,8}") {
            prop_assert_eq!(parsed(&text, None), line_by_line(&text, None));
        }

        #[test]
        fn weights_are_the_same_as_line_by_line(
            text in "([0-9]{1,3}[ ,\t][0-9]{1,3}[ ,;\t]{1,2}[0-9.e\"-]{1,4}([ ,;\t]{1,2}([0-9.]{1,12}|x|é|nan|-1|1e30|1e99)){0,2}[ ]?\r?\n|#x\n){1,4}",
            column in 2usize..5,
        ) {
            prop_assert_eq!(parsed(&text, None), line_by_line(&text, None));
            prop_assert_eq!(parsed(&text, Some(column)), line_by_line(&text, Some(column)));
        }
    }

    proptest! {
        #[test]
        fn digits_are_what_they_say(number: u64, behind in "[ \t,x]?[0-9 ]{0,9}", shift in 0u32..64) {
            let number = number >> shift;
            let text = format!("{number}{behind}");
            let plain: String = text.chars().take_while(char::is_ascii_digit).collect();
            let expected = (plain.len() <= 18).then(|| (plain.parse::<u64>().unwrap(), plain.len()));
            prop_assert_eq!(digits(text.as_bytes(), 0), expected, "{}", text);
        }
    }

    #[test]
    fn lines_are_counted_and_faults_placed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("e.txt");
        let mut text = "# a comment\nfrom to\n".to_string();
        (0..400_000).for_each(|i| text.push_str(&format!("{} {}\n", i % 97, i)));
        let read = |text: &str, nodes| {
            std::fs::write(&path, text).unwrap();
            let (mut count, mut sum) = (0, 0u64);
            let result =
                read::<u32>(&path, nodes, &Weights::None, &Scratch::in_memory(), &mut |from, to, _| {
                    count += from.len();
                    sum += to.iter().map(|&v| u64::from(v)).sum::<u64>();
                    Ok(())
                });
            result.map(|()| (count, sum)).map_err(|e| e.to_string())
        };
        assert_eq!(read(&text, None).unwrap(), (400_000, 400_000 * 399_999 / 2));
        let error = read(&text, Some(399_999)).unwrap_err();
        assert!(error.contains("line 400002: the edge joins nodes 68 and 399999"), "{error}");
        let needs = estimate(&path).unwrap();
        assert!(needs.estimated && needs.edges.abs_diff(400_000) < 40_000, "{needs:?}");
        assert_eq!(read("", None).unwrap(), (0, 0));
        assert_eq!(read("\u{feff}0 1", None).unwrap(), (1, 1));
        assert!(read("0 1\n\n1\n", None).unwrap_err().contains("line 3: two node ids"));
    }
}
