//! Stand-in of a build without object storage: no object exists.

#[cfg(feature = "tables")]
use std::io::{self, Seek, SeekFrom};
use std::{io::Read, path::Path};

use graphmill_core::{Error, Result};

use super::source::Source;

/// Object; there is none in this build.
#[derive(Clone, Debug)]
pub(crate) enum Object {}

/// Reader of an object; there is none in this build.
#[cfg(feature = "tables")]
#[derive(Clone, Debug)]
pub(crate) struct Blocks(Object);

/// Rejects the address.
#[cfg(feature = "tables")]
pub(crate) fn find(address: &str) -> Result<Vec<Object>> {
    Err(reject(address))
}

/// Rejects the address.
pub(super) fn find_source(address: &str) -> Result<Source> {
    Err(reject(address))
}

fn reject(address: &str) -> Error {
    Error::format(
        Path::new(address),
        "address",
        "this program was built without object storage; build it with `--features object-storage`, or copy \
         the file to this machine",
    )
}

impl Object {
    pub(crate) fn address(&self) -> &Path {
        match *self {}
    }

    pub(crate) fn size(&self) -> u64 {
        match *self {}
    }

    pub(crate) fn identity(&self) -> String {
        match *self {}
    }

    #[cfg(feature = "tables")]
    pub(crate) fn stream(&self) -> Result<Box<dyn Read + Send>> {
        match *self {}
    }

    pub(crate) fn stream_from(&self, _: u64) -> Result<Box<dyn Read + Send>> {
        match *self {}
    }

    #[cfg(feature = "tables")]
    pub(crate) fn blocks(&self, _: usize) -> Blocks {
        match *self {}
    }
}

#[cfg(feature = "tables")]
impl Blocks {
    pub(crate) fn size(&self) -> u64 {
        match self.0 {}
    }

    pub(crate) fn read_exact_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
        match self.0 {}
    }
}

#[cfg(feature = "tables")]
impl Read for Blocks {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        match self.0 {}
    }
}

#[cfg(feature = "tables")]
impl Seek for Blocks {
    fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
        match self.0 {}
    }
}
