//! Labels and errors that spread over the edges of a graph: a baseline without a model, and a
//! correction of a model's predictions.
//!
//! # Algorithm
//!
//! All methods repeat `Z <- a S Z + (1 - a) Y`, where `S = D^-1/2 A D^-1/2` is the normalized
//! adjacency without self-loops, and `Y` holds the rows at the start.
//!
//! - `label-propagation`: `Y` has the classes of the training nodes as rows of zeros and ones.
//! - `correct-and-smooth`: first `Y` has the model's errors at the training nodes, probabilities
//!   subtracted from the true class; the propagated errors, scaled to the mean error of the
//!   training nodes, correct all probabilities. Then `Y` has the corrected probabilities, and the
//!   true classes at the training nodes.
//!
//! # Source
//!
//! Zhu and Ghahramani, *Learning from Labeled and Unlabeled Data with Label Propagation*, CMU
//! technical report, 2002; Zhou et al., *Learning with Local and Global Consistency*, NIPS 2003
//! (the normalization); Huang et al., *Combining Label Propagation and Simple Models Out-performs
//! Graph Neural Networks*, ICLR 2021, sections 2.2 and 2.3 (autoscale).
//!
//! # Cost
//!
//! `E C` multiplications a step, on all threads. The order of every sum is that of the row in the
//! graph, so results do not depend on the number of threads.
//!
//! # Memory
//!
//! Three matrices of `V C` values.
//!
//! # Deviations
//!
//! Weights of edges are not read. Without a path from a training node, label propagation leaves
//! zeros, and the first class is predicted.

use std::{fmt, ops::RangeInclusive};

use clap::Args;
use graphmill_core::{
    Graph, NodeId, Result,
    options::{Fault, OptionSet, range},
    progress::Progress,
    spread::Spread,
    table::{Entry, Table},
};
use graphmill_nn::Matrix;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Value that stands for the probability 0, whose logarithm is not finite.
pub(crate) const MIN: f32 = 1e-30;
/// Errors that a row may be scaled by at most; rows that no error reaches keep their own.
const MAX_SCALE: f32 = 1000.0;

/// Options of propagation.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PropagationOptions {
    /// Steps of propagation over the edges
    ///
    /// Raise it for sparse labels in large graphs. At least 1. Example: --propagation-steps 20.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub propagation_steps: usize,
    /// Share of the neighbours in a step of labels
    ///
    /// The rest is the row's own start. From 0 to 1. Example: --propagation-alpha 0.9.
    #[arg(long, value_name = "A", default_value_t = 0.8)]
    pub propagation_alpha: f32,
    /// Share of the neighbours in a step of errors
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
#[derive(Clone, Copy)]
pub struct Known<'k> {
    /// The graph.
    pub graph: &'k Graph,
    /// Class of each node (`V`); only those of `train` are read.
    pub class: &'k [i32],
    /// Number of classes, `C`.
    pub classes: usize,
    /// Training nodes, all of which have a class.
    pub train: &'k [NodeId],
    /// Asked before every step if the work should end.
    pub watch: &'k dyn Progress,
}

impl fmt::Debug for Known<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { classes, train, .. } = self;
        write!(f, "Known({} training nodes of {classes} classes)", train.len())
    }
}

/// Method of propagation.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// Returns true if it starts from a model's probabilities.
    pub reads_model: bool,
    /// Computes the rows of all nodes (`V x C`), each at least 0, from the probabilities of a model
    /// (`V x C`; empty unless it reads them). Fails if the work is asked to end.
    pub run: fn(&Known, &PropagationOptions, Matrix) -> Result<Matrix>,
}

/// The methods.
pub static TABLE: Table<Method> = Table::new(
    "propagation",
    &[
        Entry {
            name: "label-propagation",
            summary: "the classes of the training nodes alone, a baseline without the model",
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
    let mut start = Matrix::zeros(known.graph.num_nodes(), known.classes);
    set_true(known, &mut start);
    let (steps, alpha) = (options.propagation_steps, options.propagation_alpha);
    spread(known, &Spread::new(known.graph), start, steps, alpha, 0.0..=1.0)
}

/// Corrects the probabilities by propagated errors, then smooths them.
fn correct_and_smooth(
    known: &Known,
    options: &PropagationOptions,
    mut probabilities: Matrix,
) -> Result<Matrix> {
    let (classes, steps) = (known.classes, options.propagation_steps);
    let over = Spread::new(known.graph);
    let mut errors = Matrix::zeros(known.graph.num_nodes(), classes);
    set_true(known, &mut errors);
    let (to, from) = (errors.view_mut().host(), probabilities.view().host());
    let mut sum = 0.0f64;
    for &v in known.train {
        let row = v as usize * classes..(v as usize + 1) * classes;
        for (error, p) in to[row.clone()].iter_mut().zip(&from[row]) {
            *error -= p;
            sum += f64::from(error.abs());
        }
    }
    let mean = (sum / known.train.len().max(1) as f64) as f32;
    let errors = spread(known, &over, errors, steps, options.correction_alpha, -1.0..=1.0)?;
    let rows = probabilities.view_mut().host().par_chunks_exact_mut(classes);
    rows.zip(errors.view().host().par_chunks_exact(classes)).for_each(|(p, error)| {
        let size: f32 = error.iter().map(|x| x.abs()).sum();
        let scale = Some(mean / size).filter(|scale| *scale <= MAX_SCALE).unwrap_or(1.0);
        p.iter_mut().zip(error).for_each(|(p, error)| *p += scale * error);
    });
    set_true(known, &mut probabilities);
    spread(known, &over, probabilities, steps, options.propagation_alpha, 0.0..=1.0)
}

/// Sets the rows of the training nodes to their classes.
fn set_true(known: &Known, rows: &mut Matrix) {
    let all = rows.view_mut().host();
    for &v in known.train {
        let row = &mut all[v as usize * known.classes..(v as usize + 1) * known.classes];
        row.fill(0.0);
        row[known.class[v as usize] as usize] = 1.0;
    }
}

/// Repeats `Z <- alpha S Z + (1 - alpha) start` and clamps each value.
fn spread(
    known: &Known,
    over: &Spread,
    start: Matrix,
    steps: usize,
    alpha: f32,
    range: RangeInclusive<f32>,
) -> Result<Matrix> {
    let width = start.num_cols();
    let (mut now, mut next) = (start.clone(), Matrix::zeros(start.num_rows(), width));
    for _ in 0..steps {
        known.watch.check()?;
        let from = [now.view().host(), start.view().host()];
        over.step(from, next.view_mut().host(), width, alpha, range.clone());
        std::mem::swap(&mut now, &mut next);
    }
    Ok(now)
}

#[cfg(test)]
mod tests {
    use graphmill_core::{EdgeOptions, build, progress::Quiet};

    use super::*;

    /// Two paths of four nodes, whose first nodes are training nodes of different classes.
    fn paths() -> Graph {
        let (src, dst) = ([0, 1, 2, 4, 5, 6], [1, 2, 3, 5, 6, 7]);
        build(8, &src, &dst, EdgeOptions { undirected: true, ..EdgeOptions::DIRECTED }).unwrap()
    }

    fn known(graph: &Graph) -> Known<'_> {
        let class = &[0, -1, -1, -1, 1, -1, -1, -1];
        Known { graph, class, classes: 2, train: &[0, 4], watch: &Quiet }
    }

    /// Dense reference of the recurrence.
    fn dense(graph: &Graph, start: &[f32], steps: usize, alpha: f32) -> Vec<f32> {
        let (n, width) = (graph.num_nodes(), start.len() / graph.num_nodes());
        let degree = |v: usize| graph.in_neighbors(v as NodeId).len() as f32;
        let mut now = start.to_vec();
        for _ in 0..steps {
            let before = now.clone();
            for v in 0..n {
                for c in 0..width {
                    let near = graph.in_neighbors(v as NodeId).iter().map(|&u| u as usize);
                    let sum: f32 = near.map(|u| before[u * width + c] / (degree(v) * degree(u)).sqrt()).sum();
                    now[v * width + c] = alpha * sum + (1.0 - alpha) * start[v * width + c];
                }
            }
        }
        now
    }

    #[test]
    fn labels_spread_along_edges_as_in_the_dense_recurrence() {
        let graph = paths();
        let options = PropagationOptions { propagation_steps: 7, ..PropagationOptions::default() };
        let rows = labels(&known(&graph), &options).unwrap();
        let mut start = vec![0.0; 16];
        (start[0], start[9]) = (1.0, 1.0);
        let expected = dense(&graph, &start, 7, 0.8);
        for (got, want) in rows.view().host().iter().zip(&expected) {
            assert!((got - want).abs() < 1e-6, "{got} {want}");
        }
        let classes = rows.view().host().chunks(2).map(|row| usize::from(row[1] > row[0]));
        assert_eq!(classes.collect::<Vec<_>>(), [0, 0, 0, 0, 1, 1, 1, 1]);
    }

    #[test]
    fn a_model_that_errs_is_corrected() {
        let graph = paths();
        let mut wrong = Matrix::zeros(8, 2);
        // the model takes every node for the other class, though not by much
        let rows = wrong.view_mut().host().chunks_mut(2).enumerate();
        rows.for_each(|(v, row)| row.copy_from_slice(if v < 4 { &[0.4, 0.6] } else { &[0.6, 0.4] }));
        let rows = correct_and_smooth(&known(&graph), &PropagationOptions::default(), wrong).unwrap();
        let classes = rows.view().host().chunks(2).map(|row| usize::from(row[1] > row[0]));
        assert_eq!(classes.collect::<Vec<_>>(), [0, 0, 0, 0, 1, 1, 1, 1]);
    }

    #[test]
    fn results_do_not_depend_on_threads() {
        let graph = paths();
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let run = || labels(&known(&graph), &PropagationOptions::default()).unwrap();
            pool.install(run).view().host().to_vec()
        };
        assert_eq!(run(1), run(3));
    }

    #[test]
    fn impossible_options_are_refused() {
        let options = PropagationOptions { propagation_alpha: 1.5, ..PropagationOptions::default() };
        assert!(options.check().is_err());
        let options = PropagationOptions { propagation_steps: 0, ..PropagationOptions::default() };
        assert!(options.check().is_err());
    }
}
