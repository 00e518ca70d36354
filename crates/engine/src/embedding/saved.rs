//! Scores, best candidates and embeddings of a saved run.

use std::{collections::BTreeMap, path::Path};

use graphmill_core::{End, NodeId, progress::Progress};
use graphmill_data::typed::TypedDataset;
use graphmill_nn::{Matrix, backend::Cpu};

use super::{
    batch::ends, edges::LinkEdges, learner::gather, model::TableModel, position::assign, ranking::Ranking,
    trainer::metric,
};
use crate::{
    Error, Result, TrainConfig,
    checkpoint::load_params,
    config::embedding::is_table,
    link::LinkMetric,
    predictions::{Predictions, Target, Values},
    record::{OTHER_DATASET_HINT, Origin},
    saved::{PartScores, SavedRun, Scores, Selection, Written, keys::Names, links::BestLinks},
};

/// Cutoffs of the metrics that a table of scores has.
const CUTOFFS: [usize; 3] = [1, 10, 20];

/// A run directory that holds a table of embeddings.
#[derive(Clone, Copy)]
pub struct SavedEmbedding<'r> {
    run: &'r SavedRun,
}

/// Edges of a dataset with the model of a run.
struct Loaded {
    edges: LinkEdges,
    model: TableModel,
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
        let data = super::open(path)?;
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

    /// Reads the edges of the run's tasks, and loads the model with its embeddings.
    fn load(&self, data: &TypedDataset) -> Result<Loaded> {
        let edges = LinkEdges::new(data, self.config())?;
        let mut model = self.run.blame_config(TableModel::new(self.config(), &edges))?;
        let file = self.run.model_file()?;
        assign(&file, &load_params(&file)?, &mut model)?;
        rayon::scope(|_| {
            model.embeddings(&Cpu::default());
        });
        Ok(Loaded { edges, model })
    }

    /// Computes all metrics of rankings on each part of the split.
    ///
    /// # Errors
    /// The model cannot be read or does not fit the dataset, or `watch` stops the work.
    pub fn scores(&self, data: &TypedDataset, watch: &dyn Progress) -> Result<Scores> {
        let Loaded { mut edges, model } = self.load(data)?;
        let chosen = self.run.blame_config(metric(self.config(), &edges))?;
        if chosen.is_pooled() {
            edges.draw_pairs(data, self.config())?;
        }
        let mut metrics = vec![chosen.clone()];
        let all = CUTOFFS.into_iter().flat_map(LinkMetric::all);
        // lists only for tasks of lists: metrics of one kind are not comparable with the other
        metrics.extend(all.filter(|metric| metric.is_of_lists() == chosen.is_of_lists()));
        let ends = ends(self.config(), &edges);
        let ranking = Ranking {
            edges: &edges,
            decoder: &*model.decoder,
            embeddings: model.last_embeddings(),
            ends: &ends,
            max: self.config().eval_nodes,
        };
        let (mut parts, mut test) = (Vec::new(), None);
        for (number, part) in ["train", "valid", "test"].into_iter().enumerate() {
            watch.check()?;
            // training edges are known: their ranks say nothing about new edges
            if number == 0 || edges.parts[number].is_empty() {
                continue;
            }
            let (scores, nodes) = rayon::scope(|_| ranking.scores(number, &metrics));
            if part == "test" {
                test = scores.get(&chosen.name()).copied();
            }
            let scores: BTreeMap<String, Option<f64>> =
                scores.into_iter().map(|(name, score)| (name, Some(score))).collect();
            parts.push(PartScores { part, nodes, scores, by_class: None, diagnostics: None });
        }
        Ok(Scores {
            run: self.run.dir.clone(),
            dataset: data.name.clone(),
            same_dataset: Some(true),
            rescaled: None,
            propagation: None,
            metric: chosen.name(),
            test,
            parts,
        })
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
        (relation, end): (&str, End),
        selection: Selection,
        k: usize,
        out: &Path,
    ) -> Result<Written> {
        let target = Target::new(out)?;
        target.check_columns()?;
        let (best, [names, of_candidates]) = self.best_with(data, (relation, end), selection, k)?;
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

    /// The pairs that [`SavedEmbedding::predict`] writes.
    ///
    /// # Errors
    /// As for [`SavedEmbedding::predict`].
    pub fn best(
        &self,
        data: &TypedDataset,
        (relation, end): (&str, End),
        selection: Selection,
        k: usize,
    ) -> Result<BestLinks> {
        Ok(self.best_with(data, (relation, end), selection, k)?.0)
    }

    /// The best pairs, with the names of the nodes and of the candidates.
    fn best_with(
        &self,
        data: &TypedDataset,
        (relation, end): (&str, End),
        selection: Selection,
        k: usize,
    ) -> Result<(BestLinks, [Names; 2])> {
        let Loaded { edges, model } = self.load(data)?;
        let number = find_relation(data, &edges, relation)?;
        let of = &edges.relations[number];
        let [fixed, replaced] = [end.other(), end].map(|end| &of.candidates[end as usize]);
        let names = [end.other(), end].map(|end| Names::of_type(data, of.types[end as usize], Vec::new()));
        let own = names[0].select(selection, fixed.len(), &data.name)?;
        let rows: Vec<NodeId> = own.iter().map(|v| v + fixed.start).collect();
        let ranking = Ranking {
            edges: &edges,
            decoder: &*model.decoder,
            embeddings: model.last_embeddings(),
            ends: &[],
            max: 0,
        };
        let best = rayon::scope(|_| ranking.top(&edges.known, (number as u32, end), &rows, k));
        let mut found = BestLinks::default();
        for (&node, best) in own.iter().zip(best) {
            found.extend(node, best.into_iter().map(|(row, score)| (row - replaced.start, score)));
        }
        Ok((found, names))
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
        let Loaded { edges, model } = self.load(data)?;
        let name_of = |t: usize| data.nodes[t].name.as_str();
        let found = edges.types.iter().find(|(t, _)| node_type.is_empty() || name_of(*t) == node_type);
        let Some((t, range)) = found else {
            let known: Vec<&str> = edges.types.iter().map(|(t, _)| name_of(*t)).collect();
            let known = known.join(", ");
            return Err(Error::usage(format!("node type '{node_type}' has no embeddings; known: {known}")));
        };
        let names = Names::of_type(data, *t, Vec::new());
        let nodes = names.select(selection, range.len(), &data.name)?;
        let rows: Vec<NodeId> = nodes.iter().map(|v| v + range.start).collect();
        let mut values = Matrix::default();
        gather(model.last_embeddings(), &rows, &mut values);
        let (count, cols) = (nodes.len(), values.num_cols());
        let identity = Some(names.identity(&nodes));
        let values = Values::Embeddings(values.view().host().to_vec());
        target.write(&Predictions { nodes, cols, values, identity })?;
        Ok(Written::of_own(out, [count, cols], "embeddings"))
    }
}

/// Number of a relation.
fn find_relation(data: &TypedDataset, edges: &LinkEdges, name: &str) -> Result<usize> {
    let names = || edges.relations.iter().map(|of| of.name.as_str()).collect::<Vec<_>>().join(", ");
    match (name, &edges.relations[..]) {
        ("", [_]) => Ok(0),
        ("", _) => {
            let message = format!("it has several relations; choose one of {}", names());
            Err(Error::dataset(&data.name, message))
        }
        (name, all) => all
            .iter()
            .position(|of| of.name == name)
            .ok_or_else(|| Error::usage(format!("relation '{name}' is unknown; known: {}", names()))),
    }
}
