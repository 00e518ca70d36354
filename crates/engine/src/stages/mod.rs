//! Stages of a minibatch: order, sample and extract ([`loader`]), and train ([`learner`]).

pub mod learner;
pub mod loader;
