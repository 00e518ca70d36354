//! The bearer token of a service.

use std::{fmt, path::Path};

use graphmill_engine::{Error, Result};
use subtle::ConstantTimeEq;

/// Minimum length of a token.
const MIN_LEN: usize = 16;

/// A secret that requests name in their header `Authorization`.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// Checks a token.
    ///
    /// # Errors
    /// Wrong usage: it is too short to be a secret, or has characters that no header can hold.
    pub fn new(word: impl AsRef<str>) -> Result<Self> {
        let word = word.as_ref().trim();
        if word.len() < MIN_LEN || !word.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::usage(format!(
                "token: a secret of at least {MIN_LEN} visible ASCII characters without spaces is needed; \
                 make one, such as by openssl rand -hex 32"
            )));
        }
        Ok(Self(word.into()))
    }

    /// Reads a file that holds a token alone.
    ///
    /// # Errors
    /// The file cannot be read, or as [`Token::new`].
    pub fn read(file: &Path) -> Result<Self> {
        Self::new(std::fs::read_to_string(file).map_err(|e| Error::io(file, "read", e))?)
    }

    /// Returns true if `header`, the value of `Authorization`, has the token. The time does not
    /// depend on how many characters agree.
    pub(crate) fn is_in(&self, header: &[u8]) -> bool {
        let found = header.split_at_checked(7).filter(|(kind, _)| kind.eq_ignore_ascii_case(b"bearer "));
        found.is_some_and(|(_, word)| bool::from(word.ct_eq(self.0.as_bytes())))
    }
}

/// The secret is not shown.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_accepted() {
        let token = Token::new("0123456789abcdef\n").unwrap();
        assert!(token.is_in(b"Bearer 0123456789abcdef") && token.is_in(b"bearer 0123456789abcdef"));
        for wrong in ["", "Bearer", "Bearer ", "Bearer 0123456789abcde", "Bearer 0123456789abcdeF"] {
            assert!(!token.is_in(wrong.as_bytes()), "{wrong}");
        }
        assert!(!token.is_in(b"Basic  0123456789abcdef") && !token.is_in(b"0123456789abcdef"));
        assert!(Token::new("short").is_err() && Token::new("0123456789 abcdef").is_err());
        assert_eq!(format!("{token:?}"), "Token");
    }
}
