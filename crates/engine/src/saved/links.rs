//! Saved runs that learned links: scores of edges, the best candidates of nodes, and embeddings.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use graphmill_core::{End, NodeId, progress::Progress};
use graphmill_data::{Dataset, dataset::Rescaling};
use graphmill_loader::link::KnownEdges;
use graphmill_nn::{Matrix, Pass, backend::Cpu, layer::gather_rows, link::decoder::Decoder, model::Model};

use super::{PartScores, SavedRun, Scores, Selection, Written, keys::Names, predictor::OpenLinks};
use crate::{
    Error, Result, TrainConfig, build,
    config::{
        embedding::is_table,
        events::is_of_events,
        link_task::{is_link, is_typed_link},
    },
    inference::{Inference, Output},
    link::{LinkMetric, LinkTask, Scored, split::Edge},
    memory,
    predictions::{Predictions, Target, Values},
};

/// Sources whose candidates are ranked at once.
const SOURCES: usize = 1 << 12;
/// Cutoffs of the metrics that a table of scores has.
const CUTOFFS: [usize; 2] = [10, 50];

/// Edges over which embeddings read messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// Those of training, so that embeddings know no edge that validates or tests.
    #[default]
    Training,
    /// All edges of the dataset.
    All,
}

/// Best candidates of nodes: a row for each pair (`N`), those of a node together, the best first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BestLinks {
    /// Nodes that were asked for.
    pub nodes: Vec<NodeId>,
    /// Their candidates.
    pub candidates: Vec<NodeId>,
    /// Scores of the pairs.
    pub scores: Vec<f32>,
}

impl BestLinks {
    /// Adds the candidates of a node.
    pub(crate) fn extend(&mut self, node: NodeId, best: impl IntoIterator<Item = (NodeId, f32)>) {
        for (candidate, score) in best {
            self.nodes.push(node);
            self.candidates.push(candidate);
            self.scores.push(score);
        }
    }
}

/// The dataset with the edges of `reading`.
fn read<'d>(reading: Reading, task: &'d LinkTask, data: &'d Dataset) -> &'d Dataset {
    match reading {
        Reading::Training => &task.data,
        Reading::All => data,
    }
}

impl SavedRun {
    /// Returns true if the run learned links by a model of one type.
    pub fn learns_links(&self) -> bool {
        // a dataset that has moved says nothing about its types
        is_link(&self.config) && !self.learns_typed_links()
    }

    /// Returns true if the run learned a stream of events.
    pub fn learns_events(&self) -> bool {
        let types = self.origin.as_ref().and_then(|origin| origin.typed.as_ref());
        !types.is_some_and(|types| types.is_on_nodes)
            && is_of_events(&self.config)
            && !self.learns_typed_links()
    }

    /// Returns true if the run learned links of several types, or with edge features, by a model
    /// that reads messages: by its record, or by its dataset if an older version wrote it.
    pub(crate) fn learns_typed_links(&self) -> bool {
        let types = self.origin.as_ref().and_then(|origin| origin.typed.as_ref());
        let is_recorded = types.is_some_and(|types| !types.relations.is_empty());
        !is_table(&self.config) && (is_recorded || is_typed_link(&self.config))
    }

    /// The task and the model of the run on `data`, whose decoder reads the edges of `reading`.
    pub(super) fn of_links(&self, data: &Dataset, reading: Reading) -> Result<(LinkTask, Model)> {
        self.check_fit(data, false)?;
        let task = self.blame_config(LinkTask::new(&self.config, data))?;
        let model = self.model_around(&task.data, &read(reading, &task, data).graph)?;
        Ok((task, model))
    }

    /// Embeddings of all nodes from the messages of `reading`, with the decoder.
    ///
    /// # Errors
    /// The model cannot be read or does not fit the dataset, or `watch` stops the work.
    pub(crate) fn open_links(
        &self,
        data: &Dataset,
        reading: Reading,
        watch: &dyn Progress,
    ) -> Result<NodeLinks> {
        let (task, model) = self.of_links(data, reading)?;
        self.node_links((&task, &model), data, reading, watch)
    }

    /// [`SavedRun::open_links`] by a task and its model, which [`SavedRun::of_links`] returns for
    /// the same `reading`.
    pub(super) fn node_links(
        &self,
        (task, model): (&LinkTask, &Model),
        data: &Dataset,
        reading: Reading,
        watch: &dyn Progress,
    ) -> Result<NodeLinks> {
        let whole = TrainConfig { eval_nodes: 0, ..self.config.clone() };
        self.blame_config(memory::check(&whole, &task.data))?;
        let all: Vec<NodeId> = (0..data.num_nodes() as NodeId).collect();
        let (rows, rescaling) = self.embeddings((task, model), data, reading, &all, watch)?;
        Ok(NodeLinks {
            task: self.config.task.clone(),
            known: task.known.clone(),
            decoder: model.decoder().expect("a model of links has a decoder").boxed(),
            backend: Cpu { precision: build::precision(&self.config) },
            rows,
            rescaling,
        })
    }

    /// Embeddings of `nodes`, from the messages of `reading`.
    fn embeddings(
        &self,
        (task, model): (&LinkTask, &Model),
        data: &Dataset,
        reading: Reading,
        nodes: &[NodeId],
        watch: &dyn Progress,
    ) -> Result<(Matrix, Option<Rescaling>)> {
        let rescaling = self.rescaling(data)?;
        let features = self.rows(data, rescaling.as_ref())?;
        let view = read(reading, task, data);
        let backend = Cpu { precision: build::precision(&self.config) };
        let symmetric = build::symmetric(model, view);
        let mut rows = Matrix::default();
        let mut inference =
            Inference::new(&view.graph, &features, symmetric.as_deref(), &backend, self.config.eval_chunk)
                .with_neighbors(self.blame_config(build::inference_neighbors(&self.config, view))?)
                .watched(watch);
        self.blame_config(inference.run(model, nodes, Output::Logits, &mut rows))?;
        Ok((rows, rescaling))
    }

    /// Computes all metrics of rankings on each part of the split, against the candidates of the
    /// run.
    ///
    /// # Errors
    /// The model cannot be read or does not fit the dataset, or `watch` stops the work.
    pub fn link_scores(&self, data: &Dataset, watch: &dyn Progress) -> Result<Scores> {
        let (task, model) = self.of_links(data, Reading::Training)?;
        let links = self.node_links((&task, &model), data, Reading::Training, watch)?;
        let scored = links.scored();
        let mut metrics = vec![task.metric.clone()];
        metrics.extend(CUTOFFS.into_iter().flat_map(LinkMetric::all));
        let (mut parts, mut test) = (Vec::new(), None);
        for part in ["train", "valid", "test"] {
            watch.check()?;
            let edges = self.blame_config(task.evaluation(&self.config, part))?;
            let scores = rayon::scope(|_| edges.scores(&scored, &task.known, &metrics));
            let chosen = scores.get(&task.metric.name()).copied().flatten();
            // metrics that no part defines against these candidates
            let scores: BTreeMap<_, _> = scores.into_iter().filter(|(_, value)| value.is_some()).collect();
            if part == "test" {
                test = chosen;
            }
            parts.push(PartScores { part, nodes: edges.len(), scores, by_class: None, diagnostics: None });
        }
        Ok(Scores {
            run: self.dir.clone(),
            dataset: data.name.clone(),
            same_dataset: self.is_own(data)?,
            rescaled: links.rescaling.as_ref().map(Rescaling::description),
            propagation: None,
            metric: task.metric.name(),
            test,
            parts,
        })
    }

    /// Writes the `k` best candidates of each selected node as the `end` of an edge, with their
    /// scores, the best first. Known edges and the node itself are left out, so a node may have
    /// fewer.
    ///
    /// # Errors
    /// The run did not learn links; the model or the list cannot be read; `out` cannot be written
    /// or has a format of one type; or `watch` stops the work.
    pub fn predict_links(
        &self,
        data: &Dataset,
        selection: Selection,
        of: (usize, End),
        reading: Reading,
        out: &Path,
        watch: &dyn Progress,
    ) -> Result<Written> {
        let target = Target::new(out)?;
        target.check_columns()?;
        let names = Names::of(data, None)?;
        let (best, rescaling) = self.best_with(data, (&names, selection), of, reading, watch)?;
        let count = best.nodes.len();
        let values = Values::Links { candidates: best.candidates, scores: best.scores };
        self.write(&target, (data, names), (best.nodes, 1, values))?;
        self.written(out, data, (count, 1, "links"), rescaling.as_ref())
    }

    /// The pairs that [`SavedRun::predict_links`] writes.
    ///
    /// # Errors
    /// As for [`SavedRun::predict_links`].
    pub fn best_links(
        &self,
        data: &Dataset,
        selection: Selection,
        of: (usize, End),
        reading: Reading,
        watch: &dyn Progress,
    ) -> Result<BestLinks> {
        let names = Names::of(data, None)?;
        Ok(self.best_with(data, (&names, selection), of, reading, watch)?.0)
    }

    /// The best pairs, and the scale of the features that they were computed from.
    fn best_with(
        &self,
        data: &Dataset,
        (names, selection): (&Names, Selection),
        (k, end): (usize, End),
        reading: Reading,
        watch: &dyn Progress,
    ) -> Result<(BestLinks, Option<Rescaling>)> {
        let nodes = names.select(selection, data.num_nodes(), &data.name)?;
        let links = self.open_links(data, reading, watch)?;
        let mut found = BestLinks::default();
        for chunk in nodes.chunks(SOURCES) {
            watch.check()?;
            let best = rayon::scope(|_| links.top((0, end), chunk, k, false));
            chunk.iter().zip(best).for_each(|(&node, best)| found.extend(node, best));
        }
        Ok((found, links.rescaling))
    }

    /// Writes the embeddings of the selected nodes, `N x H`: of a run that learned links, the rows
    /// that its decoder scores.
    ///
    /// # Errors
    /// The model or the list cannot be read, `out` cannot be written, or `watch` stops the work.
    pub fn embed_links(
        &self,
        data: &Dataset,
        selection: Selection,
        reading: Reading,
        out: &Path,
        watch: &dyn Progress,
    ) -> Result<Written> {
        let target = Target::new(out)?;
        let (task, model) = self.of_links(data, reading)?;
        let names = Names::of(data, None)?;
        let nodes = names.select(selection, data.num_nodes(), &data.name)?;
        let (rows, rescaling) = self.embeddings((&task, &model), data, reading, &nodes, watch)?;
        let (count, cols) = (nodes.len(), rows.num_cols());
        let values = Values::Embeddings(rows.view().host().to_vec());
        self.write(&target, (data, names), (nodes, cols, values))?;
        self.written(out, data, (count, cols, "embeddings"), rescaling.as_ref())
    }

    /// Writes a table with the keys of the nodes.
    fn write(
        &self,
        target: &Target,
        (data, names): (&Dataset, Names),
        (nodes, cols, values): (Vec<NodeId>, usize, Values),
    ) -> Result<()> {
        if nodes.is_empty() {
            return Err(Error::dataset(&data.name, "no row is left to write; select other nodes"));
        }
        let identity = Some(names.identity(&nodes));
        target.write(&Predictions { nodes, cols, values, identity })
    }

    /// Summary of a written table.
    fn written(
        &self,
        out: &Path,
        data: &Dataset,
        (rows, cols, kind): (usize, usize, &'static str),
        rescaling: Option<&Rescaling>,
    ) -> Result<Written> {
        Ok(Written {
            out: out.to_path_buf(),
            rows,
            cols,
            kind,
            same_dataset: self.is_own(data)?,
            rescaled: rescaling.map(Rescaling::description),
        })
    }
}

/// Embeddings of all nodes of one type, with the decoder that scores pairs of them.
pub(crate) struct NodeLinks {
    /// Name of the task.
    task: String,
    known: Arc<KnownEdges>,
    decoder: Box<dyn Decoder>,
    /// The processor, in the precision of the run.
    backend: Cpu,
    /// Embeddings, `V x F`.
    rows: Matrix,
    /// Conversion of the features that they were computed from, if any.
    rescaling: Option<Rescaling>,
}

impl NodeLinks {
    /// The decoder, and the embeddings of all nodes, `V x F`.
    #[cfg(feature = "tables")]
    pub(super) fn parts(&self) -> (&dyn Decoder, &Matrix) {
        (&*self.decoder, &self.rows)
    }

    fn scored(&self) -> Scored<'_> {
        let pass = Pass { backend: &self.backend, training: false, key: 0 };
        Scored { decoder: &*self.decoder, pass, embeddings: self.rows.view() }
    }
}

impl OpenLinks for NodeLinks {
    fn relations(&self) -> Vec<(String, [usize; 2])> {
        vec![(self.task.clone(), [0, 0])]
    }

    fn width(&self) -> usize {
        self.rows.num_cols()
    }

    fn top(
        &self,
        (_, end): (usize, End),
        nodes: &[NodeId],
        k: usize,
        include_known: bool,
    ) -> Vec<Vec<(NodeId, f32)>> {
        self.scored().top(nodes, end, (!include_known).then_some(&self.known), k)
    }

    fn scores(&self, relation: usize, pairs: &[Edge]) -> Vec<f32> {
        self.scored().as_ranked(relation as u32, &(0..self.rows.num_rows() as NodeId), pairs)
    }

    fn embeddings(&self, _: usize, nodes: &[NodeId]) -> Matrix {
        let mut rows = Matrix::default();
        gather_rows(&self.backend, self.rows.view(), nodes, &mut rows);
        rows
    }
}
