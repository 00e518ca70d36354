//! Scores, best candidates and embeddings of a saved run on links of several types.

use std::path::Path;

use graphmill_core::{End, progress::Progress};
use graphmill_data::typed::TypedDataset;
use graphmill_nn::Matrix;

use super::{
    super::{
        build, edges::tables as tables_of, inference::TypedInference, saved::SavedTypedRun, task::TypedTask,
        tiers,
    },
    learner::LinkModel,
    position::assign,
    task::TypedLinks,
    timed::TimedRanking,
};
use crate::{
    Result, TrainConfig,
    build::processor,
    checkpoint::load_params,
    link::{LinkMetric, structure},
    predictions::Target,
    relational::{Embedded, metric, scores_by},
    saved::{
        SavedRun, Scores, Selection, Written,
        links::{BestLinks, Reading},
    },
};

/// A run directory that holds a model of links of several types.
#[derive(Clone, Copy)]
pub struct SavedTypedLinks<'r> {
    pub(super) run: &'r SavedRun,
}

impl<'r> SavedTypedLinks<'r> {
    /// The run, if it learned links of several types, or with edge features, by a model that reads
    /// messages.
    pub fn of(run: &'r SavedRun) -> Option<Self> {
        SavedTypedRun::of_links(run).map(|_| Self { run })
    }

    pub(super) fn config(&self) -> &'r TrainConfig {
        &self.run.config
    }

    /// Opens the run's dataset, or the `other` one.
    ///
    /// # Errors
    /// The dataset cannot be read; the run's own dataset was in memory, has moved or has changed.
    pub fn dataset(&self, other: Option<&Path>) -> Result<TypedDataset> {
        SavedTypedRun { run: self.run }.dataset(other)
    }

    /// Reads the links of the run's task, with the graph of `reading`, and the model.
    ///
    /// # Errors
    /// The model cannot be read or does not fit the dataset.
    pub(super) fn open(&self, data: &TypedDataset, reading: Reading) -> Result<(TypedLinks, LinkModel)> {
        let own = self.run.origin.as_ref().and_then(|origin| origin.typed.as_ref());
        if let Some(own) = own {
            SavedTypedRun { run: self.run }.check_fit(data, own)?;
        }
        let mut of = self.run.blame_config(TypedLinks::new(self.config(), data))?;
        of.inputs.learned_in = build::learned_rows_in(self.config(), &of.inputs, &std::env::temp_dir());
        let whole = (reading == Reading::All).then(|| data.graph()).transpose()?;
        if let Some(graph) = &whole {
            of.structure = structure::of_graph(self.config(), graph.relation(0))?;
        }
        let mut model = self.run.blame_config(LinkModel::new(self.config(), &of))?;
        let file = self.run.model_file()?;
        assign(&file, &load_params(&file)?, &mut model)?;
        if let Some(graph) = whole {
            let types: Vec<usize> = of.types().collect();
            let edges = tables_of(self.config(), data)?;
            of.inputs = TypedTask { graph, edges, ..of.inputs }.with_added(self.config(), &types)?;
        }
        Ok((of, model))
    }

    /// Reads the links of the run's task, and computes the embeddings of their ends from the
    /// messages of `reading`.
    ///
    /// # Errors
    /// The model cannot be read or does not fit the dataset, or `watch` stops the work.
    pub(crate) fn load(
        &self,
        data: &TypedDataset,
        reading: Reading,
        watch: &dyn Progress,
    ) -> Result<Embedded> {
        let (of, model) = self.open(data, reading)?;
        self.embedded(data, of, model, watch)
    }

    /// Computes the embeddings of the ends of links; if rows have times, as of the end of the data.
    ///
    /// # Errors
    /// Features cannot be read, or `watch` stops the work.
    pub(super) fn embedded(
        &self,
        data: &TypedDataset,
        of: TypedLinks,
        model: LinkModel,
        watch: &dyn Progress,
    ) -> Result<Embedded> {
        let types: Vec<usize> = of.types().collect();
        let TypedLinks { edges, inputs, .. } = of;
        let sampler = self.run.blame_config(build::sampler(self.config(), &inputs))?;
        let tables = tiers::whole(self.config(), data, &inputs)?;
        let mut inference = TypedInference::new(self.config(), &inputs, &*sampler, tables)?.watched(watch);
        let mut rows = Matrix::default();
        inference.embed(&model.encoder, types, &mut rows)?;
        Ok(Embedded { processor: processor(self.config()), edges, decoder: model.decoder, rows })
    }

    /// Computes all metrics of rankings on the parts that validate and test.
    ///
    /// # Errors
    /// The model cannot be read or does not fit the dataset, or `watch` stops the work.
    pub fn scores(&self, data: &TypedDataset, watch: &dyn Progress) -> Result<Scores> {
        let (of, model) = self.open(data, Reading::Training)?;
        if of.edges.times.is_none() {
            return self.embedded(data, of, model, watch)?.scores(self.run, data, watch);
        }
        let chosen = self.run.blame_config(metric(self.config(), &of.edges))?;
        let sampler = self.run.blame_config(build::sampler(self.config(), &of.inputs))?;
        let tables = tiers::whole(self.config(), data, &of.inputs)?;
        let ranking =
            TimedRanking { config: self.config(), of: &of, sampler: &*sampler, tables: &tables, watch };
        let rank = &mut |part: usize, metrics: &[LinkMetric]| ranking.scores(&model, part, metrics);
        scores_by(self.run, data, &of.edges, chosen, rank)
    }

    /// Writes the `k` best candidates of each selected node with their scores, the best first, as
    /// the `end` of an edge of the task `relation` (or of the only one, if it is empty). Known
    /// edges are left out, so a node may have fewer.
    ///
    /// # Errors
    /// The relation is unknown, a node or key is unknown, the model cannot be read, `out` cannot be
    /// written or has a format of one type, or `watch` stops the work.
    pub fn predict(
        &self,
        data: &TypedDataset,
        of: (&str, End),
        (selection, k, reading): (Selection, usize, Reading),
        out: &Path,
        watch: &dyn Progress,
    ) -> Result<Written> {
        let target = Target::new(out)?;
        target.check_columns()?;
        self.load(data, reading, watch)?.predict(data, of, (selection, k), (&target, out))
    }

    /// The pairs that [`SavedTypedLinks::predict`] writes.
    ///
    /// # Errors
    /// As for [`SavedTypedLinks::predict`].
    pub fn best(
        &self,
        data: &TypedDataset,
        of: (&str, End),
        (selection, k, reading): (Selection, usize, Reading),
        watch: &dyn Progress,
    ) -> Result<BestLinks> {
        Ok(self.load(data, reading, watch)?.best(data, of, selection, k)?.0)
    }

    /// Writes the embeddings of nodes of the type `node_type` (or of the first, if it is empty) to
    /// `out` in the format of its ending, with their keys.
    ///
    /// # Errors
    /// The type has no embeddings, a node or key is unknown, the model cannot be read, `out` cannot
    /// be written, or `watch` stops the work.
    pub fn embed(
        &self,
        data: &TypedDataset,
        (node_type, selection): (&str, Selection),
        reading: Reading,
        out: &Path,
        watch: &dyn Progress,
    ) -> Result<Written> {
        let target = Target::new(out)?;
        self.load(data, reading, watch)?.embed(data, node_type, selection, (&target, out))
    }
}
