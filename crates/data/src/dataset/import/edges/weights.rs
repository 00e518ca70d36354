//! Location and parsing of the weights of an edge list.
//!
//! The weight column is named by the first line, or by the comment above it as in SNAP's files and
//! our own export; otherwise the option `weights` selects it. The weights of an edge array are a
//! separate array.

use std::path::{Path, PathBuf};

use graphmill_core::{Result, csc::is_no_weight, location::Location};

use super::{
    super::WeightColumn,
    chunks,
    files::is_npy,
    text::{fields, is_header},
};

/// Names of a weight column.
pub(in super::super) const NAMES: [&str; 3] = ["weight", "edge_weight", "weights"];

/// Location of the weights of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Weights {
    /// Unweighted, or weights are disabled.
    None,
    /// Column of this index, from 0; the ends are 0 and 1.
    Column(usize),
    /// Separate array.
    File(PathBuf),
}

impl Weights {
    /// Finds the weights of the list at `path` by the option; `beside` is an array in the same
    /// directory.
    ///
    /// # Errors
    /// The list has no such column, or cannot be read.
    pub(super) fn find(path: &Path, option: &WeightColumn, beside: Option<&Path>) -> Result<Self> {
        if *option == WeightColumn::None {
            return Ok(Self::None);
        }
        if is_npy(path) {
            return Ok(match option {
                WeightColumn::Named(file) => Self::File(file.into()),
                _ => beside.map_or(Self::None, |path| Self::File(path.into())),
            });
        }
        let at = Location::new(path, "weights");
        let (text, _) = chunks::peek(path)?;
        let (names, _) = column_names(&text);
        let called = |wanted: &str| names.iter().position(|name| name.eq_ignore_ascii_case(wanted));
        let (column, name) = match option {
            WeightColumn::Named(wanted) => (called(wanted).or_else(|| number(wanted)), wanted.as_str()),
            _ => match NAMES.into_iter().find_map(called) {
                None => return Ok(Self::None),
                Some(column) => (Some(column), "weight"),
            },
        };
        match column {
            Some(column) if column >= 2 => Ok(Self::Column(column)),
            Some(_) => Err(at.error(format!("the column '{name}' holds an end of the edges"))),
            None if names.is_empty() => Err(at.error(format!(
                "no line names the columns, so '{name}' is unknown: give the column's number, 3 for the \
                 first after the ends"
            ))),
            None => Err(at.error(format!("no column '{name}'; the columns are {}", names.join(", ")))),
        }
    }
}

/// Index of a column given by its number from 1.
fn number(text: &str) -> Option<usize> {
    text.parse::<usize>().ok().and_then(|number| number.checked_sub(1)).filter(|&column| column < 1 << 20)
}

/// Unread columns after the first `used`, by name, or by number from 1 if they have no names.
///
/// # Errors
/// The file cannot be read.
pub(in super::super) fn unread_columns(path: &Path, used: usize, weights: &Weights) -> Result<Vec<String>> {
    if is_npy(path) {
        return Ok(Vec::new());
    }
    let (names, columns) = column_names(&chunks::peek(path)?.0);
    let unread = (used..columns).filter(|&c| *weights != Weights::Column(c));
    Ok(unread.map(|c| names.get(c).cloned().unwrap_or_else(|| (c + 1).to_string())).collect())
}

/// Names of the columns, from the first line of data or from the last comment above it with as many
/// words, and their number.
fn column_names(text: &[u8]) -> (Vec<String>, usize) {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut comment = "";
    for line in text.split(|&b| b == b'\n') {
        let Ok(line) = std::str::from_utf8(line.trim_ascii()) else { break };
        if line.starts_with(['#', '%']) {
            comment = line.trim_start_matches(['#', '%']);
        } else if !line.is_empty() {
            if is_header(fields(line).take(2)) {
                let names: Vec<String> = fields(line).map(str::to_string).collect();
                let columns = names.len();
                return (names, columns);
            }
            let named = is_header(fields(comment)) && fields(comment).count() == fields(line).count();
            let names = if named { fields(comment).map(str::to_string).collect() } else { Vec::new() };
            return (names, fields(line).count());
        }
    }
    (Vec::new(), 0)
}

/// Message about an invalid weight.
pub(in super::super) fn no_weight(weight: impl std::fmt::Display) -> String {
    format!("the edge weighs {weight}: weights are finite and at least 0; 'weights none' leaves them out")
}

/// Parses the weight in a field.
pub(super) fn parse(field: &str) -> Result<f32, String> {
    let weight = field.parse::<f32>().ok().filter(|weight| !is_no_weight(weight));
    weight.ok_or_else(|| no_weight(format_args!("'{}'", field.escape_debug())))
}

/// Powers 10^k, which 32-bit floats represent exactly.
const POWERS: [f32; 11] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10];

/// Parses the number that begins at `at`, and returns its end; `None` if it is invalid, negative or
/// not finite.
///
/// A number of few digits is divided by a power of ten. Both are exact, so the quotient is the
/// nearest float (Clinger, *How to read floating point numbers accurately*, PLDI 1990); the
/// standard library parses all others.
#[inline(always)]
pub(super) fn plain(bytes: &[u8], at: usize) -> Option<(f32, usize)> {
    let (mut value, mut end, mut point) = (0u32, at, None);
    while let Some(&byte) = bytes.get(end) {
        let digit = byte.wrapping_sub(b'0');
        if digit < 10 && value < 1 << 20 {
            value = value * 10 + u32::from(digit);
        } else if byte == b'.' && point.is_none() {
            point = Some(end + 1);
        } else {
            break;
        }
        end += 1;
    }
    let places = point.map_or(0, |point| end - point);
    let digits = end - at - usize::from(point.is_some());
    let more = bytes.get(end).is_some_and(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'+' | b'-'));
    if digits > 0 && !more && value < 1 << 24 && places < POWERS.len() {
        return Some((value as f32 / POWERS[places], end));
    }
    let is_number = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'+' | b'-');
    let end = at + bytes[at..].iter().take_while(|b| is_number(b)).count();
    let weight = parse(std::str::from_utf8(&bytes[at..end]).ok()?).ok()?;
    Some((weight, end))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn weights_parse_to_the_nearest_float(
            text in prop_oneof![
                "[0-9]{0,9}[.]?[0-9]{0,12}(e[+-]?[0-9]{1,2})?",
                any::<f32>().prop_map(|x| format!("{:?}", x.abs())),
            ],
            behind in "[ \t,\n]?",
        ) {
            let expected = parse(&text).ok().map(|x| (x.to_bits(), text.len()));
            let found = plain(format!("{text}{behind}").as_bytes(), 0).map(|(x, end)| (x.to_bits(), end));
            prop_assert_eq!(found, expected, "{}", text);
        }
    }

    #[test]
    fn headers_and_comments_name_columns() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("e.csv");
        let find = |text: &str, option: &WeightColumn| {
            std::fs::write(&path, text).unwrap();
            Weights::find(&path, option, None).map_err(|e| e.to_string())
        };
        let (auto, named) = (WeightColumn::Auto, |name: &str| WeightColumn::Named(name.into()));
        assert_eq!(find("from,to,weight\n0,1,2\n", &auto), Ok(Weights::Column(2)));
        assert_eq!(find("from,to,time,Edge_Weight\n0,1,2,3\n", &auto), Ok(Weights::Column(3)));
        assert_eq!(find("# Nodes: 2\n# From\tTo\tWeight\n0,1,2\n", &auto), Ok(Weights::Column(2)));
        assert_eq!(find("# From To Weight\n0 1\n", &auto), Ok(Weights::None), "words of another table");
        assert_eq!(find("0 1 2\n", &auto), Ok(Weights::None));
        assert_eq!(find("", &auto), Ok(Weights::None));
        assert_eq!(find("from,to,weight\n0,1,2\n", &WeightColumn::None), Ok(Weights::None));
        assert_eq!(find("0 1 2 3\n", &named("4")), Ok(Weights::Column(3)));
        assert_eq!(find("a,b,rating\n0,1,2\n", &named("rating")), Ok(Weights::Column(2)));
        assert!(find("0 1 2\n", &named("rating")).unwrap_err().contains("give the column's number"));
        assert!(find("a,b,c\n0,1,2\n", &named("d")).unwrap_err().contains("'d'; the columns are a, b, c"));
        for end in ["a", "2"] {
            assert!(find("a,b,c\n0,1,2\n", &named(end)).unwrap_err().contains("holds an end"));
        }
    }
}
