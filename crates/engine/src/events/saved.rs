//! Scores of a saved run.

use std::{io, path::Path};

use graphmill_core::{Error as GraphError, progress::Progress};
use graphmill_data::typed::{self, TypedDataset, Verify};

use super::{
    choice::PARTS, evaluation::Evaluation, model::EventModel, position::assign, scored::metric,
    stream::EventStream,
};
use crate::{
    Error, Result, TrainConfig,
    checkpoint::load_params,
    record::{OTHER_DATASET_HINT, Origin},
    saved::{PartScores, SavedRun, Scores},
};

/// A run directory of a model of events.
#[derive(Clone, Copy)]
pub struct SavedEvents<'r> {
    pub(super) run: &'r SavedRun,
}

impl<'r> SavedEvents<'r> {
    /// The run, if it learned a stream of events.
    pub fn of(run: &'r SavedRun) -> Option<Self> {
        run.learns_events().then_some(Self { run })
    }

    pub(super) fn config(&self) -> &'r TrainConfig {
        &self.run.config
    }

    /// Opens the run's dataset. The split and the history of its events are part of the scores,
    /// so `other` must be a copy of it.
    ///
    /// # Errors
    /// The dataset cannot be read, has moved, or is another one.
    pub fn dataset(&self, other: Option<&Path>) -> Result<TypedDataset> {
        let (run, origin) = (&self.run.dir, self.run.origin.as_ref());
        let path = match other {
            Some(path) => path,
            None => Origin::locate_of(origin, run, self.config())?.unwrap_or(Path::new("")),
        };
        let data = typed::open(path, Verify::Once)?;
        let recorded = origin.and_then(|origin| origin.dataset.checksum.as_ref());
        if recorded.is_some_and(|recorded| data.checksum.as_ref() != Some(recorded)) {
            let message = format!(
                "the dataset in {} is not that of the run, whose events its scores continue; pass a copy of \
                 the run's dataset {OTHER_DATASET_HINT}",
                path.display()
            );
            return Err(Error::run(run, message));
        }
        Ok(data)
    }

    /// Reads the stream of the run's task in `data`, and the model. Rows that exceed the run's
    /// `--host-budget` are in temporary files, as in training.
    ///
    /// # Errors
    /// The model cannot be read or does not fit the dataset, or the files cannot be written.
    pub(super) fn load(&self, data: &TypedDataset) -> Result<(EventStream, EventModel)> {
        let dir = std::env::temp_dir();
        self.load_in(data, Some(&dir)).map_err(|error| of_temporary_files(error, &dir))
    }

    /// [`SavedEvents::load`] with files in this directory or, without one, all rows in memory.
    ///
    /// # Errors
    /// As for [`SavedEvents::load`].
    pub(super) fn load_in(
        &self,
        data: &TypedDataset,
        dir: Option<&Path>,
    ) -> Result<(EventStream, EventModel)> {
        let stream = EventStream::new(self.config(), data, dir)?;
        let mut model = self.run.blame_config(EventModel::new(self.config(), &stream))?;
        let file = self.run.model_file()?;
        assign(&file, &load_params(&file)?, &mut model)?;
        Ok((stream, model))
    }

    /// Computes every metric on validation and test events.
    ///
    /// # Errors
    /// The model cannot be read or does not fit the dataset, or `watch` stops the work.
    pub fn scores(&self, data: &TypedDataset, watch: &dyn Progress) -> Result<Scores> {
        let (stream, model) = self.load(data)?;
        let chosen = self.run.blame_config(metric(self.config(), &stream))?;
        let mut evaluation = self.run.blame_config(Evaluation::new(self.config(), &stream, &model))?;
        rayon::scope(|_| evaluation.begin(&model))?;
        let (mut parts, mut test) = (Vec::new(), None);
        for (number, part) in PARTS.into_iter().enumerate().skip(1) {
            watch.check()?;
            if stream.parts[number].is_empty() {
                continue;
            }
            let scored = rayon::scope(|_| evaluation.score(&model, number))?;
            if number == 2 {
                test = scored.score(&stream, &chosen);
            }
            let scores = scored.all(&stream, &chosen);
            let (by_class, diagnostics) = (scored.by_class(&stream), scored.diagnostics(&stream, part));
            parts.push(PartScores { part, nodes: scored.len(), scores, by_class, diagnostics });
        }
        Ok(Scores {
            run: self.run.dir.clone(),
            dataset: data.name.clone(),
            same_dataset: Some(true),
            rescaled: None,
            propagation: None,
            metric: chosen.name(),
            test,
            parts,
        })
    }
}

/// Adds the remedy to an error of the system about a file in the directory `dir` of temporary
/// files, which may be in memory.
fn of_temporary_files(error: Error, dir: &Path) -> Error {
    match error {
        Error::Graph(GraphError::Io { path, action, source })
            if path == dir || path.parent() == Some(dir) =>
        {
            let message = format!("{source}; set TMPDIR to a directory on a disk with enough space");
            Error::io(path, action, io::Error::new(source.kind(), message))
        }
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_temporary_files_name_the_variable_of_their_directory() {
        let error = |path: &str| {
            let full = io::Error::from(io::ErrorKind::StorageFull);
            of_temporary_files(Error::io(path, "reserve", full), Path::new("tmp")).to_string()
        };
        let remedy = "; set TMPDIR to a directory on a disk with enough space";
        assert!(error("tmp").ends_with(remedy) && error("tmp/.rows-1-0.tmp").ends_with(remedy));
        assert!(!error("run/model.safetensors").ends_with(remedy));
    }
}
