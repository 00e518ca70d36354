//! Node of the tree of running sums.

/// Number of children of a node.
pub(super) const FAN: usize = 32;

/// Number of look-ups in a round.
pub(super) const ROUND: usize = 8;

/// Sum of the weights before each child; absent children have the total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub(super) struct PrefixSums(pub(super) [u32; FAN]);
