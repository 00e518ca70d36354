//! A finished (or interrupted) run, opened again: to score its model or to predict with it.

pub mod predictions;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use graphmill_core::{NodeId, node_order, progress::Progress};
use graphmill_data::{Dataset, dataset::Rescaling, npy};
use graphmill_nn::{
    Matrix,
    backend::{Cpu, LossOps},
    metric,
    model::Model,
};
use rayon::prelude::*;
use serde::Serialize;

use crate::{
    Error, Result, RunDir, TrainConfig, build, checkpoint,
    inference::{Inference, Output, score, some},
    memory,
    predictions::{Predictions, Target, Values},
    record::{DatasetRecord, Origin},
    tiers::Whole,
};

/// A run directory with a model in it.
pub struct SavedRun {
    dir: PathBuf,
    config: TrainConfig,
    /// What it was trained on; of older runs what their checkpoint or summary tells.
    origin: Option<Origin>,
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

impl Kind {
    /// Its name.
    fn name(self) -> &'static str {
        match self {
            Self::Classes => "classes",
            Self::Probabilities => "probabilities",
            Self::Embeddings => "embeddings",
        }
    }
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
    /// Whether the dataset is the one that the run was trained on; none of a run that did not
    /// record it.
    pub same_dataset: Option<bool>,
    /// How the features of another dataset were brought to the scale of the run's, where they were.
    pub rescaled: Option<String>,
}

/// The scores of a model.
#[derive(Clone, Debug, Serialize)]
pub struct Scores {
    /// The run.
    pub run: PathBuf,
    /// The dataset's name.
    pub dataset: String,
    /// Whether it is the one that the run was trained on; none of a run that did not record it.
    pub same_dataset: Option<bool>,
    /// How the features of another dataset were brought to the scale of the run's, where they were.
    pub rescaled: Option<String>,
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
        config.check().map_err(|error| Error::format(&file, "options", error.to_string()))?;
        let origin = Origin::of_run(dir, &config)?;
        Ok(Self { dir: dir.to_path_buf(), config, origin, last })
    }

    /// The run's configuration.
    pub fn config(&self) -> &TrainConfig {
        &self.config
    }

    /// The run's dataset, or another one in its place.
    ///
    /// # Errors
    /// It cannot be read; the run's own one was in memory, is no longer where it was, or has
    /// changed.
    pub fn dataset(&self, other: Option<&Path>) -> Result<Dataset> {
        match other {
            Some(path) => Ok(Dataset::open(path)?),
            None => Origin::open_of(self.origin.as_ref(), &self.dir, &self.config),
        }
    }

    /// Whether that is the dataset that the run was trained on, by its checksum; none of a run that
    /// did not record it.
    ///
    /// # Errors
    /// The checksum cannot be computed.
    pub fn is_own(&self, data: &Dataset) -> Result<Option<bool>> {
        let Some(origin) = &self.origin else { return Ok(None) };
        Ok(Some(DatasetRecord::identified(data)?.is_same(&origin.dataset)))
    }

    /// The configuration for work on `data`: features beyond the host budget are read from its own
    /// directory, and those of a dataset in memory from there.
    fn config_for(&self, data: &Dataset) -> TrainConfig {
        let mut config = self.config.clone();
        match data.directory.as_deref().and_then(Path::to_str) {
            Some(path) => config.dataset = path.into(),
            None => {
                config.dataset.clear();
                (config.host_budget, config.cache_ratio) = Default::default();
            }
        }
        config
    }

    /// How rows of `data` are brought to the scale of the features that the run was trained on;
    /// nothing where they are at that scale, or of a run that did not record it.
    fn rescaling(&self, data: &Dataset) -> Result<Option<Rescaling>> {
        let Some(of_run) = self.origin.as_ref().and_then(|origin| origin.features.as_ref()) else {
            return Ok(None);
        };
        let (from, to) = (data.normalization.as_ref(), of_run.normalization.as_ref());
        Rescaling::between(from, to).map_err(|error| Error::dataset(&data.name, error.to_string()))
    }

    /// The feature rows of `data`, at that scale.
    fn rows(&self, config: &TrainConfig, data: &Dataset, rescaling: Option<&Rescaling>) -> Result<Whole> {
        self.own(match rescaling {
            Some(rescaling) => Whole::rescaled(config, data, rescaling.clone()),
            None => Whole::of(config, data),
        })
    }

    /// Refuses data of another width, and with `scored` of other classes, than the run was trained
    /// on.
    fn check_fit(&self, data: &Dataset, scored: bool) -> Result<()> {
        let Some(Origin { dataset: own, .. }) = &self.origin else { return Ok(()) };
        let refuse = |what: String| {
            Err(Error::dataset(
                &data.name,
                format!("{what}; give a dataset like {own}, which the run was trained on"),
            ))
        };
        if data.features.dim > 0 && data.features.dim != own.feature_dim {
            return refuse(format!(
                "its features have {} columns, and the model reads {}",
                data.features.dim, own.feature_dim
            ));
        }
        if scored && (data.labels.classes(), data.labels.is_multi()) != (own.classes, own.multilabel) {
            let kind = |multi| if multi { "labels at once" } else { "classes" };
            return refuse(format!(
                "its nodes have {} {}, and the model tells {} {} apart",
                data.labels.classes(),
                kind(data.labels.is_multi()),
                own.classes,
                kind(own.multilabel)
            ));
        }
        Ok(())
    }

    /// The model with its saved weights, for a dataset of the same widths.
    ///
    /// # Errors
    /// The weights cannot be read or do not fit the dataset.
    pub fn model(&self, data: &Dataset) -> Result<Model> {
        let classes = self.origin.as_ref().map_or(data.labels.classes(), |origin| origin.dataset.classes);
        let mut model = self.own(build::model_of(&self.config, data, classes))?;
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
    pub fn scores(&self, data: &Dataset, watch: &dyn Progress) -> Result<Scores> {
        self.check_fit(data, true)?;
        let model = self.model(data)?;
        let judged_by = self.own(build::metric(&self.config, data))?;
        let backend = Cpu { precision: build::precision(&self.config) };
        let rescaling = self.rescaling(data)?;
        let whole = self.rows(&self.config_for(data), data, rescaling.as_ref())?;
        let symmetric = build::symmetric(&model, data);
        let mut inference =
            Inference::new(&data.graph, &whole, symmetric.as_deref(), &backend, self.config.eval_chunk)
                .taking(self.own(build::inference_neighbors(&self.config, data))?)
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
            same_dataset: self.is_own(data)?,
            rescaled: rescaling.as_ref().map(Rescaling::description),
            metric: judged_by.name.to_string(),
            test,
            parts,
        })
    }

    /// Writes predictions for the nodes listed in `nodes` (one a line, or a `.npy` of integers; all
    /// nodes where there is no list) to `out`, in the format of its ending. Ids are those of
    /// `data`, or with `original` those its nodes had before it was reordered; then all nodes come
    /// in the order of these.
    ///
    /// # Errors
    /// The model or the list cannot be read, a node is outside the graph, `original` ids are asked
    /// for and there are none, or `out` cannot be written; `watch` ends the work.
    pub fn predict(
        &self,
        data: &Dataset,
        nodes: Option<&Path>,
        original: bool,
        kind: Kind,
        out: &Path,
        watch: &dyn Progress,
    ) -> Result<Written> {
        let target = Target::new(out)?;
        self.check_fit(data, false)?;
        let original = original.then(|| renumbered(data)).transpose()?;
        let mut nodes: Vec<NodeId> = match nodes {
            Some(file) => read_nodes(file, data.num_nodes())?,
            None => {
                let all = TrainConfig { eval_nodes: 0, ..self.config.clone() };
                self.own(memory::check(&all, data))?;
                (0..data.num_nodes() as NodeId).collect()
            }
        };
        let asked = nodes.clone();
        if let Some(new) = original {
            nodes.iter_mut().for_each(|v| *v = new[*v as usize]);
        }
        let model = self.model(data)?;
        let multi = self.origin.as_ref().map_or(data.labels.is_multi(), |origin| origin.dataset.multilabel);
        let output = if kind == Kind::Embeddings { Output::Embeddings } else { Output::Logits };
        let backend = Cpu { precision: build::precision(&self.config) };
        let rescaling = self.rescaling(data)?;
        let whole = self.rows(&self.config_for(data), data, rescaling.as_ref())?;
        let symmetric = build::symmetric(&model, data);
        let mut rows = Matrix::default();
        let mut inference =
            Inference::new(&data.graph, &whole, symmetric.as_deref(), &backend, self.config.eval_chunk)
                .taking(self.own(build::inference_neighbors(&self.config, data))?)
                .watched(watch);
        self.own(inference.run(&model, &nodes, output, &mut rows))?;
        let (count, cols) = (rows.num_rows(), rows.num_cols());
        if kind == Kind::Probabilities {
            if multi { backend.sigmoid(rows.view_mut()) } else { backend.softmax(rows.view_mut()) }
        }
        let all = rows.view().host();
        let (cols, values) = match kind {
            Kind::Classes if multi => {
                (cols, Values::Members(all.par_iter().map(|&x| u8::from(x > 0.0)).collect()))
            }
            Kind::Classes => (1, Values::Classes(all.par_chunks_exact(cols).map(first_largest).collect())),
            Kind::Probabilities => (cols, Values::Probabilities(all.to_vec())),
            Kind::Embeddings => (cols, Values::Embeddings(all.to_vec())),
        };
        drop(rows);
        target.write(&Predictions { nodes: asked, cols, values })?;
        let same_dataset = self.is_own(data)?;
        let rescaled = rescaling.as_ref().map(Rescaling::description);
        Ok(Written { out: out.to_path_buf(), rows: count, cols, kind: kind.name(), same_dataset, rescaled })
    }

    /// Names the run's configuration as the place of a wrong option: nobody wrote one on the
    /// command line.
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
        Some(ids) => Ok(node_order::inverse(ids)?),
        None => Err(Error::dataset(&data.name, "it was not reordered: its ids are the original ones")),
    }
}

/// The first of the largest logits.
pub(crate) fn first_largest(logits: &[f32]) -> i64 {
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
