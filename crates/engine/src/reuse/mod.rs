//! Bottom-layer rows that are computed once and read by all batches of a super-batch (NeutronOrch,
//! Ai et al., VLDB 2024, sections 4.1 and 4.2).
//!
//! | file | contents |
//! | --- | --- |
//! | `lookahead.rs` | the batches of a super-batch, drawn without their bottom blocks |
//! | `row_slots.rs` | slots of the reused rows, and their removal from the bottom blocks |
//! | `hot_queue.rs` | the nodes whose rows are reused |
//! | `history.rs` | versions of the bottom layer's parameters that rows are made from |
//! | `row_maker.rs` | computation of rows from nodes and parameters |
//! | `basis.rs` | directions in which rows follow the parameters |
//! | `embeddings.rs` | the rows and their age |
//! | `plan.rs` | length, hot nodes and memory of the super-batches of a run |
//! | `pushed.rs` | the table of the strategy `historical` |
//! | `exchange.rs`, `shared_rows.rs` | the ranks that make rows together; their counts and rows |
//! | `choices.rs` | the length of super-batches, and the number of hot nodes |
//! | `counts.rs`, `work.rs` | counts of the work that reuse saves and adds; its constants |
//! | `totals.rs` | numbers of rows that an epoch requests, reuses and makes |
//!
//! Reuse around a strategy ([`crate::strategy::layered`]), and that on several types
//! ([`crate::typed`]), fill these values, and the stages read them. They do not depend on threads.

#![forbid(unsafe_code)]

mod basis;
mod choices;
mod counts;
mod embeddings;
mod exchange;
mod history;
mod hot_queue;
mod lookahead;
mod plan;
pub(crate) mod pushed;
mod row_maker;
pub(crate) mod row_slots;
mod shared_rows;
mod totals;
mod work;

pub use basis::basis;
pub use choices::{length_at, max_hot, shortest_length};
pub use counts::count;
pub use embeddings::{Embeddings, Reuse, Slice};
pub use exchange::RowExchange;
pub use history::{BottomParameters, History, ReusePosition, Snapshot, SuperBatchSpan};
pub use hot_queue::{HotQueue, Ranking};
pub use lookahead::Lookahead;
pub use plan::{Preview, ReusePlan, RowShape};
pub use pushed::{GatheredRows, PushedRows};
pub use row_maker::{RowMaker, RowVersion};
pub use row_slots::RowSlots;
pub use totals::ReuseTotals;
pub use work::ReuseWork;
