//! Conformance tests of samplers and cache policies, for crates that define their own (feature
//! `testing`). The built-in ones pass the same functions. Each panics with the broken rule.

#![forbid(unsafe_code)]

mod policy;
mod sampler;

pub use policy::check_policy;
pub use sampler::check_sampler;
#[cfg(test)]
pub(crate) use sampler::{check_draws, without};
