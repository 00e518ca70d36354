//! Parts of models on streams of events: time encodings, and the memory of nodes.
//!
//! - [`TimeEncoding`]: a time difference as a row of cosines (TGAT).
//! - [`TemporalAttention`]: attention to neighbours with the time since their events (TGAT, TGN).
//! - [`RecurrentCell`]: a gated recurrent unit, or a plain cell.
//! - [`NodeMemory`], [`MemoryUpdater`]: the memory of TGN, with messages that wait for one batch.
//! - [`DygFormer`]: a transformer over the histories of both nodes of a pair.
//! - [`TimeProjection`]: rows of nodes some time after their last events (JODIE).
//!
//! # Order of a batch
//!
//! No event may reach its own prediction, so the steps of a batch have this order:
//!
//! 1. [`MemoryUpdater::update`] computes the memory of the batch's nodes from *waiting* messages of
//!    earlier batches; gradients flow to its parameters.
//! 2. The model scores the batch's events and negatives.
//! 3. [`NodeMemory::persist`] stores the updated rows of the nodes that have events.
//! 4. [`NodeMemory::push`] stores the messages of the batch's events, which wait for the next
//!    batch.
//! 5. [`MemoryUpdater::backward`] and the step of the optimizer.

#![forbid(unsafe_code)]

mod attention;
mod cell;
mod channel;
mod dygformer;
mod encoding;
mod memory;
mod pair_tokens;
mod projection;
mod times;
mod transformer;
mod updater;

pub use attention::{TemporalAttention, TemporalAttentionConfig, TemporalInput, TemporalState};
pub use cell::{CellInput, CellKind, CellState, RecurrentCell};
pub use dygformer::{DygFormer, DygFormerConfig, DygFormerState};
pub use encoding::TimeEncoding;
pub use memory::{MemoryEvents, MemoryState, NodeMemory};
pub use pair_tokens::PairInput;
pub use projection::TimeProjection;
pub use updater::MemoryUpdater;
