//! Scores, best candidates and embeddings of a model of links.

use std::{collections::BTreeMap, ops::Range, path::Path};

use graphmill_core::{End, NodeId, progress::Progress};
use graphmill_data::typed::TypedDataset;
use graphmill_nn::{Matrix, Pass, backend::Cpu, layer::gather_rows, link::decoder::Decoder};

use super::{LinkEdges, Ranking, ends, metric};
use crate::{
    Error, Result,
    link::{LinkMetric, Scored, split::Edge},
    predictions::{Predictions, Target, Values},
    saved::{
        PartScores, SavedRun, Scores, Selection, Written, keys::Names, links::BestLinks, predictor::OpenLinks,
    },
};

/// Cutoffs of the metrics that a table of scores has.
const CUTOFFS: [usize; 3] = [1, 10, 20];

/// Metrics of a part by name, and the number of ranked edges.
type OfPart = (BTreeMap<String, f64>, usize);

/// Scores of `run` on the parts of `edges` that validate and test: the metric `chosen` and those of
/// its kind, by `rank`.
///
/// # Errors
/// Those of `rank`.
pub(crate) fn scores_by(
    run: &SavedRun,
    data: &TypedDataset,
    edges: &LinkEdges,
    chosen: LinkMetric,
    rank: &mut dyn FnMut(usize, &[LinkMetric]) -> Result<OfPart>,
) -> Result<Scores> {
    let mut metrics = vec![chosen.clone()];
    let all = CUTOFFS.into_iter().flat_map(LinkMetric::all);
    // lists only for tasks of lists: metrics of one kind are not comparable with the other
    metrics.extend(all.filter(|metric| metric.is_of_lists() == chosen.is_of_lists()));
    let (mut parts, mut test) = (Vec::new(), None);
    for (number, part) in [(1, "valid"), (2, "test")] {
        // training edges are known: their ranks say nothing about new edges
        if edges.parts[number].is_empty() {
            continue;
        }
        let (scores, nodes) = rank(number, &metrics)?;
        if part == "test" {
            test = scores.get(&chosen.name()).copied();
        }
        let scores: BTreeMap<String, Option<f64>> =
            scores.into_iter().map(|(name, score)| (name, Some(score))).collect();
        parts.push(PartScores { part, nodes, scores, by_class: None, diagnostics: None });
    }
    Ok(Scores {
        run: run.dir.clone(),
        dataset: data.name.clone(),
        same_dataset: Some(true),
        rescaled: None,
        propagation: None,
        metric: chosen.name(),
        test,
        parts,
    })
}

/// Edges of a dataset, with the decoder of a model and its embeddings of their ends.
pub(crate) struct Embedded {
    /// The processor, in the precision of the run.
    pub(crate) processor: &'static Cpu,
    pub(crate) edges: LinkEdges,
    pub(crate) decoder: Box<dyn Decoder>,
    /// A row for each row of the edges.
    pub(crate) rows: Matrix,
}

impl Embedded {
    fn ranking<'r>(&'r self, ends: &'r [End], max: usize) -> Ranking<'r> {
        let (edges, decoder, embeddings) = (&self.edges, &*self.decoder, &self.rows);
        Ranking { processor: self.processor, edges, decoder, embeddings, ends, max }
    }

    /// Computes all metrics of rankings on the parts that validate and test.
    ///
    /// # Errors
    /// Almost all pairs have an edge, or `watch` stops the work.
    pub(crate) fn scores(
        &mut self,
        run: &SavedRun,
        data: &TypedDataset,
        watch: &dyn Progress,
    ) -> Result<Scores> {
        let config = &run.config;
        let chosen = run.blame_config(metric(config, &self.edges))?;
        if chosen.is_pooled() {
            self.edges.draw_pairs(data, config)?;
        }
        let ends = ends(config, &self.edges);
        let ranking = self.ranking(&ends, config.eval_nodes);
        scores_by(run, data, &self.edges, chosen, &mut |part, metrics| {
            watch.check()?;
            Ok(rayon::scope(|_| ranking.scores(part, metrics)))
        })
    }

    /// Writes the pairs of [`Embedded::best`] to `target`, the file `out`.
    ///
    /// # Errors
    /// Those of [`Embedded::best`]; no pair is left, or the file cannot be written.
    pub(crate) fn predict(
        &self,
        data: &TypedDataset,
        of: (&str, End),
        (selection, k): (Selection, usize),
        (target, out): (&Target, &Path),
    ) -> Result<Written> {
        let (best, [names, of_candidates]) = self.best(data, of, selection, k)?;
        let BestLinks { nodes, candidates, scores } = best;
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

    /// The `k` best candidates of each selected node with their scores, the best first, as the
    /// `end` of an edge of the task `relation` (or of the only one, if it is empty), with the names
    /// of the nodes and of the candidates. Known edges are left out, and in a graph of one type the
    /// node itself, so a node may have fewer.
    ///
    /// # Errors
    /// The relation is unknown, or a node or key is unknown.
    pub(crate) fn best(
        &self,
        data: &TypedDataset,
        (relation, end): (&str, End),
        selection: Selection,
        k: usize,
    ) -> Result<(BestLinks, [Names; 2])> {
        let relations = self.edges.relations.iter().map(|of| &of.name[..]);
        let number = find_relation(&data.name, relations, relation)?;
        let of = &self.edges.relations[number];
        let names = [end.other(), end].map(|end| Names::of_type(data, of.types[end as usize], Vec::new()));
        let own = names[0].select(selection, of.candidates[end.other() as usize].len(), &data.name)?;
        let best = rayon::scope(|_| self.top((number, end), &own, k, false));
        let mut found = BestLinks::default();
        own.iter().zip(best).for_each(|(&node, best)| found.extend(node, best));
        Ok((found, names))
    }

    /// Writes the embeddings of nodes of the type `node_type` (or of the first, if it is empty) to
    /// `target`, the file `out`, with their keys.
    ///
    /// # Errors
    /// The type has no rows, a node or key is unknown, or the file cannot be written.
    pub(crate) fn embed(
        &self,
        data: &TypedDataset,
        node_type: &str,
        selection: Selection,
        (target, out): (&Target, &Path),
    ) -> Result<Written> {
        let edges = &self.edges;
        let name_of = |t: usize| data.nodes[t].name.as_str();
        let found = edges.types.iter().find(|(t, _)| node_type.is_empty() || name_of(*t) == node_type);
        let Some((t, range)) = found else {
            let known: Vec<&str> = edges.types.iter().map(|(t, _)| name_of(*t)).collect();
            let known = known.join(", ");
            return Err(Error::usage(format!("node type '{node_type}' has no embeddings; known: {known}")));
        };
        let names = Names::of_type(data, *t, Vec::new());
        let nodes = names.select(selection, range.len(), &data.name)?;
        let values = rayon::scope(|_| self.rows_of(range, &nodes));
        let (count, cols) = (nodes.len(), values.num_cols());
        let identity = Some(names.identity(&nodes));
        let values = Values::Embeddings(values.view().host().to_vec());
        target.write(&Predictions { nodes, cols, values, identity })?;
        Ok(Written::of_own(out, [count, cols], "embeddings"))
    }
}

impl Embedded {
    /// Embeddings of nodes whose rows are in `range`.
    fn rows_of(&self, range: &Range<NodeId>, nodes: &[NodeId]) -> Matrix {
        let rows: Vec<NodeId> = nodes.iter().map(|v| v + range.start).collect();
        let mut values = Matrix::default();
        gather_rows(self.processor, self.rows.view(), &rows, &mut values);
        values
    }
}

impl OpenLinks for Embedded {
    fn relations(&self) -> Vec<(String, [usize; 2])> {
        let number = |t: usize| self.edges.types.iter().position(|of| of.0 == t).unwrap_or_default();
        self.edges.relations.iter().map(|of| (of.name.clone(), of.types.map(number))).collect()
    }

    fn width(&self) -> usize {
        self.rows.num_cols()
    }

    fn top(
        &self,
        (relation, end): (usize, End),
        nodes: &[NodeId],
        k: usize,
        include_known: bool,
    ) -> Vec<Vec<(NodeId, f32)>> {
        let of = &self.edges.relations[relation];
        let [fixed, replaced] = [end.other(), end].map(|end| of.candidates[end as usize].start);
        let rows: Vec<NodeId> = nodes.iter().map(|v| v + fixed).collect();
        let known = (!include_known).then_some(&self.edges.known);
        // in a graph of one type, a node is no candidate of its own
        let is_one_type = self.edges.relations.len() == 1 && of.candidates[0] == of.candidates[1];
        let leaves_own = is_one_type && !include_known;
        let more = usize::from(leaves_own);
        let mut best = self.ranking(&[], 0).top(known, (relation as u32, end), &rows, k + more);
        for (own, best) in rows.iter().zip(&mut best).filter(|_| leaves_own) {
            best.retain(|(row, _)| row != own);
            best.truncate(k);
        }
        best.iter_mut().flatten().for_each(|(row, _)| *row -= replaced);
        best
    }

    fn scores(&self, relation: usize, pairs: &[Edge]) -> Vec<f32> {
        let [sources, destinations] = &self.edges.relations[relation].candidates;
        let rows: Vec<Edge> =
            pairs.iter().map(|(u, v)| (u + sources.start, v + destinations.start)).collect();
        let pass = Pass { backend: self.processor, training: false, key: 0 };
        let scored = Scored { decoder: &*self.decoder, pass, embeddings: self.rows.view() };
        scored.as_ranked(relation as u32, destinations, &rows)
    }

    fn embeddings(&self, node_type: usize, nodes: &[NodeId]) -> Matrix {
        self.rows_of(&self.edges.types[node_type].1, nodes)
    }
}

/// Number of the relation of this name among those of a dataset, or of the only one if the name is
/// empty.
///
/// # Errors
/// The relation is unknown, or there are several and the name is empty.
pub(crate) fn find_relation<'n>(
    dataset: &str,
    mut known: impl Iterator<Item = &'n str> + Clone,
    name: &str,
) -> Result<usize> {
    let names = known.clone().collect::<Vec<_>>();
    match (name, names.len()) {
        ("", 1) => Ok(0),
        ("", _) => {
            let message = format!("it has several relations; choose one of {}", names.join(", "));
            Err(Error::dataset(dataset, message))
        }
        _ => known.position(|of| of == name).ok_or_else(|| {
            Error::usage(format!("relation '{name}' is unknown; known: {}", names.join(", ")))
        }),
    }
}
