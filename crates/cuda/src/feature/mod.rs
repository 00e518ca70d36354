//! Feature rows in the memory of devices, with the rest in host memory that their kernels read in
//! place.
//!
//! - [`Tiered`]: the hottest rows, loaded once, on one device or several.
//! - [`Dynamic`]: rows come and go as they are asked for.
//!
//! Either gives the same bytes as the table itself, and says what it read from where.

mod dynamic;
mod stored;
mod tiered;

pub use dynamic::{Dynamic, Policy};
pub use stored::Stored;
pub use tiered::Tiered;
