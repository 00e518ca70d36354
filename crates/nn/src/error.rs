//! The one error type of this crate.

use graphmill_core::options::{Fault, Values};

/// What is wrong with a model's description.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A name that no table holds, with the known ones, or a fault of the floor below.
    #[error(transparent)]
    Graph(#[from] graphmill_core::Error),
    /// A number outside its range, or two choices that exclude each other.
    #[error("{field} = {value}: {message}")]
    Config {
        /// The field of the configuration.
        field: String,
        /// What it was set to.
        value: String,
        /// What is wrong and what to do.
        message: String,
    },
    /// A device failed, or its memory is full.
    #[error("{0}")]
    Device(String),
}

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A fault of an option, whose value is among these.
    pub(crate) fn option(values: &Values, fault: Fault) -> Self {
        let field = fault.option.unwrap_or_default();
        let value = values.get(&field).map(ToString::to_string).unwrap_or_default();
        let message = fault.message.split_once("': ").map_or(fault.message.as_str(), |(_, reason)| reason);
        Self::config(field, value, message)
    }

    /// A configuration that cannot be.
    pub fn config(field: impl Into<String>, value: impl ToString, message: impl Into<String>) -> Self {
        Self::Config { field: field.into(), value: value.to_string(), message: message.into() }
    }
}
