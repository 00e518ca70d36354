//! A run on several types that stays open and answers for single nodes of its task's type, as part
//! of a [`Predictor`](crate::predictor::Predictor).
//!
//! Exact answers are computed layer by layer, as those of `predict`. A drawn one samples the
//! neighbourhoods of its nodes as a batch by the run's sampler, under the seed of the question.

use std::sync::Arc;
#[cfg(feature = "tables")]
use std::sync::OnceLock;

#[cfg(feature = "tables")]
use graphmill_core::progress::Quiet;
use graphmill_core::{NodeId, progress::Progress};
#[cfg(feature = "tables")]
use graphmill_data::tables::Preprocessing;
use graphmill_data::typed::TypedDataset;
use graphmill_loader::typed::TypedSampler;
use graphmill_nn::{Matrix, typed::TypedModel};

#[cfg(feature = "tables")]
use super::new_nodes::JoinedTask;
use super::{
    build,
    inference::{Level, TypedInference},
    neighborhoods::Neighborhoods,
    saved::{Loaded, SavedTypedRun, rows_of},
    tables::Tables,
    task::TypedTask,
    tiers,
};
#[cfg(feature = "tables")]
use crate::saved::{
    on::{Known, encodings},
    predictor::{KeyIndexes, NewLogits, NewNodes},
};
use crate::{
    Error, Result, TrainConfig,
    inference::Output,
    saved::{
        SavedRun,
        keys::Names,
        predictor::{Neighborhood, OpenRun, Task, refuse_draws},
    },
};

/// A sampler that draws for single nodes, or the reason why there is none.
type Draws = std::result::Result<Arc<dyn TypedSampler>, String>;

/// A run with a dataset of several types.
pub(crate) struct OpenTypedRun {
    run: SavedRun,
    data: TypedDataset,
    task: TypedTask,
    model: TypedModel,
    /// Feature rows of each type.
    tables: Tables,
    exact: Arc<Neighborhoods>,
    /// The sampler of drawn neighbours, or the reason why there is none.
    sampler: Draws,
    /// Input rows of the last layer for all nodes, if they are cached.
    below_last: Option<Level>,
    /// Encodings of the columns of the dataset's tables, with its nodes by their keys, or the
    /// reason why there are none, once read.
    #[cfg(feature = "tables")]
    encodings: OnceLock<std::result::Result<(Preprocessing, KeyIndexes), String>>,
}

impl OpenTypedRun {
    /// Opens `run`, which learned a graph of several types, on `data`.
    ///
    /// # Errors
    /// The model or features cannot be read, or do not fit.
    pub(crate) fn new(run: SavedRun, data: TypedDataset) -> Result<Self> {
        let Loaded { task, model } = SavedTypedRun { run: &run }.load(&data)?;
        let tables = tiers::whole(run.config(), &data, &task)?;
        let (exact, sampler) = neighborhoods(&run, &task)?;
        Ok(Self {
            run,
            data,
            task,
            model,
            tables,
            exact,
            sampler,
            below_last: None,
            #[cfg(feature = "tables")]
            encodings: OnceLock::new(),
        })
    }

    /// Keys of the nodes that the run predicts, and names of its classes.
    pub(crate) fn names(&self) -> Names {
        let classes = SavedTypedRun { run: &self.run }.classes(&self.task);
        Names::of_type(&self.data, self.task.node_type, classes)
    }

    /// Type of the nodes that the run predicts, if the dataset has several.
    pub(crate) fn node_type(&self) -> Option<String> {
        (self.data.nodes.len() > 1).then(|| self.data.nodes[self.task.node_type].name.clone())
    }
}

impl OpenRun for OpenTypedRun {
    fn run(&self) -> &SavedRun {
        &self.run
    }

    fn dataset(&self) -> &str {
        &self.data.name
    }

    fn num_nodes(&self) -> usize {
        self.task.num_nodes()
    }

    fn feature_dim(&self) -> usize {
        self.task.feature_dims()[self.task.node_type]
    }

    fn task(&self) -> (Task, usize) {
        let labels = &self.task.labels;
        let task = match (labels.is_values(), labels.is_multi()) {
            (true, _) => Task::Values,
            (false, true) => Task::Labels,
            (false, false) if !labels.columns().is_empty() => Task::Columns,
            (false, false) => Task::Classes,
        };
        (task, labels.classes())
    }

    fn check(&self, of: Neighborhood) -> Result<()> {
        chosen((&self.exact, &self.sampler), of).map(drop)
    }

    fn rows(&self, nodes: &[NodeId], of: Neighborhood, output: Output) -> Result<Matrix> {
        let samplers = chosen((&self.exact, &self.sampler), of)?;
        if nodes.is_empty() {
            let width = if output == Output::Logits { self.task().1 } else { self.run.config().hidden };
            return Ok(Matrix::zeros(0, width));
        }
        let config = self.run.config();
        let mut inference = TypedInference::by(config, &self.task, samplers, self.tables.clone());
        let mut rows = Matrix::default();
        rows_of(nodes, &mut rows, |nodes, rows| match (&self.below_last, of, output) {
            (Some(below), Neighborhood::All, Output::Logits) => {
                inference.last(&self.model, below, nodes, rows)
            }
            _ => inference.run(&self.model, nodes, output, rows),
        })?;
        if output == Output::Logits {
            self.run.undo_scale(&mut rows);
        }
        Ok(rows)
    }

    fn below_last(&self) -> Result<Option<[usize; 2]>> {
        if self.model.num_layers() == 1 {
            return Ok(None);
        }
        if !self.exact.has_layers() {
            return Err(Error::usage(
                "cached embeddings: the rows of the run's task have times, or its sampler draws along \
                 metapaths, so the rows below the last layer differ by the node that is asked for; pass \
                 --cache-embeddings none",
            ));
        }
        let schema = self.task.graph.schema();
        let read = self.exact.last_reads(schema, self.task.node_type);
        let counts = schema.types().iter().zip(read).filter(|(_, read)| *read).map(|(node, _)| node.count);
        Ok(Some([counts.sum(), self.run.config().hidden]))
    }

    fn cache_below_last(&mut self, watch: &dyn Progress) -> Result<()> {
        let (config, samplers, tables) = (self.run.config(), self.exact.clone(), self.tables.clone());
        let mut inference = TypedInference::by(config, &self.task, samplers, tables).watched(watch);
        self.below_last = Some(inference.below_last(&self.model)?);
        Ok(())
    }

    #[cfg(feature = "tables")]
    fn logits_of_new(&self, new: &NewNodes, of: Neighborhood) -> Result<NewLogits> {
        let hops = self.reads_part(of).then(|| self.model.num_layers());
        let joined = self.join(new, hops)?;
        let (exact, sampler) = neighborhoods(&self.run, &joined.task)?;
        let samplers = chosen((&exact, &sampler), of)?;
        let mut rows = Matrix::default();
        let (config, tables) = (self.run.config(), joined.tables.clone());
        let inference = TypedInference::by(config, &joined.task, samplers, tables);
        let mut inference = inference.numbered(joined.ids.as_deref());
        inference.run(&self.model, &joined.wanted(), Output::Logits, &mut rows)?;
        self.run.undo_scale(&mut rows);
        let read = joined.read();
        let JoinedTask { imported, task, .. } = joined;
        let t = task.node_type;
        let keys = imported.map(|new| NewLogits::joined_keys(&new.keys(t), new.count(t)));
        Ok(NewLogits { rows, keys: keys.unwrap_or_default(), read })
    }

    #[cfg(feature = "tables")]
    fn reads_part(&self, of: Neighborhood) -> bool {
        of == Neighborhood::All && self.exact.has_layers()
    }
}

#[cfg(feature = "tables")]
impl OpenTypedRun {
    /// Joins new nodes to the task, or to a part of its graph.
    fn join(&self, new: &NewNodes, hops: Option<usize>) -> Result<JoinedTask> {
        let (typed, of) = (SavedTypedRun { run: &self.run }, (&self.task, &self.tables, hops));
        match new {
            NewNodes::Tables(new) => {
                let read = || encodings(&self.data.name, self.data.directory.as_deref());
                let encodings = self.encodings.get_or_init(|| {
                    let read = read().map(|(_, preprocessing)| (preprocessing, KeyIndexes::new(&self.data)));
                    read.map_err(|error| error.to_string())
                });
                let (known, keys) = encodings.as_ref().map_err(|why| Error::usage(why.clone()))?;
                let known = Known::new(&self.data, known).found_by(keys);
                let known = known.with_edge_features(!self.task.edges.is_empty());
                typed.join_tables((&self.data, &known), of, new, &(Arc::new(Quiet) as Arc<dyn Progress>))
            }
            NewNodes::TypedFeatures(new) => typed.join_features(&self.data, of, new),
            NewNodes::Features(_) => Err(Error::usage(
                "new nodes: the dataset has several types, and the feature rows name none; pass rows and \
                 edges by type",
            )),
        }
    }
}

/// Samplers of exact answers on the graph of `task`, and the sampler of drawn ones.
fn neighborhoods(run: &SavedRun, task: &TypedTask) -> Result<(Arc<Neighborhoods>, Draws)> {
    let config = run.config();
    let sampler = run.blame_config(build::inference_sampler(config, task))?;
    let exact = Arc::new(Neighborhoods::exact(config, task, &*sampler)?);
    Ok((exact, draws(config, sampler)))
}

/// The sampler of inference, if it is that of the configuration and draws for single nodes.
fn draws(config: &TrainConfig, sampler: Box<dyn TypedSampler>) -> Draws {
    match build::draws_subgraphs(config) || !sampler.is_per_node() {
        true => Err(format!("--sampler {}: its draws depend on the other nodes of a batch", config.sampler)),
        false => Ok(Arc::from(sampler)),
    }
}

/// The neighbours that a question names.
fn chosen((exact, sampler): (&Arc<Neighborhoods>, &Draws), of: Neighborhood) -> Result<Arc<Neighborhoods>> {
    match (of, sampler) {
        (Neighborhood::All, _) => Ok(exact.clone()),
        (Neighborhood::Drawn { seed }, Ok(sampler)) => {
            Ok(Arc::new(Neighborhoods::drawn(sampler.clone(), seed)))
        }
        (Neighborhood::Drawn { seed }, Err(why)) => Err(refuse_draws(seed, why)),
    }
}
