//! Lines of a text file with all their faults, and the fields of a line.

use std::{
    collections::HashMap,
    fmt,
    io::{BufRead, Read},
};

use graphmill_core::{Error, Result};

use super::files::Files;

/// Maximum length of a line: a row of a million features fits.
const MAX_LINE: u64 = 1 << 26;
/// Number of faults of a file that are listed; the others are counted.
const MAX_LISTED: usize = 10;

/// Faults of a file, each with its place.
#[derive(Debug, Default)]
pub(super) struct Faults {
    listed: Vec<(String, String)>,
    count: usize,
}

impl Faults {
    /// Adds a fault at `place`.
    pub(super) fn add(&mut self, place: impl fmt::Display, message: impl Into<String>) {
        self.count += 1;
        if self.listed.len() < MAX_LISTED {
            self.listed.push((place.to_string(), message.into()));
        }
    }

    /// Error with all faults of the file `name`, if there are any.
    ///
    /// # Errors
    /// There are faults.
    pub(super) fn finish(self, files: &Files, name: &str) -> Result<()> {
        let mut listed = self.listed.into_iter();
        let Some((place, first)) = listed.next() else { return Ok(()) };
        let mut message = first;
        let mut rest = self.count - 1;
        for (place, fault) in listed {
            message += &format!("\n  {place}: {fault}");
            rest -= 1;
        }
        if rest > 0 {
            message += &format!("\n  and {rest} more faults");
        }
        Err(files.error(name, place, message))
    }
}

/// Passes every line that is not empty, without its end, to `each`; a message that `each` returns
/// is a fault of its line. Returns the number of these lines.
///
/// # Errors
/// The file cannot be read or is not text, or lines have faults (all of them).
pub(super) fn for_each_line(
    files: &Files,
    name: &str,
    mut each: impl FnMut(&str) -> Result<(), String>,
) -> Result<u64> {
    let (mut faults, mut count) = (Faults::default(), 0);
    files.read(name, |mut reader| {
        let mut line = Vec::new();
        for number in 1u64.. {
            line.clear();
            let read = (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line);
            let place = || format!("line {number}");
            let read = read.map_err(|e| files.error(name, place(), format!("cannot be read: {e}")))?;
            if read == 0 {
                break;
            }
            if read as u64 == MAX_LINE {
                return Err(files.error(
                    name,
                    place(),
                    "a line of more than 64 MiB: this is not a text table",
                ));
            }
            let mut text = line.as_slice();
            if number == 1 {
                text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text); // a byte order mark
            }
            text = text.strip_suffix(b"\n").unwrap_or(text);
            text = text.strip_suffix(b"\r").unwrap_or(text);
            if text.trim_ascii().is_empty() {
                continue;
            }
            count += 1;
            match std::str::from_utf8(text) {
                Ok(text) => {
                    if let Err(message) = each(text) {
                        faults.add(place(), message);
                    }
                }
                Err(_) => faults.add(place(), "the line is not text (UTF-8)"),
            }
        }
        Ok(())
    })?;
    faults.finish(files, name)?;
    Ok(count)
}

/// Splits a line at tabs if it has one, else at commas, else at white space.
pub(super) fn fields(line: &str) -> Vec<&str> {
    match ['\t', ','].into_iter().find(|&c| line.contains(c)) {
        Some(c) => line.split(c).map(str::trim).collect(),
        None => line.split_ascii_whitespace().collect(),
    }
}

/// Parses a whole number.
pub(super) fn whole<T: std::str::FromStr>(what: &str, field: &str) -> Result<T, String> {
    let field = field.trim();
    field.parse().map_err(|_| format!("{what} '{}' is not a whole number in range", field.escape_debug()))
}

/// Parses a finite number.
pub(super) fn finite(what: &str, field: &str) -> Result<f32, String> {
    let field = field.trim();
    let number = field.parse().ok().filter(|x: &f32| x.is_finite());
    number.ok_or_else(|| format!("{what} '{}' is not a finite number", field.escape_debug()))
}

/// Numbers texts in the order of their first occurrence.
#[derive(Debug, Default)]
pub(super) struct Interner {
    ids: HashMap<Box<str>, u32>,
    texts: Vec<Box<str>>,
}

impl Interner {
    /// Number of a text, which is new if it has not occurred before.
    ///
    /// # Errors
    /// A message: there are more texts than 32-bit ids.
    pub(super) fn id(&mut self, text: &str) -> Result<u32, String> {
        if let Some(&id) = self.ids.get(text) {
            return Ok(id);
        }
        let id = u32::try_from(self.texts.len()).ok().filter(|&id| id < u32::MAX);
        let id = id.ok_or("more nodes than 32-bit ids can number; divide the graph")?;
        self.ids.insert(text.into(), id);
        self.texts.push(text.into());
        Ok(id)
    }

    /// Number of a known text.
    pub(super) fn get(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    /// Texts, by their numbers.
    pub(super) fn texts(&self) -> &[Box<str>] {
        &self.texts
    }

    /// Number of texts.
    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }
}

/// Error about a file as a whole.
pub(super) fn wrong(files: &Files, name: &str, message: impl Into<String>) -> Error {
    files.error(name, "contents", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_faults_of_a_file_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        std::fs::write(&path, "\u{feff}1\r\n\nx\n2\n\n3.5").unwrap();
        let files = Files::open(&path).unwrap();
        let mut sum = 0;
        let error = for_each_line(&files, "a.txt", |line| {
            sum += whole::<u32>("id", line)?;
            Ok(())
        });
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("line 3: id 'x' is not a whole number in range\n  line 6: id '3.5'"),
            "{error}"
        );
        assert_eq!(sum, 3);
        std::fs::write(&path, b"a\n\xff\n".repeat(20)).unwrap();
        let error = for_each_line(&files, "a.txt", |_| Ok(())).unwrap_err().to_string();
        assert!(
            error.contains("line 2: the line is not text") && error.contains("and 10 more faults"),
            "{error}"
        );
    }

    #[test]
    fn texts_are_numbered_by_their_first_occurrence() {
        let mut names = Interner::default();
        let ids: Vec<_> = ["b", "a", "b", ""].iter().map(|text| names.id(text).unwrap()).collect();
        assert_eq!((ids, names.len(), names.get("a"), names.get("c")), (vec![0, 1, 0, 2], 3, Some(1), None));
        assert_eq!(fields("a b\tc"), ["a b", "c"]);
        assert_eq!((fields("1, 2"), fields("1  2")), (vec!["1", "2"], vec!["1", "2"]));
    }
}
