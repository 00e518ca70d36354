//! Tokenizer for whole numbers and line ends, in chunks: lists of neighbours have lines of any
//! length, and a line with a hub's millions of neighbours must not need to fit into memory.

use std::{
    io::Read,
    path::{Path, PathBuf},
};

use graphmill_core::{Result, location::Location, progress::Unit};

use super::super::unpack::{BytesRead, Unpacked};
use crate::external::Scratch;

/// Bytes read at a time.
const CHUNK_LEN: usize = 1 << 18;

/// Next item of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// Number.
    Number(u64),
    /// End of a line, including the last, even without a line end.
    LineEnd,
    /// End of the file.
    End,
}

/// Numbers of a file.
pub(super) struct Numbers<'a> {
    path: PathBuf,
    input: Unpacked,
    /// First byte of comment lines, which are skipped.
    comment: u8,
    buffer: Vec<u8>,
    next: usize,
    /// Number of the current line, from 1.
    line: usize,
    /// True if only white space of this line was read.
    fresh: bool,
    /// True if the line has any byte.
    begun: bool,
    progress: BytesRead,
    scratch: &'a Scratch,
}

impl<'a> Numbers<'a> {
    /// Opens `path`, unpacking it if it is gzipped, and reports progress to `scratch`.
    pub(super) fn open(path: &Path, comment: u8, scratch: &'a Scratch) -> Result<Self> {
        let input = Unpacked::open(path, CHUNK_LEN)?;
        let progress = input.progress();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        scratch.stage(&format!("reading {name}"), Some(progress.size), Unit::Bytes);
        Ok(Self {
            path: path.to_path_buf(),
            input,
            comment,
            buffer: Vec::new(),
            next: 0,
            line: 1,
            fresh: true,
            begun: false,
            progress,
            scratch,
        })
    }

    /// Location of the current token.
    pub(super) fn at(&self) -> Location<'_> {
        Location::new(&self.path, format!("line {}", self.line))
    }

    /// Location of a line that has just ended.
    pub(super) fn at_last_line(&self) -> Location<'_> {
        Location::new(&self.path, format!("line {}", self.line.saturating_sub(1).max(1)))
    }

    /// Returns the next byte without consuming it.
    #[inline]
    fn peek(&mut self) -> Result<Option<u8>> {
        if self.next == self.buffer.len() && !self.fill()? {
            return Ok(None);
        }
        Ok(Some(self.buffer[self.next]))
    }

    #[cold]
    fn fill(&mut self) -> Result<bool> {
        self.scratch.done(self.progress.taken());
        self.buffer.resize(CHUNK_LEN, 0);
        self.next = 0;
        let read = loop {
            match self.input.read(&mut self.buffer) {
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let read = read.map_err(|e| self.at().error(format!("cannot be read: {e}")));
        self.buffer.truncate(*read.as_ref().unwrap_or(&0));
        Ok(read? > 0)
    }

    /// Returns the next number or line end. Comment lines are skipped.
    ///
    /// # Errors
    /// The file cannot be read, or contains another character.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Token> {
        loop {
            let Some(byte) = self.peek()? else {
                // A last line without a line end still ends.
                return Ok(if std::mem::take(&mut self.begun) { self.end_line() } else { Token::End });
            };
            match byte {
                b'0'..=b'9' => return self.number().map(Token::Number),
                b'\n' => {
                    self.next += 1;
                    return Ok(self.end_line());
                }
                b' ' | b'\t' | b'\r' => {
                    self.next += 1;
                    self.begun = true;
                }
                comment if comment == self.comment && self.fresh => self.skip_line()?,
                other => {
                    let found = char::from(other).escape_default();
                    let hint = if other.is_ascii_graphic() { "" } else { "; is this a binary file?" };
                    return Err(self.at().error(format!("'{found}' found, whole numbers expected{hint}")));
                }
            }
        }
    }

    fn end_line(&mut self) -> Token {
        self.line += 1;
        (self.fresh, self.begun) = (true, false);
        Token::LineEnd
    }

    fn number(&mut self) -> Result<u64> {
        (self.fresh, self.begun) = (false, true);
        let mut value = 0u64;
        while let Some(digit @ b'0'..=b'9') = self.peek()? {
            self.next += 1;
            value = match value.checked_mul(10).and_then(|x| x.checked_add(u64::from(digit - b'0'))) {
                Some(value) => value,
                None => return Err(self.at().error("a number of more than 64 bits")),
            };
        }
        Ok(value)
    }

    fn skip_line(&mut self) -> Result<()> {
        while let Some(byte) = self.peek()? {
            self.next += 1;
            if byte == b'\n' {
                break;
            }
        }
        self.end_line();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn tokens(bytes: &[u8]) -> Result<Vec<Token>, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let scratch = Scratch::in_memory();
        let mut numbers = Numbers::open(file.path(), b'%', &scratch).map_err(|e| e.to_string())?;
        let mut out = Vec::new();
        loop {
            match numbers.next().map_err(|e| e.to_string())? {
                Token::End => return Ok(out),
                token => out.push(token),
            }
        }
    }

    #[test]
    fn numbers_and_line_ends_are_tokenized() {
        use Token::{LineEnd, Number};
        let expected = [Number(1), Number(23), LineEnd, LineEnd, Number(4), LineEnd];
        for text in ["1 23\n\n4\n", "1 23\n\n4", " 1\t23 \r\n\r\n% x\n4\n%", "% 1\n1 23\n\n% \n4\n"] {
            assert_eq!(tokens(text.as_bytes()).unwrap(), expected, "{text:?}");
        }
        assert_eq!(tokens(b"").unwrap(), []);
        assert_eq!(tokens(b" ").unwrap(), [LineEnd]);
        assert_eq!(tokens(b"18446744073709551615").unwrap(), [Number(u64::MAX), LineEnd]);
    }

    #[test]
    fn chunk_boundaries_do_not_matter() {
        let text: String =
            (0..200_000).map(|i| format!("{i}{}", if i % 7 == 0 { "\n" } else { " " })).collect();
        assert!(text.len() > 4 * CHUNK_LEN);
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(text.as_bytes()).unwrap();
        let packed = packed.finish().unwrap();
        let plain = tokens(text.as_bytes()).unwrap();
        let numbers = plain.iter().filter_map(|t| if let Token::Number(x) = t { Some(*x) } else { None });
        assert!(numbers.eq(0..200_000));
        assert_eq!(tokens(&packed).unwrap(), plain);
        let error = tokens(&packed[..packed.len() / 2]).unwrap_err();
        assert!(error.contains("line ") && error.contains("cannot be read"), "{error}");
    }

    #[test]
    fn other_text_is_reported_with_its_line() {
        for (text, why) in [
            ("1\n\n2 x", "line 3: 'x' found"),
            ("1 -2", "line 1: '-'"),
            ("1 % 2", "line 1: '%'"),
            ("\u{1}", "binary"),
            ("18446744073709551616", "line 1: a number of more than 64 bits"),
        ] {
            let error = tokens(text.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
