//! Checks of a block's arrays on the device against its sizes. [`Checked`] operations leave these
//! to the backend, because the arrays may be on the device alone. The sampler guarantees the values
//! of `indices`.
//!
//! [`Checked`]: graphmill_nn::backend::ops::Checked

use graphmill_core::Block;
use graphmill_nn::backend::{AggregationWeights, EdgeWeight, OwnWeight};

use crate::block::{Resident, ResidentTransposed};

/// Asserts that the arrays match the block's sizes.
pub(super) fn block(b: &Block, on_device: &Resident) {
    assert_eq!(on_device.num_dst, b.num_dst, "a block's destinations on the device");
    assert_eq!(on_device.num_edges, b.num_edges(), "a block's edges on the device");
    assert_eq!(on_device.dst_ids.is_some(), b.dst_ids.is_some(), "a block's kind on the device");
}

/// Transpose of a block, which must be local and transposed.
pub(super) fn local<'a>(b: &Block, on_device: &'a Resident) -> &'a ResidentTransposed {
    block(b, on_device);
    let back = on_device.transposed.as_ref().expect("a gradient requires a local, transposed block");
    assert_eq!(back.num_src, b.num_grad_src(), "a block's transpose");
    back
}

/// Asserts that the block has the required weights.
pub(super) fn weights(on_device: &Resident, weights: AggregationWeights) {
    if matches!(weights.edge, EdgeWeight::Stored | EdgeWeight::Normalized) && on_device.num_edges > 0 {
        assert!(on_device.edge_weight.is_some(), "a block's edge weights");
    }
    if matches!(weights.own, OwnWeight::Stored) && on_device.num_dst > 0 {
        assert!(on_device.self_weight.is_some(), "a block's self weights");
    }
}
