//! The shape of the tree of running sums.

/// Children of a node of the tree.
pub(super) const FAN: usize = 32;

/// Numbers looked up together.
pub(super) const ROUND: usize = 8;

/// The sums before each child; the sum of all before those that are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub(super) struct Before(pub(super) [u32; FAN]);
