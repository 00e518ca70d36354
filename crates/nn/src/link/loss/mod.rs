//! Losses of link prediction, from the scores of positives and of their negatives.
//!
//! Each is a mean over the positives, weighted if the positives have weights.
//!
//! ```
//! use graphmill_nn::link::loss::{LinkGrads, LinkLossOptions, LinkScores, TABLE};
//!
//! let scores = LinkScores { positive: &[2.0], negative: &[0.5, 1.5], ..LinkScores::default() };
//! let (mut positive, mut negative) = ([0.0], [0.0; 2]);
//! let grads = LinkGrads { positive: &mut positive, negative: &mut negative };
//! let margin = TABLE.find("margin")?.make.loss;
//! // the first negative is more than 1 below the positive, the second is not
//! assert_eq!(margin(&scores, &LinkLossOptions::default(), grads), 0.25);
//! assert_eq!((positive, negative), ([-0.5], [0.0, 0.5]));
//! # Ok::<(), graphmill_core::Error>(())
//! ```

mod bce;
mod bpr;
mod info_nce;
mod margin;
mod sampled_softmax;
mod self_adversarial;

use clap::Args;
use graphmill_core::{
    options::{Fault, OptionSet, range},
    table::{Entry, Table},
};
use serde::{Deserialize, Serialize};

/// Scores of `P` positives with `K` negatives each.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkScores<'a> {
    /// Scores of the positives, `P`.
    pub positive: &'a [f32],
    /// Scores of the negatives, `P x K`.
    pub negative: &'a [f32],
    /// Weight of each positive, `P`; if empty, all weights are 1.
    pub weight: &'a [f32],
    /// Logarithm of the expected number of draws of each negative, `P x K`; if empty, 0. Read by
    /// `sampled-softmax`.
    pub log_expected: &'a [f32],
}

impl<'a> LinkScores<'a> {
    /// Number of negatives of each positive, `K`.
    pub fn num_negatives(&self) -> usize {
        self.negative.len() / self.positive.len().max(1)
    }

    /// Weight of positive `p` divided by the sum of weights.
    fn share(&self, p: usize) -> f64 {
        if self.weight.is_empty() {
            return 1.0 / self.positive.len() as f64;
        }
        let sum: f64 = self.weight.iter().map(|&w| f64::from(w)).sum();
        if sum > 0.0 { f64::from(self.weight[p]) / sum } else { 0.0 }
    }

    /// Score of positive `p` and scores of its negatives.
    fn of(&self, p: usize) -> (f64, &'a [f32]) {
        let k = self.num_negatives();
        (f64::from(self.positive[p]), &self.negative[p * k..(p + 1) * k])
    }
}

/// Gradients of the scores, of the same lengths, overwritten.
#[derive(Debug)]
pub struct LinkGrads<'a> {
    /// Gradients of the positives' scores, `P`.
    pub positive: &'a mut [f32],
    /// Gradients of the negatives' scores, `P x K`.
    pub negative: &'a mut [f32],
}

/// Options of the losses.
#[derive(Args, Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkLossOptions {
    /// Distance that --loss margin keeps between positives and negatives.
    #[arg(long, value_name = "X")]
    pub margin: f64,
    /// Divisor of the scores in --loss info-nce.
    #[arg(long, value_name = "X")]
    pub temperature: f64,
    /// Factor of the scores that weight negatives in --loss self-adversarial.
    #[arg(long, value_name = "X")]
    pub adversarial: f64,
}

impl Default for LinkLossOptions {
    fn default() -> Self {
        Self { margin: 1.0, temperature: 0.1, adversarial: 1.0 }
    }
}

impl OptionSet for LinkLossOptions {
    fn check(&self) -> Result<(), Fault> {
        range("margin", self.margin, 0.0..=1e6)?;
        range("temperature", self.temperature, 1e-6..=1e6)?;
        range("adversarial", self.adversarial, 0.0..=1e6)
    }
}

/// A loss: returns its value and overwrites the gradients of the scores.
pub type LinkLoss = fn(&LinkScores, &LinkLossOptions, LinkGrads) -> f64;

/// A kind of loss.
#[derive(Clone, Copy)]
pub struct LinkLossKind {
    /// The loss.
    pub loss: LinkLoss,
    /// Name of the option in [`LinkLossOptions`] that it reads, if it reads one.
    pub option: Option<&'static str>,
    /// True if it corrects scores for the probabilities of negatives
    /// ([`LinkScores::log_expected`]), which must be known.
    pub corrects_draws: bool,
}

impl LinkLossKind {
    /// Creates a loss without options.
    pub const fn new(loss: LinkLoss) -> Self {
        Self { loss, option: None, corrects_draws: false }
    }

    const fn reading(self, option: &'static str) -> Self {
        Self { option: Some(option), ..self }
    }
}

/// Table of the losses.
pub static TABLE: Table<LinkLossKind> = Table::new(
    "link loss",
    &[
        Entry {
            name: "bce",
            summary: "binary cross-entropy of positives and negatives alike",
            source: "",
            options: &[],
            make: LinkLossKind::new(bce::loss),
        },
        Entry {
            name: "margin",
            summary: "hinge: a positive is a margin above each of its negatives",
            source: "Bordes et al., NeurIPS 2013",
            options: &[],
            make: LinkLossKind::new(margin::loss).reading("margin"),
        },
        Entry {
            name: "bpr",
            summary: "Bayesian personalized ranking: a positive is above each of its negatives",
            source: "Rendle et al., UAI 2009",
            options: &[],
            make: LinkLossKind::new(bpr::loss),
        },
        Entry {
            name: "sampled-softmax",
            summary: "cross-entropy of the positive among its negatives, corrected for their probabilities",
            source: "Jean et al., ACL 2015; Bengio and Senecal, AISTATS 2003",
            options: &[],
            make: LinkLossKind { corrects_draws: true, ..LinkLossKind::new(sampled_softmax::loss) },
        },
        Entry {
            name: "info-nce",
            summary: "cross-entropy of the positive among its negatives, with a temperature",
            source: "van den Oord, Li and Vinyals, 2018, arXiv:1807.03748",
            options: &[],
            make: LinkLossKind::new(info_nce::loss).reading("temperature"),
        },
        Entry {
            name: "self-adversarial",
            summary: "cross-entropy with negatives weighted by their scores",
            source: "Sun et al., ICLR 2019, equation 5",
            options: &[],
            make: LinkLossKind::new(self_adversarial::loss).reading("adversarial"),
        },
    ],
);

/// `log(1 + e^x)`.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// `1 / (1 + e^-x)`.
fn sigmoid(x: f64) -> f64 {
    if x >= 0.0 { 1.0 / (1.0 + (-x).exp()) } else { x.exp() / (1.0 + x.exp()) }
}

/// Cross-entropy of the first of `scores` under their softmax, which replaces them.
fn cross_entropy(scores: &mut [f64]) -> f64 {
    let (first, max) = (scores[0], scores.iter().fold(f64::NEG_INFINITY, |m, x| m.max(*x)));
    scores.iter_mut().for_each(|x| *x = (*x - max).exp());
    let sum: f64 = scores.iter().sum();
    scores.iter_mut().for_each(|x| *x /= sum);
    sum.ln() + max - first
}

#[cfg(test)]
mod tests;
