//! Bottom-layer rows that are computed once and read by the batches of a super-batch (NeutronOrch,
//! sections 4.1 and 4.2).
//!
//! ```text
//!   ahead.rs        the super-batch's batches, drawn but for their bottom blocks
//!   slots.rs        slots of the reused rows, and the destinations of bottom blocks that they replace
//!   hot.rs          which nodes' rows are worth it: the hot queue
//!   history.rs      the bottom layer's parameters by version, as far back as rows are made from them
//!   maker.rs        rows from nodes and parameters
//!   basis.rs        the directions in which rows follow the parameters all the same
//!   embeddings.rs   the rows, and how old they are
//! ```
//!
//! The stages read from here what a strategy has put here ([`crate::strategy::layered`]); none of
//! it knows a thread.

mod ahead;
mod basis;
mod embeddings;
mod history;
mod hot;
mod maker;
mod slots;

pub use ahead::Ahead;
pub use basis::basis;
pub use embeddings::{Embeddings, Reuse, Slice};
pub use history::{History, Place, Snapshot, Span};
pub use hot::{HotQueue, Ranking};
pub use maker::{Maker, RowVersion};
pub use slots::Slots;
