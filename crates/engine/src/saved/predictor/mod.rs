//! A saved run that stays open and answers for single nodes: the engine of a service.
//!
//! [`Predictor::open`] reads the dataset, the weights and the keys once. An exact answer is that of
//! `graphmill predict`, computed by the same code from all neighbours. A sampled one reads the
//! neighbours that the run's sampler draws under the seed of the question. Draws are functions of
//! the seed, the hop and the node, and rows of products do not depend on each other, so an answer
//! is a function of the run, the node and the seed alone: neither the nodes that are asked for
//! together nor the number of threads change a bit of it.
//!
//! # Cost
//!
//! O(k^L) rows of a sampled answer; of an exact one, all rows that L hops reach. Both visit a bit
//! of every node of the graph.
//!
//! # Memory
//!
//! The dataset and the model, and 12 bytes per node for the index of the keys. A call allocates the
//! rows that it computes. [`Predictor::cache_embeddings`] adds the `V x H` rows below the last
//! layer.

mod index;
#[cfg(feature = "tables")]
mod new_nodes;

#[cfg(feature = "tables")]
use std::sync::OnceLock;
use std::{path::Path, sync::Arc};

use graphmill_core::{
    NodeId, memory,
    progress::{Progress, Quiet},
};
use graphmill_data::{Dataset, typed::KEY_SEPARATOR};
use graphmill_loader::sampler::{HopSampler, inference::InferenceNeighbors};
use graphmill_nn::Matrix;

use self::index::KeyIndex;
#[cfg(feature = "tables")]
pub use self::new_nodes::{NewAnswers, NewNodes};
use super::{
    Kind, SavedRun,
    infer::{ClassOutputs, LoadedModel, values},
    keys::Names,
};
use crate::{Error, Result, build, inference::Output, predictions::Values, tiers::AllRows, typed};

/// Neighbours that an answer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Neighborhood {
    /// All neighbours, as in `graphmill predict`.
    All,
    /// Neighbours that the run's sampler draws under a seed.
    Drawn {
        /// Seed of the draws.
        seed: u64,
    },
}

/// Task that a run learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// One of the classes.
    Classes,
    /// Any number of labels.
    Labels,
    /// Values.
    Values,
}

impl Task {
    /// Name in messages and documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Classes => "classes",
            Self::Labels => "labels",
            Self::Values => "values",
        }
    }
}

/// Answers for `N` nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Answers {
    /// Number of scores per node (`C`).
    pub cols: usize,
    /// Probabilities of classes or labels, or values at the scale of the targets (`N x C`).
    pub scores: Vec<f32>,
    /// Most likely class of each node (`N`); empty unless the task is [`Task::Classes`].
    pub classes: Vec<i64>,
}

impl Answers {
    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.scores.len() / self.cols.max(1)
    }

    /// Returns true if there are no answers.
    pub fn is_empty(&self) -> bool {
        self.scores.is_empty()
    }

    /// Answers of the nodes from number `first` on, `count` of them.
    ///
    /// # Panics
    /// There are fewer nodes.
    pub fn part(&self, first: usize, count: usize) -> Self {
        let classes = if self.classes.is_empty() { &[] } else { &self.classes[first..first + count] };
        let scores = self.scores[first * self.cols..(first + count) * self.cols].to_vec();
        Self { cols: self.cols, scores, classes: classes.to_vec() }
    }
}

/// A sampler that draws for single nodes, or the reason why there is none.
type Draws = std::result::Result<Arc<dyn HopSampler>, String>;

/// A run that was opened once and answers for nodes, from any number of threads.
pub struct Predictor {
    run: SavedRun,
    data: Dataset,
    features: AllRows,
    loaded: LoadedModel,
    /// The sampler of drawn neighbours, or the reason why there is none.
    sampler: Draws,
    names: Names,
    index: KeyIndex,
    /// Input rows of the last layer for all nodes, if they are cached.
    below_last: Option<Matrix>,
    /// The dataset's tables with their encodings, or the reason why there are none, once read.
    #[cfg(feature = "tables")]
    tables: OnceLock<std::result::Result<new_nodes::Tables, String>>,
}

impl Predictor {
    /// Opens the run in `dir` with its dataset or the one at `dataset`: the best model or, with
    /// `last`, that of the last checkpoint.
    ///
    /// # Errors
    /// The run or the dataset cannot be read; the run learned links, events or several node types,
    /// which are not answered node by node.
    pub fn open(dir: &Path, dataset: Option<&Path>, last: bool) -> Result<Self> {
        let run = SavedRun::open(dir, last)?;
        refuse_others(&run)?;
        let data = run.dataset(dataset)?;
        Self::new(run, data)
    }

    /// Answers by `run` for the nodes of `data`.
    ///
    /// # Errors
    /// As [`Predictor::open`].
    pub fn new(run: SavedRun, data: Dataset) -> Result<Self> {
        refuse_others(&run)?;
        run.check_fit(&data, false)?;
        let names = Names::of(&data, run.trained_on(&data)?.as_deref())?;
        let rescaling = run.rescaling(&data)?;
        let features = run.rows(&data, rescaling.as_ref())?;
        let loaded = run.load(&data)?;
        let sampler = sampler(&run, &data);
        let index = KeyIndex::new(names.keys.as_ref());
        Ok(Self {
            run,
            data,
            features,
            loaded,
            sampler,
            names,
            index,
            below_last: None,
            #[cfg(feature = "tables")]
            tables: OnceLock::new(),
        })
    }

    /// Computes the rows of the layers below the last one for all nodes and keeps them, so that an
    /// exact answer reads the neighbours of one hop. Answers keep their bits. Returns the bytes of
    /// the rows: 0 if the model has one layer, which reads one hop anyway.
    ///
    /// # Errors
    /// The rows, twice, exceed the free memory; features cannot be read; or `watch` stops the work.
    pub fn cache_embeddings(&mut self, watch: &dyn Progress) -> Result<u64> {
        let Some(width) = self.loaded.width_below_last() else { return Ok(0) };
        let bytes = 4 * (width as u64) * self.num_nodes() as u64;
        if let Some(free) = memory::available().filter(|&free| 2 * bytes > free) {
            return Err(Error::usage(format!(
                "cached embeddings: {} nodes of {width} numbers take {bytes} bytes, and twice as much while \
                 they are computed, of {free} that are free; pass --cache-embeddings none",
                self.num_nodes()
            )));
        }
        let rows = self.loaded.below_last((&self.data.graph, &self.features), watch);
        self.below_last = self.run.blame_config(rows)?;
        Ok(bytes)
    }

    /// The dataset.
    pub fn dataset(&self) -> &Dataset {
        &self.data
    }

    /// The run.
    pub fn run(&self) -> &SavedRun {
        &self.run
    }

    /// Task that the run learned.
    pub fn task(&self) -> Task {
        match (self.loaded.predicts_values(), self.loaded.multi) {
            (true, _) => Task::Values,
            (false, true) => Task::Labels,
            (false, false) => Task::Classes,
        }
    }

    /// Number of scores per node.
    pub fn num_scores(&self) -> usize {
        self.loaded.num_outputs()
    }

    /// Names of the classes; empty if they have none.
    pub fn class_names(&self) -> &[String] {
        &self.names.classes
    }

    /// Number of nodes.
    pub fn num_nodes(&self) -> usize {
        self.data.num_nodes()
    }

    /// Returns true if nodes have keys.
    pub fn has_keys(&self) -> bool {
        self.names.keys.is_some()
    }

    /// Node of a key. The parts of a key of several columns are joined by `|`. O(log V).
    ///
    /// # Errors
    /// The key is unknown, or the dataset has no keys.
    pub fn find(&self, key: &str) -> Result<NodeId> {
        let Some(keys) = &self.names.keys else {
            let message = "it has no keys, which 'graphmill import tables' stores; ask by ids";
            return Err(Error::dataset(&self.data.name, message));
        };
        let joined = (self.names.key_columns.len() > 1).then(|| key.replace('|', &KEY_SEPARATOR.to_string()));
        self.index.find(keys, joined.as_deref().unwrap_or(key)).ok_or_else(|| {
            Error::dataset(&self.data.name, format!("the key '{key}' is not in it; check its spelling"))
        })
    }

    /// Key of a node, as [`Predictor::find`] reads it; `None` if the dataset has no keys.
    ///
    /// # Panics
    /// The node is outside the graph.
    pub fn key(&self, node: NodeId) -> Option<String> {
        let key = self.names.keys.as_ref()?.get(node as usize).to_string();
        Some(key.replace(KEY_SEPARATOR, "|"))
    }

    /// Answers for `nodes`, in their order; a node may occur several times.
    ///
    /// # Errors
    /// A node is outside the graph; the sampler cannot draw for single nodes; features cannot be
    /// read.
    pub fn predict(&self, nodes: &[NodeId], of: Neighborhood) -> Result<Answers> {
        Ok(self.answers(self.rows(nodes, of, Output::Logits)?))
    }

    /// Answers of rows of logits.
    fn answers(&self, rows: Matrix) -> Answers {
        if self.loaded.predicts_values() {
            let scores = rows.view().host().to_vec();
            return Answers { cols: rows.num_cols(), scores, classes: Vec::new() };
        }
        let classes = match self.task() {
            Task::Classes => match values(Kind::Classes, ClassOutputs::One, rows.clone()) {
                (_, Values::Classes(classes)) => classes,
                _ => Vec::new(),
            },
            Task::Labels | Task::Values => Vec::new(),
        };
        match self.loaded.values(Kind::Probabilities, rows) {
            (cols, Values::Probabilities(scores)) => Answers { cols, scores, classes },
            _ => unreachable!("probabilities were asked for"),
        }
    }

    /// Last hidden rows of `nodes` (`N x H`), as `graphmill predict --embeddings` writes them, and
    /// their width.
    ///
    /// # Errors
    /// As [`Predictor::predict`].
    pub fn embed(&self, nodes: &[NodeId], of: Neighborhood) -> Result<(usize, Vec<f32>)> {
        let rows = self.rows(nodes, of, Output::Embeddings)?;
        Ok((rows.num_cols(), rows.view().host().to_vec()))
    }

    /// Checks that answers of draws can be given.
    ///
    /// # Errors
    /// The run's sampler draws for several nodes at once.
    pub fn check(&self, of: Neighborhood) -> Result<()> {
        self.neighbors(of).map(drop)
    }

    fn rows(&self, nodes: &[NodeId], of: Neighborhood, output: Output) -> Result<Matrix> {
        let count = self.num_nodes();
        if let Some(node) = nodes.iter().find(|&&v| v as usize >= count) {
            let message = format!("node {node} is outside the graph's {count} nodes; ask for ids below it");
            return Err(Error::dataset(&self.data.name, message));
        }
        let neighbors = self.neighbors(of)?;
        if let (Some(below), Neighborhood::All, Output::Logits) = (&self.below_last, of, output) {
            let rows = self.loaded.last((&self.data.graph, &self.features), below, nodes);
            return self.run.blame_config(rows);
        }
        let rows = self.loaded.rows((&self.data.graph, &self.features), &neighbors, nodes, output, &Quiet);
        self.run.blame_config(rows)
    }

    fn neighbors(&self, of: Neighborhood) -> Result<Arc<InferenceNeighbors>> {
        match of {
            Neighborhood::All => Ok(self.loaded.exact.clone()),
            Neighborhood::Drawn { seed } => draws(&self.sampler, seed),
        }
    }
}

/// The sampler of the run on the graph of `data`, or the reason why it draws for no single node.
fn sampler(run: &SavedRun, data: &Dataset) -> Draws {
    match build::hop_sampler(&run.config, data) {
        Ok(sampler) => match InferenceNeighbors::draws(sampler.clone(), 0) {
            Ok(_) => Ok(sampler),
            Err(why) => Err(format!("--sampler {}: {why}", run.config.sampler)),
        },
        Err(error) => Err(error.to_string()),
    }
}

/// Neighbours that `sampler` draws under `seed`.
fn draws(sampler: &Draws, seed: u64) -> Result<Arc<InferenceNeighbors>> {
    let drawn = match sampler {
        Ok(sampler) => InferenceNeighbors::draws(sampler.clone(), seed),
        Err(why) => Err(why.clone()),
    };
    let refuse = |why| {
        Error::usage(format!(
            "seed {seed}: the run's sampler cannot draw for a single node ({why}); ask without a seed for \
             the exact answer"
        ))
    };
    Ok(Arc::new(drawn.map_err(refuse)?))
}

/// Refuses runs that are not answered node by node.
fn refuse_others(run: &SavedRun) -> Result<()> {
    let what = if run.ranks_links() {
        "learned links"
    } else if typed::SavedTypedRun::of(run).is_some() {
        "learned a graph of several types or with edge features"
    } else if !run.columns().is_empty() {
        "learned several columns of classes"
    } else {
        return Ok(());
    };
    Err(Error::usage(format!(
        "{}: the run {what}, which a predictor does not answer yet; use graphmill predict",
        run.dir.display()
    )))
}

/// A service asks from several threads.
const _: fn() = || {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Predictor>();
};
