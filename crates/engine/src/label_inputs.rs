//! Labels of training nodes as columns of input rows (`--label-inputs`).
//!
//! # Algorithm
//!
//! An input row is the feature row of a node, on several types of the task's type, followed by one
//! column per output of the model. If the node's label is shown, they have a 1 in the column of its
//! class, of each label of its set, or of its class in each of several columns, or its values at
//! the scale of the loss, whose mean is 0. Else they are zeros, as the columns of a missing class
//! or value are. A training batch hides the labels of its seeds, and those of other training nodes
//! with the probability `1 - R`, so the loss of a seed does not depend on its own label. Inference
//! shows the labels of all training nodes, and of no others.
//!
//! # Source
//!
//! Shi et al., *Masked Label Prediction: Unified Message Passing Model for Semi-Supervised
//! Classification*, IJCAI 2021 (labels as inputs, and their mask); Wang et al., *Bag of Tricks for
//! Node Classification with Graph Neural Networks*, 2021 (labels joined to features).
//!
//! # Cost
//!
//! O(S (F + C)) for a batch of `S` input nodes. Draws are functions of (seed, epoch, batch, node).
//!
//! # Memory
//!
//! One byte per node.
//!
//! # Deviations
//!
//! Shi et al. mask a part of the training nodes for a whole epoch. Here every batch masks its own
//! seeds, so each training node has a loss in each epoch. Labels are joined, as by Wang et al., and
//! not projected to the width of the features and added.

#![forbid(unsafe_code)]

use std::sync::Arc;

use graphmill_core::{
    ClassColumn, Labels, NodeId,
    keyed::{Stream, key},
};
use graphmill_data::Dataset;
use graphmill_loader::Extracted;
use graphmill_nn::{Matrix, regression::TargetScale};
use rayon::prelude::*;

use crate::{Error, Result, TrainConfig, record::DatasetRecord};

/// Part of the keys of the labels that a batch shows.
const SHOWN: u64 = 0x6c61_6265_6c73;
/// Minimum number of rows that a task fills.
const MIN_TASK_LEN: usize = 1 << 10;

/// Number of label columns of the input rows of a model of `classes`.
pub(crate) fn width(config: &TrainConfig, classes: usize) -> usize {
    if config.label_inputs > 0.0 { classes } else { 0 }
}

/// Labels that follow the features of input rows.
#[derive(Clone, Debug)]
pub struct LabelColumns {
    /// Labels of all nodes.
    labels: Labels,
    /// True for training nodes (`V`); empty if no label is shown.
    is_known: Arc<[bool]>,
    /// Scale of values.
    scale: TargetScale,
    /// Number of columns, `C`.
    width: usize,
    /// Share of the labels of other nodes that a training batch shows.
    share: f64,
    seed: u64,
}

impl LabelColumns {
    /// Labels of the training nodes of `data` for a model of `outputs`, if the run has
    /// `--label-inputs`.
    ///
    /// # Errors
    /// `data` has more classes than the model, or other targets.
    pub fn new(config: &TrainConfig, data: &Dataset, outputs: usize) -> Result<Option<Self>> {
        let of = (&data.name[..], data.num_nodes());
        Self::of_targets(config, of, (&data.labels, &data.split.train), outputs)
    }

    /// [`LabelColumns::new`] from the targets and training nodes of a dataset with this name and
    /// number of nodes.
    ///
    /// # Errors
    /// As [`LabelColumns::new`].
    pub(crate) fn of_targets(
        config: &TrainConfig,
        (name, nodes): (&str, usize),
        (labels, train): (&Labels, &[NodeId]),
        outputs: usize,
    ) -> Result<Option<Self>> {
        if config.label_inputs == 0.0 {
            return Ok(None);
        }
        let (labels, own) = (labels.clone(), labels.classes());
        if own > outputs || own != outputs && !matches!(labels, Labels::Single { .. }) {
            let kind = if labels.is_values() { "values" } else { "classes" };
            return Err(refused(config, name, &format!("the {own} {kind} instead of {outputs}")));
        }
        let scale = match &labels {
            Labels::Values { values, width } => {
                TargetScale::fit(config.target_transform, values, *width, train)
            }
            Labels::Single { .. } | Labels::Multi { .. } | Labels::Columns { .. } => TargetScale::default(),
        };
        let mut is_known = vec![false; nodes];
        train.iter().for_each(|&v| is_known[v as usize] = true);
        let (share, seed) = (config.label_inputs, config.seed);
        Ok(Some(Self { labels, is_known: is_known.into(), scale, width: outputs, share, seed }))
    }

    /// [`LabelColumns::new`] for a model that learned the targets of `own`, values at their
    /// `scale`. Data without labels show none.
    ///
    /// # Errors
    /// As [`LabelColumns::new`], or the targets are of another kind.
    pub(crate) fn for_model(
        config: &TrainConfig,
        data: &Dataset,
        own: &DatasetRecord,
        scale: Option<&TargetScale>,
    ) -> Result<Option<Self>> {
        if config.label_inputs == 0.0 {
            return Ok(None);
        }
        let has_labels = data.labels.classes() > 0;
        if has_labels && !own.has_targets_like(&data.labels) {
            return Err(refused(config, &data.name, "targets that are not like those of the run"));
        }
        if !has_labels {
            let labels = Labels::Single { class: vec![-1; data.num_nodes()].into(), classes: 0 };
            let data = Dataset { labels, ..data.clone() };
            return Self::new(config, &data, own.classes);
        }
        let columns = Self::new(config, data, own.classes)?;
        Ok(columns.map(|columns| columns.at_scale(scale)))
    }

    /// The same columns with values at the `scale` of a model, if it has one.
    #[must_use]
    pub(crate) fn at_scale(self, scale: Option<&TargetScale>) -> Self {
        Self { scale: scale.cloned().unwrap_or_else(|| self.scale.clone()), ..self }
    }

    /// [`LabelColumns::new`] for training on batches of `seeds` of the nodes of `data`.
    ///
    /// # Errors
    /// As [`LabelColumns::new`], or one batch has all training nodes as seeds.
    pub fn for_training(config: &TrainConfig, data: &Dataset, seeds: usize) -> Result<Option<Self>> {
        check_seeds(config, seeds, data.split.train.len())?;
        Self::new(config, data, data.labels.classes())
    }

    /// The same columns without a label.
    #[must_use]
    pub(crate) fn hidden(&self) -> Self {
        Self { is_known: Arc::default(), ..self.clone() }
    }

    /// Number of columns, `C`.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Appends the columns to the feature rows of a training batch of that epoch. Input nodes start
    /// with the seeds, whose labels stay hidden.
    pub(crate) fn append_to_batch(&self, batch: &mut Extracted) {
        let Extracted { sampled, features, .. } = batch;
        let seeds = &sampled.seeds;
        self.append_to_training((seeds.epoch, seeds.number), &seeds.nodes, (&sampled.input_nodes, features));
    }

    /// Appends the columns to the `rows` of the `nodes` of a training batch, given by its epoch and
    /// number. The nodes start with the `seeds`, whose labels stay hidden.
    pub(crate) fn append_to_training(
        &self,
        (epoch, number): (u64, u64),
        seeds: &[NodeId],
        (nodes, rows): (&[NodeId], &mut Matrix),
    ) {
        debug_assert_eq!(nodes.get(..seeds.len()), Some(seeds), "seeds come first");
        let (of_batch, count) = (key(&[self.seed, SHOWN, epoch, number]), seeds.len());
        self.append(nodes, rows, |i, v| {
            i >= count && Stream::new(key(&[of_batch, u64::from(v)])).uniform() < self.share
        });
    }

    /// Appends the columns to the feature rows of `nodes`, with the labels of all training nodes.
    pub(crate) fn append_all(&self, nodes: &[NodeId], rows: &mut Matrix) {
        self.append(nodes, rows, |_, _| true);
    }

    /// Appends the columns to the rows of `nodes`. `is_shown` decides by the number of the row and
    /// the node.
    fn append(&self, nodes: &[NodeId], rows: &mut Matrix, is_shown: impl Fn(usize, NodeId) -> bool + Sync) {
        let width = rows.num_cols();
        rows.widen(width + self.width);
        let rows = rows.view_mut().host().par_chunks_exact_mut((width + self.width).max(1));
        rows.zip(nodes).enumerate().with_min_len(MIN_TASK_LEN).for_each(|(i, (row, &v))| {
            // new nodes of a prediction have ids beyond those of the dataset
            if self.is_known.get(v as usize) == Some(&true) && is_shown(i, v) {
                self.fill(v as usize, &mut row[width..]);
            }
        });
    }

    /// Fills the columns of a node with its label.
    fn fill(&self, v: usize, to: &mut [f32]) {
        let mut set = |class: i32, first: usize| {
            if let Ok(class) = usize::try_from(class) {
                to[first + class] = 1.0;
            }
        };
        match &self.labels {
            Labels::Single { class, .. } => set(class[v], 0),
            Labels::Columns { class, columns } => {
                let of_node = &class[v * columns.len()..][..columns.len()];
                let ranges = ClassColumn::ranges(columns);
                of_node.iter().zip(ranges).for_each(|(&class, range)| set(class, range.start));
            }
            Labels::Multi { member, classes } => {
                let of_node = &member[v * classes..][..*classes];
                to.iter_mut().zip(of_node).for_each(|(to, &is)| *to = f32::from(is));
            }
            Labels::Values { values, width } => {
                to.copy_from_slice(&values[v * width..][..*width]);
                self.scale.apply(to);
                to.iter_mut().filter(|x| x.is_nan()).for_each(|x| *x = 0.0);
            }
        }
    }
}

/// Checks that a batch of `seeds` of `train` training nodes leaves labels to show.
///
/// # Errors
/// The run has `--label-inputs`, and one batch has all training nodes as seeds.
pub(crate) fn check_seeds(config: &TrainConfig, seeds: usize, train: usize) -> Result<()> {
    if config.label_inputs > 0.0 && seeds >= train {
        return Err(Error::usage(format!(
            "--label-inputs {}: a batch hides the labels of its seeds, and one batch has all {train} \
             training nodes as seeds; set --batch-size to {} or less",
            config.label_inputs,
            (train / 2).max(1)
        )));
    }
    Ok(())
}

/// Error of labels that cannot be inputs of a model.
fn refused(config: &TrainConfig, name: &str, what: &str) -> Error {
    Error::usage(format!(
        "--label-inputs {}: {what} of {name} cannot be inputs of the model; leave it out",
        config.label_inputs
    ))
}
