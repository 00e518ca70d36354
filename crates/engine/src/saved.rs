//! A finished (or interrupted) run, opened again: to score its model or to predict with it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use graphmill_graph::{Dataset, NodeId, external::Watch, npy, reorder};
use graphmill_nn::{Backend, Matrix, backend::Cpu, metric, model::Model};
use rayon::prelude::*;
use serde::Serialize;

use crate::{
    Error, Result, RunDir, TrainConfig, build, checkpoint,
    evaluate::{Inference, Output, score},
    memory,
    nodes::some,
    tiers::Whole,
};

/// A run directory with a model in it.
pub struct SavedRun {
    dir: PathBuf,
    config: TrainConfig,
    last: bool,
}

/// What `predict` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `N` classes (i64), or `N x C` zeros and ones (u8) where nodes have several labels.
    Classes,
    /// `N x C` probabilities (f32).
    Probabilities,
    /// `N x H` last hidden rows (f32), see [`Output::Embeddings`].
    Embeddings,
}

/// What [`SavedRun::predict`] has written.
#[derive(Clone, Debug, Serialize)]
pub struct Written {
    /// The file.
    pub out: PathBuf,
    /// `N`.
    pub rows: usize,
    /// Values per row.
    pub cols: usize,
    /// "classes", "probabilities" or "embeddings".
    pub kind: &'static str,
}

/// The scores of a model.
#[derive(Clone, Debug, Serialize)]
pub struct Scores {
    /// The run.
    pub run: PathBuf,
    /// The dataset's name.
    pub dataset: String,
    /// The score the run was judged by.
    pub metric: String,
    /// Its value on the test nodes.
    pub test: Option<f64>,
    /// All scores, part by part.
    pub parts: Vec<PartScores>,
}

/// The scores on one part of the split.
#[derive(Clone, Debug, Serialize)]
pub struct PartScores {
    /// "train", "valid" or "test".
    pub part: &'static str,
    /// How many nodes were scored: all it has, or as many as the run's --eval-nodes says.
    pub nodes: usize,
    /// Every metric there is, by name; none where it is not defined.
    pub scores: BTreeMap<String, Option<f64>>,
}

impl SavedRun {
    /// Opens the run in `dir`; with `last` its last checkpoint rather than its best model.
    ///
    /// # Errors
    /// There is no run, or its configuration cannot be read.
    pub fn open(dir: &Path, last: bool) -> Result<Self> {
        let file = RunDir::config_path(dir);
        if !file.exists() {
            return Err(Error::format(
                dir,
                "config.toml",
                "there is no such file: this is not a run directory; name the one that train --out wrote",
            ));
        }
        let mut config = TrainConfig::default();
        config.read_file(&file)?;
        config.validate().map_err(|error| Error::format(&file, "options", error.to_string()))?;
        Ok(Self { dir: dir.to_path_buf(), config, last })
    }

    /// The run's configuration.
    pub fn config(&self) -> &TrainConfig {
        &self.config
    }

    /// The run's dataset, or another one in its place.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn dataset(&self, other: Option<&Path>) -> Result<Dataset> {
        match other {
            Some(path) => Ok(Dataset::open(path)?),
            None => build::open_dataset(&self.config),
        }
    }

    /// The model with its saved weights, for a dataset of the same widths.
    ///
    /// # Errors
    /// The weights cannot be read or do not fit the dataset.
    pub fn model(&self, data: &Dataset) -> Result<Model> {
        let mut model = self.own(build::model(&self.config, data))?;
        let file =
            if self.last { RunDir::last_model(&self.dir)? } else { RunDir::best_model_path(&self.dir) };
        if !file.exists() {
            let message = "no epoch of this run has ended, so there is no best model yet: go on with it by train --resume";
            return Err(Error::format(file, "file", message));
        }
        checkpoint::load_model(&file, &mut model)?;
        Ok(model)
    }

    /// Every metric on every part of the split.
    ///
    /// # Errors
    /// The model cannot be read or does not fit; `watch` ends the work.
    pub fn scores(&self, data: &Dataset, watch: &dyn Watch) -> Result<Scores> {
        let model = self.model(data)?;
        let judged_by = self.own(build::metric(&self.config, data))?;
        let backend = Cpu { precision: build::precision(&self.config) };
        let whole = self.own(Whole::of(&self.config, data))?;
        let symmetric = build::symmetric(&model, data);
        let mut inference =
            Inference::new(&data.graph, &whole, symmetric.as_deref(), &backend, self.config.eval_chunk)
                .taking(self.own(build::exact(&self.config, data))?)
                .watched(watch);
        let mut logits = Matrix::default();
        let mut parts = Vec::new();
        let mut test = None;
        for (part, nodes) in data.split.parts() {
            let nodes = &some(nodes, self.config.eval_nodes)[..];
            self.own(inference.run(&model, nodes, Output::Logits, &mut logits))?;
            let scores: BTreeMap<String, Option<f64>> = metric::TABLE
                .iter()
                .map(|entry| (entry.name.to_string(), score(entry.make, &logits, data, nodes)))
                .collect();
            if part == "test" {
                test = scores[judged_by.name];
            }
            parts.push(PartScores { part, nodes: nodes.len(), scores });
        }
        Ok(Scores {
            run: self.dir.clone(),
            dataset: data.name.clone(),
            metric: judged_by.name.to_string(),
            test,
            parts,
        })
    }

    /// Writes predictions for the nodes listed in `nodes` (one a line, or a `.npy` of integers; all
    /// nodes where there is no list) to the `.npy` file `out`. Ids are those of `data`, or with `original` those its nodes had
    /// before it was reordered; then all nodes come in the order of these.
    ///
    /// # Errors
    /// The model or the list cannot be read, a node is outside the graph, `original` ids are asked for and there are none,
    /// or `out` cannot be written; `watch` ends the work.
    pub fn predict(
        &self,
        data: &Dataset,
        nodes: Option<&Path>,
        original: bool,
        kind: Kind,
        out: &Path,
        watch: &dyn Watch,
    ) -> Result<Written> {
        let original = original.then(|| renumbered(data)).transpose()?;
        let mut nodes: Vec<NodeId> = match nodes {
            Some(file) => read_nodes(file, data.num_nodes())?,
            None => {
                let all = TrainConfig { eval_nodes: 0, ..self.config.clone() };
                self.own(memory::check(&all, data))?;
                (0..data.num_nodes() as NodeId).collect()
            }
        };
        if let Some(new) = original {
            nodes.iter_mut().for_each(|v| *v = new[*v as usize]);
        }
        let model = self.model(data)?;
        let multi = data.labels.is_multi();
        let output = if kind == Kind::Embeddings { Output::Embeddings } else { Output::Logits };
        let backend = Cpu { precision: build::precision(&self.config) };
        let whole = self.own(Whole::of(&self.config, data))?;
        let symmetric = build::symmetric(&model, data);
        let mut rows = Matrix::default();
        let mut inference =
            Inference::new(&data.graph, &whole, symmetric.as_deref(), &backend, self.config.eval_chunk)
                .taking(self.own(build::exact(&self.config, data))?)
                .watched(watch);
        self.own(inference.run(&model, &nodes, output, &mut rows))?;
        let (count, cols) = (rows.num_rows(), rows.num_cols());
        let (cols, kind) = match kind {
            Kind::Classes if multi => {
                let member: Vec<u8> = rows.view().host().par_iter().map(|&x| u8::from(x > 0.0)).collect();
                npy::write(out, &member, &[count, cols])?;
                (cols, "classes")
            }
            Kind::Classes => {
                let classes: Vec<i64> =
                    rows.view().host().par_chunks_exact(cols).map(first_largest).collect();
                npy::write(out, &classes, &[count])?;
                (1, "classes")
            }
            Kind::Probabilities => {
                if multi {
                    backend.sigmoid(rows.view_mut())
                } else {
                    backend.softmax(rows.view_mut())
                }
                npy::write(out, rows.view().host(), &[count, cols])?;
                (cols, "probabilities")
            }
            Kind::Embeddings => {
                npy::write(out, rows.view().host(), &[count, cols])?;
                (cols, "embeddings")
            }
        };
        Ok(Written { out: out.to_path_buf(), rows: count, cols, kind })
    }

    /// Names the run's configuration as the place of a wrong option: nobody wrote one on the command line.
    fn own<T>(&self, built: Result<T>) -> Result<T> {
        built.map_err(|error| match error {
            Error::Usage(message) => Error::format(RunDir::config_path(&self.dir), "options", message),
            other => other,
        })
    }
}

/// The id in `data` of every original id.
fn renumbered(data: &Dataset) -> Result<Vec<NodeId>> {
    match &data.original_ids {
        Some(ids) => Ok(reorder::inverse(ids)?),
        None => Err(Error::dataset(&data.name, "it was not reordered: its ids are the original ones")),
    }
}

/// The first of the largest logits.
fn first_largest(logits: &[f32]) -> i64 {
    let mut best = 0;
    for (class, &x) in logits.iter().enumerate() {
        if x > logits[best] {
            best = class;
        }
    }
    best as i64
}

/// Reads a list of nodes below `num_nodes`.
pub(crate) fn read_nodes(file: &Path, num_nodes: usize) -> Result<Vec<NodeId>> {
    let check = |place: String, id: i64| match NodeId::try_from(id) {
        Ok(v) if (v as usize) < num_nodes => Ok(v),
        _ => Err(Error::format(file, place, format!("node {id} is outside the graph's {num_nodes} nodes"))),
    };
    if file.extension().is_some_and(|extension| extension == "npy") {
        let ids = npy::open(file)?.read_as_i64()?;
        return ids.into_iter().enumerate().map(|(i, id)| check(format!("entry {i}"), id)).collect();
    }
    let text = std::fs::read_to_string(file).map_err(|e| Error::io(file, "read", e))?;
    let lines =
        text.lines().enumerate().map(|(i, line)| (i + 1, line.split('#').next().unwrap_or("").trim()));
    lines
        .filter(|(_, line)| !line.is_empty())
        .map(|(i, line)| {
            let place = format!("line {i}");
            let id = line
                .parse()
                .map_err(|_| Error::format(file, &place, format!("'{line}' is not a node id")))?;
            check(place, id)
        })
        .collect()
}
