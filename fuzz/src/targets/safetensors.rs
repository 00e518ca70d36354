//! Safetensors file of a model, read into a small model.

use graphmill_engine::checkpoint::load_model;
use graphmill_nn::model::{Model, ModelConfig};

use super::{Answer, one_file};

pub(super) const TOKENS: &[&[u8]] = &[
    b"{\"__metadata__\":{\"xxh3\":\"0000000000000000\"},",
    b"\"dtype\":\"F32\"",
    b"\"dtype\":\"F16\"",
    b"\"shape\":[2,2]",
    b"\"shape\":[4294967296,4294967296]",
    b"\"data_offsets\":[0,16]",
    b"18446744073709551615",
];

/// One input: the bytes of the file.
pub fn run(data: &[u8]) -> Answer {
    one_file("safetensors", "model.safetensors", data, data.len(), |path| {
        Ok(load_model(path, &mut model())?)
    })
}

/// The model that the seeds are of.
///
/// # Panics
/// Never: the configuration is sound.
pub fn model() -> Model {
    let config = ModelConfig { hidden: 2, layers: 1, ..ModelConfig::default() };
    Model::new(&config, 2, 2, 0).expect("a sound configuration")
}
