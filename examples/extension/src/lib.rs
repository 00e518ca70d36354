//! A crate that extends Graphmill from outside. It depends only on `graphmill`, and adds a row to
//! the tables of samplers, layers, cache policies, strategies and partitioners. The names then work
//! like the built-in ones: in [`TrainConfig`](graphmill::TrainConfig), in TOML files and in
//! messages.
//!
//! The sampler, the layer and the cache policy are those of the examples 02 to 04.
//!
//! ```
//! use graphmill::prelude::*;
//!
//! graphmill_extension::register()?;
//! let data = DatasetBuilder::new(60)
//!     .undirected_edges((0..60).map(|v| (v, (v + 1) % 60)))
//!     .features(1, (0..60).map(|v| (v / 30) as f32).collect())
//!     .classes((0..60).map(|v| v / 30).collect())
//!     .random_split(0.5, 0.2, 1)
//!     .build()?;
//! let config = TrainConfig { sampler: "window".into(), strategy: "one-ahead".into(), ..TrainConfig::default() };
//! println!("{:?}", graphmill::train(&config, &data)?.summary().test.score);
//! # Ok::<(), graphmill::Error>(())
//! ```

#![forbid(unsafe_code)]

#[path = "../../04-own-cache-policy.rs"]
pub mod cache_policy;
#[path = "../../03-own-layer.rs"]
pub mod layer;
pub mod partitioner;
#[path = "../../02-own-sampler.rs"]
pub mod sampler;
pub mod strategy;

use graphmill::{Result, dataset::partition, engine::strategy as strategies, loader, nn};

/// Adds the rows of this crate to the tables. Call it once, before the first run that names one of
/// them.
///
/// # Errors
/// A name already exists.
pub fn register() -> Result<()> {
    loader::sampler::TABLE.register(sampler::WINDOW)?;
    nn::layer::TABLE.register(layer::OWN_AND_MEAN)?;
    loader::policy::TABLE.register(cache_policy::CLOCK)?;
    strategies::TABLE.register(strategy::ONE_AHEAD)?;
    partition::TABLE.register(partitioner::RUNS)?;
    Ok(())
}
