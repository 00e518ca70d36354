//! A saved run that stays open and answers for single nodes: the engine of a service.
//!
//! [`Predictor::open`] reads the dataset, the weights and the keys once. An exact answer is that of
//! `graphmill predict`, computed by the same code from all neighbours. A sampled one reads the
//! neighbours that the run's sampler draws under the seed of the question. Draws are functions of
//! the seed, the hop and the node, and rows of products do not depend on each other, so an answer
//! is a function of the run, the node and the seed alone: neither the nodes that are asked for
//! together nor the number of threads change a bit of it.
//!
//! A run on several node types answers for the nodes of its task's type. [`LinkPredictor`] opens a
//! run on links.
//!
//! # Cost
//!
//! O(k^L) rows of a sampled answer; of an exact one, all rows that L hops reach.
//!
//! # Memory
//!
//! The dataset and the model, and 12 bytes per node for the index of the keys. A call allocates the
//! rows that it computes. [`Predictor::cache_embeddings`] adds the `V x H` rows below the last
//! layer.

mod answers;
mod index;
mod links;
#[cfg(feature = "tables")]
mod new_nodes;
#[cfg(feature = "tables")]
mod new_rows;
mod one_type;
mod opened;
mod opened_links;

use std::path::Path;

use graphmill_core::{ClassColumn, NodeId, memory, progress::Progress};
use graphmill_data::{Dataset, typed::TypedDataset};
use graphmill_nn::Matrix;

#[cfg(feature = "tables")]
pub use self::new_rows::{NewAnswers, NewNodes};
pub use self::{
    answers::{Answers, Neighborhood, Task},
    links::{LinkPredictor, ScoredRelation, TopOptions},
};
#[cfg(feature = "tables")]
pub(crate) use self::{index::KeyIndexes, new_rows::NewLogits};
use self::{index::KeyedNodes, one_type::OneType};
pub(crate) use self::{
    opened::{OpenRun, refuse_draws},
    opened_links::OpenLinks,
};
use super::{
    Kind, SavedRun, check_outputs,
    infer::{ClassOutputs, values},
    keys::Names,
};
pub use crate::events::NewEvents;
use crate::{
    Error, Result,
    inference::Output,
    predictions::Values,
    typed::{OpenTypedRun, SavedTypedRun},
};

/// A run that was opened once and answers for nodes, from any number of threads.
pub struct Predictor {
    opened: Box<dyn OpenRun>,
    nodes: KeyedNodes,
}

impl Predictor {
    /// Opens the run in `dir` with its dataset or the one at `dataset`: the best model or, with
    /// `last`, that of the last checkpoint.
    ///
    /// # Errors
    /// The run or the dataset cannot be read; the run learned links or events, which
    /// [`LinkPredictor`] answers.
    pub fn open(dir: &Path, dataset: Option<&Path>, last: bool) -> Result<Self> {
        let run = SavedRun::open(dir, last)?;
        refuse_others(&run)?;
        match SavedTypedRun::of(&run) {
            Some(typed) => {
                let data = typed.dataset(dataset)?;
                Self::of_types(run, data)
            }
            None => {
                let data = run.dataset(dataset)?;
                Self::new(run, data)
            }
        }
    }

    /// Answers by `run` for the nodes of `data`.
    ///
    /// # Errors
    /// As [`Predictor::open`]; the run learned a graph of several types.
    pub fn new(run: SavedRun, data: Dataset) -> Result<Self> {
        refuse_others(&run)?;
        if SavedTypedRun::of(&run).is_some() {
            let message = "it is read as a graph of one type, and the model of the run is one of types; pass \
                           the directory of the dataset";
            return Err(Error::dataset(&data.name, message));
        }
        let names = Names::of(&data, run.trained_on(&data)?.as_deref())?;
        Ok(Self::of(Box::new(OneType::new(run, data)?), names, None))
    }

    /// Answers by `run` for the nodes of `data` of the type that the run's task is on.
    ///
    /// # Errors
    /// As [`Predictor::open`]; the run learned a graph of one type.
    pub fn of_types(run: SavedRun, data: TypedDataset) -> Result<Self> {
        refuse_others(&run)?;
        if SavedTypedRun::of(&run).is_none() {
            let message =
                "it has several types, and the run learned a graph of one; pass a dataset of one type";
            return Err(Error::dataset(&data.name, message));
        }
        let opened = OpenTypedRun::new(run, data)?;
        let (names, node_type) = (opened.names(), opened.node_type());
        Ok(Self::of(Box::new(opened), names, node_type))
    }

    fn of(opened: Box<dyn OpenRun>, names: Names, node_type: Option<String>) -> Self {
        let nodes = KeyedNodes::new(names, node_type, opened.num_nodes());
        Self { opened, nodes }
    }

    /// Computes the rows of the layers below the last one for all nodes and keeps them, so that an
    /// exact answer reads the neighbours of one hop. Answers keep their bits. Returns the number of
    /// the rows and their bytes: 0 if the model has one layer, which reads one hop anyway.
    ///
    /// # Errors
    /// The rows, twice, exceed the free memory; they differ by the node that is asked for; features
    /// cannot be read; or `watch` stops the work.
    pub fn cache_embeddings(&mut self, watch: &dyn Progress) -> Result<(usize, u64)> {
        let Some([rows, width]) = self.opened.below_last()? else { return Ok((0, 0)) };
        let bytes = 4 * (width as u64) * rows as u64;
        if let Some(free) = memory::available().filter(|&free| 2 * bytes > free) {
            return Err(Error::usage(format!(
                "cached embeddings: {rows} nodes of {width} numbers take {bytes} bytes, and twice as much \
                 while they are computed, of {free} that are free; pass --cache-embeddings none"
            )));
        }
        self.opened.cache_below_last(watch)?;
        Ok((rows, bytes))
    }

    /// The run.
    pub fn run(&self) -> &SavedRun {
        self.opened.run()
    }

    /// Name of the dataset.
    pub fn dataset(&self) -> &str {
        self.opened.dataset()
    }

    /// Type of the nodes that the run predicts; `None` if the dataset has one type.
    pub fn node_type(&self) -> Option<&str> {
        self.nodes.node_type.as_deref()
    }

    /// Task that the run learned.
    pub fn task(&self) -> Task {
        self.opened.task().0
    }

    /// Number of scores per node.
    pub fn num_scores(&self) -> usize {
        self.opened.task().1
    }

    /// Columns of classes that the run learned; empty unless the task is [`Task::Columns`].
    pub fn class_columns(&self) -> &[ClassColumn] {
        self.run().columns()
    }

    /// Names of the classes, of all columns together; empty if they have none.
    pub fn class_names(&self) -> &[String] {
        &self.nodes.names.classes
    }

    /// Number of nodes that the run predicts.
    pub fn num_nodes(&self) -> usize {
        self.opened.num_nodes()
    }

    /// Number of features of these nodes.
    pub fn feature_dim(&self) -> usize {
        self.opened.feature_dim()
    }

    /// Returns true if nodes have keys.
    pub fn has_keys(&self) -> bool {
        self.nodes.names.keys.is_some()
    }

    /// Node of a key. The parts of a key of several columns are joined by `|`. O(log V).
    ///
    /// # Errors
    /// The key is unknown, or the dataset has no keys.
    pub fn find(&self, key: &str) -> Result<NodeId> {
        self.nodes.find(self.dataset(), key)
    }

    /// Key of a node, as [`Predictor::find`] reads it; `None` if the dataset has no keys.
    ///
    /// # Panics
    /// The node is outside the graph.
    pub fn key(&self, node: NodeId) -> Option<String> {
        self.nodes.key(node)
    }

    /// Checks that all nodes are in the graph.
    ///
    /// # Errors
    /// The message names the first that is not.
    pub fn check_nodes(&self, nodes: &[NodeId]) -> Result<()> {
        self.nodes.check(self.dataset(), nodes.iter().copied())
    }

    /// Answers for `nodes`, in their order; a node may occur several times.
    ///
    /// # Errors
    /// A node is outside the graph; the sampler cannot draw for single nodes; features cannot be
    /// read; or outputs are not finite.
    pub fn predict(&self, nodes: &[NodeId], of: Neighborhood) -> Result<Answers> {
        in_pool(|| self.answers(self.rows(nodes, of, Output::Logits)?, |row| self.nodes.name(nodes[row])))
    }

    /// Answers of rows of logits, or of values at the scale of the targets. `name` names a row.
    ///
    /// # Errors
    /// A row is not finite.
    fn answers(&self, rows: Matrix, name: impl FnOnce(usize) -> String) -> Result<Answers> {
        check_outputs(rows.view().host(), rows.num_cols(), name)?;
        let task = self.task();
        if task == Task::Values {
            let scores = rows.view().host().to_vec();
            return Ok(Answers { cols: rows.num_cols(), scores, classes: Vec::new() });
        }
        let of = ClassOutputs::new(task == Task::Labels, self.class_columns());
        let classes = match task {
            Task::Classes | Task::Columns => match values(Kind::Classes, of, rows.clone())? {
                (_, Values::Classes(classes)) => classes,
                _ => Vec::new(),
            },
            Task::Labels | Task::Values => Vec::new(),
        };
        match values(Kind::Probabilities, of, rows)? {
            (cols, Values::Probabilities(scores)) => Ok(Answers { cols, scores, classes }),
            _ => unreachable!("probabilities were asked for"),
        }
    }

    /// Last hidden rows of `nodes` (`N x H`), as `graphmill predict --embeddings` writes them, and
    /// their width.
    ///
    /// # Errors
    /// As [`Predictor::predict`].
    pub fn embed(&self, nodes: &[NodeId], of: Neighborhood) -> Result<(usize, Vec<f32>)> {
        let rows = in_pool(|| self.rows(nodes, of, Output::Embeddings))?;
        check_outputs(rows.view().host(), rows.num_cols(), |row| self.nodes.name(nodes[row]))?;
        Ok((rows.num_cols(), rows.view().host().to_vec()))
    }

    /// Checks that answers of draws can be given.
    ///
    /// # Errors
    /// The run's sampler draws for several nodes at once.
    pub fn check(&self, of: Neighborhood) -> Result<()> {
        self.opened.check(of)
    }

    fn rows(&self, nodes: &[NodeId], of: Neighborhood, output: Output) -> Result<Matrix> {
        self.check_nodes(nodes)?;
        self.opened.rows(nodes, of, output)
    }
}

/// Runs `work` on a thread of the pool. Elsewhere each of its many short parallel loops would wake
/// the pool and wait for it.
fn in_pool<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    rayon::scope(|_| work())
}

/// Refuses runs that are not answered node by node.
fn refuse_others(run: &SavedRun) -> Result<()> {
    if let Some(at) = run.at() {
        let message = format!("--at {at}: a predictor answers for the whole dataset; leave it out");
        return Err(Error::usage(message));
    }
    let refuse = |why: &str| Err(Error::usage(format!("{}: the run learned {why}", run.dir.display())));
    if run.ranks_links() {
        return refuse("links or events, which have no classes of nodes; open it as a LinkPredictor");
    }
    Ok(())
}

/// A service asks from several threads.
const _: fn() = || {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Predictor>();
    is_shared::<LinkPredictor>();
};
