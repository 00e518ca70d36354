//! Options shared by all generators, with defaults and common checks.

use graphmill_core::{Error, NodeId, Result, memory::available};
use serde::{Deserialize, Serialize};

use crate::external::{Needs, Scratch};

/// Storage type of generated features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FeatureType {
    /// 32-bit floats.
    #[default]
    F32,
    /// 16-bit floats: half the size.
    F16,
}

impl FeatureType {
    /// All types, with their names on the command line.
    pub const ALL: [(&'static str, Self); 2] = [("f32", Self::F32), ("f16", Self::F16)];

    /// Bytes of a value.
    pub fn width(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
        }
    }
}

/// Options of the generators. One struct serves every generator, the command line and configuration
/// files; a generator ignores the options it does not use, which [`unread_option`] names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GenerateOptions {
    /// `sbm`: number of nodes. Default 50,000.
    pub nodes: usize,
    /// `kronecker`: base-2 logarithm of the number of nodes. Default 16.
    pub scale: u32,
    /// `kronecker`: the 2x2 initiator matrix `[[a, b], [c, d]]` with nonnegative entries; only
    /// their proportions matter unless both `edges` and `degree` are omitted. Default `[[0.9, 0.5],
    /// [0.5, 0.1]]`.
    pub initiator: [[f64; 2]; 2],
    /// Number of edges to draw; an undirected edge counts once. Duplicates are stored once, and an
    /// undirected graph has no self-loops, so somewhat fewer remain. Default: by `degree`.
    pub edges: Option<u64>,
    /// Average number of in-neighbours to draw, instead of `edges`. Default: `kronecker`, the
    /// expectation of the initiator, `(a + b + c + d)^scale / 2^scale`; `sbm`, 16.
    pub degree: Option<f64>,
    /// True to store edges in one direction; otherwise every edge is stored in both. Default false.
    pub directed: bool,
    /// `kronecker`: true to renumber the nodes at random; otherwise the first ids have the highest
    /// degrees. Default true.
    pub shuffle_ids: bool,
    /// Number of classes `C`. Default 10.
    pub classes: usize,
    /// `sbm`: exponent of the power law that the nodes' expected degrees follow, above 1; larger is
    /// more even. Default 2.5.
    pub degree_exponent: f64,
    /// `sbm`: share of the edges whose ends are of one class, before label noise. Default 0.5.
    pub p_in: f64,
    /// Features per node `F`; 0 makes none. Default 64.
    pub dim: usize,
    /// Storage type of the features. Default f32.
    pub feature_type: FeatureType,
    /// `sbm`: length of a class's mean feature vector in units of the noise, per feature. Default
    /// 0.15.
    pub signal: f64,
    /// `sbm`: share of the labels replaced by a random class. Default 0.
    pub label_noise: f64,
    /// `sbm`: number of communities, each of one class, classes in turn; 0 for as many as classes.
    /// Default 0.
    pub communities: usize,
    /// `sbm`: number of communities from which the training nodes are drawn, as in a graph of which
    /// only a part is labelled; 0 for all. Default 0.
    pub train_communities: usize,
    /// Share of the nodes that train. Default 0.5.
    pub train: f64,
    /// Share of the nodes that validate. Default 0.25.
    pub valid: f64,
    /// Share of the nodes that test. Default 0.25.
    pub test: f64,
    /// Seed; the same seed and options give the same dataset. Default 0.
    pub seed: u64,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            nodes: 50_000,
            scale: 16,
            initiator: [[0.9, 0.5], [0.5, 0.1]],
            edges: None,
            degree: None,
            directed: false,
            shuffle_ids: true,
            classes: 10,
            degree_exponent: 2.5,
            p_in: 0.5,
            dim: 64,
            feature_type: FeatureType::F32,
            signal: 0.15,
            label_noise: 0.0,
            communities: 0,
            train_communities: 0,
            train: 0.5,
            valid: 0.25,
            test: 0.25,
            seed: 0,
        }
    }
}

impl GenerateOptions {
    /// Number of edges to draw among `nodes` nodes; without `edges` and `degree`, `expected` of
    /// them are stored in CSC. Also performs the checks common to all generators, including that
    /// the in-memory part of `scratch` fits.
    pub(super) fn edges_to_draw(&self, nodes: usize, expected: f64, scratch: &Scratch) -> Result<usize> {
        self.check_common()?;
        let two = if self.directed { 1.0 } else { 2.0 };
        let pairs = nodes as f64 * nodes as f64 / two;
        let draws = match (self.edges, self.degree) {
            (Some(_), Some(_)) => {
                return Err(Error::invalid(
                    "edges and degree both set the number of edges; pass only one of them",
                ));
            }
            (Some(edges), None) => edges as f64,
            (None, Some(degree)) => {
                if !(degree >= 0.0 && degree <= nodes as f64) {
                    return Err(Error::invalid(format!(
                        "degree is {degree}: a node of {nodes} has between 0 and {nodes} in-neighbours"
                    )));
                }
                degree * nodes as f64 / two
            }
            (None, None) => expected / two,
        };
        if draws > pairs {
            return Err(Error::invalid(format!(
                "{draws:.0} edges among {nodes} nodes: there are only {pairs:.0} pairs; draw fewer edges"
            )));
        }
        self.check_memory(nodes, draws, scratch)?;
        scratch.expect(&Needs {
            nodes: nodes as u64,
            edges: (draws * two) as u64,
            features: (nodes * self.dim * self.feature_type.width()) as u64,
            weighted: false,
            estimated: true,
        })?;
        Ok(draws.round() as usize)
    }

    fn check_common(&self) -> Result<()> {
        if self.classes == 0 || self.classes > i32::MAX as usize {
            return Err(Error::invalid(format!("{} classes: there must be 1 to {}", self.classes, i32::MAX)));
        }
        for (name, share) in [("train", self.train), ("valid", self.valid), ("test", self.test)] {
            check_share(name, share)?;
        }
        // Shares such as 0.7 + 0.2 + 0.1 may slightly exceed 1 in binary.
        if self.train + self.valid + self.test > 1.0 + 1e-9 {
            return Err(Error::invalid(format!(
                "train {} + valid {} + test {} is more than the whole: the shares add up to at most 1",
                self.train, self.valid, self.test
            )));
        }
        Ok(())
    }

    /// Rejects sizes for which the system would kill the process.
    fn check_memory(&self, nodes: usize, draws: f64, scratch: &Scratch) -> Result<()> {
        let values = nodes.checked_mul(self.dim).filter(|n| n.checked_mul(4).is_some()).ok_or_else(|| {
            Error::invalid(format!("{nodes} nodes x {} features are too many features", self.dim))
        })?;
        // Pairs as drawn; buckets and the result of the sort (see `builder::build`).
        let stored = draws * if self.directed { 1.0 } else { 2.0 };
        let collected = 8.0 * draws + 8.0 * stored + (self.feature_type.width() * values) as f64;
        // Per node: starts, cursors, weights, labels and split.
        let always = 64.0 * nodes as f64 + 4.0 * self.classes as f64 * self.dim as f64;
        let needed = always + collected.min(scratch.memory() as f64);
        // If the system does not report it, reject at least sizes that no machine has.
        let available = available().unwrap_or(1 << 46);
        if needed <= available as f64 {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "not enough memory: {nodes} nodes x {} features and {draws:.0} edges need about {:.1} GB, \
                 but {:.1} GB are available; make a smaller graph or fewer features",
            self.dim,
            needed / 1e9,
            available as f64 / 1e9
        )))
    }
}

/// Options that only some generators read, and these generators.
const READERS: &[(&str, &[&str])] = &[
    ("nodes", &["sbm", "typed"]),
    ("scale", &["kronecker", "igbh"]),
    ("initiator", &["kronecker"]),
    ("shuffle_ids", &["kronecker"]),
    ("degree_exponent", &["sbm"]),
    ("p_in", &["sbm", "typed", "igbh"]),
    ("communities", &["sbm"]),
    ("train_communities", &["sbm"]),
    ("signal", &["sbm", "typed", "igbh"]),
    ("label_noise", &["sbm", "typed", "igbh"]),
];

/// First of the `given` options, fields of [`GenerateOptions`], that the generator `name` does not
/// read, with the names of the generators that do. A command that ignored it would surprise its
/// user.
///
/// ```
/// use graphmill_data::generate::unread_option;
/// assert_eq!(unread_option("sbm", ["nodes", "seed"]), None);
/// assert_eq!(unread_option("kronecker", ["seed", "nodes"]), Some(("nodes", "sbm, typed".into())));
/// ```
pub fn unread_option<'o>(name: &str, given: impl IntoIterator<Item = &'o str>) -> Option<(&'o str, String)> {
    given.into_iter().find_map(|option| {
        let (_, readers) = READERS.iter().find(|(of_some, _)| *of_some == option)?;
        (!readers.contains(&name)).then(|| (option, readers.join(", ")))
    })
}

/// Checks that `share` is within 0..=1.
pub(super) fn check_share(name: &str, share: f64) -> Result<()> {
    if (0.0..=1.0).contains(&share) {
        return Ok(());
    }
    Err(Error::invalid(format!("{name} is {share}: a share lies between 0 and 1")))
}

/// Checks that there are 1 to [`NodeId::MAX`] nodes.
pub(super) fn check_nodes(nodes: usize) -> Result<()> {
    if (1..=NodeId::MAX as usize).contains(&nodes) {
        return Ok(());
    }
    Err(Error::invalid(format!("{nodes} nodes: there must be 1 to {}, as node ids are 32-bit", NodeId::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_degree_or_expectation_set_the_number_of_draws() {
        let both = GenerateOptions::default();
        assert_eq!(
            both.edges_to_draw(100, 250.0, &Scratch::in_memory()).unwrap(),
            125,
            "an undirected edge is stored twice"
        );
        let directed = GenerateOptions { directed: true, ..Default::default() };
        assert_eq!(directed.edges_to_draw(100, 250.0, &Scratch::in_memory()).unwrap(), 250);
        let degree = GenerateOptions { degree: Some(7.0), ..Default::default() };
        assert_eq!(degree.edges_to_draw(100, 0.0, &Scratch::in_memory()).unwrap(), 350);
        let edges = GenerateOptions { edges: Some(42), ..Default::default() };
        assert_eq!(edges.edges_to_draw(100, 0.0, &Scratch::in_memory()).unwrap(), 42);
        let all = GenerateOptions { edges: Some(10_001), directed: true, ..Default::default() };
        assert!(
            all.edges_to_draw(100, 0.0, &Scratch::in_memory())
                .unwrap_err()
                .to_string()
                .contains("10000 pairs")
        );
    }

    #[test]
    fn option_files_reject_unknown_keys() {
        let options: GenerateOptions =
            serde_json::from_str(r#"{"scale": 9, "initiator": [[1, 2], [3, 4]]}"#).unwrap();
        assert_eq!((options.scale, options.initiator[1][0], options.dim), (9, 3.0, 64));
        assert!(serde_json::from_str::<GenerateOptions>(r#"{"sclae": 9}"#).is_err());
    }

    #[test]
    fn rounding_of_shares_is_tolerated() {
        let options = GenerateOptions { train: 0.7, valid: 0.2, test: 0.1, ..Default::default() };
        assert!(options.check_common().is_ok());
    }
}
