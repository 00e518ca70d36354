//! Scan of Thrift's compact protocol, in which Parquet stores its metadata and page headers, to
//! validate the numbers that the decoder would trust.
//!
//! The decoder identifies fields by number and assumes their types, so a wrong type makes it
//! misread the following bytes. Therefore known fields have fixed types here, and fields must be
//! ascending, as all writers store them. Everything else outside of the protocol, or of the subset
//! used by Parquet, is rejected.

/// Maximum nesting of structs and lists; Parquet's go down to ten.
const MAX_DEPTH: usize = 32;

const ANY: u8 = 0;
const BOOLEAN: u8 = 1; // and 2: the value is in the type
const BYTE: u8 = 3;
const I32: u8 = 5;
const I64: u8 = 6;
const TEXT: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// Type of the field at a path: its number in its struct, after those of the enclosing structs and
/// lists.
pub(super) type Grammar = fn(&[i64]) -> u8;

/// Grammar of a file's metadata up to the schema; the rest is left to the decoder.
pub(super) fn metadata(path: &[i64]) -> u8 {
    match path {
        [1] | [2, 1..=3 | 5..=9] | [2, 10, 5, 1 | 2] | [2, 10, 18, 2] => I32,
        [3] => I64,
        [2] | [4] => LIST,
        [2, 4] | [2, 10, 17 | 18, 1] => TEXT,
        // Kinds of logical types, and units of time.
        [2, 10] | [2, 10, _] | [2, 10, 7 | 8, 2] | [2, 10, 7 | 8, 2, _] => STRUCT,
        [2, 10, 7 | 8, 1] | [2, 10, 10, 2] => BOOLEAN,
        [2, 10, 10 | 16, 1] => BYTE,
        _ => ANY,
    }
}

/// Grammar of a page header, without statistics, which are skipped.
pub(super) fn page(path: &[i64]) -> u8 {
    match path {
        [1..=4] | [5, 1..=4] | [7, 1 | 2] | [8, 1..=6] => I32,
        [5..=8] | [5, 5] | [8, 8] => STRUCT,
        [7, 3] | [8, 7] => BOOLEAN,
        _ => ANY,
    }
}

/// Scans the struct at the beginning of `bytes` and returns its length; `None` if it is invalid or
/// incomplete. `visit` receives every number, and the length of every text, with its path; a list's
/// elements have the list's path.
pub(super) fn look(bytes: &[u8], grammar: Grammar, visit: &mut dyn FnMut(&[i64], i64)) -> Option<usize> {
    let mut walk = Walk { rest: bytes, path: Vec::new(), grammar, visit };
    walk.fields()?;
    Some(bytes.len() - walk.rest.len())
}

struct Walk<'a, 'v> {
    rest: &'a [u8],
    path: Vec<i64>,
    grammar: Grammar,
    visit: &'v mut dyn FnMut(&[i64], i64),
}

impl Walk<'_, '_> {
    fn fields(&mut self) -> Option<()> {
        let mut id = 0i64;
        loop {
            let head = self.byte()?;
            if head & 0x0f == 0 {
                return Some(());
            }
            let before = id;
            id = match head >> 4 {
                0 => self.number()?,
                delta => id + i64::from(delta),
            };
            if id <= before || id > i64::from(i16::MAX) || self.path.len() == MAX_DEPTH {
                return None;
            }
            self.path.push(id);
            let kind = head & 0x0f;
            let expected = (self.grammar)(&self.path);
            if expected != ANY && expected != kind && (expected, kind) != (BOOLEAN, 2) {
                return None;
            }
            match kind {
                1 | 2 => (self.visit)(&self.path, i64::from(kind == 1)),
                kind => self.value(kind)?,
            }
            self.path.pop();
        }
    }

    fn value(&mut self, kind: u8) -> Option<()> {
        match kind {
            BYTE => self.take(1),
            4 | I32 | I64 => {
                let number = self.number()?;
                (self.visit)(&self.path, number);
                Some(())
            }
            7 => self.take(8),
            TEXT => {
                let length = self.varint()?;
                self.take(usize::try_from(length).ok()?)?;
                (self.visit)(&self.path, length as i64);
                Some(())
            }
            LIST | 10 => {
                let head = self.byte()?;
                let count = match head >> 4 {
                    15 => self.varint()?,
                    count => count.into(),
                };
                // Every element has at least one byte; lists of booleans or of lists do not occur
                // in these structs.
                if count > self.rest.len() as u64 || count > 0 && matches!(head & 0x0f, 0..=2 | 9 | 10) {
                    return None;
                }
                (0..count).try_for_each(|_| self.value(head & 0x0f))
            }
            STRUCT => self.fields(),
            _ => None,
        }
    }

    fn take(&mut self, count: usize) -> Option<()> {
        self.rest = self.rest.get(count..)?;
        Some(())
    }

    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// Reads a signed number in zigzag encoding.
    fn number(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_visited_with_their_path() {
        // 1: -3, 2: [{1: true, 3: 300}, {}], 300: "ab"
        let bytes = [0x15, 5, 0x19, 0x2c, 0x11, 0x25, 0xd8, 4, 0, 0, 0x08, 0xd8, 4, 2, b'a', b'b', 0, 99];
        let mut found = Vec::new();
        let length = look(&bytes, |_| ANY, &mut |path, number| found.push((path.to_vec(), number)));
        assert_eq!(length, Some(bytes.len() - 1));
        assert_eq!(found, [(vec![1], -3), (vec![2, 1], 1), (vec![2, 3], 300), (vec![300], 2)]);
        for length in 0..bytes.len() - 1 {
            assert_eq!(look(&bytes[..length], |_| ANY, &mut |_, _| {}), None, "truncated to {length}");
        }
    }

    #[test]
    fn encodings_outside_of_parquets_subset_are_rejected() {
        let refused = |bytes: &[u8]| look(bytes, |_| ANY, &mut |_, _| {}).is_none();
        assert!(refused(&[0x1c; 100]), "deeper and deeper");
        assert!(refused(&[0x19, 0xf1, 0xff, 0xff, 0xff, 0xff, 7, 0]), "two thousand million booleans");
        assert!(refused(&[0x19, 0xf5, 0x80, 1, 0, 0]), "more numbers than bytes");
        assert!(refused(&[0x18, 3, b'a', b'b', 0]), "a text past the end");
        assert!(refused(&[0x1b, 0, 0]), "a map");
        assert!(refused(&[0x25, 0, 0x05, 2, 0, 0]), "the field 1 after the field 2");
        assert!(refused(&[0x05, 0x82, 0x80, 8, 0, 0]), "the field 2^16 + 1");
        assert!(!refused(&[0x19, 2, 0]));
        assert_eq!(look(&[0x19, 2, 0], metadata, &mut |_, _| {}), None, "the version, as a list");
    }
}
