//! Relational graph convolution (R-GCN).
//!
//! # Algorithm
//!
//! ```text
//! out[v] = x[v] W_0 + b + sum over relations r of
//!          (1 / degree_r(v)) sum over in-neighbours u by r of x[u] W_r
//! ```
//!
//! With `--bases B`, `W_r` is a combination of `B` matrices that all relations share; with
//! `--blocks B`, it is block-diagonal with `B` blocks.
//!
//! # Source
//!
//! Schlichtkrull, Kipf, Bloem, van den Berg, Titov and Welling, *Modeling relational data with
//! graph convolutional networks*, ESWC 2018, equations 2 to 4.
//!
//! # Cost
//!
//! As a convolution on each relation; bases add `R B F O` multiplications to combine them, and
//! blocks divide the products by `B`.
//!
//! # Deviations
//!
//! The bias `b` is that of the implementations, the paper has none. Nodes without features have
//! learned rows of the hidden width below the first layer instead of one-hot rows, which would make
//! `W_r` a table of `V x O` for each relation.

use clap::Args;
use graphmill_core::{
    keyed,
    options::{Fault, OptionSet, range},
};
use serde::{Deserialize, Serialize};

use super::{RelationSum, RelationWeights, TypedLayer, TypedLayerConfig, relation_sum::OwnWeights};
use crate::{Error, Result, layer::Linear};

/// Options of R-GCN.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RgcnOptions {
    /// Matrices that the relations' weights combine; 0 gives each relation its own.
    ///
    /// Fewer bases than relations regularize graphs with many rare relations.
    #[arg(long, value_name = "N")]
    pub bases: usize,
    /// Blocks on the diagonal of the relations' weights; 0 makes the weights dense.
    ///
    /// Must divide the widths of all layers. Not together with --bases.
    #[arg(long, value_name = "N")]
    pub blocks: usize,
}

impl OptionSet for RgcnOptions {
    fn check(&self) -> Result<(), Fault> {
        range("bases", self.bases, 0..=4096)?;
        range("blocks", self.blocks, 0..=4096)
    }
}

/// Makes a layer.
pub(super) fn make(config: &TypedLayerConfig) -> Result<Box<dyn TypedLayer>> {
    let &TypedLayerConfig { schema, in_dim, out_dim, key, .. } = config;
    let RgcnOptions { bases, blocks } = config.own.get();
    let (relations, widths, of_relations) =
        (schema.num_relations(), [in_dim, out_dim], keyed::key(&[key, 0]));
    let weights = match (bases, blocks) {
        (0, 0) => RelationWeights::full(relations, widths, of_relations),
        (bases, 0) => RelationWeights::bases(relations, bases, widths, of_relations),
        (0, blocks) => {
            if let Some(width) = widths.into_iter().find(|width| !width.is_multiple_of(blocks)) {
                let message = format!(
                    "does not divide {width} columns; use a divisor of all widths, and a head for the classes"
                );
                return Err(Error::config("blocks", blocks, message));
            }
            RelationWeights::blocks(relations, blocks, widths, of_relations)
        }
        _ => return Err(Error::config("blocks", blocks, "not together with bases; set one of them to 0")),
    };
    let own = Linear::named(["own.weight", "bias"], in_dim, out_dim, true, keyed::key(&[key, 1]));
    Ok(Box::new(RelationSum::new(in_dim, out_dim, OwnWeights::Shared(Box::new(own)), weights)))
}
