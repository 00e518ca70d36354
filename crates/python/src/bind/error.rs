//! Conversion of errors to Python exceptions.

use graphmill_data::download::Error as Download;
use graphmill_engine::{
    Error,
    record::{DATASET_HINT, OTHER_DATASET_HINT},
};
use pyo3::{
    PyErr,
    exceptions::{PyKeyboardInterrupt, PyMemoryError, PyOSError, PyRuntimeError, PyValueError},
};

use crate::fault::Fault;

/// `ValueError` for an invalid value.
pub(super) fn value(message: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(unflagged(&message.to_string()))
}

/// Exception for a batch that could not be made.
pub(super) fn fault(fault: Fault) -> PyErr {
    match fault {
        Fault::Value(message) => value(message),
        Fault::File(message) => PyOSError::new_err(message),
        Fault::Memory(message) => PyMemoryError::new_err(unflagged(&message)),
    }
}

/// Exception for an error of a graph or dataset.
pub(super) fn graph(error: graphmill_core::Error) -> PyErr {
    match error {
        graphmill_core::Error::Io { .. } => PyOSError::new_err(error.to_string()),
        graphmill_core::Error::Memory(message) => PyMemoryError::new_err(unflagged(&message)),
        graphmill_core::Error::Stopped => PyKeyboardInterrupt::new_err(error.to_string()),
        graphmill_core::Error::Device(_) | graphmill_core::Error::Peer { .. } => {
            PyRuntimeError::new_err(error.to_string())
        }
        other => value(other),
    }
}

/// Exception for an error of a download.
pub(super) fn download(error: Download) -> PyErr {
    match error {
        Download::Graph(error) => graph(error),
        Download::Unknown { .. } | Download::Manual { .. } => value(error),
        Download::Interrupted => PyKeyboardInterrupt::new_err(error.to_string()),
        _ => PyOSError::new_err(unflagged(&error.to_string())),
    }
}

/// Exception for an error of the engine.
pub(super) fn engine(error: Error) -> PyErr {
    let message = unflagged(&error.to_string());
    match error {
        Error::Graph(error) => graph(error),
        Error::Interrupted { .. } => PyKeyboardInterrupt::new_err(message),
        Error::DeviceMemory { .. } => PyMemoryError::new_err(message),
        Error::Diverged { .. } | Error::NotFinite { .. } | Error::OutputNotFinite { .. } => {
            PyRuntimeError::new_err(message)
        }
        _ => PyValueError::new_err(message),
    }
}

/// Rewrites a message about the command line for keyword arguments: `--batch-size 0` becomes
/// `batch_size 0`.
fn unflagged(message: &str) -> String {
    // phrases of more than an option
    let phrases = [
        (DATASET_HINT, "dataset= takes a graphmill.Dataset or its directory"),
        (OTHER_DATASET_HINT, "(dataset=)"),
        ("train DATASET --resume", "train(dataset, resume=True)"),
        ("train --resume", "train(resume=True)"),
        ("by --resume", "by resume=True"),
        ("with --resume", "with resume=True"),
        ("another --out", "another out="),
        ("with --out", "with out="),
        ("train --out", "train(out=)"),
        ("add --devices cuda:0", "add devices='cuda:0'"),
        ("--no-verify", "verify=False"),
        ("--mirror", "mirror="),
    ];
    let message = phrases.iter().fold(message.to_string(), |text, (flag, word)| text.replace(flag, word));
    let mut parts = message.split("--");
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let end = part.find(|c: char| !(c.is_ascii_lowercase() || c == '-')).unwrap_or(part.len());
        out += &part[..end].replace('-', "_");
        out += &part[end..];
    }
    out
}
