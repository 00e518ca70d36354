//! A run on events that stays open and answers as of a time, as part of a
//! [`LinkPredictor`](crate::predictor::LinkPredictor).
//!
//! The memory after all events and the embeddings of all nodes at the time after them are computed
//! once. A question as of an earlier time reads the memory after the events strictly before it,
//! which is computed by a pass over these events and kept for further questions; that of the last
//! [`KEPT`] times is. Answers have the bits of `graphmill predict --top-k --at` and `graphmill
//! embed --at`.
//!
//! # Cost
//!
//! As of the end, O(D H^2) for the best of `D` destinations and O(H^2) for a pair, by a model of
//! embeddings. As of another time, a pass over the events before it if the model has a memory, and
//! for the best destinations the embeddings of all nodes; both are kept. Models whose rows are
//! those of pairs compute each pair.
//!
//! # Memory
//!
//! The memory of the nodes and `V x H` embeddings, for the end and for each time that is kept.

use std::sync::{Arc, Mutex, PoisonError};

use graphmill_core::NodeId;
use graphmill_data::typed::TypedDataset;
use graphmill_nn::{
    Matrix, Pass,
    backend::{Cpu, ops::Gather},
    link::EdgePairs,
    temporal::NodeMemory,
};

use super::{
    as_of::{no_embeddings, no_ranking, pair_scores, top},
    evaluation::Evaluation,
    model::EventModel,
    saved::SavedEvents,
    stream::EventStream,
};
use crate::{Result, saved::SavedRun};

/// Number of earlier times whose memory and embeddings are kept.
const KEPT: usize = 2;

/// A run on events with its stream, for any number of threads.
pub(crate) struct OpenEvents {
    run: SavedRun,
    stream: EventStream,
    model: EventModel,
    /// State after all events.
    last: Seen,
    /// States of earlier times, the latest used first.
    kept: Mutex<Vec<Seen>>,
}

/// State of the nodes as of a time.
#[derive(Clone)]
struct Seen {
    time: i64,
    memory: Option<Arc<NodeMemory>>,
    /// Embeddings of all nodes (`V x H`), once computed.
    rows: Option<Arc<Matrix>>,
}

impl OpenEvents {
    /// Opens `run` on `data`.
    ///
    /// # Errors
    /// The model cannot be read or does not fit the dataset.
    pub(crate) fn new(run: SavedRun, data: &TypedDataset) -> Result<Self> {
        let (stream, model) = SavedEvents { run: &run }.load(data)?;
        let last = Seen { time: stream.end(), memory: None, rows: None };
        let mut opened = Self { run, stream, model, last, kept: Mutex::default() };
        opened.last.memory = opened.memory_at(opened.stream.end())?;
        if !opened.model.is_of_pairs() {
            opened.last.rows = Some(Arc::new(opened.all_rows(&opened.last)?));
        }
        Ok(opened)
    }

    /// Name of the task.
    pub(crate) fn task(&self) -> &str {
        &self.stream.task
    }

    /// Node types of the sources and the destinations.
    pub(crate) fn types(&self) -> [usize; 2] {
        self.stream.types
    }

    /// Time after all events.
    pub(crate) fn end(&self) -> i64 {
        self.stream.end()
    }

    /// Returns true if destinations can be ranked.
    pub(crate) fn ranks(&self) -> bool {
        self.stream.targets.is_none()
    }

    /// Width of the embeddings; 0 for a model whose rows are those of pairs.
    pub(crate) fn width(&self) -> usize {
        if self.model.is_of_pairs() { 0 } else { self.model.width() }
    }

    /// The `k` best of the `count` destinations of each source as of a time with their scores, the
    /// best first.
    ///
    /// # Errors
    /// The task is not one of links, or a block has too many edges.
    pub(crate) fn top(
        &self,
        sources: &[NodeId],
        (k, at): (usize, Option<i64>),
        count: usize,
    ) -> Result<Vec<Vec<(NodeId, f32)>>> {
        self.check_ranks()?;
        let [_, first] = self.stream.first.map(|first| first as NodeId);
        let seen = self.seen(at, !self.model.is_of_pairs())?;
        let mut evaluation: Option<Evaluation> = None;
        let is_of_one_type = self.stream.types[0] == self.stream.types[1];
        let best = |&source: &NodeId| -> Result<Vec<(NodeId, f32)>> {
            let own = is_of_one_type.then_some(source);
            let source = source + self.stream.first[0] as NodeId;
            let scores = match &seen.rows {
                Some(rows) => pair_scores(&self.model, rows, source, first..first + count as NodeId),
                None => {
                    let evaluation = match &mut evaluation {
                        Some(evaluation) => evaluation,
                        none => none.insert(self.evaluation(&seen)?),
                    };
                    let destinations: Vec<NodeId> = (first..first + count as NodeId).collect();
                    let mut scores = Vec::with_capacity(count);
                    evaluation.score_pairs(&self.model, (source, &destinations), seen.time, &mut scores)?;
                    scores
                }
            };
            let best = top(&scores, own, k).into_iter();
            Ok(best.map(|v| (v, scores[v as usize])).collect())
        };
        sources.iter().map(best).collect()
    }

    /// Scores of pairs of a source and a destination as of a time.
    ///
    /// # Errors
    /// As for [`OpenEvents::top`].
    pub(crate) fn scores(&self, pairs: &[(NodeId, NodeId)], at: Option<i64>) -> Result<Vec<f32>> {
        self.check_ranks()?;
        let [sources, destinations] = self.stream.first.map(|first| first as NodeId);
        let pairs: Vec<_> = pairs.iter().map(|&(u, v)| (u + sources, v + destinations)).collect();
        let seen = self.seen(at, false)?;
        let Some(rows) = &seen.rows else {
            return self.evaluation(&seen)?.score_list(&self.model, &pairs, seen.time);
        };
        let backend = Cpu::default();
        let pass = Pass { backend: &backend, training: false, key: 0 };
        let (source, destination): (Vec<NodeId>, Vec<NodeId>) = pairs.into_iter().unzip();
        let pairs = EdgePairs { nodes: rows.view(), source: &source, destination: &destination, edges: None };
        let mut scores = Matrix::default();
        self.model.score(&pass, &pairs, &mut scores);
        Ok(scores.view().host().to_vec())
    }

    /// Embeddings of nodes of the type of an end (0: sources, 1: destinations) as of a time.
    ///
    /// # Errors
    /// The rows of the model are those of pairs, or a block has too many edges.
    pub(crate) fn embeddings(&self, end: usize, nodes: &[NodeId], at: Option<i64>) -> Result<Matrix> {
        if self.model.is_of_pairs() {
            return Err(no_embeddings(&self.run));
        }
        let ids: Vec<NodeId> = nodes.iter().map(|v| v + self.stream.first[end] as NodeId).collect();
        let (seen, mut out) = (self.seen(at, false)?, Matrix::default());
        match &seen.rows {
            Some(rows) => {
                out.resize(ids.len(), rows.num_cols());
                Gather { src: rows.view(), ids: &ids, dst: out.view_mut() }.run(&Cpu::default());
            }
            None => self.evaluation(&seen)?.embed(&self.model, &ids, seen.time, &mut out)?,
        }
        Ok(out)
    }

    /// Checks that destinations can be ranked.
    ///
    /// # Errors
    /// The task has a class or value for each event.
    pub(crate) fn check_ranks(&self) -> Result<()> {
        if self.ranks() { Ok(()) } else { Err(no_ranking(&self.stream)) }
    }

    /// State as of a time, with the embeddings of all nodes if `with_rows`.
    fn seen(&self, at: Option<i64>, with_rows: bool) -> Result<Seen> {
        let Some(time) = at.filter(|&time| time != self.last.time) else { return Ok(self.last.clone()) };
        // not held while a state is computed: a thread of a pool that waits for a part of its work
        // may take up another question, and would wait for itself
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept().iter().find(|seen| seen.time == time).cloned();
        let mut seen = match known {
            Some(seen) => seen,
            None => Seen { time, memory: self.memory_at(time)?, rows: None },
        };
        if with_rows && seen.rows.is_none() {
            seen.rows = Some(Arc::new(self.all_rows(&seen)?));
        }
        let mut kept = kept();
        kept.retain(|other| other.time != time);
        kept.insert(0, seen.clone());
        kept.truncate(KEPT);
        Ok(seen)
    }

    /// Memory after the events strictly before a time, if the model has one.
    fn memory_at(&self, time: i64) -> Result<Option<Arc<NodeMemory>>> {
        if self.model.updater.is_none() {
            return Ok(None);
        }
        if time > self.last.time {
            return Ok(self.last.memory.clone());
        }
        let mut evaluation = Evaluation::new(self.run.config(), &self.stream, &self.model)?;
        rayon::scope(|_| evaluation.begin_at(&self.model, time))?;
        Ok(evaluation.into_memory())
    }

    /// Embeddings of all nodes.
    fn all_rows(&self, seen: &Seen) -> Result<Matrix> {
        let all: Vec<NodeId> = (0..self.stream.num_nodes as NodeId).collect();
        let (mut evaluation, mut rows) = (self.evaluation(seen)?, Matrix::default());
        rayon::scope(|_| evaluation.embed(&self.model, &all, seen.time, &mut rows))?;
        Ok(rows)
    }

    fn evaluation(&self, seen: &Seen) -> Result<Evaluation<'_>> {
        Evaluation::seeing(self.run.config(), &self.stream, seen.memory.clone())
    }
}
