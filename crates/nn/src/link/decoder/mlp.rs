//! Two dense layers over the products of both rows.
//!
//! # Algorithm
//!
//! `relu((h t) W + b) w + c`, with `h t` by elements: [`super::network`] without other columns.
//!
//! # Source
//!
//! The link predictors of Hu et al., *Open graph benchmark*, NeurIPS 2020, in its examples.
//!
//! # Cost
//!
//! O(F H) per pair.

#![forbid(unsafe_code)]

use super::{
    Decoder, DecoderConfig, Pairs,
    network::{self, Columns},
};
use crate::Result;

#[derive(Clone)]
struct NoColumns;

/// Makes the decoder.
pub(super) fn make(config: &DecoderConfig) -> Result<Box<dyn Decoder>> {
    network::make(config, NoColumns)
}

impl Columns for NoColumns {
    fn width(&self) -> usize {
        0
    }

    fn write(&self, _: &Pairs, _: usize, _: &mut [f32]) {}
}
