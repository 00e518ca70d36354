//! Stages of a minibatch: order, sample and extract ([`loader`]), and train ([`learner`], by the
//! loss of [`target_loss`]).

#![forbid(unsafe_code)]

pub mod learner;
pub mod loader;
pub mod target_loss;
