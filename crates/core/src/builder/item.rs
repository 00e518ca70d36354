//! Items that are distributed and sorted: the key of an edge, with or without its weight.
//!
//! An unweighted edge is only its 64-bit key, so that unweighted graphs pay nothing for weights.

/// Edge under construction: its destination in the upper and its source in the lower half of 64
/// bits, in ascending order the rows of a CSC graph.
///
/// ```
/// use graphmill_core::builder::item::{Item, Weighted};
///
/// // the edge from node 1 to node 2
/// let key = 2 << 32 | 1;
/// assert_eq!(<Weighted as Item>::new(key, 0.5).weight(), 0.5);
/// assert_eq!(<u64 as Item>::new(key, 0.5).weight(), 1.0);
/// assert!(key < <u64 as Item>::new(3 << 32, 0.5).key());
/// ```
pub trait Item: bytemuck::Pod + Send + Sync {
    /// True if the item has a weight.
    const WEIGHTED: bool;

    /// Creates an edge with this key; an unweighted item drops the weight.
    fn new(key: u64, weight: f32) -> Self;

    /// Key of the edge.
    fn key(self) -> u64;

    /// Weight of the edge; 1 if unweighted.
    fn weight(self) -> f32;
}

impl Item for u64 {
    const WEIGHTED: bool = false;

    #[inline(always)]
    fn new(key: u64, _: f32) -> Self {
        key
    }

    #[inline(always)]
    fn key(self) -> u64 {
        self
    }

    #[inline(always)]
    fn weight(self) -> f32 {
        1.0
    }
}

/// Source, destination and the bits of the weight: 12 bytes, where a struct of a 64-bit key would
/// take 16.
pub type Weighted = [u32; 3];

impl Item for Weighted {
    const WEIGHTED: bool = true;

    #[inline(always)]
    fn new(key: u64, weight: f32) -> Self {
        [key as u32, (key >> 32) as u32, weight.to_bits()]
    }

    #[inline(always)]
    fn key(self) -> u64 {
        u64::from(self[1]) << 32 | u64::from(self[0])
    }

    #[inline(always)]
    fn weight(self) -> f32 {
        f32::from_bits(self[2])
    }
}
