//! Error type of this crate. Each message states what failed, where, and how to fix it.

#![forbid(unsafe_code)]

use std::path::Path;

/// An error that ends a run or a command.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An error of a file, a dataset or a graph.
    #[error(transparent)]
    Graph(#[from] graphmill_core::Error),
    /// A model that cannot be built as described.
    #[error(transparent)]
    Nn(#[from] graphmill_nn::Error),
    /// An invalid option, named by its flag.
    #[error("{0}")]
    Usage(String),
    /// A valid dataset that lacks something the command needs.
    #[error("dataset {name}: {message}")]
    Dataset {
        /// Name of the dataset.
        name: String,
        /// Missing part, and how to add it.
        message: String,
    },
    /// A run directory that already exists, is missing or is in use.
    #[error("{path}: {message}")]
    Run {
        /// Path of the directory.
        path: std::path::PathBuf,
        /// Reason and remedy.
        message: String,
    },
    /// The loss is NaN or infinite. The parameters are those before the batch.
    #[error(
        "training diverged: the loss is {loss} in epoch {epoch}, batch {batch}; lower --lr, set --clip, or \
         check the features for values that are not finite"
    )]
    Diverged {
        /// Number of the epoch, from 1.
        epoch: usize,
        /// Number of the batch in its epoch, from 1.
        batch: u64,
        /// The loss: NaN or an infinity.
        loss: f64,
    },
    /// An update left parameters that are not finite.
    #[error(
        "training diverged: parameter '{name}' of {file} holds {value}; nothing of it is saved; lower --lr, \
         set --clip, or check the features for values that are not finite"
    )]
    NotFinite {
        /// Name of the first such parameter.
        name: String,
        /// File that it was to be saved in.
        file: String,
        /// Its first such value: NaN or an infinity.
        value: f32,
    },
    /// Outputs of a model that are not finite, so they are not predictions.
    #[error(
        "the model's outputs for {name} are not finite ({value}); train again with a lower --lr or with \
         --clip, or check the features for values near the limits of 32-bit floats"
    )]
    OutputNotFinite {
        /// Number of the first such row, from 0.
        row: usize,
        /// Name of the row, such as its key.
        name: String,
        /// Its first such value: NaN or an infinity.
        value: f32,
    },
    /// An NVIDIA device cannot be used, failed, or is full.
    #[error("{0}")]
    Gpu(String),
    /// An allocation exceeds the free memory of a device.
    #[error(
        "{device} is out of memory: {what} takes {bytes} bytes, {free} of {budget} are free; \
         raise --device-budget, lower --batch-size or --cache-ratio, or use --strategy factored, which \
         samples and trains on different devices"
    )]
    DeviceMemory {
        /// Name of the device.
        device: String,
        /// Purpose of the allocation.
        what: String,
        /// Size of the allocation in bytes.
        bytes: u64,
        /// Bytes that were free.
        free: u64,
        /// Bytes of the whole device.
        budget: u64,
    },
    /// A stage of a batch panicked: a bug of this program.
    #[error("batch {batch} failed: the {stage} stage panicked: {message}; please report this")]
    Panicked {
        /// Name of the stage.
        stage: &'static str,
        /// Number of the batch, from 1.
        batch: u64,
        /// Message of the panic.
        message: String,
    },
    /// The run was asked to stop.
    #[error(
        "interrupted in epoch {epoch} after {batch} batches{}",
        if *saved { ", all of them saved" } else { "" }
    )]
    Interrupted {
        /// Number of the epoch, from 1.
        epoch: usize,
        /// Batches finished in this epoch.
        batch: u64,
        /// True if a checkpoint was written.
        saved: bool,
    },
}

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An invalid option.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    /// A name from the user that a table does not contain: wrong usage.
    pub fn name(error: graphmill_core::Error) -> Self {
        Self::Usage(error.to_string())
    }

    /// An error of the work for an option's value; a stop stays one.
    pub(crate) fn of_option(flag: &str, value: &str, error: Self) -> Self {
        match error {
            Self::Graph(graphmill_core::Error::Stopped) => error,
            error => Self::usage(format!("{flag} {value}: {error}")),
        }
    }

    /// The error of a run; a stop of the work before its first epoch interrupts it.
    pub(crate) fn before_training(self) -> Self {
        match self {
            Self::Graph(graphmill_core::Error::Stopped) => {
                Self::Interrupted { epoch: 1, batch: 0, saved: false }
            }
            error => error,
        }
    }

    /// A dataset that the command cannot use.
    pub fn dataset(name: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Dataset { name: name.into(), message: message.into() }
    }

    /// The same error with the name of its row, if it is one of outputs that are not finite.
    pub(crate) fn with_row_name(self, name: impl FnOnce(usize) -> String) -> Self {
        match self {
            Self::OutputNotFinite { row, value, .. } => Self::OutputNotFinite { row, name: name(row), value },
            error => error,
        }
    }

    /// A dataset without `what`; the message names the part to `import` and the `argument` of
    /// `Dataset.from_arrays` in Python.
    pub(crate) fn without(name: &str, what: &str, import: &str, argument: &str) -> Self {
        let remedy = format!("import it with {import}, or in Python pass {argument} to from_arrays");
        Self::dataset(name, format!("it has no {what}: {remedy}"))
    }

    /// A dataset without features, which `model` reads; the message names a model that learns a row
    /// of each node.
    pub(crate) fn without_features(name: &str, model: &str) -> Self {
        let of_types = graphmill_nn::typed::TABLE.get(&format!("r{model}")).map_or("rsage", |row| row.name);
        let message = format!(
            "it has no features, which --model {model} reads: import it with features, in Python pass x= to \
             from_arrays, or use --model {of_types}, which learns a row of each node of a dataset in a \
             directory"
        );
        Self::dataset(name, message)
    }

    /// A run directory that the command cannot use.
    pub fn run(path: impl AsRef<Path>, message: impl Into<String>) -> Self {
        Self::Run { path: path.as_ref().to_path_buf(), message: message.into() }
    }

    /// A failed operation of the operating system.
    pub fn io(path: impl AsRef<Path>, action: &'static str, source: std::io::Error) -> Self {
        graphmill_core::Error::io(path, action, source).into()
    }

    /// A damaged or unexpected file.
    pub fn format(path: impl AsRef<Path>, place: impl Into<String>, message: impl Into<String>) -> Self {
        graphmill_core::Error::format(path, place, message).into()
    }

    /// Returns true if the command line is wrong, rather than an operation having failed.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Usage(_))
    }
}
