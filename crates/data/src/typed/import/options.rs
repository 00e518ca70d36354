//! Options of the importers of typed sources.

use graphmill_core::{Error, Result};

use super::TABLE;

/// Options of [`import`](super::import); the default imports the source unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TypedOptions {
    /// Name of the dataset; `None` takes that of the source.
    pub name: Option<String>,
    /// True to add a reverse edge type, `rev_NAME`, of every edge type without one.
    pub add_reverses: bool,
    /// True to drop edges from a node to itself.
    pub no_self_loops: bool,
    /// True to keep parallel edges in edge types without time, weights and features.
    pub keep_duplicates: bool,
    /// True to store features as a dense table even if sparse rows take fewer bytes.
    pub dense_features: bool,
    /// True to leave out literals (`rdf`).
    pub no_literals: bool,
    /// True to add the reverse of every edge to its edge type.
    pub undirected: bool,
    /// Fraction of training rows that validate, if the source has no validation set.
    pub valid_fraction: Option<f64>,
    /// Fraction of the rows that test, if the source has no test set.
    pub test_fraction: Option<f64>,
    /// Seed of random splits and negatives.
    pub split_seed: u64,
}

impl TypedOptions {
    /// Rejects options that do not fit `format`, and fractions out of range.
    ///
    /// # Errors
    /// The first invalid option.
    pub fn check(&self, format: &str) -> Result<()> {
        let entry = graphmill_core::table::find("format", TABLE, format)?;
        let given = [
            ("add-reverses", self.add_reverses),
            ("dense-features", self.dense_features),
            ("no-literals", self.no_literals),
            ("undirected", self.undirected),
            ("valid-fraction", self.valid_fraction.is_some()),
            ("test-fraction", self.test_fraction.is_some()),
        ];
        let fits = |name: &str| entry.make.options.contains(&name) || name == "add-reverses";
        if let Some((name, _)) = given.iter().find(|(name, given)| *given && !fits(name)) {
            return Err(Error::invalid(format!(
                "the option '{name}' has no effect on the format '{format}', whose options are: {}; leave it out",
                entry.make.options.join(", ")
            )));
        }
        for (name, value) in [("valid-fraction", self.valid_fraction), ("test-fraction", self.test_fraction)]
        {
            if let Some(value) = value.filter(|value| !(0.0..1.0).contains(value)) {
                return Err(Error::invalid(format!(
                    "{name} {value}: a fraction of at least 0 and below 1 expected, such as 0.2"
                )));
            }
        }
        Ok(())
    }
}
