//! Tests on NVIDIA devices, emulated without one, one module each. They are one program, because to
//! link a program takes longer than most of them run. `cargo test -p graphmill-cuda --features shim
//! --test main sampler::` runs one module.

#[cfg(feature = "shim")]
mod all_reduce;
#[cfg(feature = "shim")]
mod backend;
#[cfg(feature = "shim")]
mod counting;
#[cfg(feature = "shim")]
mod device;
#[cfg(feature = "shim")]
mod feature;
mod nvidia;
#[cfg(feature = "shim")]
#[path = "../../nn/tests/operations/mod.rs"]
mod operations;
mod ptx;
#[cfg(feature = "shim")]
mod queue;
#[cfg(feature = "shim")]
mod replay;
#[cfg(feature = "shim")]
mod sampler;
#[cfg(feature = "shim")]
mod shim;
#[cfg(feature = "shim")]
mod stand_in;
#[cfg(feature = "shim")]
mod typed;
