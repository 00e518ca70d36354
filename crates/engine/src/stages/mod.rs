//! The stages of a minibatch's way: order, sample and extract ([`loader`]), and train
//! ([`learner`]).

pub mod learner;
pub mod loader;
