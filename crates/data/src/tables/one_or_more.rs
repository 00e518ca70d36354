//! Names in a schema: one string, or a list of them.
#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

/// One string, or a list of them. In a file, the empty string and a list of empty strings are no
/// name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenNames", into = "WrittenNames")]
pub enum Names {
    /// No name.
    #[default]
    None,
    /// One name.
    One(String),
    /// Several names.
    Many(Vec<String>),
}

impl Names {
    /// The names.
    pub fn list(&self) -> Vec<String> {
        match self {
            Self::None => Vec::new(),
            Self::One(name) => vec![name.clone()],
            Self::Many(names) => names.clone(),
        }
    }

    /// Returns true if there is no name.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::None => true,
            Self::One(name) => name.is_empty(),
            Self::Many(names) => names.is_empty(),
        }
    }
}

/// [`Names`] in a file.
#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "a name, or a list of names")]
enum WrittenNames {
    One(String),
    Many(Vec<String>),
}

impl From<WrittenNames> for Names {
    fn from(written: WrittenNames) -> Self {
        match written {
            WrittenNames::One(name) if name.is_empty() => Self::None,
            WrittenNames::One(name) => Self::One(name),
            WrittenNames::Many(names) if names.iter().all(String::is_empty) => Self::None,
            WrittenNames::Many(names) => Self::Many(names),
        }
    }
}

impl From<Names> for WrittenNames {
    fn from(names: Names) -> Self {
        match names {
            Names::None => Self::Many(Vec::new()),
            Names::One(name) => Self::One(name),
            Names::Many(names) => Self::Many(names),
        }
    }
}

impl From<Vec<String>> for Names {
    fn from(mut names: Vec<String>) -> Self {
        match names.len() {
            0 => Self::None,
            1 => Self::One(names.remove(0)),
            _ => Self::Many(names),
        }
    }
}
