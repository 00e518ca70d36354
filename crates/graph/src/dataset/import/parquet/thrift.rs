//! A look through Thrift's compact protocol, in which Parquet writes its metadata and the headers of its pages: for the
//! numbers that the reader behind it takes at their word, before it takes them.
//!
//! What is not of the protocol, or of the part that Parquet uses, is refused: the reader behind it may be more generous,
//! but not with something that no writer writes.

/// Structs and lists within each other; Parquet's own go down to ten.
const DEEPEST: usize = 32;

/// Looks through the struct that `bytes` begin with, and says how many bytes it has; `None` where it is none, or does not
/// end. `visit` gets every number, and the length of every text, with the path of field numbers to it; a list's elements
/// have the list's path.
pub(super) fn look(bytes: &[u8], visit: &mut dyn FnMut(&[i64], i64)) -> Option<usize> {
    let mut walk = Walk { rest: bytes, path: Vec::new(), visit };
    walk.fields()?;
    Some(bytes.len() - walk.rest.len())
}

struct Walk<'a, 'v> {
    rest: &'a [u8],
    path: Vec<i64>,
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
            id = match head >> 4 {
                0 => self.number()?,
                delta => id + i64::from(delta),
            };
            if self.path.len() == DEEPEST {
                return None;
            }
            self.path.push(id);
            match head & 0x0f {
                1 | 2 => (self.visit)(&self.path, i64::from(head & 0x0f == 1)), // the value is in the type
                kind => self.value(kind)?,
            }
            self.path.pop();
        }
    }

    fn value(&mut self, kind: u8) -> Option<()> {
        match kind {
            3 => self.take(1),
            4..=6 => {
                let number = self.number()?;
                (self.visit)(&self.path, number);
                Some(())
            }
            7 => self.take(8),
            8 => {
                let length = self.varint()?;
                self.take(usize::try_from(length).ok()?)?;
                (self.visit)(&self.path, length as i64);
                Some(())
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = match head >> 4 {
                    15 => self.varint()?,
                    count => count.into(),
                };
                // every element has a byte at least; lists of booleans or of lists do not come in these
                // structs
                if count > self.rest.len() as u64 || count > 0 && matches!(head & 0x0f, 0..=2 | 9 | 10) {
                    return None;
                }
                (0..count).try_for_each(|_| self.value(head & 0x0f))
            }
            12 => self.fields(),
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

    /// A signed number, zigzag.
    fn number(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_their_path() {
        // 1: -3, 2: [{1: true, 3: 300}, {}], 300: "ab"
        let bytes = [0x15, 5, 0x19, 0x2c, 0x11, 0x25, 0xd8, 4, 0, 0, 0x08, 0xd8, 4, 2, b'a', b'b', 0, 99];
        let mut found = Vec::new();
        let length = look(&bytes, &mut |path, number| found.push((path.to_vec(), number)));
        assert_eq!(length, Some(bytes.len() - 1));
        assert_eq!(found, [(vec![1], -3), (vec![2, 1], 1), (vec![2, 3], 300), (vec![300], 2)]);
        for length in 0..bytes.len() - 1 {
            assert_eq!(look(&bytes[..length], &mut |_, _| {}), None, "truncated to {length}");
        }
    }

    #[test]
    fn what_parquet_does_not_write_is_refused() {
        let refused = |bytes: &[u8]| look(bytes, &mut |_, _| {}).is_none();
        assert!(refused(&[0x1c; 100]), "deeper and deeper");
        assert!(refused(&[0x19, 0xf1, 0xff, 0xff, 0xff, 0xff, 7, 0]), "two thousand million booleans");
        assert!(refused(&[0x19, 0xf5, 0x80, 1, 0, 0]), "more numbers than bytes");
        assert!(refused(&[0x18, 3, b'a', b'b', 0]), "a text past the end");
        assert!(refused(&[0x1b, 0, 0]), "a map");
    }
}
