//! Why a batch could not be made.

use std::fmt;

/// What went wrong, by what it is to Python.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A wrong value: `ValueError`.
    Value(String),
    /// A file that the system does not read: `OSError`.
    File(String),
}

impl From<String> for Fault {
    fn from(message: String) -> Self {
        Self::Value(message)
    }
}

impl From<graphmill_core::Error> for Fault {
    fn from(error: graphmill_core::Error) -> Self {
        match error {
            graphmill_core::Error::Io { .. } => Self::File(error.to_string()),
            other => Self::Value(other.to_string()),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(message) | Self::File(message) => f.write_str(message),
        }
    }
}
