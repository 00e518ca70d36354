//! Scores, best candidates and embeddings of a saved run.

use std::path::Path;

use graphmill_core::{End, progress::Progress};
use graphmill_data::typed::{TypedDataset, Verify, open_any};
use graphmill_nn::backend::Cpu;

use super::{model::TableModel, position::load};
use crate::{
    Error, Result, TrainConfig,
    build::processor,
    checkpoint::load_params,
    config::embedding::is_table,
    predictions::Target,
    record::{OTHER_DATASET_HINT, Origin},
    relational::{Embedded, LinkEdges},
    saved::{SavedRun, Scores, Selection, Written, links::BestLinks},
};

/// A run directory that holds a table of embeddings.
#[derive(Clone, Copy)]
pub struct SavedEmbedding<'r> {
    run: &'r SavedRun,
}

impl<'r> SavedEmbedding<'r> {
    /// The run, if it trained a table of embeddings.
    pub fn of(run: &'r SavedRun) -> Option<Self> {
        is_table(&run.config).then_some(Self { run })
    }

    fn config(&self) -> &'r TrainConfig {
        &self.run.config
    }

    /// Opens the run's dataset. The rows of a table are those of its nodes, so no other dataset
    /// fits: `other` must be a copy of it.
    ///
    /// # Errors
    /// The dataset cannot be read, has moved, or is another one.
    pub fn dataset(&self, other: Option<&Path>) -> Result<TypedDataset> {
        let (run, origin) = (&self.run.dir, self.run.origin.as_ref());
        let path = match other {
            Some(path) => path,
            None => Origin::locate_of(origin, run, self.config())?.unwrap_or(Path::new("")),
        };
        let data = open_any(path, Verify::Once)?;
        let recorded = origin.and_then(|origin| origin.dataset.checksum.as_ref());
        if recorded.is_some_and(|recorded| data.checksum.as_ref() != Some(recorded)) {
            let message = format!(
                "the dataset in {} is not that of the run, whose model has a row for each of its nodes; pass \
                 a copy of the run's dataset {OTHER_DATASET_HINT}",
                path.display()
            );
            return Err(Error::run(run, message));
        }
        Ok(data)
    }

    /// Reads the edges of the run's tasks, and the model with its embeddings.
    ///
    /// # Errors
    /// The model cannot be read or does not fit the dataset.
    pub(crate) fn load(&self, data: &TypedDataset) -> Result<Embedded> {
        let edges = LinkEdges::new(data, self.config())?;
        let file = self.run.model_file()?;
        let shape = [edges.num_rows(), self.config().hidden];
        let mut model = load(&file, load_params(&file)?, shape, |rows| {
            self.run.blame_config(TableModel::with_rows(self.config(), &edges, rows))
        })?;
        rayon::scope(|_| {
            model.embeddings(&Cpu::default());
        });
        let (decoder, rows) = model.into_embeddings();
        Ok(Embedded { processor: processor(self.config()), edges, decoder, rows })
    }

    /// Computes all metrics of rankings on the parts that validate and test.
    ///
    /// # Errors
    /// The model cannot be read or does not fit the dataset, or `watch` stops the work.
    pub fn scores(&self, data: &TypedDataset, watch: &dyn Progress) -> Result<Scores> {
        self.load(data)?.scores(self.run, data, watch)
    }

    /// Writes the `k` best candidates of each selected node with their scores, the best first, as
    /// the `end` of an edge of the task `relation` (or of the only one, if it is empty). Known
    /// edges are left out, so a node may have fewer.
    ///
    /// # Errors
    /// The relation is unknown, a node or key is unknown, the model cannot be read, or `out` cannot
    /// be written or has a format of one type.
    pub fn predict(
        &self,
        data: &TypedDataset,
        of: (&str, End),
        selection: Selection,
        k: usize,
        out: &Path,
    ) -> Result<Written> {
        let target = Target::new(out)?;
        target.check_columns()?;
        self.load(data)?.predict(data, of, (selection, k), (&target, out))
    }

    /// The pairs that [`SavedEmbedding::predict`] writes.
    ///
    /// # Errors
    /// As for [`SavedEmbedding::predict`].
    pub fn best(
        &self,
        data: &TypedDataset,
        of: (&str, End),
        selection: Selection,
        k: usize,
    ) -> Result<BestLinks> {
        Ok(self.load(data)?.best(data, of, selection, k)?.0)
    }

    /// Writes the embeddings of nodes of the type `node_type` (or of the first, if it is empty) to
    /// `out` in the format of its ending, with their keys.
    ///
    /// # Errors
    /// The type has no rows, a node or key is unknown, the model cannot be read, or `out` cannot be
    /// written.
    pub fn embed(
        &self,
        data: &TypedDataset,
        node_type: &str,
        selection: Selection,
        out: &Path,
    ) -> Result<Written> {
        let target = Target::new(out)?;
        self.load(data)?.embed(data, node_type, selection, (&target, out))
    }
}
