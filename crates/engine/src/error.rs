//! The one error type of this crate: each message names the thing, the place and the mend.

use std::path::Path;

/// What can end a run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file, a dataset or a graph: see the message.
    #[error(transparent)]
    Graph(#[from] graphmill_core::Error),
    /// A model that cannot be built as described.
    #[error(transparent)]
    Nn(#[from] graphmill_nn::Error),
    /// A wrong option, told by its flag.
    #[error("{0}")]
    Usage(String),
    /// A dataset that is sound but cannot be used for this.
    #[error("dataset {name}: {message}")]
    Dataset {
        /// Its name.
        name: String,
        /// What it lacks and how to get it.
        message: String,
    },
    /// A run directory that is not what is needed: taken, missing or in use.
    #[error("{path}: {message}")]
    Run {
        /// The directory.
        path: std::path::PathBuf,
        /// What is wrong and what to do.
        message: String,
    },
    /// The loss left the finite numbers. The parameters are those before the batch.
    #[error(
        "the loss is {loss} in epoch {epoch}, batch {batch}: lower --lr, set --clip, or check the features for \
         values that are not finite"
    )]
    Diverged {
        /// From 1.
        epoch: usize,
        /// From 1.
        batch: u64,
        /// NaN or an infinity.
        loss: f64,
    },
    /// An NVIDIA device cannot be used, failed, or is full.
    #[error("{0}")]
    Gpu(String),
    /// A device has no room for something.
    #[error(
        "{device} is out of memory: {what} takes {bytes} bytes, {free} of {budget} are free; give it a larger \
         --device-budget, or a smaller --batch-size or --cache-ratio, or separate sampling from training by --strategy factored"
    )]
    DeviceMemory {
        /// Its name.
        device: String,
        /// What was to be put there.
        what: String,
        /// How large it is.
        bytes: u64,
        /// What was left.
        free: u64,
        /// All the device has.
        budget: u64,
    },
    /// A stage of a batch panicked: a fault of this program, or memory that could not be had.
    #[error("batch {batch} could not be done: the {stage} stage panicked: {message}; please report this")]
    Panicked {
        /// The stage.
        stage: &'static str,
        /// From 1.
        batch: u64,
        /// What the panic said.
        message: String,
    },
    /// Someone asked the run to stop.
    #[error(
        "interrupted in epoch {epoch} after {batch} batches{}",
        if *saved { ", all of it saved" } else { "" }
    )]
    Interrupted {
        /// From 1.
        epoch: usize,
        /// Batches done in it.
        batch: u64,
        /// Whether a checkpoint was written.
        saved: bool,
    },
}

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A wrong option.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    /// A name that a table does not hold, given by the user: wrong usage.
    pub fn name(error: graphmill_core::Error) -> Self {
        Self::Usage(error.to_string())
    }

    /// A dataset that cannot be used for this.
    pub fn dataset(name: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Dataset { name: name.into(), message: message.into() }
    }

    /// A dataset that lacks something: what an import gives it by, and `Dataset.from_arrays` in
    /// Python.
    pub(crate) fn without(name: &str, what: &str, import: &str, argument: &str) -> Self {
        let remedy = format!("import it with {import}, or in Python give from_arrays {argument}");
        Self::dataset(name, format!("it has no {what}: {remedy}"))
    }

    /// A run directory that is not what is needed.
    pub fn run(path: impl AsRef<Path>, message: impl Into<String>) -> Self {
        Self::Run { path: path.as_ref().to_path_buf(), message: message.into() }
    }

    /// The operating system refused something.
    pub fn io(path: impl AsRef<Path>, action: &'static str, source: std::io::Error) -> Self {
        graphmill_core::Error::io(path, action, source).into()
    }

    /// A damaged or unexpected file.
    pub fn format(path: impl AsRef<Path>, place: impl Into<String>, message: impl Into<String>) -> Self {
        graphmill_core::Error::format(path, place, message).into()
    }

    /// Whether the user wrote something wrong, as opposed to something having failed.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Usage(_))
    }
}
