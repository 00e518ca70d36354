//! Two dense layers over the products of both rows and the structure of the graph around the pair.
//!
//! # Algorithm
//!
//! `relu([h t | s] W + b) w + c`, with `h t` by elements and `s` the features of the pair
//! ([`PairStructure`]), computed from the graph without the pair's own edge: [`super::network`]
//! with these columns.
//!
//! # Source
//!
//! Zhang and Chen, *Link prediction based on graph neural networks*, NeurIPS 2018: the structure
//! around a pair without its edge, beside embeddings. The features are those of
//! [`crate::link::structure`].
//!
//! # Cost
//!
//! O((F + K) H) per pair and the searches of its features, once a batch.

#![forbid(unsafe_code)]

use std::sync::Arc;

use super::{
    Decoder, DecoderConfig, Pairs,
    network::{self, Columns},
};
use crate::{
    Error, Result,
    link::structure::{PairStructure, WIDTH},
};

/// Makes the decoder.
///
/// # Errors
/// A number is out of range, or the configuration has no graph.
pub(super) fn make(config: &DecoderConfig) -> Result<Box<dyn Decoder>> {
    let Some(graph) = config.graph else {
        return Err(Error::config("graph", "none", "must be the graph whose structure around pairs is read"));
    };
    network::make(config, graph.clone())
}

impl Columns for Arc<PairStructure> {
    fn width(&self) -> usize {
        WIDTH
    }

    fn write(&self, pairs: &Pairs, i: usize, out: &mut [f32]) {
        let is_known = pairs.nodes.iter().all(|nodes| nodes.len() == pairs.source.num_rows());
        assert!(is_known, "numbers of the nodes of pairs");
        PairStructure::write(self, pairs.nodes.map(|nodes| nodes[i]), out);
    }
}
