//! Labels and errors that spread over the edges of a graph: a baseline without a model, and a
//! correction of a model's predictions.
//!
//! # Algorithm
//!
//! All methods repeat `Z <- a S Z + (1 - a) Y`, where `S = D^-1/2 A D^-1/2` is the normalized
//! adjacency without self-loops, and `Y` holds the rows at the start. On a graph of several types
//! `S` joins the nodes of the task's type ([`graphmill_core::spread`]): by the edges of all
//! relations from the type to itself, or without any by paths of two edges.
//!
//! - `label-propagation`: `Y` has the classes of the training nodes as rows of zeros and ones.
//! - `correct-and-smooth`: first `Y` has the model's errors at the training nodes, probabilities
//!   subtracted from the true class; the propagated errors, scaled to the mean error of the
//!   training nodes, correct all probabilities. Then `Y` has the corrected probabilities, and the
//!   true classes at the training nodes.
//!
//! Each of several columns of classes spreads on its own. Sets of labels and values need shares and
//! means, which `Z` alone does not have, because it shrinks with the distance: they are `Z` of the
//! targets divided by `Z` of a column of ones at the rows that have a target (`averages.rs`).
//!
//! # Source
//!
//! Zhu and Ghahramani, *Learning from Labeled and Unlabeled Data with Label Propagation*, CMU
//! technical report, 2002; Zhou et al., *Learning with Local and Global Consistency*, NIPS 2003
//! (the normalization); Huang et al., *Combining Label Propagation and Simple Models Out-performs
//! Graph Neural Networks*, ICLR 2021, sections 2.2 and 2.3 (autoscale); Jia and Benson, *Residual
//! Correlation in Graph Neural Network Regression*, KDD 2020 (propagation of residuals); Nadaraya,
//! *On Estimating Regression*, Theory of Probability and its Applications 9, 1964 (the quotient).
//!
//! # Cost
//!
//! `E C` multiplications a step, on all threads; up to twice as many for values of which some are
//! missing. The order of every sum is that of the row in the graph, so results do not depend on the
//! number of threads.
//!
//! # Memory
//!
//! Three matrices of `V C` values, six for sets of labels and values.
//!
//! # Deviations
//!
//! Weights of edges are not read. Without a path from a training node, label propagation leaves
//! zeros, and the first class is predicted; sets and values have the mean of the training nodes.
//! Jia and Benson condition a Gaussian on the residuals; here they are averaged.

#![forbid(unsafe_code)]

mod averages;
mod classes;
#[cfg(test)]
mod tests;

use std::{fmt, ops::RangeInclusive};

use clap::Args;
use graphmill_core::{
    ClassColumn, Labels, NodeId, Result,
    options::{Fault, OptionSet, range},
    progress::Progress,
    spread::{Paths, Spread},
    table::{Entry, Table},
};
use graphmill_nn::Matrix;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Value that stands for the probability 0, whose logarithm is not finite.
const MIN: f32 = 1e-30;

/// Options of propagation.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PropagationOptions {
    /// Steps of propagation over the edges.
    ///
    /// Raise it for sparse labels in large graphs. At least 1. Example: --propagation-steps 20.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub propagation_steps: usize,
    /// Share of the neighbours in a step of labels.
    ///
    /// The rest is the row's own start. From 0 to 1. Example: --propagation-alpha 0.9.
    #[arg(long, value_name = "A", default_value_t = 0.8)]
    pub propagation_alpha: f32,
    /// Share of the neighbours in a step of errors.
    ///
    /// For correct-and-smooth. From 0 to 1. Example: --correction-alpha 1.
    #[arg(long, value_name = "A", default_value_t = 0.9)]
    pub correction_alpha: f32,
}

impl Default for PropagationOptions {
    fn default() -> Self {
        Self { propagation_steps: 50, propagation_alpha: 0.8, correction_alpha: 0.9 }
    }
}

impl OptionSet for PropagationOptions {
    fn check(&self) -> std::result::Result<(), Fault> {
        range("propagation_steps", self.propagation_steps, 1..)?;
        range("propagation_alpha", self.propagation_alpha, 0.0..=1.0)?;
        range("correction_alpha", self.correction_alpha, 0.0..=1.0)
    }
}

/// Data of a propagation.
#[derive(Clone)]
pub struct Known<'k> {
    /// Edges of the graph, or paths between the nodes of a type.
    pub paths: Paths<'k>,
    /// Targets of all nodes; only those of `train` are read.
    pub labels: &'k Labels,
    /// Number of outputs of a node, `C`; at least that of the targets.
    pub outputs: usize,
    /// Training nodes.
    pub train: &'k [NodeId],
    /// Asked before every step if the work should end.
    pub watch: &'k dyn Progress,
}

impl fmt::Debug for Known<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { outputs, train, .. } = self;
        write!(f, "Known({} training nodes of {outputs} outputs)", train.len())
    }
}

/// Method of propagation.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// Returns true if it starts from a model's outputs.
    pub reads_model: bool,
    /// Computes rows of all nodes (`V x C`) from the probabilities or values of a model (`V x C`;
    /// empty unless it reads them): values, or weights of classes that are at least 0. Fails if the
    /// work is asked to end.
    pub run: fn(&Known, &PropagationOptions, Matrix) -> Result<Matrix>,
}

/// The methods.
pub static TABLE: Table<Method> = Table::new(
    "propagation",
    &[
        Entry {
            name: "label-propagation",
            summary: "the targets of the training nodes alone, a baseline without the model",
            source: "Zhu and Ghahramani, 2002; Zhou et al., NIPS 2003",
            options: &[],
            make: Method { reads_model: false, run: |known, options, _| labels(known, options) },
        },
        Entry {
            name: "correct-and-smooth",
            summary: "the model's predictions, corrected by its errors on the training nodes",
            source: "Huang et al., Combining label propagation and simple models, ICLR 2021",
            options: &[],
            make: Method { reads_model: true, run: correct_and_smooth },
        },
    ],
);

/// Label propagation from the training nodes.
pub(crate) fn labels(known: &Known, options: &PropagationOptions) -> Result<Matrix> {
    match known.labels {
        Labels::Single { class, .. } => classes::labels(known, class, known.outputs, options),
        Labels::Columns { class, columns } => {
            each_column(known, (class, columns), None, |class, count, _| {
                classes::labels(known, class, count, options)
            })
        }
        Labels::Multi { .. } | Labels::Values { .. } => averages::labels(known, options),
    }
}

/// Corrects the outputs by propagated errors, then smooths them.
fn correct_and_smooth(known: &Known, options: &PropagationOptions, of_model: Matrix) -> Result<Matrix> {
    match known.labels {
        Labels::Single { class, .. } => classes::correct_and_smooth(known, class, options, of_model),
        Labels::Columns { class, columns } => {
            each_column(known, (class, columns), Some(&of_model), |class, _, of_model| {
                classes::correct_and_smooth(known, class, options, of_model)
            })
        }
        Labels::Multi { .. } | Labels::Values { .. } => {
            averages::correct_and_smooth(known, options, of_model)
        }
    }
}

/// Rows of each column of classes by `run`, joined. `run` takes the classes of all nodes in the
/// column, their number, and the columns of `of_model`.
fn each_column(
    known: &Known,
    (class, columns): (&[i32], &[ClassColumn]),
    of_model: Option<&Matrix>,
    run: impl Fn(&[i32], usize, Matrix) -> Result<Matrix>,
) -> Result<Matrix> {
    let (count, width) = (known.paths.num_nodes(), known.outputs);
    let mut all = Matrix::zeros(count, width);
    for (k, range) in ClassColumn::ranges(columns).enumerate() {
        let class: Vec<i32> = class.par_chunks_exact(columns.len()).map(|row| row[k]).collect();
        let mut own = Matrix::zeros(if of_model.is_some() { count } else { 0 }, range.len());
        if let Some(of_model) = of_model {
            let rows = own.view_mut().host().par_chunks_exact_mut(range.len());
            rows.zip(of_model.view().host().par_chunks_exact(width))
                .for_each(|(own, row)| own.copy_from_slice(&row[range.clone()]));
        }
        let found = run(&class, range.len(), own)?;
        let rows = all.view_mut().host().par_chunks_exact_mut(width);
        rows.zip(found.view().host().par_chunks_exact(range.len()))
            .for_each(|(row, own)| row[range.clone()].copy_from_slice(own));
    }
    Ok(all)
}

/// Outputs of a model that predicts the rows of a method: logits of the classes, or the values.
pub(crate) fn outputs(labels: &Labels, mut rows: Matrix) -> Matrix {
    let all = rows.view_mut().host();
    match labels {
        Labels::Values { .. } => {}
        // above 0 for labels that most of the rows near by have
        Labels::Multi { .. } => all.par_iter_mut().for_each(|x| *x = (x.max(MIN) / (1.0 - *x).max(MIN)).ln()),
        Labels::Single { .. } | Labels::Columns { .. } => {
            all.par_iter_mut().for_each(|x| *x = x.max(MIN).ln());
        }
    }
    rows
}

/// Repeats `Z <- alpha S Z + (1 - alpha) start` and clamps each value.
fn spread(
    known: &Known,
    over: &Spread,
    start: &Matrix,
    steps: usize,
    alpha: f32,
    range: RangeInclusive<f32>,
) -> Result<Matrix> {
    let width = start.num_cols();
    let (mut now, mut next) = (start.clone(), Matrix::zeros(start.num_rows(), width));
    for _ in 0..steps {
        known.watch.check()?;
        let from = [now.view().host(), start.view().host()];
        over.step(from, next.view_mut().host(), width, alpha, range.clone())?;
        std::mem::swap(&mut now, &mut next);
    }
    Ok(now)
}
