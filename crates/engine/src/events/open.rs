//! A run on events that stays open and answers as of a time, as part of a
//! [`LinkPredictor`](crate::predictor::LinkPredictor).
//!
//! The memory after all events and the embeddings of all nodes at the time after them are computed
//! once. A question as of an earlier time reads the memory after the events strictly before it,
//! which is computed by a pass over these events and kept for further questions; that of the last
//! [`KEPT`] times is. Answers have the bits of `graphmill predict --top-k --at` and `graphmill
//! embed --at`.
//!
//! New events make a new state beside the present one, which answers until the new one is ready.
//! The memory continues from that before the last batch that was not full, so batches, and with
//! them all answers, are those of a stream that had all events at once.
//!
//! # Cost
//!
//! As of the end, O(D H^2) for the best of `D` destinations and O(H^2) for a pair, by a model of
//! embeddings. As of another time, a pass over the events before it if the model has a memory, and
//! for the best destinations the embeddings of all nodes; both are kept. Models whose rows are
//! those of pairs compute each pair. New events take O(V H + E), the passes over their batches, and
//! once more the embeddings of all nodes when the best destinations are asked for.
//!
//! # Memory
//!
//! The memory of the nodes, once more that before the last batch, and `V x H` embeddings; memory
//! and embeddings for each time that is kept, too. Twice as much, and the events twice, while new
//! events are added.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use graphmill_core::NodeId;
use graphmill_data::typed::TypedDataset;
use graphmill_nn::{
    Matrix, Pass,
    backend::{Cpu, ops::Gather},
    link::EdgePairs,
    temporal::NodeMemory,
};

use super::{
    added::NewEvents,
    as_of::{no_embeddings, no_ranking, pair_scores, top},
    evaluation::{Evaluation, batch_size},
    model::EventModel,
    saved::SavedEvents,
    stream::EventStream,
};
use crate::{Result, build::processor, saved::SavedRun};

/// Number of earlier times whose memory and embeddings are kept.
const KEPT: usize = 2;

/// A run on events with its stream, for any number of threads.
pub(crate) struct OpenEvents {
    run: SavedRun,
    model: EventModel,
    known: RwLock<Arc<Known>>,
    /// Held while events are added.
    adding: Mutex<()>,
}

/// A stream with the states of its nodes.
struct Known {
    stream: EventStream,
    /// Memory after all events.
    memory: Option<Arc<NodeMemory>>,
    /// The first event of the last batch, if that is not full, else the number of events; and the
    /// memory before it.
    batch: (usize, Option<Arc<NodeMemory>>),
    /// Embeddings of all nodes after all events (`V x H`), once computed.
    rows: OnceLock<Arc<Matrix>>,
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
        // copies of the memory are made at any time, so all are in memory
        let (stream, model) = SavedEvents { run: &run }.load_in(data, None)?;
        let known = Known::new(&run, &model, stream)?;
        let opened = Self { run, model, known: RwLock::new(Arc::new(known)), adding: Mutex::default() };
        if !opened.model.is_of_pairs() {
            opened.seen(&opened.known(), None, true)?;
        }
        Ok(opened)
    }

    /// Adds events to the stream. Answers that are under way are those of before.
    ///
    /// # Errors
    /// As for [`EventStream::with`]; nothing is added then.
    pub(crate) fn add(&self, new: &NewEvents) -> Result<()> {
        let _turn = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.known().with(&self.run, &self.model, new)?;
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(known);
        Ok(())
    }

    /// The present stream and its states.
    fn known(&self) -> Arc<Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Name of the task.
    pub(crate) fn task(&self) -> String {
        self.known().stream.task.clone()
    }

    /// Node types of the sources and the destinations.
    pub(crate) fn types(&self) -> [usize; 2] {
        self.known().stream.types
    }

    /// Time after all events.
    pub(crate) fn end(&self) -> i64 {
        self.known().stream.end()
    }

    /// Number of events.
    pub(crate) fn num_events(&self) -> usize {
        self.known().stream.events.len()
    }

    /// Number of features of an event.
    pub(crate) fn event_dim(&self) -> usize {
        self.known().stream.edge_dim()
    }

    /// Returns true if destinations can be ranked.
    pub(crate) fn ranks(&self) -> bool {
        self.known().stream.targets.is_none()
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
        let known = self.known();
        let stream = &known.stream;
        let [_, first] = stream.first.map(|first| first as NodeId);
        let seen = self.seen(&known, at, !self.model.is_of_pairs())?;
        let mut evaluation: Option<Evaluation> = None;
        let is_of_one_type = stream.types[0] == stream.types[1];
        let best = |&source: &NodeId| -> Result<Vec<(NodeId, f32)>> {
            let own = is_of_one_type.then_some(source);
            let source = source + stream.first[0] as NodeId;
            let scores = match &seen.rows {
                Some(rows) => {
                    let of = (&self.model, &**rows);
                    pair_scores(processor(&self.run.config), of, source, first..first + count as NodeId)
                }
                None => {
                    let evaluation = match &mut evaluation {
                        Some(evaluation) => evaluation,
                        none => none.insert(seen.evaluation(&self.run, stream)?),
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
        let known = self.known();
        let [sources, destinations] = known.stream.first.map(|first| first as NodeId);
        let pairs: Vec<_> = pairs.iter().map(|&(u, v)| (u + sources, v + destinations)).collect();
        let seen = self.seen(&known, at, false)?;
        let Some(rows) = &seen.rows else {
            let mut evaluation = seen.evaluation(&self.run, &known.stream)?;
            return evaluation.score_list(&self.model, &pairs, seen.time);
        };
        let pass = Pass { backend: processor(&self.run.config), training: false, key: 0 };
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
        let known = self.known();
        let ids: Vec<NodeId> = nodes.iter().map(|v| v + known.stream.first[end] as NodeId).collect();
        let (seen, mut out) = (self.seen(&known, at, false)?, Matrix::default());
        match &seen.rows {
            Some(rows) => {
                out.resize(ids.len(), rows.num_cols());
                Gather { src: rows.view(), ids: &ids, dst: out.view_mut() }.run(&Cpu::default());
            }
            None => {
                let mut evaluation = seen.evaluation(&self.run, &known.stream)?;
                evaluation.embed(&self.model, &ids, seen.time, &mut out)?;
            }
        }
        Ok(out)
    }

    /// Checks that destinations can be ranked.
    ///
    /// # Errors
    /// The task has a class or value for each event.
    pub(crate) fn check_ranks(&self) -> Result<()> {
        if self.ranks() { Ok(()) } else { Err(no_ranking(&self.known().stream)) }
    }

    /// State of `known` as of a time, with the embeddings of all nodes if `with_rows`.
    fn seen(&self, known: &Known, at: Option<i64>, with_rows: bool) -> Result<Seen> {
        let end = known.stream.end();
        let Some(time) = at.filter(|&time| time != end) else {
            let mut seen = Seen { time: end, memory: known.memory.clone(), rows: known.rows.get().cloned() };
            if with_rows && seen.rows.is_none() {
                let rows = self.all_rows(known, &seen)?;
                // another thread may have computed the same rows
                seen.rows = Some(known.rows.get_or_init(|| rows).clone());
            }
            return Ok(seen);
        };
        // not held while a state is computed: a thread of a pool that waits for a part of its work
        // may take up another question, and would wait for itself
        let kept = || known.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept().iter().find(|seen| seen.time == time).cloned();
        let mut seen = match found {
            Some(seen) => seen,
            None => Seen { time, memory: self.memory_at(known, time)?, rows: None },
        };
        if with_rows && seen.rows.is_none() {
            seen.rows = Some(self.all_rows(known, &seen)?);
        }
        let mut kept = kept();
        kept.retain(|other| other.time != time);
        kept.insert(0, seen.clone());
        kept.truncate(KEPT);
        Ok(seen)
    }

    /// Memory after the events strictly before a time, if the model has one.
    fn memory_at(&self, known: &Known, time: i64) -> Result<Option<Arc<NodeMemory>>> {
        if self.model.updater.is_none() {
            return Ok(None);
        }
        if time > known.stream.end() {
            return Ok(known.memory.clone());
        }
        let mut evaluation = Evaluation::new(self.run.config(), &known.stream, &self.model)?;
        rayon::scope(|_| evaluation.begin_at(&self.model, time))?;
        Ok(evaluation.into_memory())
    }

    /// Embeddings of all nodes.
    fn all_rows(&self, known: &Known, seen: &Seen) -> Result<Arc<Matrix>> {
        let all: Vec<NodeId> = (0..known.stream.num_nodes as NodeId).collect();
        let (mut evaluation, mut rows) = (seen.evaluation(&self.run, &known.stream)?, Matrix::default());
        rayon::scope(|_| evaluation.embed(&self.model, &all, seen.time, &mut rows))?;
        Ok(Arc::new(rows))
    }
}

impl Known {
    /// The states after all events of `stream`.
    fn new(run: &SavedRun, model: &EventModel, stream: EventStream) -> Result<Self> {
        let mut evaluation = Evaluation::new(run.config(), &stream, model)?;
        let [_, valid, test] = stream.parts.clone();
        let batch = last_batch(run, &stream);
        let before = rayon::scope(|_| -> Result<_> {
            evaluation.begin(model)?;
            evaluation.skip(model, valid)?;
            evaluation.skip(model, test.start..batch)?;
            let before = evaluation.memory().cloned();
            evaluation.skip(model, batch..test.end)?;
            Ok(before)
        })?;
        let memory = evaluation.into_memory();
        Ok(Self { stream, memory, batch: (batch, before), rows: OnceLock::new(), kept: Mutex::default() })
    }

    /// The states after further events.
    fn with(&self, run: &SavedRun, model: &EventModel, new: &NewEvents) -> Result<Self> {
        let stream = self.stream.with(new)?;
        let (from, before) = self.batch.clone();
        let mut evaluation = Evaluation::seeing(run.config(), &stream, before)?;
        let batch = last_batch(run, &stream);
        let before = rayon::scope(|_| -> Result<_> {
            evaluation.skip(model, from..batch)?;
            let before = evaluation.memory().cloned();
            evaluation.skip(model, batch..stream.events.len())?;
            Ok(before)
        })?;
        let memory = evaluation.into_memory();
        // states before the new events stay true
        let first = new.times.first().copied().unwrap_or(i64::MAX);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
        kept.retain(|seen| seen.time <= first);
        let kept = Mutex::new(kept);
        Ok(Self { stream, memory, batch: (batch, before), rows: OnceLock::new(), kept })
    }
}

impl Seen {
    /// Evaluation by this state.
    fn evaluation<'s>(&self, run: &'s SavedRun, stream: &'s EventStream) -> Result<Evaluation<'s>> {
        Evaluation::seeing(run.config(), stream, self.memory.clone())
    }
}

/// First event of the last batch of a stream's last part, if that is not full, else the number of
/// events.
fn last_batch(run: &SavedRun, stream: &EventStream) -> usize {
    let test = &stream.parts[2];
    test.end - test.len() % batch_size(run.config(), stream)
}
