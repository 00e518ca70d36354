//! Options of the pipelined strategy: the cores of its stages.

use std::str::FromStr;

use clap::Args;
use graphmill_core::options::{OptionSet, Spelled, suggestion};
use serde::{Deserialize, Serialize};

use crate::config::parse_default;

/// Options of `pipelined`.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PipelinedOptions {
    /// Cores of the stages: profiled, naive, or numbers such as 1,1,2.
    ///
    /// With profiled, cores are solved for from the costs of the first batches. With naive, all
    /// stages compete for all cores. Numbers are the cores that sample, extract and train.
    #[arg(long, value_name = "HOW")]
    pub allocation: Spelled<Cores>,
}

impl Default for PipelinedOptions {
    fn default() -> Self {
        Self { allocation: parse_default("profiled") }
    }
}

impl OptionSet for PipelinedOptions {
    const FREE: &'static [&'static str] = &["allocation"];
}

/// Choice of the number of cores of each stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cores {
    /// Solved from the costs of the first batches.
    Profiled,
    /// Every stage has a thread per core, and the stages compete.
    Naive,
    /// Given by the user: the cores that sample, extract and train.
    Given([usize; 3]),
}

impl FromStr for Cores {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "profiled" => Ok(Self::Profiled),
            "naive" => Ok(Self::Naive),
            _ => {
                let numbers: Option<Vec<usize>> = word
                    .split(',')
                    .map(|n| n.trim().parse().ok().filter(|n| (1..=1 << 10).contains(n)))
                    .collect();
                let given = numbers.and_then(|numbers| <[usize; 3]>::try_from(numbers).ok());
                given.map(Self::Given).ok_or_else(|| {
                    format!(
                        "'{word}' is not an allocation; use profiled, naive, or cores that sample, extract \
                         and train such as 1,1,2{}",
                        suggestion(word, &["profiled", "naive"])
                    )
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_profiled_naive_or_given() {
        assert_eq!("profiled".parse(), Ok(Cores::Profiled));
        assert_eq!("1, 2,3".parse(), Ok(Cores::Given([1, 2, 3])));
        for wrong in ["", "1,2", "0,1,1", "1,2,3,4", "all"] {
            assert!(wrong.parse::<Cores>().unwrap_err().contains("use profiled, naive, or cores"), "{wrong}");
        }
    }
}
