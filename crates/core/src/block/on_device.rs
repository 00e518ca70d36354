//! A block's copy in a device's memory.

use std::{
    any::Any,
    fmt::Debug,
    sync::{Arc, OnceLock},
};

use super::Block;

/// A block in a device's memory: the arrays of [`Block`], whose lengths the host knows.
///
/// ```
/// use std::any::Any;
/// use graphmill_core::{Block, block::DeviceBlock};
///
/// /// A block of a simulated device, with a single edge.
/// #[derive(Debug)]
/// struct OneEdge;
///
/// impl DeviceBlock for OneEdge {
///     fn device(&self) -> usize {
///         0
///     }
///     fn num_edges(&self) -> usize {
///         1
///     }
///     fn is_weighted(&self) -> bool {
///         false
///     }
///     fn is_transposed(&self) -> bool {
///         false
///     }
///     fn download(&self, block: &mut Block) {
///         (block.indptr, block.indices) = (vec![0, 1], vec![1]);
///     }
///     fn as_any(&self) -> &dyn Any {
///         self
///     }
/// }
///
/// let mut block = Block { num_dst: 1, num_src: 2, ..Block::default() };
/// OneEdge.download(&mut block);
/// assert_eq!(block.num_edges(), OneEdge.num_edges());
/// ```
pub trait DeviceBlock: Any + Debug + Send + Sync {
    /// Number of the device.
    fn device(&self) -> usize;

    /// `E`.
    fn num_edges(&self) -> usize;

    /// Reports whether edges have weights.
    fn is_weighted(&self) -> bool;

    /// Reports whether the transpose is there too.
    fn is_transposed(&self) -> bool;

    /// Copies all arrays to the host, in place of those of `block`.
    fn download(&self, block: &mut Block);

    /// The implementation, for downcasts.
    fn as_any(&self) -> &dyn Any;
}

/// Copy of a block on a device, if there is one.
#[derive(Clone, Debug, Default)]
pub struct OnDevice(pub(super) OnceLock<Arc<dyn DeviceBlock>>);

impl OnDevice {
    /// The copy of a block that was drawn on a device.
    pub fn of(block: Arc<dyn DeviceBlock>) -> Self {
        Self(OnceLock::from(block))
    }

    /// The copy.
    pub fn get(&self) -> Option<&Arc<dyn DeviceBlock>> {
        self.0.get()
    }
}
