//! Epochs whose validation nodes are scored.

use std::{fmt, iter::Sum, num::NonZero, ops::AddAssign, str::FromStr};

use graphmill_core::by_word;
use graphmill_nn::link::decoder::Decoder;
use serde::{Serialize, Serializer};

use crate::{Error, Result};

/// Share of the work of a run that scoring takes with [`EvalEvery::Auto`], at most.
const MAX_SHARE: f64 = 0.1;
/// Work of computing a row of a layer, relative to adding the row of an edge.
const ROW_WORK: f64 = 10.0;
/// Work of training on a row or an edge, relative to scoring it. It was 1.5 to 4.8 in the settings
/// of the log, page 2026-11-29-scoring; less than the least keeps scoring to its share in all.
const TRAINING_WORK: f64 = 1.4;

/// Interval of scoring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvalEvery {
    /// The shortest that keeps scoring under a tenth of the run, by counts of rows, edges and
    /// pairs. It does not depend on measured times, so that the best epoch is the same on every
    /// machine.
    Auto,
    /// A fixed number of epochs.
    Epochs(NonZero<usize>),
}

impl EvalEvery {
    /// Number of epochs, if it is fixed.
    pub fn fixed(self) -> Option<usize> {
        match self {
            Self::Auto => None,
            Self::Epochs(epochs) => Some(epochs.get()),
        }
    }

    /// Refuses [`EvalEvery::Auto`] for a run whose scoring it does not know, for a reason.
    ///
    /// # Errors
    /// The option is `auto`.
    pub(crate) fn refuse_auto(self, why: &str) -> Result<()> {
        match self {
            Self::Auto => Err(Error::usage(format!("--eval-every auto: {why}; give a number of epochs"))),
            Self::Epochs(_) => Ok(()),
        }
    }
}

/// Rows that the layers compute, and edges that they aggregate, each summed over the layers, and
/// pairs of rows that a decoder scores.
///
/// A pair reads a row and multiplies it, as an edge does, so both count the same. Products of many
/// queries with many candidates take less: with a full ranking, the share of scoring is smaller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) rows: u64,
    pub(crate) edges: u64,
    pub(crate) pairs: u64,
}

impl Work {
    /// Work of a block with these numbers of destinations and edges.
    pub(crate) fn of_block(rows: usize, edges: usize) -> Self {
        Self { rows: rows as u64, edges: edges as u64, pairs: 0 }
    }

    /// Work of scoring this number of pairs. A decoder without a formula over one pair computes a
    /// row for each.
    pub(crate) fn of_pairs(decoder: &dyn Decoder, pairs: u64) -> Self {
        match decoder.pair_score() {
            Some(_) => Self { pairs, ..Self::default() },
            None => Self { rows: pairs, ..Self::default() },
        }
    }

    fn units(self) -> f64 {
        ROW_WORK * self.rows as f64 + self.edges as f64 + self.pairs as f64
    }

    /// Number of epochs of this work between two that are scored, whose work is `scoring`, so that
    /// scoring keeps to its share.
    pub(crate) fn interval(self, scoring: Self) -> usize {
        let scores_per_epoch = scoring.units() / (TRAINING_WORK * self.units()).max(1.0);
        // of an interval of n epochs, s / (n + s) is the share of scoring
        (scores_per_epoch * (1.0 - MAX_SHARE) / MAX_SHARE).ceil().max(1.0) as usize
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, edges, pairs } = *self;
        match (rows, edges, pairs) {
            (_, _, 0) => write!(f, "{rows} rows from {edges} edges"),
            (0, 0, _) => write!(f, "{pairs} pairs"),
            _ => write!(f, "{rows} rows from {edges} edges, and {pairs} pairs"),
        }
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, other: Self) {
        self.rows += other.rows;
        self.edges += other.edges;
        self.pairs += other.pairs;
    }
}

impl Sum for Work {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |mut sum, part| {
            sum += part;
            sum
        })
    }
}

impl FromStr for EvalEvery {
    type Err = String;

    fn from_str(word: &str) -> std::result::Result<Self, String> {
        if word == "auto" {
            return Ok(Self::Auto);
        }
        let wrong = || format!("'{word}' is neither auto nor a number of epochs from 1");
        word.parse().map(Self::Epochs).map_err(|_| wrong())
    }
}

impl fmt::Display for EvalEvery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Epochs(epochs) => epochs.fmt(f),
        }
    }
}

impl Serialize for EvalEvery {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Self::Epochs(epochs) => serializer.serialize_u64(epochs.get() as u64),
            word => serializer.collect_str(word),
        }
    }
}

by_word!(EvalEvery);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use graphmill_nn::link::{
        decoder::{DecoderConfig, TABLE as DECODERS},
        structure::PairStructure,
    };

    use super::*;

    #[test]
    fn scoring_keeps_to_its_share() {
        let work = |rows, edges| Work { rows, edges, pairs: 0 };
        // training on the same rows is 1.4 times as expensive
        assert_eq!(work(100, 1000).interval(work(100, 1000)), 7);
        assert_eq!(work(100, 1000).interval(work(1, 10)), 1);
        assert_eq!(work(1, 0).interval(work(40, 0)), 258);
        assert_eq!(work(0, 0).interval(work(0, 0)), 1);
        // a pair counts as an edge
        let pairs = |pairs| Work { pairs, ..Work::default() };
        assert_eq!(pairs(2000).interval(pairs(2000)), work(0, 2000).interval(work(0, 2000)));
        assert_eq!(
            [pairs(3), work(2, 5)].into_iter().sum::<Work>().to_string(),
            "2 rows from 5 edges, and 3 pairs"
        );
        for scoring in [10, 300, 7000] {
            let (epoch, score) = (work(10, 50), work(scoring, 0));
            let training = TRAINING_WORK * epoch.units() * epoch.interval(score) as f64;
            assert!(score.units() <= MAX_SHARE * (training + score.units()) * (1.0 + 1e-12));
        }
    }

    #[test]
    fn pairs_of_a_network_count_as_rows() {
        let graph = Arc::new(PairStructure::without_edges(1).unwrap());
        let config = DecoderConfig { dim: 4, graph: Some(&graph), ..DecoderConfig::default() };
        for entry in DECODERS.iter() {
            let work = Work::of_pairs(&*(entry.make.make)(&config).unwrap(), 7);
            let is_network = entry.make.options.contains(&"decoder_hidden");
            let expected = if is_network { (7, 0, 0) } else { (0, 0, 7) };
            assert_eq!((work.rows, work.edges, work.pairs), expected, "{}", entry.name);
        }
    }

    #[test]
    fn a_number_stays_a_number_in_files() {
        for (json, epochs) in [("7", Some(7)), ("\"auto\"", None)] {
            let value = serde_json::from_str::<EvalEvery>(json).unwrap();
            assert_eq!(value.fixed(), epochs);
            assert_eq!(serde_json::to_string(&value).unwrap(), json);
        }
        assert!("0".parse::<EvalEvery>().is_err() && "often".parse::<EvalEvery>().is_err());
    }
}
