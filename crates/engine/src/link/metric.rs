//! The metric of a link run: a row of the table of rank metrics with its cutoff.

use graphmill_core::table::Entry;
use graphmill_nn::link::rank::{RankMetric, TABLE};

use crate::{Error, Result};

/// Cutoff of a metric that names none.
pub const DEFAULT_CUTOFF: usize = 10;

/// A metric of rankings, with its cutoff.
#[derive(Clone, Debug)]
pub struct LinkMetric {
    /// The row of the table.
    pub entry: &'static Entry<RankMetric>,
    /// The cutoff `K`, which some metrics ignore.
    pub k: usize,
}

impl LinkMetric {
    /// Finds a metric by its name, such as `mrr`, `auc`, `hits` or `hits@50`.
    ///
    /// # Errors
    /// Wrong usage: the name is unknown, or has a cutoff that the metric does not use.
    pub fn find(name: &str) -> Result<Self> {
        let wrong = |message: String| Error::usage(format!("--metric {name}: {message}"));
        let (of, k) = match name.split_once('@') {
            None => (name, None),
            Some((of, k)) => {
                let k = k.parse().ok().filter(|&k: &usize| k > 0);
                let message = || wrong("the cutoff must be an integer above 0, such as hits@10".into());
                (of, Some(k.ok_or_else(message)?))
            }
        };
        // the name of the metric in datasets and in metrics of labels
        let of = if of == "roc-auc" { "auc" } else { of };
        let entry = TABLE.find(of).map_err(|error| {
            wrong(format!("{error}; hits, recall, precision, map and ndcg take a cutoff, such as hits@10"))
        })?;
        if k.is_some() && !entry.make.has_cutoff() {
            return Err(wrong(format!("{of} has no cutoff; use --metric {of}")));
        }
        Ok(Self { entry, k: k.unwrap_or(DEFAULT_CUTOFF) })
    }

    /// Name with the cutoff, if the metric uses one.
    pub fn name(&self) -> String {
        if self.entry.make.has_cutoff() {
            format!("{}@{}", self.entry.name, self.k)
        } else {
            self.entry.name.into()
        }
    }

    /// Returns true if the metric needs the scores of all candidates together, as AUC does.
    pub fn is_pooled(&self) -> bool {
        matches!(self.entry.make, RankMetric::Pooled(_))
    }

    /// Returns true if the metric judges the list of all relevant candidates of a query.
    pub fn is_of_lists(&self) -> bool {
        matches!(self.entry.make, RankMetric::OfRanks { is_of_lists: true, .. })
    }

    /// All metrics, those with a cutoff at `k`.
    pub fn all(k: usize) -> Vec<Self> {
        TABLE.iter().map(|entry| Self { entry, k }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_cutoffs_where_the_metric_uses_them() {
        let name = |name: &str| LinkMetric::find(name).map(|metric| metric.name());
        for (given, full) in [("mrr", "mrr"), ("hits", "hits@10"), ("hits@50", "hits@50"), ("roc-auc", "auc")]
        {
            assert_eq!(name(given).unwrap(), full);
        }
        for (wrong, why) in [
            ("auc@3", "auc has no cutoff; use --metric auc"),
            ("hits@0", "the cutoff must be an integer above 0"),
            ("hits@x", "such as hits@10"),
            ("accuracy", "unknown rank metric 'accuracy'"),
        ] {
            let message = name(wrong).unwrap_err().to_string();
            assert!(message.contains(why), "{message}");
        }
    }
}
