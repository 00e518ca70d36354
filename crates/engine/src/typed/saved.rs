//! Scores and predictions of a saved run on several types.

use std::{collections::BTreeMap, path::Path};

use graphmill_core::{NodeId, node_order, progress::Progress};
use graphmill_data::{
    partition::TypedPartitionDir,
    typed::{TypedDataset, Verify, open_any},
};
use graphmill_nn::{
    Matrix,
    backend::Cpu,
    backend::ops::Gather,
    metric,
    typed::{TABLE, TypedModel},
};
use rayon::prelude::*;

use super::{build, edges, inference::TypedInference, position::assign, task::TypedTask, tiers};
use crate::{
    Error, Result, TrainConfig,
    checkpoint::load_params,
    edge_rows,
    inference::{Output, class_report, diagnostics, fixed_sample, score_labels, select},
    predictions::{Identity, Predictions, Target},
    record::{OTHER_DATASET_HINT, Origin, TypedOrigin},
    saved::{EmbedOptions, Kind, PartScores, Propagation, SavedRun, Scores, Selection, Written, keys::Names},
};

/// A run directory that holds a model of several types.
#[derive(Clone, Copy)]
pub struct SavedTypedRun<'r> {
    pub(super) run: &'r SavedRun,
}

/// A task of a dataset with the model of a run.
pub(super) struct Loaded {
    pub(super) task: TypedTask,
    pub(super) model: TypedModel,
}

impl<'r> SavedTypedRun<'r> {
    /// The run, if it was trained on nodes by a model of types.
    pub fn of(run: &'r SavedRun) -> Option<Self> {
        let has_model = TABLE.get(&run.config.model).is_some();
        (has_model && !run.learns_events() && Self::of_links(run).is_none()).then_some(Self { run })
    }

    /// The run's configuration.
    pub(crate) fn config(&self) -> &'r TrainConfig {
        &self.run.config
    }

    /// Opens the run's dataset, or the `other` one.
    ///
    /// # Errors
    /// The dataset cannot be read; the run's own dataset was in memory, has moved or has changed.
    pub fn dataset(&self, other: Option<&Path>) -> Result<TypedDataset> {
        let (run, origin) = (&self.run.dir, self.run.origin.as_ref());
        let path = match other {
            Some(path) => return edge_rows::as_nodes(open_any(path, Verify::Once)?, self.config()),
            None => Origin::locate_of(origin, run, self.config())?,
        };
        let Some(path) = path else {
            let message = "its dataset is not recorded; pass it with --dataset DATASET";
            return Err(Error::run(run, message));
        };
        if TypedPartitionDir::is_in(path) {
            let message = format!(
                "it was trained on the parts in {}; pass the dataset that they were made of \
                 {OTHER_DATASET_HINT}",
                path.display()
            );
            return Err(Error::run(run, message));
        }
        let data = open_any(path, Verify::Once)?;
        if self.is_own(&data) == Some(false) {
            let message = format!(
                "the dataset in {} has changed since the run; restore it, or pass one explicitly to use it \
                 anyway {OTHER_DATASET_HINT}",
                path.display()
            );
            return Err(Error::run(run, message));
        }
        edge_rows::as_nodes(data, self.config())
    }

    /// Returns true if rows of the run's task are nodes besides those of `data`, which
    /// [`SavedTypedRun::dataset`] adds.
    pub fn adds_rows(&self, data: &TypedDataset) -> bool {
        edge_rows::adds_rows(data, self.config())
    }

    /// Returns true if `data` is the run's training dataset, by its checksum; `None` if the run did
    /// not record it.
    pub(super) fn is_own(&self, data: &TypedDataset) -> Option<bool> {
        let recorded = self.run.origin.as_ref()?.dataset.checksum.as_ref()?;
        Some(data.checksum.as_ref() == Some(recorded))
    }

    /// Prepares the run's task on `data`, and loads the model.
    pub(super) fn load(&self, data: &TypedDataset) -> Result<Loaded> {
        let own = self.run.origin.as_ref().and_then(|origin| origin.typed.as_ref());
        if let Some(own) = own {
            self.check_fit(data, own)?;
        }
        let task = TypedTask::new(data, own.map_or(&self.config().task, |own| &own.task))?;
        let mut task = task.with_edges(self.config(), data)?;
        if let Some(at) = self.run.at() {
            task.times = task.times.map(|times| times.at_time(at));
        }
        task.label_columns = task.label_columns.map(|columns| columns.at_scale(self.run.target_scale()));
        let classes = self.run.origin.as_ref().map(|origin| origin.dataset.classes);
        if let Some(classes) = classes.filter(|&classes| classes != task.labels.classes()) {
            let message = format!(
                "its task has {} {}, but the model was trained on {classes}; pass a dataset with those of \
                 the run's",
                task.labels.classes(),
                if task.labels.is_values() { "targets" } else { "classes" }
            );
            return Err(Error::dataset(&data.name, message));
        }
        if task.labels.columns() != self.run.columns() {
            let message = "its task has other columns of classes than the run's; pass a dataset with those \
                           of the run's";
            return Err(Error::dataset(&data.name, message));
        }
        if task.labels.is_values() != self.run.target_scale().is_some() {
            let (now, own) = match task.labels.is_values() {
                true => ("values", "classes"),
                false => ("classes", "values"),
            };
            let message = format!(
                "its task has {now}, but the model was trained on {own}; pass a dataset with those of the \
                 run's"
            );
            return Err(Error::dataset(&data.name, message));
        }
        task.learned_in = build::learned_rows_in(self.config(), &task, &std::env::temp_dir());
        let mut model = self.run.blame_config(build::model(self.config(), &task))?;
        let file = self.run.model_file()?;
        assign(&file, &load_params(&file)?, &mut model)?;
        Ok(Loaded { task, model })
    }

    /// Names of the classes of the run's dataset, or of `task` if they are not recorded.
    pub(super) fn classes(&self, task: &TypedTask) -> Vec<String> {
        let origin = self.run.origin.as_ref().and_then(|origin| origin.typed.as_ref());
        origin.map_or(&task.classes, |origin| &origin.classes).clone()
    }

    /// Refuses data of other types, widths or scales than those of the run's dataset, and other
    /// nodes for a type with learned rows.
    pub(super) fn check_fit(&self, data: &TypedDataset, own: &TypedOrigin) -> Result<()> {
        let refuse = |what: String| {
            let message = format!("{what}; pass a dataset with the types and features of the run's");
            Err(Error::dataset(&data.name, message))
        };
        let now = TypedOrigin::new(data, &own.task);
        let names = |of: &TypedOrigin| -> Vec<String> {
            of.node_types.iter().map(|node| node.name.clone()).chain(of.edge_types.clone()).collect()
        };
        if names(&now) != names(own) {
            return refuse(format!(
                "its types are {}, but the model was trained on {}",
                names(&now).join(", "),
                names(own).join(", ")
            ));
        }
        let reads_edges = edges::reads(&self.config().model);
        let widths = now.edge_widths.iter().zip(&own.edge_widths).zip(&own.edge_types);
        if let Some(((now, own), name)) = { widths }.find(|((now, own), _)| reads_edges && now != own) {
            return refuse(format!(
                "edges of type '{name}' have {now} features, but the model was trained on {own}"
            ));
        }
        for (now, own) in now.node_types.iter().zip(&own.node_types) {
            let name = &own.name;
            if now.width != own.width {
                return refuse(format!(
                    "type '{name}' has {} features, but the model was trained on {}",
                    now.width, own.width
                ));
            }
            if now.normalization != own.normalization {
                return refuse(format!(
                    "the features of type '{name}' have another scale than those of the run's dataset"
                ));
            }
            if own.width == 0 && self.is_own(data) == Some(false) {
                return refuse(format!(
                    "type '{name}' has no features, so the model has a learned row for each of its nodes in \
                     the run's dataset"
                ));
            }
        }
        Ok(())
    }

    /// Inference on a loaded task.
    fn inference<'t>(&self, data: &TypedDataset, task: &'t TypedTask) -> Result<TypedInference<'t>> {
        let sampler = self.run.blame_config(build::inference_sampler(self.config(), task))?;
        TypedInference::new(self.config(), task, &*sampler, tiers::whole(self.config(), data, task)?)
    }

    /// Computes all metrics on each part of the split.
    ///
    /// # Errors
    /// The model cannot be read or does not fit the dataset, or `watch` stops the work.
    pub fn scores(&self, data: &TypedDataset, watch: &dyn Progress) -> Result<Scores> {
        let loaded = self.load(data)?;
        let Loaded { task, model } = &loaded;
        let chosen = self.run.blame_config(build::metric(self.config(), task))?;
        let mut inference = self.inference(data, task)?.watched(watch);
        let propagated = self.propagated(data, &loaded, &mut inference, watch)?;
        let (mut logits, mut parts, mut test) = (Matrix::default(), Vec::new(), None);
        let table = metric::table(task.labels.is_values());
        for (part, nodes) in task.split.parts() {
            let nodes = &fixed_sample(nodes, self.config().eval_nodes)[..];
            match &propagated {
                Some(all) => logits = select(all, nodes),
                None => {
                    // no scored node has its own label as input
                    inference.hide_labels(part == "train");
                    inference.run(model, nodes, Output::Logits, &mut logits)?;
                    self.run.undo_scale(&mut logits);
                }
            }
            let score = |make| score_labels(make, &logits, &task.labels, nodes);
            let scores: BTreeMap<String, Option<f64>> =
                table.iter().map(|entry| (entry.name.to_string(), score(entry.make))).collect();
            if part == "test" {
                test = scores[chosen.name];
            }
            let by_class = class_report(&logits, &task.labels, nodes, &task.classes);
            // propagated scores of classes have no calibrated probabilities
            let has_diagnostics = propagated.is_none() || task.labels.is_values();
            let diagnostics = diagnostics(part, &logits, &task.labels, nodes, &task.classes);
            let diagnostics = diagnostics.filter(|_| has_diagnostics);
            parts.push(PartScores { part, nodes: nodes.len(), scores, by_class, diagnostics });
        }
        Ok(Scores {
            run: self.run.dir.clone(),
            dataset: data.name.clone(),
            same_dataset: self.is_own(data),
            rescaled: None,
            propagation: self.run.propagation().map(Propagation::record),
            metric: chosen.name.to_string(),
            test,
            parts,
        })
    }

    /// Writes predictions of nodes of the task's type to `out` in the format of its ending. Tables
    /// have the keys of the nodes and the names of the classes, if the dataset has them. With
    /// `original`, ids are those from before the dataset was reordered.
    ///
    /// # Errors
    /// The model or a list cannot be read, a node or key is unknown, the dataset was not reordered,
    /// `out` cannot be written, or `watch` stops the work.
    pub fn predict(
        &self,
        data: &TypedDataset,
        selection: Selection,
        original: bool,
        kind: Kind,
        out: &Path,
        watch: &dyn Progress,
    ) -> Result<Written> {
        let target = Target::new(out)?;
        self.run.check_kind(kind)?;
        self.run.propagation().map_or(Ok(()), |propagation| propagation.check_kind(kind))?;
        let past = self.run.types_as_of(data)?;
        let data = past.as_ref().unwrap_or(data);
        let loaded = self.load(data)?;
        let Loaded { task, model } = &loaded;
        let mut names = Names::of_type(data, task.node_type, self.classes(task));
        names.columns = self.run.columns().to_vec();
        let by_original = original.then(|| ids_by_original(data, task.node_type)).transpose()?;
        let is_all = matches!(selection, Selection::All);
        let (mut requested, by_key) = names.find(selection, task.num_nodes(), &data.name)?;
        let mut nodes = match by_original {
            Some(new) if !by_key => requested.iter().map(|&v| new[v as usize]).collect(),
            _ => requested.clone(),
        };
        let time = data.nodes[task.node_type].time.as_ref();
        self.run.keep_existing(time, is_all, (&mut requested, &mut nodes))?;
        if nodes.is_empty() {
            return Err(Error::dataset(&data.name, "no node is selected; select some"));
        }
        let output = if kind == Kind::Embeddings { Output::Embeddings } else { Output::Logits };
        let mut inference = self.inference(data, task)?.watched(watch);
        let identity = Identity { ids: requested.clone(), ..names.identity(&nodes) };
        let found = match self.propagated(data, &loaded, &mut inference, watch)? {
            Some(all) => self.run.scaled_values(kind, task.labels.is_multi(), select(&all, &nodes)),
            None => {
                let mut rows = Matrix::default();
                rows_of(&nodes, &mut rows, |nodes, rows| inference.run(model, nodes, output, rows))?;
                self.run.values(kind, task.labels.is_multi(), rows)
            }
        };
        let (cols, values) = found.map_err(|error| error.with_row_name(|row| identity.row_name(row)))?;
        let (count, kind) = (nodes.len(), self.run.name_of(kind));
        target.write(&Predictions { nodes: requested, cols, values, identity: Some(identity) })?;
        let (out, same_dataset) = (out.to_path_buf(), self.is_own(data));
        Ok(Written { out, rows: count, cols, kind, same_dataset, rescaled: None })
    }
}

impl SavedTypedRun<'_> {
    /// Writes embeddings of nodes of the task's type, as of the time of `options` if it has one.
    ///
    /// # Errors
    /// As for [`SavedTypedRun::predict`].
    pub fn embed(
        &self,
        data: &TypedDataset,
        selection: Selection,
        options: EmbedOptions,
        out: &Path,
        watch: &dyn Progress,
    ) -> Result<Written> {
        let run = &*self.run.seen_from(options.at)?;
        SavedTypedRun { run }.predict(data, selection, false, Kind::Embeddings, out, watch)
    }
}

/// Node id of each original id in the node type number `t` of `data`.
///
/// # Errors
/// The dataset was not reordered.
fn ids_by_original(data: &TypedDataset, t: usize) -> Result<Vec<NodeId>> {
    match &data.nodes[t].original_ids {
        Some(ids) => Ok(node_order::inverse(ids)?),
        None => Err(Error::dataset(&data.name, "it was not reordered; leave out --original-ids")),
    }
}

/// Rows of `nodes`, which may repeat, by `compute`, which takes distinct nodes.
pub(super) fn rows_of(
    nodes: &[NodeId],
    out: &mut Matrix,
    compute: impl FnOnce(&[NodeId], &mut Matrix) -> Result<()>,
) -> Result<()> {
    let mut distinct = nodes.to_vec();
    distinct.par_sort_unstable();
    distinct.dedup();
    if distinct == nodes {
        return compute(nodes, out);
    }
    let mut rows = Matrix::default();
    compute(&distinct, &mut rows)?;
    let place = |v: &NodeId| distinct.partition_point(|other| other < v) as NodeId;
    let ids: Vec<NodeId> = nodes.par_iter().map(place).collect();
    out.resize(nodes.len(), rows.num_cols());
    Gather { src: rows.view(), ids: &ids, dst: out.view_mut() }.run(&Cpu::default());
    Ok(())
}
