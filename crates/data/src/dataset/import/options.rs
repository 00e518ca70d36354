//! Import options and their command-line syntax.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use graphmill_core::{EdgeOptions, Error, Result};

use super::Flavour;
use crate::dataset::GraphParts;

/// Known metrics of a dataset.
pub const METRICS: &[&str] = &["accuracy", "f1-micro", "f1-macro", "roc-auc", "average-precision"];

/// Options of [`import`](super::import); the default imports the source unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImportOptions {
    /// True to store every edge in both directions.
    pub undirected: bool,
    /// True to drop self-loops.
    pub no_self_loops: bool,
    /// True to keep parallel edges.
    pub keep_duplicates: bool,
    /// True to keep only the largest weakly connected component; nodes are renumbered in their old
    /// order.
    pub largest_component: bool,
    /// Normalization of the features.
    pub normalize: Normalize,
    /// True to store features as a dense table even if sparse rows take fewer bytes.
    pub dense_features: bool,
    /// Split of the nodes; `None` takes the source's first split, or none.
    pub split: Option<SplitRule>,
    /// Seed of random splits.
    pub split_seed: u64,
    /// One of [`METRICS`]; `None` leaves the choice to the importer.
    pub metric: Option<String>,
    /// Name of the dataset; `None` takes the source's name.
    pub name: Option<String>,
    /// `edges` only: path of the feature file.
    pub features: Option<PathBuf>,
    /// `edges` only: path of the label file.
    pub labels: Option<PathBuf>,
    /// `edges` only: path of a file of pairs of nodes and classes, instead of labels.
    pub label_pairs: Option<PathBuf>,
    /// `edges` and `parquet`: path of a file with an id per node.
    pub nodes: Option<PathBuf>,
    /// `edges` only: path of the training nodes.
    pub train: Option<PathBuf>,
    /// `edges` only: path of the validation nodes.
    pub valid: Option<PathBuf>,
    /// `edges` only: path of the test nodes.
    pub test: Option<PathBuf>,
    /// `edges` and `parquet`: true if ids are arbitrary whole numbers; nodes are numbered by
    /// ascending id.
    pub compact_ids: bool,
    /// `edges` and `parquet`: number of nodes, if no file states it.
    pub num_nodes: Option<usize>,
    /// `edges` only: layout of the edge file.
    pub flavour: Flavour,
    /// `edges` and `parquet`: id of the first node, in all files.
    pub first_id: u64,
    /// Location of the edge weights.
    pub weights: WeightColumn,
}

/// Location of the edge weights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WeightColumn {
    /// Column or array called `weight`, `edge_weight` or `weights`, or as the format defines it;
    /// unweighted if neither exists.
    #[default]
    Auto,
    /// No weights: weights of the source are ignored.
    None,
    /// `edges`, `parquet` and `graphbolt`: column or array of this name; in a text table without
    /// names also its number from 1, and with an edge array the path of an array.
    Named(String),
}

impl FromStr for WeightColumn {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(match text {
            "auto" => Self::Auto,
            "none" => Self::None,
            name => Self::Named(name.into()),
        })
    }
}

impl ImportOptions {
    /// Options for building the graph. A format of `undirected` simple graphs has its edges made
    /// symmetric, without self-loops and duplicates, regardless of the options.
    pub fn edge_options(&self, undirected: bool) -> EdgeOptions {
        EdgeOptions {
            undirected: self.undirected || undirected,
            drop_self_loops: self.no_self_loops || undirected,
            keep_duplicates: self.keep_duplicates && !undirected,
        }
    }

    /// The source `src`, and the files that the options name.
    pub(super) fn paths<'a>(&'a self, src: &'a Path) -> impl Iterator<Item = &'a Path> {
        let tables = [&self.features, &self.labels, &self.label_pairs, &self.nodes];
        let named = tables.into_iter().chain([&self.train, &self.valid, &self.test]);
        std::iter::once(src).chain(named.flatten().map(PathBuf::as_path))
    }

    /// The same options with other paths of files.
    pub(super) fn with_paths(&self, change: impl Fn(&Path) -> PathBuf) -> Self {
        let mut options = self.clone();
        let Self { features, labels, label_pairs, nodes, train, valid, test, .. } = &mut options;
        for path in [features, labels, label_pairs, nodes, train, valid, test].into_iter().flatten() {
            *path = change(path);
        }
        options
    }

    /// Rejects options that do not fit `format`, and unknown metrics. Importing repeats this check.
    ///
    /// # Errors
    /// The first invalid option.
    pub fn check(&self, format: &str) -> Result<()> {
        if let Some(metric) = self.metric.as_deref().filter(|metric| !METRICS.contains(metric)) {
            return Err(Error::Unknown { axis: "metric", name: metric.into(), known: METRICS.join(", ") });
        }
        let edges: &[&str] = &["edges"];
        let tables: &[&str] = &["edges", "parquet"];
        let of_formats = [
            ("features", self.features.is_some(), edges),
            ("labels", self.labels.is_some(), edges),
            ("label-pairs", self.label_pairs.is_some(), edges),
            ("nodes", self.nodes.is_some(), tables),
            ("train", self.train.is_some(), edges),
            ("valid", self.valid.is_some(), edges),
            ("test", self.test.is_some(), edges),
            ("compact-ids", self.compact_ids, tables),
            ("num-nodes", self.num_nodes.is_some(), tables),
            ("flavour", self.flavour != Flavour::Auto, edges),
            ("first-id", self.first_id != 0, tables),
            ("weights", matches!(self.weights, WeightColumn::Named(_)), &["edges", "parquet", "graphbolt"]),
        ];
        if self.compact_ids && self.first_id != 0 {
            return Err(Error::invalid(
                "compact-ids numbers nodes by ascending id, so first-id has no effect; leave out first-id",
            ));
        }
        if self.labels.is_some() && self.label_pairs.is_some() {
            return Err(Error::invalid("labels and label-pairs both define the labels; leave out one"));
        }
        match of_formats.iter().find(|(_, given, formats)| *given && !formats.contains(&format)) {
            None => Ok(()),
            Some((name, _, formats)) => Err(Error::invalid(format!(
                "the option '{name}' belongs to the format '{}'; '{format}' defines it itself",
                formats.join("' and '")
            ))),
        }
    }
}

/// Normalization of the features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Normalize {
    /// No normalization.
    #[default]
    None,
    /// Divides every row by its sum (Planetoid's preprocessing); rows that sum to zero stay
    /// unchanged.
    Rows,
    /// Subtracts every column's mean over the training nodes and divides by its deviation; sparse
    /// features are only divided, and stay sparse.
    Standard,
}

impl FromStr for Normalize {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "none" => Ok(Self::None),
            "rows" => Ok(Self::Rows),
            "standard" => Ok(Self::Standard),
            _ => Err(Error::Unknown {
                axis: "normalisation",
                name: text.into(),
                known: "none, rows, standard".into(),
            }),
        }
    }
}

impl fmt::Display for Normalize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Rows => "rows",
            Self::Standard => "standard",
        })
    }
}

/// Rule for splitting the nodes.
#[derive(Clone, Debug, PartialEq)]
pub enum SplitRule {
    /// `given` or `given:K`: split number K (from 0) of the source.
    Given(usize),
    /// `planetoid:T,V`: T training and V validation nodes of every class, the rest for testing.
    Planetoid {
        /// Training nodes per class.
        train: usize,
        /// Validation nodes per class.
        valid: usize,
    },
    /// `random:A,B,C`: these fractions of the labelled nodes, which may be written as percentages.
    Random {
        /// Fraction of training nodes.
        train: f64,
        /// Fraction of validation nodes.
        valid: f64,
        /// Fraction of test nodes.
        test: f64,
    },
    /// `graphs:A/B/C,D`: the nodes of the graph A train, those of B validate, those of C and D
    /// test.
    Graphs(GraphParts),
}

/// Fractions of a split that is written in fractions, or in percentages: one of them exceeds 1.
///
/// ```
/// use graphmill_data::dataset::import::fractions;
///
/// assert_eq!(fractions([60.0, 20.0, 20.0]), [0.6, 0.2, 0.2]);
/// assert_eq!(fractions([0.5, 0.25, 0.25]), [0.5, 0.25, 0.25]);
/// ```
pub fn fractions(shares: [f64; 3]) -> [f64; 3] {
    if shares.iter().any(|&share| share > 1.0) { shares.map(|share| share / 100.0) } else { shares }
}

impl FromStr for SplitRule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |why: &str| {
            Error::invalid(format!(
                "split '{text}': {why}; write given, given:K, planetoid:TRAIN,VALID (nodes per class), \
                 random:A,B,C (fractions that sum to at most 1, or percentages that sum to at most 100) or \
                 graphs:TRAIN/VALID/TEST (names, with commas between those of a part)"
            ))
        };
        let (rule, values) = text.split_once(':').unwrap_or((text, ""));
        let parts: Vec<&str> = values.split(',').map(str::trim).collect();
        let count =
            |text: &str| text.parse::<usize>().map_err(|_| wrong(&format!("'{text}' is not a whole number")));
        match (rule, &parts[..]) {
            ("given", [""]) if !text.contains(':') => Ok(Self::Given(0)),
            ("given", [k]) => Ok(Self::Given(count(k)?)),
            ("planetoid", [train, valid]) => {
                let (train, valid) = (count(train)?, count(valid)?);
                if train == 0 {
                    return Err(wrong("there must be training nodes"));
                }
                Ok(Self::Planetoid { train, valid })
            }
            ("random", [a, b, c]) => {
                let part = |text: &str| match text.parse::<f64>() {
                    Ok(x) if (0.0..=100.0).contains(&x) => Ok(x),
                    _ => Err(wrong(&format!("'{text}' is not a fraction from 0 to 1 or a percentage"))),
                };
                let [train, valid, test] = fractions([part(a)?, part(b)?, part(c)?]);
                if train == 0.0 || train + valid + test > 1.0 + 1e-9 {
                    return Err(wrong(
                        "the fractions must sum to at most 1 (or 100 as percentages), and the first be above \
                         0",
                    ));
                }
                Ok(Self::Random { train, valid, test })
            }
            ("graphs", _) => {
                let names =
                    |part: &str| part.split(',').map(|name| name.trim().to_string()).collect::<Vec<_>>();
                let part = |part: &str| if part.trim().is_empty() { Vec::new() } else { names(part) };
                let parts: Vec<&str> = values.split('/').collect();
                let [train, valid, test] = parts[..] else {
                    return Err(wrong("three parts with a slash between them expected"));
                };
                let parts = GraphParts { train: part(train), valid: part(valid), test: part(test) };
                if parts.train.is_empty() {
                    return Err(wrong("there must be a graph to train on"));
                }
                Ok(Self::Graphs(parts))
            }
            ("given" | "planetoid" | "random", _) => Err(wrong("the number of values does not fit")),
            _ => Err(wrong("unknown rule")),
        }
    }
}

impl fmt::Display for SplitRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(k) => write!(f, "given:{k}"),
            Self::Planetoid { train, valid } => write!(f, "planetoid:{train},{valid}"),
            Self::Random { train, valid, test } => write!(f, "random:{train},{valid},{test}"),
            Self::Graphs(parts) => {
                let part = |names: &[String]| names.join(",");
                write!(f, "graphs:{}/{}/{}", part(&parts.train), part(&parts.valid), part(&parts.test))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_rules_parse_and_format() {
        let rule = |text: &str| text.parse::<SplitRule>().map_err(|e| e.to_string());
        assert_eq!(rule("given"), Ok(SplitRule::Given(0)));
        assert_eq!(rule("given:3"), Ok(SplitRule::Given(3)));
        assert_eq!(rule("planetoid:20,30"), Ok(SplitRule::Planetoid { train: 20, valid: 30 }));
        let random = SplitRule::Random { train: 0.5, valid: 0.25, test: 0.25 };
        assert_eq!(rule("random:0.5,0.25,0.25"), Ok(random.clone()));
        assert_eq!(rule(&random.to_string()), Ok(random));
        let percentages = SplitRule::Random { train: 0.6, valid: 0.2, test: 0.2 };
        assert_eq!(rule("random:60,20,20"), Ok(percentages.clone()), "as import tables takes it");
        assert_eq!(rule("random:0.6,0.2,0.2"), Ok(percentages));
        assert_eq!(rule("random:100,0,0"), Ok(SplitRule::Random { train: 1.0, valid: 0.0, test: 0.0 }));
        let graphs = rule("graphs:DE/ENGB/ES, FR").unwrap();
        assert_eq!(graphs.to_string(), "graphs:DE/ENGB/ES,FR");
        assert_eq!(rule("graphs:a//").unwrap().to_string(), "graphs:a//");
        assert!(rule("random:0.6,0.2,0.2").is_ok(), "sums to 1 but for rounding");
        for bad in [
            "",
            "gibt",
            "given:",
            "given:x",
            "given:-1",
            "planetoid",
            "planetoid:20",
            "planetoid:0,5",
            "random:1,1,1",
            "random:60,30,20",
            "random:101,0,0",
            "random:-60,20,20",
            "random:0,0.5,0.5",
            "random:nan,0,0",
            "random:0.5,0.5",
            "random:0.5,-0.1,0.1",
            "graphs",
            "graphs:a/b",
            "graphs:/a/b",
            "graphs:a/b/c/d",
        ] {
            let error = rule(bad).unwrap_err();
            assert!(error.contains("planetoid:TRAIN,VALID"), "{bad}: {error}");
        }
        assert_eq!("rows".parse::<Normalize>().unwrap(), Normalize::Rows);
        assert!("row".parse::<Normalize>().unwrap_err().to_string().contains("none, rows, standard"));
    }

    #[test]
    fn options_of_other_formats_are_rejected() {
        let options = ImportOptions { num_nodes: Some(3), ..Default::default() };
        assert!(options.check("edges").is_ok());
        assert!(options.check("npz").unwrap_err().to_string().contains("'num-nodes' belongs"));
        let options = ImportOptions { metric: Some("auc".into()), ..Default::default() };
        assert!(options.check("npz").unwrap_err().to_string().contains("roc-auc"));
    }
}
