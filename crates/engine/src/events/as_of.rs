//! Embeddings and best destinations of nodes as of a time.
//!
//! The memory is that after all events strictly before the time, in the batches of an evaluation,
//! and neighbours are drawn from the same events. No later event is read. Without a time, all
//! events come before.
//!
//! # Cost
//!
//! One pass over the events before the time, if the model has a memory. The best destinations take
//! O(S D H^2) for `S` sources and `D` destinations.
//!
//! # Memory
//!
//! The embeddings of all destinations and of the selected sources.

use std::{ops::Range, path::Path};

use graphmill_core::{NodeId, progress::Progress};
use graphmill_data::typed::TypedDataset;
use graphmill_nn::{Matrix, Pass, backend::Cpu, link::EdgePairs};

use super::{
    evaluation::Evaluation, files::MAX_PAIRS, model::EventModel, saved::SavedEvents, stream::EventStream,
};
use crate::{
    Error, Result,
    build::processor,
    predictions::{Predictions, Target, Values},
    saved::{SavedRun, Selection, Written, keys::Names, links::BestLinks},
};

impl SavedEvents<'_> {
    /// Writes the embeddings of nodes of the type `node_type` (or of the sources, if it is empty)
    /// as of the time `at` to `out`, in the format of its ending: `N x H` rows that the head of the
    /// model reads.
    ///
    /// # Errors
    /// The type has no events, a node or key is unknown, the model cannot be read, `out` cannot be
    /// written, or `watch` stops the work.
    pub fn embed(
        &self,
        data: &TypedDataset,
        (node_type, selection): (&str, Selection),
        at: Option<i64>,
        out: &Path,
        watch: &dyn Progress,
    ) -> Result<Written> {
        let target = Target::new(out)?;
        let (stream, model) = self.load(data)?;
        if model.is_of_pairs() {
            return Err(no_embeddings(self.run));
        }
        let name_of = |t: usize| data.nodes[t].name.as_str();
        let is_named = |&end: &usize| node_type.is_empty() || name_of(stream.types[end]) == node_type;
        let Some(end) = (0..2).find(is_named) else {
            let [source, destination] = stream.types.map(name_of);
            return Err(Error::usage(format!(
                "--node-type {node_type}: the type has no events of task '{}'; use {source} or {destination}",
                stream.task
            )));
        };
        let (names, nodes) = selected(data, stream.types[end], selection)?;
        watch.check()?;
        let rows = self.rows(&stream, &model, at, &numbers(&stream, end, &nodes))?;
        let (count, cols) = (nodes.len(), rows.num_cols());
        let values = Values::Embeddings(rows.view().host().to_vec());
        let identity = Some(names.identity(&nodes));
        target.write(&Predictions { nodes, cols, values, identity })?;
        Ok(Written::of_own(out, [count, cols], "embeddings"))
    }

    /// The `k` best destinations of each selected source as of the time `at`, the best first.
    /// Destinations of earlier events are not left out, because events repeat; the source itself
    /// is.
    ///
    /// # Errors
    /// The run learned classes or values of events; the model or the list cannot be read; or
    /// `watch` stops the work.
    pub fn best(
        &self,
        data: &TypedDataset,
        selection: Selection,
        (k, at): (usize, Option<i64>),
        watch: &dyn Progress,
    ) -> Result<BestLinks> {
        Ok(self.best_with(data, selection, (k, at), watch)?.0)
    }

    /// The best pairs, with the names of sources and destinations.
    fn best_with(
        &self,
        data: &TypedDataset,
        selection: Selection,
        (k, at): (usize, Option<i64>),
        watch: &dyn Progress,
    ) -> Result<(BestLinks, [Names; 2])> {
        let (stream, model) = self.load(data)?;
        if stream.targets.is_some() {
            return Err(no_ranking(&stream));
        }
        let (names, sources) = selected(data, stream.types[0], selection)?;
        let (of_candidates, candidates) = selected(data, stream.types[1], Selection::All)?;
        watch.check()?;
        let ends = [numbers(&stream, 0, &sources), numbers(&stream, 1, &candidates)];
        let mut scorer = self.scorer(&stream, &model, at, &ends)?;
        let is_of_one_type = stream.types[0] == stream.types[1];
        let mut found = BestLinks::default();
        for (i, &source) in sources.iter().enumerate() {
            watch.check()?;
            let scores = rayon::scope(|_| scorer.scores(i))?;
            let own = is_of_one_type.then_some(source);
            let best = top(&scores, own, k).into_iter();
            found.extend(source, best.map(|candidate| (candidate, scores[candidate as usize])));
        }
        Ok((found, [names, of_candidates]))
    }

    /// Writes the pairs of [`SavedEvents::best`] with their scores.
    ///
    /// # Errors
    /// As for [`SavedEvents::best`]; no pair is left, or `out` cannot be written or has a format of
    /// one type.
    pub fn predict(
        &self,
        data: &TypedDataset,
        selection: Selection,
        of: (usize, Option<i64>),
        out: &Path,
        watch: &dyn Progress,
    ) -> Result<Written> {
        let target = Target::new(out)?;
        target.check_columns()?;
        let (BestLinks { nodes, candidates, scores }, [names, of_candidates]) =
            self.best_with(data, selection, of, watch)?;
        if nodes.is_empty() {
            return Err(Error::dataset(&data.name, "no row is left to write; select other nodes"));
        }
        let count = nodes.len();
        let mut identity = names.identity(&nodes);
        identity.of_candidates = Some(Box::new(of_candidates.identity(&[])));
        let values = Values::Links { candidates, scores };
        target.write(&Predictions { nodes, cols: 1, values, identity: Some(identity) })?;
        Ok(Written::of_own(out, [count, 1], "links"))
    }

    /// Prepares the scores of `[sources, destinations]`, nodes of the stream, as of a time.
    fn scorer<'s>(
        &'s self,
        stream: &'s EventStream,
        model: &'s EventModel,
        at: Option<i64>,
        ends: &'s [Vec<NodeId>; 2],
    ) -> Result<Scorer<'s>> {
        let [sources, destinations] = ends;
        if !model.is_of_pairs() {
            // the destinations first, so that each has the row of its number
            let rows = Box::new(self.rows(stream, model, at, &[&destinations[..], sources].concat())?);
            let processor = processor(self.config());
            return Ok(Scorer::OfRows { processor, model, rows, destinations: destinations.len() });
        }
        let time = at.unwrap_or(stream.end());
        let mut evaluation = self.run.blame_config(Evaluation::new(self.config(), stream, model))?;
        rayon::scope(|_| evaluation.begin_at(model, time))?;
        Ok(Scorer::OfPairs { model, evaluation: Box::new(evaluation), ends, time })
    }

    /// Embeddings of nodes of the stream as of a time, `N x H`.
    fn rows(
        &self,
        stream: &EventStream,
        model: &EventModel,
        at: Option<i64>,
        nodes: &[NodeId],
    ) -> Result<Matrix> {
        let (time, mut rows) = (at.unwrap_or(stream.end()), Matrix::default());
        let mut evaluation = self.run.blame_config(Evaluation::new(self.config(), stream, model))?;
        rayon::scope(|_| {
            evaluation.begin_at(model, time)?;
            evaluation.embed(model, nodes, time, &mut rows)
        })?;
        Ok(rows)
    }
}

/// Scores of a source with all destinations.
enum Scorer<'s> {
    /// By the embeddings of all destinations, then of the sources.
    OfRows { processor: &'static Cpu, model: &'s EventModel, rows: Box<Matrix>, destinations: usize },
    /// By a model whose rows are those of pairs.
    OfPairs { model: &'s EventModel, evaluation: Box<Evaluation<'s>>, ends: &'s [Vec<NodeId>; 2], time: i64 },
}

impl Scorer<'_> {
    /// Scores of source number `i`.
    fn scores(&mut self, i: usize) -> Result<Vec<f32>> {
        match self {
            Self::OfRows { processor, model, rows, destinations } => {
                let source = (*destinations + i) as NodeId;
                Ok(pair_scores(processor, (model, rows), source, 0..*destinations as NodeId))
            }
            Self::OfPairs { model, evaluation, ends: [sources, destinations], time } => {
                let mut out = Vec::with_capacity(destinations.len());
                evaluation.score_pairs(model, (sources[i], destinations), *time, &mut out)?;
                Ok(out)
            }
        }
    }
}

/// Scores of the pairs of the node in row `source` with those in the rows `destinations`, on the
/// processor in the precision of the run.
pub(super) fn pair_scores(
    processor: &Cpu,
    (model, rows): (&EventModel, &Matrix),
    source: NodeId,
    destinations: Range<NodeId>,
) -> Vec<f32> {
    let pass = Pass { backend: processor, training: false, key: 0 };
    let destinations: Vec<NodeId> = destinations.collect();
    let (mut scores, mut all) = (Matrix::default(), Vec::with_capacity(destinations.len()));
    for destination in destinations.chunks(MAX_PAIRS) {
        let sources = vec![source; destination.len()];
        let pairs = EdgePairs { nodes: rows.view(), source: &sources, destination, edges: None };
        model.score(&pass, &pairs, &mut scores);
        all.extend_from_slice(scores.view().host());
    }
    all
}

/// Error of a model whose rows are those of pairs.
pub(super) fn no_embeddings(run: &SavedRun) -> Error {
    Error::usage(format!(
        "{}: a row of --model {} depends on both nodes of a pair, so a node has no embedding; score pairs \
         with graphmill predict --top-k",
        run.dir.display(),
        run.config.model
    ))
}

/// Error of a task that is not one of links.
pub(super) fn no_ranking(stream: &EventStream) -> Error {
    Error::usage(format!(
        "--top-k: task '{}' has a class or value for each event, which ranks no destinations; leave it out, \
         or use graphmill embed",
        stream.task
    ))
}

/// Numbers of the `k` largest scores without `own`, the largest first and of equal ones the first.
/// A score of NaN counts as the largest, so that a caller that checks the scores finds it.
pub(super) fn top(scores: &[f32], own: Option<NodeId>, k: usize) -> Vec<NodeId> {
    let mut order: Vec<NodeId> = (0..scores.len() as NodeId).filter(|v| Some(*v) != own).collect();
    let score = |v: &NodeId| Some(scores[*v as usize]).filter(|score| !score.is_nan()).unwrap_or(f32::NAN);
    let by_score = |a: &NodeId, b: &NodeId| score(b).total_cmp(&score(a)).then_with(|| a.cmp(b));
    if k < order.len() {
        order.select_nth_unstable_by(k, by_score);
        order.truncate(k);
    }
    order.sort_unstable_by(by_score);
    order
}

/// Numbers in the stream of nodes of the type of an end (0: sources, 1: destinations).
fn numbers(stream: &EventStream, end: usize, nodes: &[NodeId]) -> Vec<NodeId> {
    nodes.iter().map(|v| v + stream.first[end] as NodeId).collect()
}

/// Names of the nodes of the type number `t`, and those of a selection.
pub(super) fn selected(data: &TypedDataset, t: usize, selection: Selection) -> Result<(Names, Vec<NodeId>)> {
    let names = Names::of_type(data, t, Vec::new());
    let nodes = names.select(selection, data.nodes[t].count, &data.name)?;
    Ok((names, nodes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_of_nan_come_before_all_others() {
        for nan in [f32::NAN, -f32::NAN] {
            assert_eq!(top(&[1.0, nan, 3.0, f32::INFINITY], None, 2), [1, 3]);
            assert_eq!(top(&[1.0, nan, 3.0, 3.0], Some(1), 3), [2, 3, 0]);
        }
    }
}
