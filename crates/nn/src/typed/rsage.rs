//! Relational GraphSAGE.
//!
//! # Algorithm
//!
//! ```text
//! out[v] = x[v] W_type(v) + sum over relations r of (mean over in-neighbours u by r of x[u]) W_r + b_type(v)
//! ```
//!
//! # Source
//!
//! Hamilton, Ying and Leskovec, *Inductive representation learning on large graphs*, NeurIPS 2017,
//! with a mean aggregator for each relation and the sum over relations of MLPerf's R-GNN (Graph
//! Neural Network benchmark, 2024) and of Khatua et al., *IGB*, KDD 2023.
//!
//! # Cost
//!
//! As GraphSAGE on each relation.
//!
//! # Deviations
//!
//! The own rows' weights of a type's relations, which only act by their sum, are one matrix. MLPerf
//! has none (`--no-own-rows`). Biases of the relations are one bias per type.

use graphmill_core::keyed;

use super::{
    RelationOptions, RelationSum, RelationWeights, TypedLayer, TypedLayerConfig, relation_sum::OwnWeights,
};
use crate::{Param, Result, layer::Linear};

/// Makes a layer.
pub(super) fn make(config: &TypedLayerConfig) -> Result<Box<dyn TypedLayer>> {
    let &TypedLayerConfig { schema, in_dim, out_dim, key, .. } = config;
    let own = (0..schema.num_types()).map(|t| {
        let key = keyed::key(&[key, 1, t as u64]);
        Linear::named(["own.weight", "bias"], in_dim, out_dim, true, key)
    });
    let own = if config.own.get::<RelationOptions>().no_own_rows {
        OwnWeights::None((0..schema.num_types()).map(|_| Param::zeros("bias", 1, out_dim)).collect())
    } else {
        OwnWeights::ByType(own.collect())
    };
    let weights = RelationWeights::full(schema.num_relations(), [in_dim, out_dim], keyed::key(&[key, 0]));
    Ok(Box::new(RelationSum::new(in_dim, out_dim, own, weights)))
}
