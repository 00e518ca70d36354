//! The arrays of a block on the device against its sizes, as far as [`Checked`] operations leave
//! them: they may be there alone, so their lengths are taken there. The values of `indices` are the
//! sampler's promise.
//!
//! [`Checked`]: graphmill_nn::backend::ops::Checked

use graphmill_core::Block;
use graphmill_nn::backend::{AggregationWeights, EdgeWeight, OwnWeight};

use crate::block::{Resident, ResidentTransposed};

/// The arrays agree with the block's sizes.
pub(super) fn block(b: &Block, on_device: &Resident) {
    assert_eq!(on_device.num_dst, b.num_dst, "a block's destinations on the device");
    assert_eq!(on_device.num_edges, b.num_edges(), "a block's edges on the device");
    assert_eq!(on_device.dst_ids.is_some(), b.dst_ids.is_some(), "a block's kind on the device");
}

/// The transpose of a block, which is local and has one.
pub(super) fn local<'a>(b: &Block, on_device: &'a Resident) -> &'a ResidentTransposed {
    block(b, on_device);
    let back = on_device.transposed.as_ref().expect("a gradient needs a local, transposed block");
    assert_eq!(back.num_src, b.num_grad_src(), "a block's transpose");
    back
}

/// The block has the weights that are asked for.
pub(super) fn weights(on_device: &Resident, weights: AggregationWeights) {
    if matches!(weights.edge, EdgeWeight::Stored | EdgeWeight::Normalized) && on_device.num_edges > 0 {
        assert!(on_device.edge_weight.is_some(), "a block's edge weights");
    }
    if matches!(weights.own, OwnWeight::Stored) && on_device.num_dst > 0 {
        assert!(on_device.self_weight.is_some(), "a block's self weights");
    }
}
