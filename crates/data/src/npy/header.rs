//! The header of an `.npy` array (NumPy Enhancement Proposal 1, `numpy/lib/format.py`):
//!
//! ```text
//! 93 'NUMPY'  major  minor  length (u16 in version 1, u32 in 2 and 3)  header  data
//! header: a Python dict {'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), } and padding
//! ```

use std::io::{self, Read, Seek};

use graphmill_core::{Result, location::Location};

use super::Dtype;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Longest accepted header; headers of plain types take about a hundred bytes, and NumPy itself
/// refuses more than 10,000.
const MAX_HEADER: usize = 1 << 16;
const MAX_DIMENSIONS: usize = 32;

/// Type, shape and order of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Element type.
    pub dtype: Dtype,
    /// Length of each axis; empty for a single value.
    pub shape: Vec<usize>,
    /// True if the first axis varies fastest.
    pub fortran_order: bool,
}

/// Returns true if `file` begins as an `.npy` array, and goes back to its start.
///
/// # Errors
/// Reading fails.
pub(crate) fn is_array(file: &mut (impl Read + Seek)) -> io::Result<bool> {
    let mut head = Vec::with_capacity(MAGIC.len());
    file.by_ref().take(MAGIC.len() as u64).read_to_end(&mut head)?;
    file.rewind()?;
    Ok(head == MAGIC)
}

impl Header {
    /// Reads a header and returns its length in bytes.
    ///
    /// # Errors
    /// The input is not an `.npy` array, has an unknown version or type, or a shape whose size
    /// overflows.
    pub(crate) fn read(input: &mut impl Read, at: &Location) -> Result<(Self, usize)> {
        let mut head = [0; 8];
        let fill = |input: &mut dyn Read, buffer: &mut [u8]| {
            input.read_exact(buffer).map_err(|e| {
                at.error(format!("the header of the .npy array cannot be read ({e}); is the file truncated?"))
            })
        };
        fill(input, &mut head)?;
        if head[..6] != *MAGIC {
            return Err(at.error("not a .npy array: it must begin with the bytes 93 'NUMPY'"));
        }
        let mut length = [0; 4];
        let width = match head[6] {
            1 => 2,
            2 | 3 => 4,
            major => {
                return Err(at.error(format!("version {major} of the .npy format; known are 1, 2 and 3")));
            }
        };
        fill(input, &mut length[..width])?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_HEADER {
            return Err(at.error(format!("a header of {length} bytes; at most {MAX_HEADER} are read")));
        }
        let mut text = vec![0; length];
        fill(input, &mut text)?;
        let text = std::str::from_utf8(&text).map_err(|_| at.error("the header is not text"))?;
        let header = Self::parse(text).map_err(|e| at.error(format!("header: {e}")))?;
        header.bytes_checked().ok_or_else(|| {
            at.error(format!("the shape {:?} of {} overflows the address space", header.shape, header.dtype))
        })?;
        Ok((header, 8 + width + length))
    }

    /// Bytes of a version 1 header up to the data, a multiple of 64.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.to_bytes_of(0)
    }

    /// Header as by [`Header::to_bytes`], padded to at least `least` bytes, a multiple of 64.
    pub(crate) fn to_bytes_of(&self, least: usize) -> Vec<u8> {
        let axes: String = self.shape.iter().map(|n| format!("{n}, ")).collect();
        let axes = if self.shape.len() == 1 { axes.trim_end() } else { axes.trim_end_matches(", ") };
        let fortran = if self.fortran_order { "True" } else { "False" };
        let mut text =
            format!("{{'descr': '{}', 'fortran_order': {fortran}, 'shape': ({axes}), }}", self.dtype);
        let total = (MAGIC.len() + 4 + text.len() + 1).next_multiple_of(64).max(least);
        let length = total - MAGIC.len() - 4;
        while text.len() < length - 1 {
            text.push(' ');
        }
        text.push('\n');
        let mut bytes = MAGIC.to_vec();
        bytes.extend([1, 0]);
        bytes.extend((length as u16).to_le_bytes()); // at most 32 axes of 20 digits: far below 2^16
        bytes.extend(text.as_bytes());
        bytes
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns true if the array has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the data.
    pub fn bytes(&self) -> usize {
        self.len() * self.dtype.size
    }

    /// Bytes of the data, or `None` if the product overflows.
    fn bytes_checked(&self) -> Option<usize> {
        let mut bytes = self.dtype.size.max(1); // texts of no bytes are counted too
        for &n in &self.shape {
            bytes = bytes.checked_mul(n.max(1))?;
        }
        (bytes <= isize::MAX as usize).then_some(bytes)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut dict = Literal { rest: text };
        let (mut dtype, mut shape, mut fortran) = (None, None, None);
        dict.expect('{')?;
        while !dict.eat('}') {
            let key = dict.string()?;
            dict.expect(':')?;
            let twice = match key {
                "descr" => dtype.replace(dict.dtype()?).is_some(),
                "fortran_order" => fortran.replace(dict.bool()?).is_some(),
                "shape" => shape.replace(dict.tuple()?).is_some(),
                _ => return Err(format!("unknown key '{key}'")),
            };
            if twice {
                return Err(format!("the key '{key}' occurs twice"));
            }
            if !dict.eat(',') {
                dict.expect('}')?;
                break;
            }
        }
        if !dict.rest.trim_end_matches('\0').trim().is_empty() {
            return Err("there is text after the dict".into());
        }
        match (dtype, shape, fortran) {
            (Some(dtype), Some(shape), Some(fortran_order)) => Ok(Self { dtype, shape, fortran_order }),
            _ => Err("the keys 'descr', 'fortran_order' and 'shape' must all be there".into()),
        }
    }
}

/// Parser of the Python literals in headers.
struct Literal<'a> {
    rest: &'a str,
}

impl<'a> Literal<'a> {
    fn eat(&mut self, c: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, c: char) -> Result<(), String> {
        if self.eat(c) {
            return Ok(());
        }
        let found: String = self.rest.chars().take(20).collect();
        Err(format!("'{c}' expected before '{}'", found.escape_debug()))
    }

    fn string(&mut self) -> Result<&'a str, String> {
        let quote = if self.eat('"') {
            '"'
        } else {
            self.expect('\'')?;
            '\''
        };
        let (inside, rest) = self.rest.split_once(quote).ok_or("a string does not end")?;
        self.rest = rest;
        Ok(inside)
    }

    fn dtype(&mut self) -> Result<Dtype, String> {
        if self.rest.trim_start().starts_with('[') {
            return Err("records are not read; save every column as an array of its own".into());
        }
        let text = self.string()?;
        Dtype::parse(text).ok_or_else(|| {
            format!(
                "the element type '{}' is not read; save as f2, f4, f8, i1..i8, u1..u8 or bool \
                 (np.asarray(x, dtype))",
                text.escape_debug()
            )
        })
    }

    fn bool(&mut self) -> Result<bool, String> {
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.rest.trim_start().strip_prefix(word) {
                self.rest = rest;
                return Ok(value);
            }
        }
        Err("'fortran_order' is neither True nor False".into())
    }

    fn tuple(&mut self) -> Result<Vec<usize>, String> {
        let mut axes = Vec::new();
        self.expect('(')?;
        while !self.eat(')') {
            self.rest = self.rest.trim_start();
            let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
            let (digits, rest) = self.rest.split_at(end);
            let axis = digits.parse().map_err(|_| format!("'{digits}' is not the length of an axis"))?;
            self.rest = rest.strip_prefix('L').unwrap_or(rest); // Python 2 wrote long integers so
            axes.push(axis);
            if axes.len() > MAX_DIMENSIONS {
                return Err(format!("more than {MAX_DIMENSIONS} axes"));
            }
            if !self.eat(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(axes)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn read(bytes: &[u8]) -> Result<(Header, usize), String> {
        Header::read(&mut &*bytes, &Location::new(Path::new("x.npy"), "header")).map_err(|e| e.to_string())
    }

    fn version(major: u8, text: &str) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([major, 0]);
        if major == 1 {
            bytes.extend((text.len() as u16).to_le_bytes());
        } else {
            bytes.extend((text.len() as u32).to_le_bytes());
        }
        bytes.extend(text.as_bytes());
        bytes
    }

    #[test]
    fn headers_round_trip() {
        for shape in [vec![], vec![3], vec![3, 2], vec![0, 7, 9]] {
            for fortran_order in [false, true] {
                let header =
                    Header { dtype: Dtype::parse("<f4").unwrap(), shape: shape.clone(), fortran_order };
                let bytes = header.to_bytes();
                assert_eq!(bytes.len() % 64, 0);
                assert_eq!(read(&bytes).unwrap(), (header, bytes.len()));
            }
        }
    }

    #[test]
    fn headers_written_by_numpy_parse() {
        let text = "{'descr': '<i8', 'fortran_order': False, 'shape': (10000, 7), }      \n";
        for major in [1, 2, 3] {
            let (header, _) = read(&version(major, text)).unwrap();
            assert_eq!((header.shape, header.dtype.to_string()), (vec![10_000, 7], "<i8".into()));
        }
        let (header, _) =
            read(&version(1, "{\"shape\": (3L,), 'fortran_order': True, 'descr': '|b1'}")).unwrap();
        assert_eq!((header.shape, header.fortran_order), (vec![3], true));
    }

    #[test]
    fn damaged_headers_are_reported() {
        let good = "'descr': '<f4', 'fortran_order': False, ";
        let fails = |text: String, why: &str| {
            let error = read(&version(1, &text)).unwrap_err();
            assert!(error.contains(why) && error.contains("x.npy"), "{text}: {error}");
        };
        fails(format!("{{{good}'shape': (18446744073709551615, 2)}}"), "overflows");
        fails(format!("{{{good}'shape': (0, 9223372036854775807, 9223372036854775807)}}"), "overflows");
        fails(format!("{{{good}'shape': (99999999999999999999,)}}"), "length of an axis");
        fails(format!("{{{good}'shape': (-1,)}}"), "length of an axis");
        fails(format!("{{{good}'shape': (1,)"), "expected");
        fails(format!("{{{good}}}"), "must all be there");
        fails(format!("{{{good}{good}'shape': (1,)}}"), "twice");
        fails(format!("{{{good}'shape': (1,)}} x"), "after the dict");
        fails(format!("{{{good}'shape': ({})}}", "1,".repeat(40)), "axes");
        fails("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}".into(), "records");
        fails("{'descr': '|O', 'fortran_order': False, 'shape': ()}".into(), "|O");
        assert!(read(b"PK\x03\x04....").unwrap_err().contains("not a .npy array"));
        assert!(read(&version(9, "")).unwrap_err().contains("version 9"));
        assert!(read(b"\x93NUMPY\x02\x00\xff\xff\xff\xff").unwrap_err().contains("at most"));
        assert!(read(b"\x93NUMPY\x01\x00\xff\x00abc").unwrap_err().contains("truncated"));
    }
}
