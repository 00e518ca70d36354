//! Every numbered example runs. They are modules of this test, so that only one program is linked.

#![allow(unreachable_pub, reason = "an example's main is public for this test")]

#[path = "../../../examples/01-train.rs"]
mod train;

#[path = "../../../examples/02-own-sampler.rs"]
mod own_sampler;

#[path = "../../../examples/03-own-layer.rs"]
mod own_layer;

#[path = "../../../examples/04-own-cache-policy.rs"]
mod own_cache_policy;

#[path = "../../../examples/05-own-training-loop.rs"]
mod own_training_loop;

#[path = "../../../examples/06-features-beyond-memory.rs"]
mod features_beyond_memory;

#[test]
fn arrays_are_trained_and_predicted_on() {
    train::main().unwrap();
}

#[test]
fn a_sampler_is_registered() {
    own_sampler::main().unwrap();
}

#[test]
fn a_layer_is_registered() {
    own_layer::main().unwrap();
}

#[test]
fn a_cache_policy_is_registered() {
    own_cache_policy::main().unwrap();
}

#[test]
fn an_own_training_loop_trains() {
    own_training_loop::main().unwrap();
}

#[test]
fn features_beyond_memory_train() {
    features_beyond_memory::main().unwrap();
}
