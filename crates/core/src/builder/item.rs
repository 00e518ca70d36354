//! What is dealt and sorted: the key of an edge, with or without its weight.
//!
//! Without weights an edge is 64 bits and nothing else, so that those who have none pay nothing for those who have.

/// An edge on its way: its destination in the upper and its source in the lower half of 64 bits, in ascending order the
/// rows of a CSC graph.
pub trait Item: bytemuck::Pod + Send + Sync {
    /// Whether a weight travels with the key.
    const WEIGHTED: bool;

    /// The edge of this key; the weight is dropped where none travels.
    fn new(key: u64, weight: f32) -> Self;

    /// Its key.
    fn key(self) -> u64;

    /// Its weight; 1 where none travels.
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

/// Source, destination and the bits of the weight: 12 bytes, where a struct of a 64-bit key would take 16.
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
