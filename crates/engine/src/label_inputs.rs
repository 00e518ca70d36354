//! Labels of training nodes as columns of input rows (`--label-inputs`).
//!
//! # Algorithm
//!
//! An input row is the feature row of a node followed by one column per class: a 1 in the column of
//! its class if its label is shown, else zeros. A training batch hides the labels of its seeds, and
//! those of other training nodes with the probability `1 - R`, so the loss of a seed does not
//! depend on its own label. Inference shows the labels of all training nodes, and of no others.
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
//! Four bytes per node.
//!
//! # Deviations
//!
//! Shi et al. mask a part of the training nodes for a whole epoch. Here every batch masks its own
//! seeds, so each training node has a loss in each epoch. Labels are joined, as by Wang et al., and
//! not projected to the width of the features and added.

use std::sync::Arc;

use graphmill_core::{
    Labels, NodeId,
    keyed::{Stream, key},
};
use graphmill_data::Dataset;
use graphmill_loader::Extracted;
use graphmill_nn::Matrix;
use rayon::prelude::*;

use crate::{Error, Result, TrainConfig};

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
    /// Class of each training node; -1 for other nodes (`V`).
    class: Arc<[i32]>,
    /// Number of columns, `C`.
    classes: usize,
    /// Share of the labels of other nodes that a training batch shows.
    share: f64,
    seed: u64,
}

impl LabelColumns {
    /// Labels of the training nodes of `data` for a model of `classes`, if the run has
    /// `--label-inputs`.
    ///
    /// # Errors
    /// The targets of `data` are not one class per node, or more classes than those of the model.
    pub fn new(config: &TrainConfig, data: &Dataset, classes: usize) -> Result<Option<Self>> {
        if config.label_inputs == 0.0 {
            return Ok(None);
        }
        let refuse = |why: String| {
            Err(Error::usage(format!(
                "--label-inputs {}: {why} of {} cannot be inputs of the model; leave it out",
                config.label_inputs, data.name
            )))
        };
        let Labels::Single { class: labels, classes: own } = &data.labels else {
            let what = match &data.labels {
                Labels::Values { .. } => "the values",
                Labels::Columns { .. } => "the several columns of classes",
                Labels::Single { .. } | Labels::Multi { .. } => "the several labels per node",
            };
            return refuse(what.into());
        };
        if *own > classes {
            return refuse(format!("the {own} classes instead of {classes}"));
        }
        let mut class = vec![-1; data.num_nodes()];
        data.split.train.iter().for_each(|&v| class[v as usize] = labels[v as usize]);
        Ok(Some(Self { class: class.into(), classes, share: config.label_inputs, seed: config.seed }))
    }

    /// [`LabelColumns::new`] for training on batches of `seeds` of the nodes of `data`.
    ///
    /// # Errors
    /// As [`LabelColumns::new`], or one batch has all training nodes as seeds.
    pub fn for_training(config: &TrainConfig, data: &Dataset, seeds: usize) -> Result<Option<Self>> {
        let labels = Self::new(config, data, data.labels.classes())?;
        let train = data.split.train.len();
        if labels.is_some() && seeds >= train {
            return Err(Error::usage(format!(
                "--label-inputs {}: a batch hides the labels of its seeds, and one batch has all {train} \
                 training nodes as seeds; set --batch-size to {} or less",
                config.label_inputs,
                (train / 2).max(1)
            )));
        }
        Ok(labels)
    }

    /// The same columns without a label.
    #[must_use]
    pub(crate) fn hidden(&self) -> Self {
        Self { class: Arc::default(), ..self.clone() }
    }

    /// Number of columns, `C`.
    pub fn width(&self) -> usize {
        self.classes
    }

    /// Appends the columns to the feature rows of a training batch of that epoch. Input nodes start
    /// with the seeds, whose labels stay hidden.
    pub(crate) fn append_to_batch(&self, batch: &mut Extracted) {
        let Extracted { sampled, features, .. } = batch;
        let (seeds, number) = (&sampled.seeds.nodes, sampled.seeds.number);
        debug_assert_eq!(sampled.input_nodes.get(..seeds.len()), Some(&seeds[..]), "seeds come first");
        let (of_batch, count) = (key(&[self.seed, SHOWN, sampled.seeds.epoch, number]), seeds.len());
        self.append(&sampled.input_nodes, features, |i, v| {
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
        rows.widen(width + self.classes);
        let rows = rows.view_mut().host().par_chunks_exact_mut((width + self.classes).max(1));
        rows.zip(nodes).enumerate().with_min_len(MIN_TASK_LEN).for_each(|(i, (row, &v))| {
            // new nodes of a prediction have ids beyond those of the dataset
            let class = self.class.get(v as usize).and_then(|&class| usize::try_from(class).ok());
            if let Some(class) = class.filter(|_| is_shown(i, v)) {
                row[width + class] = 1.0;
            }
        });
    }
}
