//! Location of an error: the file and the position in it.

#![forbid(unsafe_code)]

use std::{borrow::Cow, path::Path};

use crate::{Error, Result};

/// File and a position in it: "member labels.npy", "line 7", "byte 12".
#[derive(Clone, Debug)]
pub struct Location<'a> {
    /// Path of the file.
    pub path: &'a Path,
    /// Position in the file.
    pub place: Cow<'a, str>,
}

impl<'a> Location<'a> {
    /// Creates the location `place` in `path`.
    pub fn new(path: &'a Path, place: impl Into<Cow<'a, str>>) -> Self {
        Self { path, place: place.into() }
    }

    /// Creates an error at this location.
    pub fn error(&self, message: impl Into<String>) -> Error {
        Error::format(self.path, self.place.as_ref(), message)
    }

    /// Adds this location to an error without a file ([`Error::Invalid`]); other results pass
    /// unchanged.
    pub fn locate<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| match error {
            Error::Invalid(message) => self.error(message),
            other => other,
        })
    }
}
