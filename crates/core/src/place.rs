//! Where an error is: the file and the place in it, carried to the code that finds the fault.

use std::{borrow::Cow, path::Path};

use crate::{Error, Result};

/// A file and a place in it: "member labels.npy", "line 7", "byte 12".
#[derive(Clone, Debug)]
pub struct At<'a> {
    /// The file.
    pub path: &'a Path,
    /// The place.
    pub place: Cow<'a, str>,
}

impl<'a> At<'a> {
    /// The place `place` of `path`.
    pub fn new(path: &'a Path, place: impl Into<Cow<'a, str>>) -> Self {
        Self { path, place: place.into() }
    }

    /// An error at this place.
    pub fn error(&self, message: impl Into<String>) -> Error {
        Error::format(self.path, self.place.as_ref(), message)
    }

    /// Gives an error that names no file ([`Error::Invalid`]) this place; others pass.
    pub fn locate<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| match error {
            Error::Invalid(message) => self.error(message),
            other => other,
        })
    }
}
